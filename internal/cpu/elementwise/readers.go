package elementwise

import (
	"fmt"
	"math"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu/ops"
	"github.com/optimem/optimem/internal/cpu/tasks"
	"github.com/optimem/optimem/tensor"
)

// Elementwise kernels are loops over short slices. For each block of the result, a reader per operand hands out the
// operand's elements as one slice of the type that is computed in: the memory itself where the elements lie in order
// and need no conversion, else a buffer that stays in the cache. A writer does the same for the result. So a loop is
// written once, for plain slices, whatever the strides; and half precision is float32 with conversions around it, which
// is also how PyTorch rounds.

// A reader hands out the elements of a view in row-major order.
type reader[T any] struct {
	view            ops.View
	direct          bool // the memory holds T
	load            func(dst []T, v ops.View, first, stride int)
	shape, strides  []int
	index           []int // of the current line, in all dimensions but the last
	first           int   // element of the current line
	skip            int   // elements of the current line that were read
	buffer          ops.BlockBuffer
	scalar          bool // all elements are one
	length, stride  int  // of lines
	block, elements []T
	// room is memory for shape, strides and index.
	room [3][ops.MostDims]int
}

// newReader returns a reader that begins with element from; release ends its use.
func newReader[T any](v ops.View, load func(dst []T, v ops.View, first, stride int), direct bool, from int) *reader[T] {
	r := tasks.Take[reader[T]]()
	*r = reader[T]{view: v, direct: direct, load: load}
	joined := v.Layout.JoinedIn(r.room[0][:], r.room[1][:])
	r.shape, r.strides = joined.Shape, joined.Strides
	inner := len(r.shape) - 1
	r.length, r.stride = r.shape[inner], r.strides[inner]
	r.first = v.Layout.Offset
	if r.length == 0 {
		return r
	}
	if inner == 0 && r.stride == 0 {
		r.scalar = true
		r.buffer = ops.NewBlockBuffer()
		r.block = ops.BlockOf[T](r.buffer)
		load(r.block, v, r.first, 0)
		return r
	}
	if direct {
		r.elements = ops.Elements[T](v)
	}
	r.index = ops.IntsIn(r.room[2][:], inner)
	r.skip = from % r.length
	rest := from / r.length
	for d := inner - 1; d >= 0; d-- {
		r.index[d] = rest % r.shape[d]
		rest /= r.shape[d]
		r.first += r.index[d] * r.strides[d]
	}
	return r
}

// next returns the next n elements, at most a block. They are valid until the next call.
func (r *reader[T]) next(n int) []T {
	if r.scalar {
		return r.block[:n]
	}
	if r.direct && r.stride == 1 && r.skip+n <= r.length {
		s := r.elements[r.first+r.skip:][:n]
		r.advance(n)
		return s
	}
	if r.buffer == nil {
		r.buffer = ops.NewBlockBuffer()
		r.block = ops.BlockOf[T](r.buffer)
	}
	for at := 0; at < n; {
		m := min(n-at, r.length-r.skip)
		r.load(r.block[at:at+m], r.view, r.first+r.skip*r.stride, r.stride)
		r.advance(m)
		at += m
	}
	return r.block[:n]
}

// advance moves on by n elements of the current line.
func (r *reader[T]) advance(n int) {
	r.skip += n
	if r.skip < r.length {
		return
	}
	r.skip = 0
	for d := len(r.index) - 1; d >= 0; d-- {
		r.index[d]++
		r.first += r.strides[d]
		if r.index[d] < r.shape[d] {
			return
		}
		r.first -= r.index[d] * r.strides[d]
		r.index[d] = 0
	}
}

func (r *reader[T]) release() {
	if r.buffer != nil {
		ops.BlockBuffers.Put(r.buffer)
	}
	*r = reader[T]{}
	tasks.Give(r)
}

// A writer takes the elements of a contiguous result.
type writer[T any] struct {
	view   ops.View
	direct bool
	store  func(v ops.View, at int, src []T)
	buffer ops.BlockBuffer
}

// block returns where n elements from position at on are to be written; done must follow.
func (w *writer[T]) block(at, n int) []T {
	if w.direct {
		return ops.Elements[T](w.view)[w.view.Layout.Offset+at:][:n]
	}
	if w.buffer == nil {
		w.buffer = ops.NewBlockBuffer()
	}
	return ops.BlockOf[T](w.buffer)[:n]
}

func (w *writer[T]) done(at int, block []T) {
	if !w.direct {
		w.store(w.view, w.view.Layout.Offset+at, block)
	}
}

func (w *writer[T]) release() {
	if w.buffer != nil {
		ops.BlockBuffers.Put(w.buffer)
	}
}

func loadConverted[T, S realNumber](dst []T, v ops.View, first, stride int) {
	src := ops.Elements[S](v)
	for i := range dst {
		dst[i] = T(src[first+i*stride])
	}
}

func storeConverted[T, S realNumber](v ops.View, at int, src []S) {
	dst := ops.Elements[T](v)[at:][:len(src)]
	for i, x := range src {
		dst[i] = T(x)
	}
}

type realNumber interface {
	~float32 | ~float64 | ~int8 | ~int16 | ~int32 | ~int64 | ~uint8 | ~uint16 | ~uint32 | ~uint64
}

// The loads and stores of each type that is computed in, by the dtype in memory.
var (
	loadsFloat32 = map[tensor.DType]func([]float32, ops.View, int, int){
		tensor.Float32: ops.LoadStrided[float32], tensor.Float16: ops.LoadFloat16, tensor.BFloat16: ops.LoadBFloat16,
	}
	loadsFloat64 = map[tensor.DType]func([]float64, ops.View, int, int){tensor.Float64: ops.LoadStrided[float64]}
	loadsUint64  = map[tensor.DType]func([]uint64, ops.View, int, int){tensor.UInt64: ops.LoadStrided[uint64]}
	loadsInt64   = map[tensor.DType]func([]int64, ops.View, int, int){
		tensor.Int64: ops.LoadStrided[int64], tensor.Int32: loadConverted[int64, int32],
		tensor.Int16: loadConverted[int64, int16], tensor.Int8: loadConverted[int64, int8],
		tensor.UInt32: loadConverted[int64, uint32], tensor.UInt16: loadConverted[int64, uint16],
		tensor.UInt8: loadConverted[int64, uint8], tensor.Bool: loadConverted[int64, uint8],
	}
	storesFloat32 = map[tensor.DType]func(ops.View, int, []float32){
		tensor.Float32: storeConverted[float32, float32], tensor.Float16: ops.StoreFloat16[float32],
		tensor.BFloat16: ops.StoreBFloat16[float32],
	}
	storesFloat64 = map[tensor.DType]func(ops.View, int, []float64){tensor.Float64: storeConverted[float64, float64]}
	storesUint64  = map[tensor.DType]func(ops.View, int, []uint64){tensor.UInt64: storeConverted[uint64, uint64]}
	storesInt64   = map[tensor.DType]func(ops.View, int, []int64){
		tensor.Int64: storeConverted[int64, int64], tensor.Int32: storeConverted[int32, int64],
		tensor.Int16: storeConverted[int16, int64], tensor.Int8: storeConverted[int8, int64],
		tensor.UInt32: storeConverted[uint32, int64], tensor.UInt16: storeConverted[uint16, int64],
		tensor.UInt8: storeConverted[uint8, int64], tensor.Bool: storeConverted[uint8, int64],
	}
)

// loaderOf returns how elements of a dtype are read as T, and whether they are T already; nil for a dtype that is not
// computed as T.
func loaderOf[T ops.Computed](d tensor.DType) (load func(dst []T, v ops.View, first, stride int), direct bool) {
	var f any
	var own tensor.DType
	switch any(*new(T)).(type) {
	case float32:
		f, own = loadsFloat32[d], tensor.Float32
	case float64:
		f, own = loadsFloat64[d], tensor.Float64
	case uint64:
		f, own = loadsUint64[d], tensor.UInt64
	case int64:
		f, own = loadsInt64[d], tensor.Int64
	}
	return f.(func([]T, ops.View, int, int)), d == own
}

// storerOf returns how results computed as T are stored in a dtype.
func storerOf[T ops.Computed](d tensor.DType) (store func(v ops.View, at int, src []T), direct bool) {
	var f any
	var own tensor.DType
	switch any(*new(T)).(type) {
	case float32:
		f, own = storesFloat32[d], tensor.Float32
	case float64:
		f, own = storesFloat64[d], tensor.Float64
	case uint64:
		f, own = storesUint64[d], tensor.UInt64
	case int64:
		f, own = storesInt64[d], tensor.Int64
	}
	return f.(func(ops.View, int, []T)), d == own
}

// each runs a loop over all blocks of an op: body gets a block of the result and the same block of every operand.
func each[T ops.Computed](c *ops.Call, body func(dst []T, in [][]T)) {
	store, direct := storerOf[T](c.Out[0].DType)
	eachBlock(c, writer[T]{view: c.Out[0], direct: direct, store: store}, body)
}

// eachTest is each for loops that give bools.
func eachTest[T ops.Computed](c *ops.Call, body func(dst []bool, in [][]T)) {
	eachBlock(c, writer[bool]{view: c.Out[0], direct: true}, body)
}

func eachBlock[T ops.Computed, R any](c *ops.Call, w writer[R], body func(dst []R, in [][]T)) {
	tasks.Do(c.Pool, c.Out[0].Size(), ops.Grain, blockwise[T, R]{in: c.In, writer: w, body: body})
}

// blockwise is the task of eachBlock: a part is some blocks.
type blockwise[T ops.Computed, R any] struct {
	in     []ops.View
	writer writer[R]
	body   func(dst []R, in [][]T)
}

// Run implements Task.
func (t *blockwise[T, R]) Run(from, to int) {
	w := t.writer
	s := tasks.Take[blockOperands[T]]()
	for _, v := range t.in {
		load, direct := loaderOf[T](v.DType)
		s.readers, s.in = append(s.readers, newReader(v, load, direct, from)), append(s.in, nil)
	}
	for at := from; at < to; at += ops.BlockElements {
		n := min(ops.BlockElements, to-at)
		for i, r := range s.readers {
			s.in[i] = r.next(n)
		}
		dst := w.block(at, n)
		t.body(dst, s.in)
		w.done(at, dst)
	}
	for _, r := range s.readers {
		r.release()
	}
	w.release()
	clear(s.readers)
	clear(s.in)
	s.readers, s.in = s.readers[:0], s.in[:0]
	tasks.Give(s)
}

// blockOperands are the operands of a blockwise part, and a block of each.
type blockOperands[T any] struct {
	readers []*reader[T]
	in      [][]T
}

// elementwise returns the kernel of an op whose operands and result have one dtype. made gets that dtype, and the
// attributes, of which it reads those with the given names. What it gives is kept.
// Tables call it, and without its copies they compile faster.
//
//go:noinline
func elementwise(made func(a graph.Attrs, d tensor.DType) ops.Loops, attrs ...string) ops.Kernel {
	kept := ops.NewMemo[loopsKey, ops.Loops]()
	return elementwiseOf(func(a graph.Attrs, d tensor.DType) ops.Loops {
		return kept.Get(loopsKeyOf(a, d, attrs), func() ops.Loops { return made(a, d) })
	})
}

// A loopsKey is what the loops of a kind depend on: the dtype, and attributes that are numbers or a text.
type loopsKey struct {
	dtype   tensor.DType
	given   [3]bool
	numbers [3]uint64
	text    string
}

func loopsKeyOf(a graph.Attrs, d tensor.DType, names []string) loopsKey {
	k := loopsKey{dtype: d}
	for i, name := range names {
		switch v := a[name].(type) {
		case float64:
			k.given[i], k.numbers[i] = true, math.Float64bits(v)
		case string:
			k.given[i], k.text = true, v
		}
	}
	return k
}

// elementwiseOf is elementwise for loops that take nothing to be made.
// Tables call it, and without its copies they compile faster.
//
//go:noinline
func elementwiseOf(make func(a graph.Attrs, d tensor.DType) ops.Loops) ops.Kernel {
	return ops.Kernel{
		Loops: make,
		Supports: func(_, out []graph.Spec, a graph.Attrs) error {
			l := make(a, out[0].DType)
			switch out[0].DType {
			case tensor.Float32, tensor.Float16, tensor.BFloat16:
				return supported(l.F32 != nil, out[0].DType)
			case tensor.Float64:
				return supported(l.F64 != nil, out[0].DType)
			case tensor.UInt64:
				return supported(l.U64 != nil, out[0].DType)
			case tensor.Int64, tensor.Int32, tensor.Int16, tensor.Int8, tensor.UInt32, tensor.UInt16, tensor.UInt8,
				tensor.Bool:
				return supported(l.I64 != nil, out[0].DType)
			}
			return supported(false, out[0].DType)
		},
		Run: func(c *ops.Call) error {
			l := make(c.Attrs, c.Out[0].DType)
			if l.Check != nil && !ops.IsReal(c.Out[0].DType) {
				if err := l.Check(c.In); err != nil {
					return err
				}
			}
			switch c.Out[0].DType {
			case tensor.Float32, tensor.Float16, tensor.BFloat16:
				each(c, l.F32)
			case tensor.Float64:
				each(c, l.F64)
			case tensor.UInt64:
				each(c, l.U64)
			default:
				each(c, l.I64)
			}
			return nil
		},
	}
}

func supported(ok bool, d tensor.DType) error {
	if !ok {
		return fmt.Errorf("not for %v on the CPU", d)
	}
	return nil
}

// tests are the loops of a kind that gives bools.
type tests struct {
	f32 func(dst []bool, in [][]float32)
	f64 func(dst []bool, in [][]float64)
	i64 func(dst []bool, in [][]int64)
	u64 func(dst []bool, in [][]uint64)
}

// elementwiseTest returns the kernel of an op that gives bools.
func elementwiseTest(t tests) ops.Kernel {
	return ops.Kernel{Run: func(c *ops.Call) error {
		switch c.In[0].DType {
		case tensor.Float32, tensor.Float16, tensor.BFloat16:
			eachTest(c, t.f32)
		case tensor.Float64:
			eachTest(c, t.f64)
		case tensor.UInt64:
			eachTest(c, t.u64)
		default:
			eachTest(c, t.i64)
		}
		return nil
	}}
}
