package pager

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/device/emulated"
	"github.com/optimem/optimem/device/late"
	"github.com/optimem/optimem/internal/cpu"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/plan/search"
	"github.com/optimem/optimem/storage"
)

// A replaced file is a queued one that somebody overwrites, and that knows then that it has changed.
type replaced struct {
	*queuedFile
	changed atomic.Bool
	mu      sync.RWMutex // orders reads and who overwrites
}

func (f *replaced) ReadAt(ctx context.Context, p []byte, off int64) error {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.queuedFile.ReadAt(ctx, p, off)
}

func (f *replaced) ReadBulk(ctx context.Context, p []byte, off int64) error {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.queuedFile.ReadBulk(ctx, p, off)
}

func (f *replaced) Unchanged() error {
	if f.changed.Load() {
		return fmt.Errorf("the file %w", storage.ErrChanged)
	}
	return nil
}

// overwrite puts other weights into the file.
func (f *replaced) overwrite() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.changed.Store(true)
	for i := range f.data {
		f.data[i] ^= 0x11
	}
}

// unqueued hides that a source queues reads.
type unqueued struct{ f *replaced }

func (u unqueued) Size() int64      { return u.f.Size() }
func (u unqueued) Unchanged() error { return u.f.Unchanged() }
func (u unqueued) ReadAt(ctx context.Context, p []byte, off int64) error {
	return u.f.ReadAt(ctx, p, off)
}

// TestFilesThatChange: a file that is overwritten after whichever group of whichever pass ends the pass with an error that says so, or
// with what it would have given: whether reads are queued, and end early or late, or goroutines make them.
func TestFilesThatChange(t *testing.T) {
	dev := newCPU(t)
	for _, c := range []struct {
		name               string
		queued, late, soon bool
		refuse             func(int) bool
	}{
		{name: "queued", queued: true}, {name: "queued, late", queued: true, late: true},
		{name: "queued, soon", queued: true, soon: true}, {name: "read"},
		{name: "some queued", queued: true, refuse: func(n int) bool { return n%2 == 0 }},
	} {
		l, src := network(t, dev, 2, 60, 60, 60, 60, 60, 60, 60)
		clean := bytes.Clone(src.data)
		f := &replaced{queuedFile: &queuedFile{file: src, late: c.late, soon: c.soon, refuse: c.refuse}}
		for i := range l.Graph.Values {
			if w := &l.Graph.Values[i].Weight; w.Extent.Source == src {
				if w.Extent.Source = f; !c.queued {
					w.Extent.Source = unqueued{f}
				}
			}
		}
		for _, slots := range []int{1, 3} {
			made := mustPlan(t, l, search.Options{Mode: plan.Page, Slots: slots})
			want := newTransfer(l.Graph, 1)
			copy(src.data, clean)
			f.changed.Store(false)
			if err := newPager(t, dev, Options{}).Pass(t.Context(), mustPlan(t, l, search.Options{Mode: plan.Resident}), want); err != nil {
				t.Fatal(err)
			}
			for at := range 2 * len(made.Groups) {
				copy(src.data, clean)
				f.changed.Store(false)
				done := 0
				p := newPager(t, dev, Options{pieceBytes: 4096, Readers: 1, Observe: func(e Event) {
					if e.Kind != GroupDone {
						return
					}
					if done++; done == at+1 {
						f.overwrite()
					}
				}})
				var err error
				for pass := 0; pass < 4 && err == nil; pass++ {
					x := newTransfer(l.Graph, 1)
					if err = p.Pass(t.Context(), made, x); err == nil && !bytes.Equal(x.out[0], want.out[0]) {
						t.Fatalf("%s, %d slots, changed after %d groups: pass %d gives other bits", c.name, slots, at+1, pass)
					}
				}
				var group *GroupError
				if !errors.Is(err, storage.ErrChanged) || !errors.As(err, &group) || group.Path == "" || group.Step != "load" {
					t.Fatalf("%s, %d slots, changed after %d groups: %v", c.name, slots, at+1, err)
				}
				if err := p.Close(); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// A noting device tells of each op that it has run.
type noting struct {
	*cpu.Device
	ran func(path string)
}

type notingStream struct {
	device.Stream
	ran func(path string)
}

func (d noting) NewStream() (device.Stream, error) {
	s, err := d.Device.NewStream()
	return notingStream{s, d.ran}, err
}

func (s notingStream) Run(ctx context.Context, l device.Launch) error {
	err := s.Stream.Run(ctx, l)
	s.ran(l.Op.Path)
	return err
}

// A noted file tells of each read.
type noted struct {
	*queuedFile
	reads func(off, bytes int64)
}

func (f *noted) ReadAt(ctx context.Context, p []byte, off int64) error {
	f.reads(off, int64(len(p)))
	return f.queuedFile.ReadAt(ctx, p, off)
}

func (f *noted) ReadBulk(ctx context.Context, p []byte, off int64) error {
	return f.ReadAt(ctx, p[:min(int64(len(p)), f.Size()-off)], off)
}

// TestNothingIsBroughtBeforeItWasUsed: what an op reads is not read again before that op has run, however few groups there
// are and however much room.
func TestNothingIsBroughtBeforeItWasUsed(t *testing.T) {
	host := newCPU(t)
	for depth := 1; depth <= 4; depth++ {
		for _, slots := range []int{0, 2, 8} {
			l, src := network(t, host, 2, []int{60, 60, 60, 60, 60}[:depth+1]...)
			middle := make(map[string]int64) // a byte of each layer's weights
			ran, read := make(map[string]int), make(map[string]int)
			var mu sync.Mutex
			f := &noted{queuedFile: &queuedFile{file: src, refuse: func(int) bool { return true }}}
			f.reads = func(off, bytes int64) {
				mu.Lock()
				defer mu.Unlock()
				for path, at := range middle {
					if off <= at && at < off+bytes {
						if read[path]++; read[path] > ran[path]+1 {
							t.Errorf("%d layers, %d slots: layer %s has run %d times, and is read for the %d-th", depth, slots, path, ran[path], read[path])
						}
					}
				}
			}
			for i := range l.Graph.Values {
				if w := &l.Graph.Values[i].Weight; w.Extent.Source == src {
					if w.Extent.Source = f; len(w.Layout.Shape) == 2 {
						middle[strings.TrimSuffix(w.Name, ".weight")] = w.Extent.Offset + w.Extent.Bytes/2
					}
				}
			}
			dev := noting{host, func(path string) {
				mu.Lock()
				defer mu.Unlock()
				ran[path]++
			}}
			p := newPager(t, dev, Options{})
			made := mustPlan(t, l, search.Options{Mode: plan.Page, Slots: slots})
			for range 4 {
				if err := p.Pass(t.Context(), made, newTransfer(l.Graph, 1)); err != nil {
					t.Fatal(err)
				}
			}
			if err := p.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// A stuck file has one read that waits until it is cancelled.
type stuck struct {
	*file
	at     int
	cancel context.CancelFunc
}

func (f *stuck) ReadAt(ctx context.Context, p []byte, off int64) error {
	n := <-f.reads + 1
	f.reads <- n
	if n == f.at {
		f.cancel()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(10 * time.Second):
			return errors.New("nobody told a read that waits that the pass is cancelled")
		}
	}
	copy(p, f.data[off:])
	return ctx.Err()
}

// TestCancelWhileReading: a pass that is cancelled while a read of a group is under way ends with that, whichever it is, and
// the read does, too; the next pass gives what it should.
func TestCancelWhileReading(t *testing.T) {
	host := newCPU(t)
	l, src := network(t, host, 2, 60, 60, 60, 60, 60)
	want := newTransfer(l.Graph, 1)
	if err := newPager(t, host, Options{}).Pass(t.Context(), mustPlan(t, l, search.Options{Mode: plan.Resident}), want); err != nil {
		t.Fatal(err)
	}
	f := &stuck{file: src}
	for i := range l.Graph.Values {
		if w := &l.Graph.Values[i].Weight; w.Extent.Source == src {
			w.Extent.Source = f
		}
	}
	for _, o := range []search.Options{
		{Mode: plan.Page}, {Mode: plan.Page, Slots: 1}, {Mode: plan.Resident}, {Mode: plan.Page, Target: emu}, {Mode: plan.Resident, Target: emu},
	} {
		made := mustPlan(t, l, o)
		for n := 1; n < 7; n++ {
			var dev device.Device = host
			if !made.Target.Direct {
				dev = late.New(emulated.New(emulated.Options{CheckOrder: true, Threads: 1}), late.Options{Seed: uint64(n)})
			}
			p := newPager(t, dev, Options{Readers: 1})
			var ctx context.Context
			ctx, f.cancel = context.WithCancel(t.Context())
			f.at = <-f.reads + n
			f.reads <- f.at - n
			var err error
			for pass := 0; pass < 4 && err == nil; pass++ {
				err = p.Pass(ctx, made, newTransfer(l.Graph, 1))
			}
			if reads := <-f.reads; err != nil && !errors.Is(err, context.Canceled) || err == nil && reads >= f.at {
				t.Errorf("%s on %s, read %d: %v", made.Mode, made.Target.Name, n, err)
				f.reads <- reads
			} else {
				f.reads <- reads
			}
			f.at = 0
			got := newTransfer(l.Graph, 1)
			if err := p.Pass(t.Context(), made, got); err != nil || !bytes.Equal(got.out[0], want.out[0]) {
				t.Errorf("%s on %s, after read %d: %v, or other bits", made.Mode, made.Target.Name, n, err)
			}
			if err := p.Close(); err != nil {
				t.Error(err)
			}
			f.cancel()
		}
	}
}

// A brittle queue cannot be given back.
type brittle struct{ *queuedFile }

func (f brittle) Queue(n int) (storage.ReadQueue, error) {
	q, err := f.queuedFile.Queue(n)
	return brittleReads{q}, err
}

type brittleReads struct{ storage.ReadQueue }

func (q brittleReads) Close() error { return errors.Join(q.ReadQueue.Close(), errDisk) }

// TestQueuesThatCannotBeGivenBack: what giving a queue back fails with is told by who closes the pager.
func TestQueuesThatCannotBeGivenBack(t *testing.T) {
	dev := newCPU(t)
	l, src := queuedNetwork(t, dev)
	for i := range l.Graph.Values {
		if w := &l.Graph.Values[i].Weight; w.Extent.Source == src {
			w.Extent.Source = brittle{src}
		}
	}
	p, err := New(dev, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Pass(t.Context(), mustPlan(t, l, search.Options{Mode: plan.Page}), newTransfer(l.Graph, 1)); err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); !errors.Is(err, errDisk) {
		t.Errorf("%v", err)
	}
}

// strict is a source that refuses reads of nothing, and of what lies behind its end.
type strict struct{ *file }

func (f strict) ReadAt(ctx context.Context, p []byte, off int64) error {
	if len(p) == 0 || off >= f.Size() {
		return fmt.Errorf("%d bytes at %d of %d", len(p), off, f.Size())
	}
	return f.file.ReadAt(ctx, p, off)
}

// TestNothingIsReadBehindTheEnd: what a plan rounds up to behind the end of a file is not asked for.
func TestNothingIsReadBehindTheEnd(t *testing.T) {
	dev := newCPU(t)
	for _, width := range []int{32, 64, 60} { // weights that end at a page, or not
		l, src := network(t, dev, 2, width, width, width, width)
		for i := range l.Graph.Values {
			if w := &l.Graph.Values[i].Weight; w.Extent.Source == src {
				w.Extent.Source = strict{src}
			}
		}
		for _, size := range []int64{4096, 8192} {
			p := newPager(t, dev, Options{pieceBytes: size})
			made := mustPlan(t, l, search.Options{Mode: plan.Page})
			for range 2 {
				if err := p.Pass(t.Context(), made, newTransfer(l.Graph, 1)); err != nil {
					t.Fatalf("width %d, reads of %d bytes: %v", width, size, err)
				}
			}
		}
	}
}
