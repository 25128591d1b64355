package rewrite_test

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/graph/rewrite"
	"github.com/optimem/optimem/internal/cpu"
	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
)

// TestOwnOpsStay: what an embedder's op computes is not known, so that no pass shares or folds it.
func TestOwnOpsStay(t *testing.T) {
	own, err := graph.Standard().With(graph.OpDef{
		Kind:      "my::random",
		Shape:     func(in []graph.Spec, _ graph.Attrs) ([]graph.Spec, error) { return in[:1], nil },
		Reference: func(_, _ []*tensor.Tensor, _ graph.Attrs) error { return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	s := newSketch(t)
	emit := func(o graph.Operand) graph.Operand {
		out, err := s.Emit(own, graph.Op{Kind: "my::random", In: []graph.Operand{o}})
		if err != nil {
			t.Fatal(err)
		}
		return s.Whole(out[0])
	}
	x := s.input(6, 10)
	s.output(s.op("cumsum", graph.Attrs{"dim": 0}, emit(x)), s.op("cumsum", graph.Attrs{"dim": 1}, emit(x)),
		s.op("cumsum", graph.Attrs{"dim": 0}, emit(s.number(1, 6, 10))))
	g := rewrite.Optimise(s.Graph, own, 0, func(g *graph.Graph) ([][]byte, error) {
		var results [][]byte
		for _, o := range g.Outputs {
			results = append(results, make([]byte, g.Values[o.Operand.Value].Bytes()))
		}
		return results, nil
	})
	if got := strings.Count(kindsOf(g), "my::random"); got != 3 {
		t.Errorf("it became %s", kindsOf(g))
	}
}

// TestSharedFarAway: what is large is computed again rather than kept for a reader much further on; what is small, or read
// soon, is computed once.
func TestSharedFarAway(t *testing.T) {
	for _, c := range []struct{ elements, apart, want int }{{1 << 19, 60, 2}, {1 << 19, 5, 1}, {100, 60, 1}} {
		s := newSketch(t)
		x, small := s.input(c.elements), s.input(10)
		first := s.op("cumsum", graph.Attrs{"dim": 0}, s.op("exp", nil, x))
		for range c.apart {
			small = s.op("cumsum", graph.Attrs{"dim": 0}, small)
		}
		s.output(first, small, s.op("softmax", softmax(0), s.op("exp", nil, x)))
		g := rewrite.Optimise(s.Graph, graph.Standard(), 0, evaluate)
		if got := strings.Count(kindsOf(g), "exp"); got != c.want {
			t.Errorf("%d elements that are read %d ops later are computed %d times", c.elements, c.apart, got)
		}
	}
}

// TestSharedModules: a module whose op is computed by another's shows that one's value.
func TestSharedModules(t *testing.T) {
	s := newSketch(t)
	x := s.input(6, 10)
	a, b := s.op("exp", nil, x), s.op("exp", nil, x)
	s.Modules["a"], s.Modules["b"] = a, b
	s.output(s.op("cumsum", graph.Attrs{"dim": 0}, a), s.op("cumsum", graph.Attrs{"dim": 1}, b))
	g := rewrite.Optimise(s.Graph, graph.Standard(), 0, evaluate)
	if got, ok := g.Modules["b"]; !ok || got.Value != g.Modules["a"].Value || kindsOf(g) != "exp cumsum cumsum" {
		t.Errorf("%s, modules %v", kindsOf(g), g.Modules)
	}
}

// TestFoldingUnderGuards: what runs under a guard is left to the run, and what it needs of constants is folded.
func TestFoldingUnderGuards(t *testing.T) {
	for name, yes := range map[string]func(s *sketch) graph.Operand{
		"an input": func(s *sketch) graph.Operand { return s.Whole(s.AddInput("yes", tensor.Bool, tensor.Shape{})) },
		"a constant": func(s *sketch) graph.Operand {
			return s.op("lt", nil, s.number(0), s.number(1))
		},
	} {
		s := newSketch(t)
		x, predicate := s.input(6, 10), yes(s)
		same := predicate
		if name == "a constant" { // only the guard reads the first
			same = s.op("gt", nil, s.number(1), s.number(0))
		}
		s.guard = []graph.Guard{{Predicate: predicate, Want: true}}
		guarded := s.op("exp", nil, s.op("cumsum", graph.Attrs{"dim": 0}, s.number(1, 6, 10)))
		s.guard = nil
		free := s.op("cumsum", graph.Attrs{"dim": 0}, s.number(2, 6, 10))
		s.output(s.op("add", nil, s.op("choose", nil, same, guarded, x), free))
		g := rewrite.Optimise(s.Graph, graph.Standard(), 0, evaluate)
		if got := kindsOf(g); got != "cumsum exp choose add" {
			t.Errorf("%s: it became %q", name, got)
		}
		if name == "a constant" {
			sameNumbers(t, values(t, g), values(t, s.Graph), 0)
		}
	}
}

// TestFoldedBytes: constants that are computed take eight megabytes together at most.
func TestFoldedBytes(t *testing.T) {
	s := newSketch(t)
	for i := range 12 {
		s.output(s.op("arange", graph.Attrs{"size": 1 << 17, "start": i, "step": 1, "dtype": tensor.Int64}))
	}
	g := rewrite.Optimise(s.Graph, graph.Standard(), 0, evaluate)
	var bytes int
	for _, v := range g.Values {
		bytes += len(v.Const)
	}
	if bytes > 8<<20 || bytes < 4<<20 {
		t.Errorf("%d bytes of constants were computed", bytes)
	}
}

// TestFoldedCastsKeepBits: linears and embeddings that read half floats give the bits that they gave with widened weights,
// however weights and what is read of them lie.
func TestFoldedCastsKeepBits(t *testing.T) {
	pool := cpu.NewPool(1)
	defer pool.Close()
	folded := 0
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 9))
		s := newSketch(t)
		half := func(n int) graph.ValueID {
			d := []tensor.DType{tensor.BFloat16, tensor.Float16}[r.IntN(2)]
			return s.AddWeight(tensor.Weight{DType: d, Extent: storage.Extent{Bytes: int64(2 * n)}}, graph.Weight)
		}
		// wide is a square of a widened weight, which may lie or be read turned, from an offset or as rows of another length.
		wide := func() graph.Operand {
			o := graph.Operand{Value: half(40)}
			shape, strides := []int{edge, edge}, []int{edge, 1}
			if r.IntN(3) == 0 {
				strides = []int{1, edge}
			}
			if r.IntN(6) == 0 {
				shape, strides = []int{2, 2 * edge}, []int{1, 2}
			}
			y := s.op("cast", graph.Attrs{"dtype": tensor.Float32}, view(o, r.IntN(8), shape, strides))
			y = shaped(y, edge, edge)
			if r.IntN(3) == 0 {
				y = transposed(y)
			}
			return y
		}
		row := func(o graph.Operand) graph.Operand { return view(o, r.IntN(3)*edge, []int{edge}, []int{1}) }
		x := s.input(edge, edge)
		switch r.IntN(3) {
		case 0:
			index := s.Whole(s.AddConst(tensor.Of([]int64{2, 0, 3}, 3)))
			s.output(s.op("embedding", nil, wide(), index))
		case 1:
			added := wide()
			added.Layout = tensor.Contiguous(edge, edge)
			s.output(s.op("linear", nil, x, wide(), row(wide()), added))
		default:
			s.output(s.op("linear", nil, x, wide(), row(wide())))
		}
		g := rewrite.Prune(rewrite.FoldCasts(s.Graph))
		program{sketch: s}.wellFormed(g)
		want, got := results(t, pool, s.Graph, 0), results(t, pool, g, 0)
		if !slices.EqualFunc(want, got, bytes.Equal) {
			t.Fatalf("seed %d: %s became %s, of other bits", seed, kindsOf(s.Graph), kindsOf(g))
		}
		if strings.Count(kindsOf(g), "cast") < strings.Count(kindsOf(s.Graph), "cast") {
			folded++
		}
	}
	if folded < 100 {
		t.Errorf("%d graphs of 300 changed", folded)
	}
}

// TestNearlyEqualOpsStay: ops that differ in anything that matters are computed each by itself, and those that differ in
// nothing once.
func TestNearlyEqualOpsStay(t *testing.T) {
	part := func(offset int, strides ...int) func(s *sketch, x graph.Operand) graph.Operand {
		return func(s *sketch, x graph.Operand) graph.Operand {
			return s.op("cumsum", graph.Attrs{"dim": 0}, view(x, offset, []int{edge, edge}, strides))
		}
	}
	with := func(kind graph.Kind, a graph.Attrs) func(s *sketch, x graph.Operand) graph.Operand {
		return func(s *sketch, x graph.Operand) graph.Operand {
			return s.op(kind, a, view(x, 0, []int{edge, edge}, []int{edge, 1}))
		}
	}
	sum := func(keep bool, dims ...int) graph.Attrs {
		return graph.Attrs{"dims": dims, "keepdim": keep, "dtype": tensor.Float32}
	}
	for name, c := range map[string][2]func(s *sketch, x graph.Operand) graph.Operand{
		"offset":     {part(0, edge, 1), part(edge, edge, 1)},
		"strides":    {part(0, edge, 1), part(0, 1, edge)},
		"a repeat":   {part(0, edge, 1), part(0, 0, 1)},
		"a number":   {with("leaky_relu", graph.Attrs{"slope": 0.5}), with("leaky_relu", graph.Attrs{"slope": 0.25})},
		"no number":  {with("leaky_relu", graph.Attrs{"slope": 0.5}), with("leaky_relu", graph.Attrs{})},
		"an integer": {with("cumsum", graph.Attrs{"dim": 0}), with("cumsum", graph.Attrs{"dim": 1})},
		"a list":     {with("sum", sum(true, 0)), with("sum", sum(true, 0, 1))},
		"a flag":     {with("sum", sum(false, 0)), with("sum", sum(true, 0))},
		"a text": {with("gelu", graph.Attrs{"approximate": "none"}),
			with("gelu", graph.Attrs{"approximate": "tanh"})},
		"a dtype": {with("cast", graph.Attrs{"dtype": tensor.Float16}), with("cast", graph.Attrs{"dtype": tensor.BFloat16})},
		"a kind":  {with("exp", nil), with("neg", nil)},
	} {
		for _, pair := range [][2]int{{0, 0}, {0, 1}, {1, 0}, {1, 1}} {
			s := newSketch(t)
			x := s.input(8, edge)
			a, b := c[pair[0]](s, x), c[pair[1]](s, x)
			s.output(s.op("bitcast", graph.Attrs{"dtype": tensor.Int8}, a))
			s.output(s.op("bitcast", graph.Attrs{"dtype": tensor.UInt8}, b))
			g := rewrite.Optimise(s.Graph, graph.Standard(), 0, evaluate)
			want := 4
			if pair[0] == pair[1] {
				want = 3
			}
			if len(g.Ops) != want {
				t.Errorf("%s %v: %s became %s", name, pair, kindsOf(s.Graph), kindsOf(g))
			}
		}
	}
}
