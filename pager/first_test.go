package pager

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/plan/search"
	"github.com/optimem/optimem/storage"
)

// once are options for one pass: of all weights, of some of them, and of none that stay.
func once(total int64) []search.Options {
	return []search.Options{
		{Mode: plan.Resident, Once: true}, {Mode: plan.Resident, Once: true, Instances: 2},
		{Mode: plan.Auto, Once: true, MemoryBytes: total / 2}, {Mode: plan.Auto, Once: true, MemoryBytes: total * 3 / 4},
		{Mode: plan.Chunk, Once: true, Capacity: plan.Limit{N: 200_000, Unit: plan.Params}}, {Mode: plan.Page, Once: true},
		{Mode: plan.Page, Once: true, Slots: 1},
	}
}

// early returns a plan whose first pass begins before the weights that stay are there.
func early(t *testing.T, l *graph.Lowered, o search.Options) *plan.Plan {
	made := mustPlan(t, l, o)
	made.Early = true
	return made
}

// TestFirst: a pass that begins before the weights that stay are there gives the same bits, in the memory that was planned,
// and reads no byte twice; so does a second one, which was not expected. Queues are given back with the first.
func TestFirst(t *testing.T) {
	dev := newCPU(t)
	l, src := queuedNetwork(t, dev)
	want := newTransfer(l.Graph, 2)
	packed := mustPlan(t, l, search.Options{Mode: plan.Resident, Instances: 2})
	if err := newPager(t, dev, Options{}).Pass(t.Context(), packed, want); err != nil {
		t.Fatal(err)
	}
	for _, refuse := range []func(int) bool{nil, func(n int) bool { return n%3 == 0 }, func(int) bool { return true }} {
		for _, o := range once(packed.PeakBytes()) {
			src.refuse, src.begun = refuse, 0
			made := early(t, l, o)
			loaded := 0
			p := newPager(t, dev, Options{pieceBytes: 4096, queuesPay: 1, Observe: func(e Event) {
				if e.Kind == WeightsLoaded {
					loaded++
				}
			}})
			fixed := plan.SpanBytes(made.Fixed.Spans)
			over := int64(len(made.Fixed.Spans)+len(made.Groups)) * storage.AlignBytes // what is read behind the end of the file
			for pass := int64(1); pass <= 2; pass++ {
				got := newTransfer(l.Graph, made.Instances)
				if err := p.Pass(t.Context(), made, got); err != nil {
					t.Fatal(err)
				}
				for i := range got.out {
					if !bytes.Equal(got.out[i], want.out[i]) {
						t.Fatalf("pass %d: other bits\n%v", pass, made)
					}
				}
				if moved := fixed + pass*made.MovedBytes; p.Stats().ReadBytes > moved || p.Stats().ReadBytes < moved-pass*over {
					t.Errorf("pass %d: %d bytes are read of %d\n%v", pass, p.Stats().ReadBytes, moved, made)
				}
			}
			if fixed > 0 != (loaded == 1) || p.Stats().FixedBytes != made.Fixed.WeightBytes || src.begun == 0 {
				t.Errorf("told %d times that %d bytes are there, of %d\n%v", loaded, p.Stats().FixedBytes, fixed, made)
			}
			if p.Held().Total() != made.PassBytes() || p.Stats().PeakBytes != made.PeakBytes() {
				t.Errorf("%d bytes are held, %d were planned\n%v", p.Held().Total(), made.PassBytes(), made)
			}
			if err := p.Close(); err != nil || src.open != 0 {
				t.Errorf("%v, %d queues are open\n%v", err, src.open, made)
			}
		}
	}
}

// TestFirstFails: where a first pass fails or is cancelled, at whatever read or group, the error names the group, and the
// next pass brings the weights again.
func TestFirstFails(t *testing.T) {
	dev := newCPU(t)
	l, src := network(t, dev, 2, 200, 300, 150, 500, 300, 300, 20, 300)
	want := newTransfer(l.Graph, 2)
	packed := mustPlan(t, l, search.Options{Mode: plan.Resident, Instances: 2})
	if err := newPager(t, dev, Options{}).Pass(t.Context(), packed, want); err != nil {
		t.Fatal(err)
	}
	before := inUse()
	for _, o := range once(packed.PeakBytes()) {
		made := early(t, l, o)
		again := func(p *Pager, after string, at int) {
			got := newTransfer(l.Graph, made.Instances)
			if err := p.Pass(t.Context(), made, got); err != nil || !bytes.Equal(got.out[0], want.out[0]) {
				t.Fatalf("after %s %d: %v, or other bits\n%v", after, at, err, made)
			}
			if err := p.Close(); err != nil || inUse() != before {
				t.Fatalf("after %s %d: %v, %d bytes are left", after, at, err, inUse()-before)
			}
		}
		for n := 1; n <= 4; n++ {
			p := newPager(t, dev, Options{})
			src.failAt = <-src.reads + n
			src.reads <- src.failAt - n
			failed := p.Pass(t.Context(), made, newTransfer(l.Graph, made.Instances))
			var where *GroupError
			if !errors.Is(failed, errDisk) || !errors.As(failed, &where) || where.Path == "" || where.Step != "load" {
				t.Fatalf("read %d: got %v, want the disk's error and the group\n%v", n, failed, made)
			}
			again(p, "read", n)
		}
		for at := range made.Groups {
			ctx, cancel := context.WithCancel(t.Context())
			p := newPager(t, dev, Options{Observe: func(e Event) {
				if e.Group == at && e.Kind == GroupDone {
					cancel()
				}
			}})
			if err := p.Pass(ctx, made, newTransfer(l.Graph, made.Instances)); at < len(made.Groups)-1 && !errors.Is(err, context.Canceled) {
				t.Fatalf("group %d: got %v\n%v", at, err, made)
			}
			cancel()
			again(p, "group", at)
		}
	}
}

// A gated file holds back reads from some byte on until it is opened.
type gated struct {
	*file
	from int64
	open chan struct{}
}

func (f *gated) ReadAt(ctx context.Context, p []byte, off int64) error {
	if off+int64(len(p)) > f.from {
		select {
		case <-f.open:
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Minute):
			return errors.New("nothing ran before all weights were there")
		}
	}
	return f.file.ReadAt(ctx, p, off)
}

// TestFirstBegins: the first group runs before the last weights that stay are there, unless ops are observed.
func TestFirstBegins(t *testing.T) {
	dev := newCPU(t)
	for _, ops := range []bool{false, true} {
		l, src := network(t, dev, 2, 100, 300, 50, 200, 300)
		f := &gated{src, src.Size() - 4*storage.AlignBytes, make(chan struct{})}
		for i := range l.Graph.Values {
			if v := &l.Graph.Values[i]; v.Role == graph.Weight {
				v.Weight.Extent.Source = f
			}
		}
		if ops {
			close(f.open)
		}
		var seen []Kind
		p := newPager(t, dev, Options{ObserveOps: ops, Observe: func(e Event) {
			if seen = append(seen, e.Kind); len(seen) == 1 && !ops {
				close(f.open)
			}
		}})
		made := early(t, l, search.Options{Mode: plan.Resident, Once: true})
		if err := p.Pass(t.Context(), made, newTransfer(l.Graph, 1)); err != nil {
			t.Fatal(err)
		}
		if want := map[bool]Kind{false: GroupDone, true: WeightsLoaded}[ops]; seen[0] != want {
			t.Errorf("observing ops %v: the first event is of kind %d, want %d", ops, seen[0], want)
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFewBytes: a single pass that reads little has no queues, since giving one back takes longer than they gain.
func TestFewBytes(t *testing.T) {
	dev := newCPU(t)
	l, src := queuedNetwork(t, dev)
	for _, single := range []bool{false, true} {
		src.begun = 0
		made := mustPlan(t, l, search.Options{Mode: plan.Page, Once: single})
		p := newPager(t, dev, Options{})
		if err := p.Pass(t.Context(), made, newTransfer(l.Graph, 1)); err != nil {
			t.Fatal(err)
		}
		if queued := src.begun > 0; queued == single {
			t.Errorf("a single pass %v: %d reads are queued", single, src.begun)
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
