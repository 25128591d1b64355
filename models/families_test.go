package models_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/loader"
	program "github.com/optimem/optimem/loader/exported"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/models/internal/zoo"
	"github.com/optimem/optimem/tensor"
)

// recognised are the models of the zoo whose bare state dict is enough, and what they are recognised as. Their graphs
// must be those of the exported programs, op by op, so that both forms give the same bits.
var recognised = map[string]string{
	"tv/resnet18": "resnet18", "tv/resnet34": "resnet34", "tv/resnet50": "resnet50", "tv/resnet101": "resnet101",
	"tv/resnet152": "resnet152", "tv/resnext50_32x4d": "resnext50_32x4d", "tv/resnext101_32x8d": "resnext101_32x8d",
	"tv/resnext101_64x4d": "resnext101_64x4d", "tv/wide_resnet50_2": "wide_resnet50_2",
	"tv/wide_resnet101_2": "wide_resnet101_2",
}

// TestRecognised builds models from nothing but names, shapes and dtypes, and compares their graphs with those of the
// exported programs.
func TestRecognised(t *testing.T) {
	for name, arch := range recognised {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			recognises(t, name, arch)
		})
	}
}

// recognises compares the bare state dict of a model of the zoo, which stands for an architecture, with its program.
func recognises(t *testing.T, name, arch string) {
	t.Helper()
	exported, bare, ref := bothForms(t, name)
	model, err := models.Build(bare, models.Options{})
	if err != nil {
		var ambiguous *models.AmbiguousError
		if !errors.As(err, &ambiguous) {
			t.Fatal(err)
		}
		if model, err = models.Build(bare, models.Options{Arch: arch}); err != nil {
			t.Fatal(err)
		}
	}
	if model.Arch() != arch {
		t.Errorf("recognised as %q, want %q", model.Arch(), arch)
	}
	sameGraphs(t, exported, model, ref)
}

// bothForms returns the program of a model of the zoo, and a checkpoint of its weights alone.
func bothForms(t *testing.T, name string) (*models.Model, *loader.Checkpoint, *zoo.Reference) {
	t.Helper()
	ckpt, ref, err := zoo.Load(zooFolder, name, "aten")
	if err != nil {
		t.Fatal(err)
	}
	exported, err := models.Build(ckpt, models.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var weights []tensor.Weight
	for _, in := range ckpt.Program.Exported.Signature.Inputs {
		if in.Kind == program.Parameter || in.Kind == program.Buffer && in.Persistent {
			w, _ := ckpt.Weight(in.Target)
			weights = append(weights, w)
		}
	}
	bare, err := loader.NewCheckpoint(name, weights, nil)
	if err != nil {
		t.Fatal(err)
	}
	return exported, bare, ref
}

// sameGraphs compares the graphs that two models give for the inputs of a reference's cases.
func sameGraphs(t *testing.T, want, got *models.Model, ref *zoo.Reference) {
	t.Helper()
	for _, c := range ref.Cases {
		wantShapes, gotShapes := make(map[string]tensor.Shape), make(map[string]tensor.Shape)
		for i, port := range want.Inputs() {
			shape := c.Inputs[port.Name].Shape
			wantShapes[port.Name] = shape
			gotShapes[got.Inputs()[i].Name] = shape
		}
		a, err := want.Graph(wantShapes)
		if err != nil {
			t.Fatal(err)
		}
		b, err := got.Graph(gotShapes)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(describe(a), describe(b)); diff != "" {
			t.Fatalf("the graphs differ (-exported +recognised):\n%.4000s", diff)
		}
	}
}

// describe writes a graph as one line for each op: kind, path, attributes, and operands by what made them.
func describe(g *graph.Graph) []string {
	names := make([]string, len(g.Values))
	for id, v := range g.Values {
		switch v.Role {
		case graph.Weight, graph.State:
			names[id] = v.Weight.Name
		case graph.Const:
			names[id] = fmt.Sprintf("const %v%v %x", v.DType, v.Shape, v.Const[:min(len(v.Const), 64)])
		case graph.Input:
			names[id] = "input"
		}
	}
	var lines []string
	for i, op := range g.Ops {
		line := fmt.Sprintf("%s %s %v", op.Path, op.Kind, map[string]any(op.Attrs))
		for _, o := range op.In {
			if o.Value == graph.NoValue {
				line += " -"
				continue
			}
			line += fmt.Sprintf(" %s%v%v+%d", names[o.Value], o.Layout.Shape, o.Layout.Strides, o.Layout.Offset)
		}
		for k, id := range op.Out {
			names[id] = fmt.Sprintf("#%d.%d", i, k)
		}
		lines = append(lines, line)
	}
	for _, o := range g.Outputs {
		lines = append(lines, fmt.Sprintf("output %s%v", names[o.Operand.Value], o.Operand.Layout))
	}
	return lines
}
