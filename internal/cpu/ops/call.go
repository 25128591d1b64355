// Package ops has what kernels of ops are written with: operands as views of memory, calls, what a kernel tells of
// itself, the threads that share its work, and ways through strided memory.
//
// It knows operands. It does not know which ops there are, nor devices: families of ops have packages beside it, and
// package cpu puts them together.
//
//	var kernels = map[graph.Kind]ops.Kernel{"negate": {Run: func(c *ops.Call) error {
//		x, y := ops.Row[float32](c.In[0]), ops.Row[float32](c.Out[0])
//		c.Pool.For(len(y), ops.Grain, func(from, to int) {
//			for i := from; i < to; i++ {
//				y[i] = -x[i]
//			}
//		})
//		return nil
//	}}}
package ops

import (
	"context"
	"sync"
	"unsafe"

	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// A View is an operand in memory: the bytes of the whole value and the layout over them.
type View struct {
	Data   []byte
	DType  tensor.DType
	Layout tensor.Layout
	// Packed says that Data is the operand in the form that the kernel's Pack says.
	Packed bool
}

// Absent reports whether an optional operand was not given.
func (v View) Absent() bool { return v.DType == tensor.Invalid }

// Shape returns the view's dimensions.
func (v View) Shape() tensor.Shape { return v.Layout.Shape }

// Size returns the number of elements.
func (v View) Size() int {
	n, err := v.Layout.NumElements()
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return int(n)
}

// Contiguous reports whether the elements lie in order without gaps.
func (v View) Contiguous() bool { return v.Layout.IsContiguous() }

// Elements returns all of a value's elements as T, from the start of its memory: index with the view's layout. The
// memory need not be aligned for T.
func Elements[T any](v View) []T {
	var zero T
	n := len(v.Data) / int(unsafe.Sizeof(zero))
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(v.Data))), n)
}

// Row returns the elements of a contiguous view.
func Row[T any](v View) []T {
	n := v.Size()
	if n == 0 {
		return nil
	}
	return Elements[T](v)[v.Layout.Offset : v.Layout.Offset+n]
}

// A Call is an op to compute. Out views are contiguous and hold no defined bytes.
type Call struct {
	Ctx   context.Context
	Attrs graph.Attrs
	In    []View
	Out   []View
	// Work is the scratch memory that the kernel asked for.
	Work []byte
	// Pool is that of the call: Own, in a call of a device, which calls Meanwhile.
	Pool      *Pool
	Own       Pool
	Meanwhile func()
	// Lender has the operands that are lent while the op runs; nil is none.
	Lender device.Lender
	// Weights has the dimensions of weights that kernels view in others.
	Weights [2]WeightRoom
}

// A Kernel computes one kind of op.
type Kernel struct {
	// Name is what reports say.
	Name string
	// Work returns the scratch memory needed for given operands; nil is none.
	Work func(in, out []graph.Spec, a graph.Attrs) int64
	// Supports returns why given operands cannot be computed; nil takes all that the shape rule takes.
	Supports func(in, out []graph.Spec, a graph.Attrs) error
	// Packs returns which operands the kernel also takes packed; nil is none. Layouts are not known: Pack takes any view.
	Packs func(in, out []graph.Spec, a graph.Attrs) []graph.Pack
	// Pack writes the packed form of an operand to dst.
	Pack func(pool *Pool, a graph.Attrs, p graph.Pack, raw View, dst []byte) error
	Run  func(c *Call) error
	// WorkOn is Work for kernels whose scratch memory depends on how many threads there are, Cost what an op does of which
	// no registry knows, Label the name for reports where that depends on attributes.
	WorkOn func(threads int, in, out []graph.Spec, a graph.Attrs) int64
	Cost   func(in, out []graph.Spec, a graph.Attrs) graph.Cost
	Label  func(a graph.Attrs) string
	// Product is an op of which no registry knows as a product; nil is none.
	Product func(in, out []graph.Spec, a graph.Attrs) graph.Product
	// InPlace returns the operands over which the kernel may write its first result, as graph.Step says; nil is none.
	InPlace func(in, out []graph.Spec, a graph.Attrs) []int
	// Loops are those of an elementwise kind, for kernels that have it as a part; nil for others.
	Loops func(a graph.Attrs, d tensor.DType) Loops
}

// OverAny is the InPlace of kernels that compute each element from the elements at the same place.
func OverAny(in, _ []graph.Spec, _ graph.Attrs) []int {
	all := make([]int, len(in))
	for i := range all {
		all[i] = i
	}
	return all
}

// OverFirst is the InPlace of kernels that read each row, plane or element of the first operand for the last time
// before they write what takes its place.
func OverFirst([]graph.Spec, []graph.Spec, graph.Attrs) []int { return []int{0} }

// Take returns why given operands cannot be computed.
func (k Kernel) Take(in, out []graph.Spec, a graph.Attrs) error {
	if k.Supports == nil {
		return nil
	}
	return k.Supports(in, out, a)
}

// WorkBytes returns the scratch memory that given operands need.
func (k Kernel) WorkBytes(in, out []graph.Spec, a graph.Attrs) int64 {
	if k.Work == nil {
		return 0
	}
	return k.Work(in, out, a)
}

// ThreadsWorkBytes is WorkBytes on a number of threads.
func (k Kernel) ThreadsWorkBytes(threads int, in, out []graph.Spec, a graph.Attrs) int64 {
	if k.WorkOn != nil {
		return k.WorkOn(threads, in, out, a)
	}
	return k.WorkBytes(in, out, a)
}

// A WeightRoom is memory for the dimensions of a weight.
type WeightRoom [2][4]int

// Loops are the loops of a kind, by the type that it computes in; nil where it does not.
type Loops struct {
	F32 func(dst []float32, in [][]float32)
	F64 func(dst []float64, in [][]float64)
	I64 func(dst []int64, in [][]int64)
	U64 func(dst []uint64, in [][]uint64)
	// Check says before all blocks what is wrong with operands of integers; nil if nothing can be.
	Check func(in []View) error
}

// calls are calls that nobody uses.
var calls = sync.Pool{New: func() any { return new(Call) }}

// NewCall returns a call without operands; free ends its use.
func NewCall() *Call { return calls.Get().(*Call) }

func (c *Call) Free() {
	clear(c.In)
	clear(c.Out)
	*c = Call{In: c.In[:0], Out: c.Out[:0]}
	calls.Put(c)
}

// Operand returns an optional operand of a call.
func (c *Call) Operand(i int) View {
	if i >= len(c.In) {
		return View{}
	}
	return c.In[i]
}
