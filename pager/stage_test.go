package pager

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/optimem/optimem/device/emulated"
	"github.com/optimem/optimem/device/late"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/plan/search"
	"github.com/optimem/optimem/tensor"
)

// A scribbling file fills what one of the reads at an offset is for with anything, and the rest of it only when it may, as a
// disk does whose read is under way.
type scribbling struct {
	*file
	at          int64
	reads       atomic.Int64
	nth         int64
	begun, open chan struct{}
}

func (f *scribbling) ReadAt(ctx context.Context, p []byte, off int64) error {
	if off == f.at && f.reads.Add(1) == f.nth {
		for i := range p {
			p[i] = 0x3f
		}
		close(f.begun)
		select {
		case <-f.open:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return f.file.ReadAt(ctx, p, off)
}

// oneOfEach returns a plan that pages two groups, one through staging memory and one from a copy in host memory.
func oneOfEach(t *testing.T, options func() []search.Options, make func(o search.Options) *plan.Plan) (*plan.Plan, *plan.Group) {
	t.Helper()
	for _, o := range options() {
		p := make(o)
		var paged, passing []*plan.Group
		for k := range p.Groups {
			if g := &p.Groups[k]; g.Paged() {
				if paged = append(paged, g); !g.Copied {
					passing = append(passing, g)
				}
			}
		}
		if len(paged) == 2 && len(passing) == 1 && len(passing[0].Spans) == 1 {
			return p, passing[0]
		}
	}
	t.Fatal("no plan pages one group of each kind")
	return nil, nil
}

// TestReadAheadLeavesWhatIsCopied: where so few groups are paged that the host memory for one is filled for the pass after
// the next while the copy for the next is not made yet, that copy is of what was read for it.
func TestReadAheadLeavesWhatIsCopied(t *testing.T) {
	host := newCPU(t)
	l, src := tapped(t, host, tensor.Float32, 48, 48, 48, 48, 48)
	whole := mustPlan(t, l, search.Options{Mode: plan.Resident, Target: emu})
	made, passing := oneOfEach(t, func() (all []search.Options) {
		for hostBytes := int64(8 << 10); hostBytes < 128<<10; hostBytes += 4 << 10 {
			for part := int64(4); part < 20; part++ {
				all = append(all, search.Options{
					Mode: plan.Auto, Target: emu, Lower: host.Lower, HostBytes: hostBytes, MemoryBytes: whole.PeakBytes() * part / 20,
				})
			}
		}
		return all
	}, func(o search.Options) *plan.Plan {
		p, err := search.Plan(l, o)
		var capacity *plan.CapacityError
		if errors.As(err, &capacity) {
			return &plan.Plan{}
		} else if err != nil {
			t.Fatal(err)
		}
		return p
	})
	f := &scribbling{file: src, at: passing.Spans[0].Extent.Offset, nth: 3, begun: make(chan struct{}), open: make(chan struct{})}
	for k := range made.Groups {
		for i := range made.Groups[k].Spans {
			made.Groups[k].Spans[i].Extent.Source = f
		}
	}
	ops := 0
	dev := late.New(emulated.New(emulated.Options{CheckOrder: true, Threads: 1}), late.Options{
		Before: func(_ context.Context, c late.Call) error {
			if c.Kind != late.Run {
				return nil
			}
			if ops++; ops == len(l.Graph.Ops) { // the first pass's last
				select {
				case <-f.begun:
				case <-time.After(10 * time.Second):
					return errors.New("nothing is read so far ahead")
				}
			}
			return nil
		},
	})
	p := newPager(t, dev, Options{Readers: 2})
	for n := range 4 {
		x := newCalls(t, l, src, 1, n)
		if err := p.Pass(t.Context(), made, x); err != nil {
			t.Fatalf("pass %d: %v\n%v", n, err, made)
		}
		if err := x.differs(); err != nil {
			t.Fatalf("pass %d: %v\n%v", n, err, made)
		}
		if n == 1 {
			close(f.open)
		}
	}
	// Four passes, and what is ahead of them: one in its slot, and as many as there is staging memory for.
	if n := f.reads.Load(); n < 4 || n > 4+1+plan.StagingSlots {
		t.Errorf("the group is read %d times", n)
	}
}
