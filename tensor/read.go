package tensor

import (
	"context"
	"fmt"
	"io"
	"sync"
	"unsafe"

	"golang.org/x/sync/errgroup"
)

const (
	// AlignBytes is the alignment of what a [BulkSource] reads.
	AlignBytes = 4096
	// DefaultInFlight is how many pieces [Read] has under way when the caller does not say. Disks want a few; more only
	// take threads.
	DefaultInFlight = 4
	// readPieceBytes is what one read of a large extent takes. Smaller ones cost system calls, larger ones leave the
	// last goroutine reading alone.
	readPieceBytes = 8 << 20
)

// A Request asks [Read] to fill Into, as long as Extent is, with the bytes of Extent.
type Request struct {
	Extent Extent
	Into   []byte
}

// Read fulfils all requests, in pieces of some MiB of which inFlight (0: [DefaultInFlight]) are under way at any time.
// It returns the first error, which names the extent, after all reads have ended; what the buffers hold is then
// undefined. A source that panics is an error, a [PanicError].
//
// A request whose offset, length and buffer are multiples of [AlignBytes] is read past the page cache where its source
// can ([BulkSource]); make it with [Extent.Aligned]. Such a request may reach past the end of its source: the bytes
// there are undefined.
func Read(ctx context.Context, inFlight int, requests ...Request) error {
	if inFlight <= 0 {
		inFlight = DefaultInFlight
	}
	pieces := int64(0)
	for _, r := range requests {
		if int64(len(r.Into)) != r.Extent.Bytes {
			return fmt.Errorf("%v: the buffer has %d bytes", r.Extent, len(r.Into))
		}
		pieces += (r.Extent.Bytes + readPieceBytes - 1) / readPieceBytes
	}
	if inFlight = int(min(int64(inFlight), pieces)); inFlight > 1 {
		return readParallel(ctx, inFlight, requests)
	}
	for _, r := range requests { // by itself, so that one reader allocates nothing
		for from := int64(0); from < r.Extent.Bytes; from += readPieceBytes {
			if err := r.read(ctx, from, min(from+readPieceBytes, r.Extent.Bytes)); err != nil {
				return err
			}
		}
	}
	return nil
}

func readParallel(ctx context.Context, inFlight int, requests []Request) error {
	q := readQueue{requests: requests}
	group, ctx := errgroup.WithContext(ctx)
	for range inFlight {
		group.Go(func() error { return q.run(ctx) })
	}
	return group.Wait()
}

// A readQueue hands out the pieces of requests in order, so that a disk sees one forward sweep.
type readQueue struct {
	mu       sync.Mutex
	requests []Request
	done     int64 // bytes handed out of requests[0]
}

func (q *readQueue) next() (r Request, from, to int64, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.requests) > 0 {
		r := q.requests[0]
		from, to := q.done, min(q.done+readPieceBytes, r.Extent.Bytes)
		if q.done = to; to == r.Extent.Bytes {
			q.requests, q.done = q.requests[1:], 0
		}
		if from < to {
			return r, from, to, true
		}
	}
	return Request{}, 0, 0, false
}

func (q *readQueue) run(ctx context.Context) error {
	for {
		r, from, to, ok := q.next()
		if !ok {
			return nil
		}
		if err := r.read(ctx, from, to); err != nil {
			return err
		}
	}
}

// read reads the bytes [from, to) of the request unless ctx is done.
func (r *Request) read(ctx context.Context, from, to int64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	err := r.piece(ctx, from, to)
	if err == nil {
		return nil
	}
	failed := r.Extent
	failed.Offset, failed.Bytes = failed.Offset+from, to-from
	return &ReadError{failed, err}
}

// A ReadError says which extent could not be read.
type ReadError struct {
	Extent Extent
	Err    error
}

// Error says where the extent lies.
func (e *ReadError) Error() string { return e.Extent.String() + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *ReadError) Unwrap() error { return e.Err }

// piece reads the bytes [from, to) of the request.
func (r *Request) piece(ctx context.Context, from, to int64) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = Panicked(v)
		}
	}()
	e, into := r.Extent, r.Into[from:to]
	address := uintptr(unsafe.Pointer(unsafe.SliceData(r.Into)))
	if (e.Offset|e.Bytes|int64(address))%AlignBytes == 0 {
		if bulk, ok := e.Source.(BulkSource); ok {
			return bulk.ReadBulk(ctx, into, e.Offset+from)
		}
		if past := e.Offset + to - e.Source.Size(); past > 0 && past < min(AlignBytes, to-from) {
			into = into[:int64(len(into))-past]
		}
	}
	return e.Source.ReadAt(ctx, into, e.Offset+from)
}

// Aligned returns the smallest extent around e that a [BulkSource] can read, and how many bytes into it e begins. It
// may reach past the end of the source.
func (e Extent) Aligned() (around Extent, skip int64) {
	skip = e.Offset % AlignBytes
	bytes := (skip + e.Bytes + AlignBytes - 1) / AlignBytes * AlignBytes
	return Extent{Source: e.Source, Offset: e.Offset - skip, Bytes: bytes}, skip
}

// String writes where the extent lies; its source has the name.
func (e Extent) String() string { return fmt.Sprintf("extent of %d bytes at %d", e.Bytes, e.Offset) }

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
	if err := Read(ctx, 0, Request{Extent: span, Into: raw}); err != nil {
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
