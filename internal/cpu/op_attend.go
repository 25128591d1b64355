package cpu

import (
	"encoding/binary"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu/axes"
	simd "github.com/optimem/optimem/internal/cpu/kernel"
	"github.com/optimem/optimem/internal/cpu/ops"
	"github.com/optimem/optimem/tensor"
)

// attendKernels are attention over caches that the op itself adds to.
var attendKernels = map[graph.Kind]ops.Kernel{
	"attend": {Run: runAttend, WorkOn: attendWork, Supports: attendSupports},
}

// attendSupports takes what is computed in single precision.
func attendSupports(in, _ []graph.Spec, _ graph.Attrs) error {
	for i, s := range []graph.Spec{in[0], in[3]} {
		if !ops.IsSingle(s.DType) && (i == 0 || s.DType != tensor.Int8) {
			return fmt.Errorf("it takes floats of 32 bits and halves, and caches of int8, not %v", s.DType)
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
	// tile is the most rows of a tile.
	tile int
}

// Rows of a sequence one behind the other are computed as a tile, so that a block of keys and values is brought once for all of
// them. Their scores should stay in a core's cache.
const (
	attendTile       = 16
	attendTileFloats = 1 << 17
)

func sizesOfAttend(q, values, blocks tensor.Shape, cache tensor.DType, a graph.Attrs) attendSizes {
	s := attendSizes{
		rows: q[0], heads: q[1], groups: values[1], width: q[2], valueWidth: graph.CacheElements(cache, values[2]),
		each: q[1] / values[1], blocks: blocks[1],
	}
	s.seen = s.blocks * graph.BlockRows
	for _, most := range [...]string{"window", "chunk"} {
		if n := a.Int(most); n > 0 {
			s.seen = min(s.seen, n)
		}
	}
	s.tile = min(max(attendTileFloats/max(s.each*s.seen, 1), 1), attendTile, max(s.rows, 1))
	return s
}

// partBytes is the scratch of one thread: queries, a block of keys or values, scores, and sums of values.
func (s *attendSizes) partBytes() int {
	floats := s.tile*s.each*(s.width+s.seen+s.valueWidth) + graph.BlockRows*max(s.width, s.valueWidth) + attendSums
	return 4 * floats
}

// attendSums is room for the sums of a call of Dot.
const attendSums = 4 * simd.DotRows

func attendWork(threads int, in, _ []graph.Spec, a graph.Attrs) int64 {
	s := sizesOfAttend(in[0].Shape, in[4].Shape, in[6].Shape, in[4].DType, a)
	return int64(min(s.rows*s.groups, threads, mostLanes)) * int64(s.partBytes())
}

// An attending is a call being computed: a task whose parts are lanes, which take units until none is left.
//
// A unit is the heads of a tile that read one head of keys. It is computed by one thread, position after position in the order
// of the sequence, cut where its blocks of positions begin. So a row's bits depend on what it is and on what the caches hold for
// it, and on nothing else: not on how rows make tiles either.
type attending struct {
	attendSizes
	c                                       *ops.Call
	set                                     *simd.Set
	q, k, v, keys, values, at, table, sinks ops.View
	bias, also                              ops.View
	scale, softcap                          float32
	window, chunk                           int
	// tiles are where tiles begin, and the end of all.
	tiles []int
	next  atomic.Int64
}

var attendings = sync.Pool{New: func() any { return new(attending) }}

// runAttend writes keys and values to their places, then has every row attend.
func runAttend(c *ops.Call) error {
	a := attendings.Get().(*attending)
	a.attendSizes = sizesOfAttend(c.In[0].Shape(), c.In[4].Shape(), c.In[6].Shape(), c.In[4].DType, c.Attrs)
	a.c, a.set = c, c.Pool.Set
	a.q, a.k, a.v, a.keys, a.values, a.at, a.table = c.In[0], c.In[1], c.In[2], c.In[3], c.In[4], c.In[5], c.In[6]
	a.sinks, a.bias, a.also = c.Operand(7), c.Operand(8), c.Operand(9)
	a.scale, a.softcap = float32(c.Attrs.Float("scale")), float32(c.Attrs.Float("softcap"))
	a.window, a.chunk = c.Attrs.Int("window"), c.Attrs.Int("chunk")
	err := a.check()
	if err == nil && a.rows*a.groups > 0 {
		if !a.k.Absent() {
			c.Pool.Do(a.groups, max(1, ops.Grain/max(1, a.rows*(a.width+a.valueWidth))), (*attendWriter)(a))
		}
		a.next.Store(0)
		lanes := max(min(len(c.Work)/a.partBytes(), mostLanes), 1)
		a.cut(min(a.tile, max(1, a.rows*a.groups/(2*lanes))))
		c.Pool.Do(min(lanes, a.units()), 1, a)
		err = c.Ctx.Err()
	}
	a.c, a.set = nil, nil
	a.q, a.k, a.v, a.keys, a.values, a.at, a.table, a.sinks = ops.View{}, ops.View{}, ops.View{}, ops.View{}, ops.View{}, ops.View{}, ops.View{}, ops.View{}
	a.bias, a.also = ops.View{}, ops.View{}
	attendings.Put(a)
	return err
}

// check returns an error where a row's position has no place in its table, or a block that it looks at is not in the caches.
func (a *attending) check() error {
	places := a.keys.Shape()[0] / graph.BlockRows
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
		for i := range a.others() {
			if x := a.other(r, i); x < 0 || x >= int64(places) {
				return &graph.IndexError{Index: x, Size: int64(places), Operand: 9}
			}
		}
	}
	return nil
}

// cut cuts the rows into tiles of so many at most: of the positions of one sequence one behind the other, in the same places.
func (a *attending) cut(most int) {
	a.tiles = append(a.tiles[:0], 0)
	for r := 1; r < a.rows; r++ {
		if first := a.tiles[len(a.tiles)-1]; r-first == most || !a.follows(r) {
			a.tiles = append(a.tiles, r)
		}
	}
	a.tiles = append(a.tiles, a.rows)
}

// follows reports whether a row is right behind the row before it, in the same sequence as far as both look.
func (a *attending) follows(row int) bool {
	before, p := a.position(row-1), a.position(row)
	if before < 0 || p != before+1 {
		return false
	}
	for b := a.first(int(p)) / graph.BlockRows; b <= int(before)/graph.BlockRows; b++ {
		if a.block(row, b) != a.block(row-1, b) {
			return false
		}
	}
	return true
}

// units is how many units there are.
func (a *attending) units() int { return (len(a.tiles) - 1) * a.groups }

// position returns where in its sequence a row is.
func (a *attending) position(row int) int64 {
	return ops.Elements[int64](a.at)[a.at.Layout.Offset+row*a.at.Layout.Strides[0]]
}

// block returns which block of the caches is block b of a row's sequence.
func (a *attending) block(row, b int) int64 {
	l := &a.table.Layout
	return ops.Elements[int64](a.table)[l.Offset+row*l.Strides[0]+b*l.Strides[1]]
}

// others is how many further blocks a row is written to.
func (a *attending) others() int {
	if a.also.Absent() {
		return 0
	}
	return a.also.Shape()[1]
}

// other returns which block of the caches further block i of a row is.
func (a *attending) other(row, i int) int64 {
	l := &a.also.Layout
	return ops.Elements[int64](a.also)[l.Offset+row*l.Strides[0]+i*l.Strides[1]]
}

// first returns the first position that one looks at.
func (a *attending) first(position int) int {
	first := 0
	if a.window > 0 {
		first = max(0, position-a.window+1)
	}
	if a.chunk > 0 {
		first = max(first, position/a.chunk*a.chunk)
	}
	return first
}

// attendWriter is a call as the task of writing heads of keys and values to their places. A head's rows are written in order.
type attendWriter attending

// Run implements Task.
func (w *attendWriter) Run(from, to int) {
	a := (*attending)(w)
	buffer := ops.NewBlockBuffer()
	room := ops.FloatsIn(buffer)
	for g := from; g < to; g++ {
		for r := range a.rows {
			p := a.position(r)
			if p < 0 {
				continue
			}
			place := int(a.block(r, int(p)/graph.BlockRows))*graph.BlockRows + int(p)%graph.BlockRows
			a.write(a.keys, place, a.k, r, g, a.width, room)
			a.write(a.values, place, a.v, r, g, a.valueWidth, room)
			for i := range a.others() {
				if to := int(a.other(r, i))*graph.BlockRows + int(p)%graph.BlockRows; to != place {
					a.copy(a.keys, to, place, g)
					a.copy(a.values, to, place, g)
				}
			}
		}
	}
	ops.BlockBuffers.Put(buffer)
}

// write puts a row of a head to its place in a cache.
func (a *attending) write(cache ops.View, place int, x ops.View, row, group, width int, room []float32) {
	l := &x.Layout
	from, stride := l.Offset+row*l.Strides[0]+group*l.Strides[1], l.Strides[2]
	to := (place*a.groups + group) * graph.CacheWidth(cache.DType, width)
	if cache.DType == tensor.Int8 {
		a.writeRounded(cache.Data[to:][:graph.CacheWidth(cache.DType, width)], x, from, stride, room)
		return
	}
	for k := 0; k < width; k += len(room) {
		part := room[:min(len(room), width-k)]
		ops.LoadRow(a.set, part, x, from+k*stride, stride)
		ops.StoreRow(a.set, cache, to+k, part)
	}
}

// copy puts what a cache has of a head at one place to another.
func (a *attending) copy(cache ops.View, to, from, group int) {
	bytes := cache.Shape()[2] * cache.DType.Size()
	copy(cache.Data[(to*a.groups+group)*bytes:][:bytes], cache.Data[(from*a.groups+group)*bytes:][:bytes])
}

// writeRounded puts a row into a cache of int8.
func (a *attending) writeRounded(to []byte, x ops.View, from, stride int, room []float32) {
	codes := to[:len(to)-4]
	scale := float32(0)
	for k := 0; k < len(codes); k += len(room) {
		part := room[:min(len(room), len(codes)-k)]
		ops.LoadRow(a.set, part, x, from+k*stride, stride)
		for _, value := range part {
			scale = max(scale, float32(math.Abs(float64(value)))) // NaN if one is
		}
	}
	if scale /= 127; math.IsInf(float64(scale), 0) {
		scale = float32(math.NaN())
	}
	binary.LittleEndian.PutUint32(to[len(codes):], math.Float32bits(scale))
	if !(scale > 0) {
		clear(codes)
		return
	}
	for k := 0; k < len(codes); k += len(room) {
		part := room[:min(len(room), len(codes)-k)]
		ops.LoadRow(a.set, part, x, from+k*stride, stride)
		for i, value := range part {
			step := math.RoundToEven(float64(value / scale))
			codes[k+i] = byte(int8(min(max(step, -127), 127)))
		}
	}
}

// loadRounded reads a row of a cache of int8: as many elements as whole vectors have at once, and the others one by
// one. Either way a code is a float32 exactly, and the product with the scale is rounded once.
func (u *attendUnit) loadRounded(dst []float32, row []byte) {
	scale, whole := math.Float32frombits(binary.LittleEndian.Uint32(row[len(dst):])), 0
	if u.set != nil {
		if n := len(dst) / u.set.Columns; n > 0 {
			whole = n * u.set.Columns
			u.set.Widen(simd.Int8, n, row[:whole], u.set.Columns, dst[:whole])
			// A zero keeps the sign that a product has.
			u.set.Map(simd.MapAffine, dst[:whole], dst[:whole], nil, nil, 0, scale, float32(math.Copysign(0, -1)))
		}
	}
	for i := whole; i < len(dst); i++ {
		dst[i] = float32(int8(row[i])) * scale
	}
}

// Run computes units until none is left.
func (a *attending) Run(lane, _ int) {
	bytes := a.partBytes()
	room := ops.Elements[float32](ops.View{Data: a.c.Work[lane*bytes:][:bytes]})
	take := func(n int) []float32 {
		piece := room[:n:n]
		room = room[n:]
		return piece
	}
	u := attendUnit{
		attending: a, queries: take(a.tile * a.each * a.width), scores: take(a.tile * a.each * a.seen),
		outputs: take(a.tile * a.each * a.valueWidth), loaded: take(graph.BlockRows * max(a.width, a.valueWidth)),
		sums: take(attendSums),
	}
	for n := int(a.next.Add(1)) - 1; n < a.units() && a.c.Ctx.Err() == nil; n = int(a.next.Add(1)) - 1 {
		// The last rows of a prompt see the most, so they begin.
		tile := len(a.tiles) - 2 - n/a.groups
		u.compute(a.tiles[tile], a.tiles[tile+1], n%a.groups)
	}
}

// An attendUnit computes units with scratch of its own.
type attendUnit struct {
	*attending
	queries, scores, outputs, loaded, sums []float32
	// The rows are [row, row+count), at the positions from position0 on.
	row, count, position0, group int
}

// compute computes the heads of the rows [from, to), a tile, that read a head of keys.
func (u *attendUnit) compute(from, to, group int) {
	u.row, u.count, u.group, u.position0 = from, to-from, group, int(u.position(from))
	clear(u.outputs)
	if u.position0 >= 0 {
		u.attend()
	}
	for i := range u.count {
		at := ((from+i)*u.heads + group*u.each) * u.valueWidth
		ops.StoreRow(u.set, u.c.Out[0], u.c.Out[0].Layout.Offset+at, u.outputs[i*u.each*u.valueWidth:][:u.each*u.valueWidth])
	}
}

// attend has all rows look at what they see.
func (u *attendUnit) attend() {
	l := &u.q.Layout
	for q := range u.count * u.each {
		at := l.Offset + (u.row+q/u.each)*l.Strides[0] + (u.group*u.each+q%u.each)*l.Strides[1]
		ops.LoadRow(u.set, u.queries[q*u.width:][:u.width], u.q, at, l.Strides[2])
	}
	u.lookAt(false)
	for q := range u.count * u.each {
		p := u.position0 + q/u.each
		u.weigh(u.scores[q*u.seen:][:p+1-u.first(p)], q%u.each)
	}
	u.lookAt(true)
}

// lookAt computes with the keys that rows see, or adds the values there, block by block.
func (u *attendUnit) lookAt(values bool) {
	cache, width := u.keys, u.width
	if values {
		if cache, width = u.values, u.valueWidth; width == 0 {
			return
		}
	}
	end := u.position0 + u.count
	for p := u.first(u.position0); p < end; {
		next := min(p-p%graph.BlockRows+graph.BlockRows, end)
		line := graph.CacheWidth(cache.DType, width)
		at, pitch := u.placeOf(p)*line, u.groups*line
		if next < end {
			u.fetch(cache, u.placeOf(next)*line, pitch, line)
		}
		rows := u.loaded
		if cache.DType == tensor.Float32 && u.count*u.each < 4 {
			rows = ops.Elements[float32](cache)[at:]
		} else { // for many queries they had better lie one behind the other
			for i := range next - p {
				if to := u.loaded[i*width:][:width]; cache.DType == tensor.Int8 {
					u.loadRounded(to, cache.Data[at+i*pitch:][:line])
				} else {
					ops.LoadRow(u.set, to, cache, at+i*pitch, 1)
				}
			}
			pitch = width
		}
		u.lookAtBlock(p, next, rows, pitch, values)
		p = next
	}
}

// placeOf returns which head of which place of the caches a position's is. A tile is within two blocks, of which its first
// row looks at one and its last at the other, as at all before that.
func (u *attendUnit) placeOf(p int) int {
	row := u.row
	if p/graph.BlockRows > u.position0/graph.BlockRows {
		row += u.count - 1
	}
	return (int(u.block(row, p/graph.BlockRows))*graph.BlockRows+p%graph.BlockRows)*u.groups + u.group
}

// fetch fetches a block's rows of a cache, from element at on, which lie far apart.
func (u *attendUnit) fetch(cache ops.View, at, pitch, width int) {
	size := cache.DType.Size()
	if u.set != nil && width > 0 {
		simd.FetchRows(graph.BlockRows, uintptr(unsafe.Pointer(&cache.Data[at*size])), pitch*size, width*size)
	}
}

// lookAtBlock has every row look at the positions [p, next), or at as many of them as it sees.
func (u *attendUnit) lookAtBlock(p, next int, rows []float32, pitch int, values bool) {
	last := u.position0 + u.count - 1
	if u.first(last) <= p && next <= u.position0+1 { // all rows see all
		if values {
			u.addAll(p, next-p, rows, pitch)
		} else {
			u.score(0, u.count, p, next-p, rows, pitch)
		}
		return
	}
	for i := range u.count {
		from, to := max(p, u.first(u.position0+i)), min(next, u.position0+i+1)
		switch {
		case from >= to:
		case values:
			u.add(i*u.each, (i+1)*u.each, from, to-from, rows[(from-p)*pitch:], pitch)
		default:
			u.score(i, i+1, from, to-from, rows[(from-p)*pitch:], pitch)
		}
	}
}

// score computes the products of the queries of the rows [i0, i1) with keys from a position on.
func (u *attendUnit) score(i0, i1, position, count int, keys []float32, pitch int) {
	whole := 0
	if u.set != nil {
		whole = u.width / u.set.Lanes * u.set.Lanes
	}
	for q := i0 * u.each; q < i1*u.each; q += simd.DotRows {
		rows := min(simd.DotRows, i1*u.each-q)
		queries := u.queries[q*u.width:]
		var lines [simd.DotRows]int // where scores of the rows begin
		for r := range rows {
			lines[r] = u.scoreAt(q+r, position)
		}
		j := 0
		if n := count &^ 3; u.set != nil && rows == simd.DotRows && whole == u.width {
			a, b := simd.Lines{X: queries, Step: u.width}, simd.Lines{X: keys, Step: pitch}
			if u.set.DotLines(n, whole, a, b, u.scores, lines) {
				j = n
			}
		}
		for j < count {
			columns := 1
			if j+4 <= count {
				columns = 4
			}
			sums := u.sums[:rows*columns]
			if whole > 0 {
				u.set.Dot(rows, columns, whole, queries, u.width, keys[j*pitch:], pitch, sums)
			} else {
				clear(sums)
			}
			for r := range rows {
				line, from := u.scores[lines[r]+j:][:columns], sums[r*columns:][:columns]
				if columns == 4 {
					*(*[4]float32)(line) = [4]float32(from)
				} else {
					line[0] = from[0]
				}
				if whole == u.width {
					continue
				}
				query := queries[r*u.width:][:u.width]
				for i := range line {
					key := keys[(j+i)*pitch:][:u.width]
					for d := whole; d < len(query); d++ {
						line[i] += float32(query[d] * key[d])
					}
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
	if !u.bias.Absent() {
		u.lean(line, u.group*u.each+head)
	}
	top := u.largest(line)
	sink := math.Inf(-1)
	if !u.sinks.Absent() {
		l, x := &u.sinks.Layout, u.sums[:1]
		ops.LoadRow(u.set, x, u.sinks, l.Offset+(u.group*u.each+head)*l.Strides[0], 1)
		sink = float64(x[0])
		top = max(top, x[0])
	}
	sum := 0.0
	if u.set != nil {
		sum = u.set.ExpSum(line, line, 1, top)
	} else {
		for i, x := range line {
			e := axes.ExpFast(float64(x - top))
			line[i] = float32(e)
			sum += e
		}
	}
	if !u.sinks.Absent() {
		sum += math.Exp(sink - float64(top))
	}
	u.multiply(line, float32(1/sum))
}

// lean adds the bias of a head to the scores of the positions up to that of the row, which is the last.
func (u *attendUnit) lean(line []float32, head int) {
	l, all := &u.bias.Layout, ops.Elements[float32](u.bias)
	for i := range line {
		distance := min(len(line)-1-i, l.Shape[1]-1)
		line[i] += all[l.Offset+head*l.Strides[0]+distance*l.Strides[1]]
	}
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

// scoreAt returns where the score of a query at a position is.
func (u *attendUnit) scoreAt(q, position int) int {
	return q*u.seen + position - u.first(u.position0+q/u.each)
}

// addAll adds values from a position on, which all rows see, to the sums of all queries.
func (u *attendUnit) addAll(position, count int, values []float32, pitch int) {
	q, all := 0, u.count*u.each
	for ; u.set != nil && q+simd.DotRows <= all; q += simd.DotRows {
		var lines [simd.DotRows]int
		for r := range lines {
			lines[r] = u.scoreAt(q+r, position)
		}
		from, sums := simd.Lines{X: values, Step: pitch}, simd.Lines{X: u.outputs[q*u.valueWidth:], Step: u.valueWidth}
		if !u.set.WeightedLines(count, u.valueWidth, u.scores, lines, from, sums) {
			break
		}
	}
	u.add(q, all, position, count, values, pitch)
}

// add adds values from a position on to the sums of the queries [q, end), each by its weight.
func (u *attendUnit) add(q, end, position, count int, values []float32, pitch int) {
	for ; q < end; q++ {
		weights, sums := u.scores[u.scoreAt(q, position):][:count], u.outputs[q*u.valueWidth:][:u.valueWidth]
		if u.set != nil {
			u.set.Weighted(weights, values, pitch, sums)
			continue
		}
		for k, w := range weights {
			for j, x := range values[k*pitch:][:len(sums)] {
				sums[j] += float32(w * x)
			}
		}
	}
}
