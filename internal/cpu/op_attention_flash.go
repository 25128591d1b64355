package cpu

import (
	"bytes"
	"context"
	"math"
	"sync"

	"github.com/optimem/optimem/graph"
	simd "github.com/optimem/optimem/internal/cpu/kernel"
	"github.com/optimem/optimem/internal/cpu/ops"
	"github.com/optimem/optimem/tensor"
)

// The sizes of the blocks of a flash: queries are taken in blocks of rows, for which a block of keys and values is packed
// once; scores exist for a tile of rows and a block of keys at a time.
const (
	flashKeys    = 256
	flashPitch   = flashKeys + 16 // rows of scores lie off powers of two
	flashQueries = 224
	flashTile    = 14
	flashParts   = 32
	// flashFew is the most queries for which keys and values are read where they lie.
	flashFew = simd.DotRows
)

// A flash computes attention with memory that does not grow with the number of keys, as FlashAttention does: for each
// block of keys the scores' exponentials relative to the largest score so far, and sums of values that are scaled down
// whenever a larger score comes. https://arxiv.org/abs/2205.14135.
type flash struct {
	set                      *simd.Set
	ctx                      context.Context
	q, k, v, mask, out, also ops.View
	work                     []byte
	partBytes                int
	scale                    float32
	causal, unseenNaN        bool
	flashSizes
}

var flashes = sync.Pool{New: func() any { return new(flash) }}

// flashSizes are how a call is cut, by its shapes alone.
type flashSizes struct {
	batch, queries, keys, width, valueWidth int
	rows, blocks, units, parts              int
	pitch                                   int // of rows of sums
}

func flashSizesOf(q, k, v tensor.Shape) flashSizes {
	r := len(q)
	s := flashSizes{
		batch: ops.Volume(q[:r-2]), queries: q[r-2], keys: k[r-2], width: q[r-1], valueWidth: v[r-1],
	}
	s.blocks = max(1, (s.queries+flashQueries-1)/flashQueries)
	s.rows = min(ops.RoundUp((s.queries+s.blocks-1)/s.blocks, flashTile), flashQueries)
	s.rows = max(s.rows, 1)
	s.blocks = (s.queries + s.rows - 1) / s.rows
	s.units = s.batch * s.blocks
	s.parts = min(s.units, flashParts)
	s.pitch = ops.RoundUp(s.valueWidth, stripColumns)
	return s
}

// workFloats returns the scratch of one part.
func (s *flashSizes) workFloats() int {
	keys := min(ops.RoundUp(s.keys, stripColumns), flashKeys)
	packed := ops.RoundUp(s.width, unroll)*keys + ops.RoundUp(keys, unroll)*s.pitch
	return packed + flashTile*flashPitch + s.rows*(s.pitch+s.width+2) + flashKeys + 2*flashTile
}

// flashTakes reports whether a flash computes a call.
func flashTakes(d tensor.DType, a graph.Attrs) bool {
	return ops.IsSingle(d) && a.String("also") != "weights"
}

// runFlash computes a call.
func runFlash(c *ops.Call) {
	f := flashes.Get().(*flash)
	*f = flash{
		set: c.Pool.Set, ctx: c.Ctx, q: c.In[0], k: c.In[1], v: c.In[2], out: c.Out[0], work: c.Work,
		scale: float32(c.Attrs.Float("scale")), causal: c.Attrs.Bool("is_causal"),
		unseenNaN:  c.Attrs.Bool("unseen_nan"),
		flashSizes: flashSizesOf(c.In[0].Shape(), c.In[1].Shape(), c.In[2].Shape()),
	}
	if len(c.In) > 3 {
		f.mask = c.In[3]
	}
	if len(c.Out) > 1 {
		f.also = c.Out[1]
	}
	f.partBytes = 4 * f.workFloats()
	c.Pool.Do(f.parts, 1, f)
	*f = flash{}
	flashes.Put(f)
}

// A flashUnit is the queries [from, to) of one matrix of the batch being computed, with its scratch.
type flashUnit struct {
	batch, from, to int
	keys            matrix[float32] // lines along the width
	values          matrix[float32] // lines along the keys
	few             bool
	// query i lies at element i·queryPitch of queries.
	queries    []float32
	queryPitch int

	// maskAt is where the mask of the matrix begins, block how many keys and values are packed.
	maskAt, block int

	packedKeys, packedValues, scores, sums, copied, tops, totals, mask, tile []float32
}

// Run implements Task.
func (f *flash) Run(from, to int) {
	for part := from; part < to; part++ {
		u := f.unit(ops.Scratch(f.work[part*f.partBytes:][:f.partBytes]))
		for unit := part * f.units / f.parts; unit < (part+1)*f.units/f.parts && f.ctx.Err() == nil; unit++ {
			u.batch, u.from = unit/f.blocks, unit%f.blocks*f.rows
			u.to = min(u.from+f.rows, f.queries)
			f.compute(&u)
		}
	}
}

// unit divides scratch.
func (f *flash) unit(work ops.Scratch) (u flashUnit) {
	all := ops.Elements[float32](ops.View{Data: work})
	take := func(n int) []float32 {
		piece := all[:n]
		all = all[n:]
		return piece
	}
	keys := min(ops.RoundUp(f.keys, stripColumns), flashKeys)
	u.packedKeys, u.packedValues = take(ops.RoundUp(f.width, unroll)*keys), take(ops.RoundUp(keys, unroll)*f.pitch)
	u.scores, u.sums, u.copied = take(flashTile*flashPitch), take(f.rows*f.pitch), take(f.rows*f.width)
	u.tops, u.totals, u.mask, u.tile = take(f.rows), take(f.rows), take(flashKeys), take(2*flashTile)
	return u
}

// factor returns one matrix of a batch, whose lines are its rows.
func (f *flash) factor(v ops.View, batch int) matrix[float32] {
	l := v.Layout
	r := len(l.Shape)
	return matrix[float32]{
		data: v.Data, dtype: v.DType, offset: l.Leading(2).OffsetOf(batch),
		line: l.Strides[r-2], step: l.Strides[r-1], set: f.set,
	}
}

// compute computes a unit.
func (f *flash) compute(u *flashUnit) {
	rows := u.to - u.from
	u.keys, u.values = f.factor(f.k, u.batch), f.factor(f.v, u.batch)
	u.few = f.queries <= flashFew && u.keys.step == 1 && u.values.step == 1 && u.keys.line >= 0 && u.values.line >= 0
	u.values.line, u.values.step = u.values.step, u.values.line
	q := f.factor(f.q, u.batch)
	if q.dtype == tensor.Float32 && q.step == 1 && q.line > 0 && f.width > 0 {
		u.queries, u.queryPitch = ops.Elements[float32](f.q)[q.offset+u.from*q.line:], q.line
	} else {
		for i := range rows {
			ops.LoadSingle(f.set, u.copied[i*f.width:(i+1)*f.width], f.q, q.offset+(u.from+i)*q.line, q.step)
		}
		u.queries, u.queryPitch = u.copied, f.width
	}
	if !f.mask.Absent() {
		u.maskAt = f.mask.Layout.Leading(2).OffsetOf(u.batch)
	}
	for i := range rows {
		u.tops[i], u.totals[i] = float32(math.Inf(-1)), 0
	}
	keys := f.keys
	if f.causal {
		keys = min(keys, u.to) // nobody sees those after the last query
	}
	if u.few || keys == 0 { // else the first block's sums are stored
		clear(u.sums[:rows*f.pitch])
	}
	for k0 := 0; k0 < keys; k0 += flashKeys {
		k1 := min(k0+flashKeys, keys)
		f.pack(u, k0, k1)
		for r0 := 0; r0 < rows; r0 += f.set.Rows {
			r1 := min(r0+f.set.Rows, rows)
			if f.causal && u.from+r1 <= k0 {
				continue
			}
			n := k1 - k0
			if f.causal {
				n = min(n, u.from+r1-k0) // nobody of these sees more
			}
			f.score(u, r0, r1, k0, n)
			f.weigh(u, r0, r1, k0, n)
			f.add(u, r0, r1, k0, n)
		}
	}
	f.finish(u)
}

// pack packs a block of keys and values.
func (f *flash) pack(u *flashUnit, k0, k1 int) {
	n := k1 - k0
	u.block = n
	if u.few {
		if f.k.DType != tensor.Float32 {
			f.load(u.packedKeys, f.k, u.keys.offset+k0*u.keys.line, n, f.width, u.keys.line)
		}
		if f.v.DType != tensor.Float32 {
			f.load(u.packedValues, f.v, u.values.offset+k0*u.values.step, n, f.valueWidth, u.values.step)
		}
		return
	}
	columns, depth := f.set.Columns, ops.RoundUp(f.width, unroll)
	for l := 0; l < n; l += columns {
		for d := 0; d < f.width; d += blockK {
			u.keys.pack(
				u.packedKeys[l*depth+d*columns:], columns, k0+l, k0+min(l+columns, n), d, min(d+blockK, f.width),
			)
		}
	}
	u.values.pack(u.packedValues, columns, 0, f.valueWidth, k0, k1)
}

// load loads rows of a width that lie line apart from element at of a view on.
func (f *flash) load(dst []float32, v ops.View, at, rows, width, line int) {
	if line == width {
		rows, width = 1, rows*width
	}
	for i := range rows {
		ops.LoadSingle(f.set, dst[i*width:(i+1)*width], v, at+i*line, 1)
	}
}

// score computes the products of the queries [r0, r1) with n keys from k0 on.
func (f *flash) score(u *flashUnit, r0, r1, k0, n int) {
	if f.width == 0 {
		clear(u.scores)
		return
	}
	queries := u.queries[r0*u.queryPitch:]
	if !u.few {
		columns, depth := f.set.Columns, ops.RoundUp(f.width, unroll)
		for l := 0; l < n; l += columns {
			f.set.Gemm(r1-r0, f.width, queries, u.queryPitch, u.packedKeys[l*depth:][:columns*depth], u.scores[l:], flashPitch,
				simd.Store, nil)
		}
		return
	}
	keys, pitch := u.packedKeys, f.width
	if f.k.DType == tensor.Float32 {
		keys, pitch = ops.Elements[float32](f.k)[u.keys.offset+k0*u.keys.line:], u.keys.line
	}
	whole := f.width / f.set.Lanes * f.set.Lanes
	room := u.packedKeys // has room for a few sums: keys that lie elsewhere do not need it
	if f.k.DType != tensor.Float32 {
		room = u.mask
	}
	for j := 0; j < n; {
		count := 1
		if j+4 <= n {
			count = 4
		}
		sums := room[:4*flashFew]
		clear(sums)
		if whole > 0 {
			f.set.Dot(r1-r0, count, whole, queries, u.queryPitch, keys[j*pitch:], pitch, sums)
		}
		for r := range r1 - r0 {
			for i := range count {
				sum := sums[r*count+i]
				for d := whole; d < f.width; d++ {
					sum += queries[r*u.queryPitch+d] * keys[(j+i)*pitch+d]
				}
				u.scores[r*flashPitch+j+i] = sum
			}
		}
		j += count
	}
}

// weigh makes the scores of the queries [r0, r1) with n keys from k0 on their exponentials relative to the largest so far.
func (f *flash) weigh(u *flashUnit, r0, r1, k0, n int) {
	scale := f.scale
	tops, sums := u.tile[:r1-r0], u.tile[flashTile:][:r1-r0]
	if mask, pitch := f.maskRows(u, r0, k0); mask != nil {
		f.set.AddMaxRows(tops, n, u.scores, flashPitch, mask, pitch, scale)
		scale = 1
	} else {
		if f.causal || !(scale > 0) || f.hides(u, r0, k0, n) {
			for r := r0; r < r1; r++ {
				scale = f.hide(u, r, u.scores[(r-r0)*flashPitch:][:n], k0)
			}
		}
		f.set.MaxRows(tops, n, u.scores, flashPitch)
	}
	for i, largest := range tops {
		r := r0 + i
		before := u.tops[r]
		top := max(before, largest*scale)
		if math.IsInf(float64(top), -1) {
			tops[i] = nanOr(u.scores[i*flashPitch:][:n], 0)
			continue
		}
		tops[i], u.tops[r] = top, top
		if before != top && !math.IsInf(float64(before), -1) {
			less := float32(math.Exp(float64(before - top)))
			u.totals[r] *= less
			values := u.sums[r*f.pitch:][:f.valueWidth]
			f.set.Map(simd.MapAffine, values, values, nil, nil, 0, less, 0)
		}
	}
	f.set.ExpSumRows(sums, n, u.scores, flashPitch, scale, tops)
	for i, sum := range sums {
		u.totals[r0+i] += sum
	}
}

// nanOr returns NaN if one is among x, else otherwise.
func nanOr(x []float32, otherwise float32) float32 {
	for _, v := range x {
		if v != v {
			return v
		}
	}
	return otherwise
}

// maskRows returns the rows of a mask from query r and key k0 on, and the elements from one to the next, where such rows can
// be added to scores as they lie, else nil.
func (f *flash) maskRows(u *flashUnit, r, k0 int) ([]float32, int) {
	if f.causal || f.mask.Absent() || f.mask.DType != tensor.Float32 {
		return nil, 0
	}
	at, pitch, stride := f.maskFrom(u, r, k0)
	if stride != 1 || pitch < 0 {
		return nil, 0
	}
	return ops.Elements[float32](f.mask)[at:], pitch
}

// hides reports whether a mask does something to scores of queries from r on with n keys from k0 on: not where all
// queries see the same keys, and these are all.
func (f *flash) hides(u *flashUnit, r, k0, n int) bool {
	if f.mask.Absent() || f.mask.DType != tensor.Bool {
		return !f.mask.Absent()
	}
	at, pitch, stride := f.maskFrom(u, r, k0)
	return pitch != 0 || stride != 1 || bytes.IndexByte(f.mask.Data[at:][:n], 0) >= 0
}

// maskFrom returns where the element of a mask for query r and key k0 is, and the elements to the next query and key.
func (f *flash) maskFrom(u *flashUnit, r, k0 int) (at, pitch, stride int) {
	l := f.mask.Layout
	rank := len(l.Shape)
	pitch, stride = l.Strides[rank-2], l.Strides[rank-1]
	return u.maskAt + (u.from+r)*pitch + k0*stride, pitch, stride
}

// hide makes the scores of query r with keys from k0 on −∞ that it does not see. It adds a mask of numbers, and returns what
// scores are to be scaled by after that.
func (f *flash) hide(u *flashUnit, r int, line []float32, k0 int) (scale float32) {
	if f.causal {
		seen := max(0, min(len(line), u.from+r+1-k0))
		for i := range line[seen:] {
			line[seen+i] = hidden[0]
		}
		line = line[:seen]
	}
	scale = f.scale
	mask, number := u.mask[:len(line)], !f.mask.Absent() && f.mask.DType != tensor.Bool
	at, _, stride := 0, 0, 0
	if !f.mask.Absent() {
		at, _, stride = f.maskFrom(u, r, k0)
	}
	switch {
	case number:
		ops.LoadSingle(f.set, mask, f.mask, at, stride)
		f.set.Map(simd.MapAddScaled, line, mask, line, nil, scale, 0, 0)
		scale = 1
	case !(scale > 0):
		f.set.Map(simd.MapAffine, line, line, nil, nil, 0, scale, 0)
		scale = 1
	}
	switch {
	case f.mask.DType != tensor.Bool:
	case stride == 1:
		seen := f.mask.Data[at:][:len(line)]
		i := bytes.IndexByte(seen, 0) // where padding begins, mostly
		for ; i >= 0 && i < len(seen); i++ {
			if seen[i] == 0 {
				line[i] = hidden[0]
			}
		}
	default:
		ops.LoadSingle(f.set, mask, f.mask, at, stride)
		f.set.Map(simd.MapWhere, line, mask, line, hidden, 0, 0, 0)
	}
	return scale
}

// hidden is the score of what a mask hides.
var hidden = []float32{float32(math.Inf(-1))}

// add adds n values from k0 on to the sums of the queries [r0, r1).
func (f *flash) add(u *flashUnit, r0, r1, k0, n int) {
	if f.valueWidth == 0 {
		return // there may be no memory to look at
	}
	if !u.few {
		columns, depth, mode := f.set.Columns, ops.RoundUp(u.block, unroll), simd.Add
		if k0 == 0 {
			mode = simd.Store
		}
		for j := 0; j < f.valueWidth; j += columns {
			f.set.Gemm(r1-r0, n, u.scores, flashPitch, u.packedValues[j*depth:][:columns*depth], u.sums[r0*f.pitch+j:], f.pitch,
				mode, nil)
		}
		return
	}
	values, pitch := u.packedValues, f.valueWidth
	if f.v.DType == tensor.Float32 {
		values, pitch = ops.Elements[float32](f.v)[u.values.offset+k0*u.values.step:], u.values.step
	}
	for r := r0; r < r1; r++ {
		f.set.Weighted(u.scores[(r-r0)*flashPitch:][:n], values, pitch, u.sums[r*f.pitch:][:f.valueWidth])
	}
}

// finish divides the sums and writes them.
func (f *flash) finish(u *flashUnit) {
	rows, at := u.to-u.from, u.batch*f.queries+u.from
	for r := range rows {
		total := u.totals[r]
		if !f.also.Absent() {
			logSum := 0.0
			if total != 0 {
				logSum = float64(u.tops[r]) + math.Log(float64(total))
			}
			ops.StoreFloat(f.also, at+r, logSum)
		}
		switch {
		case total != 0:
			u.totals[r] = 1 / total
		case f.unseenNaN:
			u.totals[r] = float32(math.NaN())
		}
	}
	if f.valueWidth == 0 {
		return
	}
	if f.out.DType == tensor.Float32 {
		to := ops.Elements[float32](f.out)[at*f.valueWidth:]
		f.set.ScaleRows(u.totals[:rows], f.valueWidth, to, f.valueWidth, u.sums, f.pitch)
		return
	}
	f.set.ScaleRows(u.totals[:rows], f.valueWidth, u.sums, f.pitch, u.sums, f.pitch)
	for r := range rows {
		ops.NarrowRow(f.set, f.out, (at+r)*f.valueWidth, u.sums[r*f.pitch:][:f.valueWidth])
	}
}
