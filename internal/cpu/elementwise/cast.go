package elementwise

import (
	"fmt"
	"math"

	"github.com/optimem/optimem/graph"
	simd "github.com/optimem/optimem/internal/cpu/kernel"
	"github.com/optimem/optimem/internal/cpu/ops"
	"github.com/optimem/optimem/internal/cpu/tasks"
	"github.com/optimem/optimem/tensor"
)

// castKernels convert between dtypes.
var castKernels = map[graph.Kind]ops.Kernel{"cast": {Supports: supportsCast, Run: runCast, InPlace: ops.OverFirst}}

func supportsCast(in, out []graph.Spec, _ graph.Attrs) error {
	if in[0].DType == out[0].DType && in[0].DType.Size() > 0 {
		return nil
	}
	if !castFrom(in[0].DType) || !castTo(out[0].DType) {
		return fmt.Errorf("no conversion from %v to %v on the CPU", in[0].DType, out[0].DType)
	}
	return nil
}

// castFrom reports whether elements of a dtype can be read as numbers.
func castFrom(d tensor.DType) bool {
	switch d {
	case tensor.Float8E4M3FN, tensor.Float8E5M2, tensor.Float8E4M3FNUZ, tensor.Float8E5M2FNUZ, tensor.Float8E8M0FNU:
		return true
	}
	return castTo(d)
}

// castTo reports whether numbers can be stored in a dtype.
func castTo(d tensor.DType) bool {
	return loadsFloat32[d] != nil || loadsFloat64[d] != nil || loadsInt64[d] != nil || loadsUint64[d] != nil
}

// runCast: out[i] = in[0][i] converted: torch.Tensor.to. Floats are rounded to nearest, ties to even, between each
// other and truncated to integers; what does not fit an integer becomes what x86 makes of it, as in PyTorch.
func runCast(c *ops.Call) error {
	in, out := c.In[0].DType, c.Out[0].DType
	switch {
	case in == out:
		ops.Gather(c.Pool, c.Out[0].Data, c.In[0])
	case ops.IsSingle(in) && ops.IsSingle(out) && castBlocks(c):
	case loadsFloat32[in] != nil:
		castAs(c, loadsFloat32[in], in == tensor.Float32, storesOfFloat32[out])
	case loadsFloat64[in] != nil:
		castAs(c, loadsFloat64[in], true, storesOfFloat64[out])
	case loadsInt64[in] != nil:
		castAs(c, loadsInt64[in], in == tensor.Int64, storesOfInt64[out])
	case loadsUint64[in] != nil:
		castAs(c, loadsUint64[in], true, storesOfUint64[out])
	default: // float8
		castAs(c, loadFloat8, false, storesOfFloat32[out])
	}
	return nil
}

// castBlocks converts between float32 and halves with the processor's kernels; it reports whether it could. The larger of
// an element and itself is the element.
func castBlocks(c *ops.Call) bool {
	if c.Pool.Set == nil {
		return false
	}
	b := newBlocks(c)
	if b == nil {
		return false
	}
	b.steps[0], b.count = blockStep{op: VectorOp{M: simd.MapMaximum}, operands: 2, at: -1}, 1
	b.run(c)
	return true
}

// castAs reads elements as T and stores them with store.
func castAs[T any](
	c *ops.Call, load func(dst []T, v ops.View, first, stride int), direct bool,
	store func(v ops.View, at int, src []T),
) {
	tasks.Do(
		c.Pool, c.Out[0].Size(), ops.Grain,
		casting[T]{in: c.In[0], out: c.Out[0], load: load, direct: direct, store: store},
	)
}

// casting is the task of castAs: a part is some elements.
type casting[T any] struct {
	in, out ops.View
	load    func(dst []T, v ops.View, first, stride int)
	direct  bool
	store   func(v ops.View, at int, src []T)
}

// Run implements Task.
func (t *casting[T]) Run(from, to int) {
	r := newReader(t.in, t.load, t.direct, from)
	for at := from; at < to; at += ops.BlockElements {
		t.store(t.out, t.out.Layout.Offset+at, r.next(min(ops.BlockElements, to-at)))
	}
	r.release()
}

func loadFloat8(dst []float32, v ops.View, first, stride int) {
	src := ops.Elements[uint8](v)
	for i := range dst {
		dst[i] = tensor.Float8ToFloat32(v.DType, src[first+i*stride])
	}
}

func storeBool[T ops.Computed](v ops.View, at int, src []T) {
	dst := ops.Elements[bool](v)[at:][:len(src)]
	for i, x := range src {
		dst[i] = x != 0
	}
}

// A storeTable has how numbers computed as T are stored in each dtype. It is made once: each use of a generic function as a
// value within another would be new memory.
type storeTable[T any] [math.MaxUint8 + 1]func(v ops.View, at int, src []T)

func storeTableOf[T any](store func(d tensor.DType) func(v ops.View, at int, src []T)) *storeTable[T] {
	t := new(storeTable[T])
	for d := range t {
		t[d] = store(tensor.DType(d))
	}
	return t
}

var (
	storesOfFloat32 = storeTableOf(storeOfFloat[float32])
	storesOfFloat64 = storeTableOf(storeOfFloat[float64])
	storesOfInt64   = storeTableOf(storeOfInteger[int64])
	storesOfUint64  = storeTableOf(storeOfInteger[uint64])
)

// storeOfInteger returns how integers are stored in a dtype.
func storeOfInteger[T int64 | uint64](d tensor.DType) func(v ops.View, at int, src []T) {
	switch d {
	case tensor.Float32:
		return storeConverted[float32, T]
	case tensor.Float64:
		return storeConverted[float64, T]
	case tensor.Float16:
		return ops.StoreFloat16[T]
	case tensor.BFloat16:
		return ops.StoreBFloat16[T]
	case tensor.Bool:
		return storeBool[T]
	}
	switch d.Size() {
	case 1:
		return storeConverted[uint8, T]
	case 2:
		return storeConverted[uint16, T]
	case 4:
		return storeConverted[uint32, T]
	}
	return storeConverted[uint64, T]
}

// storeOfFloat returns how floats are stored in a dtype.
func storeOfFloat[T floatNumber](d tensor.DType) func(v ops.View, at int, src []T) {
	switch d {
	case tensor.Float32:
		return storeConverted[float32, T]
	case tensor.Float64:
		return storeConverted[float64, T]
	case tensor.Float16:
		return ops.StoreFloat16[T]
	case tensor.BFloat16:
		return ops.StoreBFloat16[T]
	case tensor.Bool:
		return storeBool[T]
	case tensor.Int8, tensor.Int16, tensor.Int32:
		return storeTruncated[T](d.Size(), truncate32)
	case tensor.UInt64:
		return storeTruncated[T](8, truncateUnsigned)
	}
	return storeTruncated[T](d.Size(), truncate64)
}

// storeTruncated stores floats as integers of the given size.
func storeTruncated[T floatNumber](size int, truncate func(float64) int64) func(v ops.View, at int, src []T) {
	switch size {
	case 1:
		return truncatedAs[uint8, T](truncate)
	case 2:
		return truncatedAs[uint16, T](truncate)
	case 4:
		return truncatedAs[uint32, T](truncate)
	}
	return truncatedAs[uint64, T](truncate)
}

func truncatedAs[I uint8 | uint16 | uint32 | uint64, T floatNumber](
	truncate func(float64) int64,
) func(v ops.View, at int, src []T) {
	return func(v ops.View, at int, src []T) {
		dst := ops.Elements[I](v)[at:][:len(src)]
		for i, x := range src {
			dst[i] = I(truncate(float64(x)))
		}
	}
}

// truncate64 converts as x86's CVTTSD2SI with 64 bits: what does not fit is the smallest integer.
func truncate64(x float64) int64 {
	if x >= -0x1p63 && x < 0x1p63 {
		return int64(x)
	}
	return math.MinInt64
}

// truncate32 converts as x86's CVTTSD2SI with 32 bits; smaller integers are its low bits.
func truncate32(x float64) int64 {
	if x > -0x1p31-1 && x < 0x1p31 {
		return int64(x)
	}
	return math.MinInt32
}

// truncateUnsigned converts to the bits of a uint64 as compilers do for x86.
func truncateUnsigned(x float64) int64 {
	if x >= 0x1p63 {
		return truncate64(x-0x1p63) ^ math.MinInt64
	}
	return truncate64(x)
}
