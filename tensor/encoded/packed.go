package encoded

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"sync"

	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
)

// An Order says how the codes of a weight lie in words of 32 bits.
type Order uint8

// The orders of codes.
const (
	// AlongColumns has words of codes that follow each other in a row, word [column ÷ codes][row], as GPTQ has them.
	AlongColumns Order = iota
	// AcrossRows has words of codes of eight rows, of one column, word [column][row ÷ 8], in AWQ's order of half bytes.
	AcrossRows
	// InRows has words of codes that follow each other in a row, word [row][column ÷ codes], as compressed-tensors has them.
	InRows
	// SignedBytes has no words: a byte with a sign for each number, [row][column].
	SignedBytes
)

// Words are a weight of Rows by Columns whose codes lie in words, with a scale for each group of columns.
type Words struct {
	Rows, Columns, Group int64
	// Bits are those of a code: 4 or 8, or 2 or 3 with AlongColumns. Of 3 bits 32 codes lie in three words, one after
	// the other.
	Bits  int
	Order Order
	Codes storage.Extent
	// Scales are of DType, which numbers are rounded to: [group][row], or [row][group] where ByRow.
	Scales storage.Extent
	DType  tensor.DType
	ByRow  bool
	// Zeros are the codes that stand for nothing, less ZeroLess, in words as the codes are: [group][row ÷ codes], or, where
	// ByRow, [row ÷ codes][group]. Where there are none, Nothing stands for nothing.
	Zeros    storage.Extent
	ZeroLess uint8
	Nothing  uint8
	// Groups are the groups of columns, int32, where they are not in order.
	Groups storage.Extent
}

// fillBytes bounds what a matrix that is made holds on the way.
const fillBytes = 256 << 10

// unit returns how many codes lie in how many words.
func (w *Words) unit() (codes, words int64) {
	if w.Bits == 3 {
		return 32, 3
	}
	return int64(32 / w.Bits), 1
}

// groups is how many groups a row has.
func (w *Words) groups() int64 { return (w.Columns + w.Group - 1) / w.Group }

// Matrix returns the weight as what its rows are made of, and the encoding of the blocks that they are; nil where no blocks fit,
// and the rows are numbers of DType.
func (w Words) Matrix() (Matrix, *Encoding) {
	kind := "INT4"
	if w.Bits == 8 {
		kind = "INT8"
	}
	x := words{Words: w, rowBytes: w.Columns * int64(w.DType.Size())}
	if e, ok := ownEncoding(kind, w.Group, w.Columns, w.DType); ok && w.Groups.Bytes == 0 {
		x.encoding, x.rowBytes = e, w.Columns/e.Elements*e.Bytes
	}
	m := Matrix{Rows: w.Rows, RowBytes: x.rowBytes, Fill: x.fill}
	m.SlabRows = max(fillBytes/(5*w.groups())/8*8, 8)
	for _, e := range []storage.Extent{w.Codes, w.Scales, w.Zeros, w.Groups} {
		if e.Bytes > 0 {
			m.Parts = append(m.Parts, e)
		}
	}
	return m, x.encoding
}

// words are Words as a matrix is made of them.
type words struct {
	Words
	encoding *Encoding
	rowBytes int64
}

// A slab has what the rows that are being made take on the way.
type slab struct {
	raw     []byte
	scales  []float32 // [group][row of the slab]
	zeros   []uint8
	groups  []int32
	codes   []uint8 // of a part of a row
	numbers []float32
	pairs   []pair // of the groups of a row
	table   []byte // numbers of codes
}

// A pair is a scale and the code that stands for nothing.
type pair struct{ scale, nothing float32 }

var slabs = sync.Pool{New: func() any { return new(slab) }}

// resized returns a slice of n elements, with the memory of another where that suffices.
func resized[T any](s []T, n int64) []T {
	if int64(cap(s)) < n {
		return make([]T, n)
	}
	return s[:n]
}

func (w *words) fill(ctx context.Context, first, n int64, p []byte) error {
	s := slabs.Get().(*slab)
	defer slabs.Put(s)
	if err := w.readScales(ctx, s, first, n); err != nil {
		return err
	}
	if err := w.readGroups(ctx, s); err != nil {
		return err
	}
	if w.encoding != nil {
		w.heads(s, n, p)
	} else {
		clear(p) // columns behind the last word
	}
	switch {
	case w.Order == AlongColumns && !w.turns():
		return w.alongColumns(ctx, s, first, n, p)
	case w.Order == AcrossRows && !w.turns():
		return w.acrossRows(ctx, s, first, n, p)
	case w.Order == AlongColumns || w.Order == AcrossRows:
		return w.turnLines(ctx, s, first, n, p)
	}
	return w.inRows(ctx, s, first, n, p)
}

// heads writes what blocks begin with.
func (w *words) heads(s *slab, n int64, p []byte) {
	e, width := w.encoding, w.DType.Size()
	for r := range n {
		row := p[r*w.rowBytes:]
		for b := range w.Columns / e.Elements {
			g := b * e.Elements / w.Group
			head := row[b*e.Bytes:]
			putFloat(head, s.scales[g*n+r], w.DType)
			head[width] = s.zeros[g*n+r]
		}
	}
}

// readScales reads the scales and zeros of rows [first, first+n).
func (w *words) readScales(ctx context.Context, s *slab, first, n int64) error {
	groups, width := w.groups(), int64(w.DType.Size())
	s.scales, s.zeros = resized(s.scales, groups*n), resized(s.zeros, groups*n)
	if w.ByRow {
		each := int64(32 / w.Bits)
		s.raw = resized(s.raw, groups*max(width, 4))
		for r := range n {
			raw := s.raw[:groups*width]
			if err := w.Scales.ReadAt(ctx, raw, (first+r)*groups*width); err != nil {
				return err
			}
			for g := range groups {
				s.scales[g*n+r], s.zeros[g*n+r] = loadFloat(raw[g*width:], w.DType), w.Nothing
			}
			if w.Zeros.Bytes == 0 {
				continue
			}
			raw = s.raw[:groups*4]
			if err := w.Zeros.ReadAt(ctx, raw, (first+r)/each*groups*4); err != nil {
				return err
			}
			for g := range groups {
				code := double(raw[4*g:]) >> (int64(w.Bits) * ((first + r) % each)) & (1<<w.Bits - 1)
				s.zeros[g*n+r] = (uint8(code) + w.ZeroLess) & uint8(1<<w.Bits-1)
			}
		}
		return nil
	}
	each, unit := w.unit()
	from, end := first/each*unit, (first+n+each-1)/each*unit // words of zeros
	s.raw = resized(s.raw, max(n*width, (end-from)*4))
	stored := (w.Rows + each - 1) / each * unit
	for g := range groups {
		raw := s.raw[:n*width]
		if err := w.Scales.ReadAt(ctx, raw, (g*w.Rows+first)*width); err != nil {
			return err
		}
		for r := range n {
			s.scales[g*n+r], s.zeros[g*n+r] = loadFloat(raw[r*width:], w.DType), w.Nothing
		}
		if w.Zeros.Bytes == 0 {
			continue
		}
		raw = s.raw[:(end-from)*4]
		if err := w.Zeros.ReadAt(ctx, raw, (g*stored+from)*4); err != nil {
			return err
		}
		for r := range n {
			at := first + r
			if w.Bits == 3 { // AutoGPTQ lets 7 and one more be 8
				s.zeros[g*n+r] = threeBits(raw, at-from/unit*each) + w.ZeroLess
				continue
			}
			code := double(raw[(at/each-from)*4:]) >> w.shift(at%each) & (1<<w.Bits - 1)
			s.zeros[g*n+r] = (uint8(code) + w.ZeroLess) & uint8(1<<w.Bits-1)
		}
	}
	return nil
}

// threeBits is code i of those of 3 bits that follow each other in words.
func threeBits(words []byte, i int64) uint8 {
	at := 3 * i
	code := uint32(words[at/8]) >> (at % 8)
	if at%8 > 5 {
		code |= uint32(words[at/8+1]) << (8 - at%8)
	}
	return uint8(code & 7)
}

// turnedAWQ are the places of eight rows in a word.
var turnedAWQ = [8]int64{0, 4, 1, 5, 2, 6, 3, 7}

// shift is where code i of a word is.
func (w *words) shift(i int64) int64 {
	if w.Order == AcrossRows {
		i = turnedAWQ[i]
	}
	return int64(w.Bits) * i
}

// readGroups reads which groups columns are of, where they are not in order.
func (w *words) readGroups(ctx context.Context, s *slab) error {
	if w.encoding != nil || w.Groups.Bytes == 0 {
		s.groups = nil
		return nil
	}
	raw := make([]byte, 4*w.Columns)
	if err := w.Groups.ReadAt(ctx, raw, 0); err != nil {
		return err
	}
	s.groups = resized(s.groups, w.Columns)
	for k := range s.groups {
		g := int32(double(raw[4*k:]))
		if g < 0 || int64(g) >= w.groups() {
			return fmt.Errorf("column %d is of group %d of %d", k, g, w.groups())
		}
		s.groups[k] = g
	}
	return nil
}

// partColumns are made of a row at once where words lie in lines.
const partColumns = 128

// alongColumns reads lines of words in which each row has one, of codes that follow each other.
func (w *words) alongColumns(ctx context.Context, s *slab, first, n int64, p []byte) error {
	each, unit := w.unit()
	s.codes = resized(s.codes, partColumns)
	return w.eachLines(ctx, s, first, n, partColumns/each*unit, func(line, from, end int64, words strided32) {
		k := line / unit * each
		codes := s.codes[:min(partColumns, w.Columns/each*each-k)]
		for r := range end - from {
			strided32{words.bytes[4*r:], words.apart}.codes(w.Bits, codes)
			w.finish(s, n, r, k, codes, p)
		}
	})
}

// acrossRows reads lines of words in which eight rows have one.
func (w *words) acrossRows(ctx context.Context, s *slab, first, n int64, p []byte) error {
	s.codes = resized(s.codes, 8)
	return w.eachLines(ctx, s, first, n, 8, func(line, from, end int64, words strided32) {
		codes := s.codes[:min(8, w.Columns-line)]
		for i := range end - from {
			var eight [8]uint64
			own := strided32{words.bytes[4*i:], words.apart}
			for k := range codes {
				eight[k] = spread(own.at(int64(k)))
			}
			turn(&eight)
			r := (from+i)*8 - first
			for c := max(0, -r); c < min(8, n-r); c++ {
				for k := range codes {
					codes[k] = uint8(eight[turnedAWQ[c]] >> (8 * k))
				}
				w.finish(s, n, r+c, line, codes, p)
			}
		}
	})
}

// finish makes what codes of row r of the slab are, from column k on: whole blocks, or numbers.
func (w *words) finish(s *slab, n, r, k int64, codes []uint8, p []byte) {
	row := p[r*w.rowBytes:][:w.rowBytes]
	if e := w.encoding; e != nil {
		for at := k/e.Elements*e.Bytes + w.head(); len(codes) > 0; at += e.Bytes {
			halves(row[at:], codes[:e.Elements])
			codes = codes[e.Elements:]
		}
		return
	}
	s.numbers = resized(s.numbers, int64(len(codes)))
	x, groups := s.numbers, w.groups()
	if s.groups != nil {
		s.pairs = resized(s.pairs, groups)
		for g := range groups {
			s.pairs[g] = pair{s.scales[g*n+r], float32(s.zeros[g*n+r])}
		}
		of := s.groups[k:][:len(codes)]
		for i, c := range codes {
			q := &s.pairs[of[i]]
			x[i] = (float32(c) - q.nothing) * q.scale
		}
	}
	for i := int64(0); s.groups == nil && i < int64(len(codes)); {
		g := (k + i) / w.Group
		end := min((g+1)*w.Group-k, int64(len(codes)))
		scale, nothing := s.scales[g*n+r], float32(s.zeros[g*n+r])
		part := x[i:end]
		for j, c := range codes[i:end] {
			part[j] = (float32(c) - nothing) * scale
		}
		i = end
	}
	storeFloats(row[k*int64(w.DType.Size()):], x, w.DType)
}

// eachLines reads the lines of words, of which rows of a slab have the words from … to end, and has do look at a block of them at a time, the
// first of which is line. What is read at once is a block, or as many as fill so much memory, of all rows where skipping would take longer.
func (w *words) eachLines(ctx context.Context, s *slab, first, n, block int64, do func(line, from, end int64, words strided32)) error {
	each, unit := w.unit()
	lines, wide, from, end := w.Columns, w.Rows/each, first/each, (first+n+each-1)/each
	if w.Order == AlongColumns {
		lines, wide, from, end = w.Columns/each*unit, w.Rows, first, first+n
	}
	together, apart := block, end-from // of lines as they are held
	whole := wide <= 4096 || apart*4 >= wide
	if whole {
		together, apart = max(fillBytes/(4*wide)/block*block, block), wide
	}
	for line := int64(0); line < lines; line += together {
		some := min(together, lines-line)
		reads, words := some, apart
		if whole { // one read, but for what lies behind the last line's
			reads, words = 1, (some-1)*wide+end-from
		}
		s.raw = resized(s.raw, 4*reads*words)
		for l := range reads {
			if err := w.Codes.ReadAt(ctx, s.raw[4*l*words:][:4*words], 4*((line+l)*wide+from)); err != nil {
				return err
			}
		}
		for l := int64(0); l < some; l += block {
			do(line+l, from, end, strided32{s.raw[4*l*apart:], 4 * apart})
		}
	}
	return nil
}

// inRows reads words, or bytes, of one row after the other.
func (w *words) inRows(ctx context.Context, s *slab, first, n int64, p []byte) error {
	each := int64(32 / w.Bits)
	size := (w.Columns + each - 1) / each * 4
	if w.Order == SignedBytes {
		size = w.Columns
	}
	s.raw = resized(s.raw, size)
	for r := range n {
		if err := w.Codes.ReadAt(ctx, s.raw, (first+r)*size); err != nil {
			return err
		}
		if w.turns() {
			w.turnRow(p[r*w.rowBytes:][:w.rowBytes], s.raw)
			continue
		}
		if w.Order == SignedBytes {
			flip(s.raw, 0x80)
			w.finish(s, n, r, 0, s.raw, p)
			continue
		}
		s.codes = resized(s.codes, size/4*each)
		strided32{s.raw, 4}.codes(w.Bits, s.codes)
		w.finish(s, n, r, 0, s.codes[:w.Columns], p)
	}
	return nil
}

// Floats8 are a weight of float8_e4m3fn, [row][column], with a scale for each block of BlockRows by BlockColumns, in order, of
// ScaleDType; of uint8 they are exponents, of powers of two. Numbers are rounded to DType.
type Floats8 struct {
	Rows, Columns, BlockRows, BlockColumns int64
	Codes, Scales                          storage.Extent
	ScaleDType, DType                      tensor.DType
}

// Matrix returns the weight as what its rows are made of, and the encoding of the blocks that they are; nil where no blocks fit,
// and the rows are numbers of DType.
func (f Floats8) Matrix() (Matrix, *Encoding) {
	rowBytes := f.Columns * int64(f.DType.Size())
	e, ok := ownEncoding("F8E4M3", f.BlockColumns, f.Columns, f.DType)
	if !ok && f.BlockColumns >= f.Columns { // one block is as wide as all
		e, ok = ownEncoding("F8E4M3", f.Columns, f.Columns, f.DType)
	}
	if ok {
		rowBytes = f.Columns / e.Elements * e.Bytes
	} else {
		e = nil
	}
	wide := (f.Columns + f.BlockColumns - 1) / f.BlockColumns
	width := int64(f.ScaleDType.Size())
	fill := func(ctx context.Context, first, n int64, p []byte) error {
		s := slabs.Get().(*slab)
		defer slabs.Put(s)
		s.raw = resized(s.raw, f.Columns+wide*width)
		for r := range n {
			codes, scales, row := s.raw[:f.Columns], s.raw[f.Columns:], p[r*rowBytes:][:rowBytes]
			if err := f.Codes.ReadAt(ctx, codes, (first+r)*f.Columns); err != nil {
				return err
			}
			if err := f.Scales.ReadAt(ctx, scales, (first+r)/f.BlockRows*wide*width); err != nil {
				return err
			}
			scale := func(k int64) float32 {
				if f.ScaleDType == tensor.UInt8 {
					return powerOfTwo(scales[k/f.BlockColumns])
				}
				return loadFloat(scales[k/f.BlockColumns*width:], f.ScaleDType)
			}
			if e != nil {
				for b := range f.Columns / e.Elements {
					binary.LittleEndian.PutUint32(row[b*e.Bytes:], math.Float32bits(scale(b*e.Elements)))
					copy(row[b*e.Bytes+4:], codes[b*e.Elements:][:e.Elements])
				}
				continue
			}
			s.numbers = resized(s.numbers, f.Columns)
			for k := int64(0); k < f.Columns; {
				x, end := scale(k), min(k+f.BlockColumns, f.Columns)
				for ; k < end; k++ {
					s.numbers[k] = tensor.Float8ToFloat32(tensor.Float8E4M3FN, codes[k]) * x
				}
			}
			storeFloats(row, s.numbers, f.DType)
		}
		return nil
	}
	return Matrix{Rows: f.Rows, RowBytes: rowBytes, Parts: []storage.Extent{f.Codes, f.Scales}, SlabRows: f.Rows,
		Fill: fill}, e
}
