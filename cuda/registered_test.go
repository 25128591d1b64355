//go:build linux && (amd64 || arm64) && !nocuda

package cuda_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/pager"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/plan/search"
	"github.com/optimem/optimem/storage"
)

// heldSource is a source that says that it lies in memory.
type heldSource struct{ memorySource }

func (h *heldSource) Memory() []byte { return h.data }

// held returns a graph whose weights lie in memory, and that memory; mapped has it a file that may only be read.
func held(t *testing.T, mapped bool) (*graph.Graph, *heldSource) {
	t.Helper()
	g := network(t, 5, widths...)
	src := &heldSource{}
	for i := range g.Values {
		if e := &g.Values[i].Weight.Extent; e.Source != nil {
			src.data, e.Source = e.Source.(*memorySource).data, src
		}
	}
	if !mapped {
		return g, src
	}
	path := filepath.Join(t.TempDir(), "weights")
	if err := os.WriteFile(path, src.data, 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	data, err := unix.Mmap(int(file.Fd()), 0, len(src.data), unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(data) })
	src.data = data
	return g, src
}

// TestSourcesInMemory copies weights from where they lie, and reads them as those of files where the driver refuses.
func TestSourcesInMemory(t *testing.T) {
	want := resident(t)
	for _, c := range []struct {
		name, settings  string
		mapped, inPlace bool
	}{
		{"in random order", "order=lazy:1", false, true},
		{"in threads", "order=threads", false, true},
		{"mapped", "order=lazy:2", true, true},
		{"refused", "order=lazy:3 fault=cuMemHostRegister:1:801:+", false, false},
		{"too much", "order=lazy:4 pinned=100K", false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, src := held(t, c.mapped)
			l := lower(t, g)
			dev, lib := open(t, c.settings)
			for name, p := range pagedPlans(t, l) {
				got, stats, err := passes(t.Context(), dev, p, 3)
				if err != nil || !bytes.Equal(got, want) {
					t.Fatalf("%s: %v, the same bits: %v", name, err, bytes.Equal(got, want))
				}
				fixed := plan.SpanBytes(p.Fixed.Spans)
				if c.inPlace && (stats.ReadBytes != fixed || stats.PageableBytes != 0) ||
					!c.inPlace && stats.ReadBytes <= fixed {
					t.Errorf("%s: %d bytes stay, %+v", name, fixed, stats)
				}
			}
			most := lib.Report().PinnedPeakBytes
			if size := src.Size(); c.inPlace && (most < size || most > size+size/2) {
				t.Errorf("%d bytes page-locked, of sources %d", most, size)
			}
		})
	}
}

// resident returns what the network gives with weights that stay, those in files.
func resident(t *testing.T) (out []byte) {
	t.Helper()
	t.Run("resident", func(t *testing.T) {
		dev, _ := open(t, "")
		p := planned(t, lower(t, network(t, 5, widths...)), search.Options{Mode: plan.Resident})
		var err error
		if out, _, err = passes(t.Context(), dev, p, 1); err != nil {
			t.Fatal(err)
		}
	})
	return out
}

// TestSourcesWithinBudget leaves alone what the host memory that may be taken has no room for, beside what a plan takes;
// a plan that was used before gets to know that there was room later.
func TestSourcesWithinBudget(t *testing.T) {
	want := resident(t)
	g, src := held(t, false)
	l := lower(t, g)
	copies, staged := planned(t, l, search.Options{Mode: plan.Page, Slots: 2}), stagedPlan(t, l)
	dev, _ := open(t, "order=lazy:5")
	pg, err := pager.New(dev, pager.Options{HostBytes: staged.HostBytes() + src.Size()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := pg.Close(); err != nil {
			t.Error(err)
		}
	}()
	for n, c := range []struct {
		plan       *plan.Plan
		registered int64
	}{{copies, 0}, {staged, src.Size()}, {copies, src.Size()}, {staged, src.Size()}} {
		x := newTransfer(g)
		if err := pg.Pass(t.Context(), c.plan, x); err != nil || !bytes.Equal(x.out, want) {
			t.Fatalf("pass %d: %v, the same bits: %v", n, err, bytes.Equal(x.out, want))
		}
		if stats := pg.Stats(); stats.RegisteredBytes != c.registered {
			t.Errorf("pass %d: %+v", n, stats)
		}
	}
	if pg.HostBytes() != 0 {
		t.Errorf("%d bytes of host memory are held for nothing", pg.HostBytes())
	}
}

var _ storage.MemorySource = (*heldSource)(nil)
