package pager

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/optimem/optimem/device/emulated"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/plan/search"
	"github.com/optimem/optimem/storage"
)

// A saidFile is a file of which it is said on which disk it lies.
type saidFile struct {
	*storage.File
	on storage.Disk
}

func (f saidFile) Disk() storage.Disk { return f.on }

// TestTwoFolders: shards in two folders that are said to be two disks give the same bits as one file, on the CPU with
// queues and without and on a device with memory of its own, with weights that stay and without.
func TestTwoFolders(t *testing.T) {
	host := newCPU(t)
	l, src := network(t, host, 3, 300, 500, 300, 700, 300, 300, 200, 300)
	run := func(l *graph.Lowered, emulate bool, o search.Options, opts Options) []byte {
		t.Helper()
		var p *Pager
		if emulate {
			o.Target = emu
			dev := emulated.New(emulated.Options{CheckOrder: true, Threads: 1})
			defer dev.Close()
			p = newPager(t, dev, opts)
		} else {
			p = newPager(t, host, opts)
		}
		defer p.Close()
		made := mustPlan(t, l, o)
		x := newTransfer(l.Graph, 1)
		for range 3 {
			if err := p.Pass(t.Context(), made, x); err != nil {
				t.Fatal(err)
			}
		}
		return x.out[0]
	}
	want := run(l, false, search.Options{Mode: plan.Resident}, Options{})
	var files [2]storage.Source
	for i := range files {
		path := filepath.Join(t.TempDir(), "shard")
		if err := os.WriteFile(path, src.data, 0o666); err != nil {
			t.Fatal(err)
		}
		f, err := storage.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		files[i] = saidFile{f, storage.Disk(i + 1)}
	}
	k := 0
	for i := range l.Graph.Values {
		if v := &l.Graph.Values[i]; v.Role == graph.Weight { // a layer's bias on another disk than its weight
			v.Weight.Extent.Source = files[k%2]
			k++
		}
	}
	raw := *l
	raw.Steps = append([]graph.Step(nil), l.Steps...)
	for i := range raw.Steps {
		raw.Steps[i].Packs = nil
	}
	for _, queues := range []int64{0, 1} {
		opts := Options{queuesPay: queues, Meter: &Meter{}}
		for _, o := range []search.Options{{Mode: plan.Resident}, {Mode: plan.Page}, {Mode: plan.Page, Slots: 2}, {Mode: plan.Auto, MemoryBytes: 2 << 20}} {
			for _, emulate := range []bool{false, true} {
				on := l
				if emulate {
					on = &raw
				}
				if got := run(on, emulate, o, opts); !bytes.Equal(got, want) {
					t.Errorf("%v of %d bytes, emulated %v: other results", o.Mode, o.MemoryBytes, emulate)
				}
			}
		}
	}
}
