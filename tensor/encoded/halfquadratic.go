package encoded

import (
	"context"
	"encoding/binary"

	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
)

// HalfQuadratic are a weight of Rows by Columns as mobiusml's HQQ has it: codes without a sign, and, for each group of numbers, a scale
// and the number, which need not be whole, that stands for nothing. A weight is round(round(code − nothing) × scale), rounded to
// DType, of which scales are, too.
//
// The weight's numbers, row by row, are a matrix of groups. Its rows are groups where Across is false, each of Group numbers that
// follow each other; its columns are where it is true, and a group has every n-th number, n being how many groups there are. Codes of
// less than eight bits share bytes with those of other rows of that matrix: of Bits 4 the first half of all rows has the high half bytes,
// of 2 and 1 it is fourths and eighths, and of 3 it is tenths, in words of 32 bits, to which rows are added that hold nothing.
type HalfQuadratic struct {
	Rows, Columns, Group int64
	Bits                 int // 8, 4, 3, 2 or 1
	Across               bool
	Codes, Scales, Zeros storage.Extent
	DType                tensor.DType
}

// shares returns how many codes share a unit, and how many bytes that has.
func (q *HalfQuadratic) shares() (codes, bytes int64) {
	if q.Bits == 3 {
		return 10, 4
	}
	return int64(8 / q.Bits), 1
}

// units is how many units hold the codes, and false where rows of the matrix of groups cannot share them.
func (q *HalfQuadratic) units() (int64, bool) {
	all := q.Rows * q.Columns
	rows, wide := all/q.Group, q.Group
	if q.Across {
		rows, wide = wide, rows
	}
	share, _ := q.shares()
	if q.Bits == 3 {
		return (rows + share - 1) / share * wide, true
	}
	return rows / share * wide, rows%share == 0
}

// CodeBytes is how many bytes the codes take, false where numbers of such sizes have none. Group divides Rows × Columns.
func (q *HalfQuadratic) CodeBytes() (int64, bool) {
	units, ok := q.units()
	_, bytes := q.shares()
	return units * bytes, ok
}

// Matrix returns the weight as what its rows are made of, and the encoding of the blocks that they are; nil where no blocks fit,
// and the rows are numbers of DType.
func (q HalfQuadratic) Matrix() (Matrix, *Encoding) {
	kind := "HQQ4"
	if q.Bits == 8 {
		kind = "HQQ8"
	}
	x := halfQuadratic{HalfQuadratic: q, rowBytes: q.Columns * int64(q.DType.Size())}
	if e, ok := ownEncoding(kind, q.Group, q.Columns, q.DType); ok && !q.Across {
		x.encoding, x.rowBytes = e, q.Columns/e.Elements*e.Bytes
	}
	x.perUnit, _ = q.units()
	parts := []storage.Extent{q.Codes, q.Scales, q.Zeros}
	return Matrix{Rows: q.Rows, RowBytes: x.rowBytes, Parts: parts, SlabRows: q.Rows, Fill: x.fill}, x.encoding
}

// A halfQuadratic is a HalfQuadratic as a matrix is made of it.
type halfQuadratic struct {
	HalfQuadratic
	encoding *Encoding
	rowBytes int64
	perUnit  int64 // how many units there are, and how far numbers are apart that share one
}

func (q *halfQuadratic) fill(ctx context.Context, first, n int64, p []byte) error {
	s := slabs.Get().(*slab)
	defer slabs.Put(s)
	if q.Across && n >= q.period()<<q.Bits && q.period() > 0 {
		for r := range q.period() {
			if err := q.tabled(ctx, s, first+r, p[r*q.rowBytes:]); err != nil {
				return err
			}
		}
		return nil
	}
	for r := range n {
		if err := q.row(ctx, s, first+r, p[r*q.rowBytes:][:q.rowBytes]); err != nil {
			return err
		}
	}
	return nil
}

// period is how far rows are apart whose columns have the same groups, 0 for none. Where that is less than one in how many codes
// there are, it takes less time to make a number of every code first.
func (q *halfQuadratic) period() int64 {
	if groups := q.Rows * q.Columns / q.Group; q.Bits <= 4 && groups%q.Columns == 0 {
		return groups / q.Columns
	}
	return 0
}

// tabledColumns have their numbers in a table at once, which the nearer caches have room for.
const tabledColumns = 1024

// tabled makes row r, with which p begins, and of the others in p each that is periods behind it.
func (q *halfQuadratic) tabled(ctx context.Context, s *slab, r int64, p []byte) error {
	width, period := int64(q.DType.Size()), q.period()
	for column := int64(0); column < q.Columns; column += tabledColumns {
		wide := min(tabledColumns, q.Columns-column)
		if err := q.tabulate(ctx, s, r%period*q.Columns+column, wide); err != nil {
			return err
		}
		s.codes = resized(s.codes, wide)
		for i := int64(0); i*q.rowBytes < int64(len(p)); i += period {
			if err := q.read(ctx, s, (r+i)*q.Columns+column, s.codes); err != nil {
				return err
			}
			q.lookUp(p[i*q.rowBytes+column*width:], s.codes, s.table)
		}
	}
	return nil
}

// tabulate makes the numbers of every code of groups.
func (q *halfQuadratic) tabulate(ctx context.Context, s *slab, g, n int64) error {
	if err := q.readPairs(ctx, s, g, n); err != nil {
		return err
	}
	s.numbers, s.table = resized(s.numbers, n<<q.Bits), resized(s.table, n<<q.Bits*int64(q.DType.Size()))
	for i := range n {
		x := s.numbers[i<<q.Bits:][:1<<q.Bits]
		for c := range x {
			x[c] = float32(c)
		}
		offsetFloats(x, s.scales[i], s.scales[n+i], q.DType)
	}
	storeFloats(s.table, s.numbers, q.DType)
	return nil
}

// lookUp writes the numbers of codes, of which each has a part of the table.
func (q *halfQuadratic) lookUp(to []byte, codes []uint8, table []byte) {
	if q.DType.Size() == 2 {
		for i, c := range codes {
			binary.NativeEndian.PutUint16(to[2*i:], binary.NativeEndian.Uint16(table[2*(i<<q.Bits+int(c)):]))
		}
		return
	}
	for i, c := range codes {
		binary.NativeEndian.PutUint32(to[4*i:], binary.NativeEndian.Uint32(table[4*(i<<q.Bits+int(c)):]))
	}
}

// readPairs reads the scales of groups, and behind them what stands for nothing.
func (q *halfQuadratic) readPairs(ctx context.Context, s *slab, g, n int64) error {
	size := n * int64(q.DType.Size())
	s.raw, s.scales = resized(s.raw, 2*size), resized(s.scales, 2*n)
	if err := q.Scales.ReadAt(ctx, s.raw[:size], g*size/n); err != nil {
		return err
	}
	if err := q.Zeros.ReadAt(ctx, s.raw[size:], g*size/n); err != nil {
		return err
	}
	loadFloats(s.scales, s.raw, q.DType)
	return nil
}

// row makes a row.
func (q *halfQuadratic) row(ctx context.Context, s *slab, r int64, p []byte) error {
	width := int64(q.DType.Size())
	s.codes = resized(s.codes, q.Columns)
	if err := q.read(ctx, s, r*q.Columns, s.codes); err != nil {
		return err
	}
	if q.encoding == nil {
		s.numbers = resized(s.numbers, q.Columns)
	}
	from, groups := r*q.Columns, q.Rows*q.Columns/q.Group
	for k := int64(0); k < q.Columns; {
		// What so many groups have is read at once, and so many numbers are of them.
		g, many := (from+k)/q.Group, q.Columns-k
		read := (from+q.Columns-1)/q.Group + 1 - g
		if q.Across {
			g = (from + k) % groups
			read = min(groups-g, many)
			many = read
		}
		if err := q.readPairs(ctx, s, g, read); err != nil {
			return err
		}
		switch codes := s.codes[k:][:many]; {
		case q.Across:
			x := s.numbers[k:][:many]
			for i, c := range codes {
				x[i] = float32(c) - s.scales[read+int64(i)]
			}
			roundFloats(x, q.DType)
			for i, scale := range s.scales[:many] {
				x[i] *= scale
			}
		case q.encoding != nil:
			step := q.encoding.Elements
			for i := int64(0); i < many; i += step {
				at := ((from+k+i)/q.Group - g) * width
				q.block(p[(k+i)/step*q.encoding.Bytes:][:q.encoding.Bytes], s.raw[at:][:width], s.raw[read*width+at:][:width], codes[i:][:step])
			}
		default:
			for i := int64(0); i < many; {
				n := min(q.Group-(from+k+i)%q.Group, many-i)
				at := (from+k+i)/q.Group - g
				x := s.numbers[k+i:][:n]
				for j, c := range codes[i:][:n] {
					x[j] = float32(c)
				}
				offsetFloats(x, s.scales[at], s.scales[read+at], q.DType)
				i += n
			}
		}
		k += many
	}
	if q.encoding == nil {
		storeFloats(p, s.numbers, q.DType)
	}
	return nil
}

// block writes a block.
func (q *halfQuadratic) block(to, scale, zero, codes []byte) {
	n := copy(to, scale)
	n += copy(to[n:], zero)
	if q.Bits == 8 {
		copy(to[n:], codes)
		return
	}
	halves(to[n:], codes)
}

// read reads the codes of as many numbers as to has, from one on.
func (q *halfQuadratic) read(ctx context.Context, s *slab, from int64, to []uint8) error {
	share, bytes := q.shares()
	for len(to) > 0 {
		part, at := from/q.perUnit, from%q.perUnit
		n := min(q.perUnit-at, int64(len(to)))
		s.raw = resized(s.raw, n*bytes)
		if err := q.Codes.ReadAt(ctx, s.raw, at*bytes); err != nil {
			return err
		}
		shift := q.Bits * int(share-1-part)
		if bytes == 4 {
			threeOfWords(to[:n], s.raw, shift)
		} else {
			bitsOfBytes(to[:n], s.raw, q.Bits, shift)
		}
		to, from = to[n:], from+n
	}
	return nil
}

// threeOfWords are codes of 3 bits, of which each word has one at a shift.
func threeOfWords(to []uint8, words []byte, shift int) {
	for ; len(to) >= 4 && len(words) >= 16; to, words = to[4:], words[16:] {
		first, second := binary.LittleEndian.Uint64(words)>>(shift&63), binary.LittleEndian.Uint64(words[8:])>>(shift&63)
		binary.LittleEndian.PutUint32(
			to, uint32(first&7|first>>24&0x700)|uint32(second&7|second>>24&0x700)<<16)
	}
	for i := range to {
		to[i] = uint8(double(words[4*i:]) >> shift & 7)
	}
}

// bitsOfBytes are codes of which each byte has one at a shift.
func bitsOfBytes(to []uint8, from []byte, bits, shift int) {
	mask := uint64(1<<bits-1) * 0x0101010101010101
	for ; len(to) >= 8 && len(from) >= 8; to, from = to[8:], from[8:] {
		binary.LittleEndian.PutUint64(to, binary.LittleEndian.Uint64(from)>>(shift&63)&mask)
	}
	for i := range to {
		to[i] = from[i] >> shift & uint8(mask)
	}
}

// halfQuadraticOf is what a code stands for, rounded after each step as the library does.
func halfQuadraticOf(code uint8, scale, zero float32, dtype tensor.DType) float32 {
	return rounded(rounded(float32(code)-zero, dtype)*scale, dtype)
}

func decodeHQQ4(to []float32, b []byte, dtype tensor.DType) {
	width := dtype.Size()
	scale, zero := loadFloat(b, dtype), loadFloat(b[width:], dtype)
	var numbers [16]float32
	for c := range numbers {
		numbers[c] = halfQuadraticOf(uint8(c), scale, zero, dtype)
	}
	halfBytes(to, b[2*width:], &numbers)
}

func decodeHQQ8(to []float32, b []byte, dtype tensor.DType) {
	width := dtype.Size()
	scale, zero := loadFloat(b, dtype), loadFloat(b[width:], dtype)
	for i, c := range b[2*width:][:len(to)] {
		to[i] = halfQuadraticOf(c, scale, zero, dtype)
	}
}
