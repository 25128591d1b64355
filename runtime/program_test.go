package runtime

import (
	"slices"
	"testing"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/tensor"
)

// TestDumpOutOfBranches: what a branch that was not taken would have given is not there, whatever the memory holds; a
// view of a few elements many times is.
func TestDumpOutOfBranches(t *testing.T) {
	g := &layers.Graph{Modules: make(map[string]layers.Operand)}
	x := g.AddInput("x", tensor.Float32, tensor.Shape{2})
	flag := g.Whole(g.AddInput("flag", tensor.Bool, tensor.Shape{}))
	emit := func(path string, op layers.Op) layers.ValueID {
		t.Helper()
		out, err := g.Emit(layers.Standard(), op)
		if err != nil {
			t.Fatal(err)
		}
		g.Modules[path] = g.Whole(out[0])
		return out[0]
	}
	branch := func(path string, kind layers.Kind, want bool) layers.ValueID {
		return emit(path, layers.Op{
			Kind: kind, In: []layers.Operand{g.Whole(x)}, Guard: []layers.Guard{{Predicate: flag, Want: want}},
		})
	}
	yes, no := branch("yes", "neg", true), branch("no", "relu", false)
	y := emit("y", layers.Op{Kind: "choose", In: []layers.Operand{flag, g.Whole(yes), g.Whole(no)}})
	for path, id := range map[string]layers.ValueID{"yes.rows": yes, "no.rows": no} {
		g.Modules[path] = layers.Operand{
			Value: id, Layout: tensor.Layout{Shape: tensor.Shape{3, 2}, Strides: []int{0, 1}},
		}
	}
	g.Outputs = []layers.Output{{Name: "y", Operand: g.Whole(y)}}
	s, err := Resident(t.Context(), new(models.Model), ResidentOptions{Dump: []string{"yes", "no", "yes.rows", "no.rows"}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for flag, want := range []map[string][]float32{
		{"y": {0, 3}, "dump:no": {0, 3}, "dump:no.rows": {0, 3, 0, 3, 0, 3}},
		{"y": {2, -3}, "dump:yes": {2, -3}, "dump:yes.rows": {2, -3, 2, -3, 2, -3}},
	} {
		p, err := s.program(g)
		if err != nil {
			t.Fatal(err)
		}
		x := &exchange{}
		err = x.begin(p, Values{
			"x":    tensor.Of([]float32{-2, 3}, 2),
			"flag": {DType: tensor.Bool, Layout: tensor.Contiguous(), Data: []byte{byte(flag)}},
		}, nil)
		if err == nil {
			err = s.alone(t.Context(), p, x)
		}
		if err != nil {
			t.Fatal(err)
		}
		out := x.out
		if len(out) != len(want) {
			t.Errorf("flag %d: %d results, want %d", flag, len(out), len(want))
		}
		for name, w := range want {
			if out[name] == nil {
				t.Errorf("flag %d: no %s", flag, name)
				continue
			}
			if got, err := tensor.Slice[float32](out[name]); err != nil || !slices.Equal(got, w) {
				t.Errorf("flag %d: %s is %v, want %v: %v", flag, name, got, w, err)
			}
		}
	}
	if s.programs.Len() != 1 {
		t.Errorf("%d plans of one graph", s.programs.Len())
	}
}
