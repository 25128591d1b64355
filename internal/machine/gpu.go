package machine

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/optimem/optimem/chunker"
	"github.com/optimem/optimem/cost"
	"github.com/optimem/optimem/cuda"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/graph/rewrite"
	"github.com/optimem/optimem/internal/cpu"
	"github.com/optimem/optimem/pager"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/plan/slots"
)

// cudaTarget is what a plan knows of a GPU.
var cudaTarget = plan.Target{Name: "cuda", AlignBytes: 256, Pins: true, Unpacks: true}

// cudaRates are guesses for a GPU that is not here or does not say what it can do: one of the last years on a bus of the one before.
var cudaRates = cost.Rates{FLOPs: 5e12, MemoryBytes: 300e9, OpSeconds: 5e-6, CopyBytes: 12e9, CopySeconds: 10e-6}

// Of what its cores, its memory and its bus can do at best an H200 did so much (benchmarks/results/gpu-h200-*).
const partOfFLOPs, partOfMemory, partOfBus = 0.45, 0.6, 0.86

// ratesOf are guesses for a GPU, by what it says that it can do.
func ratesOf(i cuda.Info) cost.Rates {
	r := cudaRates
	for _, known := range []struct {
		rate *float64
		says float64
	}{{&r.FLOPs, partOfFLOPs * i.FLOPs}, {&r.MemoryBytes, partOfMemory * i.MemoryRate}, {&r.CopyBytes, partOfBus * i.BusRate}} {
		if known.says > 0 {
			*known.rate = known.says
		}
	}
	return r
}

// A gpuMachine is a GPU and the CPU beside it, or several GPUs, beside which none computes.
type gpuMachine struct {
	compiler
	*chunker.Chunker
	name string
	devs []*cuda.Device
	host *cpu.Device // nil with several GPUs
}

// gpuOrdinal reads the number of a GPU.
func gpuOrdinal(text string) (int, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return 0, errors.New("a GPU has a number, as in cuda:1")
	}
	return int(n), nil
}

// cudaOptions are those that all GPUs of a machine have.
func cudaOptions(o Options) cuda.Options {
	return cuda.Options{
		Library: o.CUDALibrary, CUBLASLt: o.CUBLASLt, Cache: o.CUDACache, Environment: o.CUDAEnvironment,
	}
}

// openGPU opens a GPU, "cuda" or "cuda:1".
func openGPU(o Options, ordinal string) (Machine, error) {
	opts := cudaOptions(o)
	if ordinal != "" {
		n, err := gpuOrdinal(ordinal)
		if err != nil {
			return nil, &Error{Device: o.Device, Msg: err.Error()}
		}
		opts.Ordinal = n
	}
	rates := o.Rates.Or(cudaRates)
	host := cpu.New(o.Threads, o.Ops)
	dev, err := cuda.New(opts)
	if err == nil {
		rates = o.Rates.Or(ratesOf(dev.Info()))
	}
	if err != nil {
		if o.Absent && o.MemoryBytes > 0 {
			return absentGPU(o, host, rates), nil
		}
		failed := &Error{Device: o.Device, Msg: err.Error(), Err: err}
		if o.Absent {
			failed.Msg += "; a plan for a GPU that is not here needs a budget"
		}
		return nil, errors.Join(failed, host.Close())
	}
	own := o.pager(o.MemoryBytes)
	own.HostBytes = o.HostBytes
	c, err := chunker.New(dev, host, chunker.Options{Device: own, Host: o.pager(o.HostBytes)})
	if err != nil {
		return nil, errors.Join(lost(o.Device, err), dev.Close(), host.Close())
	}
	total, free := dev.Memory()
	return &gpuMachine{
		compiler{
			device: Device{
				Name: dev.Name(), Target: cudaTarget, Memory: Memory{total, free}, Rates: rates,
				Lower: dev.Lower, HostLower: host.Lower,
			},
			arrange: arrangedBy(dev.Arrange), supports: cuda.Supports, encoded: cuda.ReadsCodes,
			gpu: true, precisions: dev.Info().Precisions(), without: capabilityOf(dev),
		}, c, o.Device, []*cuda.Device{dev}, host,
	}, nil
}

// arrangedBy chooses the convolutions that a GPU computes by Winograd's algorithm, and where channels come last.
func arrangedBy(channelsLast func(*graph.Graph) *graph.Graph) func(*graph.Graph, Compilation) *graph.Graph {
	return func(g *graph.Graph, o Compilation) *graph.Graph {
		if !o.Exact {
			g = cuda.Winograd(g)
		}
		if o.Without&rewrite.ArrangeLayouts == 0 {
			g = channelsLast(g)
		}
		return g
	}
}

// capabilityOf says what a GPU is able to do.
func capabilityOf(dev *cuda.Device) string {
	return fmt.Sprintf("compute capability %d.%d", dev.Info().Capability/10, dev.Info().Capability%10)
}

// lost names the device in an error after which it cannot be used any more.
func lost(device string, err error) error {
	var gone *cuda.LostError
	if !errors.As(err, &gone) {
		return err
	}
	return fmt.Errorf("device %s: %w", device, err)
}

func (m *gpuMachine) Pass(ctx context.Context, p *plan.Plan, io pager.IO) error {
	return lost(m.name, m.Chunker.Pass(ctx, p, io))
}

func (m *gpuMachine) GiveBack(ctx context.Context) error {
	return lost(m.name, m.Chunker.GiveBack(ctx))
}

// Rest gives back the contexts, too.
func (m *gpuMachine) Rest(ctx context.Context) error {
	if err := m.Chunker.Rest(ctx); err != nil {
		return lost(m.name, err)
	}
	var errs []error
	for _, dev := range m.devs {
		errs = append(errs, dev.Rest())
	}
	return lost(m.name, errors.Join(errs...))
}

// Inventory is that of the GPUs, and of the CPU beside one.
func (m *gpuMachine) Inventory() []Inventory {
	pagers, crossing := m.Inventories()
	list := make([]Inventory, len(pagers))
	for i := range pagers {
		if list[i].Inventory = pagers[i]; i == len(m.devs) {
			list[i].Name, list[i].AllocatedBytes = "cpu", m.host.Allocated()
			continue
		}
		dev := m.devs[i]
		list[i].Name, list[i].AllocatedBytes = dev.Name(), dev.Allocated()
		if !dev.Resting() {
			total, free := dev.Memory()
			list[i].UsedBytes = total - free
		}
	}
	list[0].CrossingBytes = crossing
	return list
}

// MostHeld leaves out what the CPU beside a GPU computes in.
func (m *gpuMachine) MostHeld() int64 {
	if m.host == nil {
		return m.Chunker.MostHeld()
	}
	held, _ := m.Held()
	return held.Total()
}

// Free is the least that one of the GPUs has left.
func (m *gpuMachine) Free() (int64, bool) {
	var least int64
	for i, dev := range m.devs {
		if _, free := dev.Memory(); i == 0 || free < least {
			least = free
		}
	}
	return least, least > 0
}

func (m *gpuMachine) Clock() (time.Duration, bool) { return 0, false }

func (m *gpuMachine) Close() error {
	errs := []error{m.Chunker.Close()}
	for _, dev := range m.devs {
		errs = append(errs, dev.Close())
	}
	if m.host != nil {
		errs = append(errs, m.host.Close())
	}
	return errors.Join(errs...)
}

// An absentMachine is a GPU that is not here, or several: plans are made for it, and nothing runs.
type absentMachine struct {
	compiler
	host *cpu.Device // nil with several GPUs
}

func absentGPU(o Options, host *cpu.Device, rates cost.Rates) Machine {
	return &absentMachine{
		compiler{
			device:  Device{Name: o.Device, Target: cudaTarget, Rates: rates, Lower: cuda.Lower, HostLower: host.Lower},
			arrange: arrangedBy(cuda.Arrange), supports: cuda.Supports, encoded: cuda.ReadsCodes, gpu: true,
			precisions: precisions[1:],
		}, host,
	}
}

// errAbsent answers who runs what was only to be planned, which sessions do not.
var errAbsent = errors.New("the device is not here")

func (m *absentMachine) Pass(context.Context, *plan.Plan, pager.IO) error { return errAbsent }
func (m *absentMachine) Held() (dev, host pager.Held)                     { return dev, host }
func (m *absentMachine) MostHeld() int64                                  { return 0 }
func (m *absentMachine) Routing() map[string]*slots.Curve                 { return nil }
func (m *absentMachine) Stats() (dev, host pager.Stats)                   { return dev, host }
func (m *absentMachine) Inventory() []Inventory                           { return nil }
func (m *absentMachine) HostBytes() int64                                 { return 0 }
func (m *absentMachine) Free() (int64, bool)                              { return 0, false }
func (m *absentMachine) Clock() (time.Duration, bool)                     { return 0, false }
func (m *absentMachine) GiveBack(context.Context) error                   { return nil }
func (m *absentMachine) Rest(context.Context) error                       { return nil }
func (m *absentMachine) Keep(context.Context, *plan.Plan) (bool, error)   { return true, nil }
func (m *absentMachine) Trim() error                                      { return nil }
func (m *absentMachine) DropCaches() error                                { return nil }
func (m *absentMachine) ShrinkCaches(int, int) error                      { return nil }
func (m *absentMachine) ReadCache(context.Context, string, []byte, int64) error {
	return pager.ErrNoCache
}
func (m *absentMachine) WriteCache(context.Context, string, []byte, int64) error {
	return pager.ErrNoCache
}
func (m *absentMachine) Bound(int64) {}
func (m *absentMachine) Close() error {
	if m.host == nil {
		return nil
	}
	return m.host.Close()
}
