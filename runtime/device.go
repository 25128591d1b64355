package runtime

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/optimem/optimem/chunker"
	"github.com/optimem/optimem/device/emulated"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/ascii"
	"github.com/optimem/optimem/internal/cpu"
	"github.com/optimem/optimem/pager"
	"github.com/optimem/optimem/plan"
)

// A machine is what passes run on: the CPU alone, or a device and the CPU beside it.
type machine struct {
	name   string
	target plan.Target
	// lower lowers for the device, hostLower for the CPU beside it; nil where there is none.
	lower, hostLower func(*graph.Graph) (*graph.Lowered, error)
	// supports returns nil for ops that the device computes; nil where it computes all that the CPU does.
	supports func(op graph.Op, in, out []graph.Spec) error
	// pass runs a plan; held and stats are of the device and of the host.
	pass  func(ctx context.Context, p *plan.Plan, io pager.IO) error
	held  func() (dev, host pager.Held)
	stats func() (dev, host pager.Stats)
	// mostHeld is what the one of several devices holds that holds most; nil where there is one.
	mostHeld func() int64
	// hostBytes is the host memory through which the device is filled.
	hostBytes func() int64
	// free is what the device says that it has left, false where it does not know.
	free func() (int64, bool)
	// giveBack frees what passes left on the device and in the host's memory, bound says how much of the device's plans take
	// from now on.
	giveBack func(ctx context.Context) error
	bound    func(memoryBytes int64)
	close    func() error
	// own is the device's own memory, nothing where it is the host's.
	own deviceMemory
	// peers are further devices, each with what a session may take of it.
	peers []plan.Peer
	// arranges says that it computes with the CPU's kernels, in the CPU's layouts.
	arranges bool
	// precisions are what a device beside the CPU rounds factors of products to; without is why it has no other.
	precisions []string
	without    string
	// winograd chooses the convolutions that a device beside the CPU computes by Winograd's algorithm; nil where it has none.
	winograd func(*graph.Graph) *graph.Graph
	// channelsLast puts channels last where a device beside the CPU computes faster so; nil where it does not.
	channelsLast func(*graph.Graph) *graph.Graph
	// emulated is the device where it is one.
	emulated *emulated.Device
	// rates are the device's; elapsed is its clock, nil where that is the wall's.
	rates   plan.Rates
	elapsed func() time.Duration
}

// A DeviceError says that a device cannot be used.
type DeviceError struct {
	Device, Msg string
	// Err is the cause where there is one, such as a *cuda.UnavailableError.
	Err error
}

// Error names the device.
func (e *DeviceError) Error() string { return "device " + e.Device + ": " + e.Msg }

// Unwrap returns the cause.
func (e *DeviceError) Unwrap() error { return e.Err }

// newMachine opens the device that the options name.
func newMachine(o Options) (*machine, error) {
	if names, several := gpuNames(o.Device); several {
		return spreadMachine(o, names)
	}
	kind, settings, _ := strings.Cut(o.Device, ":")
	switch kind {
	case "", "cpu":
		if settings != "" {
			return nil, &DeviceError{Device: o.Device, Msg: "the CPU takes no settings"}
		}
		return cpuMachine(o)
	case "emu":
		e, err := parseEmulated(settings)
		if err != nil {
			return nil, &DeviceError{Device: o.Device, Msg: err.Error()}
		}
		return emulatedMachine(o, e)
	case "cuda":
		return cudaMachine(o, settings)
	}
	return nil, &DeviceError{Device: o.Device, Msg: "there is none of that name"}
}

// pager returns the options of a pager with so much memory, 0 for no bound.
func (o *Options) pager(memoryBytes int64) pager.Options {
	return pager.Options{MemoryBytes: memoryBytes, Observe: o.Observe, ObserveOps: o.ObserveOps}
}

// cpuRates are the rates of a CPU as far as they are given, guesses from its kernels and threads for its arithmetic and
// memory. A ring that is chosen for a processor of a tenth of the speed leaves it waiting for weights.
func cpuRates(given plan.Rates, dev *cpu.Device) plan.Rates {
	flops, memoryBytes := dev.Guess()
	return given.Or(plan.Rates{FLOPs: flops, MemoryBytes: memoryBytes})
}

func cpuMachine(o Options) (*machine, error) {
	dev := cpu.New(o.Threads, o.Ops)
	p, err := pager.New(dev, o.pager(o.Memory))
	if err != nil {
		return nil, errors.Join(err, dev.Close())
	}
	return &machine{
		name: "cpu", arranges: true,
		target: plan.CPU, lower: dev.Lower, pass: p.Pass, rates: cpuRates(o.Rates, dev),
		held:      func() (pager.Held, pager.Held) { return p.Held(), pager.Held{} },
		stats:     func() (pager.Stats, pager.Stats) { return p.Stats(), pager.Stats{} },
		hostBytes: p.HostBytes, free: func() (int64, bool) { return 0, false },
		giveBack: p.GiveBack, bound: p.Bound,
		close: func() error { return errors.Join(p.Close(), dev.Close()) },
	}, nil
}

// emulatedAlign is the alignment that GPUs want.
const emulatedAlign = 256

func emulatedMachine(o Options, e emulated.Options) (*machine, error) {
	rates := o.Rates
	rates.CopyBytes, rates.CopySeconds = e.CopyBytes, e.CopyLatency.Seconds()
	if e.CopyBytes == 0 {
		rates.CopyBytes = math.Inf(1) // a planner takes 0 for what is not known
	}
	if e.CopyLatency == 0 {
		rates.CopySeconds = math.SmallestNonzeroFloat64
	}
	e.Threads, e.Ops = o.Threads, o.Ops
	e.Cost = func(step *graph.Step, op *graph.Op, in, out []graph.Spec) time.Duration {
		return time.Duration(rates.StepSeconds(o.Ops, step, op, in, out) * float64(time.Second))
	}
	dev, host := emulated.New(e), cpu.New(o.Threads, o.Ops)
	own := o.pager(o.Memory)
	own.Clock = dev.Elapsed
	c, err := chunker.New(dev, host, chunker.Options{
		Device: own,
		Host:   o.pager(o.HostMemory),
		HostRan: func(w chunker.HostWork) {
			t := time.Duration(w.Seconds() * float64(time.Second))
			if w.After == nil {
				dev.Spend(t)
				return
			}
			dev.SpendAfter(w.After, t)
			if w.Last {
				dev.Spend(0)
			}
		},
	})
	if err != nil {
		return nil, errors.Join(err, dev.Close(), host.Close())
	}
	return &machine{
		name: "emu", arranges: true, target: plan.Target{Name: "emu", AlignBytes: emulatedAlign},
		lower: dev.Lower, hostLower: host.Lower,
		emulated: dev, hostBytes: c.HostBytes, free: func() (int64, bool) {
			total, free := dev.Memory()
			return free, total > 0
		},
		pass: c.Pass, held: c.Held, stats: c.Stats, own: deviceMemory{e.MemoryBytes, e.MemoryBytes}, rates: rates, elapsed: dev.Elapsed,
		giveBack: c.GiveBack, bound: c.Bound,
		close: func() error { return errors.Join(c.Close(), dev.Close(), host.Close()) },
	}, nil
}

// parseEmulated reads "memory=2GiB,bandwidth=12GB/s,latency=10us".
func parseEmulated(settings string) (emulated.Options, error) {
	var e emulated.Options
	given := make(map[string]bool)
	for _, s := range strings.Split(settings, ",") {
		if s == "" {
			continue
		}
		key, value, _ := strings.Cut(s, "=")
		var err error
		if given[key] {
			return e, fmt.Errorf("%s: %s is given twice", s, key)
		}
		given[key] = true
		switch key {
		case "memory":
			e.MemoryBytes, err = parseBytes(value)
		case "bandwidth":
			var n int64
			n, err = parseBytes(strings.TrimSuffix(value, "/s"))
			e.CopyBytes = float64(n)
		case "latency":
			e.CopyLatency, err = time.ParseDuration(value)
			if err == nil && e.CopyLatency < 0 {
				err = errors.New("is negative")
			}
		default:
			err = errors.New("is not memory, bandwidth or latency")
		}
		if err != nil {
			return e, fmt.Errorf("%s: %w", s, err)
		}
	}
	return e, nil
}

// parseBytes reads a size of at least a byte.
func parseBytes(text string) (int64, error) {
	const most = 1 << 62
	n, err := ascii.ParseSize(text)
	if err == nil && (n < 1 || n > most) {
		err = fmt.Errorf("%q is not a size", text)
	}
	return n, err
}
