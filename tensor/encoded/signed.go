package encoded

import (
	"context"

	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
)

// Signed8 is a weight of bytes with a sign, [row][column], with a scale for each Group of columns, [row][group],
// float32. Numbers are rounded to DType.
type Signed8 struct {
	Rows, Columns, Group int64
	Codes, Scales        storage.Extent
	// Of127 says that a scale is what 127 stands for, as bitsandbytes' LLM.int8 has it; else it is what 1 does, as
	// torchao has it.
	Of127 bool
	// Whole says that one scale is for all rows; Group is then Columns.
	Whole bool
	DType tensor.DType
}

// Matrix returns the weight as what its rows are made of, and the encoding of the blocks that they are; nil where no
// blocks fit, and the rows are numbers of DType.
func (l Signed8) Matrix() (Matrix, *Encoding) {
	kind, numbers := "SINT8", signed8
	if l.Of127 {
		kind, numbers = "LLMINT8", llmInt8
	}
	rowBytes, groups := l.Columns*int64(l.DType.Size()), (l.Columns+l.Group-1)/l.Group
	e, ok := ownEncoding(kind, l.Group, l.Columns, l.DType)
	if ok {
		rowBytes = l.Columns / e.Elements * e.Bytes
	} else {
		e = nil
	}
	fill := func(ctx context.Context, first, n int64, p []byte) error {
		s := slabs.Get().(*slab)
		defer slabs.Put(s)
		s.raw = resized(s.raw, l.Columns+4*groups)
		s.numbers = resized(s.numbers, l.Columns)
		for r := range n {
			codes, scales, row := s.raw[:l.Columns], s.raw[l.Columns:], p[r*rowBytes:][:rowBytes]
			if err := l.Codes.ReadAt(ctx, codes, (first+r)*l.Columns); err != nil {
				return err
			}
			at := (first + r) * 4 * groups
			if l.Whole {
				at = 0
			}
			if err := l.Scales.ReadAt(ctx, scales, at); err != nil {
				return err
			}
			for b := int64(0); e != nil && b < l.Columns/e.Elements; b++ {
				copy(row[b*e.Bytes:], scales[b*e.Elements/l.Group*4:][:4])
				copy(row[b*e.Bytes+4:], codes[b*e.Elements:][:e.Elements])
			}
			for g := int64(0); e == nil && g < groups; g++ {
				from, end := g*l.Group, min((g+1)*l.Group, l.Columns)
				numbers(s.numbers[from:end], codes[from:end], loadFloat(scales[4*g:], tensor.Float32))
			}
			if e == nil {
				storeFloats(row, s.numbers, l.DType)
			}
		}
		return nil
	}
	return Matrix{Rows: l.Rows, RowBytes: rowBytes, Parts: []storage.Extent{l.Codes, l.Scales}, SlabRows: l.Rows,
		Fill: fill}, e
}
