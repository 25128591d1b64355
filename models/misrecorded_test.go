package models_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/optimem/optimem/loader/exported"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/models/internal/zoo"
	optimem "github.com/optimem/optimem/runtime"
)

// TestMisrecordedStates: the states of an LSTM may be recorded with a dimension of one too many, as some releases of PyTorch do, and
// what is made of them too: they are what PyTorch computes. No other value may.
func TestMisrecordedStates(t *testing.T) {
	run := func(change func(g *exported.Graph)) (optimem.Values, error) {
		t.Helper()
		ckpt, ref, err := zoo.Load(zooFolder, "nn/lstm", "aten")
		if err != nil {
			t.Fatal(err)
		}
		change(ckpt.Program.Exported.Graph)
		model, err := models.Build(ckpt, models.Options{})
		if err != nil {
			t.Fatal(err)
		}
		session, err := optimem.Resident(t.Context(), model, optimem.Options{Threads: 1})
		if err != nil {
			return nil, err
		}
		defer session.Close()
		return session.Run(t.Context(), values(t, ref.Cases[0]))
	}
	longer := func(g *exported.Graph, name string, by int64) {
		meta := *g.TensorValues[name]
		meta.Sizes = slices.Insert(slices.Clone(meta.Sizes), 1, exported.SymInt{Int: by})
		meta.Strides = slices.Insert(slices.Clone(meta.Strides), 1, meta.Strides[0])
		g.TensorValues[name] = &meta
	}
	last := func(g *exported.Graph) { // h[-1], as PyTorch has it there: [1, batch, size]
		longer(g, "getitem_1", 1)
		meta := *g.TensorValues["getitem_1"]
		meta.Sizes, meta.Strides = meta.Sizes[1:], meta.Strides[1:]
		g.TensorValues["last"] = &meta
		g.Nodes = append(g.Nodes, exported.Node{
			Target: "torch.ops.aten.select.int",
			Inputs: []exported.NamedArgument{
				{Name: "self", Arg: exported.Argument{Tag: exported.Tensor, Name: "getitem_1"}},
				{Name: "dim", Arg: exported.Argument{Tag: exported.Int, Int: 0}},
				{Name: "index", Arg: exported.Argument{Tag: exported.Int, Int: -1}},
			},
			Outputs: []exported.Argument{{Tag: exported.Tensor, Name: "last"}},
		})
	}
	want, err := run(func(*exported.Graph) {})
	if err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		change  func(g *exported.Graph)
		refused bool
	}{
		"both states":          {func(g *exported.Graph) { longer(g, "getitem_1", 1); longer(g, "getitem_2", 1) }, false},
		"what is made of them": {last, false},
		"a result":             {func(g *exported.Graph) { longer(g, "getitem", 1) }, true},
		"another value":        {func(g *exported.Graph) { longer(g, "linear", 1) }, true},
		"more elements":        {func(g *exported.Graph) { longer(g, "getitem_1", 2) }, true},
		"made of what is recorded well": {func(g *exported.Graph) {
			last(g)
			g.TensorValues["getitem_1"] = g.TensorValues["getitem_2"]
		}, true},
	} {
		got, err := run(c.change)
		if c.refused {
			if err == nil || !strings.Contains(err.Error(), "recorded as") {
				t.Errorf("%s: %v", what, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		for name, x := range want {
			if y := got[name]; y == nil || !bytes.Equal(x.Data, y.Data) || !y.Layout.Shape.Equal(x.Layout.Shape) {
				t.Errorf("%s: %s is %v", what, name, y)
			}
		}
	}
}
