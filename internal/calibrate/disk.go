package calibrate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/optimem/optimem/internal/hostmem"
	"github.com/optimem/optimem/tensor"
)

// ErrTooSmall says that there is too little to read for a rate.
var ErrTooSmall = errors.New("too little to read")

// The reads are those of a pager: so much at once, by so many readers.
const (
	pieceBytes = 4 << 20
	readers    = tensor.DefaultInFlight
)

// A DiskRate is how fast a file is read.
type DiskRate struct {
	BytesPerSecond float64
	// ReadSeconds is what a read costs whatever its size.
	ReadSeconds float64
	// ReadBytes is how much was read for that.
	ReadBytes int64
}

// Disk reads extents in pieces as a pager does, past the page cache where the source can, until all was read or the
// time is up.
func Disk(ctx context.Context, extents []tensor.Extent, limit time.Duration) (DiskRate, error) {
	pieces := cut(extents)
	if len(pieces) < 2*readers {
		return DiskRate{}, fmt.Errorf("calibrate: disk: %w: %d pieces of %d bytes", ErrTooSmall, len(pieces), pieceBytes)
	}
	buffers, err := hostmem.Alloc(readers*pieceBytes, hostmem.Staging)
	if err != nil {
		return DiskRate{}, fmt.Errorf("calibrate: disk: %w", err)
	}
	defer buffers.Free()
	rate := DiskRate{}
	// A few short reads, far apart, before everything else.
	small := buffers.Bytes()[:tensor.AlignBytes]
	var times []float64
	const probes = 16
	for i := range probes {
		e := pieces[i*len(pieces)/probes]
		e.Bytes = tensor.AlignBytes
		start := time.Now()
		if err := tensor.Read(ctx, 1, tensor.Request{Extent: e, Into: small}); err != nil {
			return DiskRate{}, fmt.Errorf("calibrate: disk: %w", err)
		}
		times = append(times, time.Since(start).Seconds())
	}
	slices.Sort(times)
	rate.ReadSeconds = times[len(times)/2]

	start := time.Now()
	var next, read atomic.Int64
	errs := make([]error, readers)
	var group sync.WaitGroup
	for i := range readers {
		into := buffers.Bytes()[i*pieceBytes:][:pieceBytes]
		group.Go(func() {
			for errs[i] == nil && time.Since(start) < limit {
				n := next.Add(1) - 1
				if n >= int64(len(pieces)) {
					return
				}
				errs[i] = tensor.Read(ctx, 1, tensor.Request{Extent: pieces[n], Into: into})
				read.Add(pieceBytes)
			}
		})
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		return DiskRate{}, fmt.Errorf("calibrate: disk: %w", err)
	}
	rate.ReadBytes = read.Load()
	rate.BytesPerSecond = float64(rate.ReadBytes) / max(time.Since(start).Seconds(), minSeconds)
	return rate, nil
}

// cut returns the whole pieces in extents, aligned, without what is left over.
func cut(extents []tensor.Extent) []tensor.Extent {
	var pieces []tensor.Extent
	for _, e := range extents {
		first := (e.Offset + tensor.AlignBytes - 1) / tensor.AlignBytes * tensor.AlignBytes
		for at := first; at+pieceBytes <= e.Offset+e.Bytes; at += pieceBytes {
			pieces = append(pieces, tensor.Extent{Source: e.Source, Offset: at, Bytes: pieceBytes})
		}
	}
	return pieces
}
