package fetch

import (
	"errors"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/optimem/optimem/device/emulated"
	"github.com/optimem/optimem/device/late"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/storage"
)

// notedPasses checks that after each pass loads of its groups are noted, each once, by number, name and bytes. Those of the
// next pass may be noted too.
func notedPasses(t *testing.T, p *plan.Plan, l *Loads, passes int, run func() error) (all []Load) {
	t.Helper()
	var paged []int
	for k := range p.Groups {
		if p.Groups[k].Paged() {
			paged = append(paged, k)
		}
	}
	for pass := range passes {
		if err := run(); err != nil {
			t.Fatal(err)
		}
		l.Settle()
		l.Tell(func(x Load) {
			g := &p.Groups[paged[len(all)%len(paged)]]
			if x.Group != paged[len(all)%len(paged)] || x.Path != g.Path || x.Bytes != g.SlotBytes {
				t.Errorf("load %d is told of as %+v", len(all), x)
			}
			all = append(all, x)
		})
		if least := (pass + 1) * len(paged); len(all) < least || len(all) > least+len(paged) {
			t.Errorf("%d loads after %d passes of %d groups", len(all), pass+1, len(paged))
		}
		l.Tell(func(x Load) {
			if x.CopyBegin.IsZero() {
				t.Errorf("%+v is told of once more", x)
			}
			all = append(all, x)
		})
	}
	return all
}

// TestLoadsOfDirect: what is read into the device's memory is noted with when that began and ended, whoever reads it.
func TestLoadsOfDirect(t *testing.T) {
	for name, refuse := range map[string]func(int) bool{
		"queues": nil, "readers": func(int) bool { return true }, "both": func(n int) bool { return n%2 == 0 },
	} {
		f := &queuedFile{file: newFile(40 * storage.AlignBytes), refuse: refuse}
		p := ringed(f, 2, 5, 1, 7, 3, 8, 2, 4)
		ring, to := slotsOf(p)
		l := NewLoads()
		d := NewDirect(p, to, nil, Options{
			Readers: 2, Read: new(atomic.Int64), PieceBytes: storage.AlignBytes, Loads: l,
		})
		for range 2 {
			all := notedPasses(t, p, l, 3, func() error { return runPass(t.Context(), d, p, f.data, ring) })
			for _, x := range all {
				if x.Begin.IsZero() || x.End.Before(x.Begin) || !x.CopyBegin.IsZero() || !x.CopyEnd.IsZero() {
					t.Errorf("%s: read from %v to %v, copied from %v to %v", name, x.Begin, x.End, x.CopyBegin, x.CopyEnd)
				}
			}
			d.Reset()
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestLoadsOfStaged: what is copied to a device is noted with when that began and ended, and where it was read for that with
// when the reads did; what was under way at a reset is not waited for.
func TestLoadsOfStaged(t *testing.T) {
	f := newFile(40 * storage.AlignBytes)
	p := ringed(f, 2, 5, 1, 7, 3, 8, 2, 4)
	dev := late.New(emulated.New(emulated.Options{CheckOrder: true, Threads: 1}), late.Options{Seed: 1})
	l := NewLoads()
	s, compute, ring := staging(t, dev, p, f.data, l)
	var kept []int
	for again := range 2 {
		all := notedPasses(t, p, l, 3, func() error {
			_, err := copiedOut(t.Context(), s, p, compute, ring)
			return err
		})
		for i, x := range all {
			g := &p.Groups[x.Group]
			number := slices.IndexFunc(s.order, func(v *stagedVisit) bool { return v.Group == g })
			read := number%3 == 0 // through a slot
			if number%3 == 1 {    // kept in host memory
				read = !slices.Contains(kept, x.Group)
				kept = append(kept, x.Group)
			}
			if read == x.Begin.IsZero() || x.End.Before(x.Begin) || x.CopyBegin.IsZero() ||
				x.CopyBegin.Before(x.End) || x.CopyEnd.Before(x.CopyBegin) {
				t.Errorf("%d, load %d, of %s: read from %v to %v, copied from %v to %v", again, i, g.Path, x.Begin, x.End, x.CopyBegin,
					x.CopyEnd)
			}
		}
		s.Reset()
		l.Tell(func(Load) {})
	}
	if err := errors.Join(s.Close(), ring.Free(), compute.Close(), dev.Close()); err != nil {
		t.Error(err)
	}
}

// A partly file says that the host holds a part of its bytes.
type partly struct {
	storage.Source
	part float64
}

func (f partly) CachedBytes(_, n int64) (int64, bool) { return int64(f.part * float64(n)), f.part >= 0 }
func (f partly) Size() int64                          { return 1 << 20 }

// TestCopiers: many read what the host holds nearly all of, and as many as disks want everything else.
func TestCopiers(t *testing.T) {
	for part, want := range map[float64]int{1: 7, 0.97: 7, 0.9: 4, 0.5: 4, 0: 4, -1: 4} {
		list := []plan.Span{{Extent: storage.Extent{Source: partly{part: part}, Bytes: 1 << 19}}}
		if got := Copiers(4, 7, extents(list)); got != want {
			t.Errorf("%v of the bytes: %d goroutines, want %d", part, got, want)
		}
		if got := Copiers(8, 7, extents(list)); got != 8 {
			t.Errorf("%v of the bytes: %d goroutines, although disks want 8", part, got)
		}
	}
	if got := Copiers(4, 7, extents(nil)); got != 4 {
		t.Errorf("nothing to read: %d goroutines", got)
	}
}
