package tensor

import (
	"fmt"

	"github.com/optimem/optimem/storage"
)

// A Weight is a named tensor that has not been read. Its extent is the whole storage that it is a view of, so two
// weights share storage exactly when their extents overlap; Layout counts elements from the extent's start.
type Weight struct {
	Name   string
	DType  DType
	Layout Layout
	Extent storage.Extent
	// BigEndian is set when the file stores multi-byte elements in the other order. Nothing is converted on reading.
	BigEndian bool
	// Conj and Neg are PyTorch's lazy conjugate and negative bits: the values are those in the file, conjugated or
	// negated.
	Conj, Neg bool
	// Quant is set for quantized dtypes.
	Quant *Quant
}

// A Quant maps the integers q of a quantized weight to real numbers: (q − zero point) × scale.
type Quant struct {
	// Scheme is PyTorch's name, such as "per_tensor_affine" or "per_channel_affine".
	Scheme string
	// Scale and ZeroPoint hold for the whole tensor in the per-tensor schemes.
	Scale     float64
	ZeroPoint int64
	// Scales and ZeroPoints name one value per index of dimension Axis in the per-channel schemes.
	Scales, ZeroPoints *Weight
	Axis               int
}

// NumElements returns the number of elements of the weight, which a loader has checked to fit.
func (w Weight) NumElements() int64 {
	n, err := w.Layout.NumElements()
	if err != nil {
		panic("BUG: weight " + w.Name + ": " + err.Error())
	}
	return n
}

// Bytes returns the size of the weight's elements, which is less than its extent's for a view of a larger storage.
func (w Weight) Bytes() int64 { return w.NumElements() * int64(w.DType.Size()) }

// SharesStorage reports whether both weights are views of the same bytes of the same file. An empty storage has none.
func (w Weight) SharesStorage(v Weight) bool {
	a, b := w.Extent, v.Extent
	return a.Source == b.Source && a.Bytes > 0 && b.Bytes > 0 &&
		a.Offset < b.Offset+b.Bytes && b.Offset < a.Offset+a.Bytes
}

// Span returns the bytes of the file that hold the weight's elements, the gaps of a strided view included.
func (w Weight) Span() storage.Extent {
	first, end, err := w.Layout.Span()
	if err != nil {
		panic("BUG: weight " + w.Name + ": " + err.Error())
	}
	size := int64(w.DType.Size())
	return storage.Extent{Source: w.Extent.Source, Offset: w.Extent.Offset + first*size, Bytes: (end - first) * size}
}

// Check reports whether every element of the weight lies inside its extent. Loaders call it on every weight; a weight
// that fails it never leaves them.
func (w Weight) Check() error {
	_, end, err := w.Layout.Span()
	if err != nil {
		return err
	}
	size := int64(w.DType.Size())
	if size == 0 {
		return fmt.Errorf("%w: no dtype", ErrLayout)
	}
	if n, err := w.Layout.NumElements(); err != nil {
		return err
	} else if _, ok := MulBytes(n, size); !ok {
		return fmt.Errorf("%w: shape %v of %v takes more than 2^63 bytes", ErrLayout, w.Layout.Shape, w.DType)
	} else if n == 0 {
		return nil
	}
	need, ok := MulBytes(end, size)
	if !ok || need > w.Extent.Bytes {
		return fmt.Errorf("%w: shape %v, strides %v, offset %d of %v need %d bytes of a storage of %d",
			ErrLayout, w.Layout.Shape, w.Layout.Strides, w.Layout.Offset, w.DType, need, w.Extent.Bytes)
	}
	return nil
}
