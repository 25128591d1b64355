package pager

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/plan/search"
	"github.com/optimem/optimem/storage"
)

// A queuedFile is a file that queues reads. Which it begins, which it completes and in what order is up to the test.
type queuedFile struct {
	*file
	// refuse says of the n-th read that it is not begun, empty that it is begun and not completed; n is counted from 1.
	refuse, empty func(n int) bool
	// open counts queues, begun reads that were begun, mostBytes what was under way at once.
	open, begun int
	mostBytes   int64
	// late has reads end when they are waited for, not before, soon all of them as soon as anyone looks.
	late, soon bool
}

func (f *queuedFile) ReadBulk(ctx context.Context, p []byte, off int64) error {
	return f.ReadAt(ctx, p[:min(int64(len(p)), f.Size()-off)], off)
}

func (f *queuedFile) Queue(n int) (storage.ReadQueue, error) {
	f.open++
	return &queuedReads{file: f, reads: make([]queuedRead, n)}, nil
}

type queuedReads struct {
	file   *queuedFile
	reads  []queuedRead
	order  []int // numbers of those under way
	told   int   // how many of them the disk knows of
	closed bool
}

type queuedRead struct {
	into  []byte
	off   int64
	empty bool
}

func (q *queuedReads) Begin(number int, p []byte, off int64) bool {
	if q.reads[number].into != nil {
		panic("number " + fmt.Sprint(number) + " is under way")
	}
	q.file.begun++
	if f := q.file; f.refuse != nil && f.refuse(f.begun) {
		return false
	}
	q.reads[number] = queuedRead{p, off, q.file.empty != nil && q.file.empty(q.file.begun)}
	q.order = append(q.order, number)
	var bytes int64
	for _, number := range q.order {
		bytes += int64(len(q.reads[number].into))
	}
	q.file.mostBytes = max(q.file.mostBytes, bytes)
	return true
}

func (q *queuedReads) Flush() { q.told = len(q.order) }

// Wait ends the reads in another order than that in which they were begun.
func (q *queuedReads) Wait(ctx context.Context) (int, bool, error) {
	if len(q.order) == 0 {
		panic("nothing is under way")
	}
	if q.told < len(q.order) {
		panic("reads are waited for that the disk does not know of")
	}
	if (q.file.late || len(q.order) < 3 && !q.file.soon) && ctx.Err() != nil {
		return 0, false, ctx.Err()
	}
	k := len(q.order) * 2 / 3
	number := q.order[k]
	q.order = append(q.order[:k], q.order[k+1:]...)
	q.told--
	r := q.reads[number]
	q.reads[number] = queuedRead{}
	if !r.empty {
		copy(r.into, q.file.data[r.off:])
	}
	return number, !r.empty, nil
}

func (q *queuedReads) Close() error {
	if !q.closed {
		q.closed = true
		q.file.open--
	}
	if len(q.order) > 0 {
		return errors.New("reads are under way")
	}
	return nil
}

// queuedNetwork is a network whose weights lie in a file that queues reads.
func queuedNetwork(t *testing.T, dev *cpu.Device) (*graph.Lowered, *queuedFile) {
	l, src := network(t, dev, 2, 200, 300, 150, 500, 300, 300, 20, 300)
	return l, queuedOf(l, src)
}

// queuedOf has the weights of a network in a file that queues reads.
func queuedOf(l *graph.Lowered, src *file) *queuedFile {
	f := &queuedFile{file: src}
	for i := range l.Graph.Values {
		if w := &l.Graph.Values[i].Weight; w.Extent.Source == src {
			w.Extent.Source = f
		}
	}
	return f
}

// TestQueuedReads runs passes over a file that queues reads: begun, refused, begun and not completed; with room for all
// and without.
func TestQueuedReads(t *testing.T) {
	dev := newCPU(t)
	l, src := queuedNetwork(t, dev)
	want := newTransfer(l.Graph, 1)
	if err := newPager(t, dev, Options{}).Pass(t.Context(), mustPlan(t, l, search.Options{Mode: plan.Resident}), want); err != nil {
		t.Fatal(err)
	}
	every := func(k int) func(int) bool { return func(n int) bool { return n%k == 0 } }
	for _, c := range []struct {
		name          string
		refuse, empty func(int) bool
		bytes         int64
	}{
		{name: "all"}, {name: "none", refuse: every(1)}, {name: "some", refuse: every(3)}, {name: "incomplete", empty: every(2)},
		{name: "small", bytes: 4096}, {name: "small, some", refuse: every(3), empty: every(5), bytes: 4096},
	} {
		for _, slots := range []int{1, 2, 0} {
			t.Run(fmt.Sprintf("%s/%d", c.name, slots), func(t *testing.T) {
				src.refuse, src.empty, src.begun = c.refuse, c.empty, 0
				made := mustPlan(t, l, search.Options{Mode: plan.Page, Slots: slots})
				before := inUse()
				p := newPager(t, dev, Options{pieceBytes: c.bytes})
				for range 3 {
					got := newTransfer(l.Graph, 1)
					if err := p.Pass(t.Context(), made, got); err != nil {
						t.Fatal(err)
					}
					if !bytes.Equal(got.out[0], want.out[0]) {
						t.Fatal("other bits")
					}
				}
				if src.begun == 0 || src.open != 1 {
					t.Errorf("%d reads were begun, %d queues are open", src.begun, src.open)
				}
				if read := p.Stats().ReadBytes; read < 3*made.MovedBytes-int64(len(made.Groups))*storage.AlignBytes {
					t.Errorf("%d bytes were read, three times %d were to be moved", read, made.MovedBytes)
				}
				if err := p.Close(); err != nil || src.open != 0 {
					t.Errorf("%v, %d queues are open", err, src.open)
				}
				if left := inUse() - before; left != 0 {
					t.Errorf("%d bytes are left", left)
				}
			})
		}
	}
}

// TestReadsWithinOps: a device that calls back while it computes has the next reads begun in that time.
func TestReadsWithinOps(t *testing.T) {
	dev := newCPU(t)
	l, src := queuedNetwork(t, dev)
	within := 0
	src.late = true
	p, err := New(calling{dev, func(meanwhile func()) {
		before := src.begun
		src.late = false // reads end while the op runs
		meanwhile()
		src.late = true
		within += src.begun - before
	}}, Options{pieceBytes: 4096})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	made := mustPlan(t, l, search.Options{Mode: plan.Page, Slots: 6})
	for range 3 {
		if err := p.Pass(t.Context(), made, newTransfer(l.Graph, 1)); err != nil {
			t.Fatal(err)
		}
	}
	if within == 0 {
		t.Error("no read was begun while an op ran")
	}
}

// A calling device has a function called in the middle of each op, with what the op may call.
type calling struct {
	*cpu.Device
	during func(meanwhile func())
}

func (d calling) NewStream() (device.Stream, error) {
	s, err := d.Device.NewStream()
	return &callingStream{Stream: s, during: d.during}, err
}

type callingStream struct {
	device.Stream
	during    func(meanwhile func())
	meanwhile func()
}

func (s *callingStream) Meanwhile(f func()) { s.meanwhile = f }

func (s *callingStream) Run(ctx context.Context, l device.Launch) error {
	s.during(s.meanwhile)
	return s.Stream.Run(ctx, l)
}

// TestQueuedReadErrors: of a read that was not completed, reading again says why; the pass ends with that and the group,
// and the next gives what it should. So it does after a pass that was cancelled with reads under way.
func TestQueuedReadErrors(t *testing.T) {
	dev := newCPU(t)
	l, src := queuedNetwork(t, dev)
	made := mustPlan(t, l, search.Options{Mode: plan.Page})
	for _, size := range []int64{0, 4096} {
		cancelAt := -1
		cancel := func() {}
		p := newPager(t, dev, Options{pieceBytes: size, Observe: func(e Event) {
			if e.Group == cancelAt {
				cancel()
			}
		}})
		want := newTransfer(l.Graph, 1)
		if err := p.Pass(t.Context(), made, want); err != nil {
			t.Fatal(err)
		}
		for n := 1; n < 40; n += 3 {
			p.current.fetcher.Reset()
			at := src.begun + n
			src.empty = func(n int) bool { return n == at }
			src.failAt = <-src.reads + 1 // the read that says why
			src.reads <- src.failAt - 1
			var failed error
			for range 10 {
				if failed = p.Pass(t.Context(), made, newTransfer(l.Graph, 1)); failed != nil {
					break
				}
			}
			var where *GroupError
			if !errors.Is(failed, errDisk) || !errors.As(failed, &where) || where.Path == "" || where.Step != "load" {
				t.Fatalf("read %d: got %v, want the disk's error and the group", n, failed)
			}
			cancelAt = n % len(made.Groups)
			var ctx context.Context
			ctx, cancel = context.WithCancel(t.Context())
			if err := p.Pass(ctx, made, newTransfer(l.Graph, 1)); cancelAt < len(made.Groups)-1 && !errors.Is(err, context.Canceled) {
				t.Fatalf("cancelled after group %d: %v", cancelAt, err)
			}
			cancel()
			cancelAt = -1
			got := newTransfer(l.Graph, 1)
			if err := p.Pass(t.Context(), made, got); err != nil {
				t.Fatalf("after read %d failed: %v", n, err)
			}
			if !bytes.Equal(got.out[0], want.out[0]) {
				t.Errorf("after read %d failed: other bits", n)
			}
		}
		src.empty, src.failAt = nil, 0
	}
}

// An outOfTurn file fails the read at an offset, and never completes that at another.
type outOfTurn struct {
	*file
	fails, waits int64
}

func (f *outOfTurn) ReadAt(ctx context.Context, p []byte, off int64) error {
	switch off {
	case f.fails:
		return errDisk
	case f.waits:
		<-ctx.Done()
	}
	return f.file.ReadAt(ctx, p, off)
}

// TestReadAheadErrors: an error of what is read ahead names its own group, not the one that waits for its weights when it
// comes up.
func TestReadAheadErrors(t *testing.T) {
	dev := newCPU(t)
	l, src := network(t, dev, 2, 300, 300, 300, 300)
	f := &outOfTurn{file: src}
	for i := range l.Graph.Values {
		if w := &l.Graph.Values[i].Weight; w.Extent.Source == src {
			w.Extent.Source = f
		}
	}
	made := mustPlan(t, l, search.Options{Mode: plan.Page, Slots: 3})
	var paged []*plan.Group
	for i := range made.Groups {
		if made.Groups[i].Paged() {
			paged = append(paged, &made.Groups[i])
		}
	}
	f.waits, f.fails = paged[0].Spans[0].Extent.Offset, paged[1].Spans[0].Extent.Offset
	err := newPager(t, dev, Options{}).Pass(t.Context(), made, newTransfer(l.Graph, 1))
	var where *GroupError
	if !errors.Is(err, errDisk) || !errors.As(err, &where) || where.Path != paged[1].Name() || where.Step != "load" {
		t.Errorf("got %v, want an error of %s", err, paged[1].Name())
	}
}
