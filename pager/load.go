package pager

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/internal/panicked"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/storage"
)

// A loader brings the groups of a plan into the ring, pass after pass, in order and as early as the plan allows.
type loader interface {
	// begin is called before a pass.
	begin()
	// ready returns once group k of this pass is in its slot, or when it will not be.
	ready(ctx context.Context, k int) error
	// tick is called now and then while a group's ops run, between ops and within long ones, by the goroutine that calls
	// all of these.
	tick()
	// done says that the ops of group k were given to the device.
	done(k int)
	// reset forgets what was brought, and returns once nothing is under way.
	reset()
	close() error
}

// HostVisible is a device whose memory the host can write to, so that files are read straight into it.
type HostVisible interface {
	// HostBytes returns the bytes of a region of the device's memory.
	HostBytes(r device.Region) []byte
}

func (g *Pager) newLoader(p *plan.Plan) (loader, error) {
	if !p.Target.Direct {
		return g.newStaged(p)
	}
	host, err := g.hostVisible()
	if err != nil {
		return nil, err
	}
	return g.newDirect(p, host, nil), nil
}

// hostVisible returns the device of a plan that reads straight into it.
func (g *Pager) hostVisible() (HostVisible, error) {
	host, ok := g.dev.(HostVisible)
	if !ok {
		return nil, fmt.Errorf("BUG: the plan reads straight into %s, which the host cannot write to", g.dev.Name())
	}
	return host, nil
}

// bringFixed brings the weights that stay and returns how many bytes were read.
func (g *Pager) bringFixed(ctx context.Context, p *plan.Plan) (int64, error) {
	read, err := g.readFixed(ctx, p)
	if err == nil {
		var more int64
		more, err = g.packFixed(ctx, p)
		read += more
	}
	all := slices.Clip(p.Fixed.Spans)
	for k := range p.Fixed.Packings {
		all = append(all, p.Fixed.Packings[k].Spans...)
	}
	for _, s := range guarded(nil, all) {
		if changed := s.Unchanged(); changed != nil {
			return read, errors.Join(changed, err)
		}
	}
	return read, err
}

func (g *Pager) readFixed(ctx context.Context, p *plan.Plan) (int64, error) {
	if !p.Target.Direct {
		return g.stageFixed(ctx, p)
	}
	host, err := g.hostVisible()
	if err != nil {
		return 0, err
	}
	requests, read := requestsOf(host, g.fixed, p.Fixed.Spans)
	return read, storage.Read(ctx, g.opts.Readers, requests...)
}

// pieceBytes is how much one read takes: smaller ones cost system calls, larger ones leave the last reader alone and are
// cut again by block devices.
const pieceBytes = 1 << 20

// A piece is a read of a group.
type piece struct {
	// request is one request. A slice of it is made once, since reads take several.
	request []storage.Request
	visit   *visit
}

// A visit is a paged group as the loader sees it.
type visit struct {
	path   string
	after  int
	pieces []piece
	// left counts the pieces that are under way; arrived has a token once there are none.
	left    atomic.Int32
	arrived chan struct{}
	// group is its number. began, ended and reaped are when its reads were begun, and when a reader and the pass knew the last
	// to have ended, where somebody wants to know.
	group                int
	began, ended, reaped time.Time
	// sources are those of the pieces that can tell whether they changed.
	sources []storage.Guarded
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
	work  chan piece
	idle  sync.WaitGroup
	bytes *atomic.Int64
	loads *loads
	ctx   context.Context
	stop  context.CancelCauseFunc
	// failed is closed with the first error in err.
	failed chan struct{}
	once   *sync.Once
	err    error
}

// start begins to read with n goroutines until the reader is stopped. room is how many pieces may wait for them.
func (r *reader) start(n, room int) {
	r.ctx, r.stop = context.WithCancelCause(context.Background())
	r.work, r.failed, r.once, r.err = make(chan piece, room), make(chan struct{}), new(sync.Once), nil
	for range n {
		r.idle.Go(func() {
			for {
				select {
				case <-r.ctx.Done():
					return
				case p := <-r.work:
					r.read(p)
				}
			}
		})
	}
}

// request hands out the reads of a visit; it reports whether all were taken before the reader was stopped.
func (r *reader) request(v *visit, list []piece) bool {
	v.left.Store(int32(len(list)))
	for _, p := range list {
		select {
		case r.work <- p:
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
			r.fail(&GroupError{p.visit.path, "load", panicked.By(v)})
		}
	}()
	if err := r.fill(p); err != nil {
		r.fail(err)
		return
	}
	if p.visit.left.Add(-1) > 0 {
		return
	}
	if err := p.visit.unchanged(); err != nil {
		r.fail(&GroupError{p.visit.path, "load", err})
		return
	}
	r.loads.stamp(&p.visit.ended)
	p.visit.arrived <- struct{}{}
}

// fill reads one piece.
func (r *reader) fill(p piece) error {
	if err := storage.Read(r.ctx, 1, p.request...); err != nil {
		if changed := p.visit.unchanged(); changed != nil {
			err = fmt.Errorf("%w: %w", changed, err)
		}
		return &GroupError{p.visit.path, "load", err}
	}
	r.bytes.Add(p.request[0].Extent.Bytes)
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

// pieces cuts spans into reads of so many bytes at most, of the bytes that into gives room for.
func pieces(list []plan.Span, into []byte, most int64, v *visit) []piece {
	var out []piece
	for _, s := range list {
		for at := int64(0); at < s.Extent.Bytes; at += most {
			n := min(most, s.Extent.Bytes-at)
			e := s.Extent
			e.Offset, e.Bytes = e.Offset+at, n
			if e.Source.Size() <= e.Offset { // over-read behind the last byte
				continue
			}
			out = append(out, piece{[]storage.Request{{Extent: e, Into: into[s.Offset+at:][:n]}}, v})
		}
	}
	v.sources = guarded(v.sources, list)
	return out
}

// guarded adds the sources of reads that can tell whether they changed to others, each once.
func guarded(out []storage.Guarded, list []plan.Span) []storage.Guarded {
	for _, s := range list {
		if g, ok := s.Extent.Source.(storage.Guarded); ok && !slices.Contains(out, g) {
			out = append(out, g)
		}
	}
	return out
}
