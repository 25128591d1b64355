package encoded

import (
	"context"
	"encoding/binary"
	"math"

	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
)

// Nested are a weight of bitsandbytes: codes of 4 bits, the first of two in the high half of a byte, all rows one behind the
// other, with a scale for every Block numbers. Scales are float32, or, with Scales8, bytes: number Map[byte] × Scales[byte's index ÷
// NestedBlock] + Offset.
type Nested struct {
	Rows, Columns, Block int64
	// Kind is "NF4" or "FP4".
	Kind          string
	Codes, Scales storage.Extent
	Scales8       storage.Extent
	NestedBlock   int64
	Map           [256]float32
	Offset        float32
	// DType is what numbers are rounded to.
	DType tensor.DType
}

// Matrix returns the weight as what its rows are made of, and the encoding of the blocks that they are, false where no blocks fit.
func (w Nested) Matrix() (Matrix, *Encoding, bool) {
	e, ok := ownEncoding(w.Kind, w.Block, w.Columns, w.DType)
	if !ok {
		return Matrix{}, nil, false
	}
	x := nested{w, e}
	m := Matrix{
		Rows: w.Rows, RowBytes: w.Columns / e.Elements * e.Bytes, Parts: []storage.Extent{w.Codes, w.Scales},
		SlabRows: max(fillBytes/w.Columns, 1), Fill: x.fill,
	}
	if w.Scales8.Bytes > 0 {
		m.Parts = append(m.Parts, w.Scales8)
	}
	return m, e, true
}

// nested are Nested as a matrix is made of them.
type nested struct {
	Nested
	encoding *Encoding
}

func (w *nested) fill(ctx context.Context, first, n int64, p []byte) error {
	s := slabs.Get().(*slab)
	defer slabs.Put(s)
	from, count := first*w.Columns, n*w.Columns // numbers
	if err := w.readScales(ctx, s, from/w.Block, (from+count+w.Block-1)/w.Block); err != nil {
		return err
	}
	s.raw = resized(s.raw, count/2)
	if err := w.Codes.ReadAt(ctx, s.raw, from/2); err != nil {
		return err
	}
	e := w.encoding
	half := int(e.Elements / 2)
	for b := range count / e.Elements {
		codes, block := s.raw[b*e.Elements/2:][:half], p[b*e.Bytes:][:e.Bytes]
		binary.LittleEndian.PutUint32(block, math.Float32bits(s.scales[(from+b*e.Elements)/w.Block-from/w.Block]))
		to, low, high := block[4:], codes[:half/2], codes[half/2:]
		for i := 0; i < len(low); i += 4 {
			binary.LittleEndian.PutUint64(to[2*i:], spread(swapped(low[i:]))|spread(swapped(high[i:]))<<4)
		}
	}
	return nil
}

// swapped is a word whose bytes have their high halves first.
func swapped(b []byte) uint32 {
	x := binary.LittleEndian.Uint32(b)
	return x>>4&0x0f0f0f0f | x&0x0f0f0f0f<<4
}

// readScales reads the scales of blocks [first, end).
func (w *nested) readScales(ctx context.Context, s *slab, first, end int64) error {
	s.scales = resized(s.scales, end-first)
	if w.Scales8.Bytes == 0 {
		s.raw = resized(s.raw, 4*(end-first))
		if err := w.Scales.ReadAt(ctx, s.raw, 4*first); err != nil {
			return err
		}
		for i := range s.scales {
			s.scales[i] = loadFloat(s.raw[4*i:], tensor.Float32)
		}
		return nil
	}
	low, high := first/w.NestedBlock, (end+w.NestedBlock-1)/w.NestedBlock
	s.raw = resized(s.raw, end-first+4*(high-low))
	codes, scales := s.raw[:end-first], s.raw[end-first:]
	if err := w.Scales8.ReadAt(ctx, codes, first); err != nil {
		return err
	}
	if err := w.Scales.ReadAt(ctx, scales, 4*low); err != nil {
		return err
	}
	for i, c := range codes {
		scale := loadFloat(scales[4*((first+int64(i))/w.NestedBlock-low):], tensor.Float32)
		s.scales[i] = float32(w.Map[c]*scale) + w.Offset
	}
	return nil
}
