package cpu

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"github.com/optimem/optimem/graph"
	simd "github.com/optimem/optimem/internal/cpu/kernel"
	"github.com/optimem/optimem/tensor"
)

// attendKernels are attention over caches that the op itself adds to.
var attendKernels = map[graph.Kind]kernel{
	"attend": {run: runAttend, workOn: attendWork, supports: attendSupports},
}

// attendSupports takes what is computed in single precision.
func attendSupports(in, _ []graph.Spec, _ graph.Attrs) error {
	for _, s := range []graph.Spec{in[0], in[3]} {
		if !isSingle(s.DType) {
			return fmt.Errorf("it takes floats of 32 bits and halves, not %v", s.DType)
		}
	}
	return nil
}

// attendSizes are those of a call.
type attendSizes struct {
	rows, heads, groups, width, valueWidth int
	// each is how many heads of queries read a head of keys, blocks how many blocks a row's table has, seen the most
	// positions that a row looks at.
	each, blocks, seen int
}

func sizesOfAttend(q, k, v, blocks tensor.Shape, a graph.Attrs) attendSizes {
	s := attendSizes{
		rows: q[0], heads: q[1], groups: k[1], width: q[2], valueWidth: v[2], each: q[1] / k[1], blocks: blocks[1],
	}
	s.seen = s.blocks * graph.BlockRows
	if w := a.Int("window"); w > 0 {
		s.seen = min(s.seen, w)
	}
	return s
}

// units is how many pieces there are that are computed by themselves: the heads of a row that read one head of keys.
func (s *attendSizes) units() int { return s.rows * s.groups }

// partBytes is the scratch of one thread: queries, a block of keys or values, scores, and sums of values.
func (s *attendSizes) partBytes() int {
	floats := s.each*(s.width+s.seen+s.valueWidth) + graph.BlockRows*max(s.width, s.valueWidth) + attendSums
	return 4 * floats
}

// attendSums is room for the sums of a call of Dot.
const attendSums = 4 * simd.DotRows

func attendWork(threads int, in, _ []graph.Spec, a graph.Attrs) int64 {
	s := sizesOfAttend(in[0].Shape, in[1].Shape, in[2].Shape, in[6].Shape, a)
	return int64(min(s.units(), threads, mostLanes)) * int64(s.partBytes())
}

// An attending is a call being computed: a task whose parts are lanes, which take units until none is left.
//
// A unit is computed by one thread, position after position in the order of the sequence, cut where its blocks of positions
// begin. So its bits depend on the row and on what the caches hold for it, and on nothing else.
type attending struct {
	attendSizes
	c                                       *call
	set                                     *simd.Set
	q, k, v, keys, values, at, table, sinks view
	scale, softcap                          float32
	window                                  int
	next                                    atomic.Int64
}

var attendings = sync.Pool{New: func() any { return new(attending) }}

// runAttend writes keys and values to their places, then has every row attend.
func runAttend(c *call) error {
	a := attendings.Get().(*attending)
	a.attendSizes = sizesOfAttend(c.in[0].shape(), c.in[1].shape(), c.in[2].shape(), c.in[6].shape(), c.attrs)
	a.c, a.set = c, c.pool.set
	a.q, a.k, a.v, a.keys, a.values, a.at, a.table = c.in[0], c.in[1], c.in[2], c.in[3], c.in[4], c.in[5], c.in[6]
	a.sinks = c.operand(7)
	a.scale, a.softcap = float32(c.attrs.Float("scale")), float32(c.attrs.Float("softcap"))
	a.window = c.attrs.Int("window")
	err := a.check()
	if err == nil && a.units() > 0 {
		c.pool.Do(a.groups, max(1, grain/max(1, a.rows*(a.width+a.valueWidth))), (*attendWriter)(a))
		a.next.Store(0)
		lanes := 1
		if n := a.partBytes(); n > 0 {
			lanes = min(a.units(), len(c.work)/n, mostLanes)
		}
		c.pool.Do(lanes, 1, a)
		err = c.ctx.Err()
	}
	a.c, a.set = nil, nil
	a.q, a.k, a.v, a.keys, a.values, a.at, a.table, a.sinks = view{}, view{}, view{}, view{}, view{}, view{}, view{}, view{}
	attendings.Put(a)
	return err
}

// check returns an error where a row's position has no place in its table, or a block that it looks at is not in the caches.
func (a *attending) check() error {
	places := a.keys.shape()[0] / graph.BlockRows
	for r := range a.rows {
		p := a.position(r)
		if p < 0 {
			continue
		}
		if p >= int64(a.blocks)*graph.BlockRows {
			return &graph.IndexError{Index: p, Size: int64(a.blocks) * graph.BlockRows, Operand: 5}
		}
		for b := a.first(int(p)) / graph.BlockRows; b <= int(p)/graph.BlockRows; b++ {
			if x := a.block(r, b); x < 0 || x >= int64(places) {
				return &graph.IndexError{Index: x, Size: int64(places), Operand: 6}
			}
		}
	}
	return nil
}

// position returns where in its sequence a row is.
func (a *attending) position(row int) int64 {
	return elements[int64](a.at)[a.at.layout.Offset+row*a.at.layout.Strides[0]]
}

// block returns which block of the caches is block b of a row's sequence.
func (a *attending) block(row, b int) int64 {
	l := &a.table.layout
	return elements[int64](a.table)[l.Offset+row*l.Strides[0]+b*l.Strides[1]]
}

// first returns the first position that one looks at.
func (a *attending) first(position int) int {
	if a.window > 0 {
		return max(0, position-a.window+1)
	}
	return 0
}

// attendWriter is a call as the task of writing heads of keys and values to their places. A head's rows are written in order.
type attendWriter attending

// Run implements Task.
func (w *attendWriter) Run(from, to int) {
	a := (*attending)(w)
	buffer := newBlockBuffer()
	room := floatsIn(buffer)
	for g := from; g < to; g++ {
		for r := range a.rows {
			p := a.position(r)
			if p < 0 {
				continue
			}
			place := int(a.block(r, int(p)/graph.BlockRows))*graph.BlockRows + int(p)%graph.BlockRows
			a.write(a.keys, place, a.k, r, g, a.width, room)
			a.write(a.values, place, a.v, r, g, a.valueWidth, room)
		}
	}
	blockBuffers.Put(buffer)
}

// write puts a row of a head to its place in a cache.
func (a *attending) write(cache view, place int, x view, row, group, width int, room []float32) {
	l := &x.layout
	from, stride := l.Offset+row*l.Strides[0]+group*l.Strides[1], l.Strides[2]
	to := (place*a.groups + group) * width
	for k := 0; k < width; k += len(room) {
		part := room[:min(len(room), width-k)]
		a.load(part, x, from+k*stride, stride)
		a.store(cache, to+k, part)
	}
}

// load reads elements of a float dtype.
func (a *attending) load(dst []float32, v view, first, stride int) {
	if a.set != nil {
		loadSingle(a.set, dst, v, first, stride)
	} else {
		loadReal(dst, v, first, stride)
	}
}

// store writes elements of a float dtype one behind the other.
func (a *attending) store(v view, at int, src []float32) {
	switch {
	case len(src) == 0:
	case !isHalf(v.dtype):
		copy(elements[float32](v)[at:], src)
	case a.set != nil:
		narrowRow(a.set, v, at, src)
	default:
		storeReal(v, at, src)
	}
}

// Run computes units until none is left.
func (a *attending) Run(lane, _ int) {
	bytes := a.partBytes()
	room := elements[float32](view{data: a.c.work[lane*bytes:][:bytes]})
	take := func(n int) []float32 {
		piece := room[:n:n]
		room = room[n:]
		return piece
	}
	u := attendUnit{
		attending: a, queries: take(a.each * a.width), scores: take(a.each * a.seen), outputs: take(a.each * a.valueWidth),
		loaded: take(graph.BlockRows * max(a.width, a.valueWidth)), sums: take(attendSums),
	}
	for n := int(a.next.Add(1)) - 1; n < a.units() && a.c.ctx.Err() == nil; n = int(a.next.Add(1)) - 1 {
		// The last rows of a prompt see the most, so they begin.
		u.compute(a.rows-1-n/a.groups, n%a.groups)
	}
}

// An attendUnit computes units with scratch of its own.
type attendUnit struct {
	*attending
	queries, scores, outputs, loaded, sums []float32
	row, group                             int
}

// compute computes the heads of a row that read a head of keys.
func (u *attendUnit) compute(row, group int) {
	u.row, u.group = row, group
	clear(u.outputs)
	if p := int(u.position(row)); p >= 0 {
		u.attend(u.first(p), p+1)
	}
	at := (row*u.heads + group*u.each) * u.valueWidth
	u.store(u.c.out[0], u.c.out[0].layout.Offset+at, u.outputs)
}

// attend looks at the positions [first, end).
func (u *attendUnit) attend(first, end int) {
	l := &u.q.layout
	for h := range u.each {
		at := l.Offset + u.row*l.Strides[0] + (u.group*u.each+h)*l.Strides[1]
		u.load(u.queries[h*u.width:][:u.width], u.q, at, l.Strides[2])
	}
	u.lookAt(first, end, false)
	n := end - first
	for h := range u.each {
		u.weigh(u.scores[h*u.seen:][:n], h)
	}
	u.lookAt(first, end, true)
}

// lookAt computes with the keys at the positions [first, end), or adds the values there, block by block.
func (u *attendUnit) lookAt(first, end int, values bool) {
	cache, width := u.keys, u.width
	if values {
		if cache, width = u.values, u.valueWidth; width == 0 {
			return
		}
	}
	for p := first; p < end; {
		next := min(p-p%graph.BlockRows+graph.BlockRows, end)
		place := int(u.block(u.row, p/graph.BlockRows))*graph.BlockRows + p%graph.BlockRows
		at, pitch := (place*u.groups+u.group)*width, u.groups*width
		rows := u.loaded
		if cache.dtype == tensor.Float32 {
			rows = elements[float32](cache)[at:]
		} else {
			for i := range next - p {
				u.load(u.loaded[i*width:][:width], cache, at+i*pitch, 1)
			}
			pitch = width
		}
		if values {
			u.add(p-first, next-p, rows, pitch)
		} else {
			u.score(p-first, next-p, rows, pitch)
		}
		p = next
	}
}

// score computes the products of all queries with some keys.
func (u *attendUnit) score(at, count int, keys []float32, pitch int) {
	whole := 0
	if u.set != nil {
		whole = u.width / u.set.Lanes * u.set.Lanes
	}
	for h := 0; h < u.each; h += simd.DotRows {
		rows := min(simd.DotRows, u.each-h)
		queries := u.queries[h*u.width:]
		for j := 0; j < count; {
			columns := 1
			if j+4 <= count {
				columns = 4
			}
			sums := u.sums[:rows*columns]
			clear(sums)
			if whole > 0 {
				u.set.Dot(rows, columns, whole, queries, u.width, keys[j*pitch:], pitch, sums)
			}
			for r := range rows {
				for i := range columns {
					sum := sums[r*columns+i]
					query, key := queries[r*u.width:][:u.width], keys[(j+i)*pitch:][:u.width]
					for d := whole; d < len(query); d++ {
						sum += float32(query[d] * key[d])
					}
					u.scores[(h+r)*u.seen+at+j+i] = sum
				}
			}
			j += columns
		}
	}
}

// weigh makes the products of a head's query with keys what the values at their positions weigh.
func (u *attendUnit) weigh(line []float32, head int) {
	scale := u.scale
	if u.softcap != 0 {
		u.multiply(line, scale/u.softcap)
		u.tanh(line)
		scale = u.softcap
	}
	u.multiply(line, scale)
	top := u.largest(line)
	sink := math.Inf(-1)
	if !u.sinks.absent() {
		l, x := &u.sinks.layout, u.sums[:1]
		u.load(x, u.sinks, l.Offset+(u.group*u.each+head)*l.Strides[0], 1)
		sink = float64(x[0])
		top = max(top, x[0])
	}
	sum := 0.0
	if u.set != nil {
		sum = u.set.ExpSum(line, line, 1, top)
	} else {
		for i, x := range line {
			e := expFast(float64(x - top))
			line[i] = float32(e)
			sum += e
		}
	}
	if !u.sinks.absent() {
		sum += math.Exp(sink - float64(top))
	}
	u.multiply(line, float32(1/sum))
}

// multiply multiplies scores by a number.
func (u *attendUnit) multiply(line []float32, by float32) {
	if u.set != nil {
		u.set.Map(simd.MapAffine, line, line, nil, nil, 0, by, 0)
		return
	}
	for i, x := range line {
		line[i] = x * by
	}
}

// tanh makes scores their hyperbolic tangents.
func (u *attendUnit) tanh(line []float32) {
	if u.set != nil {
		u.set.Map(simd.MapTanh, line, line, nil, nil, 0, 0, 0)
		return
	}
	for i, x := range line {
		line[i] = float32(math.Tanh(float64(x)))
	}
}

// largest returns the largest score, NaN if one is.
func (u *attendUnit) largest(line []float32) float32 {
	if u.set != nil {
		return u.set.Max(line)
	}
	top := float32(math.Inf(-1))
	for _, x := range line {
		top = max(top, x)
	}
	return top
}

// add adds some values to the sums of all heads, each by its weight.
func (u *attendUnit) add(at, count int, values []float32, pitch int) {
	for h := range u.each {
		weights, sums := u.scores[h*u.seen+at:][:count], u.outputs[h*u.valueWidth:][:u.valueWidth]
		if u.set != nil {
			u.set.Weighted(weights, values, pitch, sums)
			continue
		}
		for i, w := range weights {
			for j, x := range values[i*pitch:][:len(sums)] {
				sums[j] += float32(w * x)
			}
		}
	}
}
