package encoded

import (
	"context"
	"encoding/binary"

	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
)

// LLMInt8 is a weight of bitsandbytes' LLM.int8: bytes with a sign, [row][column], and for each row what 127 stands for, float32.
// Numbers are rounded to DType.
type LLMInt8 struct {
	Rows, Columns int64
	Codes, Scales storage.Extent
	DType         tensor.DType
}

// Matrix returns the weight as what its rows are made of, and the encoding of the blocks that they are; nil where no blocks fit,
// and the rows are numbers of DType.
func (l LLMInt8) Matrix() (Matrix, *Encoding) {
	rowBytes := l.Columns * int64(l.DType.Size())
	e, ok := ownEncoding("LLMINT8", l.Columns, l.Columns, l.DType)
	if ok {
		rowBytes = l.Columns / e.Elements * e.Bytes
	} else {
		e = nil
	}
	fill := func(ctx context.Context, first, n int64, p []byte) error {
		s := slabs.Get().(*slab)
		defer slabs.Put(s)
		s.raw = resized(s.raw, l.Columns+4)
		var block [4 + 1]byte
		var number [1]float32
		for r := range n {
			codes, scale, row := s.raw[:l.Columns], s.raw[l.Columns:], p[r*rowBytes:][:rowBytes]
			if err := l.Codes.ReadAt(ctx, codes, (first+r)*l.Columns); err != nil {
				return err
			}
			if err := l.Scales.ReadAt(ctx, scale, (first+r)*4); err != nil {
				return err
			}
			for b := int64(0); e != nil && b < l.Columns/e.Elements; b++ {
				binary.LittleEndian.PutUint32(row[b*e.Bytes:], double(scale))
				copy(row[b*e.Bytes+4:], codes[b*e.Elements:][:e.Elements])
			}
			for k := int64(0); e == nil && k < l.Columns; k++ {
				copy(block[:], scale)
				block[4] = codes[k]
				decodeLLMInt8(number[:], block[:], l.DType)
				storeFloat(row[k*int64(l.DType.Size()):], number[0], l.DType)
			}
		}
		return nil
	}
	return Matrix{Rows: l.Rows, RowBytes: rowBytes, Parts: []storage.Extent{l.Codes, l.Scales}, SlabRows: l.Rows, Fill: fill}, e
}
