package cpu

import (
	simd "github.com/optimem/optimem/internal/cpu/kernel"
	"github.com/optimem/optimem/internal/cpu/ops"
	"github.com/optimem/optimem/tensor"
	"github.com/optimem/optimem/tensor/encoded"
)

// A matrix is a strided panelSource over the memory of a tensor: element k of line l lies at offset + l·line + k·step.
// For a row-major left factor m×k, line is k and step is 1; for a row-major right factor k×n, line is 1 and step is n,
// and for a weight n×k that PyTorch's linear multiplies by, line is k and step is 1. Half floats become float32.
type matrix[T ops.Real] struct {
	data               []byte
	dtype              tensor.DType
	offset, line, step int
	// rows says where the lines begin, where they do not lie equally far apart: line l at element l in row-major order.
	rows tensor.Layout
	// packed says that data is a right factor in panels, as [packPanels] writes them.
	packed bool
	// rounded says that elements are rounded to bfloat16 where they are packed, which they are then.
	rounded bool
	// encoding is that of lines that are blocks of codes; offset and line are then in bytes, and step is 1.
	encoding *encoded.Encoding
	// set is what it packs with, nil for Go.
	set *simd.Set
}

// elementOf returns what a dtype is to tiles.
func elementOf(d tensor.DType) (simd.Element, bool) {
	switch d {
	case tensor.Float32:
		return simd.Float32, true
	case tensor.BFloat16:
		return simd.BFloat16, true
	case tensor.Float16:
		return simd.Float16, true
	case tensor.Int8:
		return simd.Int8, true
	}
	return 0, false
}

// source returns how tiles find the matrix as a right factor for some tiles of rows.
func (m *matrix[T]) source(tiles int) (rightSource, simd.Element) {
	e, ok := elementOf(m.dtype)
	switch {
	case !ok || m.set == nil || m.rounded:
		return rightPacked, simd.Float32
	case m.packed && e == simd.BFloat16:
		return rightPanels, simd.Pairs
	case m.packed:
		return rightPanels, e
	case m.line == 1 && m.step > 0 && tiles <= 2:
		return rightRows, e
	}
	return rightPacked, simd.Float32
}

// inPlace reports whether a left factor of m rows is read where it lies, which is as fast unless all rows of a tile compete
// for the same places of the cache; packing it pays off where many columns read it.
func (m *matrix[T]) inPlace(rows, columns int) bool {
	if m.dtype != ops.RealDType[T]() || m.rounded || m.step != 1 || len(m.rows.Shape) > 0 || m.line < 0 {
		return false
	}
	const fewRows, mostColumns, page = 4, 64 * stripColumns, 1024
	return rows <= fewRows || columns <= mostColumns && m.line%page != 0
}

// lineAt returns where line l begins.
func (m *matrix[T]) lineAt(l int) int {
	if len(m.rows.Shape) > 0 {
		return m.rows.OffsetOf(l)
	}
	return m.offset + l*m.line
}

// packRows writes lines [from, to) one behind the other, pitch elements apart.
func (m *matrix[T]) packRows(dst []T, pitch, from, to, k0, k1 int) {
	n, all, start := k1-k0, dst, from
	if m.dtype == tensor.Float32 && m.set != nil && m.step != 1 && m.line == 1 && len(m.rows.Shape) == 0 {
		// Eight of k at a time as rows.
		src, whole := ops.Elements[float32](ops.View{Data: m.data}), (to-from)&^7
		k := 0
		for ; k+8 <= n && whole > 0; k += 8 {
			m.set.Transpose(whole/8, src[m.offset+from+(k0+k)*m.step:], m.step, singles(dst[k:]), pitch)
		}
		for l := range whole {
			for rest := k; rest < n; rest++ {
				dst[l*pitch+rest] = T(src[m.offset+from+l+(k0+rest)*m.step])
			}
		}
		from, dst = from+whole, dst[min(whole*pitch, len(dst)):]
	}
	for l := from; l < to; l++ {
		line := dst[(l-from)*pitch:][:n]
		at := m.lineAt(l) + k0*m.step
		switch {
		case m.step == 1 && m.dtype == ops.RealDType[T]():
			copy(line, ops.Elements[T](ops.View{Data: m.data})[at:])
		case m.step == 1 && m.set != nil && ops.IsHalf(m.dtype):
			e, _ := elementOf(m.dtype)
			whole := n / m.set.Columns
			m.set.Widen(e, whole, m.data[2*at:], 2*m.set.Columns, singles(line))
			whole *= m.set.Columns
			ops.LoadReal(line[whole:], ops.View{Data: m.data, DType: m.dtype}, at+whole, 1)
		default:
			ops.LoadReal(line, ops.View{Data: m.data, DType: m.dtype}, at, m.step)
		}
	}
	for l := range to - start {
		if m.rounded {
			ops.RoundRow(m.set, singles(all[l*pitch:][:n]))
		}
	}
}

// pack implements panelSource.
//
//lint:ignore U1000 called through the interface, which the checker does not see for generic types
func (m *matrix[T]) pack(dst []T, width, from, to, k0, k1 int) {
	n := k1 - k0
	depth := ops.RoundUp(n, unroll)
	for l := from; l < to; l += width {
		group := dst[(l-from)*depth:][:depth*width]
		lines := min(width, to-l)
		clearTail(group, width, lines, n)
		switch {
		case m.encoding != nil:
			m.decode(singles(group), width, l, lines, k0, k1)
		case m.set != nil && m.line == 1 && lines == m.set.Columns && width == lines && m.step >= 0:
			e, _ := elementOf(m.dtype)
			m.set.Widen(e, n, m.data[(m.offset+l+k0*m.step)*e.Bytes():], m.step*e.Bytes(), singles(group))
		case m.set != nil && m.step == 1 && m.line >= 0:
			m.transpose(group, width, l, lines, k0, k1)
		case m.line == 1 && lines == width && m.dtype == ops.RealDType[T]():
			src := ops.Elements[T](ops.View{Data: m.data})
			for k := range n {
				copy(group[width*k:][:width], src[m.offset+l+(k0+k)*m.step:])
			}
		case width == 4 && lines == 4 && m.step == 1 && m.dtype == ops.RealDType[T]():
			src := ops.Elements[T](ops.View{Data: m.data})
			at := m.offset + l*m.line + k0
			s0, s1, s2, s3 := src[at:][:n], src[at+m.line:][:n], src[at+2*m.line:][:n], src[at+3*m.line:][:n]
			for k := range s0 {
				*(*[4]T)(group[4*k:]) = [4]T{s0[k], s1[k], s2[k], s3[k]}
			}
		default:
			m.packStrided(group, width, l, lines, k0, k1)
		}
		if m.rounded {
			ops.RoundRow(m.set, singles(group))
		}
	}
}

// packStrided packs lines of any strides.
func (m *matrix[T]) packStrided(group []T, width, l, lines, k0, k1 int) {
	var room [64]T
	for r := range lines {
		at := m.lineAt(l + r)
		for k := k0; k < k1; k += len(room) {
			part := room[:min(len(room), k1-k)]
			ops.LoadReal(part, ops.View{Data: m.data, DType: m.dtype}, at+k*m.step, m.step)
			for i, x := range part {
				group[(k-k0+i)*width+r] = x
			}
		}
	}
}

// transpose packs lines that lie along k with the kernels of a processor.
func (m *matrix[T]) transpose(group []T, width, l, lines, k0, k1 int) {
	n := k1 - k0
	to := singles(group)
	e, _ := elementOf(m.dtype)
	at := m.offset + l*m.line + k0
	if lines < 8 {
		var room [blockK]T
		for r := range lines {
			line := room[:n]
			ops.LoadReal(line, ops.View{Data: m.data, DType: m.dtype}, at+r*m.line, 1)
			for k, x := range line {
				group[k*width+r] = x
			}
		}
		return
	}
	for r := 0; r < lines; r += 8 {
		r := min(r, lines-8) // the last ones together with some that are there already
		switch e {
		case simd.Float32:
			m.set.Transpose(n/8, ops.Elements[float32](ops.View{Data: m.data})[at+r*m.line:], m.line, to[r:], width)
		case simd.Int8:
			m.set.TransposeInt8(n/8, ops.Elements[int8](ops.View{Data: m.data})[at+r*m.line:], m.line, to[r:], width)
		default:
			m.set.TransposeHalf(
				e, n/8, ops.Elements[uint16](ops.View{Data: m.data})[at+r*m.line:], m.line, to[r:], width,
			)
		}
	}
	if from := n &^ 7; from < n {
		m.packStrided(group[from*width:], width, l, lines, k0+from, k1)
	}
}

// panelBytes returns the size of a right factor in panels, n columns of depth k.
func panelBytes(n, k int, d tensor.DType) int64 {
	return int64(ops.RoundUp(n, stripColumns)) * int64(panelDepth(k, d)) * int64(d.Size())
}

// pairedDepth is what depths of panels of pairs are rounded up to, as matrix units take them.
const pairedDepth = 32

// panelDepth returns the depth of panels of a factor of depth k.
func panelDepth(k int, d tensor.DType) int {
	if d == tensor.BFloat16 {
		return ops.RoundUp(k, pairedDepth)
	}
	return k
}

// packPanels writes a right factor n×k in panels, rounded to bfloat16 or as it is.
func packPanels(p *ops.Pool, m matrix[float32], n, k int, round bool, dst []byte) {
	m.set = setOf(p)
	task := &panelPacker{m: m, n: n, k: k, round: round, dst: dst}
	p.Do(ops.RoundUp(n, stripColumns)/m.set.Columns, 1, task)
}

// A panelPacker is the task of packing a matrix n×k in panels: those of set.Columns lines, one behind the other, each with
// all lines of k before those of k+1, and of bfloat16 those of k and k+1 side by side. Lines beyond n are zero.
type panelPacker struct {
	m     matrix[float32]
	n, k  int
	round bool
	dst   []byte
}

// Run packs panels.
func (p *panelPacker) Run(from, to int) {
	width := p.m.set.Columns
	size, depth := p.m.dtype.Size(), panelDepth(p.k, p.m.dtype)
	var room []float32
	if p.round && p.m.dtype != tensor.BFloat16 {
		size, depth = tensor.BFloat16.Size(), panelDepth(p.k, tensor.BFloat16)
		room = make([]float32, blockK*width)
	}
	for panel := from; panel < to; panel++ {
		l := panel * width
		dst := p.dst[l*depth*size:][:width*depth*size]
		lines := max(0, min(width, p.n-l))
		if lines < width || depth > p.k {
			clear(dst)
		}
		if lines == 0 {
			continue
		}
		if p.round && p.m.dtype != tensor.BFloat16 {
			p.m.roundPairs(ops.Elements[uint32](ops.View{Data: dst}), room, width, l, lines, 0, p.k)
			continue
		}
		if p.m.dtype == tensor.BFloat16 {
			p.m.packPairs(ops.Elements[uint32](ops.View{Data: dst}), width, l, lines, 0, p.k)
			continue
		}
		switch size {
		case 1:
			p.bytes(dst, width, l, lines)
			continue
		case 2:
			p.words(ops.Elements[uint16](ops.View{Data: dst}), width, l, lines)
			continue
		}
		group := ops.Elements[float32](ops.View{Data: dst})
		switch m := &p.m; {
		case m.line == 1 && lines == width && m.step >= 0:
			m.set.Widen(simd.Float32, p.k, m.data[4*(m.offset+l):], 4*m.step, group)
		case m.step == 1 && m.line >= 0:
			for k0 := 0; k0 < p.k; k0 += blockK {
				m.transpose(group[k0*width:], width, l, lines, k0, min(k0+blockK, p.k))
			}
		default:
			m.packStrided(group, width, l, lines, 0, p.k)
		}
	}
}

// packPairs packs elements [k0, k1) of lines of bfloat16 as pairs; dst is zero where there are no lines.
func (m *matrix[T]) packPairs(dst []uint32, width, l, lines, k0, k1 int) {
	src := ops.Elements[uint16](ops.View{Data: m.data})
	at := m.offset + l*m.line + k0*m.step
	n := k1 - k0
	r, whole := 0, 0
	if m.step == 1 && m.line >= 0 {
		whole = n &^ 15
		for ; r+8 <= lines; r += 8 {
			m.set.TransposePairs(whole/16, src[at+r*m.line:], m.line, dst[r:], width)
		}
	}
	for i := range lines {
		k := 0
		if i < r {
			k = whole
		}
		for ; k < n; k += 2 {
			pair := uint32(src[at+i*m.line+k*m.step])
			if k+1 < n {
				pair |= uint32(src[at+i*m.line+(k+1)*m.step]) << 16
			}
			dst[k/2*width+i] = pair
		}
	}
}

// roundPairs packs elements [k0, k1) of lines as pairs of bfloat16; room is for blockK of them as float32.
func (m *matrix[T]) roundPairs(dst []uint32, room []float32, width, l, lines, k0, k1 int) {
	for k := k0; k < k1; k += blockK {
		end := min(k+blockK, k1)
		m.pack(any(room).([]T), width, l, l+lines, k, end)
		// Packed depths are rounded up to more than pairs, with zeros.
		m.set.PairUp(ops.RoundUp(end-k, 2), room, dst[(k-k0)/2*width:])
	}
}

// words packs a panel of halves.
func (p *panelPacker) words(dst []uint16, width, l, lines int) {
	m := &p.m
	src := ops.Elements[uint16](ops.View{Data: m.data})
	at := m.offset + l*m.line
	r, whole := 0, 0
	if m.step == 1 && m.line >= 0 {
		whole = p.k &^ 7
		for ; r+8 <= lines; r += 8 {
			m.set.TransposeWords(whole/8, src[at+r*m.line:], m.line, dst[r:], width)
		}
	}
	if m.line == 1 {
		for k := range p.k {
			copy(dst[k*width:][:lines], src[at+k*m.step:])
		}
		return
	}
	for i := range lines {
		from := 0
		if i < r {
			from = whole
		}
		for k := from; k < p.k; k++ {
			dst[k*width+i] = src[at+i*m.line+k*m.step]
		}
	}
}

// bytes packs a panel of int8.
func (p *panelPacker) bytes(dst []byte, width, l, lines int) {
	m := &p.m
	at := m.offset + l*m.line
	if m.line == 1 {
		for k := range p.k {
			copy(dst[k*width:][:lines], m.data[at+k*m.step:])
		}
		return
	}
	r, whole := 0, 0
	if m.step == 1 && m.line >= 0 {
		whole = p.k &^ 7
		for ; r+8 <= lines; r += 8 {
			for k := 0; k < whole; k += 8 {
				simd.TransposeBytes(dst[k*width+r:], width, m.data[at+r*m.line+k:], m.line)
			}
		}
	}
	for i := range lines {
		from := 0
		if i < r {
			from = whole
		}
		for k := from; k < p.k; k++ {
			dst[k*width+i] = m.data[at+i*m.line+k*m.step]
		}
	}
}

// clearTail sets to zero what pads a group of lines: the depth that is rounded up, and lines that do not exist.
func clearTail[T ops.Real](group []T, width, lines, n int) {
	clear(group[n*width:])
	if lines == width {
		return
	}
	for k := range n {
		clear(group[k*width+lines : (k+1)*width])
	}
}
