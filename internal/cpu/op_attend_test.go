package cpu

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/optimem/optimem/graph"
	simd "github.com/optimem/optimem/internal/cpu/kernel"
	"github.com/optimem/optimem/internal/cpu/ops"
	"github.com/optimem/optimem/tensor"
)

// An attendCase is a shape of attention, and how its caches are.
type attendCase struct {
	name                             string
	heads, groups, width, valueWidth int
	query, cache                     tensor.DType
	window, chunk                    int
	softcap                          float64
	sinks                            bool
	// distances is how many of them a bias tells apart, 0 for no bias.
	distances int
}

var attendCases = []attendCase{
	{name: "plain", heads: 4, groups: 4, width: 64, valueWidth: 64},
	{name: "groups", heads: 6, groups: 2, width: 32, valueWidth: 32},
	{name: "one key head", heads: 5, groups: 1, width: 64, valueWidth: 16},
	{name: "odd widths", heads: 2, groups: 1, width: 19, valueWidth: 7},
	{name: "window", heads: 2, groups: 2, width: 16, valueWidth: 16, window: 21},
	{name: "window of one", heads: 2, groups: 2, width: 16, valueWidth: 16, window: 1},
	{name: "chunk", heads: 4, groups: 2, width: 16, valueWidth: 16, chunk: 21},
	{name: "chunk of blocks", heads: 2, groups: 2, width: 16, valueWidth: 16, chunk: 32, window: 24},
	{name: "softcap", heads: 2, groups: 1, width: 16, valueWidth: 16, softcap: 1.5},
	{name: "sinks", heads: 4, groups: 2, width: 16, valueWidth: 32, sinks: true},
	{name: "everything", heads: 4, groups: 2, width: 24, valueWidth: 40, window: 40, softcap: 2, sinks: true},
	{name: "bfloat16 caches", heads: 4, groups: 2, width: 40, valueWidth: 33, cache: tensor.BFloat16},
	{name: "float16 caches", heads: 4, groups: 2, width: 40, valueWidth: 33, cache: tensor.Float16, sinks: true},
	{name: "bfloat16", heads: 4, groups: 2, width: 32, valueWidth: 32, query: tensor.BFloat16, cache: tensor.BFloat16},
	{name: "float16", heads: 2, groups: 2, width: 8, valueWidth: 8, query: tensor.Float16, cache: tensor.Float16, window: 5},
	{name: "bias", heads: 4, groups: 2, width: 16, valueWidth: 16, distances: 144},
	{name: "bias of the near", heads: 3, groups: 3, width: 20, valueWidth: 16, distances: 5, softcap: 2, sinks: true, window: 30},
	{name: "int8 caches", heads: 4, groups: 2, width: 40, valueWidth: 33, cache: tensor.Int8},
	{name: "int8 caches of halves", heads: 6, groups: 2, width: 19, valueWidth: 600, query: tensor.BFloat16, cache: tensor.Int8, window: 21, sinks: true},
}

// kept is a head's row as a cache has it.
func (c *attendCase) kept(row []float64) []float64 {
	kept := make([]float64, len(row))
	top := float32(0)
	for i, x := range row {
		kept[i] = x
		if c.cache != tensor.Int8 {
			kept[i] = roundTo(c.cache, x)
		}
		top = max(top, float32(math.Abs(x)))
	}
	if c.cache == tensor.Int8 {
		scale := top / 127
		for i, x := range row {
			kept[i] = float64(float32(math.RoundToEven(float64(float32(x)/scale))) * scale)
		}
	}
	return kept
}

// attended are sequences, and caches in which their tokens have places here and there.
type attended struct {
	attendCase
	// of each token of each sequence, by heads
	q, k, v      [][][]float64
	tables       [][]int64
	sinks, bias  []float64
	keys, values *tensor.Tensor
}

const (
	attendBlocks = 9 // of a sequence
	attendSpare  = 3 // that no sequence has
	attendScale  = 0.3
)

func newAttended(c attendCase, sequences int, r *rand.Rand) *attended {
	if c.query == tensor.Invalid {
		c.query = tensor.Float32
	}
	if c.cache == tensor.Invalid {
		c.cache = c.query
	}
	a := &attended{attendCase: c}
	draw := func(n int) []float64 {
		x := make([]float64, n)
		for i := range x {
			x[i] = roundTo(c.query, r.NormFloat64())
		}
		return x
	}
	free := r.Perm(sequences*attendBlocks + attendSpare)
	for range sequences {
		var q, k, v [][]float64
		for range attendBlocks * graph.BlockRows {
			q, k, v = append(q, draw(c.heads*c.width)), append(k, draw(c.groups*c.width)), append(v, draw(c.groups*c.valueWidth))
		}
		table := make([]int64, attendBlocks)
		for i := range table {
			table[i] = int64(free[i])
		}
		free = free[attendBlocks:]
		a.q, a.k, a.v, a.tables = append(a.q, q), append(a.k, k), append(a.v, v), append(a.tables, table)
	}
	if a.attendCase.sinks {
		a.sinks = draw(c.heads)
	}
	for range c.heads * c.distances {
		a.bias = append(a.bias, float64(float32(r.NormFloat64())))
	}
	a.forget()
	return a
}

// forget makes the caches what they are before anything is written.
func (a *attended) forget() {
	places := (len(a.tables)*attendBlocks + attendSpare) * graph.BlockRows
	a.keys = newTensor(a.cache, places, a.groups, graph.CacheWidth(a.cache, a.width))
	a.values = newTensor(a.cache, places, a.groups, graph.CacheWidth(a.cache, a.valueWidth))
}

func newTensor(d tensor.DType, shape ...int) *tensor.Tensor {
	return &tensor.Tensor{DType: d, Layout: tensor.Contiguous(shape...), Data: make([]byte, ops.Volume(shape)*d.Size())}
}

// roundTo rounds to a float dtype.
func roundTo(d tensor.DType, x float64) float64 {
	switch d {
	case tensor.BFloat16:
		return float64(tensor.BFloat16ToFloat32(tensor.BFloat16FromFloat32(float32(x))))
	case tensor.Float16:
		return float64(tensor.Float16ToFloat32(tensor.Float16FromFloat32(float32(x))))
	}
	return float64(float32(x))
}

// A token is one of a sequence's; a negative position is none.
type token struct {
	sequence int
	position int
}

// in returns the operands of a pass over tokens.
func (a *attended) in(tokens []token) []*tensor.Tensor {
	n := len(tokens)
	q, k := newTensor(a.query, n, a.heads, a.width), newTensor(a.query, n, a.groups, a.width)
	v := newTensor(a.query, n, a.groups, a.valueWidth)
	at, tables := newTensor(tensor.Int64, n), newTensor(tensor.Int64, n, attendBlocks)
	put := func(t *tensor.Tensor, row int, x []float64) {
		for i, value := range x {
			ops.StoreFloat(ops.View{Data: t.Data, DType: t.DType, Layout: t.Layout}, row*len(x)+i, value)
		}
	}
	of := func(t *tensor.Tensor) []int64 { return ops.Elements[int64](ops.View{Data: t.Data}) }
	for i, x := range tokens {
		of(at)[i] = int64(x.position)
		if x.position < 0 { // its table is nobody's
			for b := range attendBlocks {
				of(tables)[i*attendBlocks+b] = -1
			}
			continue
		}
		put(q, i, a.q[x.sequence][x.position])
		put(k, i, a.k[x.sequence][x.position])
		put(v, i, a.v[x.sequence][x.position])
		copy(of(tables)[i*attendBlocks:], a.tables[x.sequence])
		for b := x.position/graph.BlockRows + 1; b < attendBlocks; b++ { // those behind are not there yet
			of(tables)[i*attendBlocks+b] = -7
		}
	}
	in := []*tensor.Tensor{q, k, v, a.keys, a.values, at, tables}
	if a.sinks != nil {
		s := newTensor(a.query, a.heads)
		put(s, 0, a.sinks)
		in = append(in, s)
	}
	if a.bias != nil {
		b := newTensor(tensor.Float32, a.heads, a.distances)
		put(b, 0, a.bias)
		if a.sinks == nil {
			in = append(in, nil)
		}
		in = append(in, b)
	}
	return in
}

func (a *attended) attrs() graph.Attrs {
	return graph.Attrs{"scale": attendScale, "window": a.window, "chunk": a.chunk, "softcap": a.softcap}
}

// run computes a pass and returns each token's result.
func (a *attended) run(t *testing.T, pool *ops.Pool, tokens []token) [][]byte {
	t.Helper()
	out, err := Compute(t.Context(), pool, graph.Standard(), "attend", a.attrs(), a.in(tokens)...)
	if err != nil {
		t.Fatal(err)
	}
	var rows [][]byte
	each := len(out[0].Data) / len(tokens)
	for i := range tokens {
		rows = append(rows, out[0].Data[i*each:][:each])
	}
	return rows
}

// want computes a token's result in float64, from all that is known, and not block by block.
func (a *attended) want(x token) []float64 {
	out := make([]float64, a.heads*a.valueWidth)
	if x.position < 0 {
		return out
	}
	for h := range a.heads {
		g := h / (a.heads / a.groups)
		var scores, weights []float64
		from := 0
		if a.window > 0 {
			from = max(0, x.position+1-a.window)
		}
		if a.chunk > 0 {
			from = max(from, x.position-x.position%a.chunk)
		}
		for p := from; p <= x.position; p++ {
			s := 0.0
			key := a.kept(a.k[x.sequence][p][g*a.width:][:a.width])
			for d := range a.width {
				s += a.q[x.sequence][x.position][h*a.width+d] * key[d]
			}
			s *= attendScale
			if a.softcap > 0 {
				s = a.softcap * math.Tanh(s/a.softcap)
			}
			if a.bias != nil {
				s += a.bias[h*a.distances+min(x.position-p, a.distances-1)]
			}
			scores = append(scores, s)
		}
		all := slices.Clone(scores)
		if a.sinks != nil {
			all = append(all, a.sinks[h])
		}
		top, sum := slices.Max(all), 0.0
		for _, s := range all {
			sum += math.Exp(s - top)
		}
		for _, s := range scores {
			weights = append(weights, math.Exp(s-top)/sum)
		}
		for i, w := range weights {
			for e, value := range a.kept(a.v[x.sequence][from+i][g*a.valueWidth:][:a.valueWidth]) {
				out[h*a.valueWidth+e] += w * value
			}
		}
	}
	return out
}

// check compares a token's result with what it is to be.
func (a *attended) check(t *testing.T, x token, got []byte) {
	t.Helper()
	limit := map[tensor.DType]float64{tensor.Float32: 2e-6, tensor.BFloat16: 8e-3, tensor.Float16: 1e-3}[a.query]
	numbers := make([]float64, a.heads*a.valueWidth)
	ops.LoadReal(numbers, ops.View{Data: got, DType: a.query}, 0, 1)
	for i, want := range a.want(x) {
		if g := numbers[i]; !(math.Abs(g-want) <= limit*max(1, math.Abs(want))) {
			t.Fatalf("%v: element %d of %v is %v, want %v", a.name, i, x, g, want)
		}
	}
}

// whole is all tokens of a sequence up to an end.
func whole(sequence, end int) []token {
	var all []token
	for p := range end {
		all = append(all, token{sequence, p})
	}
	return all
}

// TestAttendAsDefined: numbers are those of the definition, computed in float64 with everything in view.
func TestAttendAsDefined(t *testing.T) {
	pool := ops.NewPool(2)
	defer pool.Close()
	for _, c := range attendCases {
		t.Run(c.name, func(t *testing.T) {
			a := newAttended(c, 2, rand.New(rand.NewPCG(1, 2)))
			for s := range 2 {
				tokens := whole(s, 70)
				for i, got := range a.run(t, pool, tokens) {
					a.check(t, tokens[i], got)
				}
			}
		})
	}
}

// TestAttendReads: rows without keys and values of their own see what others wrote, up to their position, and write
// nothing.
func TestAttendReads(t *testing.T) {
	pool := ops.NewPool(2)
	defer pool.Close()
	for _, c := range attendCases {
		t.Run(c.name, func(t *testing.T) {
			a := newAttended(c, 2, rand.New(rand.NewPCG(1, 5)))
			tokens := whole(1, 70)
			want := a.run(t, pool, tokens)
			keys, values := bytes.Clone(a.keys.Data), bytes.Clone(a.values.Data)
			in := a.in(append(tokens[30:], token{0, -1}))
			in[1], in[2] = nil, nil
			out, err := Compute(t.Context(), pool, graph.Standard(), "attend", a.attrs(), in...)
			if err != nil {
				t.Fatal(err)
			}
			if got := bytes.Join(append(slices.Clone(want[30:]), make([]byte, len(want[0]))), nil); !bytes.Equal(out[0].Data, got) {
				t.Error("other bits than where they are written")
			}
			if !bytes.Equal(keys, a.keys.Data) || !bytes.Equal(values, a.values.Data) {
				t.Error("the caches have changed")
			}
		})
	}
}

// TestAttendRowsAreAlone: a token's bits are the same whether its sequence comes at once, in pieces or token by token, whatever
// else is in the pass, and on any number of threads.
func TestAttendRowsAreAlone(t *testing.T) {
	one, several := ops.NewPool(1), ops.NewPool(3)
	defer one.Close()
	defer several.Close()
	const length = 90
	for k, c := range attendCases {
		t.Run(c.name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(3, uint64(k)))
			a := newAttended(c, 3, r)
			var want [3][][]byte
			for s := range want {
				for _, x := range whole(s, length) {
					want[s] = append(want[s], a.run(t, one, []token{x})[0])
				}
			}
			keys, values := bytes.Clone(a.keys.Data), bytes.Clone(a.values.Data)
			check := func(tokens []token, got [][]byte) {
				t.Helper()
				for i, x := range tokens {
					switch {
					case x.position < 0 && slices.ContainsFunc(got[i], func(b byte) bool { return b != 0 }):
						t.Fatalf("a row that is no token gives something")
					case x.position >= 0 && !bytes.Equal(got[i], want[x.sequence][x.position]):
						t.Fatalf("%v of %v: other bits", x, tokens)
					}
				}
			}
			for round := range 12 {
				a.forget()
				pool := []*ops.Pool{one, several}[round%2]
				var done [3]int
				for done != [3]int{length, length, length} {
					var tokens []token
					for s := range done { // a piece of every sequence, and rows that are no tokens
						n := min(length-done[s], []int{1, r.IntN(3), r.IntN(40), length}[r.IntN(4)])
						for range n {
							tokens = append(tokens, token{s, done[s]})
							done[s]++
						}
					}
					for range r.IntN(3) {
						tokens = append(tokens, token{0, -1 - r.IntN(3)})
					}
					if len(tokens) == 0 {
						continue
					}
					r.Shuffle(len(tokens), func(i, j int) { tokens[i], tokens[j] = tokens[j], tokens[i] })
					check(tokens, a.run(t, pool, tokens))
				}
				if !bytes.Equal(a.keys.Data, keys) || !bytes.Equal(a.values.Data, values) {
					t.Fatal("the caches have other bits")
				}
			}
		})
	}
}

// TestAttendWritesItsPlacesAlone: what other sequences have in the caches, and what nobody has, stays as it is.
func TestAttendWritesItsPlacesAlone(t *testing.T) {
	pool := ops.NewPool(2)
	defer pool.Close()
	a := newAttended(attendCases[1], 2, rand.New(rand.NewPCG(5, 6)))
	for _, cache := range []*tensor.Tensor{a.keys, a.values} {
		for i := range cache.Data {
			cache.Data[i] = byte(i*7 + 1)
		}
	}
	keys, values := bytes.Clone(a.keys.Data), bytes.Clone(a.values.Data)
	a.run(t, pool, []token{{1, 20}, {1, 21}, {0, -1}, {1, 35}})
	written := make(map[int]bool)
	for _, p := range []int{20, 21, 35} {
		written[int(a.tables[1][p/graph.BlockRows])*graph.BlockRows+p%graph.BlockRows] = true
	}
	for _, x := range []struct {
		now    *tensor.Tensor
		before []byte
		of     [][]float64
	}{{a.keys, keys, a.k[1]}, {a.values, values, a.v[1]}} {
		each := len(x.before) / x.now.Layout.Shape[0]
		for place := range x.now.Layout.Shape[0] {
			if same := bytes.Equal(x.now.Data[place*each:][:each], x.before[place*each:][:each]); same == written[place] {
				t.Errorf("place %d: written %v, the same %v", place, written[place], same)
			}
		}
	}
}

// TestAttendRefusesPlacesThatAreNotThere: an index out of range is an error that says so, and nothing is written.
func TestAttendRefusesPlacesThatAreNotThere(t *testing.T) {
	pool := ops.NewPool(1)
	defer pool.Close()
	for name, c := range map[string]struct {
		change      func(at, tables []int64)
		index, size int64
		operand     int
	}{
		"a position behind the table":      {func(at, _ []int64) { at[1] = attendBlocks * graph.BlockRows }, attendBlocks * graph.BlockRows, attendBlocks * graph.BlockRows, 5},
		"a position far behind":            {func(at, _ []int64) { at[1] = math.MaxInt64 }, math.MaxInt64, attendBlocks * graph.BlockRows, 5},
		"a block behind the caches":        {func(_, b []int64) { b[attendBlocks] = 12 }, 12, 12, 6},
		"a negative block":                 {func(_, b []int64) { b[attendBlocks+1] = -1 }, -1, 12, 6},
		"a block so large that it wraps":   {func(_, b []int64) { b[attendBlocks] = math.MaxInt64 / 8 }, math.MaxInt64 / 8, 12, 6},
		"an earlier block of the sequence": {func(_, b []int64) { b[0] = 99 }, 99, 12, 6},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAttended(attendCases[0], 1, rand.New(rand.NewPCG(7, 8)))
			in := a.in([]token{{0, 17}, {0, 18}})
			c.change(ops.Elements[int64](ops.View{Data: in[5].Data}), ops.Elements[int64](ops.View{Data: in[6].Data}))
			_, err := Compute(t.Context(), pool, graph.Standard(), "attend", a.attrs(), in...)
			var index *graph.IndexError
			if !errors.As(err, &index) || index.Index != c.index || index.Size != c.size || index.Operand != c.operand {
				t.Errorf("%v, want index %d of %d", err, c.index, c.size)
			}
			for _, cache := range []*tensor.Tensor{a.keys, a.values} {
				if slices.ContainsFunc(cache.Data, func(b byte) bool { return b != 0 }) {
					t.Error("something was written")
				}
			}
		})
	}
	// Blocks before the window, and behind the position, are nobody's business.
	a := newAttended(attendCases[4], 1, rand.New(rand.NewPCG(7, 8)))
	in := a.in([]token{{0, 60}})
	copy(ops.Elements[int64](ops.View{Data: in[6].Data}), []int64{-5, 1 << 40})
	if _, err := Compute(t.Context(), pool, graph.Standard(), "attend", a.attrs(), in...); err != nil {
		t.Error(err)
	}
}

// TestAttendRoundsEachRow: the codes and the scale of a row are those of its own values; a row of zeros is zeros, one with a NaN or an
// infinity has no number, and those beside it have.
func TestAttendRoundsEachRow(t *testing.T) {
	pool := ops.NewPool(1)
	defer pool.Close()
	a := newAttended(attendCase{heads: 1, groups: 1, width: 3, valueWidth: 2, cache: tensor.Int8}, 1, rand.New(rand.NewPCG(1, 1)))
	a.k[0][0] = []float64{0.5, -254, 127}
	a.k[0][1] = []float64{0, 0, 0}
	a.k[0][2] = []float64{1, math.Inf(-1), 0}
	a.k[0][3] = []float64{1e-30, math.NaN(), 3}
	a.k[0][4] = []float64{1, 3, 5} // ÷ (5 ÷ 127)
	a.run(t, pool, whole(0, 5))
	at := int(a.tables[0][0]) * graph.BlockRows * 7
	for i, want := range []string{"00 81 40 00000040", "00 00 00 00000000", "00 00 00 nan", "00 00 00 nan", "19 4c 7f 8542213d"} {
		row := a.keys.Data[at+7*i:][:7]
		got := fmt.Sprintf("%02x %02x %02x %x", row[0], row[1], row[2], row[3:])
		if scale := math.Float32frombits(binary.LittleEndian.Uint32(row[3:])); scale != scale {
			got = fmt.Sprintf("%02x %02x %02x nan", row[0], row[1], row[2])
		}
		if got != want {
			t.Errorf("row %d is %s, want %s", i, got, want)
		}
	}
}

// TestAttendTakesViews: queries, keys and values may be parts of one product, a table one row for all.
func TestAttendTakesViews(t *testing.T) {
	pool := ops.NewPool(2)
	defer pool.Close()
	a := newAttended(attendCases[1], 1, rand.New(rand.NewPCG(9, 10)))
	tokens := whole(0, 40)
	want := a.run(t, pool, tokens)
	a.forget()
	in := a.in(tokens)
	joint := newTensor(tensor.Float32, len(tokens), (a.heads+2*a.groups)*a.width)
	line := joint.Layout.Shape[1]
	at := 0
	for i, heads := range []int{a.heads, a.groups, a.groups} {
		for r := range tokens {
			n := heads * a.width * 4
			copy(joint.Data[(r*line+at)*4:][:n], in[i].Data[r*n:][:n])
		}
		in[i] = &tensor.Tensor{DType: tensor.Float32, Data: joint.Data, Layout: tensor.Layout{
			Shape: tensor.Shape{len(tokens), heads, a.width}, Strides: []int{line, a.width, 1}, Offset: at,
		}}
		at += heads * a.width
	}
	table := newTensor(tensor.Int64, attendBlocks)
	copy(ops.Elements[int64](ops.View{Data: table.Data}), a.tables[0])
	in[6] = &tensor.Tensor{DType: tensor.Int64, Data: table.Data, Layout: tensor.Layout{
		Shape: tensor.Shape{len(tokens), attendBlocks}, Strides: []int{0, 1},
	}}
	out, err := Compute(t.Context(), pool, graph.Standard(), "attend", a.attrs(), in...)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(out[0].Data, bytes.Join(want, nil)) {
		t.Error("other bits")
	}
}

// TestAttendAllocatesNothing in passes after the first.
func TestAttendAllocatesNothing(t *testing.T) {
	dev := New(1, graph.Standard())
	defer dev.Close()
	a := newAttended(attendCases[8], 1, rand.New(rand.NewPCG(11, 12)))
	tokens := whole(0, 30)
	g := &graph.Graph{}
	var in []Operand
	for i, x := range a.in(tokens) {
		g.AddInput(fmt.Sprint(i), x.DType, x.Layout.Shape)
		in = append(in, Operand{Bytes: x.Data, DType: x.DType, Layout: x.Layout})
	}
	op := graph.Op{Kind: "attend", Attrs: a.attrs()}
	for _, id := range g.Inputs {
		op.In = append(op.In, g.Whole(id))
	}
	if _, err := g.Emit(graph.Standard(), op); err != nil {
		t.Fatal(err)
	}
	l, err := dev.Lower(g)
	if err != nil {
		t.Fatal(err)
	}
	y := newTensor(a.query, len(tokens), a.heads, a.valueWidth)
	out := []Operand{{Bytes: y.Data, DType: y.DType, Layout: y.Layout}}
	work := make([]byte, l.Steps[0].WorkBytes)
	if n := testing.AllocsPerRun(10, func() {
		if err := dev.Compute(t.Context(), &g.Ops[0], in, out, work); err != nil {
			t.Fatal(err)
		}
	}); n > 0 && !raceDetector {
		t.Errorf("%v allocations", n)
	}
}

// TestRoundedRowsAreLoadedAlike: the kernels of every kind of vectors give the bits that Go does, of every code and any
// width, and of scales that are tiny, large, infinite or none.
func TestRoundedRowsAreLoadedAlike(t *testing.T) {
	for _, set := range simd.All() {
		t.Run(set.Name, func(t *testing.T) {
			u, plain := &attendUnit{attending: &attending{set: set}}, &attendUnit{attending: new(attending)}
			for width := range 130 {
				row := make([]byte, width+4)
				for i := range width {
					row[i] = byte(i*37 + width)
				}
				for _, scale := range []float32{0, 0.013, 1e30, 1e-41, float32(math.Inf(1)), float32(math.NaN())} {
					binary.LittleEndian.PutUint32(row[width:], math.Float32bits(scale))
					got, want := make([]float32, width), make([]float32, width)
					u.loadRounded(got, row)
					plain.loadRounded(want, row)
					for i := range want {
						if math.Float32bits(got[i]) != math.Float32bits(want[i]) && !(got[i] != got[i] && want[i] != want[i]) {
							t.Fatalf("width %d, scale %v: element %d is %v, want %v", width, scale, i, got[i], want[i])
						}
					}
				}
			}
		})
	}
}

// TestAttendMirrorsRows: a row that another sequence has, too, is written to its block as that would write it, whatever
// the caches are of, and what that sequence attends to are the same bits; nothing else is written.
func TestAttendMirrorsRows(t *testing.T) {
	pool := ops.NewPool(2)
	defer pool.Close()
	for _, c := range attendCases {
		a, b := newAttended(c, 2, rand.New(rand.NewPCG(9, 1))), newAttended(c, 2, rand.New(rand.NewPCG(9, 1)))
		const first, last = 20, 24
		for _, x := range []*attended{a, b} { // the sequences part behind the last row
			copy(x.q[1], x.q[0][:last])
			copy(x.k[1], x.k[0][:last])
			copy(x.v[1], x.v[0][:last])
			x.run(t, pool, append(whole(0, first), whole(1, first)...))
		}
		rows, twice := whole(0, last)[first:], whole(1, last)[first:]
		ends := []token{{0, last}, {1, last}}
		want := b.run(t, pool, append(append(slices.Clone(rows), twice...), ends...))
		in := a.in(append(slices.Clone(rows), ends...))
		also := newTensor(tensor.Int64, len(rows)+2, 2)
		to := ops.Elements[int64](ops.View{Data: also.Data})
		for i := range rows {
			to[2*i], to[2*i+1] = a.tables[0][1], a.tables[1][1]
		}
		for i, end := range ends {
			own := a.tables[end.sequence][last/graph.BlockRows]
			to[2*(len(rows)+i)], to[2*(len(rows)+i)+1] = own, own
		}
		for len(in) < 9 {
			in = append(in, nil)
		}
		out, err := Compute(t.Context(), pool, graph.Standard(), "attend", a.attrs(), append(in, also)...)
		if err != nil {
			t.Fatal(err)
		}
		each := len(out[0].Data) / (len(rows) + 2)
		for i := range len(rows) + 2 {
			k := i
			if i >= len(rows) {
				k += len(twice)
			}
			if !bytes.Equal(out[0].Data[i*each:][:each], want[k]) {
				t.Errorf("%s: row %d has other bits than where nothing is shared", c.name, i)
			}
		}
		if !bytes.Equal(a.keys.Data, b.keys.Data) || !bytes.Equal(a.values.Data, b.values.Data) {
			t.Errorf("%s: the caches differ from those of sequences that share nothing", c.name)
		}
		to[1] = 99
		var index *graph.IndexError
		if _, err := Compute(t.Context(), pool, graph.Standard(), "attend", a.attrs(), append(in, also)...); !errors.As(err, &index) || index.Operand != 9 {
			t.Errorf("%s: a block that is not there: %v", c.name, err)
		}
	}
}
