package pager

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"testing"

	"github.com/optimem/optimem/cost"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu"
	"github.com/optimem/optimem/internal/hostmem"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/plan/search"
	"github.com/optimem/optimem/storage/packed"
)

// A target is memory that a packed file is written to.
type target struct{ data []byte }

func (m *target) WriteAt(p []byte, off int64) (int, error) {
	if need := int(off) + len(p); need > len(m.data) {
		m.data = append(m.data, make([]byte, need-len(m.data))...)
	}
	return copy(m.data[off:], p), nil
}

// inPacked has the weights of a network, which become numbers that bfloat16 has, lie in a packed file.
func inPacked(t *testing.T, l *graph.Lowered, src *file) (*file, *packed.Source) {
	t.Helper()
	for i := 0; i < len(src.data); i += 4 {
		bits := binary.LittleEndian.Uint32(src.data[i:])
		binary.LittleEndian.PutUint32(src.data[i:], math.Float32bits(math.Float32frombits(bits))&^0xFFFF)
	}
	var to target
	if _, err := packed.Write(t.Context(), src, &to, packed.Options{Threads: 2}); err != nil {
		t.Fatal(err)
	}
	raw := newFile(0)
	raw.data = to.data
	s, err := packed.Open(t.Context(), raw, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range l.Graph.Values {
		if e := &l.Graph.Values[i].Weight.Extent; e.Source != nil {
			e.Source = s
		}
	}
	return raw, s
}

// layersInPacked returns a network in a packed file, and plans of which blocks stay for some budgets.
func layersInPacked(t *testing.T, dev *cpu.Device) (l *graph.Lowered, raw *file, all *plan.Plan, plans []*plan.Plan) {
	t.Helper()
	l, src := network(t, dev, 1, 512, 700, 512, 900, 512, 700, 512, 600, 512, 800, 512)
	raw, _ = inPacked(t, l, src)
	all = mustPlan(t, l, search.Options{Mode: plan.Resident})
	rates := cost.Rates{FLOPs: 50e9, MemoryBytes: 20e9, DiskBytes: 50e6, DecodeBytes: 6e9}
	for _, part := range []int64{50, 60, 80} {
		p := mustPlan(t, l, search.Options{Mode: plan.Auto, MemoryBytes: all.PeakBytes() * part / 100, Rates: rates})
		if len(p.Fixed.Stored) == 0 {
			t.Fatalf("no blocks stay in %d bytes\n%v", p.PeakBytes(), p)
		}
		plans = append(plans, p)
	}
	return l, raw, all, plans
}

// TestStored: groups that are decoded from blocks which stay give the same bits, pass after pass and from plan to plan,
// in the memory that was planned; of the file a pass reads what the plan says.
func TestStored(t *testing.T) {
	dev := newCPU(t)
	l, _, all, plans := layersInPacked(t, dev)
	want := newTransfer(l.Graph, 1)
	if err := newPager(t, dev, Options{}).Pass(t.Context(), all, want); err != nil {
		t.Fatal(err)
	}
	for _, pl := range plans {
		p := newPager(t, dev, Options{})
		for pass := range 3 {
			got := newTransfer(l.Graph, 1)
			if err := p.Pass(t.Context(), pl, got); err != nil || !bytes.Equal(got.out[0], want.out[0]) {
				t.Fatalf("pass %d: %v, or other bits\n%v", pass, err, pl)
			}
		}
		if n := p.Held().Total() + pl.DecodeBytes; n != pl.PeakBytes() {
			t.Errorf("%d bytes are held, %d were planned\n%v", n, pl.PeakBytes(), pl)
		}
		p.putAway() // nothing is read ahead
		stored, _ := pl.Fixed.StoredBytes()
		most := pl.Fixed.Bytes + stored + 4*pl.FileBytes() // reads ahead among them
		if read := p.Stats().ReadBytes; read > most {
			t.Errorf("%d bytes were read, at most %d are wanted\n%v", read, most, pl)
		}
	}
	p := newPager(t, dev, Options{MemoryBytes: all.PeakBytes()})
	for i := range 9 {
		pl := plans[i*2%3]
		if i == 4 {
			pl = all
		}
		got := newTransfer(l.Graph, 1)
		if err := p.Pass(t.Context(), pl, got); err != nil || !bytes.Equal(got.out[0], want.out[0]) {
			t.Fatalf("turn %d: %v, or other bits\n%v", i, err, pl)
		}
	}
	if hostmem.CanResize && p.Stats().KeptBytes == 0 {
		t.Error("nothing stays from plan to plan")
	}
}

// TestStoredFails: a block that is damaged on its way into memory ends the pass, and the next one is right; what
// becomes of the file once the blocks stay is not noticed.
func TestStoredFails(t *testing.T) {
	dev := newCPU(t)
	l, raw, all, plans := layersInPacked(t, dev)
	want := newTransfer(l.Graph, 1)
	if err := newPager(t, dev, Options{}).Pass(t.Context(), all, want); err != nil {
		t.Fatal(err)
	}
	before := inUse()
	pl := plans[0]
	p := newPager(t, dev, Options{})
	s := pl.Fixed.Stored[len(pl.Fixed.Stored)/2]
	at := int64(len(raw.data)) * (s.Extent.Offset + s.Extent.Bytes/2) / s.Extent.Source.Size()
	raw.data[at] ^= 1
	var bad *packed.CorruptError
	if err := p.Pass(t.Context(), pl, newTransfer(l.Graph, 1)); !errors.As(err, &bad) || bad.Bytes == 0 {
		t.Fatalf("got %v, want the block", err)
	}
	raw.data[at] ^= 1
	for n := 1; n <= 6; n++ {
		raw.failAt = <-raw.reads + n
		raw.reads <- raw.failAt - n
		if err := p.Pass(t.Context(), pl, newTransfer(l.Graph, 1)); err != nil && !errors.Is(err, errDisk) {
			t.Fatalf("read %d: %v", n, err)
		}
		raw.failAt = 0
		if err := p.GiveBack(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	got := newTransfer(l.Graph, 1)
	if err := p.Pass(t.Context(), pl, got); err != nil || !bytes.Equal(got.out[0], want.out[0]) {
		t.Fatalf("%v, or other bits", err)
	}
	if err := p.Close(); err != nil || inUse() != before {
		t.Errorf("%v, %d bytes are left", err, inUse()-before)
	}
}
