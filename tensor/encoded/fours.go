package encoded

import (
	"context"
	"encoding/binary"
	"math"

	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
)

// Fours are a weight of Rows by Columns whose codes are numbers of 4 bits, E2M1, as compressed-tensors has NVFP4 and
// MXFP4: byte i of a row has number 2i in its low half and 2i + 1 in its high one. Each Group numbers of a row have a
// scale, [row][group], a byte: float8_e4m3fn, divided by Global, or, where Powers says so, a power of two.
//
// Numbers are rounded to DType.
type Fours struct {
	Rows, Columns, Group int64
	Codes, Scales        storage.Extent
	Powers               bool
	// Global divides scales, 0 for not.
	Global float32
	DType  tensor.DType
}

// tableE2M1 is what codes of 4 bits with two of an exponent and one behind the point stand for.
var tableE2M1 = [16]float32{0, 0.5, 1, 1.5, 2, 3, 4, 6, float32(math.Copysign(0, -1)), -0.5, -1, -1.5, -2, -3, -4, -6}

// powerOfTwo is what a byte of an exponent stands for.
func powerOfTwo(code uint8) float32 { return float32(math.Ldexp(1, int(code)-127)) }

// Matrix returns the weight as what its rows are made of, and the encoding of the blocks that they are; nil where no
// blocks fit, and the rows are numbers of DType.
func (f Fours) Matrix() (Matrix, *Encoding) {
	x := fours{Fours: f, rowBytes: f.Columns * int64(f.DType.Size())}
	e, ok := ownEncoding("E2M1", f.Group, f.Columns, f.DType)
	if f.Group == 16 { // the low halves of a block's bytes are of one group, the high ones of the next
		e, ok = ownEncoding("E2M1PAIR", 2*f.Group, f.Columns, f.DType)
	}
	if ok {
		x.encoding, x.rowBytes = e, f.Columns/e.Elements*e.Bytes
	}
	return Matrix{
		Rows: f.Rows, RowBytes: x.rowBytes, Parts: []storage.Extent{f.Codes, f.Scales}, SlabRows: f.Rows, Fill: x.fill,
	}, x.encoding
}

// fours are Fours as a matrix is made of them.
type fours struct {
	Fours
	encoding *Encoding
	rowBytes int64
}

func (f *fours) scale(code uint8) float32 {
	if f.Powers {
		return powerOfTwo(code)
	}
	x := tensor.Float8ToFloat32(tensor.Float8E4M3FN, code)
	if f.Global != 0 {
		x /= f.Global
	}
	return x
}

func (f *fours) fill(ctx context.Context, first, n int64, p []byte) error {
	s := slabs.Get().(*slab)
	defer slabs.Put(s)
	wide, groups := f.Columns/2, f.Columns/f.Group
	s.raw = resized(s.raw, wide+groups)
	for r := range n {
		codes, scales, row := s.raw[:wide], s.raw[wide:], p[r*f.rowBytes:][:f.rowBytes]
		if err := f.Codes.ReadAt(ctx, codes, (first+r)*wide); err != nil {
			return err
		}
		if err := f.Scales.ReadAt(ctx, scales, (first+r)*groups); err != nil {
			return err
		}
		if e := f.encoding; e != nil {
			for b := range f.Columns / e.Elements {
				f.block(row[b*e.Bytes:][:e.Bytes], codes[b*e.Elements/2:], scales[b*e.Elements/f.Group:])
			}
			continue
		}
		s.numbers = resized(s.numbers, f.Columns)
		for k := int64(0); k < f.Columns; {
			scale, end := f.scale(scales[k/f.Group]), min((k/f.Group+1)*f.Group, f.Columns)
			for ; k < end; k++ {
				s.numbers[k] = tableE2M1[codes[k/2]>>(k%2*4)&15] * scale
			}
		}
		storeFloats(row, s.numbers, f.DType)
	}
	return nil
}

// block makes a block, whose low halves are of its first numbers.
func (f *fours) block(to, codes, scales []byte) {
	head, half := int64(4), f.encoding.Elements/2
	binary.LittleEndian.PutUint32(to, math.Float32bits(f.scale(scales[0])))
	if f.Group < f.encoding.Elements {
		binary.LittleEndian.PutUint32(to[4:], math.Float32bits(f.scale(scales[1])))
		head = 8
	}
	low, high := codes[:half/2], codes[half/2:half]
	for i := 0; i < len(low); i += 4 {
		x := spread(binary.LittleEndian.Uint32(low[i:])) | spread(binary.LittleEndian.Uint32(high[i:]))<<4
		binary.LittleEndian.PutUint64(to[head+2*int64(i):], x)
	}
}

// decodeE2M1Pair is for two scales, of the low halves and of the high ones.
func decodeE2M1Pair(to []float32, b []byte, dtype tensor.DType) {
	low, high := loadFloat(b, tensor.Float32), loadFloat(b[4:], tensor.Float32)
	codes := b[8:]
	for i, c := range codes {
		to[i] = rounded(tableE2M1[c&15]*low, dtype)
		to[len(codes)+i] = rounded(tableE2M1[c>>4]*high, dtype)
	}
}
