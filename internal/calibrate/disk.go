package calibrate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/optimem/optimem/internal/hostmem"
	"github.com/optimem/optimem/storage"
)

// ErrTooSmall says that there is too little to read for a rate.
var ErrTooSmall = errors.New("too little to read")

// The reads are those of a pager: so much at once, by so many readers.
const (
	pieceBytes = 4 << 20
	readers    = storage.DefaultInFlight
	// bufferBytes is the memory that is read into, a multiple of what all readers read at once.
	bufferBytes = 4 * readers * pieceBytes
)

// A DiskRate is how fast a file is read.
type DiskRate struct {
	// Disk is the disk that it lies on, where that was asked for.
	Disk           storage.Disk
	BytesPerSecond float64
	// ReadSeconds is what a read costs whatever its size.
	ReadSeconds float64
	// ReadBytes is how much was read for that.
	ReadBytes int64
	// CachedBytesPerSecond is how fast it is read where the page cache holds it.
	CachedBytesPerSecond float64
}

// Disk reads extents in pieces as a pager does, past the page cache where the source can, until all was read or the
// time is up.
func Disk(ctx context.Context, extents []storage.Extent, limit time.Duration) (DiskRate, error) {
	pieces := cut(extents)
	if len(pieces) < 2*readers {
		return DiskRate{}, fmt.Errorf(
			"calibrate: disk: %w: %d pieces of %d bytes", ErrTooSmall, len(pieces), pieceBytes,
		)
	}
	buffers, err := hostmem.Alloc(bufferBytes, hostmem.Staging)
	if err != nil {
		return DiskRate{}, fmt.Errorf("calibrate: disk: %w", err)
	}
	defer buffers.Free()
	rate := DiskRate{}
	// A few short reads, far apart, before everything else.
	small := buffers.Bytes()[:storage.AlignBytes]
	var times []float64
	const probes = 16
	for i := range probes {
		e := pieces[i*len(pieces)/probes]
		e.Bytes = storage.AlignBytes
		start := time.Now()
		if err := storage.Read(ctx, 1, storage.Request{Extent: e, Into: small}); err != nil {
			return DiskRate{}, fmt.Errorf("calibrate: disk: %w", err)
		}
		times = append(times, time.Since(start).Seconds())
	}
	slices.Sort(times)
	rate.ReadSeconds = times[len(times)/2]

	rate.BytesPerSecond, rate.ReadBytes, err = readQueued(ctx, pieces, buffers.Bytes(), queued, limit)
	if errors.Is(err, errNotQueued) {
		rate.BytesPerSecond, rate.ReadBytes, err = readAll(ctx, pieces, buffers.Bytes(), limit, readPast)
	}
	if err != nil {
		return DiskRate{}, err
	}
	// What a pass brings goes to memory that no cache holds, and so do these: not always into the same few pieces.
	some := pieces[:min(len(pieces), cachedPieces)]
	if _, _, err = readAll(ctx, some, buffers.Bytes(), limit, readThrough); err != nil {
		return DiskRate{}, err
	}
	if !lookAgain(some) {
		return rate, nil
	}
	for range cachedRounds {
		one, _, err := readAll(ctx, some, buffers.Bytes(), limit, readPast)
		if err != nil {
			return DiskRate{}, err
		}
		rate.CachedBytesPerSecond = max(rate.CachedBytesPerSecond, one)
	}
	return rate, nil
}

// deep is how many reads of a source package fetch has under way at most while passes page.
const deep = 160

// ReadRate is how many bytes of extents a second gives that are read as a pager reads them while passes go on, with as many
// reads under way and as much in each, until all was read or the time is up. It leaves out what else [Disk] looks at, and
// leaves nothing in the page cache, so that what it says before passes and after them is about these.
func ReadRate(ctx context.Context, extents []storage.Extent, limit time.Duration) (bytesPerSecond float64, err error) {
	pieces := cut(extents)
	if len(pieces) < 2*readers {
		return 0, fmt.Errorf("calibrate: disk: %w: %d pieces of %d bytes", ErrTooSmall, len(pieces), pieceBytes)
	}
	buffers, err := hostmem.Alloc(deep*queuedBytes, hostmem.Staging)
	if err != nil {
		return 0, fmt.Errorf("calibrate: disk: %w", err)
	}
	defer buffers.Free()
	rate, _, err := readQueued(ctx, pieces, buffers.Bytes(), deep, limit)
	if errors.Is(err, errNotQueued) {
		rate, _, err = readAll(ctx, pieces, buffers.Bytes(), limit, readPast)
	}
	return rate, err
}

// Disks is Disk for each disk that extents lie on, in order of how much lies there, the most first. What is too small to
// tell is left out, unless all is.
func Disks(ctx context.Context, extents []storage.Extent, limit time.Duration) ([]DiskRate, error) {
	byDisk := make(map[storage.Disk][]storage.Extent)
	bytes := make(map[storage.Disk]int64)
	for _, e := range extents {
		disk := storage.DiskOf(e.Source)
		byDisk[disk], bytes[disk] = append(byDisk[disk], e), bytes[disk]+e.Bytes
	}
	order := slices.SortedFunc(maps.Keys(byDisk), func(a, b storage.Disk) int {
		return cmp.Or(cmp.Compare(bytes[b], bytes[a]), cmp.Compare(a, b))
	})
	var rates []DiskRate
	var small error
	for _, disk := range order {
		rate, err := Disk(ctx, byDisk[disk], limit/time.Duration(len(order)))
		if errors.Is(err, ErrTooSmall) {
			small = err
			continue
		}
		if err != nil {
			return nil, err
		}
		rate.Disk = disk
		rates = append(rates, rate)
	}
	if len(rates) == 0 {
		return nil, cmp.Or(small, error(ErrTooSmall))
	}
	return rates, nil
}

// How much is read from the page cache, and how often.
const (
	cachedPieces = 64
	cachedRounds = 3
	// Of what was read to the page cache all but one of heldParts are to be there, or its rate is not known.
	heldParts = 16
)

// readPast reads as a pager does: past the page cache where that does not hold the bytes. readThrough makes it hold them.
func readPast(ctx context.Context, e storage.Extent, into []byte) error {
	return storage.Read(ctx, 1, storage.Request{Extent: e, Into: into})
}

// lookAgain has sources ask what the page cache holds of pieces, after these were read, and reports whether it is most of them
// as far as sources tell.
func lookAgain(pieces []storage.Extent) bool {
	var last storage.Source
	for _, e := range pieces {
		if s, ok := e.Source.(interface{ LookAgain() }); ok && e.Source != last {
			s.LookAgain()
		}
		last = e.Source
	}
	var known, held int64
	for _, e := range pieces {
		if s, ok := e.Source.(storage.CachedSource); ok {
			if n, ok := s.CachedBytes(e.Offset, e.Bytes); ok {
				known, held = known+e.Bytes, held+n
			}
		}
	}
	return held >= known-known/heldParts
}

func readThrough(ctx context.Context, e storage.Extent, into []byte) error {
	return e.Source.ReadAt(ctx, into, e.Offset)
}

// readAll reads pieces, several at once and each into a part of a buffer, until all were read or the time is up. It
// returns the bytes of a second and of all.
func readAll(
	ctx context.Context, pieces []storage.Extent, buffer []byte, limit time.Duration,
	read func(context.Context, storage.Extent, []byte) error,
) (rate float64, bytes int64, err error) {
	parts := len(buffer) / pieceBytes
	start := time.Now()
	var next, done atomic.Int64
	errs := make([]error, readers)
	var group sync.WaitGroup
	for i := range readers {
		group.Go(func() {
			for k := i; errs[i] == nil && time.Since(start) < limit; k += readers {
				n := next.Add(1) - 1
				if n >= int64(len(pieces)) {
					return
				}
				errs[i] = read(ctx, pieces[n], buffer[k%parts*pieceBytes:][:pieceBytes])
				done.Add(pieceBytes)
			}
		})
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		return 0, 0, fmt.Errorf("calibrate: disk: %w", err)
	}
	return float64(done.Load()) / max(time.Since(start).Seconds(), minSeconds), done.Load(), nil
}

// A pager's queued reads: so many under way, so much at once.
const (
	queued      = 64
	queuedBytes = 1 << 20
)

// errNotQueued says that a file is not read by a queue: it has none, or the page cache holds some of the file.
var errNotQueued = errors.New("reads are not queued")

// readQueued is readAll for the pieces of the first file, with as many reads under way as depth says, which the file queues.
func readQueued(
	ctx context.Context, pieces []storage.Extent, buffer []byte, depth int, limit time.Duration,
) (rate float64, bytes int64, err error) {
	source, ok := pieces[0].Source.(storage.QueuedSource)
	if !ok {
		return 0, 0, errNotQueued
	}
	queue, err := source.Queue(depth)
	if err != nil {
		return 0, 0, errNotQueued
	}
	defer func() { err = errors.Join(err, queue.Close()) }()
	var reads []int64 // where each begins
	for _, e := range pieces {
		for at := int64(0); e.Source == pieces[0].Source && at < e.Bytes; at += queuedBytes {
			reads = append(reads, e.Offset+at)
		}
	}
	free := make([]int, depth)
	for i := range free {
		free[i] = i
	}
	start := time.Now()
	for {
		more := len(reads) > 0 && time.Since(start) < limit // asked once: nothing is waited for where nothing is under way
		k := len(free) - 1
		if !more && k == depth-1 {
			break
		}
		if more && k >= 0 {
			if !queue.Begin(free[k], buffer[free[k]*queuedBytes:][:queuedBytes], reads[0]) {
				return 0, 0, errNotQueued
			}
			free, reads = free[:k], reads[1:]
			continue
		}
		number, filled, err := queue.Wait(ctx)
		if err != nil {
			return 0, 0, fmt.Errorf("calibrate: disk: %w", err)
		}
		if free = append(free, number); filled {
			bytes += queuedBytes
		}
	}
	return float64(bytes) / max(time.Since(start).Seconds(), minSeconds), bytes, nil
}

// cut returns the whole pieces in extents, aligned, without what is left over.
func cut(extents []storage.Extent) []storage.Extent {
	var pieces []storage.Extent
	for _, e := range extents {
		first := (e.Offset + storage.AlignBytes - 1) / storage.AlignBytes * storage.AlignBytes
		for at := first; at+pieceBytes <= e.Offset+e.Bytes; at += pieceBytes {
			pieces = append(pieces, storage.Extent{Source: e.Source, Offset: at, Bytes: pieceBytes})
		}
	}
	return pieces
}
