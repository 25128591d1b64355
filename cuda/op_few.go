package cuda

import (
	"fmt"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// Linears of few rows of programs in which rows are alone ([graph.RowsAlone]): kernels/few.cu. They have the bits of those of many rows, so
// plans do not know them, and want no scratch memory.

// The constants of kernels/few.cu: lines and rows of a block, and how many lots are on their way.
const (
	fewLines, fewRows      = 32, 8
	fewLots, fewLotsOfRows = 5, 3
)

// asyncCapability is from which compute capability on what kernels read comes to shared memory asynchronously.
const asyncCapability = 80

// mostFewRows is how many rows are computed so, fewRows at a time: the weight is read again for each time, mostly from the GPU's cache.
const mostFewRows = 4 * fewRows

// byFew reports whether a linear of m rows is one of kernels/few.cu.
func (l *launch) byFew(m int64) bool {
	x, w := l.in[0], l.in[1]
	if !l.attrs.Bool(graph.RowsAlone) || m > mostFewRows || x.dtype != tensor.Float32 || rounds(l.attrs) || l.blas || w.dtype == tensor.Float64 ||
		!l.optional(4).absent() && w.dtype != tensor.Int8 {
		return false
	}
	rows, even := evenRows(x)
	return even && vectors(x, 4, lastStep(x), rows) && vectors(w, 16/w.dtype.Size(), w.layout.Strides[1], w.layout.Strides[0])
}

// few computes a linear of few rows.
func (l *launch) few(m int64) error {
	x, w, out := l.in[0], l.in[1], l.out[0]
	bias, added, scales := l.optional(2), l.optional(3), l.optional(4)
	n, k, size := int64(w.shape()[0]), int64(w.shape()[1]), w.dtype.Size()
	d := divideColumns(floatBlocks, 1, m, n, k, l.attrs)
	apart, _ := evenRows(x)
	lines := tensor.Contiguous(1)
	if !added.absent() {
		lines = added.layout.Leading(1)
	}
	each := int64(1)
	if m > 1 {
		each = fewRows
	}
	c := l.call(fmt.Sprintf(fewKernel, size, each)).write(out).read(x).i64(int64(apart)).
		read(w).i32(dtypeCodes[w.dtype]).i64(int64(w.layout.Strides[0])).i64(int64(lastStep(w)))
	c.read(scales).i32(dtypeCodes[scales.dtype]).i64(int64(lastStep(scales))).read(bias).i32(dtypeCodes[bias.dtype]).i64(int64(lastStep(bias)))
	c.read(added).layout(lines).i64(int64(lastStep(added))).activation(l.attrs, tensor.Float32)
	c.i64(m).i64(n).i64(k).i64(d.part).i32(int32(d.parts))
	return c.grid(dims{ceilDiv(n, fewLines), ceilDiv(m, each), 1}, dims{32 * d.parts, 1, 1},
		fewSharedBytes(int64(size), each, d.parts, l.s.d.info.Capability))
}

// fewKernel is what a kernel is called by the bytes of an element of the weight and the rows of a block.
const fewKernel = "om_few_%d_%d"

// fewSharedBytes is the dynamic shared memory of a block.
func fewSharedBytes(size, rows, parts int64, capability int) int64 {
	lots := int64(fewLots)
	if rows > 1 {
		lots = fewLotsOfRows
	}
	if capability < asyncCapability {
		lots = 1
	}
	terms := min(128/size, 64)
	lot := fewLines*(terms*size+16) + rows*terms*4
	return parts * (lots*lot + rows*fewLines*4)
}
