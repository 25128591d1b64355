package storage

import (
	"context"
	"fmt"
	"sync"
	"unsafe"

	"golang.org/x/sync/errgroup"

	"github.com/optimem/optimem/internal/panicked"
)

const (
	// AlignBytes is the alignment of what a [BulkSource] reads: what O_DIRECT demands of offsets, lengths and addresses on
	// every file system and disk in use.
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

// Read fulfils all requests, in pieces of some MiB of which inFlight (0: [DefaultInFlight]) are under way at any time,
// on each disk that they read from. It returns the first error, which names the extent, after all reads have ended; what the buffers hold is then
// undefined. A source that panics is an error, a [panicked.Error].
//
// A request whose offset, length and buffer are multiples of [AlignBytes] is read past the page cache where its source
// can ([BulkSource]); make it with [Extent.Aligned]. Such a request may reach past the end of its source: the bytes
// there are undefined.
func Read(ctx context.Context, inFlight int, requests ...Request) error {
	if inFlight <= 0 {
		inFlight = DefaultInFlight
	}
	pieces, several := int64(0), false
	for i, r := range requests {
		several = several || i > 0 && DiskOf(r.Extent.Source) != DiskOf(requests[0].Extent.Source)
		if int64(len(r.Into)) != r.Extent.Bytes {
			return fmt.Errorf("%v: the buffer has %d bytes", r.Extent, len(r.Into))
		}
		pieces += (r.Extent.Bytes + readPieceBytes - 1) / readPieceBytes
	}
	if several {
		return readDisks(ctx, inFlight, requests)
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

// readDisks reads from each disk what lies there, each with as many pieces under way.
func readDisks(ctx context.Context, inFlight int, requests []Request) error {
	var order []Disk
	byDisk := make(map[Disk][]Request)
	for _, r := range requests {
		d := DiskOf(r.Extent.Source)
		if byDisk[d] == nil {
			order = append(order, d)
		}
		byDisk[d] = append(byDisk[d], r)
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, d := range order {
		group.Go(func() error { return readParallel(ctx, inFlight, byDisk[d]) })
	}
	return group.Wait()
}

func readParallel(ctx context.Context, inFlight int, requests []Request) error {
	q := pieces{requests: requests}
	group, ctx := errgroup.WithContext(ctx)
	for range inFlight {
		group.Go(func() error { return q.run(ctx) })
	}
	return group.Wait()
}

// pieces hand out pieces of requests in order, so that a disk sees one forward sweep.
type pieces struct {
	mu       sync.Mutex
	requests []Request
	done     int64 // bytes handed out of requests[0]
}

func (q *pieces) next() (r Request, from, to int64, ok bool) {
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

func (q *pieces) run(ctx context.Context) error {
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

// isAligned reports whether the request is read past the page cache where its source can.
func (r *Request) isAligned() bool {
	address := uintptr(unsafe.Pointer(unsafe.SliceData(r.Into)))
	return (r.Extent.Offset|r.Extent.Bytes|int64(address))%AlignBytes == 0
}

// AlignedBefore returns the last offset in memory, no larger than one, whose address is a multiple of [AlignBytes]; it is
// less than 0 where there is none.
func AlignedBefore(p []byte, at int64) int64 {
	address := int64(uintptr(unsafe.Pointer(unsafe.SliceData(p))))
	return at - (address+at)&(AlignBytes-1)
}

// piece reads the bytes [from, to) of the request.
func (r *Request) piece(ctx context.Context, from, to int64) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = panicked.By(v)
		}
	}()
	e, into := r.Extent, r.Into[from:to]
	bulk, ok := e.Source.(BulkSource)
	if _, packed := e.Source.(PackedSource); ok && packed { // blocks are aligned otherwise
		return bulk.ReadBulk(ctx, into, e.Offset+from)
	}
	if r.isAligned() && ok {
		return bulk.ReadBulk(ctx, into, e.Offset+from)
	}
	if (e.Offset|e.Bytes)%AlignBytes == 0 { // wherever the memory begins: a driver's may lie unevenly
		if past := e.Offset + to - e.Source.Size(); past > 0 && past < min(AlignBytes, to-from) {
			into = into[:int64(len(into))-past]
		}
	}
	return e.Source.ReadAt(ctx, into, e.Offset+from)
}

// AlignedBytes returns memory on the heap whose address is a multiple of [AlignBytes].
func AlignedBytes(n int64) []byte {
	b := make([]byte, n+AlignBytes)
	skip := -int(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) & (AlignBytes - 1)
	return b[skip : skip+int(n)]
}
