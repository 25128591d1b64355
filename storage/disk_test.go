package storage

import (
	"context"
	"sync/atomic"
	"testing"
)

// A placed source lies on a disk and counts how many of its reads are under way at once.
type placed struct {
	on             Disk
	underWay, most atomic.Int64
	meet           chan struct{}
}

func (p *placed) Disk() Disk  { return p.on }
func (p *placed) Size() int64 { return 1 << 40 }

func (p *placed) ReadAt(ctx context.Context, b []byte, _ int64) error {
	n := p.underWay.Add(1)
	defer p.underWay.Add(-1)
	for most := p.most.Load(); n > most && !p.most.CompareAndSwap(most, n); most = p.most.Load() {
	}
	if p.meet != nil {
		select {
		case p.meet <- struct{}{}:
		case <-p.meet:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// A wrapper makes its bytes of another source's.
type wrapper struct{ Source }

func (w *wrapper) Raw() Source { return w.Source }

// TestReadFromDisksAtOnce: requests of two disks are under way at once, even where one read of a disk is at a time; each
// read of one waits for one of the other here.
func TestReadFromDisksAtOnce(t *testing.T) {
	meet := make(chan struct{})
	one, other := &placed{on: 1, meet: meet}, &placed{on: 2, meet: meet}
	var requests []Request
	for k := range 8 {
		src := one
		if k >= 4 { // one disk's first
			src = other
		}
		requests = append(requests, Request{Extent{src, 0, 10}, make([]byte, 10)})
	}
	if err := Read(t.Context(), 1, requests...); err != nil {
		t.Fatal(err)
	}
	if a, b := one.most.Load(), other.most.Load(); a != 1 || b != 1 {
		t.Errorf("%d and %d reads of a disk were under way at once", a, b)
	}
}

// TestDiskNames: a disk reads as it was written, and is that of the source below.
func TestDiskNames(t *testing.T) {
	for _, d := range []Disk{0, DiskOfNumbers(259, 1), DiskOfNumbers(0, 53)} {
		if back, err := ParseDisk(d.String()); err != nil || back != d {
			t.Errorf("%v is read as %v: %v", d, back, err)
		}
	}
	for _, s := range []string{"", "8", "8:", "8:1 ", "x:1", "-1:2", "8:4294967296"} {
		if d, err := ParseDisk(s); err == nil {
			t.Errorf("%q is read as %v", s, d)
		}
	}
	if d := DiskOf(struct{ Source }{&placed{on: 7}}); d != 0 {
		t.Errorf("a source that does not say is on %v", d)
	}
	if d := DiskOf(&wrapper{&placed{on: 7}}); d != 7 {
		t.Errorf("what is made of a source on disk 7 is on %v", d)
	}
}
