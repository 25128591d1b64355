package tensor

import (
	"context"
	"fmt"
	"io"

	"github.com/optimem/optimem/storage"
)

// maxExpandedBytes bounds the contents of a weight that has more elements than its storage.
const maxExpandedBytes = 64 << 20

// Contents reads the weight into a contiguous tensor in memory: views are gathered, bytes are brought into the
// machine's order, and the conjugate and negative bits are applied. Quantized weights stay integers.
//
// It takes memory for the elements and, of a view with gaps, for its span of the file, neither of which is larger than
// the storage. Only where strides of 0 repeat elements could a few bytes of an untrusted file stand for any size: such
// a weight is an error when it is larger than its storage and than 64 MiB.
func (w Weight) Contents(ctx context.Context) (*Tensor, error) {
	t, err := w.contents(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", w.Name, err)
	}
	return t, nil
}

func (w Weight) contents(ctx context.Context) (*Tensor, error) {
	if err := w.Check(); err != nil {
		return nil, err
	}
	span := w.Span()
	if n := w.Bytes(); n > max(w.Extent.Bytes, maxExpandedBytes) {
		return nil, fmt.Errorf("its %d bytes are repeated from a storage of %d", n, w.Extent.Bytes)
	}
	if end := span.Offset + span.Bytes; span.Bytes > 0 && (end < span.Offset || end > w.Extent.Source.Size()) {
		return nil, fmt.Errorf("%v: %w", span, io.ErrUnexpectedEOF)
	}
	raw := make([]byte, span.Bytes)
	if err := storage.Read(ctx, 0, storage.Request{Extent: span, Into: raw}); err != nil {
		return nil, err
	}
	layout := w.Layout
	layout.Offset = 0 // the span begins at the first element
	t := (&Tensor{DType: w.DType, Layout: layout, Data: raw}).Contiguous()
	if w.BigEndian == nativeLittleEndian {
		swapBytes(t.Data, w.DType.wordBytes())
	}
	if w.Conj {
		if !w.DType.complex() {
			return nil, fmt.Errorf("%w: conjugate bit on %v", ErrLayout, w.DType)
		}
		negate(t.Data, w.DType.wordBytes(), 1)
	}
	if w.Neg {
		switch w.DType {
		case Float64, Float32, Float16, BFloat16, Float8E4M3FN, Float8E5M2, Complex32, Complex64, Complex128:
			negate(t.Data, w.DType.wordBytes(), 0)
		default:
			return nil, fmt.Errorf("%w: negative bit on %v", ErrLayout, w.DType)
		}
	}
	return t, nil
}
