package models_test

import (
	"testing"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/graph/rewrite"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/models/internal/zoo"
	"github.com/optimem/optimem/tensor"
)

// TestInt8WeightsStay: in whichever way a program widens weights of int8, linears read them as they are.
func TestInt8WeightsStay(t *testing.T) {
	for _, name := range []string{"extra/int8", "extra/int8_bfloat16"} {
		for _, form := range []string{"aten", "core"} {
			ckpt, ref, err := zoo.Load(zooFolder, name, form)
			if err != nil {
				t.Fatal(err)
			}
			defer ckpt.Close()
			model, err := models.Build(ckpt, models.Options{})
			if err != nil {
				t.Fatal(err)
			}
			shapes := make(map[string]tensor.Shape)
			for input, f := range ref.Cases[0].Inputs {
				x, err := f.Tensor(input)
				if err != nil {
					t.Fatal(err)
				}
				shapes[input] = x.Layout.Shape
			}
			g, err := model.Graph(shapes)
			if err != nil {
				t.Fatal(err)
			}
			g = rewrite.Optimise(rewrite.Prune(g), graph.Standard(), 0, nil)
			scaled := 0
			for _, op := range g.Ops {
				for k, o := range op.In {
					if o.Value == graph.NoValue || g.Values[o.Value].DType != tensor.Int8 {
						continue
					}
					if op.Kind != "linear" || k != 1 {
						t.Errorf("%s.%s: %s at %s reads int8", name, form, op.Kind, op.Path)
					}
					scaled++
				}
			}
			if scaled != 5 {
				t.Errorf("%s.%s: %d linears of int8, want 5", name, form, scaled)
			}
		}
	}
}
