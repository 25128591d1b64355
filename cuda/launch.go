package cuda

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"

	"github.com/optimem/optimem/cuda/internal/driver"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// An operand is a view of a value on the device.
type operand struct {
	span
	dtype  tensor.DType
	layout tensor.Layout
	// packed says that the memory holds the operand in the form that the step's pack says, from its begin on; the layout is that
	// of what it was made of.
	packed bool
}

// A span is a run of the device's memory.
type span struct {
	address uint64
	bytes   int64
}

// slice returns a part of a span.
func (s span) slice(offset, bytes int64) span {
	if offset < 0 || bytes < 0 || offset > s.bytes-bytes {
		panic(fmt.Sprintf("BUG: %d bytes at %d of scratch memory of %d", bytes, offset, s.bytes))
	}
	return span{s.address + uint64(offset), bytes}
}

// absent reports whether an optional operand was not given.
func (o operand) absent() bool { return o.dtype == tensor.Invalid }

// shape returns the view's dimensions.
func (o operand) shape() tensor.Shape { return o.layout.Shape }

// size returns the number of elements.
func (o operand) size() int64 {
	n, err := o.layout.NumElements()
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return n
}

// A launch is an op with its operands in place. Results are contiguous and hold no defined bytes; results and operands
// do not share any.
type launch struct {
	kind  graph.Kind
	attrs graph.Attrs
	in    []operand
	out   []operand
	// work is the scratch memory that the kernel asked for. It begins at a multiple of 256 bytes.
	work span
	// blas says that a product is to be cuBLASLt's, if that can.
	blas bool
	// hopper says that a linear or a convolution is one of wgmma, if the GPU's driver takes such kernels.
	hopper bool

	s *stream
}

// A call is a kernel's launch in the making: its parameters, packed as the compiler lays them out.
type call struct {
	s    *stream
	name string
	p    driver.Parameters
	err  error
}

// call begins the launch of a kernel.
func (l *launch) call(name string) *call {
	c := &l.s.args
	c.s, c.name, c.err = l.s, name, nil
	c.p.Packed, c.p.Offsets, c.p.Spans = c.p.Packed[:0], c.p.Offsets[:0], c.p.Spans[:0]
	return c
}

// align begins a parameter.
func (c *call) align(to int) {
	for len(c.p.Packed)%to != 0 {
		c.p.Packed = append(c.p.Packed, 0)
	}
	c.p.Offsets = append(c.p.Offsets, int32(len(c.p.Packed)))
}

// i32 passes an int.
func (c *call) i32(x int32) *call {
	c.align(4)
	c.p.Packed = binary.LittleEndian.AppendUint32(c.p.Packed, uint32(x))
	return c
}

// i64 passes an om_i64.
func (c *call) i64(x int64) *call {
	c.align(8)
	c.p.Packed = binary.LittleEndian.AppendUint64(c.p.Packed, uint64(x))
	return c
}

// f32 passes a float.
func (c *call) f32(x float32) *call { return c.i32(int32(math.Float32bits(x))) }

// f64 passes a double.
func (c *call) f64(x float64) *call { return c.i64(int64(math.Float64bits(x))) }

// read passes the address of an operand's first element for a parameter const T*, null for an absent operand. The offset
// of its layout is in it.
func (c *call) read(o operand) *call { return c.operand(o) }

// write passes the address of a result's first element for a parameter T*.
func (c *call) write(o operand) *call { return c.operand(o) }

func (c *call) operand(o operand) *call {
	if o.absent() {
		return c.i64(0)
	}
	c.p.Spans = append(c.p.Spans, o.address, uint64(o.bytes))
	return c.i64(int64(o.address) + int64(o.layout.Offset)*int64(o.dtype.Size()))
}

// scratch passes the address of a part of the scratch memory.
func (c *call) scratch(s span) *call {
	c.p.Spans = append(c.p.Spans, s.address, uint64(s.bytes))
	return c.i64(int64(s.address))
}

// layout passes an om_layout. Its dimensions are joined where they lie in order, so the kernel must not rely on which
// dimension is which; layoutAs keeps them.
func (c *call) layout(l tensor.Layout) *call { return c.layoutAs(l.Joined()) }

// layoutAs passes an om_layout with the dimensions as they are.
func (c *call) layoutAs(l tensor.Layout) *call {
	if len(l.Shape) > maxDims {
		c.err = fmt.Errorf("%w: a view of %d dimensions", graph.ErrUnsupported, len(l.Shape))
		return c
	}
	elements, far := int64(1), c.s.d.far
	for _, n := range l.Shape {
		elements = min(elements*min(int64(n), far), far)
	}
	c.align(8)
	put := func(x uint64) { c.p.Packed = binary.LittleEndian.AppendUint64(c.p.Packed, x) }
	put(uint64(len(l.Shape)) | uint64(flag(elements < far))<<32)
	for _, list := range [][]int{l.Shape, l.Strides} {
		for d := range maxDims {
			var x int
			if d < len(list) {
				x = list[d]
			}
			put(uint64(x))
		}
	}
	var factors [maxDims]uint32
	var shifts [maxDims]byte
	for d, n := range l.Shape {
		if elements < far && n > 0 && int64(n) < far {
			f, s := quotients(uint32(n))
			factors[d], shifts[d] = f, byte(s)
		}
	}
	for _, f := range factors {
		c.p.Packed = binary.LittleEndian.AppendUint32(c.p.Packed, f)
	}
	c.p.Packed = append(c.p.Packed, shifts[:]...)
	return c
}

// leastFar is the first number that quotients are not computed of by multiplying: om_divisor of om.h.
const leastFar = 1 << 31

// quotients returns what the quotients by a number from 1 to 2³¹−1 are computed with: i / by is
// ((i·factor >> 32) + i) >> shift for all i below 2³¹.
func quotients(by uint32) (factor, shift uint32) {
	shift = uint32(bits.Len32(by - 1))
	return uint32((uint64(1)<<shift-uint64(by))<<32/uint64(by) + 1), shift
}

// noDivisor is the shift of an om_divisor that is divided by as it is.
const noDivisor = 255

// divisorInts returns an om_divisor as two om_i64, by which numbers up to most are divided.
func (s *stream) divisorInts(by, most int64) []int {
	if by < 1 || by >= s.d.far || most >= s.d.far {
		return []int{int(by), noDivisor << 32}
	}
	factor, shift := quotients(uint32(by))
	return []int{int(by), int(uint64(factor) | uint64(shift)<<32)}
}

// divisor passes an om_divisor, by which numbers up to most are divided.
func (c *call) divisor(by, most int64) *call { return c.ints(2, c.s.divisorInts(by, most)...) }

// ints passes a struct of n om_i64, of which those after the list are zero.
func (c *call) ints(n int, list ...int) *call {
	c.align(8)
	for i := range n {
		var x int64
		if i < len(list) {
			x = int64(list[i])
		}
		c.p.Packed = binary.LittleEndian.AppendUint64(c.p.Packed, uint64(x))
	}
	return c
}

// status passes the two parameters of om_fail, int *status and int where.
func (c *call) status() *call {
	at, where, err := c.s.noting()
	if err != nil && c.err == nil {
		c.err = err
	}
	return c.scratch(at).i32(where)
}

// dims are the sizes of a grid or of a block of threads: x, y, z.
type dims [3]int64

// blockThreads is the size of blocks of one dimension.
const blockThreads = 256

// mostBlocks bounds grids of one dimension; kernels go round (OM_EACH).
const mostBlocks = 1 << 20

// over launches the kernel with one thread for each of n elements, walked by OM_EACH; nothing where there is none.
func (c *call) over(n int64) error {
	if n == 0 {
		return c.err
	}
	return c.grid(dims{min(ceilDiv(n, blockThreads), mostBlocks), 1, 1}, dims{min(n, blockThreads), 1, 1}, 0)
}

// grid launches the kernel with blocks of threads, each with that much dynamic shared memory (OM_DYNAMIC), at most 48 KiB.
// A grid has at most 2³¹−1 blocks along x and 65535 along y and z, a block at most 1024 threads, 64 along z.
func (c *call) grid(blocks, threads dims, sharedBytes int64) error {
	if c.err != nil {
		return c.err
	}
	return c.s.start(c, blocks, threads, sharedBytes)
}

// contiguousBytes is the scratch memory for the elements of an operand, one behind the other, a multiple of 256.
func contiguousBytes(s graph.Spec) int64 {
	n, err := s.Shape.NumElements()
	if err != nil || s.DType == tensor.Invalid {
		return 0
	}
	return ceilDiv(n*int64(s.DType.Size()), alignBytes) * alignBytes
}

// alignBytes is what parts of scratch memory are aligned to.
const alignBytes = 256

func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }
