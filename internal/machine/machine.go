// Package machine opens what passes run on: the CPU, an emulated accelerator or GPUs, all behind one interface.
//
// It knows how to open a device, how to compile a graph for it, and how to ask it what it holds. It does not know
// models or sessions; the caller sets the memory limits.
//
//	m, err := machine.Open(machine.Options{Device: "cuda:0"}) // defer m.Close()
//	made, err := m.Compile(ctx, g, machine.Compilation{Ops: graph.Standard(), Mode: plan.Page})
//	p, err := search.Plan(made.Lowered, search.Options{Target: m.Device().Target, Lower: m.Device().Lower, …})
//	err = m.Pass(ctx, p, io)
package machine

import (
	"context"
	"strings"
	"time"

	"github.com/optimem/optimem/cost"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/pager"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/plan/slots"
)

// A Machine is a device and, where that has memory of its own, the CPU beside it. One pass runs at a time.
type Machine interface {
	// Device is what is known before anything runs. It does not change.
	Device() *Device
	// Compile makes of a graph one that the machine computes fast, with the same inputs and outputs, and says how it
	// computes each op.
	Compile(ctx context.Context, g *graph.Graph, o Compilation) (*Compiled, error)
	// Pass runs a plan of what was compiled.
	Pass(ctx context.Context, p *plan.Plan, io pager.IO) error
	// Held and Stats are of the device and of the host beside it; several devices count as one, and MostHeld is what the one
	// of them holds that holds most.
	Held() (dev, host pager.Held)
	Stats() (dev, host pager.Stats)
	MostHeld() int64
	// HostBytes is the host memory through which the device is filled.
	HostBytes() int64
	// Inventory is what each device holds, and the CPU beside one, in order. It is asked between passes.
	Inventory() []Inventory
	// Free is what the device says that it has left, false where it does not know.
	Free() (int64, bool)
	// Clock is the device's own, false where that is the wall's.
	Clock() (time.Duration, bool)
	// GiveBack frees what passes left on the device and in the host's memory.
	GiveBack(ctx context.Context) error
	// Rest is GiveBack with all else that a device has for the process until the next pass, such as a GPU's context.
	Rest(ctx context.Context) error
	// Trim frees of that what is neither weights that stay nor caches, nor host memory beside a device.
	Trim() error
	// Keep frees what Trim does, and of the weights that stay those that a plan does not keep, of which it brings what is
	// missing. It reports false where it cannot, and has freed as GiveBack does.
	Keep(ctx context.Context, p *plan.Plan) (bool, error)
	// DropCaches frees the caches, which begin as zeros again.
	DropCaches() error
	// ShrinkCaches takes the memory behind the first blocks of caches that have so many in all.
	ShrinkCaches(blocks, now int) error
	// ReadCache and WriteCache copy bytes of a cache, from one on, between passes.
	ReadCache(ctx context.Context, name string, dst []byte, at int64) error
	WriteCache(ctx context.Context, name string, src []byte, at int64) error
	// Routing is what passes have shown of where rows of layers with experts go, by module, where these are lent; nil
	// is nothing.
	Routing() map[string]*slots.Curve
	// Bound says how many bytes of the device plans take from now on.
	Bound(memoryBytes int64)
	Close() error
}

// An Inventory is what a pager holds on a device.
type Inventory struct {
	Name string
	pager.Inventory
	// AllocatedBytes is what the device counts itself, UsedBytes what its driver says is in use in all, 0 where there is none.
	AllocatedBytes, UsedBytes int64
	// CrossingBytes is the host memory through which values cross between devices; the first device has it.
	CrossingBytes int64
}

// A Device is what plans need to know of a machine.
type Device struct {
	Name   string
	Target plan.Target
	// Memory is the device's own, nothing where that is the host's. Emulated says that it may all be taken, and no more.
	Memory   Memory
	Emulated bool
	// Peers are further devices, over which a plan goes on.
	Peers []Peer
	Rates cost.Rates
	// Lower says how the device computes a graph, HostLower how the CPU beside it does; nil where there is none.
	Lower, HostLower func(*graph.Graph) (*graph.Lowered, error)
}

// A Memory is what a device with memory of its own has, 0 where that is not known.
type Memory struct{ TotalBytes, FreeBytes int64 }

// A Peer is a device behind the first one.
type Peer struct {
	Name   string
	Memory Memory
}

// Options say which machine is opened.
type Options struct {
	// Device is "cpu" or "", "cuda", "cuda:1", "cuda:0,cuda:1", or "emu:memory=2GiB,bandwidth=12GB/s,latency=10us".
	Device string
	// CUDALibrary is the path of NVIDIA's driver, CUBLASLt that of its library of products; "" is the system's driver, and the
	// library where that is chosen: see cuda.Options.
	CUDALibrary, CUBLASLt string
	// CUDAEnvironment says where the library may be: see cuda.Options.
	CUDAEnvironment func(name string) string
	// CUDACache is the folder of kernels that were assembled before; "" is none.
	CUDACache string
	// Absent opens a GPU that is not here as one for which plans are made and nothing runs.
	Absent bool
	// MemoryBytes bounds what plans take of the device, HostBytes of the host's memory beside it; 0 is no bound.
	MemoryBytes, HostBytes int64
	// SwapFolder is a pager's, on the CPU.
	SwapFolder string
	Threads    int
	Ops        *graph.Registry
	// Rates are those of the device as far as they are known.
	Rates      cost.Rates
	Observe    func(pager.Event)
	ObserveOps bool
	// ObserveLoads is a pager's.
	ObserveLoads bool
	// Meter is a pager's.
	Meter *pager.Meter
	// Routed is a pager's.
	Routed func(module string, rows int, experts []int32)
}

// pager returns the options of a pager with so much memory, 0 for no bound.
func (o *Options) pager(memoryBytes int64) pager.Options {
	return pager.Options{
		MemoryBytes: memoryBytes, Observe: o.Observe, ObserveOps: o.ObserveOps, ObserveLoads: o.ObserveLoads,
		Routed: o.Routed, Meter: o.Meter,
	}
}

// An Error says that a device cannot be used.
type Error struct {
	Device, Msg string
	// Err is the cause where there is one, such as a *cuda.UnavailableError.
	Err error
}

// Error names the device.
func (e *Error) Error() string { return "device " + e.Device + ": " + e.Msg }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Open opens the machine that the options name. What cannot be used is an [*Error].
func Open(o Options) (Machine, error) {
	if names, several := gpuNames(o.Device); several {
		return openGPUs(o, names)
	}
	kind, settings, _ := strings.Cut(o.Device, ":")
	switch kind {
	case "", "cpu":
		if settings != "" {
			return nil, &Error{Device: o.Device, Msg: "the CPU takes no settings"}
		}
		return openCPU(o)
	case "emu":
		e, err := parseEmulated(settings)
		if err != nil {
			return nil, &Error{Device: o.Device, Msg: err.Error()}
		}
		return OpenEmulated(o, e)
	case "cuda":
		return openGPU(o, settings)
	}
	return nil, &Error{Device: o.Device, Msg: "there is none of that name"}
}
