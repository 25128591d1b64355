package runtime

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/tensor"
)

// TestDumpOutOfBranches: what a branch that was not taken would have given is not there, whatever the memory holds; a
// view of a few elements many times is.
func TestDumpOutOfBranches(t *testing.T) {
	g := &graph.Graph{Modules: make(map[string]graph.Operand)}
	x := g.AddInput("x", tensor.Float32, tensor.Shape{2})
	flag := g.Whole(g.AddInput("flag", tensor.Bool, tensor.Shape{}))
	emit := func(path string, op graph.Op) graph.ValueID {
		t.Helper()
		out, err := g.Emit(graph.Standard(), op)
		if err != nil {
			t.Fatal(err)
		}
		g.Modules[path] = g.Whole(out[0])
		return out[0]
	}
	branch := func(path string, kind graph.Kind, want bool) graph.ValueID {
		return emit(path, graph.Op{
			Kind: kind, In: []graph.Operand{g.Whole(x)}, Guard: []graph.Guard{{Predicate: flag, Want: want}},
		})
	}
	yes, no := branch("yes", "neg", true), branch("no", "relu", false)
	y := emit("y", graph.Op{Kind: "choose", In: []graph.Operand{flag, g.Whole(yes), g.Whole(no)}})
	for path, id := range map[string]graph.ValueID{"yes.rows": yes, "no.rows": no} {
		g.Modules[path] = graph.Operand{
			Value: id, Layout: tensor.Layout{Shape: tensor.Shape{3, 2}, Strides: []int{0, 1}},
		}
	}
	g.Outputs = []graph.Output{{Name: "y", Operand: g.Whole(y)}}
	s, err := Resident(t.Context(), new(models.Model), ResidentOptions{Dump: []string{"yes", "no", "yes.rows", "no.rows"}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for flag, want := range []map[string][]float32{
		{"y": {0, 3}, "dump:no": {0, 3}, "dump:no.rows": {0, 3, 0, 3, 0, 3}},
		{"y": {2, -3}, "dump:yes": {2, -3}, "dump:yes.rows": {2, -3, 2, -3, 2, -3}},
	} {
		p, err := s.program(t.Context(), g)
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

// TestBatchOutOfBranches: an output of a branch is among a batch's where all rows took that branch; where some did not, it is
// not there, whatever the memory of their rows holds.
func TestBatchOutOfBranches(t *testing.T) {
	g := &graph.Graph{}
	x := g.AddInput("x", tensor.Float32, tensor.Shape{1, 2})
	flag := graph.Operand{Value: g.AddInput("flag", tensor.Bool, tensor.Shape{1}), Layout: tensor.Contiguous()}
	for _, c := range []struct {
		name string
		kind graph.Kind
		want bool
	}{{"yes", "neg", true}, {"no", "relu", false}} {
		out, err := g.Emit(graph.Standard(), graph.Op{
			Kind: c.kind, In: []graph.Operand{g.Whole(x)}, Guard: []graph.Guard{{Predicate: flag, Want: c.want}},
		})
		if err != nil {
			t.Fatal(err)
		}
		g.Outputs = append(g.Outputs, graph.Output{Name: c.name, Operand: g.Whole(out[0])})
	}
	axes := map[string]int{"x": 0, "flag": 0}
	outAxes := map[string]int{"yes": 0, "no": 0}
	s, err := Resident(t.Context(), new(models.Model), ResidentOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, c := range []struct {
		flags []byte
		want  map[string][]float32
	}{
		{[]byte{1, 1, 1}, map[string][]float32{"yes": {1, -2, 3, -4, 5, -6}}},
		{[]byte{0, 0, 0}, map[string][]float32{"no": {0, 2, 0, 4, 0, 6}}},
		{[]byte{0, 1, 1}, nil},
		{[]byte{0, 1, 0}, nil},
	} {
		for _, instances := range []int{1, 3} {
			p, err := s.program(t.Context(), g)
			if err != nil {
				t.Fatal(err)
			}
			b := &batch{
				division: &division{axes: axes, outAxes: outAxes, rows: 3, micro: 1, full: 3, main: p, instances: instances},
				in: Values{
					"x":    tensor.Of([]float32{-1, 2, -3, 4, -5, 6}, 3, 2),
					"flag": {DType: tensor.Bool, Layout: tensor.Contiguous(3), Data: c.flags},
				},
			}
			if err := b.outputs(nil); err != nil {
				t.Fatal(err)
			}
			if err := b.run(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			got := b.results()
			if len(got) != len(c.want) {
				t.Errorf("%v, %d in a pass: %d outputs, want %d", c.flags, instances, len(got), len(c.want))
			}
			for name, want := range c.want {
				if got[name] == nil {
					t.Errorf("%v, %d in a pass: no %s", c.flags, instances, name)
				} else if y, err := tensor.Slice[float32](got[name]); err != nil || !slices.Equal(y, want) {
					t.Errorf("%v, %d in a pass: %s is %v, want %v: %v", c.flags, instances, name, y, want, err)
				}
			}
		}
	}
}

// TestBlameOnlyWhereCertain: an index out of range is the fault of an input where no other input has to do with it.
func TestBlameOnlyWhereCertain(t *testing.T) {
	for _, others := range []bool{false, true} {
		g := &graph.Graph{}
		a := g.AddInput("a", tensor.Int64, tensor.Shape{2})
		b := g.AddInput("b", tensor.Int64, tensor.Shape{2})
		table := g.AddInput("table", tensor.Float32, tensor.Shape{5, 3})
		other := a
		if others {
			other = b
		}
		sum, err := g.Emit(graph.Standard(), graph.Op{Kind: "add", In: []graph.Operand{g.Whole(a), g.Whole(other)}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := g.Emit(graph.Standard(), graph.Op{
			Kind: "embedding", In: []graph.Operand{g.Whole(table), g.Whole(sum[0])},
		}); err != nil {
			t.Fatal(err)
		}
		p := &program{source: g}
		cause := &graph.IndexError{Index: 7, Size: 5}
		err = p.blame(fmt.Errorf("run: %w", cause))
		var input *InputError
		if blamed := errors.As(err, &input); blamed == others || blamed && input.Input != "a" || !errors.Is(err, cause) {
			t.Errorf("of two inputs: %v, and %v", others, err)
		}
	}
}

// TestOutputsHaveTheirElements: the tensor of an output that is some rows of what was computed holds these and nothing else.
func TestOutputsHaveTheirElements(t *testing.T) {
	g := &graph.Graph{}
	x := g.AddInput("x", tensor.Float32, tensor.Shape{3, 2})
	y, err := g.Emit(graph.Standard(), graph.Op{Kind: "neg", In: []graph.Operand{g.Whole(x)}})
	if err != nil {
		t.Fatal(err)
	}
	rows := tensor.Layout{Shape: tensor.Shape{2, 2}, Strides: []int{2, 1}, Offset: 2}
	g.Outputs = []graph.Output{{Name: "rows", Operand: graph.Operand{Value: y[0], Layout: rows}}}
	s, err := Resident(t.Context(), new(models.Model), ResidentOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	p, err := s.program(t.Context(), g)
	if err != nil {
		t.Fatal(err)
	}
	e := &exchange{}
	if err := e.begin(p, Values{"x": tensor.Of([]float32{1, 2, 3, 4, 5, 6}, 3, 2)}, nil); err != nil {
		t.Fatal(err)
	}
	if err := s.alone(t.Context(), p, e); err != nil {
		t.Fatal(err)
	}
	got := e.out["rows"]
	if y, err := tensor.Slice[float32](got); err != nil || !slices.Equal(y, []float32{-3, -4, -5, -6}) || len(got.Data) != 16 {
		t.Errorf("%v in %d bytes: %v", y, len(got.Data), err)
	}
}

// TestBatchInSeveralPasses: rows come out in their order, also where they do not lie together and several passes make them.
func TestBatchInSeveralPasses(t *testing.T) {
	g := &graph.Graph{}
	x := g.AddInput("x", tensor.Float32, tensor.Shape{1, 2})
	y, err := g.Emit(graph.Standard(), graph.Op{Kind: "neg", In: []graph.Operand{g.Whole(x)}})
	if err != nil {
		t.Fatal(err)
	}
	across := tensor.Layout{Shape: tensor.Shape{2, 1}, Strides: []int{1, 2}}
	g.Outputs = []graph.Output{{Name: "across", Operand: graph.Operand{Value: y[0], Layout: across}}}
	s, err := Resident(t.Context(), new(models.Model), ResidentOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	p, err := s.program(t.Context(), g)
	if err != nil {
		t.Fatal(err)
	}
	for instances := 1; instances <= 3; instances++ {
		b := &batch{
			division: &division{
				axes: map[string]int{"x": 0}, outAxes: map[string]int{"across": 1}, rows: 3, micro: 1, full: 3, main: p, instances: instances,
			},
			in: Values{"x": tensor.Of([]float32{1, 2, 3, 4, 5, 6}, 3, 2)},
		}
		if err := b.outputs(nil); err != nil {
			t.Fatal(err)
		}
		if err := b.run(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		got, err := tensor.Slice[float32](b.results()["across"])
		if want := []float32{-1, -3, -5, -2, -4, -6}; err != nil || !slices.Equal(got, want) {
			t.Errorf("%d in a pass: %v, want %v: %v", instances, got, want, err)
		}
	}
}
