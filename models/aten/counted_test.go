package aten

import (
	"errors"
	"slices"
	"testing"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu"
	"github.com/optimem/optimem/models/aten/call"
	"github.com/optimem/optimem/models/aten/cells"
	"github.com/optimem/optimem/tensor"
)

// counting returns a builder, a tensor [5 4] in it, and the rows of it that a mask selects; others are those of another mask.
func counting(t *testing.T) (b *cells.Builder, x, some, others *cells.Ref) {
	t.Helper()
	b = &cells.Builder{Graph: &graph.Graph{}, Ops: graph.Standard()}
	x = b.Own(b.Graph.AddInput("x", tensor.Float32, tensor.Shape{5, 4}))
	for i, name := range []string{"m", "n"} {
		mask := b.Own(b.Graph.AddInput(name, tensor.Bool, tensor.Shape{5}))
		out, err := calledOn(b, "torch.ops.aten.index.Tensor", map[string]any{"self": x, "indices": []*cells.Ref{mask}})
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			some = out[0].(*cells.Ref)
		} else {
			others = out[0].(*cells.Ref)
		}
	}
	return b, x, some, others
}

// calledOn calls an op as a script does.
func calledOn(b *cells.Builder, name string, args map[string]any) ([]any, error) {
	bound, err := targets[name].Bind(nil, args)
	if err != nil {
		return nil, err
	}
	return targets[name].Call(b, call.Site{}, bound)
}

// TestCountedIsRefused: what would mix rows that do not count into a result, or needs their number, is refused.
func TestCountedIsRefused(t *testing.T) {
	b, x, some, others := counting(t)
	rows, _ := some.Counted(0)
	integers, err := calledOn(b, "torch.ops.aten.to.dtype", map[string]any{"self": some, "dtype": tensor.Int64})
	if err != nil {
		t.Fatal(err)
	}
	mask := b.Own(b.Graph.AddInput("five", tensor.Bool, tensor.Shape{5}))
	for what, c := range map[string]struct {
		op   string
		args map[string]any
	}{
		"rows of two masks":           {"add.Tensor", map[string]any{"self": some, "other": others}},
		"rows beside all":             {"add.Tensor", map[string]any{"self": some, "other": x}},
		"written into all":            {"add_.Tensor", map[string]any{"self": x, "other": some}},
		"copied into all":             {"copy_.default", map[string]any{"self": x, "src": some}},
		"a division of integers":      {"remainder.Tensor", map[string]any{"self": integers[0], "other": integers[0]}},
		"times a count":               {"mul.Tensor", map[string]any{"self": x, "other": rows}},
		"a variance":                  {"var.default", map[string]any{"self": some}},
		"softmax along the rows":      {"softmax.int", map[string]any{"self": some, "dim": 0}},
		"a product over the rows":     {"mm.default", map[string]any{"self": x, "mat2": some}},
		"a fixed shape":               {"view.default", map[string]any{"self": some, "size": []int{5, 4}}},
		"rows from the end":           {"slice.Tensor", map[string]any{"self": some, "start": -2}},
		"one row":                     {"select.int", map[string]any{"self": some, "dim": 0, "index": 0}},
		"every other row":             {"slice.Tensor", map[string]any{"self": some, "step": 2}},
		"the best three":              {"topk.default", map[string]any{"self": some, "k": 3, "dim": 0}},
		"all squeezed":                {"squeeze.dim", map[string]any{"self": some, "dim": 0}},
		"rows apart":                  {"unbind.int", map[string]any{"self": some, "dim": 0}},
		"rows of two masks stacked":   {"stack.default", map[string]any{"tensors": []*cells.Ref{some, others}}},
		"rows of two masks in lines":  {"cat.default", map[string]any{"tensors": []*cells.Ref{some, others}, "dim": 1}},
		"a mask of all over the rows": {"index.Tensor", map[string]any{"self": some, "indices": []*cells.Ref{mask}}},
		"values of another mask": {"index_put.default",
			map[string]any{"self": x, "indices": []*cells.Ref{mask}, "values": some}},
		"a place in columns of rows": {"argmax.default", map[string]any{"self": transposed(t, b, some)}},
		"sizes of two counts":        {"zeros.default", map[string]any{"size": []any{rows, rows}}},
		"numbers up from three":      {"arange.start", map[string]any{"start": 3, "end": rows}},
		"scattered rows of two masks": {"scatter.src", map[string]any{
			"self": x, "dim": 0, "index": integers[0], "src": others}},
		"put at rows of another mask": {"index_put.default", map[string]any{
			"self": x, "indices": []*cells.Ref{column(t, b, integers[0].(*cells.Ref))}, "values": others}},
		"as many rows as all":     {"expand_as.default", map[string]any{"self": some, "other": x}},
		"parts of all by a count": {"split.sizes", map[string]any{"self": x, "split_size": []any{rows}}},
		"rows padded":             {"pad.default", map[string]any{"self": some, "pad": []int{0, 0, 1, 1}}},
		"products of two masks":   {"bmm.default", map[string]any{"self": inTwo(t, b, some), "mat2": inTwo(t, b, others)}},
		"boxes of two masks":      {"nms.default", map[string]any{"dets": some, "scores": column(t, b, others), "iou_threshold": 0.5}},
	} {
		space := "aten."
		if c.op == "nms.default" {
			space = "torchvision."
		}
		out, err := calledOn(b, "torch.ops."+space+c.op, c.args)
		var refused *cells.UnsupportedError
		if !errors.As(err, &refused) {
			t.Errorf("%s: %v, %v", what, out, err)
		}
	}
}

func transposed(t *testing.T, b *cells.Builder, r *cells.Ref) *cells.Ref {
	return only(t, b, "t.default", map[string]any{"self": r})
}

func inTwo(t *testing.T, b *cells.Builder, r *cells.Ref) *cells.Ref {
	return only(t, b, "view.default", map[string]any{"self": r, "size": []int{-1, 2, 2}})
}

func column(t *testing.T, b *cells.Builder, r *cells.Ref) *cells.Ref {
	return only(t, b, "select.int", map[string]any{"self": r, "dim": 1, "index": 0})
}

func only(t *testing.T, b *cells.Builder, op string, args map[string]any) *cells.Ref {
	t.Helper()
	out, err := calledOn(b, "torch.ops.aten."+op, args)
	if err != nil {
		t.Fatal(err)
	}
	return out[0].(*cells.Ref)
}

// TestCountsKeepTheirPlace: ops that keep the rows say in which dimension they are, and how many there can be.
func TestCountsKeepTheirPlace(t *testing.T) {
	b, x, some, _ := counting(t)
	rows, _ := some.Counted(0)
	for what, c := range map[string]struct {
		op   string
		args map[string]any
		dim  int
		want tensor.Shape
		same bool
	}{
		"turned":       {"t.default", map[string]any{"self": some}, 1, tensor.Shape{4, 5}, true},
		"unsqueezed":   {"unsqueeze.default", map[string]any{"self": some, "dim": 0}, 1, tensor.Shape{1, 5, 4}, true},
		"a column":     {"select.int", map[string]any{"self": transposed(t, b, some), "dim": 0, "index": 1}, 0, tensor.Shape{5}, true},
		"summed":       {"sum.dim_IntList", map[string]any{"self": transposed(t, b, some), "dim": []int{0}}, 0, tensor.Shape{5}, true},
		"flat":         {"flatten.using_ints", map[string]any{"self": some}, 0, tensor.Shape{20}, false},
		"in pairs":     {"view.default", map[string]any{"self": some, "size": []int{-1, 8}}, 0, tensor.Shape{2, 8}, false},
		"by the count": {"view.default", map[string]any{"self": some, "size": []any{rows, 2, -1}}, 0, tensor.Shape{5, 2, 2}, true},
		"the first":    {"slice.Tensor", map[string]any{"self": some, "end": 2}, 0, tensor.Shape{2, 4}, false},
		"but three":    {"slice.Tensor", map[string]any{"self": some, "end": -3}, 0, tensor.Shape{2, 4}, false},
		"from":         {"slice.Tensor", map[string]any{"self": some, "start": 3}, 0, tensor.Shape{2, 4}, false},
		"joined":       {"cat.default", map[string]any{"tensors": []*cells.Ref{some, x}}, 0, tensor.Shape{10, 4}, false},
		"expanded":     {"expand.default", map[string]any{"self": some, "size": []any{3, -1, -1}}, 1, tensor.Shape{3, 5, 4}, true},
		"full":         {"full.default", map[string]any{"size": []any{2, rows}, "fill_value": 1}, 1, tensor.Shape{2, 5}, true},
		"each column":  {"index.Tensor", map[string]any{"self": some, "indices": []*cells.Ref{nil, threeIndices(b)}}, 0, tensor.Shape{5, 3}, true},
		"padded":       {"pad.default", map[string]any{"self": some, "pad": []int{1, 2}}, 0, tensor.Shape{5, 7}, true},
		"as many":      {"expand_as.default", map[string]any{"self": oneRow(b, x), "other": some}, 0, tensor.Shape{5, 4}, true},
		"matrices": {"matmul.default", map[string]any{"self": inTwo(t, b, some), "other": inTwo(t, b, some)}, 0,
			tensor.Shape{5, 2, 2}, true},
		"joined alone": {"cat.default", map[string]any{"tensors": []*cells.Ref{some}}, 0, tensor.Shape{5, 4}, true},
	} {
		r := only(t, b, c.op, c.args)
		n, counted := r.Counted(c.dim)
		if !counted || !r.Shape().Equal(c.want) || n.Most != c.want[c.dim] || n.Same(rows) != c.same {
			t.Errorf("%s: %v with rows in dimension %d, %+v", what, r.Shape(), r.RowDim(), n)
		}
	}
}

// oneRow is the first row, as a matrix.
func oneRow(b *cells.Builder, x *cells.Ref) *cells.Ref { return b.Slice(x, 0, 0, 1, 1) }

// TestCountsAreSums: rows put one after the other are as many as their counts are together, in any order, and no others.
func TestCountsAreSums(t *testing.T) {
	b, x, some, others := counting(t)
	k, _ := some.Counted(0)
	m, _ := others.Counted(0)
	add := func(args ...any) *cells.Count {
		t.Helper()
		n, ok, err := b.CountOf("_operator.add", args)
		if err != nil || !ok {
			t.Fatal(ok, err)
		}
		return n
	}
	for what, c := range map[string]struct {
		parts []*cells.Ref
		n     *cells.Count
		same  bool
	}{
		"both":             {[]*cells.Ref{some, others}, add(k, m), true},
		"both, turned":     {[]*cells.Ref{some, others}, add(m, k), true},
		"one twice":        {[]*cells.Ref{some, some}, add(k, m), false},
		"with all":         {[]*cells.Ref{some, x}, add(k, 5), true},
		"with all, and 0":  {[]*cells.Ref{some, x}, add(0, add(5, k)), true},
		"with fewer":       {[]*cells.Ref{some, x}, add(k, 4), false},
		"alone, 0 and all": {[]*cells.Ref{some}, add(0, k), true},
	} {
		if n, _ := only(t, b, "cat.default", map[string]any{"tensors": c.parts}).Counted(0); n.Same(c.n) != c.same {
			t.Errorf("%s: %v are as many as %v: %v", what, n.Sum(), c.n.Sum(), !c.same)
		}
	}
}

// TestCountsThatDouble: a sum of sums of sums takes no more time than any, and ends before it cannot be told.
func TestCountsThatDouble(t *testing.T) {
	b, _, some, _ := counting(t)
	k, _ := some.Counted(0)
	n, doubled := k, 0
	for ; doubled < 100; doubled++ {
		next, ok, err := b.CountOf("_operator.add", []any{n, n})
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			break
		}
		if next.Same(n) || !next.Same(next) || next.Most != 2*n.Most {
			t.Fatalf("twice %d is %d", n.Most, next.Most)
		}
		n = next
	}
	if doubled < 40 || doubled == 100 {
		t.Errorf("doubled %d times", doubled)
	}
}

// TestMasksComputedTwice: a mask that is computed again of the same is the same mask.
func TestMasksComputedTwice(t *testing.T) {
	b, x, _, _ := counting(t)
	selected := func(above float64) *cells.Count {
		mask := only(t, b, "gt.Scalar", map[string]any{"self": column(t, b, x), "other": above})
		n, _ := only(t, b, "index.Tensor", map[string]any{"self": x, "indices": []*cells.Ref{mask}}).Counted(0)
		return n
	}
	if k := selected(1); !k.Same(selected(1)) || k.Same(selected(2)) {
		t.Error("masks of the same are two, or of others one")
	}
}

// TestRowsPutElsewhere: rows are written to as many places as count, counted from the end too, and nowhere else; what is written
// into has the rows that it had.
func TestRowsPutElsewhere(t *testing.T) {
	indices := func(b *cells.Builder, some *cells.Ref) *cells.Ref { // −1, −2, … of the rows, those that do not count too
		ones := only(t, b, "cumsum.default", map[string]any{"self": only(t, b, "ones_like.default",
			map[string]any{"self": column(t, b, some), "dtype": tensor.Int64}), "dim": 0})
		return only(t, b, "neg.default", map[string]any{"self": ones})
	}
	want := []float32{0, 1, 2, 3, 4, 5, 6, 7, 12, 13, 14, 15, 8, 9, 10, 11, 0, 1, 2, 3}
	b, x, some, _ := counting(t)
	out := only(t, b, "index_put.default", map[string]any{"self": x, "indices": []*cells.Ref{indices(b, some)}, "values": some})
	if got := computed(t, b, out); !slices.Equal(got, want) {
		t.Errorf("put from the end: %v, want %v", got, want)
	}
	b, x, some, _ = counting(t)
	places := only(t, b, "add.Tensor", map[string]any{"self": indices(b, some), "other": 5})
	places = only(t, b, "expand_as.default", map[string]any{"self": only(t, b, "unsqueeze.default",
		map[string]any{"self": places, "dim": 1}), "other": some})
	into := only(t, b, "clone.default", map[string]any{"self": x})
	only(t, b, "scatter_.src", map[string]any{"self": into, "dim": 0, "index": places, "src": some})
	if got := computed(t, b, into); !slices.Equal(got, want) {
		t.Errorf("scattered: %v, want %v", got, want)
	}
	b, x, some, _ = counting(t)
	k, _ := some.Counted(0)
	joined := only(t, b, "cat.default", map[string]any{"tensors": []*cells.Ref{some, x}})
	out2, err := calledOn(b, "torch.ops.aten.split.sizes", map[string]any{"self": joined, "split_size": []any{k, 5}})
	if err != nil {
		t.Fatal(err)
	}
	part := out2[0].([]*cells.Ref)[1]
	if part.IsCounted() || !part.Shape().Equal(tensor.Shape{5, 4}) {
		t.Errorf("the second part is %v", part.Shape())
	}
	if got := computed(t, b, part); len(got) != 20 || got[0] != 0 || got[7] != 7 || got[19] != 19 {
		t.Errorf("the second part: %v", got)
	}
}

// TestSuppressionByClass: boxes of other classes drop nothing, whether there are few or many, counted or not.
func TestSuppressionByClass(t *testing.T) {
	for _, counted := range []bool{true, false} {
		for _, apart := range []int{1, 100} {
			b, x, some, _ := counting(t)
			want := []float32{2, 0}
			if !counted {
				some, want = x, []float32{4, 0}
			}
			alike := only(t, b, "add.Scalar", map[string]any{"self": only(t, b, "zeros_like.default", map[string]any{"self": some}), "other": 1})
			boxes := only(t, b, "cumsum.default", map[string]any{"self": alike, "dim": 1}) // from 1, 2 to 3, 4
			scores := column(t, b, some)
			classes := only(t, b, "to.dtype", map[string]any{
				"self": only(t, b, "gt.Scalar", map[string]any{"self": scores, "other": 2}), "dtype": tensor.Int64,
			})
			out, err := calledOn(b, "torch.ops.optimem.batched_nms.default", map[string]any{
				"boxes": boxes, "scores": scores, "idxs": classes, "iou_threshold": 0.5, "apart": apart,
			})
			if err != nil {
				t.Fatal(err)
			}
			stay := only(t, b, "to.dtype", map[string]any{"self": out[0], "dtype": tensor.Float32})
			if got := computed(t, b, stay); !slices.Equal(got, want) {
				t.Errorf("counted %v, apart from %d: %v stay, want %v", counted, apart, got, want)
			}
		}
	}
}

// TestRowsPutBeyond: a place beyond what there is fails, also one behind the last.
func TestRowsPutBeyond(t *testing.T) {
	for _, at := range []int{5, 6, -6} {
		b, x, some, _ := counting(t)
		place := only(t, b, "full_like.default", map[string]any{"self": column(t, b, some), "fill_value": at, "dtype": tensor.Int64})
		out := only(t, b, "index_put.default", map[string]any{"self": x, "indices": []*cells.Ref{place}, "values": some})
		if err := b.Output("y", out); err != nil {
			t.Fatal(err)
		}
		pool := cpu.NewPool(1)
		defer pool.Close()
		_, err := cpu.Interpret(t.Context(), pool, b.Ops, b.Graph, nil, map[string]*tensor.Tensor{
			"x": tensor.Of(make([]float32, 20), 5, 4), "m": tensor.Of([]bool{true, false, true, true, false}, 5),
			"n": tensor.Of(make([]bool, 5), 5),
		})
		var beyond *graph.IndexError
		if !errors.As(err, &beyond) {
			t.Errorf("row %d of five: %v", at, err)
		}
	}
}

// threeIndices are indices of a column.
func threeIndices(b *cells.Builder) *cells.Ref {
	return b.Own(b.Graph.AddConst(&tensor.Tensor{DType: tensor.Int64, Layout: tensor.Contiguous(3), Data: make([]byte, 24)}))
}

// TestCompareCount: comparisons that the largest size decides are known, and no others.
func TestCompareCount(t *testing.T) {
	k := &cells.Count{Most: 5}
	for _, c := range []struct {
		operator       string
		args           []any
		holds, certain bool
	}{
		{"lt", []any{k, 6}, true, true}, {"lt", []any{k, 5}, false, false}, {"lt", []any{k, 0}, false, true},
		{"gt", []any{k, 5}, false, true}, {"gt", []any{k, 4}, false, false}, {"gt", []any{k, -1}, true, true},
		{"le", []any{k, 5}, true, true}, {"le", []any{k, 4}, false, false}, {"le", []any{k, -1}, false, true},
		{"ge", []any{k, 0}, true, true}, {"ge", []any{k, 1}, false, false}, {"ge", []any{k, 6}, false, true},
		{"eq", []any{k, 6}, false, true}, {"eq", []any{k, 5}, false, false}, {"ne", []any{k, 6}, true, true},
		{"gt", []any{6, k}, true, true}, {"lt", []any{5, k}, false, true}, {"le", []any{0, k}, true, true}, {"lt", []any{0, k}, false, false},
	} {
		if holds, certain := cells.CompareCount(c.operator, c.args); certain != c.certain || certain && holds != c.holds {
			t.Errorf("%s %v: %v, certain %v", c.operator, c.args, holds, certain)
		}
	}
}

// computed runs a graph whose input x counts up from 0 and whose mask m is true but for the second row of five.
func computed(t *testing.T, b *cells.Builder, r *cells.Ref) []float32 {
	t.Helper()
	if err := b.Output("y", r); err != nil {
		t.Fatal(err)
	}
	pool := cpu.NewPool(1)
	defer pool.Close()
	up := make([]float32, 20)
	for i := range up {
		up[i] = float32(i)
	}
	out, err := cpu.Interpret(t.Context(), pool, b.Ops, b.Graph, nil, map[string]*tensor.Tensor{
		"x": tensor.Of(up, 5, 4), "m": tensor.Of([]bool{true, false, true, true, false}, 5), "n": tensor.Of(make([]bool, 5), 5),
	})
	if err != nil {
		t.Fatal(err)
	}
	got, err := tensor.Slice[float32](out["y"])
	if err != nil || len(out) != 1 {
		t.Fatal(out, err)
	}
	return got
}

// TestRowsByIndex: an index counts from the end of the rows that count, and several rows become one as long as there are enough.
func TestRowsByIndex(t *testing.T) {
	b, _, some, _ := counting(t)
	data := []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 0, 0, 0, 0, 0, 0, 0} // −1 and 1
	index := b.Own(b.Graph.AddConst(&tensor.Tensor{DType: tensor.Int64, Layout: tensor.Contiguous(2), Data: data}))
	got := computed(t, b, only(t, b, "index.Tensor", map[string]any{"self": some, "indices": []*cells.Ref{index}}))
	if want := []float32{12, 13, 14, 15, 8, 9, 10, 11}; !slices.Equal(got, want) {
		t.Errorf("rows −1 and 1: %v, want %v", got, want)
	}
	b, _, some, _ = counting(t)
	got = computed(t, b, only(t, b, "view.default", map[string]any{"self": some, "size": []int{-1, 8}}))
	if want := []float32{0, 1, 2, 3, 8, 9, 10, 11}; !slices.Equal(got, want) {
		t.Errorf("rows in pairs: %v, want %v", got, want)
	}
	b, _, _, none := counting(t)
	if got = computed(t, b, only(t, b, "cat.default", map[string]any{"tensors": []*cells.Ref{none, none}})); len(got) != 0 {
		t.Errorf("nothing twice: %v", got)
	}
}

// TestRowsThatAreNotThere: an index beyond the rows that count fails, as if there was nothing else.
func TestRowsThatAreNotThere(t *testing.T) {
	for _, at := range []byte{3, 4} {
		b, _, some, _ := counting(t)
		index := b.Own(b.Graph.AddConst(&tensor.Tensor{
			DType: tensor.Int64, Layout: tensor.Contiguous(1), Data: []byte{at, 0, 0, 0, 0, 0, 0, 0},
		}))
		if err := b.Output("y", only(t, b, "index.Tensor", map[string]any{"self": some, "indices": []*cells.Ref{index}})); err != nil {
			t.Fatal(err)
		}
		pool := cpu.NewPool(1)
		defer pool.Close()
		_, err := cpu.Interpret(t.Context(), pool, b.Ops, b.Graph, nil, map[string]*tensor.Tensor{
			"x": tensor.Of(make([]float32, 20), 5, 4), "m": tensor.Of([]bool{true, false, true, true, false}, 5),
			"n": tensor.Of(make([]bool, 5), 5),
		})
		var beyond *graph.IndexError
		if !errors.As(err, &beyond) {
			t.Errorf("row %d of three: %v", at, err)
		}
	}
}
