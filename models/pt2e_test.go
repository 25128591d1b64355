package models_test

import (
	"encoding/json"
	"math"
	"os"
	"testing"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// A pt2eRecord is what PyTorch computed with a program of make_pt2e.py.
type pt2eRecord struct {
	Shape []int
	Runs  []struct {
		X []float32
		Y []float64
	}
}

// TestPT2EWeightsStay: weights that PyTorch 2 Export quantization made int8 with zero points of 0 are multiplied by as
// they lie, and only those with other zero points are widened; a zero point that the program changes is none of 0. The
// numbers are PyTorch's, and the same bits in every mode.
func TestPT2EWeightsStay(t *testing.T) {
	text, err := os.ReadFile("testdata/pt2e.json")
	if err != nil {
		t.Fatal(err)
	}
	var recorded map[string]pt2eRecord
	if err := json.Unmarshal(text, &recorded); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]struct{ asTheyLie, widened int }{"pt2e": {2, 1}, "pt2e_moves": {0, 1}, "pt2e_last": {0, 1}} {
		record := recorded[name]
		ckpt, err := loader.Open("testdata/" + name + ".pt2")
		if err != nil {
			t.Fatal(err)
		}
		defer ckpt.Close()
		model, err := models.Build(ckpt, models.Options{})
		if err != nil {
			t.Fatal(err)
		}
		var first []*tensor.Tensor
		for _, start := range []func() (*runtime.Session, error){
			func() (*runtime.Session, error) { return runtime.Resident(t.Context(), model, runtime.Options{}) },
			func() (*runtime.Session, error) { return runtime.Page(t.Context(), model, runtime.Options{}) },
		} {
			s, err := start()
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			input := model.Inputs()[0].Name
			p, err := s.Plan(t.Context(), map[string]tensor.Shape{input: record.Shape})
			if err != nil {
				t.Fatal(err)
			}
			asTheyLie, widened := 0, 0
			g := p.Lowered.Graph
			for _, op := range g.Ops {
				switch {
				case op.Kind == "linear" && g.Values[op.In[1].Value].DType == tensor.Int8 && len(op.In) == 5:
					asTheyLie++ // by the scales that are its last operand
				case op.Kind == "cast" && g.Values[op.In[0].Value].DType == tensor.Int8 &&
					g.Values[op.In[0].Value].Role == graph.Weight:
					widened++
				}
			}
			if asTheyLie != want.asTheyLie || widened != want.widened {
				t.Errorf("%s: %d weights are read as they lie and %d are widened, want %v", name, asTheyLie, widened, want)
			}
			for k, run := range record.Runs {
				out, err := s.Run(t.Context(), runtime.Values{input: tensor.Of(run.X, record.Shape...)})
				if err != nil {
					t.Fatal(err)
				}
				y := out[model.Outputs()[0]]
				got, err := tensor.Slice[float32](y)
				if err != nil {
					t.Fatal(err)
				}
				for i, v := range run.Y {
					if math.Abs(float64(got[i])-v) > 1e-5*math.Max(1, math.Abs(v)) {
						t.Errorf("%s: pass %d gives %v, PyTorch %v", name, k, got, run.Y)
						break
					}
				}
				if len(first) <= k {
					first = append(first, y)
				} else if string(first[k].Data) != string(y.Data) {
					t.Errorf("%s: pass %d gives other bits in another mode", name, k)
				}
			}
		}
	}
}
