package layers

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// noted is a recorder that writes down what it is told.
type noted struct {
	path  string
	lines []string
}

type nothing struct{ name string }

func (nothing) DType() tensor.DType { return tensor.Float32 }
func (nothing) Shape() tensor.Shape { return tensor.Shape{2} }

func (n *noted) note(format string, args ...any) {
	n.lines = append(n.lines, n.path+"> "+fmt.Sprintf(format, args...))
}

func (n *noted) Call(op string, args []any, _ Named) ([]any, error) {
	n.note("%s of %d", op, len(args))
	return []any{nothing{op}}, nil
}

func (n *noted) Weight(name string, d tensor.DType) (Tensor, error) {
	n.note("weight %s %v", name, d)
	return nothing{name}, nil
}

func (n *noted) Constant(*tensor.Tensor) (Tensor, error) {
	n.note("constant")
	return nothing{"constant"}, nil
}

func (n *noted) Enter(path string)        { n.path = path }
func (n *noted) Leave(path string, _ any) { n.note("leave %s", path) }

// leafClasses are modules that multiply by a weight, and a root that has them twice and calls ops before and after them.
func leafClasses() Classes {
	return Classes{
		"Leaf": Unary(func(t *Trace, m *Module, x Tensor) Tensor {
			if b := t.Param(m, "bias"); b != nil {
				x = t.Op("add", x, b)
			}
			return t.Op("mul", x, t.Param(m, "weight"))
		}),
		"Root": Unary(func(t *Trace, m *Module, x Tensor) Tensor {
			x = t.Op("relu", x)
			x = t.Child(m, "first", x)
			x = t.Op("neg", x)
			x = t.Child(m, "again", x)
			return t.Op("exp", t.Child(m, "tied", x))
		}),
	}
}

// TestTrace: calls belong to the module that makes them, a module in two places goes by its first, tied weights are read
// where the checkpoint has them, and None asks for nothing.
func TestTrace(t *testing.T) {
	leaf := New("Leaf", nil).Param("weight", 2)
	leaf.Params = append(leaf.Params, Param{Name: "bias", None: true})
	tied := New("Leaf", nil).Param("weight", 2)
	table := tensor.Of([]float32{1, 2}, 2)
	tied.Params = append(tied.Params, Param{Name: "bias", DType: tensor.Float32, Shape: tensor.Shape{2}, Buffer: true,
		Transient: true, Value: table})
	root := New("Root", nil).Add("first", leaf).Add("again", leaf).Add("tied", tied)
	a := &Architecture{Name: "a", Root: root, Classes: leafClasses(), Weights: map[string]string{"tied.weight": "first.weight"}}
	n := new(noted)
	if _, err := a.Trace(n, []any{nothing{"x"}}); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"> aten::relu of 1",
		"first> weight first.weight float32", "first> aten::mul of 2", "first> leave first",
		"> aten::neg of 1",
		"first> weight first.weight float32", "first> aten::mul of 2", "first> leave first",
		"tied> constant", "tied> aten::add of 2", "tied> weight first.weight float32", "tied> aten::mul of 2",
		"tied> leave tied",
		"> aten::exp of 1", "> leave ",
	}
	if diff := cmp.Diff(want, n.lines); diff != "" {
		t.Error(diff)
	}
	// The error names the module where it happened.
	tied.Params = nil
	var failed *TraceError
	if _, err := a.Trace(new(noted), []any{nothing{"x"}}); !errors.As(err, &failed) || failed.Path != "tied" {
		t.Errorf("a parameter that is missing: %v", err)
	}
}

// TestStateDictChecks: every difference is listed, under the checkpoint's names, and what a state dict leaves out is not
// wanted of it.
func TestStateDictChecks(t *testing.T) {
	leaf := New("Leaf", nil).Param("weight", 2, 3)
	leaf.Params = append(leaf.Params, Param{Name: "bias", None: true},
		Param{Name: "table", DType: tensor.Float32, Shape: tensor.Shape{2}, Buffer: true, Transient: true},
		Param{Name: "mean", DType: tensor.Float32, Shape: tensor.Shape{2}, Buffer: true})
	a := &Architecture{Name: "a", Root: New("Root", nil).Add("x", leaf).Add("y", nil),
		Weights: map[string]string{"x.weight": "kept"}}
	entry := func(name string, shape ...int) Entry { return Entry{name, tensor.Float32, shape} }
	if err := a.Check(StateDict{entry("kept", 2, 3), entry("x.mean", 2)}); err != nil {
		t.Errorf("what fits: %v", err)
	}
	err := a.Check(StateDict{entry("kept", 3, 2), entry("x.weight", 2, 3), entry("x.table", 2)})
	var e *MismatchError
	if !errors.As(err, &e) {
		t.Fatal(err)
	}
	if !slices.Equal(e.Missing, []string{"x.mean"}) || !slices.Equal(e.Unexpected, []string{"x.weight", "x.table"}) ||
		len(e.Misshaped) != 1 || e.Misshaped[0].Name != "kept" || e.Count() != 4 {
		t.Errorf("%+v", e)
	}
}

// TestRegistry: ops of an embedder are added to another registry, under names of their own, with all that they need.
func TestRegistry(t *testing.T) {
	whole := graph.OpDef{Kind: "my::op", Shape: func(in []graph.Spec, _ graph.Attrs) ([]graph.Spec, error) { return in[:1], nil }, Reference: func(_, _ []*tensor.Tensor, _ graph.Attrs) error { return nil }}
	change := func(f func(d *graph.OpDef)) graph.OpDef {
		d := whole
		f(&d)
		return d
	}
	before := graph.Standard().Kinds()
	more, err := graph.Standard().With(whole)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := more.Lookup("my::op"); !ok || len(more.Kinds()) != len(before)+1 {
		t.Error("the op is not there")
	}
	if _, ok := graph.Standard().Lookup("my::op"); ok || !slices.Equal(graph.Standard().Kinds(), before) {
		t.Error("the registry that it was made from has changed")
	}
	for name, d := range map[string]graph.OpDef{
		"the kind of another": change(func(d *graph.OpDef) { d.Kind = "relu" }), "no kind": change(func(d *graph.OpDef) { d.Kind = "" }),
		"no shape rule": change(func(d *graph.OpDef) { d.Shape = nil }), "no reference": change(func(d *graph.OpDef) { d.Reference = nil }),
	} {
		if _, err := graph.Standard().With(d); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
	if _, err := more.With(whole); err == nil {
		t.Error("a kind is taken twice")
	}
	// A result whose bytes are too many to count is none.
	g := &graph.Graph{}
	for n, fits := range map[int]bool{1 << 60: true, 1 << 61: false} {
		x := g.AddConst(tensor.Of([]float32{1}))
		o := graph.Operand{Value: x, Layout: tensor.Layout{Shape: tensor.Shape{n}, Strides: []int{0}}}
		if _, err := g.Emit(graph.Standard(), graph.Op{Kind: "relu", In: []graph.Operand{o}}); (err == nil) != fits {
			t.Errorf("%d floats: %v", n, err)
		}
	}
}
