package pager

import (
	"context"
	"errors"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/optimem/optimem/device/emulated"
	"github.com/optimem/optimem/device/late"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/plan/search"
	"github.com/optimem/optimem/storage"
)

// What a bus of the fifth generation with sixteen lanes moves of page-locked memory in a second, and what passes
// between two copies of a stream that both were given out. Both are assumed, not measured.
const (
	gen5Bytes   = 55e9
	gen5Between = 2 * time.Microsecond
)

// TestBusIsBusy: copies of groups no larger than a layer's weight and bias, of the sizes of BERT-base, and of weights
// that stay, take on the emulated clock hardly longer than the bus takes for the bytes.
func TestBusIsBusy(t *testing.T) {
	host := newCPU(t)
	l, _ := network(t, host, 1, 768, 768, 768, 768, 768, 3072, 768)
	for i := range l.Steps {
		l.Steps[i].Packs = nil // which GPUs have none of for such layers
	}
	clock := func(o search.Options, passes int) (took []time.Duration, moved []int64, made *plan.Plan) {
		o.Target = emu
		made = mustPlan(t, l, o)
		dev := emulated.New(emulated.Options{CopyBytes: gen5Bytes, CopyLatency: gen5Between, Dry: true})
		p, err := New(dev, Options{})
		if err != nil {
			t.Fatal(err)
		}
		for range passes {
			if err := p.Pass(t.Context(), made, newTransfer(l.Graph, 1)); err != nil {
				t.Fatal(err)
			}
			took = append(took, dev.Elapsed())
		}
		moved = append(moved, p.Stats().MovedBytes, p.Stats().FixedBytes)
		if err := errors.Join(p.Close(), dev.Close()); err != nil {
			t.Fatal(err)
		}
		return took, moved, made
	}
	check := func(what string, bytes int64, took time.Duration) {
		t.Helper()
		if rate := float64(bytes) / took.Seconds(); rate < 0.95*gen5Bytes {
			t.Errorf("%s: %d bytes in %v, %.1f %% of what the bus moves", what, bytes, took, 100*rate/gen5Bytes)
		}
	}
	const passes = 4
	for name, hostBytes := range map[string]int64{"from copies": 0, "through staging": 19 << 20} {
		took, moved, made := clock(search.Options{Mode: plan.Page, Slots: 2, HostBytes: hostBytes}, passes)
		if len(made.Groups) != 6 || (made.StagingBytes > 0) != (hostBytes > 0) {
			t.Fatalf("%s: %v", name, made)
		}
		check(name, moved[0]/passes*(passes-1), took[passes-1]-took[0])
	}
	took, moved, _ := clock(search.Options{Mode: plan.Resident, HostBytes: 128 << 20}, 1)
	check("weights that stay", moved[1], took[0])
}

// A telling file tells of its reads.
type telling struct {
	*file
	note func(string)
}

func (f *telling) ReadAt(ctx context.Context, p []byte, off int64) error {
	f.note("R")
	return f.file.ReadAt(ctx, p, off)
}

// TestHalvesTakeTurns: of the memory through which weights come that stay, one half is read into while the other is
// copied from; nothing is waited for but the copies from the half that is filled again.
func TestHalvesTakeTurns(t *testing.T) {
	host := newCPU(t)
	l, src := network(t, host, 1, 100, 300, 50, 700, 300, 300, 20, 300)
	for i := range l.Steps {
		l.Steps[i].Packs = nil
	}
	made := mustPlan(t, l, search.Options{Mode: plan.Resident, Target: emu, HostBytes: 128 << 10})
	var mu sync.Mutex
	log := ""
	note := func(s string) {
		mu.Lock()
		defer mu.Unlock()
		if s != "R" || log == "" || log[len(log)-1] != 'R' { // several at once
			log += s
		}
	}
	f := &telling{src, note}
	for i := range made.Fixed.Spans {
		made.Fixed.Spans[i].Extent.Source = f
	}
	dev := late.New(emulated.New(emulated.Options{CheckOrder: true, Threads: 1}), late.Options{
		Seed: 3, Before: func(_ context.Context, c late.Call) error {
			note(map[late.Kind]string{late.CopyIn: "C", late.EventSync: "E", late.Sync: "S"}[c.Kind])
			return nil
		},
	})
	p := newPager(t, dev, Options{})
	x := newTransfer(l.Graph, 1)
	if err := p.Pass(t.Context(), made, x); err != nil {
		t.Fatal(err)
	}
	half := made.StagingBytes / 2 / storage.AlignBytes * storage.AlignBytes
	if fills := (plan.SpanBytes(made.Fixed.Spans) + half - 1) / half; fills < 5 {
		t.Fatalf("%d fills", fills)
	}
	if !regexp.MustCompile(`^RC+RC+(ERC+){3,}S`).MatchString(log) {
		t.Errorf("reads, copies and waits: %s", log)
	}
}
