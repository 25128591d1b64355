package fetch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	goruntime "runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/optimem/optimem/device/emulated"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/storage"
)

// A halved file has of each two bytes the first, the second being that turned over. Decoding takes a processor, all of
// them together, as long as a disk of its rate takes to read what is decoded.
type halved struct {
	raw       storage.Source
	processor *disk
	// failAt is the decoding that fails, from 1.
	failAt, decoded int32
	panics          bool
	atOnce, most    atomic.Int32
	whole           atomic.Int32 // reads of what is not decoded in place
	// opsRun says that ops run, besideOps counts what is begun to decode meanwhile.
	opsRun    atomic.Bool
	besideOps atomic.Int32
}

func (f *halved) Size() int64                  { return 2 * f.raw.Size() }
func (f *halved) StoredBytes(_, n int64) int64 { return n / 2 }
func (f *halved) BlockBytes() int64            { return storage.AlignBytes }
func (f *halved) BufferBytes() int64           { return storage.AlignBytes }
func (f *halved) Unchanged() error             { return f.raw.(storage.Guarded).Unchanged() }
func (f *halved) extent(off, n int64) (storage.Extent, int64) {
	return storage.Extent{Source: f.raw, Offset: off / 2, Bytes: n / 2}.Aligned()
}

func (f *halved) Cut(off, n, most int64) int64 { return min(n, most) }

func (f *halved) InPlace(p []byte, parts []storage.Part) (storage.Extent, int64, bool) {
	n := int64(len(p))
	e, _ := f.extent(parts[0].Offset, n)
	return e, n - e.Bytes, n >= e.Bytes
}

func (f *halved) Decode(ctx context.Context, p []byte, parts []storage.Part) error {
	off := parts[0].Offset
	f.most.Store(max(f.most.Load(), f.atOnce.Add(1))) // exact where goroutines take turns
	defer f.atOnce.Add(-1)
	if f.opsRun.Load() {
		f.besideOps.Add(1)
	}
	if f.processor != nil {
		time.Sleep(time.Until(f.processor.take(int64(len(p)))))
	}
	if atomic.AddInt32(&f.decoded, 1) == f.failAt {
		if f.panics {
			panic(errDisk)
		}
		return errDisk
	}
	e, skip := f.extent(off, int64(len(p)))
	f.double(p, bytes.Clone(p[int64(len(p))-e.Bytes+skip:]))
	return ctx.Err()
}

func (f *halved) double(p, half []byte) {
	for i := range p {
		p[i] = half[i/2] ^ byte(-(i & 1))
	}
}

func (f *halved) ReadAt(ctx context.Context, p []byte, off int64) error {
	f.whole.Add(1)
	half := make([]byte, len(p)/2)
	if err := f.raw.ReadAt(ctx, half, off/2); err != nil {
		return err
	}
	f.double(p, half)
	return nil
}

// data are all bytes.
func (f *halved) data(raw []byte) []byte {
	p := make([]byte, 2*len(raw))
	f.double(p, raw)
	return p
}

// alignedSlots is slotsOf with memory that disks can be read into past the page cache.
func alignedSlots(p *plan.Plan) ([]byte, DeviceMemory) {
	ring := storage.AlignedBytes(p.RingBytes)
	return ring, DeviceMemory{Slot: func(g *plan.Group) []byte { return ring[g.SlotOffset:][:g.SlotBytes] }}
}

const mebi = 1 << 20

// manyGroups is a plan of groups of 2 MiB, 64 in all, in a ring of so many slots.
func manyGroups(source storage.Source, slots int) *plan.Plan {
	var blocks []int64
	for range 32 {
		blocks = append(blocks, 2*mebi/storage.AlignBytes)
	}
	return ringed(source, slots, blocks...)
}

// TestDecodingTakesNoTimeFromTheDisk: of a packed file a pass takes what the slower takes of the disk and of decoding,
// by their clock, and not both, whoever reads.
func TestDecodingTakesNoTimeFromTheDisk(t *testing.T) {
	passes := int64(5)
	if testing.Short() {
		passes = 2
	}
	for name, queues := range map[string]bool{"goroutines": false, "queues": true} {
		for _, decode := range []float64{100 * mebi, 200 * mebi, 400 * mebi} {
			t.Run(fmt.Sprintf("%s, decoding %.0f MiB a second", name, decode/mebi), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					raw := newFile(32 * mebi)
					f := &halved{raw: &throttled{raw, &disk{number: 1, rate: 100 * mebi}, queues}, processor: &disk{rate: decode}}
					p := manyGroups(f, 8)
					ring, to := alignedSlots(p)
					var read atomic.Int64
					meter := &Meter{}
					d := NewDirect(p, to, nil, Options{Readers: 2, Read: &read, PieceBytes: mebi / 2, Meter: meter})
					data := f.data(raw.data)
					begin := time.Now()
					for range passes {
						if err := runPass(t.Context(), d, p, data, ring); err != nil {
							t.Fatal(err)
						}
					}
					took := time.Since(begin).Seconds() / float64(passes)
					if err := d.Close(); err != nil {
						t.Fatal(err)
					}
					reading, decoding := 32.0/100, 64*mebi/decode
					if least := max(reading, decoding); took < least*0.9 || took > least*1.12 {
						t.Errorf("a pass took %.3f s, of which reading takes %.3f and decoding %.3f", took, reading, decoding)
					}
					if n := read.Load(); n < passes*32*mebi || n > passes*32*mebi+16*mebi {
						t.Errorf("%d bytes were read in %d passes of %d", n, passes, 32*mebi)
					}
					if n := f.most.Load(); n > int32(goruntime.GOMAXPROCS(0)) || f.whole.Load() > 0 {
						t.Errorf("%d were decoding at once, %d reads were of what is not decoded in place", n, f.whole.Load())
					}
					for _, rate := range meter.Rates() {
						if rate < 90*mebi || rate > 110*mebi {
							t.Errorf("the disk was metered at %.0f MiB a second", rate/mebi)
						}
					}
				})
			})
		}
	}
}

// TestOpsHaveTheProcessors: while ops run nothing is given to decode, but for the little that a wait before them left;
// what was read meanwhile is decoded when they have ended, and takes no more time than decoding.
func TestOpsHaveTheProcessors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		raw := newFile(32 * mebi)
		f := &halved{raw: &throttled{raw, &disk{number: 1, rate: 100 * mebi}, true}, processor: &disk{rate: 200 * mebi}}
		p := manyGroups(f, 2)
		_, to := alignedSlots(p)
		d := NewDirect(p, to, nil, Options{Readers: 2, Read: new(atomic.Int64), PieceBytes: mebi / 16})
		begin := time.Now()
		const passes, ops, each = 3, 30, time.Millisecond
		for range passes {
			d.Begin()
			for k := range p.Groups {
				if !d.Brings(k) {
					continue
				}
				if err := d.Ready(t.Context(), k); err != nil {
					t.Fatal(err)
				}
				f.opsRun.Store(true)
				for range ops {
					time.Sleep(each)
					d.Tick()
				}
				f.opsRun.Store(false)
				d.Done(k)
			}
		}
		took := time.Since(begin)
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		if most := passes * 32 * (ops*each + 10*time.Millisecond); took > most*105/100 {
			t.Errorf("%d passes took %v, of which ops and decoding take %v", passes, took, most)
		}
		if n, most := f.besideOps.Load(), int32(passes*32*2*goruntime.GOMAXPROCS(0)); n > most {
			t.Errorf("%d reads were decoded while ops ran, more than %d", n, most)
		}
	})
}

// TestStagedDecoding is TestDecodingTakesNoTimeFromTheDisk for a device with memory of its own.
func TestStagedDecoding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		raw := newFile(32 * mebi)
		f := &halved{raw: &throttled{raw, &disk{number: 1, rate: 100 * mebi}, false}, processor: &disk{rate: 200 * mebi}}
		var blocks []int64
		for range 8 {
			blocks = append(blocks, 8*mebi/storage.AlignBytes)
		}
		p := ringed(f, 4, blocks...)
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
			slots[i] = storage.AlignedBytes(8 * mebi)
		}
		var groups []StagedGroup
		for k := range p.Groups {
			if g := &p.Groups[k]; g.Paged() {
				groups = append(groups, StagedGroup{Group: g, Number: k, Slots: slots})
			}
		}
		s, err := NewStaged(dev, compute, ring, groups, Options{Readers: 2, Copiers: 2, Read: new(atomic.Int64)})
		if err != nil {
			t.Fatal(err)
		}
		data := f.data(raw.data)
		begin := time.Now()
		const passes = 3
		for range passes {
			found, err := copiedOut(t.Context(), s, p, compute, ring)
			if err != nil {
				t.Fatal(err)
			}
			for k, g := range groups {
				if !bytes.Equal(found[k], data[g.Group.Spans[0].Extent.Offset:][:g.Group.SlotBytes]) {
					t.Fatalf("%s: other bytes", g.Group.Path)
				}
			}
		}
		took := time.Since(begin).Seconds() / passes
		ring.Free()
		if err := errors.Join(s.Close(), compute.Close(), dev.Close()); err != nil {
			t.Fatal(err)
		}
		if least := 32.0 / 100; took > least*1.25 {
			t.Errorf("a pass took %.3f s, of which reading takes %.3f and decoding as long", took, least)
		}
	})
}

// TestDirectInPlace: whatever a queue does with reads, groups find what the blocks stand for, pass after pass.
func TestDirectInPlace(t *testing.T) {
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
				raw := &queuedFile{file: newFile(45 * storage.AlignBytes)}
				set(raw)
				f := &halved{raw: raw}
				p := ringed(f, slots, blocks...)
				p.Forecast.Bound = rapid.SampledFrom([]string{"disk", "compute"}).Draw(t, "bound")
				ring, to := alignedSlots(p)
				var read atomic.Int64
				d := NewDirect(p, to, nil, Options{Readers: 2, Read: &read, PieceBytes: size})
				data := f.data(raw.data)
				for pass := range 4 {
					if err := runPass(context.Background(), d, p, data, ring); err != nil {
						t.Fatalf("pass %d: %v", pass, err)
					}
				}
				if err := d.Close(); err != nil || raw.open != 0 {
					t.Errorf("%v, %d queues are open", err, raw.open)
				}
				if f.decoded == 0 || f.whole.Load() > 0 {
					t.Errorf("%d reads were decoded in place, %d were not", f.decoded, f.whole.Load())
				}
				if n := read.Load(); n < 2*p.MovedBytes || n > 5*p.MovedBytes/2 {
					t.Errorf("%d bytes were read in four passes that bring %d", n, p.MovedBytes)
				}
			})
		})
	}
}

// TestFaultsInPlace: blocks that do not decode end a pass with the group's name, a file that changed is what is told
// first, and the next pass finds everything again.
func TestFaultsInPlace(t *testing.T) {
	for _, queues := range []bool{false, true} {
		for _, panics := range []bool{false, true} {
			for _, changed := range []bool{false, true} {
				raw := newFile(20 * storage.AlignBytes)
				f := &halved{raw: raw, failAt: 3, panics: panics}
				if queues {
					f.raw = &queuedFile{file: raw}
				}
				p := ringed(f, 2, 8, 8, 8, 8, 8)
				ring, to := alignedSlots(p)
				d := NewDirect(p, to, nil, Options{Readers: 1, Read: new(atomic.Int64)})
				data := f.data(raw.data)
				raw.changed.Store(changed)
				err := runPass(t.Context(), d, p, data, ring)
				var at *Error
				if !errors.As(err, &at) || !changed && (at.Path == "none" || !panics && !errors.Is(err, errDisk)) ||
					errors.Is(err, storage.ErrChanged) != changed {
					t.Errorf("queues %v, panics %v, changed %v: %v", queues, panics, changed, err)
				}
				d.Reset()
				raw.changed.Store(false)
				f.failAt = 0
				if err := runPass(t.Context(), d, p, data, ring); err != nil {
					t.Error("the pass after that:", err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				d.Begin()
				if err := d.Ready(ctx, 1); err != nil && !errors.Is(err, context.Canceled) {
					t.Error("cancelled:", err)
				}
				d.Reset()
				if err := runPass(t.Context(), d, p, data, ring); err != nil {
					t.Error("the pass after one that was cancelled:", err)
				}
				if err := d.Close(); err != nil {
					t.Error(err)
				}
			}
		}
	}
}
