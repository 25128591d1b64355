package encoded

import (
	"context"
	"fmt"

	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
)

// A Rule says what a code, a scale and a zero point make, and where it is rounded.
type Rule uint8

// The rules. Middle is 2^(bits−1).
const (
	// OffsetInteger is round((code − zero) × scale), of torchao's integers; where codes have a sign, zeros do.
	OffsetInteger Rule = iota
	// OffsetFloat is round(round(code − zero) × scale), of torchao's integers with zero points that need not be whole.
	OffsetFloat
	// MiddleFloat is round(round((code − middle) × scale) + zero), of torchao's weights for tinygemm.
	MiddleFloat
	// PlainFloat is round(float32(code × scale) + zero), of MLX.
	PlainFloat
)

// Affine is a weight of Rows by Columns whose codes lie in the bits of bytes, with a scale and a zero point for each Group of
// columns.
//
// Code k of a row is in its bits k × Bits and following, of bytes of which the first bit is the least: so are words that lie in
// memory. With Tiles they lie as tinygemm's kernels for tensor cores read them: see [Affine.tiled]. Numbers are rounded to DType.
type Affine struct {
	Rows, Columns, Group int64
	Bits                 int // 2, 4 or 8
	// Signed says that codes are complements of two.
	Signed bool
	Rule   Rule
	// Codes are [row][column]. Of Tiles a row has Wide of them, a multiple of 128, of which Columns count.
	Codes storage.Extent
	Tiles bool
	Wide  int64
	// Scales are of ScaleDType and Zeros of ZeroDType: [row][group], or [group][row] where ByGroup, with GroupRows rows. Where
	// Paired, a scale and its zero are neighbours in Scales. There may be no Zeros: all are none.
	Scales, Zeros         storage.Extent
	ScaleDType, ZeroDType tensor.DType
	ByGroup, Paired       bool
	GroupRows             int64
	DType                 tensor.DType
}

// middle is the code that stands for nothing where codes are around it, and for codes with a sign.
func (a *Affine) middle() int { return 1 << (a.Bits - 1) }

// Matrix returns the weight as what its rows are made of, and the encoding of the blocks that they are; nil where no blocks fit,
// and the rows are numbers of DType.
func (a Affine) Matrix() (Matrix, *Encoding) {
	if a.Wide == 0 {
		a.Wide = a.Columns
	}
	if a.GroupRows == 0 {
		a.GroupRows = a.Rows
	}
	x := affine{Affine: a, rowBytes: a.Columns * int64(a.DType.Size())}
	kind := map[Rule]string{OffsetInteger: "INT", OffsetFloat: "none", MiddleFloat: "MID", PlainFloat: "MLX"}[a.Rule]
	if a.Bits == 8 {
		kind += "8"
	} else {
		kind += "4"
	}
	if e, ok := ownEncoding(kind, a.Group, a.Columns, a.DType); ok && a.ScaleDType == a.DType {
		x.encoding, x.rowBytes = e, a.Columns/e.Elements*e.Bytes
	}
	m := Matrix{Rows: a.Rows, RowBytes: x.rowBytes, Fill: x.fill}
	m.SlabRows = max(fillBytes/(8*x.groups())/8*8, 8)
	for _, e := range []storage.Extent{a.Codes, a.Scales, a.Zeros} {
		if e.Bytes > 0 {
			m.Parts = append(m.Parts, e)
		}
	}
	return m, x.encoding
}

// An affine is an Affine as a matrix is made of it.
type affine struct {
	Affine
	encoding *Encoding
	rowBytes int64
}

func (a *affine) groups() int64 { return (a.Columns + a.Group - 1) / a.Group }

func (a *affine) fill(ctx context.Context, first, n int64, p []byte) error {
	s := slabs.Get().(*slab)
	defer slabs.Put(s)
	scales, zeros, err := a.readScales(ctx, s, first, n)
	if err != nil {
		return err
	}
	s.codes, s.numbers = resized(s.codes, a.Columns), resized(s.numbers, a.Columns)
	for r := range n {
		if err := a.codes(ctx, s, first+r, r == 0, s.codes); err != nil {
			return err
		}
		row := p[r*a.rowBytes:][:a.rowBytes]
		if e := a.encoding; e != nil {
			for b := range a.Columns / e.Elements {
				at := b*e.Elements/a.Group*n + r
				if err := a.block(row[b*e.Bytes:][:e.Bytes], scales[at], zeros[at],
					s.codes[b*e.Elements:][:e.Elements]); err != nil {
					return fmt.Errorf("row %d: %w", first+r, err)
				}
			}
			continue
		}
		for k := int64(0); k < a.Columns; k += a.Group {
			end, at := min(k+a.Group, a.Columns), k/a.Group*n+r
			a.numbers(s.numbers[k:end], s.codes[k:end], scales[at], zeros[at])
		}
		storeFloats(row, s.numbers, a.DType)
	}
	return nil
}

// numbers are what codes of a group, without a sign, stand for, before the last rounding.
func (a *affine) numbers(to []float32, codes []uint8, scale, zero float32) {
	least := float32(0)
	if a.Signed || a.Rule == MiddleFloat {
		least = float32(a.middle())
	}
	for i, c := range codes {
		to[i] = float32(c) - least
	}
	switch a.Rule {
	case OffsetFloat:
		offsetFloats(to, scale, zero, a.DType)
	case MiddleFloat:
		for i := range to {
			to[i] *= scale
		}
		roundFloats(to, a.DType)
		for i := range to {
			to[i] += zero
		}
	case PlainFloat:
		for i := range to {
			to[i] = float32(to[i]*scale) + zero
		}
	default:
		for i := range to {
			to[i] = (to[i] - zero) * scale
		}
	}
}

// middleOf and plainOf are what codes of blocks stand for, rounded after each step as the libraries do.
func middleOf(code, scale, zero float32, dtype tensor.DType) float32 {
	return rounded(rounded(code*scale, dtype)+zero, dtype)
}

func plainOf(code, scale, zero float32, dtype tensor.DType) float32 {
	return rounded(float32(code*scale)+zero, dtype)
}

// block writes a block.
func (a *affine) block(to []byte, scale, zero float32, codes []uint8) error {
	width := a.DType.Size()
	putFloat(to, scale, a.DType)
	n := 2 * width
	if a.Rule == OffsetInteger {
		if a.Signed {
			zero += float32(a.middle())
		}
		if zero < 0 || zero >= float32(int(1)<<a.codeBits()) {
			return fmt.Errorf("a zero point of %v, which no code of %d bits is", zero, a.Bits)
		}
		n = width + 1
		to[width] = uint8(zero)
	} else {
		putFloat(to[width:], zero, a.DType)
	}
	if a.Bits == 8 {
		copy(to[n:], codes)
		return nil
	}
	halves(to[n:], codes)
	return nil
}

// codeBits are those that a code has in a block.
func (a *affine) codeBits() int { return max(a.Bits, 4) }

// readScales reads the scales and zeros of rows [first, first+n): [group][row].
func (a *affine) readScales(ctx context.Context, s *slab, first, n int64) (scales, zeros []float32, err error) {
	groups, width := a.groups(), int64(a.ScaleDType.Size())
	s.scales = resized(s.scales, 2*groups*n)
	scales, zeros = s.scales[:groups*n], s.scales[groups*n:]
	read := func(from storage.Extent, size int64, each func(g, r int64, b []byte)) error {
		lines, long, at := n, groups, func(l int64) int64 { return (first + l) * groups }
		if a.ByGroup {
			lines, long, at = groups, n, func(l int64) int64 { return l*a.GroupRows + first }
		}
		s.raw = resized(s.raw, long*size)
		for l := range lines {
			if err := from.ReadAt(ctx, s.raw, at(l)*size); err != nil {
				return err
			}
			for i := range long {
				g, r := i, l
				if a.ByGroup {
					g, r = l, i
				}
				each(g, r, s.raw[i*size:][:size])
			}
		}
		return nil
	}
	clear(zeros)
	size := width
	if a.Paired {
		size = 2 * width
	}
	err = read(a.Scales, size, func(g, r int64, b []byte) {
		scales[g*n+r] = loadFloat(b, a.ScaleDType)
		if a.Paired {
			zeros[g*n+r] = loadFloat(b[width:], a.ScaleDType)
		}
	})
	if err != nil || a.Zeros.Bytes == 0 {
		return scales, zeros, err
	}
	return scales, zeros, read(a.Zeros, int64(a.ZeroDType.Size()), func(g, r int64, b []byte) {
		if a.ZeroDType == tensor.Int8 {
			zeros[g*n+r] = float32(int8(b[0]))
			return
		}
		zeros[g*n+r] = loadFloat(b, a.ZeroDType)
	})
}

// codes reads a row's, without a sign. anew says that no row of its tile was read before.
func (a *affine) codes(ctx context.Context, s *slab, row int64, anew bool, to []uint8) error {
	if a.Tiles {
		return a.tiled(ctx, s, row, anew || row%tileRows == 0, to)
	}
	size := a.Columns * int64(a.Bits) / 8
	s.raw = resized(s.raw, size)
	if err := a.Codes.ReadAt(ctx, s.raw, row*size); err != nil {
		return err
	}
	switch {
	case a.Bits == 8:
		copy(to, s.raw)
	default:
		whole := len(to) / (32 / a.Bits) * (32 / a.Bits)
		strided32{s.raw, 4}.codes(a.Bits, to[:whole])
		for per, k := 8/a.Bits, whole; k < len(to); k++ {
			to[k] = s.raw[k/per] >> (k % per * a.Bits) & (1<<a.Bits - 1)
		}
	}
	if a.Signed {
		flip(to, uint8(a.middle()))
	}
	return nil
}

const (
	tileRows    = 8
	tileColumns = 128 // of which four lanes of a row have 32 each, in four words
)

// tiledPlaces are the columns of a word's half bytes, from the lowest on, from the first of its lane on.
var tiledPlaces = [8]int64{0, 8, 16, 24, 1, 9, 17, 25}

// tiled reads the codes of a row where eight rows have tiles of 128 columns, [row ÷ 8][column ÷ 128][lane][word]: the lanes 4i to 4i + 3
// are of row i, word w of lane l has the columns 32w + 2l, and those 1, 8, 9, 16, 17, 24 and 25 behind.
func (a *affine) tiled(ctx context.Context, s *slab, row int64, anew bool, to []uint8) error {
	size := tileRows * a.Wide / 2
	s.raw = resized(s.raw, size)
	if anew {
		if err := a.Codes.ReadAt(ctx, s.raw, row/tileRows*size); err != nil {
			return err
		}
	}
	for tile := int64(0); tile*tileColumns < int64(len(to)); tile++ {
		lanes := s.raw[(tile*tileRows+row%tileRows)*tileColumns/2:][:tileColumns/2]
		for i := range int64(16) {
			word := double(lanes[4*i:])
			for c, place := range tiledPlaces {
				if k := tile*tileColumns + i%4*32 + i/4*2 + place; k < int64(len(to)) {
					to[k] = uint8(word >> (4 * c) & 15)
				}
			}
		}
	}
	return nil
}

func decodeMiddle4(to []float32, b []byte, dtype tensor.DType) {
	width := dtype.Size()
	scale, zero := loadFloat(b, dtype), loadFloat(b[width:], dtype)
	var numbers [16]float32
	for c := range numbers {
		numbers[c] = middleOf(float32(c-8), scale, zero, dtype)
	}
	halfBytes(to, b[2*width:], &numbers)
}

func decodePlain4(to []float32, b []byte, dtype tensor.DType) {
	width := dtype.Size()
	scale, zero := loadFloat(b, dtype), loadFloat(b[width:], dtype)
	var numbers [16]float32
	for c := range numbers {
		numbers[c] = plainOf(float32(c), scale, zero, dtype)
	}
	halfBytes(to, b[2*width:], &numbers)
}

func decodePlain8(to []float32, b []byte, dtype tensor.DType) {
	width := dtype.Size()
	scale, zero := loadFloat(b, dtype), loadFloat(b[width:], dtype)
	for i, c := range b[2*width:][:len(to)] {
		to[i] = plainOf(float32(c), scale, zero, dtype)
	}
}
