//go:build linux && (amd64 || arm64) && !nocuda

package cuda_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/optimem/optimem/cuda"
	"github.com/optimem/optimem/cuda/sim"
	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/device/devicetest"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu"
	"github.com/optimem/optimem/pager"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/plan/search"
	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
)

// target is what plans know of the device.
var target = plan.Target{Name: "cuda", AlignBytes: 256, Pins: true, Unpacks: true}

// memorySource is a file in memory.
type memorySource struct{ data []byte }

func (m *memorySource) Size() int64 { return int64(len(m.data)) }

func (m *memorySource) ReadAt(ctx context.Context, p []byte, off int64) error {
	if off < 0 || off > m.Size() || copy(p, m.data[off:]) < len(p) {
		return io.ErrUnexpectedEOF
	}
	return ctx.Err()
}

// network returns linear layers of the given widths with ReLUs between them.
func network(t testing.TB, rows int, widths ...int) *graph.Graph {
	t.Helper()
	var size int
	for i := range len(widths) - 1 {
		size += (widths[i] + 1) * widths[i+1] * 4
	}
	src := &memorySource{make([]byte, size)}
	for i := range size / 4 {
		x := float32(int32(i*2654435761%2001)-1000) / 30000
		binary.LittleEndian.PutUint32(src.data[i*4:], math.Float32bits(x))
	}
	g := &graph.Graph{}
	emit := func(path string, kind graph.Kind, in ...graph.Operand) graph.ValueID {
		out, err := g.Emit(graph.Standard(), graph.Op{Kind: kind, Path: path, In: in})
		if err != nil {
			t.Fatal(err)
		}
		return out[0]
	}
	var at int64
	weight := func(name string, shape ...int) graph.Operand {
		n := int64(4)
		for _, d := range shape {
			n *= int64(d)
		}
		w := g.AddWeight(tensor.Weight{
			Name: name, DType: tensor.Float32, Layout: tensor.Contiguous(shape...),
			Extent: storage.Extent{Source: src, Offset: at, Bytes: n},
		}, graph.Weight)
		at += n
		return graph.Operand{Value: w, Layout: tensor.Contiguous(shape...)}
	}
	x := g.AddInput("x", tensor.Float32, tensor.Shape{rows, widths[0]})
	for i := range len(widths) - 1 {
		path := fmt.Sprint(i)
		x = emit(path, "linear", g.Whole(x), weight(path+".weight", widths[i+1], widths[i]), weight(path+".bias", widths[i+1]))
		x = emit(path, "relu", g.Whole(x))
	}
	g.Outputs = []graph.Output{{Name: "y", Operand: g.Whole(x)}}
	return g
}

// A transfer is the input and the output of a pass, in memory.
type transfer struct{ in, out []byte }

func (x *transfer) Input(int, graph.ValueID) []byte { return x.in }
func (x *transfer) Output(int, int, bool) []byte    { return x.out }

func newTransfer(g *graph.Graph) *transfer {
	x := &transfer{
		in:  make([]byte, g.Values[g.Inputs[0]].Bytes()),
		out: make([]byte, g.Values[g.Outputs[0].Operand.Value].Bytes()),
	}
	for k := range len(x.in) / 4 {
		binary.LittleEndian.PutUint32(x.in[k*4:], math.Float32bits(float32(k*7%11)-5))
	}
	return x
}

// lower lowers a graph for the device.
func lower(t testing.TB, g *graph.Graph) *graph.Lowered {
	t.Helper()
	l, err := cuda.Lower(g)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// planned plans for the device.
func planned(t testing.TB, l *graph.Lowered, o search.Options) *plan.Plan {
	t.Helper()
	o.Target = target
	p, err := search.Plan(l, o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// passes runs a plan some times on a device and returns the output, which has to be the same each time.
func passes(ctx context.Context, dev device.Device, p *plan.Plan, times int) (_ []byte, _ pager.Stats, err error) {
	pg, err := pager.New(dev, pager.Options{})
	if err != nil {
		return nil, pager.Stats{}, err
	}
	defer func() { err = errors.Join(err, pg.Close()) }()
	var first []byte
	for n := range times {
		x := newTransfer(p.Lowered.Graph)
		if err := pg.Pass(ctx, p, x); err != nil {
			return nil, pg.Stats(), err
		}
		if n == 0 {
			first = x.out
		} else if !bytes.Equal(first, x.out) {
			return nil, pg.Stats(), fmt.Errorf("pass %d gives other bits than the first", n+1)
		}
	}
	return first, pg.Stats(), nil
}

// onCPU returns what the CPU computes.
func onCPU(t testing.TB, g *graph.Graph) []byte {
	t.Helper()
	dev := cpu.New(1, graph.Standard())
	defer dev.Close()
	l, err := dev.Lower(g)
	if err != nil {
		t.Fatal(err)
	}
	p, err := search.Plan(l, search.Options{Mode: plan.Resident, Target: plan.CPU})
	if err != nil {
		t.Fatal(err)
	}
	out, _, err := passes(t.Context(), dev, p, 1)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// float32s is an output as a tensor.
func float32s(data []byte) *tensor.Tensor {
	return &tensor.Tensor{DType: tensor.Float32, Layout: tensor.Contiguous(len(data) / 4), Data: data}
}

// pagedPlans returns a network with the plans that are tried, all of which bring weights.
func pagedPlans(t testing.TB, l *graph.Lowered) map[string]*plan.Plan {
	t.Helper()
	plans := make(map[string]*plan.Plan)
	for _, slots := range []int{1, 2, 4} {
		plans[fmt.Sprintf("page, %d slots", slots)] = planned(t, l, search.Options{Mode: plan.Page, Slots: slots})
	}
	least := planned(t, l, search.Options{Mode: plan.Auto}).MinBytes
	plans["auto, the least memory"] = planned(t, l, search.Options{Mode: plan.Auto, MemoryBytes: least})
	plans["auto, a little more"] = planned(t, l, search.Options{Mode: plan.Auto, MemoryBytes: least + least/4})
	plans["page, through staging"] = stagedPlan(t, l)
	return plans
}

// stagedPlan returns a plan that keeps no copies of weights in host memory: all are read for each pass.
func stagedPlan(t testing.TB, l *graph.Lowered) *plan.Plan {
	t.Helper()
	o := search.Options{Mode: plan.Page, Slots: 2}
	whole := planned(t, l, o)
	for _, group := range whole.Groups {
		o.HostBytes = max(o.HostBytes, plan.StagingSlots*plan.SpanBytes(group.Spans))
	}
	o.HostBytes += whole.DecodeBytes
	p := planned(t, l, o)
	if p.HostCopyBytes > 0 || p.StagingBytes == 0 {
		t.Fatalf("%d bytes of copies, %d of staging", p.HostCopyBytes, p.StagingBytes)
	}
	return p
}

var widths = []int{48, 96, 32, 200, 16, 120, 64, 64, 10}

// TestPageGivesTheSameBits compares paging with weights that stay, to the last bit, and both with the CPU, in random
// orders of execution; there must be no races.
func TestPageGivesTheSameBits(t *testing.T) {
	g := network(t, 5, widths...)
	l := lower(t, g)
	want := onCPU(t, g)
	orders := []string{"threads"}
	seeds := 20
	if testing.Short() {
		seeds = 3
	}
	for seed := range seeds {
		orders = append(orders, fmt.Sprintf("lazy:%d", seed))
	}
	for _, order := range orders {
		t.Run(order, func(t *testing.T) {
			dev, lib := open(t, "memory=8M order="+order)
			resident, _, err := passes(t.Context(), dev, planned(t, l, search.Options{Mode: plan.Resident}), 4)
			if err != nil {
				t.Fatal(err)
			}
			if err := devicetest.Compare(float32s(resident), float32s(want), 1e-6); err != nil {
				t.Fatalf("not as the CPU: %v", err)
			}
			for name, p := range pagedPlans(t, l) {
				got, stats, err := passes(t.Context(), dev, p, 4)
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				if !bytes.Equal(got, resident) {
					t.Errorf("%s: other bits than resident", name)
				}
				if stats.MovedBytes == 0 || stats.PageableBytes != 0 {
					t.Errorf("%s: %+v", name, stats)
				}
			}
			if lib != nil && lib.Report().PinnedPeakBytes == 0 {
				t.Error("no page-locked memory was used")
			}
		})
	}
}

// TestRandomBudgets plans for as much as a device has, whatever that is, and never finds that it has less.
func TestRandomBudgets(t *testing.T) {
	l := lower(t, network(t, 3, widths...))
	least := planned(t, l, search.Options{Mode: plan.Auto}).MinBytes
	most := planned(t, l, search.Options{Mode: plan.Resident}).PeakBytes() * 5 / 4
	random := rand.New(rand.NewPCG(3, 4))
	budgets := 200
	if testing.Short() {
		budgets = 20
	}
	for range budgets {
		budget := least + random.Int64N(most-least)
		p := planned(t, l, search.Options{Mode: plan.Auto, MemoryBytes: budget})
		const arenas, piece = 5, 512 // each arena ends somewhere in a piece of the simulated driver's
		dev, lib := openAlone(t, fmt.Sprintf("memory=%d", budget+arenas*piece))
		if _, _, err := passes(t.Context(), dev, p, 1); err != nil {
			t.Errorf("%d bytes: %v", budget, err)
		}
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
		lib.Check(t)
	}
}

// TestOutOfMemoryAnywhere makes each allocation of a pass fail in turn: always the device's error, and nothing forgotten.
func TestOutOfMemoryAnywhere(t *testing.T) {
	l := lower(t, network(t, 2, 24, 40, 24, 10))
	p := planned(t, l, search.Options{Mode: plan.Auto, MemoryBytes: planned(t, l, search.Options{Mode: plan.Page}).PeakBytes()})
	for n := 1; ; n++ {
		dev, lib := openAlone(t, fmt.Sprintf("fault=cuMemAlloc:%d:2", n))
		_, _, err := passes(t.Context(), dev, p, 1)
		var full *device.OutOfMemoryError
		if err != nil && (!errors.As(err, &full) || full.WantBytes <= 0 || full.Device != "cuda:0") {
			t.Errorf("allocation %d: %v", n, err)
		}
		if failed := dev.Close(); failed != nil {
			t.Errorf("allocation %d: %v", n, failed)
		}
		lib.Check(t)
		if err == nil {
			if n < 3 {
				t.Errorf("%d allocations", n-1)
			}
			return
		}
	}
}

// TestPlannedMemoryIsEnough gives the device exactly what a plan takes, and not a byte less.
func TestPlannedMemoryIsEnough(t *testing.T) {
	l := lower(t, network(t, 3, widths...))
	for name, p := range pagedPlans(t, l) {
		t.Run(name, func(t *testing.T) {
			const piece = 512 // what the simulated driver gives memory out in
			peak := int64(0)
			for _, n := range []int64{p.Fixed.Bytes, p.RingBytes, p.ActivationBytes, p.WorkBytes, p.ConstBytes} {
				peak += (n + piece - 1) / piece * piece
			}
			dev, lib := open(t, fmt.Sprintf("memory=%d", peak))
			if _, _, err := passes(t.Context(), dev, p, 2); err != nil {
				t.Error(err)
			}
			if got := lib.Report().PeakBytes; got != peak {
				t.Errorf("%d bytes were taken, %d are planned", got, peak)
			}
			lib.Take(0, piece)
			var full *device.OutOfMemoryError
			if _, _, err := passes(t.Context(), dev, p, 1); !errors.As(err, &full) {
				t.Errorf("with a byte less: %v", err)
			}
		})
	}
}

// TestWithoutPageLockedMemory falls back to memory of the ordinary kind, and says so.
func TestWithoutPageLockedMemory(t *testing.T) {
	l := lower(t, network(t, 3, widths...))
	dev, lib := open(t, "pinned=1")
	want, _, err := passes(t.Context(), dev, planned(t, l, search.Options{Mode: plan.Resident}), 1)
	if err != nil {
		t.Fatal(err)
	}
	got, stats, err := passes(t.Context(), dev, planned(t, l, search.Options{Mode: plan.Page}), 2)
	if err != nil || !bytes.Equal(got, want) {
		t.Fatalf("%v, the same bits: %v", err, bytes.Equal(got, want))
	}
	if stats.PageableBytes == 0 || lib.Report().PinnedPeakBytes != 0 {
		t.Errorf("%+v, %+v", stats, lib.Report())
	}
}

// TestFaults makes calls of the driver fail, at once or when the work is done. A pass ends with the error, and the device
// can be closed; where the context is not lost, the next pass works.
func TestFaults(t *testing.T) {
	l := lower(t, network(t, 2, 24, 40, 24, 56, 10))
	p := planned(t, l, search.Options{Mode: plan.Page})
	for _, c := range []struct {
		fault string
		lost  bool
	}{
		{"cuMemcpyHtoDAsync:3:1", false}, {"cuMemcpyDtoHAsync:1:1", false}, {"cuLaunchKernel:4:1", false},
		{"cuStreamWaitEvent:2:400", false}, {"cuEventRecord:3:400:+", false}, {"cuEventCreate:2:2:+", false},
		{"cuLaunchKernel:3:719", true}, {"late:cuLaunchKernel:4:719", true}, {"late:cuMemcpyHtoDAsync:5:700", true},
		{"late:cuMemcpyHtoDAsync:2:46", true}, {"late:cuMemcpyDtoHAsync:1:214", true},
	} {
		t.Run(strings.ReplaceAll(c.fault, ":", " "), func(t *testing.T) {
			dev, lib, pg := openPager(t, "order=lazy:5 fault="+c.fault)
			// What is brought ahead belongs to the next pass, and so does its failure.
			failures := 0
			for n := range 4 {
				var lost *cuda.LostError
				err := pg.Pass(t.Context(), p, newTransfer(l.Graph))
				if err != nil {
					failures++
				}
				if err != nil && errors.As(err, &lost) != c.lost {
					t.Errorf("pass %d, lost %v: %v", n, c.lost, err)
				}
				if err == nil && failures > 0 && c.lost {
					t.Errorf("pass %d worked on a device that was lost", n)
				}
			}
			stays := c.lost || strings.HasSuffix(c.fault, "+")
			if failures == 0 || failures > 1 && !stays {
				t.Errorf("%d of 4 passes failed", failures)
			}
			if err := errors.Join(pg.Close(), dev.Close()); err != nil {
				t.Errorf("close: %v", err)
			}
			if c.lost {
				return // the context took what there was along
			}
			lib.Check(t)
		})
	}
}

// TestCancel ends a pass in its middle; the next one works.
func TestCancel(t *testing.T) {
	l := lower(t, network(t, 3, widths...))
	p := planned(t, l, search.Options{Mode: plan.Page})
	dev, _ := open(t, "")
	want, _, err := passes(t.Context(), dev, p, 1)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	pg, err := pager.New(dev, pager.Options{Observe: func(e pager.Event) {
		if e.Group == 3 {
			cancel()
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer pg.Close()
	if err := pg.Pass(ctx, p, newTransfer(l.Graph)); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	x := newTransfer(l.Graph)
	if err := pg.Pass(t.Context(), p, x); err != nil || !bytes.Equal(x.out, want) {
		t.Errorf("after a pass that was cancelled: %v, the same bits: %v", err, bytes.Equal(x.out, want))
	}
}

// TestTwoSessions runs two pagers on one GPU at the same time.
func TestTwoSessions(t *testing.T) {
	l := lower(t, network(t, 3, widths...))
	p := planned(t, l, search.Options{Mode: plan.Page})
	for _, order := range []string{"threads", "lazy:2"} {
		lib := sim.New(t, "order="+order)
		var both sync.WaitGroup
		results := make([][]byte, 2)
		for i := range results {
			both.Go(func() {
				dev, err := cuda.New(cuda.Options{Library: lib.Path})
				if err != nil {
					t.Error(err)
					return
				}
				results[i], _, err = passes(t.Context(), dev, p, 4)
				if err := errors.Join(err, dev.Close()); err != nil {
					t.Error(err)
				}
			})
		}
		both.Wait()
		if !bytes.Equal(results[0], results[1]) || len(results[0]) == 0 {
			t.Error("two sessions give other bits")
		}
		lib.Check(t)
	}
}

// TestSecondGPU runs on another GPU than the first.
func TestSecondGPU(t *testing.T) {
	l := lower(t, network(t, 3, widths...))
	lib := sim.New(t, "devices=2 memory=8M")
	lib.Take(0, 8<<20)
	dev, err := cuda.New(cuda.Options{Library: lib.Path, Ordinal: 1})
	if err != nil {
		t.Fatal(err)
	}
	if total, free := dev.Memory(); dev.Name() != "cuda:1" || total != 8<<20 || free != 8<<20 {
		t.Errorf("%s has %d bytes, %d free", dev.Name(), total, free)
	}
	if _, _, err := passes(t.Context(), dev, planned(t, l, search.Options{Mode: plan.Page}), 2); err != nil {
		t.Error(err)
	}
	if err := dev.Close(); err != nil {
		t.Error(err)
	}
	lib.Check(t)
}

// TestFarAhead gives out many more ops than may wait on the GPU.
func TestFarAhead(t *testing.T) {
	deep := make([]int, 400)
	for i := range deep {
		deep[i] = 4 + i%3
	}
	l := lower(t, network(t, 1, deep...))
	for _, order := range []string{"threads", "lazy:8"} {
		dev, _ := open(t, "memory=8M order="+order)
		want, _, err := passes(t.Context(), dev, planned(t, l, search.Options{Mode: plan.Resident}), 4)
		if err != nil {
			t.Fatal(err)
		}
		got, _, err := passes(t.Context(), dev, planned(t, l, search.Options{Mode: plan.Page}), 2)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%v, the same bits: %v", err, bytes.Equal(got, want))
		}
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	}
}
