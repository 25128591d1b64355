package pager

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/device/emulated"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/plan/search"
)

// A pinner is a device that gives out memory of the host, some of it never.
type pinner struct {
	*emulated.Device
	mu     sync.Mutex
	note   func(string)
	bytes  int64
	given  int
	refuse int // the one that is refused, from 1 on
}

func (d *pinner) AllocHost(bytes int64) (device.HostMemory, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.given++; d.given == d.refuse {
		return nil, errors.New("no more can be page-locked")
	}
	d.note("A")
	d.bytes += bytes
	return &pinnedMemory{d, make([]byte, bytes)}, nil
}

type pinnedMemory struct {
	d   *pinner
	mem []byte
}

func (m *pinnedMemory) Bytes() []byte { return m.mem }

func (m *pinnedMemory) Free() {
	m.d.mu.Lock()
	defer m.d.mu.Unlock()
	m.d.bytes -= int64(len(m.mem))
}

// TestCopiesAreTakenInChunks: host memory for copies of weights is taken while others are read, all that the plan says
// and no more; where the device has none left for a chunk, that one is of the ordinary kind.
func TestCopiesAreTakenInChunks(t *testing.T) {
	before := chunkBytes
	chunkBytes = 100 << 10
	defer func() { chunkBytes = before }()
	host := newCPU(t)
	l, src := network(t, host, 1, 160, 160, 160, 160, 160, 160, 160, 160)
	made := mustPlan(t, l, search.Options{Mode: plan.Page, Target: plan.Target{Name: "emu", AlignBytes: 256}})
	want := newTransfer(l.Graph, 1)
	if err := newPager(t, host, Options{}).Pass(t.Context(), mustPlan(t, l, search.Options{Mode: plan.Resident}), want); err != nil {
		t.Fatal(err)
	}
	for _, refuse := range []int{0, 1, 2, 7} {
		var mu sync.Mutex
		log := ""
		note := func(s string) {
			mu.Lock()
			defer mu.Unlock()
			log += s
		}
		f := &telling{src, note}
		for _, list := range spansOf(made) {
			for i := range list {
				list[i].Extent.Source = f
			}
		}
		dev := &pinner{Device: emulated.New(emulated.Options{Threads: 1, CheckOrder: true}), note: note, refuse: refuse}
		p, err := New(dev, Options{Readers: 1})
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			x := newTransfer(l.Graph, 1)
			if err := p.Pass(t.Context(), made, x); err != nil || string(x.out[0]) != string(want.out[0]) {
				t.Fatalf("%v, the same bits: %v", err, string(x.out[0]) == string(want.out[0]))
			}
		}
		if made.HostCopyBytes == 0 || p.HostBytes() != made.HostBytes() || p.Inventory().CopyBytes != made.HostCopyBytes {
			t.Errorf("%d bytes of host memory, %d planned", p.HostBytes(), made.HostBytes())
		}
		if pageable := p.Stats().PageableBytes; (pageable > 0) != (refuse > 0) || dev.bytes+pageable != made.HostCopyBytes {
			t.Errorf("%d and %d bytes, %d planned", dev.bytes, pageable, made.HostCopyBytes)
		}
		if first := strings.Count(log[:strings.Index(log, "R")], "A"); first > 2 || strings.Count(log, "A") < 6 {
			t.Errorf("memory that is taken and reads: %s", log)
		}
		if err := errors.Join(p.Close(), dev.Close()); err != nil || dev.bytes != 0 {
			t.Errorf("%d bytes are left: %v", dev.bytes, err)
		}
	}
}
