package fetch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/optimem/optimem/device/emulated"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/storage"
)

// A disk gives so many bytes a second of all files on it together, on the clock of a test.
type disk struct {
	number storage.Disk
	rate   float64
	mu     sync.Mutex
	free   time.Time
}

// take returns when so many bytes will have been read that are asked for now.
func (d *disk) take(bytes int64) time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	if now := time.Now(); d.free.Before(now) {
		d.free = now
	}
	d.free = d.free.Add(time.Duration(float64(bytes) / d.rate * 1e9))
	return d.free
}

// A throttled file lies on a disk; where it queues reads, it has them under way without anybody who waits.
type throttled struct {
	*file
	on     *disk
	queues bool
}

func (f *throttled) Disk() storage.Disk { return f.on.number }

func (f *throttled) ReadAt(ctx context.Context, p []byte, off int64) error {
	time.Sleep(time.Until(f.on.take(int64(len(p)))))
	return f.file.ReadAt(ctx, p, off)
}

func (f *throttled) ReadBulk(ctx context.Context, p []byte, off int64) error {
	return f.ReadAt(ctx, p, off)
}

func (f *throttled) Queue(n int) (storage.ReadQueue, error) {
	if !f.queues {
		return nil, fmt.Errorf("no queues")
	}
	return &throttledQueue{f: f, reads: make(map[int]throttledRead)}, nil
}

type throttledQueue struct {
	f     *throttled
	reads map[int]throttledRead
}

type throttledRead struct {
	into []byte
	off  int64
	ends time.Time
}

func (q *throttledQueue) Begin(number int, p []byte, off int64) bool {
	q.reads[number] = throttledRead{p, off, q.f.on.take(int64(len(p)))}
	return true
}

func (q *throttledQueue) Flush()       {}
func (q *throttledQueue) Close() error { return nil }

func (q *throttledQueue) Wait(ctx context.Context) (int, bool, error) {
	first := -1
	for k, r := range q.reads {
		if first < 0 || r.ends.Before(q.reads[first].ends) {
			first = k
		}
	}
	if first < 0 {
		panic("no read is under way")
	}
	r := q.reads[first]
	if left := time.Until(r.ends); left > 0 {
		select {
		case <-time.After(left):
		case <-ctx.Done():
			return 0, false, ctx.Err()
		}
	}
	delete(q.reads, first)
	return first, true, q.f.file.ReadAt(context.WithoutCancel(ctx), r.into, r.off)
}

// spread has the groups of a plan lie on disks in turn, as many of each as turns say.
func spread(p *plan.Plan, turns []int, files ...storage.Source) {
	k := 0
	for i := range p.Groups {
		if g := &p.Groups[i]; g.Paged() {
			g.Spans[0].Extent.Source = files[turns[k%len(turns)]]
			k++
		}
	}
}

// TestDisksInParallel: of groups that lie on two disks in turn a pass takes what the slower disk takes for its part, by
// the clock of these disks, whoever reads: goroutines, queues, or those on the way to a device with memory of its own.
// What was metered are the disks' rates.
func TestDisksInParallel(t *testing.T) {
	const mib = 1 << 20
	for name, queues := range map[string][2]bool{
		"goroutines": {}, "queues": {true, true}, "one queue": {true, false}, "another queue": {false, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				slow, fast := &disk{number: 1, rate: 100 * mib}, &disk{number: 2, rate: 300 * mib}
				var blocks []int64
				for range 32 {
					blocks = append(blocks, 2*mib/storage.AlignBytes)
				}
				all := newFile(64 * mib)
				files := []storage.Source{&throttled{all, slow, queues[0]}, &throttled{all, fast, queues[1]}}
				p := ringed(files[0], 8, blocks...)
				spread(p, []int{0, 1, 1, 1}, files...)
				ring, to := slotsOf(p)
				var read atomic.Int64
				meter := &Meter{}
				d := NewDirect(p, to, nil, Options{Readers: 2, Read: &read, PieceBytes: mib / 2, Meter: meter})
				begin := time.Now()
				const passes = 10
				for range passes {
					if err := runPass(t.Context(), d, p, all.data, ring); err != nil {
						t.Fatal(err)
					}
				}
				took := time.Since(begin).Seconds()
				if err := d.Close(); err != nil {
					t.Fatal(err)
				}
				// A quarter of the bytes at 100 MiB a second, three at 300: both take as long.
				if least := passes * 16.0 / 100; took < least*0.9 || took > least*1.15 {
					t.Errorf("%d passes took %.3f s, of which a disk needs %.3f and both one after the other %.3f", passes, took, least, 2*least)
				}
				for on, rate := range meter.Rates() {
					want := slow.rate
					if on == fast.number {
						want = fast.rate
					}
					if rate < want*0.9 || rate > want*1.05 {
						t.Errorf("disk %v: %.0f bytes a second were metered of %.0f", on, rate, want)
					}
				}
				// What nobody waits for a queue reads in a time that nobody knows.
				if n := len(meter.Rates()); n == 0 || n < 2 && !queues[0] && !queues[1] {
					t.Errorf("%d disks were metered", n)
				}
			})
		})
	}
}

// TestStagedDisksInParallel is that for a device with memory of its own: two groups are on their way at once where they
// lie on two disks.
func TestStagedDisksInParallel(t *testing.T) {
	const mib = 1 << 20
	synctest.Test(t, func(t *testing.T) {
		one, other := &disk{number: 1, rate: 100 * mib}, &disk{number: 2, rate: 100 * mib}
		all := newFile(16 * mib)
		files := []storage.Source{&throttled{all, one, false}, &throttled{all, other, false}}
		var blocks []int64
		for range 16 {
			blocks = append(blocks, mib/storage.AlignBytes)
		}
		p := ringed(files[0], 8, blocks...)
		spread(p, []int{0, 1}, files...)
		dev := emulated.New(emulated.Options{Threads: 1})
		compute, err := dev.NewStream()
		if err != nil {
			t.Fatal(err)
		}
		ring, err := dev.Alloc(p.RingBytes)
		if err != nil {
			t.Fatal(err)
		}
		var slots [plan.StagingSlots][]byte
		for i := range slots {
			slots[i] = make([]byte, mib)
		}
		var groups []StagedGroup
		for k := range p.Groups {
			if g := &p.Groups[k]; g.Paged() {
				groups = append(groups, StagedGroup{Group: g, Number: k, Slots: slots})
			}
		}
		o := Options{Readers: 2, Copiers: 2, Read: new(atomic.Int64)}
		s, err := NewStaged(dev, compute, ring, groups, o)
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		const passes = 5
		for range passes {
			found, err := copiedOut(t.Context(), s, p, compute, ring)
			if err != nil {
				t.Fatal(err)
			}
			for k, g := range groups {
				if !bytes.Equal(found[k], all.data[g.Group.Spans[0].Extent.Offset:][:g.Group.SlotBytes]) {
					t.Fatalf("%s: other bytes", g.Group.Path)
				}
			}
		}
		took := time.Since(begin).Seconds()
		ring.Free()
		if err := errors.Join(s.Close(), compute.Close(), dev.Close()); err != nil {
			t.Fatal(err)
		}
		if least := passes * 8.0 / 100; took < least*0.9 || took > least*1.2 {
			t.Errorf("%d passes took %.3f s, of which a disk needs %.3f and both one after the other %.3f", passes, took, least, 2*least)
		}
	})
}

// TestVisitsOnTwoDisks: groups of which a part lies on each of two disks find all their bytes, whatever queues do with
// reads.
func TestVisitsOnTwoDisks(t *testing.T) {
	every := func(k int) func(int) bool { return func(n int) bool { return n%k == 0 } }
	for name, set := range map[string]func(*queuedFile){
		"all": func(*queuedFile) {}, "some": func(f *queuedFile) { f.refuse = every(3) },
		"incomplete": func(f *queuedFile) { f.empty = every(2) }, "late": func(f *queuedFile) { f.onlyWhenWaited = true },
		"none": func(f *queuedFile) { f.refuse = every(1) },
	} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				blocks := rapid.SliceOfN(rapid.Int64Range(1, 9), 1, 9).Draw(t, "blocks")
				slots := rapid.IntRange(1, len(blocks)).Draw(t, "slots")
				all := newFile(90 * storage.AlignBytes)
				var files [2]*placedFile
				for i := range files {
					files[i] = &placedFile{queuedFile{file: all}, storage.Disk(i + 1)}
					set(&files[i].queuedFile)
				}
				p := ringed(files[0], slots, blocks...)
				for k := range p.Groups {
					g := &p.Groups[k]
					if !g.Paged() {
						continue
					}
					s := g.Spans[0]
					g.Spans = nil
					for at := int64(0); at < s.Extent.Bytes; at += storage.AlignBytes {
						e := s.Extent
						e.Source = files[rapid.IntRange(0, 1).Draw(t, "disk")]
						e.Offset, e.Bytes = e.Offset+at, storage.AlignBytes
						g.Spans = append(g.Spans, plan.Span{Extent: e, Offset: at})
					}
				}
				p.Forecast.Bound = rapid.SampledFrom([]string{"disk", "compute"}).Draw(t, "bound")
				ring, to := slotsOf(p)
				d := NewDirect(p, to, nil, Options{Readers: 2, Read: new(atomic.Int64)})
				for pass := range 4 {
					if err := runPass(context.Background(), d, p, all.data, ring); err != nil {
						t.Fatalf("pass %d: %v", pass, err)
					}
				}
				if err := d.Close(); err != nil || files[0].open+files[1].open != 0 {
					t.Errorf("%v, %d queues are open", err, files[0].open+files[1].open)
				}
			})
		})
	}
}

// A placedFile says on which disk it lies.
type placedFile struct {
	queuedFile
	on storage.Disk
}

func (f *placedFile) Disk() storage.Disk { return f.on }
