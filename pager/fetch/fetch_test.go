package fetch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/device/emulated"
	"github.com/optimem/optimem/device/late"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/storage"
)

// A file is a source in memory. What it does with reads is up to the test.
type file struct {
	data    []byte
	mu      sync.Mutex
	reads   int
	failAt  int // the read that fails, from 1
	panics  bool
	changed atomic.Bool
}

func newFile(n int64) *file {
	f := &file{data: make([]byte, n)}
	for i := range f.data {
		f.data[i] = byte(i*7 + i/251)
	}
	return f
}

func (f *file) Size() int64 { return int64(len(f.data)) }

var errDisk = errors.New("the disk is gone")

func (f *file) ReadAt(ctx context.Context, p []byte, off int64) error {
	f.mu.Lock()
	f.reads++
	fails := f.reads == f.failAt
	f.mu.Unlock()
	if fails && f.panics {
		panic(errDisk)
	}
	if fails {
		return errDisk
	}
	if copy(p, f.data[off:]) < len(p) {
		return io.ErrUnexpectedEOF
	}
	return ctx.Err()
}

func (f *file) Unchanged() error {
	if f.changed.Load() {
		return storage.ErrChanged
	}
	return nil
}

// A queuedFile queues reads, which end in another order than they were begun.
type queuedFile struct {
	*file
	refuse, empty       func(n int) bool // says of the n-th read that is begun whether it is not taken, or not completed
	open, begun         int
	underWay, mostBytes int64
	// onlyWhenWaited and soon have reads end as late or as early as can be, else all but two have when anyone looks.
	onlyWhenWaited, soon bool
}

func (f *queuedFile) ReadBulk(ctx context.Context, p []byte, off int64) error {
	return f.ReadAt(ctx, p[:min(int64(len(p)), f.Size()-off)], off)
}

func (f *queuedFile) Queue(n int) (storage.ReadQueue, error) {
	f.open++
	return &queuedReads{file: f, into: make([][]byte, n), off: make([]int64, n), n: make([]int, n)}, nil
}

type queuedReads struct {
	file   *queuedFile
	into   [][]byte
	off    []int64
	n      []int
	order  []int // numbers of those under way
	told   int
	closed bool
}

func (q *queuedReads) Begin(number int, p []byte, off int64) bool {
	f := q.file
	if f.begun++; f.refuse != nil && f.refuse(f.begun) {
		return false
	}
	if q.into[number] != nil {
		panic(fmt.Sprint("number ", number, " is under way"))
	}
	q.into[number], q.off[number], q.n[number] = p, off, f.begun
	q.order = append(q.order, number)
	f.underWay += int64(len(p))
	f.mostBytes = max(f.mostBytes, f.underWay)
	return true
}

func (q *queuedReads) Flush() { q.told = len(q.order) }

func (q *queuedReads) Wait(ctx context.Context) (int, bool, error) {
	if len(q.order) == 0 || q.told < len(q.order) {
		panic("nothing is under way, or reads that the disk does not know of are waited for")
	}
	if (q.file.onlyWhenWaited || len(q.order) < 3 && !q.file.soon) && ctx.Err() != nil {
		return 0, false, ctx.Err()
	}
	k := len(q.order) * 2 / 3
	number := q.order[k]
	q.order = slices.Delete(q.order, k, k+1)
	q.told--
	filled := q.file.empty == nil || !q.file.empty(q.n[number])
	if filled {
		copy(q.into[number], q.file.data[q.off[number]:])
	}
	q.file.underWay -= int64(len(q.into[number]))
	q.into[number] = nil
	return number, filled, nil
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

// ringed returns a plan of paged groups of so many blocks, behind one another in a file, in a ring of a number of slots
// of the largest one's size. Between them are groups without weights.
func ringed(source storage.Source, slots int, blocks ...int64) *plan.Plan {
	p := &plan.Plan{Instances: 1}
	p.Forecast.Bound = "disk"
	slot := slices.Max(blocks) * storage.AlignBytes
	p.RingBytes = int64(slots) * slot
	at := int64(0)
	for k, n := range blocks {
		bytes := n * storage.AlignBytes
		after := slots
		if k < slots { // counted around: the last group that had the slot before
			after = k + len(blocks) - (k + (len(blocks)-1-k)/slots*slots)
		}
		p.Groups = append(p.Groups, plan.Group{Path: "none"}, plan.Group{
			Path: fmt.Sprint("group", k), Parts: []plan.Part{{High: bytes}},
			Spans:      []plan.Span{{Extent: storage.Extent{Source: source, Offset: at, Bytes: bytes}}},
			SlotOffset: int64(k%slots) * slot, SlotBytes: bytes, After: after,
		})
		at += bytes
		p.MovedBytes += bytes
	}
	return p
}

// slotsOf returns memory for a plan's ring, and how a fetcher sees it.
func slotsOf(p *plan.Plan) ([]byte, DeviceMemory) {
	ring := make([]byte, p.RingBytes)
	return ring, DeviceMemory{Slot: func(g *plan.Group) []byte { return ring[g.SlotOffset:][:g.SlotBytes] }}
}

// runPass runs a pass, in which each group finds its bytes in its slot from when they are ready to when it is done.
func runPass(ctx context.Context, f Fetcher, p *plan.Plan, data, ring []byte) error {
	f.Begin()
	for k := range p.Groups {
		g := &p.Groups[k]
		if !g.Paged() {
			f.Tick()
			continue
		}
		if err := f.Ready(ctx, k); err != nil {
			return err
		}
		want := data[g.Spans[0].Extent.Offset:][:g.SlotBytes]
		for range 3 {
			f.Tick()
			if !bytes.Equal(ring[g.SlotOffset:][:g.SlotBytes], want) {
				return fmt.Errorf("%s: other bytes", g.Path)
			}
		}
		f.Done(k)
	}
	return nil
}

// TestDirect: whatever a queue does with reads, and however many slots there are, each group finds its bytes, pass
// after pass; all queues are given back.
func TestDirect(t *testing.T) {
	every := func(k int) func(int) bool { return func(n int) bool { return n%k == 0 } }
	for name, set := range map[string]func(*queuedFile){
		"all":        func(*queuedFile) {},
		"none":       func(f *queuedFile) { f.refuse = every(1) },
		"some":       func(f *queuedFile) { f.refuse = every(3) },
		"incomplete": func(f *queuedFile) { f.empty = every(2) },
		"late":       func(f *queuedFile) { f.onlyWhenWaited = true },
		"soon":       func(f *queuedFile) { f.soon, f.refuse = true, every(4) },
	} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				blocks := rapid.SliceOfN(rapid.Int64Range(1, 9), 1, 9).Draw(t, "blocks")
				slots := rapid.IntRange(1, len(blocks)).Draw(t, "slots")
				size := rapid.SampledFrom([]int64{storage.AlignBytes, 3 * storage.AlignBytes, 0}).Draw(t, "size")
				f := &queuedFile{file: newFile(90 * storage.AlignBytes)}
				set(f)
				p := ringed(f, slots, blocks...)
				p.Forecast.Bound = rapid.SampledFrom([]string{"disk", "compute"}).Draw(t, "bound")
				ring, to := slotsOf(p)
				var read atomic.Int64
				d := NewDirect(p, to, nil, Options{Readers: 2, Read: &read, PieceBytes: size})
				for pass := range 4 {
					if err := runPass(context.Background(), d, p, f.data, ring); err != nil {
						t.Fatalf("pass %d: %v", pass, err)
					}
				}
				if f.open != 1 {
					t.Errorf("%d queues are open", f.open)
				}
				if err := d.Close(); err != nil || f.open != 0 {
					t.Errorf("%v, %d queues are open", err, f.open)
				}
				if n := read.Load(); n < 4*p.MovedBytes || n > 5*p.MovedBytes {
					t.Errorf("%d bytes were read in four passes of %d", n, p.MovedBytes)
				}
			})
		})
	}
}

// TestBatches: no more is under way than half the ring, or one visit, and the few reads of the batch before that are
// left.
func TestBatches(t *testing.T) {
	for _, slots := range []int{2, 3, 4, 6} {
		for _, size := range []int64{4096, 64 << 10} {
			f := &queuedFile{file: newFile(100 * storage.AlignBytes), onlyWhenWaited: true}
			p := ringed(f, slots, 12, 30, 4, 8, 16, 16, 2, 12)
			ring, to := slotsOf(p)
			d := NewDirect(p, to, nil, Options{Readers: 1, Read: new(atomic.Int64), PieceBytes: size})
			for range 3 {
				if err := runPass(t.Context(), d, p, f.data, ring); err != nil {
					t.Fatal(err)
				}
			}
			most := max(p.RingBytes/2, 30*storage.AlignBytes)
			if most += min(mostLow*size, most/lowShare); f.mostBytes > most {
				t.Errorf("%d slots, reads of %d bytes: %d are under way, more than %d", slots, size, f.mostBytes, most)
			}
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestSoon: where ops would wait for a batch although they take longer than the disk, what they need first is asked for
// by itself, and the rest of it when that has come; where the disk takes longer, the whole batch is asked for at once.
func TestSoon(t *testing.T) {
	for _, bound := range []string{"compute", "disk"} {
		f := &queuedFile{file: newFile(1000 * storage.AlignBytes), onlyWhenWaited: true}
		p := ringed(f, 9, 100, 100, 100, 100, 100, 100, 100, 100, 100)
		p.Forecast.Bound = bound
		_, to := slotsOf(p)
		d := NewDirect(p, to, nil, Options{Readers: 1, Read: new(atomic.Int64), PieceBytes: 64 << 10})
		d.mostBytes = 1 << 40
		d.Begin()
		l := d.lanes[0]
		var asked int64
		for _, v := range d.order[:l.begun] {
			asked += v.bytes
		}
		if few := asked <= soonBytes; l.begun == 0 || few != (bound == "compute") {
			t.Errorf("bound by %s: %d bytes are asked for at once", bound, asked)
		}
		before := l.begun
		if err := d.Ready(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		for i := 0; i < 1000 && l.underWay > 0; i++ {
			d.Tick()
			if err := d.reap(t.Context(), l.queues[0]); err != nil {
				t.Fatal(err)
			}
		}
		if d.Tick(); bound == "compute" && l.begun <= before {
			t.Errorf("%d visits are begun once the first is there, %d before", l.begun, before)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestSinglePass: for one pass that reads little no queue is asked for; one that reads much gives its queue back with
// its last group, and a pass that nobody expected works all the same.
func TestSinglePass(t *testing.T) {
	for _, pays := range []int64{0, 1} {
		f := &queuedFile{file: newFile(40 * storage.AlignBytes)}
		p := ringed(f, 2, 5, 1, 7, 3)
		p.Once = true
		ring, to := slotsOf(p)
		var read atomic.Int64
		d := NewDirect(p, to, nil, Options{Readers: 2, Read: &read, QueuesPay: pays})
		for pass := int64(1); pass <= 2; pass++ {
			if err := runPass(t.Context(), d, p, f.data, ring); err != nil {
				t.Fatal(err)
			}
			if queues := f.begun > 0; queues != (pays > 0) {
				t.Errorf("%d reads were queued", f.begun)
			}
			if n := read.Load(); n != pass*p.MovedBytes {
				t.Errorf("%d bytes were read after %d passes of %d", n, pass, p.MovedBytes)
			}
		}
		if err := d.Close(); err != nil || f.open != 0 {
			t.Errorf("%v, %d queues are open", err, f.open)
		}
	}
}

// TestStays: with each group comes what it is the first to need of the weights that stay, once.
func TestStays(t *testing.T) {
	f := &queuedFile{file: newFile(40 * storage.AlignBytes)}
	p := ringed(f, 2, 5, 1, 7)
	ring, to := slotsOf(p)
	to.Fixed = make([]byte, 9*storage.AlignBytes)
	stays := make([][]plan.Span, len(p.Groups))
	at := p.MovedBytes
	for i, k := range []int{0, 3, 4} { // two groups without weights of their own, one with
		n := int64(i+2) * storage.AlignBytes
		e := storage.Extent{Source: f, Offset: at, Bytes: n}
		stays[k] = []plan.Span{{Extent: e, Offset: at - p.MovedBytes}}
		at += n
	}
	var read atomic.Int64
	d := NewDirect(p, to, stays, Options{Readers: 2, Read: &read})
	d.Begin()
	for k := range p.Groups {
		g := &p.Groups[k]
		if brings := g.Paged() || stays[k] != nil; d.Brings(k) != brings {
			t.Fatalf("group %d: brings something is %v", k, !brings)
		} else if !brings {
			continue
		}
		if err := d.Ready(t.Context(), k); err != nil {
			t.Fatal(err)
		}
		for _, s := range stays[k] {
			if !bytes.Equal(to.Fixed[s.Offset:][:s.Extent.Bytes], f.data[s.Extent.Offset:][:s.Extent.Bytes]) {
				t.Errorf("group %d runs without its weights that stay", k)
			}
		}
		if g.Paged() && !bytes.Equal(ring[g.SlotOffset:][:g.SlotBytes], f.data[g.Spans[0].Extent.Offset:][:g.SlotBytes]) {
			t.Errorf("group %d runs without its own weights", k)
		}
		d.Done(k)
	}
	if want := at; read.Load() != want {
		t.Errorf("%d bytes were read of %d", read.Load(), want)
	}
	if err := d.Close(); err != nil || f.open != 0 {
		t.Errorf("%v, %d queues are open", err, f.open)
	}
}

// staging returns a fetcher through host memory of a plan's groups, which are kept there, pass through slots and lie in
// the memory of their source, in turns.
func staging(
	t *testing.T, dev *late.Device, p *plan.Plan, data []byte, loads *Loads,
) (s *Staged, compute device.Stream, ring device.Memory) {
	t.Helper()
	compute, err := dev.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	if ring, err = dev.Alloc(p.RingBytes); err != nil {
		t.Fatal(err)
	}
	var groups []StagedGroup
	var slots [plan.StagingSlots][]byte
	for i := range slots {
		slots[i] = make([]byte, 8*storage.AlignBytes)
	}
	for k := range p.Groups {
		g := &p.Groups[k]
		if !g.Paged() {
			continue
		}
		from := StagedGroup{Group: g, Number: k}
		switch len(groups) % 3 {
		case 0:
			for i := range slots {
				from.Slots[i] = slots[i][:g.SlotBytes]
			}
		case 1:
			g.Copied = true
			from.Copy, from.Held = make([]byte, g.SlotBytes), new(bool)
		case 2:
			from.InPlace = [][]byte{data[g.Spans[0].Extent.Offset:][:g.SlotBytes]}
		}
		groups = append(groups, from)
	}
	if s, err = NewStaged(dev, compute, ring, groups, Options{Readers: 2, Read: new(atomic.Int64), Loads: loads}); err != nil {
		t.Fatal(err)
	}
	return s, compute, ring
}

// copiedOut runs a pass whose ops copy each slot out, and returns what they found.
func copiedOut(
	ctx context.Context, f Fetcher, p *plan.Plan, compute device.Stream, ring device.Memory,
) ([][]byte, error) {
	var found [][]byte
	f.Begin()
	for k := range p.Groups {
		g := &p.Groups[k]
		if !g.Paged() {
			continue
		}
		if err := f.Ready(ctx, k); err != nil {
			return nil, err
		}
		found = append(found, make([]byte, g.SlotBytes))
		region := device.Region{Memory: ring, Offset: g.SlotOffset, Bytes: g.SlotBytes}
		if err := compute.CopyOut(found[len(found)-1], region); err != nil {
			return nil, err
		}
		f.Done(k)
	}
	return found, compute.Sync(ctx)
}

// TestStaged: on a device that does everything as late as it may, ops find the bytes of their group, whichever way
// these came; those that are kept in host memory are read once.
func TestStaged(t *testing.T) {
	for seed := range uint64(6) {
		for _, slots := range []int{1, 2, 3} {
			f := newFile(40 * storage.AlignBytes)
			p := ringed(f, slots, 5, 1, 7, 3, 8, 2, 4)
			dev := late.New(emulated.New(emulated.Options{CheckOrder: true, Threads: 1}), late.Options{Seed: seed})
			s, compute, ring := staging(t, dev, p, f.data, nil)
			for pass := range 6 {
				found, err := copiedOut(t.Context(), s, p, compute, ring)
				if err != nil {
					t.Fatal(err)
				}
				k := 0
				for _, g := range p.Groups {
					if !g.Paged() {
						continue
					}
					if !bytes.Equal(found[k], f.data[g.Spans[0].Extent.Offset:][:g.SlotBytes]) {
						t.Fatalf("seed %d, %d slots, pass %d: %s has other bytes", seed, slots, pass, g.Path)
					}
					k++
				}
			}
			s.Reset()
			f.mu.Lock()
			if most := 2 + 6*3 + 5; f.reads > most { // two that are kept, three in each pass, and ahead
				t.Errorf("%d reads in six passes", f.reads)
			}
			f.mu.Unlock()
			if err := errors.Join(s.Close(), s.Close(), ring.Free(), compute.Close(), dev.Close()); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestErrors: an error, a panic and a change of a source come up as that of the group that was read, and after a reset
// the next pass finds its bytes; so it does after a pass that was given up.
func TestErrors(t *testing.T) {
	for _, queues := range []bool{false, true} {
		for at := 1; at < 20; at++ {
			f := &queuedFile{file: newFile(40 * storage.AlignBytes)}
			if !queues {
				f.refuse = func(int) bool { return true }
			} else {
				f.empty = func(n int) bool { return n%2 == 0 } // these are read again
			}
			p := ringed(f, 2, 5, 1, 7, 3, 8, 2, 4)
			ring, to := slotsOf(p)
			d := NewDirect(p, to, nil, Options{Readers: 2, Read: new(atomic.Int64)})
			f.failAt, f.panics = at, at%3 == 0 && !queues
			var err error
			for range 20 {
				if err = runPass(t.Context(), d, p, f.data, ring); err != nil {
					break
				}
			}
			var where *Error
			if !errors.Is(err, errDisk) || !errors.As(err, &where) || where.Path == "" {
				t.Fatalf("read %d: %v, want the disk's error and the group", at, err)
			}
			d.Reset()
			if err := runPass(t.Context(), d, p, f.data, ring); err != nil {
				t.Fatalf("after read %d failed: %v", at, err)
			}
			cancelled, cancel := context.WithCancel(t.Context())
			cancel()
			if err := runPass(cancelled, d, p, f.data, ring); err != nil && !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			d.Reset()
			f.changed.Store(true)
			if err := runPass(t.Context(), d, p, f.data, ring); !errors.Is(err, storage.ErrChanged) || !errors.As(err, &where) {
				t.Fatalf("the file changed: %v", err)
			}
			d.Reset()
			f.changed.Store(false)
			if err := runPass(t.Context(), d, p, f.data, ring); err != nil {
				t.Fatal(err)
			}
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}
