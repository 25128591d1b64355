package cpu

import (
	"math"
	"sync"
	"unsafe"

	"github.com/optimem/optimem/graph"
	simd "github.com/optimem/optimem/internal/cpu/kernel"
	"github.com/optimem/optimem/internal/cpu/ops"
	"github.com/optimem/optimem/tensor"
	"github.com/optimem/optimem/tensor/encoded"
)

// expertsKernels are layers of which each row takes a few out of many.
var expertsKernels = map[graph.Kind]ops.Kernel{
	"experts": {Run: runExperts, WorkOn: expertsWork},
}

const (
	// expertTile is how many rows go through an expert at a time.
	expertTile = 64
	// expertFloats bounds what the experts gave for some rows, which is kept until it is summed in the router's order.
	expertFloats = 4 << 20
)

// expertSizes are those of a call, and of its scratch. They do not depend on what rows hold.
type expertSizes struct {
	// rows go through named of all experts each.
	rows, hidden, inner, named, all int
	// chunk is how many rows are computed before their sums are, tile how many of them go through an expert at a time.
	chunk, tile int
}

func sizesOfExperts(x, ids, gate tensor.Shape, a graph.Attrs) expertSizes {
	r := len(x)
	s := expertSizes{
		rows: ops.Volume(x[:r-1]), hidden: x[r-1], inner: gate[0], named: ids[r-1], all: a.Int("experts"),
	}
	s.chunk = max(1, min(s.rows, expertFloats/max(1, s.named*s.hidden)))
	if a.Bool(graph.LentAttr) { // each is lent once
		s.chunk = max(1, s.rows)
	}
	s.tile = min(expertTile, max(1, s.chunk*s.named))
	return s
}

// floats returns the pieces of scratch: results, rows, gates, ups, and biases.
func (s *expertSizes) floats() []int {
	return []int{
		s.chunk * s.named * s.hidden, s.tile * s.hidden, s.tile * s.inner, s.tile * s.inner, 2*s.inner + s.hidden,
	}
}

func (s *expertSizes) integers() []int { return []int{s.all + 1, s.chunk * s.named} }

func expertsWork(threads int, in, _ []graph.Spec, a graph.Attrs) int64 {
	s := sizesOfExperts(in[0].Shape, in[1].Shape, in[graph.ExpertsFirst].Shape, a)
	var products int64
	form := productForm{left: tensor.Float32, right: tensor.Float32, out: tensor.Float32, how: manner{alone: true}}
	for _, w := range in[graph.ExpertsFirst:] {
		if w.DType == tensor.BFloat16 {
			form.right = w.DType
		}
	}
	for _, m := range [...]int{1, 2, 3, simd.FewRows, s.tile} { // few rows are computed otherwise
		if m <= s.tile {
			products = max(products, productWork(threads, m, s.inner, s.hidden, form),
				productWork(threads, m, s.hidden, s.inner, form))
		}
	}
	return ops.ScratchBytes(4, s.floats()...) + ops.ScratchBytes(4, s.integers()...) + products
}

// An expertsCall is a call being computed. It is the task of gating rows of a tile; see [expertSums].
type expertsCall struct {
	expertSizes
	c    *ops.Call
	set  *simd.Set
	each int
	// first is the first row of the chunk, rows that of as many.
	first, count int
	// results are what experts gave, by row and place; ends say where in order the pairs of row and place of each expert end.
	results, x, gates, ups, biases []float32
	ends, order                    []int32
	// lent are the views of the expert that is lent, needed those that are wanted.
	lent             [graph.LentOperands]ops.View
	needed           []int32
	act              *activation
	encodings        [3]*encoded.Encoding // nil for numbers
	clamped, weighed bool
	alpha, limit     float32
	// many is how many rows the tile has.
	many int
	work []byte
}

var expertsCalls = sync.Pool{New: func() any { return new(expertsCall) }}

// runExperts has every row go through its experts: chunk by chunk, expert by expert, so that an expert's weights are read once
// for all of a chunk's rows.
func runExperts(c *ops.Call) error {
	e := expertsCalls.Get().(*expertsCall)
	e.expertSizes = sizesOfExperts(c.In[0].Shape(), c.In[1].Shape(), c.In[graph.ExpertsFirst].Shape(), c.Attrs)
	e.c, e.set, e.each = c, c.Pool.Set, graph.ExpertOperands(c.Attrs)
	e.weighed = c.Attrs.Bool("weigh_input")
	for i, name := range graph.ExpertEncodings {
		e.encodings[i], _ = encoded.ByName(c.Attrs.String(name))
	}
	if e.clamped = c.Attrs.String("act") == "clamped"; e.clamped {
		e.alpha, e.limit = float32(c.Attrs.Float("alpha")), float32(c.Attrs.Float("limit"))
	} else {
		e.act = activationOf(c.Attrs)
	}
	work := ops.Scratch(c.Work)
	e.results = ops.TakeReal[float32](&work, e.chunk*e.named*e.hidden)
	e.x = ops.TakeReal[float32](&work, e.tile*e.hidden)
	e.gates, e.ups = ops.TakeReal[float32](&work, e.tile*e.inner), ops.TakeReal[float32](&work, e.tile*e.inner)
	e.biases = ops.TakeReal[float32](&work, 2*e.inner+e.hidden)
	e.ends, e.order = takeInts(&work, e.all+1), takeInts(&work, e.chunk*e.named)
	e.work = work
	var err error
	for e.first = 0; e.first < e.rows && err == nil; e.first += e.chunk {
		e.count = min(e.chunk, e.rows-e.first)
		err = e.compute()
	}
	*e = expertsCall{needed: e.needed}
	expertsCalls.Put(e)
	return err
}

// takeInts returns n integers of the scratch.
func takeInts(s *ops.Scratch, n int) []int32 {
	bytes := ops.RoundUp(4*n, 8)
	piece := ops.Elements[int32](ops.View{Data: (*s)[:bytes]})
	*s = (*s)[bytes:]
	return piece[:n]
}

// compute computes a chunk.
func (e *expertsCall) compute() error {
	if err := e.sort(); err != nil {
		return err
	}
	if err := e.experts(); err != nil {
		return err
	}
	e.c.Pool.Do(e.count, max(1, ops.Grain/max(1, e.named*e.hidden)), (*expertSums)(e))
	return nil
}

// experts has the chunk's rows go through their experts: in the order of these, or in that in which they are lent. What
// each gives has a place of its own, so that the order changes nothing.
func (e *expertsCall) experts() error {
	if e.c.Lender != nil {
		return e.borrowed()
	}
	for expert := range e.all {
		if err := e.rowsOf(expert); err != nil {
			return err
		}
	}
	return nil
}

// rowsOf has an expert compute the rows of the chunk that name it.
func (e *expertsCall) rowsOf(expert int) error {
	for pairs := e.pairs(expert); len(pairs) > 0; {
		if err := e.c.Ctx.Err(); err != nil {
			return err
		}
		n := min(len(pairs), e.tile)
		e.pass(expert, pairs[:n])
		pairs = pairs[n:]
	}
	return nil
}

// pairs are those of an expert.
func (e *expertsCall) pairs(expert int) []int32 {
	from := int32(0)
	if expert > 0 {
		from = e.ends[expert-1]
	}
	return e.order[from:e.ends[expert]]
}

// borrowed computes with experts that are lent.
func (e *expertsCall) borrowed() error {
	e.needed = e.needed[:0]
	for expert := range e.all {
		if len(e.pairs(expert)) > 0 {
			e.needed = append(e.needed, int32(expert))
		}
	}
	if err := e.c.Lender.Want(e.c.Ctx, e.needed, e.count); err != nil {
		return err
	}
	for {
		expert, operands, err := e.c.Lender.Next(e.c.Ctx)
		if err != nil || expert < 0 {
			return err
		}
		for i, a := range operands {
			e.lent[i] = ops.View{Data: regionBytes(a.Region), DType: a.Spec.DType, Layout: a.Operand.Layout}
		}
		if err := e.rowsOf(expert); err != nil {
			return err
		}
	}
}

// sort lists the chunk's pairs of row and place by expert, and each expert's in their order.
func (e *expertsCall) sort() error {
	clear(e.ends)
	ids := e.c.In[1]
	for pair := range e.count * e.named {
		id := e.at(ids, pair)
		x := ops.Elements[int64](ids)[id]
		switch {
		case x == -1:
		case x < 0 || x >= int64(e.all):
			return &graph.IndexError{Index: x, Size: int64(e.all), Operand: 1}
		default:
			e.ends[x+1]++
		}
	}
	for i := range e.all {
		e.ends[i+1] += e.ends[i]
	}
	for pair := range e.count * e.named {
		if x := ops.Elements[int64](ids)[e.at(ids, pair)]; x >= 0 {
			e.order[e.ends[x]] = int32(pair)
			e.ends[x]++
		}
	}
	return nil
}

// at returns where in the memory of a view by row and place a pair of the chunk is.
func (e *expertsCall) at(v ops.View, pair int) int {
	row, place := e.first+pair/e.named, pair%e.named
	return v.Layout.Leading(1).OffsetOf(row) + place*ops.LastStride(v.Layout)
}

// pass has an expert compute some rows.
func (e *expertsCall) pass(expert int, pairs []int32) {
	x := e.c.In[0]
	lead, step := x.Layout.Leading(1), ops.LastStride(x.Layout)
	for i, pair := range pairs {
		to := e.x[i*e.hidden:][:e.hidden]
		ops.LoadReal(to, x, lead.OffsetOf(e.first+int(pair)/e.named), step)
		if e.weighed {
			e.multiply(to, e.weight(int(pair)))
		}
	}
	w := e.c.In[graph.ExpertsFirst+expert*e.each:][:e.each]
	var bias [3][]float32
	if e.each == 6 {
		for i, room := range [3][]float32{e.biases[:e.inner], e.biases[e.inner:][:e.inner], e.biases[2*e.inner:]} {
			bias[i] = rowIn(w[3+i], room)
		}
	}
	if e.c.Lender != nil {
		w = e.lent[:]
	}
	e.many = len(pairs)
	e.product(e.gates, e.x, w, 0, bias[0], e.act)
	e.product(e.ups, e.x, w, 1, bias[1], nil)
	e.c.Pool.Do(e.many, max(1, ops.Grain/8/max(1, e.inner)), e)
	e.product(e.x, e.gates, w, 2, bias[2], nil)
	for i, pair := range pairs {
		copy(e.results[int(pair)*e.hidden:][:e.hidden], e.x[i*e.hidden:])
	}
}

// singleView returns numbers of the scratch as a view.
func singleView(x []float32) ops.View {
	return ops.View{Data: unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), 4*len(x)), DType: tensor.Float32}
}

// product multiplies the tile's rows by those of an expert's weight i, as linear does.
func (e *expertsCall) product(to, rows []float32, weights []ops.View, i int, bias []float32, act *activation) {
	w, n, k := weights[i], e.inner, e.hidden
	if i == 2 {
		n, k = e.hidden, e.inner
	}
	made := product[float32]{
		m: e.many, n: n, k: k, a: factor{v: singleView(rows), line: k, step: 1},
		b: factor{
			v: w, offset: w.Layout.Offset, line: w.Layout.Strides[0], step: w.Layout.Strides[1],
			encoding: e.encodings[i],
		},
		out: singleView(to), bias: bias, end: ending[float32]{act: act}, how: manner{alone: true}, work: e.work,
	}
	made.run(e.c.Pool, e.set)
}

// Run multiplies gates, which are activated, and ups of rows of the tile.
func (e *expertsCall) Run(from, to int) {
	gates, ups := e.gates[from*e.inner:to*e.inner], e.ups[from*e.inner:to*e.inner]
	switch {
	case e.clamped:
		e.clamp(gates, ups)
	case e.set != nil:
		e.set.Map(simd.MapMul, gates, gates, ups, nil, 0, 0, 0)
	default:
		for i, up := range ups {
			gates[i] *= up
		}
	}
}

// clamp is the gate of gpt-oss: (up + 1) · gate · σ(alpha · gate), both bounded.
func (e *expertsCall) clamp(gates, ups []float32) {
	if s := e.set; s != nil {
		s.Map(simd.MapClamp, gates, gates, nil, nil, float32(math.Inf(-1)), e.limit, 0)
		s.Map(simd.MapClamp, ups, ups, nil, nil, -e.limit, e.limit, 0)
		s.Map(simd.MapAffine, ups, ups, nil, nil, 0, 1, 1)
		s.Map(simd.MapMul, ups, ups, gates, nil, 0, 0, 0)
		s.Map(simd.MapAffine, gates, gates, nil, nil, 0, e.alpha, 0)
		s.Map(simd.MapSigmoid, gates, gates, nil, nil, 0, 0, 0)
		s.Map(simd.MapMul, gates, gates, ups, nil, 0, 0, 0)
		return
	}
	for i, up := range ups {
		gate := min(gates[i], e.limit)
		up = float32(min(max(up, -e.limit), e.limit)+1) * gate
		gates[i] = up * float32(1/(1+math.Exp(-float64(e.alpha*gate))))
	}
}

// weight returns what a pair of the chunk weighs.
func (e *expertsCall) weight(pair int) float32 {
	return ops.Elements[float32](e.c.In[2])[e.at(e.c.In[2], pair)]
}

func (e *expertsCall) multiply(row []float32, by float32) {
	if e.set != nil {
		e.set.Map(simd.MapAffine, row, row, nil, nil, 0, by, 0)
		return
	}
	for i := range row {
		row[i] *= by
	}
}

// expertSums is a call as the task of summing what experts gave for rows of the chunk, in the order in which the router named
// them.
type expertSums expertsCall

// Run sums rows.
func (s *expertSums) Run(from, to int) {
	e := (*expertsCall)(s)
	ids := e.c.In[1]
	for row := from; row < to; row++ {
		out := ops.Elements[float32](e.c.Out[0])[e.c.Out[0].Layout.Offset+(e.first+row)*e.hidden:][:e.hidden]
		clear(out)
		for pair := row * e.named; pair < (row+1)*e.named; pair++ {
			if ops.Elements[int64](ids)[e.at(ids, pair)] < 0 {
				continue
			}
			by, x := float32(1), e.results[pair*e.hidden:][:e.hidden]
			if !e.weighed {
				by = e.weight(pair)
			}
			if e.set != nil {
				e.set.Map(simd.MapAddScaled, out, out, x, nil, by, 0, 0)
				continue
			}
			for i, v := range x {
				out[i] += float32(by * v)
			}
		}
	}
}
