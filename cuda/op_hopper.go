package cuda

import (
	"errors"
	"slices"

	"github.com/optimem/optimem/cuda/internal/driver"
	"github.com/optimem/optimem/cuda/kernels"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/graph/rewrite"
	"github.com/optimem/optimem/tensor"
)

// Linears of half floats on GPUs of 9.0, by wgmma: kernels/hopper.h. Plans decide which ones, by sizes and by how operands lie.

// hopperKernel is what reports call them.
const hopperKernel = "linear_wgmma"

// hopperBlocks are those of kernels/hopper.h. All sum up in the same order, by the same instruction.
var hopperBlocks = []blocking{
	{"_128", 128, hopperColumns, 384, 1},
	{"_64", 64, hopperColumns, 256, 0.6},
}

// Shared returns the compute capability for which graphs are lowered that GPUs of several compute: the lowest, or one whose kernels all of
// them have, so that each computes the same.
func Shared(capabilities ...int) int {
	lowest := slices.Min(capabilities)
	if lowest == kernels.HopperCapability && slices.Max(capabilities) > lowest {
		return lowest - 1
	}
	return lowest
}

// The constants of kernels/hopper.h: the columns of a block, and the terms, stages and bytes beside them in shared memory.
const (
	hopperColumns = 256
	hopperTerms   = 64
	hopperStages  = 4
	hopperBeside  = 1024 + hopperStages*2*8
	// hopperProcessors is how many multiprocessors an H100 has.
	hopperProcessors = 132
)

// hopperSharedBytes is the dynamic shared memory of kernels by what their names end in.
func hopperSharedBytes(rows int64) int64 {
	return hopperStages*(rows+hopperColumns)*hopperTerms*2 + hopperBeside
}

// leastHopperRows and leastHopperColumns are from how many rows and columns on they compute: less leaves most of a block idle.
// leastHopperAlone is from how many columns on where a row's bits are not to depend on how many rows there are, so that one row has
// work for half of such a GPU. They are changed in tests.
var (
	leastHopperRows, leastHopperColumns int64 = 64, 128
	leastHopperAlone                    int64 = 4096
)

// mostHopper is how many columns and terms there are at most: places of boxes have 31 bits.
const mostHopper = 1 << 30

// lowersToHopper reports whether a linear of a graph is one of wgmma.
func lowersToHopper(g *graph.Graph, op *graph.Op) bool {
	in, out := g.Specs(op, nil, nil)
	if !byHopper(in, op.Attrs) || len(in) > 4 {
		return false
	}
	x, w := op.In[0].Layout, op.In[1].Layout
	last := len(x.Shape) - 1
	if n, err := out[0].Shape.NumElements(); err != nil || n == 0 {
		return false
	}
	_, even := pitchOf(x.Leading(1), int64(x.Shape[last]), in[0].DType.Size())
	_, evenWeight := pitchOf(w.Leading(1), int64(w.Shape[1]), in[1].DType.Size())
	return hopperLies(operand{dtype: in[0].DType, layout: x}, x.Strides[last], x.Leading(1)) &&
		hopperLies(operand{dtype: in[1].DType, layout: w}, w.Strides[1], w.Leading(1)) &&
		evenWeight && (even || op.Attrs.Bool(graph.RowsAlone))
}

// byHopper reports whether a linear is one of wgmma where its operands lie in sixteens. What it follows from where rows are alone is not
// how many there are.
func byHopper(in []graph.Spec, a graph.Attrs) bool {
	if graph.IsEncoded(a) || !isHalf(in[0].DType) || narrowWeight(in) || rounds(a) {
		return false
	}
	_, m, n, k := productSizes("linear", in)
	if max(n, k) > mostHopper {
		return false
	}
	whole := int64(rewrite.WholeColumns(a, int(n)))
	if a.Bool(graph.RowsAlone) {
		return whole >= leastHopperAlone && k >= hopperTerms
	}
	return m >= leastHopperRows && whole >= leastHopperColumns && k >= hopperTerms
}

// divideHopper divides such a linear of m rows, n columns and k terms. Where rows are alone the terms are cut so that one row has work
// for most of an H100, whose multiprocessors have room for one block each.
func divideHopper(m, n, k int64, a graph.Attrs) division {
	var d division
	if a.Bool(graph.RowsAlone) {
		d = division{blocking: hopperBlocks[0], part: k, parts: 1}
		if last := hopperBlocks[len(hopperBlocks)-1]; m <= last.rows {
			d.blocking = last
		}
		blocks := ceilDiv(int64(rewrite.WholeColumns(a, int(n))), hopperColumns)
		d.cut(k, min(hopperProcessors/blocks, k/leastPart, fewParts))
	} else {
		d = divideColumns(hopperBlocks, 1, m, n, k, a)
	}
	if d.parts > 1 {
		d.part = ceilDiv(d.part, hopperTerms) * hopperTerms
		d.parts = ceilDiv(k, d.part)
	}
	return d.with(d.blocking, 1, m, n)
}

// hopperWork is the scratch memory of such a linear.
func hopperWork(in []graph.Spec, a graph.Attrs) int64 {
	_, m, n, k := productSizes("linear", in)
	if m*n == 0 || !byHopper(in, a) {
		return 0
	}
	return divideHopper(m, n, k, a).partsBytes(m * n)
}

// hopperLies reports whether a factor lies as the GPU's unit that copies parts of tensors takes it, but for how many dimensions its
// lines have: from multiples of sixteen bytes on, however many lines there are.
func hopperLies(o operand, step int, lines tensor.Layout) bool {
	lies := step == 1 && o.first()%16 == 0
	for _, s := range lines.Strides {
		lies = lies && s*o.dtype.Size()%16 == 0
	}
	return lies
}

// pitchOf returns how many bytes lines of k terms lie from each other, and false where that is not one number, or lines overlap.
func pitchOf(lines tensor.Layout, k int64, size int) (int64, bool) {
	switch j := lines.Joined(); len(j.Shape) {
	case 0:
		return ceilDiv(k*int64(size), 16) * 16, true
	case 1:
		if j.Shape[0] == 1 {
			return ceilDiv(k*int64(size), 16) * 16, true
		}
		return int64(j.Strides[0] * size), int64(j.Strides[0]) >= k
	}
	return 0, false
}

// lowered is the compute capability for which graphs are lowered.
func (d *Device) lowered() int {
	if d.unwanted {
		return min(d.info.Capability, kernels.HopperCapability-1)
	}
	return d.info.Capability
}

// hopper reports whether the stream's GPU has a kernel of wgmma. One whose driver does not take it has none of them from then on.
func (s *stream) hopper(name string) (bool, error) {
	d := s.d
	if d.info.Capability != kernels.HopperCapability || !d.lib.DescribesTensors() || d.noHopper.Load() {
		return false, nil
	}
	if s.dry != nil {
		return true, nil
	}
	_, err := d.function(name)
	for _, c := range []driver.Code{driver.InvalidPTX, driver.UnsupportedPTX, driver.NoBinary, driver.NoCompiler} {
		if errors.Is(err, c) {
			d.noHopper.Store(true)
			return false, nil
		}
	}
	return err == nil, err
}

// hopperProduct computes a linear by wgmma, and reports false where another kernel is to.
func (l *launch) hopperProduct(p product) (done bool, err error) {
	if !l.hopper || p.left.first()%16 != 0 || p.right.first()%16 != 0 { // plans begin values at multiples of 256
		return false, nil
	}
	d := divideHopper(p.m, p.n, p.k, l.attrs)
	name := "om_hopper_" + suffix(p.left.dtype)
	if has, err := l.s.hopper(name + d.suffix); !has {
		return false, err
	}
	size := p.left.dtype.Size()
	leftPitch, even := pitchOf(p.rows, p.k, size)
	rightPitch, _ := pitchOf(p.right.layout.Leading(1), p.k, size)
	if !even {
		return true, l.hopperByRow(p)
	}
	out := l.out[0]
	c := l.call(name + d.suffix).write(out)
	c.scratch(l.work.slice(0, d.partsBytes(out.size())))
	c.read(p.left).i64(leftPitch / int64(size)).read(p.right).i64(rightPitch / int64(size))
	c.productEnding(l, p).i64(p.m).i64(p.n).i64(p.k).i64(d.part).i32(int32(flag(p.n%4 == 0 && out.address%16 == 0)))
	c.tensorMap(p.left, p.k, p.m, leftPitch, d.rows).tensorMap(p.right, p.k, p.n, rightPitch, d.columns)
	if err := c.grid(dims{d.blocks, 1, 1}, dims{d.threads, 1, 1}, hopperSharedBytes(d.rows)); err != nil ||
		d.parts < 2 {
		return true, err
	}
	c = l.call("om_tensor_sum_"+suffix(out.dtype)).write(out).scratch(l.work.slice(0,
		d.partsBytes(out.size()))).productEnding(l, p)
	return true, c.i64(p.n).i64(out.size()).i32(int32(d.parts)).over(out.size())
}

// hopperByRow computes rows that do not lie evenly one at a time.
func (l *launch) hopperByRow(p product) error {
	one := *l
	for r := range p.m {
		one.in, one.out = slices.Clone(l.in), slices.Clone(l.out)
		one.in[0].layout, one.out[0].layout = rowOf(l.in[0].layout, r), rowOf(l.out[0].layout, r)
		if added := l.optional(3); !added.absent() {
			one.in[3].layout = rowOf(added.layout, r)
		}
		if _, err := one.hopperProduct(linearProduct(one.in, one.out[0])); err != nil {
			return err
		}
	}
	return nil
}

// tensorTypes are those of half floats in maps.
var tensorTypes = map[tensor.DType]driver.TensorType{
	tensor.Float16: driver.TensorFloat16, tensor.BFloat16: driver.TensorBFloat16,
}

// tensorMap passes what describes a factor to the unit that copies parts of tensors, as boxes of hopperTerms terms of some lines.
func (c *call) tensorMap(o operand, k, lines, pitch, box int64) *call {
	c.align(64)
	at := len(c.p.Packed)
	c.p.Packed = append(c.p.Packed, make([]byte, driver.TensorMapBytes)...)
	if c.s.dry != nil || c.err != nil {
		return c
	}
	m, err := c.s.d.lib.DescribeTensor(driver.Tensor{
		Type: tensorTypes[o.dtype], Address: driver.Pointer(o.first()), Terms: uint64(k), Lines: uint64(lines),
		Pitch:    uint64(pitch),
		BoxTerms: hopperTerms, BoxLines: uint32(box),
	}, &c.s.room)
	if err != nil {
		c.err = err
		return c
	}
	copy(c.p.Packed[at:], m)
	return c
}
