//go:build linux && (amd64 || arm64) && !nocuda

package cuda_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/optimem/optimem/cuda/internal/driver"
	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/device/devicetest"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/pager"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/plan/search"
	"github.com/optimem/optimem/tensor"
)

// TestKeptPasses: from the third pass on the launches of a model that stays are given out together, at most 64 ops at a
// time, and are those of the passes before.
func TestKeptPasses(t *testing.T) {
	var wide []int
	for range 101 {
		wide = append(wide, 8)
	}
	g := network(t, 3, wide...) // 200 ops
	want := onCPU(t, g)
	for _, mode := range []plan.Mode{plan.Resident, plan.Page} {
		t.Run(string(mode), func(t *testing.T) {
			dev, lib := openSimulated(t, "memory=8M order=lazy:5")
			p := planned(t, lower(t, g), search.Options{Mode: mode})
			pg := newPager(t, dev)
			var launches []int
			var first []byte
			for range 5 {
				before := lib.Report()
				x := newTransfer(g)
				if err := pg.Pass(t.Context(), p, x); err != nil {
					t.Fatal(err)
				}
				after := lib.Report()
				if first == nil {
					first = x.out
				} else if !bytes.Equal(first, x.out) {
					t.Error("other bits than in the first pass")
				}
				if n := after.Launches - before.Launches; n != len(g.Ops) {
					t.Errorf("%d launches of %d ops", n, len(g.Ops))
				}
				launches = append(launches, after.GraphLaunches-before.GraphLaunches)
			}
			if err := devicetest.Compare(float32s(first), float32s(want), 1e-6); err != nil {
				t.Error(err)
			}
			// 200 ops are three times 64 and 8; paged ones are kept by group, which here is a layer.
			most := map[plan.Mode]int{plan.Resident: 4, plan.Page: 100}[mode]
			for n, k := range launches {
				if wanted := map[bool]int{true: most}[n >= 2]; k != wanted {
					t.Errorf("pass %d gave out %d graphs, not %d", n+1, k, wanted)
				}
			}
		})
	}
}

// TestKeptInstances: what is kept for one micro-batch is not run for another.
func TestKeptInstances(t *testing.T) {
	g := network(t, 2, widths...)
	dev, lib := openSimulated(t, "memory=8M order=lazy:2")
	p := planned(t, lower(t, g), search.Options{Mode: plan.Page, Instances: 3})
	pg := newPager(t, dev)
	wants := make([][]byte, 3)
	for n := range 5 {
		x := &batchTransfer{}
		for i := range 3 {
			one := newTransfer(g)
			for k := range len(one.in) / 4 {
				binary.LittleEndian.PutUint32(one.in[k*4:], uint32(k+i*1000)<<12|1<<30)
			}
			x.all = append(x.all, one)
		}
		if err := pg.Pass(t.Context(), p, x); err != nil {
			t.Fatal(err)
		}
		for i, one := range x.all {
			if n == 0 {
				wants[i] = one.out
			} else if !bytes.Equal(wants[i], one.out) {
				t.Errorf("pass %d, instance %d: other bits than in the first pass", n+1, i)
			}
		}
	}
	if bytes.Equal(wants[0], wants[1]) || lib.Report().GraphLaunches == 0 {
		t.Error("the instances are the same, or nothing was kept")
	}
}

// TestKeptPlansChange: what was kept for a plan goes with the memory that it is for.
func TestKeptPlansChange(t *testing.T) {
	small, large := network(t, 2, widths...), network(t, 9, widths...)
	dev, _ := openSimulated(t, "memory=8M order=lazy:2")
	first := planned(t, lower(t, small), search.Options{Mode: plan.Page})
	second := planned(t, lower(t, large), search.Options{Mode: plan.Page, Like: first})
	pg := newPager(t, dev)
	for _, p := range []*plan.Plan{first, first, first, second, second, second, second, first, first, first, first} {
		x := newTransfer(p.Lowered.Graph)
		if err := pg.Pass(t.Context(), p, x); err != nil {
			t.Fatal(err)
		}
		if err := devicetest.Compare(float32s(x.out), float32s(onCPU(t, p.Lowered.Graph)), 1e-6); err != nil {
			t.Error(err)
		}
	}
}

// TestKeepingFails: a driver that does not keep work, or not any more, costs time alone.
func TestKeepingFails(t *testing.T) {
	g := network(t, 3, widths...)
	want := onCPU(t, g)
	for _, fault := range []string{
		"cuStreamBeginCapture:1:801", "cuStreamEndCapture:1:901", "cuGraphInstantiate:1:2", "cuStreamEndCapture:2:901",
	} {
		t.Run(fault, func(t *testing.T) {
			dev, lib := openSimulated(t, "memory=8M order=lazy:2 fault="+fault)
			out, _, err := passes(t.Context(), dev, planned(t, lower(t, g), search.Options{Mode: plan.Page}), 4)
			if err != nil {
				t.Fatal(err)
			}
			if err := devicetest.Compare(float32s(out), float32s(want), 1e-6); err != nil {
				t.Error(err)
			}
			if r := lib.Report(); r.GraphLaunches > 1 {
				t.Errorf("%d graphs were launched", r.GraphLaunches)
			}
		})
	}
	// A graph that cannot be launched is another matter.
	dev, _ := openSimulated(t, "memory=8M order=lazy:2 fault=late:cuGraphLaunch:2:719")
	_, _, err := passes(t.Context(), dev, planned(t, lower(t, g), search.Options{Mode: plan.Page}), 4)
	if !errors.Is(err, driver.LaunchFailed) {
		t.Errorf("%v", err)
	}
}

// TestKeptOpsFailOnData: an op that was kept says what it cannot do, and which it is.
func TestKeptOpsFailOnData(t *testing.T) {
	g := &graph.Graph{}
	table := g.AddConst(tensor.Of([]float32{1, 2, 3, 4, 5, 6}, 3, 2))
	ids := g.AddInput("ids", tensor.Int64, tensor.Shape{2})
	y := g.Whole(table)
	for _, op := range []graph.Op{
		{Kind: "embedding", Path: "table", In: []graph.Operand{y, g.Whole(ids)}}, {Kind: "relu", Path: "act"},
	} {
		if op.In == nil {
			op.In = []graph.Operand{y}
		}
		out, err := g.Emit(graph.Standard(), op)
		if err != nil {
			t.Fatal(err)
		}
		y = g.Whole(out[0])
	}
	g.Outputs = []graph.Output{{Name: "y", Operand: y}}
	dev, lib := openSimulated(t, "memory=8M order=lazy:2")
	p := planned(t, lower(t, g), search.Options{Mode: plan.Resident})
	pg := newPager(t, dev)
	for n, id := range []uint64{0, 1, 2, 3, 1, 4} {
		x := newTransfer(g)
		binary.LittleEndian.PutUint64(x.in, id)
		binary.LittleEndian.PutUint64(x.in[8:], 0)
		err := pg.Pass(t.Context(), p, x)
		if id < 3 && err != nil {
			t.Fatalf("pass %d: %v", n+1, err)
		}
		if id >= 3 && (err == nil || !strings.Contains(err.Error(), "table: embedding: index out of range")) {
			t.Errorf("pass %d, index %d: %v", n+1, id, err)
		}
	}
	if lib.Report().GraphLaunches != 4 {
		t.Errorf("%d graphs were launched", lib.Report().GraphLaunches)
	}
}

// TestKeptPassIsCancelled: a pass of ops that were kept ends early, and the next gives what it should.
func TestKeptPassIsCancelled(t *testing.T) {
	g := network(t, 3, widths...)
	dev, _ := openSimulated(t, "memory=8M order=lazy:2")
	p := planned(t, lower(t, g), search.Options{Mode: plan.Resident})
	pg := newPager(t, dev)
	for range 3 {
		if err := pg.Pass(t.Context(), p, newTransfer(g)); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := pg.Pass(ctx, p, newTransfer(g)); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	x := newTransfer(g)
	if err := pg.Pass(t.Context(), p, x); err != nil {
		t.Fatal(err)
	}
	if err := devicetest.Compare(float32s(x.out), float32s(onCPU(t, g)), 1e-6); err != nil {
		t.Error(err)
	}
}

// newPager returns a pager that the test closes.
func newPager(t *testing.T, dev device.Device) *pager.Pager {
	t.Helper()
	pg, err := pager.New(dev, pager.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := pg.Close(); err != nil {
			t.Error(err)
		}
	})
	return pg
}
