package fetch

import (
	"context"
	"fmt"
	"iter"
	goruntime "runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/optimem/optimem/internal/panicked"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/storage"
)

// A piece is a read of a group.
type piece struct {
	// request is one request. A slice of it is made once, since reads take several.
	request []storage.Request
	// blocks is what is read instead where blocks of a packed file are decoded in the memory that what they stand for is to
	// fill: to its end. parts say what it is then.
	blocks []storage.Request
	parts  []storage.Part
	visit  *visit
}

// reads is what is read of files.
func (p *piece) reads() []storage.Request {
	if p.blocks != nil {
		return p.blocks
	}
	return p.request
}

// A visit is a group as a fetcher sees it.
type visit struct {
	path   string
	after  int
	pieces []piece
	// held says that the host has the bytes of its reads in memory, nearly all of them.
	held bool
	// left counts the pieces that are under way; arrived has a token once there are none.
	left    atomic.Int32
	arrived chan struct{}
	// group is its number. began, ended and reaped are when its reads were begun, and when a reader and the pass knew the
	// last to have ended, where somebody wants to know.
	group                int
	began, ended, reaped time.Time
	// sources are those of the pieces that can tell whether they changed.
	sources []storage.Guarded
}

func newVisit(k int, group *plan.Group) visit {
	return visit{group: k, path: group.Name(), after: group.After, arrived: make(chan struct{}, 1)}
}

// need returns how many visits must be done before the n-th may be brought, where visits of them make a pass: its slot
// has to be free, and it is not brought again before it was used, even where no other takes its slot.
func (v *visit) need(n, visits int) int {
	least := n - visits + 1
	if v.after > 0 {
		least = max(least, n-v.after+1)
	}
	return least
}

// forget drops the token of an arrival that nobody waited for.
func (v *visit) forget() {
	select {
	case <-v.arrived:
	default:
	}
}

// unchanged returns an error where a source may have changed since it was opened. After a read this says that what was
// read is what was there.
func (v *visit) unchanged() error {
	for _, s := range v.sources {
		if err := s.Unchanged(); err != nil {
			return err
		}
	}
	return nil
}

// A reader reads pieces with several goroutines.
type reader struct {
	// disks are those that requests read from, in no order.
	disks []readerDisk
	idle  sync.WaitGroup
	bytes *atomic.Int64
	loads *Loads
	meter *Meter
	// blocks takes the pieces whose blocks were read, for those who decode them.
	blocks chan piece
	ctx    context.Context
	stop   context.CancelCauseFunc
	// failed is closed with the first error in err.
	failed chan struct{}
	once   *sync.Once
	err    error
}

// A readerDisk is a disk with the pieces that its goroutines read, and room for as many reads as it wants at once.
type readerDisk struct {
	disk storage.Disk
	work chan piece
	room chan struct{}
}

// on returns the disk of a piece.
func (r *reader) on(p *piece) *readerDisk {
	disk := storage.DiskOf(p.request[0].Extent.Source)
	for i := range r.disks {
		if r.disks[i].disk == disk {
			return &r.disks[i]
		}
	}
	return nil
}

// start makes the reader ready to read until it is stopped.
func (r *reader) start() {
	r.ctx, r.stop = context.WithCancelCause(context.Background())
	r.failed, r.once, r.err = make(chan struct{}), new(sync.Once), nil
}

// pool begins to read with n goroutines. room is how many pieces may wait for them.
func (r *reader) pool(n, room int) chan piece {
	work := make(chan piece, room)
	for range n {
		r.idle.Go(func() {
			for {
				select {
				case <-r.ctx.Done():
					return
				case p := <-work:
					r.read(p)
				}
			}
		})
	}
	return work
}

// decoders begins to decode with as many goroutines as there are processors. room is how many pieces may wait for them;
// where it is 0 there are none.
func (r *reader) decoders(room int) {
	if r.blocks = nil; room == 0 {
		return
	}
	work := make(chan piece, room)
	r.blocks = work
	for range goruntime.GOMAXPROCS(0) {
		r.idle.Go(func() {
			for {
				select {
				case <-r.ctx.Done():
					return
				case p := <-work:
					r.decode(p)
				}
			}
		})
	}
}

// has says that a piece was read: it is there, or is to be decoded.
func (r *reader) has(p piece) {
	if p.blocks == nil {
		r.arrive(p.visit)
		return
	}
	select {
	case r.blocks <- p:
	case <-r.ctx.Done():
	}
}

// decode decodes a piece whose blocks were read.
func (r *reader) decode(p piece) {
	defer func() {
		if v := recover(); v != nil {
			r.panicked(p.visit, v)
		}
	}()
	e := p.request[0].Extent
	if err := e.Source.(storage.InPlaceSource).Decode(r.ctx, p.request[0].Into, p.parts); err != nil {
		r.fail(p.visit.failed(&storage.ReadError{Extent: e, Err: err}))
		return
	}
	r.arrive(p.visit)
}

// arrive says that a piece is there which goroutines looked after.
func (r *reader) arrive(v *visit) {
	if v.left.Add(-1) > 0 {
		return
	}
	if err := v.unchanged(); err != nil {
		r.fail(&Error{v.path, err})
		return
	}
	r.loads.stamp(&v.ended)
	v.arrived <- struct{}{}
}

// failed says why a visit's piece is not there: what is read of a file that has changed may be anything.
func (v *visit) failed(err error) error {
	if changed := v.unchanged(); changed != nil {
		err = fmt.Errorf("%w: %w", changed, err)
	}
	return &Error{v.path, err}
}

// panicked says that a source panicked where a visit's piece was read or decoded. It may panic once more when it is asked
// whether it changed.
func (r *reader) panicked(v *visit, value any) {
	err := panicked.By(value)
	defer func() {
		if recover() != nil {
			r.fail(&Error{v.path, err})
		}
	}()
	r.fail(v.failed(err))
}

// request hands out the reads of a visit; it reports whether all were taken before the reader was stopped.
func (r *reader) request(v *visit, list []piece) bool {
	v.left.Store(int32(len(list)))
	for _, p := range list {
		select {
		case r.on(&p).work <- p:
		case <-r.ctx.Done():
			return false
		}
	}
	return true
}

// read reads one piece and counts it.
func (r *reader) read(p piece) {
	defer func() {
		if v := recover(); v != nil {
			r.panicked(p.visit, v)
		}
	}()
	if on := r.on(&p); on != nil && !p.visit.held {
		select {
		case on.room <- struct{}{}:
			defer func() { <-on.room }()
		case <-r.ctx.Done():
			return
		}
	}
	if err := r.fill(p); err != nil {
		r.fail(err)
		return
	}
	r.has(p)
}

// fill reads one piece, and does not decode it.
func (r *reader) fill(p piece) error {
	stored := p.request[0].Extent.StoredBytes()
	ended := r.meter.Reading(p.request[0].Extent, stored)
	err := storage.Read(r.ctx, 1, p.reads()...)
	ended(err == nil)
	if err != nil {
		return p.visit.failed(err)
	}
	r.bytes.Add(stored)
	return nil
}

func (r *reader) fail(err error) {
	r.once.Do(func() {
		r.err = err
		close(r.failed)
	})
}

// end stops the goroutines and waits for them.
func (r *reader) end() {
	r.stop(nil)
	r.idle.Wait()
}

// wait returns once the visit has arrived, or says why it will not.
func (r *reader) wait(ctx context.Context, v *visit) error {
	select {
	case <-v.arrived:
		return nil
	default:
	}
	select {
	case <-v.arrived:
		return nil
	case <-r.failed:
		return r.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Held reports whether the host has nearly all bytes of some extents in memory, as far as their sources can tell.
func Held(extents iter.Seq[storage.Extent]) bool {
	var held, all int64
	for e := range extents {
		n := min(e.Bytes, e.Source.Size()-e.Offset)
		all += max(n, 0)
		switch s := e.Source.(type) {
		case storage.MemorySource:
			held += max(n, 0)
		case storage.CachedSource:
			if here, ok := s.CachedBytes(e.Offset, n); ok {
				held += here
			}
		}
	}
	return all > 0 && held >= all/heldParts*(heldParts-1)
}

// Copiers is how many goroutines read extents at once: as many as given for what disks have to read, one for each
// processor where the host has the bytes.
func Copiers(readers, copiers int, extents iter.Seq[storage.Extent]) int {
	if copiers == 0 {
		copiers = goruntime.GOMAXPROCS(0)
	}
	if copiers > readers && Held(extents) {
		return copiers
	}
	return readers
}

// extents are those that spans read.
func extents(list []plan.Span) iter.Seq[storage.Extent] {
	return func(yield func(storage.Extent) bool) {
		for i := range list {
			if !yield(list[i].Extent) {
				return
			}
		}
	}
}

// pieces cuts spans into reads of so many bytes at most, of the bytes that into gives room for.
func pieces(list []plan.Span, into []byte, most int64, v *visit) []piece {
	var out []piece
	for _, s := range list {
		source, isPacked := s.Extent.Source.(storage.PackedSource)
		for at, n := int64(0), int64(0); at < s.Extent.Bytes; at += n {
			rest := s.Extent.Bytes - at
			n = min(most, rest)
			if isPacked {
				limit := most
				if rest > most && rest < most+most/2 {
					limit = rest / 2 // what is left is large enough to be decoded in place, too
				}
				n = source.Cut(s.Extent.Offset+at, rest, limit)
			}
			e := s.Extent
			e.Offset, e.Bytes = e.Offset+at, n
			if e.Source.Size() <= e.Offset { // over-read behind the last byte
				continue
			}
			r := storage.Request{Extent: e, Into: into[s.Offset+at:][:n]}
			blocks, parts := inPlace(&r)
			out = append(out, piece{[]storage.Request{r}, blocks, parts, v})
		}
	}
	v.sources = Guarded(v.sources, list)
	return out
}

// inPlace returns the read of blocks of a packed file that takes the place of a request, nil where there is none.
func inPlace(r *storage.Request) ([]storage.Request, []storage.Part) {
	source, ok := r.Extent.Source.(storage.InPlaceSource)
	if !ok {
		return nil, nil
	}
	parts := []storage.Part{{Offset: r.Extent.Offset, Bytes: r.Extent.Bytes}}
	blocks, at, ok := source.InPlace(r.Into, parts)
	if !ok {
		return nil, nil
	}
	return []storage.Request{{Extent: blocks, Into: r.Into[at:][:blocks.Bytes]}}, parts
}

// Guarded adds the sources of reads that can tell whether they changed to others, each once.
func Guarded(out []storage.Guarded, list []plan.Span) []storage.Guarded {
	for _, s := range list {
		if g, ok := s.Extent.Source.(storage.Guarded); ok && !slices.Contains(out, g) {
			out = append(out, g)
		}
	}
	return out
}
