package tensor

import (
	"context"
	"errors"
	"fmt"
)

// A Source answers positional reads. ReadAt fills p from offset off or fails: it never returns fewer bytes without an
// error. Implementations are safe for parallel use and return promptly with ctx's error once ctx is done.
type Source interface {
	ReadAt(ctx context.Context, p []byte, off int64) error
	// Size is the number of bytes that can be read.
	Size() int64
}

// A BulkSource can also fill large aligned buffers without leaving a second copy of the bytes in the page cache.
//
// off, len(p) and the address of p are multiples of 4096, except that the last read may reach past the end of the
// source: the bytes of p after Size are then undefined, and no error is returned. Bytes that the operating system
// already holds are copied from there.
type BulkSource interface {
	Source
	ReadBulk(ctx context.Context, p []byte, off int64) error
}

// A QueuedSource is a BulkSource whose reads can also go on without anybody who waits for them.
type QueuedSource interface {
	BulkSource
	// Queue returns room for n reads that are under way, or an error where the host or the file does not have such reads.
	Queue(n int) (ReadQueue, error)
}

// A ReadQueue has reads under way that take no thread. One goroutine may use it at a time.
type ReadQueue interface {
	// Begin begins to fill p as ReadBulk does. number, less than n, names the read and is free again once Wait has returned
	// it; p must not be touched before. Begin reports false where it did not begin: ReadBulk is what to use then, because
	// it finds the bytes in memory, or says what is wrong. The disk may not know of the read until Flush or Wait is called.
	Begin(number int, p []byte, off int64) bool
	// Flush tells the disk of the reads that were begun, all at once, which takes less time than one by one.
	Flush()
	// Wait returns the number of a read that has ended, and whether p is filled; where it is not, ReadBulk says why. There
	// must be one under way. The error is that of ctx, which was looked at only where none had ended yet, or says that there
	// is no use in waiting.
	Wait(ctx context.Context) (number int, filled bool, err error)
	// Close waits for all reads to end and gives the room back. A second Close returns nil.
	Close() error
}

// A MemorySource lies in memory: weights that an embedder has there already, or a file that it has mapped. Devices that
// can copy from there do, and neither read it nor keep a copy.
type MemorySource interface {
	Source
	// Memory returns all bytes. They stay where they are, and nobody changes them, as long as anything of the source is in
	// use.
	Memory() []byte
}

// A CachedSource knows how many of its bytes the host holds in memory, from where they are read faster.
type CachedSource interface {
	Source
	// CachedBytes returns how many of n bytes from an offset on it holds, false where that cannot be found out.
	CachedBytes(off, n int64) (int64, bool)
}

// A Guarded source knows whether its bytes may have changed since it was opened.
type Guarded interface {
	Source
	// Unchanged returns nil, or an error that names the source and wraps [ErrChanged].
	Unchanged() error
}

// ErrChanged says that a source is not what it was when it was opened.
var ErrChanged = errors.New("has changed since it was opened")

// An Extent is a run of bytes in a source: what a pager moves.
type Extent struct {
	Source Source
	Offset int64
	Bytes  int64
}

// ReadAt fills p from offset off within the extent.
func (e Extent) ReadAt(ctx context.Context, p []byte, off int64) error {
	if off < 0 || int64(len(p)) > e.Bytes-off {
		return fmt.Errorf("read of %d bytes at %d lies outside an extent of %d bytes", len(p), off, e.Bytes)
	}
	if len(p) == 0 {
		return ctx.Err()
	}
	return e.Source.ReadAt(ctx, p, e.Offset+off)
}

// A Weight is a named tensor that has not been read. Its extent is the whole storage that it is a view of, so two
// weights share storage exactly when their extents overlap; Layout counts elements from the extent's start.
type Weight struct {
	Name   string
	DType  DType
	Layout Layout
	Extent Extent
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
func (w Weight) Span() Extent {
	first, end, err := w.Layout.Span()
	if err != nil {
		panic("BUG: weight " + w.Name + ": " + err.Error())
	}
	size := int64(w.DType.Size())
	return Extent{Source: w.Extent.Source, Offset: w.Extent.Offset + first*size, Bytes: (end - first) * size}
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
