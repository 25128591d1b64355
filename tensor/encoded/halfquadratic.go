package encoded

import (
	"context"

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
	for r := range n {
		if err := q.row(ctx, s, first+r, p[r*q.rowBytes:][:q.rowBytes]); err != nil {
			return err
		}
	}
	return nil
}

// row makes a row.
func (q *halfQuadratic) row(ctx context.Context, s *slab, r int64, p []byte) error {
	width := int64(q.DType.Size())
	s.zeros = resized(s.zeros, q.Columns)
	if err := q.codes(ctx, s, r*q.Columns, s.zeros); err != nil {
		return err
	}
	codes := s.zeros
	// What a group has is read for each number, or for each block.
	step := int64(1)
	if q.encoding != nil {
		step = q.encoding.Elements
	}
	groups := q.Rows * q.Columns / q.Group
	for k := int64(0); k < q.Columns; {
		e := r*q.Columns + k
		g, many := e/q.Group, min(q.Group-e%q.Group, q.Columns-k) // numbers of this group
		read := int64(1)
		if q.Across {
			g = e % groups
			read = min(groups-g, q.Columns-k) // groups, of a number each
			many = read
		}
		s.raw = resized(s.raw, 2*read*width)
		scales, zeros := s.raw[:read*width], s.raw[read*width:]
		if err := q.Scales.ReadAt(ctx, scales, g*width); err != nil {
			return err
		}
		if err := q.Zeros.ReadAt(ctx, zeros, g*width); err != nil {
			return err
		}
		for i := int64(0); i < many; i += step {
			at := int64(0)
			if q.Across {
				at = i * width
			}
			if q.encoding != nil {
				q.block(p[(k+i)/step*q.encoding.Bytes:][:q.encoding.Bytes], scales, zeros, codes[k+i:][:step])
				continue
			}
			x := halfQuadraticOf(codes[k+i], loadFloat(scales[at:], q.DType), loadFloat(zeros[at:], q.DType), q.DType)
			storeFloat(p[(k+i)*width:], x, q.DType)
		}
		k += many
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
	half := len(codes) / 2
	for i := range half {
		to[n+i] = codes[i] | codes[half+i]<<4
	}
}

// codes reads those of as many numbers as to has, from one on.
func (q *halfQuadratic) codes(ctx context.Context, s *slab, from int64, to []uint8) error {
	share, bytes := q.shares()
	for len(to) > 0 {
		part, at := from/q.perUnit, from%q.perUnit
		n := min(q.perUnit-at, int64(len(to)))
		s.raw = resized(s.raw, n*bytes)
		if err := q.Codes.ReadAt(ctx, s.raw, at*bytes); err != nil {
			return err
		}
		shift := int64(q.Bits) * (share - 1 - part)
		for i := range n {
			if bytes == 4 {
				to[i] = uint8(double(s.raw[4*i:]) >> shift & 7)
			} else {
				to[i] = s.raw[i] >> shift & (1<<q.Bits - 1)
			}
		}
		to, from = to[n:], from+n
	}
	return nil
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
