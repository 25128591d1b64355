package pager

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/optimem/optimem/device/emulated"
	"github.com/optimem/optimem/plan/search"

	"github.com/optimem/optimem/plan"
)

// A crowded file counts the reads that are under way at once, and says that the host holds a part of it in memory.
// Reads end once so many came together, if that is wanted.
type crowded struct {
	*file
	held     float64
	together int

	mu        sync.Mutex
	now, most int
	enough    chan struct{}
}

func (f *crowded) CachedBytes(_, n int64) (int64, bool) { return int64(f.held * float64(n)), true }

func (f *crowded) ReadAt(ctx context.Context, p []byte, off int64) error {
	f.mu.Lock()
	f.now++
	if f.most = max(f.most, f.now); f.most == f.together && f.enough != nil {
		close(f.enough)
		f.together = 0
	}
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.now--
	}()
	if f.enough != nil {
		select {
		case <-f.enough:
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(2 * time.Minute):
			return errors.New("reads are made one after the other")
		}
	}
	return f.file.ReadAt(ctx, p, off)
}

// TestHeldFilesAreCopiedByMany: what the host has in memory is read by as many goroutines as there are processors, and
// what a disk has to read by no more than disks want, for groups and for weights that stay.
func TestHeldFilesAreCopiedByMany(t *testing.T) {
	const readers, copiers = 2, 3
	host := newCPU(t)
	l, src := network(t, host, 1, 1500, 1500, 1500)
	for i := range l.Steps {
		l.Steps[i].Packs = nil
	}
	for name, held := range map[string]float64{"in memory": 1, "nearly": 0.97, "half": 0.5, "on disk": 0} {
		for mode, hostBytes := range map[plan.Mode]int64{plan.Page: 19 << 20, plan.Resident: 64 << 20} {
			made := mustPlan(t, l, search.Options{Mode: mode, Target: emu, HostBytes: hostBytes})
			f := &crowded{file: src, held: held}
			if held > 0.9 {
				f.together, f.enough = copiers, make(chan struct{})
			}
			for _, list := range append([][]plan.Span{made.Fixed.Spans}, spansOf(made)...) {
				for i := range list {
					list[i].Extent.Source = f
				}
			}
			p, err := New(emulated.New(emulated.Options{Dry: true}), Options{Readers: readers, copiers: copiers})
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(p.Pass(t.Context(), made, newTransfer(l.Graph, 1)), p.Close()); err != nil {
				t.Fatalf("%s, %s: %v", mode, name, err)
			}
			if held < 0.9 && f.most > readers || held > 0.9 && f.most > copiers {
				t.Errorf("%s, %s: %d reads at once", mode, name, f.most)
			}
		}
	}
}

// spansOf lists the reads of each group.
func spansOf(p *plan.Plan) (all [][]plan.Span) {
	for i := range p.Groups {
		all = append(all, p.Groups[i].Spans)
	}
	return all
}
