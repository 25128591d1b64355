package graph

import (
	"errors"
	"testing"

	"github.com/optimem/optimem/tensor"
)

// attending returns a graph of one attention over caches, and its operands.
func attending(rows int) (*Graph, []Operand) {
	g := &Graph{}
	input := func(name string, d tensor.DType, shape ...int) Operand { return g.Whole(g.AddInput(name, d, shape)) }
	return g, []Operand{
		input("q", tensor.Float32, rows, 4, 8), input("k", tensor.Float32, rows, 2, 8), input("v", tensor.Float32, rows, 2, 6),
		g.Whole(g.AddCache("keys", tensor.BFloat16, tensor.Shape{10 * BlockRows, 2, 8})),
		g.Whole(g.AddCache("values", tensor.BFloat16, tensor.Shape{10 * BlockRows, 2, 6})),
		input("positions", tensor.Int64, rows), input("blocks", tensor.Int64, rows, 3), input("sinks", tensor.Float32, 4),
	}
}

// TestCachesAreNotBatchable: who looks at what other passes left cannot be computed row by row in passes of its own, not even
// where there is one row.
func TestCachesAreNotBatchable(t *testing.T) {
	for _, rows := range []int{1, 5} {
		g, in := attending(rows)
		out, err := g.Emit(Standard(), Op{Kind: "attend", Path: "layer", In: in[:7], Attrs: Attrs{"scale": 1.0}})
		if err != nil {
			t.Fatal(err)
		}
		g.Outputs = []Output{{Name: "y", Operand: g.Whole(out[0])}}
		axes := map[string]int{"q": 0, "k": 0, "v": 0, "positions": 0, "blocks": 0}
		_, err = Batched(g, Standard(), axes)
		var not *NotBatchableError
		if !errors.As(err, &not) || not.Kind != "attend" || not.Path != "layer" {
			t.Errorf("%d rows: %v", rows, err)
		}
	}
}

// TestWrites: an attention writes to both caches, and to nothing else.
func TestWrites(t *testing.T) {
	for in := range 8 {
		if Kind("attend").Writes(in) != (in == 3 || in == 4) {
			t.Errorf("operand %d: written %v", in, !(in == 3 || in == 4))
		}
		if Kind("linear").Writes(in) {
			t.Errorf("a linear writes to operand %d", in)
		}
	}
}

// TestAttendRefusesWhatDoesNotFit by its shape rule.
func TestAttendRefusesWhatDoesNotFit(t *testing.T) {
	emit := func(change func(g *Graph, in []Operand, a Attrs)) error {
		g, in := attending(3)
		in = append(in, Absent, g.Whole(g.AddInput("also", tensor.Int64, tensor.Shape{3, 2})))
		a := Attrs{"scale": 1.0}
		change(g, in, a)
		_, err := g.Emit(Standard(), Op{Kind: "attend", In: in, Attrs: a})
		return err
	}
	if err := emit(func(*Graph, []Operand, Attrs) {}); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(g *Graph, in []Operand, a Attrs){
		"heads that are no multiple": func(_ *Graph, in []Operand, _ Attrs) { in[0].Layout = tensor.Contiguous(3, 3, 8) },
		"rows that differ":           func(_ *Graph, in []Operand, _ Attrs) { in[1].Layout = tensor.Contiguous(2, 2, 8) },
		"a cache of another width":   func(_ *Graph, in []Operand, _ Attrs) { in[4].Layout = tensor.Contiguous(160, 2, 5) },
		"half a block": func(_ *Graph, in []Operand, _ Attrs) {
			in[3].Layout, in[4].Layout = tensor.Contiguous(152, 2, 8), tensor.Contiguous(152, 2, 6)
		},
		"caches of several dtypes": func(g *Graph, in []Operand, _ Attrs) { g.Values[in[4].Value].DType = tensor.Float16 },
		"positions of 32 bits":     func(g *Graph, in []Operand, _ Attrs) { g.Values[in[5].Value].DType = tensor.Int32 },
		"a table for other rows":   func(_ *Graph, in []Operand, _ Attrs) { in[6].Layout = tensor.Contiguous(2, 3) },
		"sinks for other heads":    func(_ *Graph, in []Operand, _ Attrs) { in[7].Layout = tensor.Contiguous(3) },
		"keys without values":      func(_ *Graph, in []Operand, _ Attrs) { in[2] = Absent },
		"queries of another width": func(_ *Graph, in []Operand, _ Attrs) {
			in[0].Layout, in[1], in[2] = tensor.Contiguous(3, 4, 7), Absent, Absent
		},
		"further blocks of other rows": func(_ *Graph, in []Operand, _ Attrs) {
			in[9].Layout = tensor.Contiguous(2, 2)
		},
		"further blocks of what is not written": func(_ *Graph, in []Operand, _ Attrs) {
			in[1], in[2] = Absent, Absent
		},
		"a negative window": func(_ *Graph, _ []Operand, a Attrs) { a["window"] = -1 },
		"a negative cap":    func(_ *Graph, _ []Operand, a Attrs) { a["softcap"] = -1.0 },
	} {
		if err := emit(change); err == nil {
			t.Errorf("%s: it is taken", name)
		}
	}
}

// TestAttendTakesRoundedCaches: of int8, with room for a scale in each row, and for keys and values alike; no queries of int8.
func TestAttendTakesRoundedCaches(t *testing.T) {
	rounded := func(keys, values int, query tensor.DType) error {
		g, in := attending(3)
		for i, width := range []int{keys, values} {
			g.Values[in[3+i].Value].DType = tensor.Int8
			in[3+i].Layout = tensor.Contiguous(10*BlockRows, 2, width)
		}
		for i := range 3 {
			g.Values[in[i].Value].DType = query
		}
		_, err := g.Emit(Standard(), Op{Kind: "attend", In: in[:7], Attrs: Attrs{"scale": 1.0}})
		return err
	}
	if err := rounded(12, 10, tensor.Float32); err != nil {
		t.Error(err)
	}
	for _, bad := range []error{rounded(8, 6, tensor.Float32), rounded(12, 9, tensor.Float32), rounded(12, 10, tensor.Int8)} {
		if bad == nil {
			t.Error("it is taken")
		}
	}
}

// TestAttendCostsWhatItLooksAt: of caches, as much as rows can see, and no more than there is.
func TestAttendCostsWhatItLooksAt(t *testing.T) {
	def, _ := Standard().Lookup("attend")
	cost := func(rows int, a Attrs) Cost {
		g, in := attending(rows)
		op := Op{Kind: "attend", In: in[:7], Attrs: a}
		if _, err := g.Emit(Standard(), op); err != nil {
			t.Fatal(err)
		}
		specs, out := g.Specs(&g.Ops[0], nil, nil)
		return def.Cost(specs, out, a)
	}
	const around = 4*(4*8+2*8+2*6) + 8 + 3*8 + 4*4*6 // bytes of a row beside caches
	place := int64(2 * (8 + 6) * 2)
	for rows, places := range map[int]int64{1: 48, 2: 96, 3: 144, 4: 160, 9: 160} {
		if got, want := cost(rows, nil).Bytes, int64(rows)*around+places*place; got != want {
			t.Errorf("%d rows: %d bytes, want %d", rows, got, want)
		}
	}
	if got, want := cost(2, nil).FLOPs, int64(2*2*4*48*(8+6)); got != want {
		t.Errorf("%d operations, want %d", got, want)
	}
	if got, want := cost(2, Attrs{"window": 5}).FLOPs, int64(2*2*4*5*(8+6)); got != want {
		t.Errorf("%d operations in a window, want %d", got, want)
	}
}

// TestDivideKeepsCachesWithTheirOps: no cache crosses, and each side has those that its ops write to.
func TestDivideKeepsCachesWithTheirOps(t *testing.T) {
	g := &Graph{}
	x := g.Whole(g.AddInput("x", tensor.Float32, tensor.Shape{3, 2, 8}))
	at := g.Whole(g.AddInput("positions", tensor.Int64, tensor.Shape{3}))
	table := g.Whole(g.AddInput("blocks", tensor.Int64, tensor.Shape{3, 2}))
	for _, name := range []string{"first", "second"} {
		keys := g.Whole(g.AddCache(name+".keys", tensor.Float32, tensor.Shape{BlockRows, 2, 8}))
		values := g.Whole(g.AddCache(name+".values", tensor.Float32, tensor.Shape{BlockRows, 2, 8}))
		out, err := g.Emit(Standard(), Op{Kind: "attend", In: []Operand{x, x, x, keys, values, at, table}})
		if err != nil {
			t.Fatal(err)
		}
		x = g.Whole(out[0])
	}
	g.Outputs = []Output{{Name: "y", Operand: x}}
	sides, crossings := Divide(g, func(op int) bool { return op == 1 })
	if len(crossings) != 1 {
		t.Errorf("%d values cross", len(crossings))
	}
	for i, want := range [][2]string{{"first.keys", "first.values"}, {"second.keys", "second.values"}} {
		var got []string
		for _, v := range sides[i].Graph.Values {
			if v.Role == Cache {
				got = append(got, v.Name)
			}
		}
		if len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
			t.Errorf("side %d has the caches %v, want %v", i, got, want)
		}
	}
}
