package encoded

import (
	"context"
	"encoding/binary"

	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
)

// Ternary is a weight of numbers that are minus one, none or one times a scale, as bitnet has it: byte k of line i has column k of the
// rows i, i + lines, i + 2 lines and i + 3 lines in its bits, the lowest first, two for each: 0, 1 and 2. Numbers are float32.
type Ternary struct {
	// Rows are a multiple of four.
	Rows, Columns int64
	Codes         storage.Extent
	// Scale is one number of ScaleDType. Divides says that numbers are divided by it.
	Scale      storage.Extent
	ScaleDType tensor.DType
	Divides    bool
}

// Matrix returns the weight as what its rows are made of, and the encoding of the blocks that they are; nil where no blocks fit,
// and the rows are float32.
func (t Ternary) Matrix() (Matrix, *Encoding) {
	rowBytes := t.Columns * 4
	e, ok := ownEncoding("INT4", t.Columns, t.Columns, tensor.Float32)
	if ok {
		rowBytes = t.Columns / e.Elements * e.Bytes
	} else {
		e = nil
	}
	const threes = 0x0303030303030303
	fill := func(ctx context.Context, first, n int64, p []byte) error {
		s := slabs.Get().(*slab)
		defer slabs.Put(s)
		s.raw = resized(s.raw, max(t.Columns, 4))
		raw := s.raw[:t.ScaleDType.Size()]
		if err := t.Scale.ReadAt(ctx, raw, 0); err != nil {
			return err
		}
		scale := loadFloat(raw, t.ScaleDType)
		if t.Divides {
			scale = 1 / scale
		}
		codes, lines := s.raw[:t.Columns], t.Rows/4
		for r := range n {
			if err := t.Codes.ReadAt(ctx, codes, (first+r)%lines*t.Columns); err != nil {
				return err
			}
			shift, row := (first+r)/lines*2, p[r*rowBytes:][:rowBytes]
			if e == nil {
				s.numbers = resized(s.numbers, t.Columns)
				for k, c := range codes {
					s.numbers[k] = float32(int(c>>shift&3)-1) * scale
				}
				storeFloats(row, s.numbers, tensor.Float32)
			}
			for b := int64(0); e != nil && b < t.Columns/e.Elements; b++ {
				to, from := row[b*e.Bytes:][:e.Bytes], codes[b*e.Elements:][:e.Elements]
				putFloat(to, scale, tensor.Float32)
				to[4] = 1
				low, high := from[:e.Elements/2], from[e.Elements/2:]
				for i := 0; i < len(low); i += 8 {
					x := binary.LittleEndian.Uint64(low[i:])>>shift&threes | binary.LittleEndian.Uint64(high[i:])>>shift&threes<<4
					binary.LittleEndian.PutUint64(to[5+i:], x)
				}
			}
		}
		return nil
	}
	return Matrix{Rows: t.Rows, RowBytes: rowBytes, Parts: []storage.Extent{t.Codes, t.Scale}, SlabRows: t.Rows,
		Fill: fill}, e
}
