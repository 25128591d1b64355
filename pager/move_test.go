package pager

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/optimem/optimem/internal/hostmem"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/plan/search"
	"github.com/optimem/optimem/storage"
)

// A guarded file knows whether it was overwritten.
type guarded struct {
	*file
	changed bool
}

func (f *guarded) Unchanged() error {
	if f.changed {
		return storage.ErrChanged
	}
	return nil
}

// TestMoves goes between plans that keep other weights: results are the same bits, what both keep is not read again, no
// more is held than the larger plan takes, and from a read that fails, at whichever place, or a file that has changed,
// the pass ends with an error behind which the next one is right.
func TestMoves(t *testing.T) {
	if !hostmem.CanResize {
		t.Skip("memory cannot become smaller where it is")
	}
	dev := newCPU(t)
	l, src := network(t, dev, 2, 64, 300, 64, 500, 64, 200, 64)
	of := &guarded{file: src}
	for i := range l.Graph.Values {
		if w := &l.Graph.Values[i].Weight; w.Extent.Source != nil {
			w.Extent.Source = of
		}
	}
	all := mustPlan(t, l, search.Options{Mode: plan.Resident})
	var plans []*plan.Plan
	for _, part := range []int64{5, 9, 7} {
		plans = append(plans, mustPlan(t, l, search.Options{Mode: plan.Auto, MemoryBytes: all.PeakBytes() * part / 10}))
	}
	p := newPager(t, dev, Options{MemoryBytes: all.PeakBytes()})
	pass := func(pl *plan.Plan) ([]byte, error) {
		io := newTransfer(l.Graph, 1)
		err := p.Pass(t.Context(), pl, io)
		return io.out[0], err
	}
	want, err := pass(all)
	if err != nil {
		t.Fatal(err)
	}
	moved := 0
	for i := range 12 {
		from, to := p.held, plans[i%3]
		before := p.Stats()
		got, err := pass(to)
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("plan %d: other bits, or %v", i%3, err)
		}
		keep := to.Keeps(from)
		after := p.Stats()
		if read := after.ReadBytes - before.ReadBytes; read > keep.MissingBytes+2*to.MovedBytes+from.RingBytes {
			t.Errorf("plan %d: %d bytes read, of which %d were missing and %d are brought for a pass", i%3, read, keep.MissingBytes, to.MovedBytes)
		}
		if after.KeptBytes-before.KeptBytes != keep.Bytes {
			t.Errorf("plan %d: %d bytes stayed, of %d", i%3, after.KeptBytes-before.KeptBytes, keep.Bytes)
		}
		if n := bytesOf(p.fixed); n != to.Fixed.Bytes {
			t.Errorf("plan %d: an arena of %d bytes, planned with %d", i%3, n, to.Fixed.Bytes)
		}
		if keep.Bytes > 0 && keep.MissingBytes > 0 {
			moved++
		}
	}
	if moved < 4 || p.Stats().PeakBytes > all.PeakBytes() {
		t.Errorf("%d plans found some of their weights there; %d bytes were held, %d are allowed", moved, p.Stats().PeakBytes, all.PeakBytes())
	}
	fails := 0
	for at := 1; at < 40; at++ { // the reads of a change, and of the pass behind it
		if _, err := pass(plans[0]); err != nil {
			t.Fatal(err)
		}
		p.putAway() // what is read ahead is no read of the change
		src.failAt = <-src.reads + at
		src.reads <- src.failAt - at
		if _, err := pass(plans[1]); err != nil {
			if fails++; !errors.Is(err, errDisk) {
				t.Fatal(err)
			}
			if got, err := pass(plans[1]); err != nil || !bytes.Equal(got, want) {
				t.Fatalf("after read %d failed: other bits, or %v", at, err)
			}
		}
		p.putAway() // what is read ahead looks at it
		src.failAt = 0
	}
	if fails == 0 {
		t.Error("no read failed")
	}
	if _, err := pass(plans[0]); err != nil {
		t.Fatal(err)
	}
	p.putAway()
	of.changed = true
	if _, err := pass(plans[1]); !errors.Is(err, storage.ErrChanged) {
		t.Errorf("a file that has changed: %v", err)
	}
	p.putAway()
	of.changed = false
	if ok, err := p.Keep(context.Background(), plans[0]); ok || err != nil || p.Held().Total() != 0 {
		t.Errorf("with nothing there: kept %v, %v, %d bytes", ok, err, p.Held().Total())
	}
	if _, err := pass(plans[1]); err != nil {
		t.Fatal(err)
	}
	next := plans[0]
	if next.Keeps(plans[1]).Bytes == 0 { // which weights stay depends on what kernels there are
		next = plans[2]
	}
	if ok, err := p.Keep(context.Background(), next); !ok || err != nil || p.Held().Total() != next.Fixed.Bytes {
		t.Errorf("kept %v, %v, %d bytes of %d", ok, err, p.Held().Total(), next.Fixed.Bytes)
	}
	if got, err := pass(next); err != nil || !bytes.Equal(got, want) {
		t.Errorf("other bits, or %v", err)
	}
}
