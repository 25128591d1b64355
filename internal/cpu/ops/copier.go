package ops

import (
	"sync"
	"unsafe"

	simd "github.com/optimem/optimem/internal/cpu/kernel"
	"github.com/optimem/optimem/tensor"
)

// A copier copies the elements of one layout to those of another of the same shape.
type copier struct {
	set      *simd.Set
	size     int
	dst, src []byte
	// to and from are the elements that the first is copied to and from.
	to, from int
	// shape has the dimensions with those joined that lie in order on both sides; the last is a line.
	shape, toStrides, fromStrides [MostDims]int
	rank                          int
	// turned is the dimension whose elements lie one behind the other in src where those of lines do not, else −1; strips
	// is how many strips of lines a matrix of both is cut into.
	turned, strips int
}

var copiers = sync.Pool{New: func() any { return new(copier) }}

// Matrices are turned in strips of stripLines columns of dst, turnedRows rows at a time, so that what is written stays in
// the nearest cache until its lines are full.
const (
	stripLines = 32
	turnedRows = 64
)

// CopyView copies v to elements of dst that lie as a layout says, in order where it has no strides. It allocates nothing
// for layouts of few dimensions.
func CopyView(p *Pool, dst []byte, to tensor.Layout, v View) {
	rest := Volume(v.Layout.Shape)
	if rest == 0 {
		return
	}
	c := copiers.Get().(*copier)
	*c = copier{set: p.Set, size: v.DType.Size(), dst: dst, src: v.Data, to: to.Offset, from: v.Layout.Offset, turned: -1}
	for d, n := range v.Layout.Shape {
		rest /= n
		stride := rest
		if to.Strides != nil {
			stride = to.Strides[d]
		}
		switch k := c.rank - 1; {
		case n == 1:
		case k >= 0 && c.toStrides[k] == stride*n && c.fromStrides[k] == v.Layout.Strides[d]*n:
			c.shape[k] *= n
			c.toStrides[k], c.fromStrides[k] = stride, v.Layout.Strides[d]
		case c.rank == MostDims:
			if to.Strides == nil {
				to.Strides = tensor.Contiguous(v.Layout.Shape...).Strides
			}
			to.Shape = v.Layout.Shape
			CopyMany(dst, to, v)
			copiers.Put(c)
			return
		default:
			c.shape[c.rank], c.toStrides[c.rank], c.fromStrides[c.rank] = n, stride, v.Layout.Strides[d]
			c.rank++
		}
	}
	if c.rank == 0 {
		c.shape[0], c.toStrides[0], c.fromStrides[0], c.rank = 1, 1, 1, 1
	}
	c.run(p)
	*c = copier{}
	copiers.Put(c)
}

// A byteCopy is the task of copying bytes.
type byteCopy struct{ dst, src []byte }

var byteCopies = sync.Pool{New: func() any { return new(byteCopy) }}

// Run implements Task.
func (m *byteCopy) Run(from, to int) { copy(m.dst[from:to], m.src[from:to]) }

// Copy copies bytes; many by all threads, since one does not use all that memory gives.
func (p *Pool) Copy(dst, src []byte) {
	const part = 128 << 10
	n := min(len(dst), len(src))
	if n <= part {
		copy(dst, src)
		return
	}
	m := byteCopies.Get().(*byteCopy)
	m.dst, m.src = dst, src
	p.Do(n, part, m)
	*m = byteCopy{}
	byteCopies.Put(m)
}

// run copies, in parallel.
func (c *copier) run(p *Pool) {
	size, last := 1, c.rank-1
	for _, n := range c.shape[:c.rank] {
		size *= n
	}
	if c.fromStrides[last] > 1 && c.toStrides[last] == 1 && c.shape[last] >= 8 {
		for d := last - 1; d >= 0; d-- {
			if c.fromStrides[d] == 1 && c.shape[d] >= 8 {
				c.turned = d
				break
			}
		}
	}
	if c.turned < 0 {
		p.Do(size, Grain, c)
		return
	}
	c.strips = (c.shape[last] + stripLines - 1) / stripLines
	matrix := c.shape[last] * c.shape[c.turned]
	p.Do(size/matrix*c.strips, max(1, Grain*c.strips/matrix), c)
}

// Run implements Task.
func (c *copier) Run(from, to int) {
	switch c.size {
	case 1:
		copyPart[uint8](c, from, to)
	case 2:
		copyPart[uint16](c, from, to)
	case 4:
		copyPart[uint32](c, from, to)
	case 8:
		copyPart[uint64](c, from, to)
	case 16:
		copyPart[[2]uint64](c, from, to)
	}
}

func copyPart[T any](c *copier, from, to int) {
	dst, src := Elements[T](View{Data: c.dst}), Elements[T](View{Data: c.src})
	if c.turned >= 0 {
		for unit := from; unit < to; unit++ {
			turnStrip(c, dst, src, unit)
		}
		return
	}
	last := c.rank - 1
	var index [MostDims]int
	at, first, rest := c.to, c.from, from
	for d := last; d >= 0; d-- {
		index[d] = rest % c.shape[d]
		rest /= c.shape[d]
		at += index[d] * c.toStrides[d]
		first += index[d] * c.fromStrides[d]
	}
	for from < to {
		n := min(c.shape[last]-index[last], to-from)
		copyLine(dst, src, at, first, n, c.toStrides[last], c.fromStrides[last])
		from += n
		index[last] += n
		at, first = at+n*c.toStrides[last], first+n*c.fromStrides[last]
		for d := last; d > 0 && index[d] == c.shape[d]; d-- {
			at += c.toStrides[d-1] - c.shape[d]*c.toStrides[d]
			first += c.fromStrides[d-1] - c.shape[d]*c.fromStrides[d]
			index[d] = 0
			index[d-1]++
		}
	}
}

// copyLine copies n elements from element at of dst and first of src on.
func copyLine[T any](dst, src []T, at, first, n, to, from int) {
	if to != 1 {
		for i := range n {
			dst[at+i*to] = src[first+i*from]
		}
		return
	}
	line := dst[at : at+n]
	switch from {
	case 1:
		copy(line, src[first:first+n])
	case 0:
		x := src[first]
		for i := range line {
			line[i] = x
		}
	default:
		for i := range line {
			line[i] = src[first+i*from]
		}
	}
}

// turnStrip copies a strip of a matrix with rows and columns exchanged.
func turnStrip[T any](c *copier, dst, src []T, unit int) {
	last := c.rank - 1
	first := unit % c.strips * stripLines
	columns := min(stripLines, c.shape[last]-first)
	at, from, rest := c.to+first, c.from+first*c.fromStrides[last], unit/c.strips
	for d := last - 1; d >= 0; d-- {
		if d == c.turned {
			continue
		}
		at += rest % c.shape[d] * c.toStrides[d]
		from += rest % c.shape[d] * c.fromStrides[d]
		rest /= c.shape[d]
	}
	rows, lds, ldd := c.shape[c.turned], c.fromStrides[last], c.toStrides[c.turned]
	to32, ok := any(dst).([]uint32)
	whole := 0
	if ok && c.set != nil && ldd > 0 {
		whole = rows &^ 7
		to, src := wordsAsFloats(to32), wordsAsFloats(any(src).([]uint32))
		for r := 0; r < whole; r += turnedRows {
			n := min(turnedRows, whole-r)
			k := 0
			for ; k+8 <= columns; k += 8 {
				c.set.Transpose(n/8, src[from+k*lds+r:], lds, to[at+r*ldd+k:], ldd)
			}
			if k < columns { // else the next column may lie behind the end
				turnPlain(to[at+r*ldd+k:], src[from+k*lds+r:], n, columns-k, lds, ldd)
			}
		}
	}
	if whole < rows {
		turnPlain(dst[at+whole*ldd:], src[from+whole:], rows-whole, columns, lds, ldd)
	}
}

// turnPlain: dst[r·ldd + k] = src[k·lds + r].
func turnPlain[T any](dst, src []T, rows, columns, lds, ldd int) {
	if columns == 0 {
		return
	}
	for r := range rows {
		line := dst[r*ldd:][:columns]
		for k := range line {
			line[k] = src[k*lds+r]
		}
	}
}

// wordsAsFloats views words as floats, to be moved alone.
func wordsAsFloats(x []uint32) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(x))), len(x))
}

// CopyMany is copyView for any number of dimensions.
func CopyMany(dst []byte, to tensor.Layout, v View) {
	size, n := v.DType.Size(), v.Size()
	for i := range n {
		copy(dst[to.OffsetOf(i)*size:][:size], v.Data[v.Layout.OffsetOf(i)*size:])
	}
}

// Gather copies the elements of a view to dst in row-major order.
func Gather(p *Pool, dst []byte, v View) { CopyView(p, dst, tensor.Layout{}, v) }
