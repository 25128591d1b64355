package machine

import (
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
	"github.com/optimem/optimem/plan"
)

// An Emulated is an accelerator that is emulated, with a clock of its own.
type Emulated struct {
	compiler
	*chunker.Chunker
	dev  *emulated.Device
	host *cpu.Device
}

// emulatedAlign is the alignment that GPUs want.
const emulatedAlign = 256

// OpenEmulated opens an emulated accelerator, with faults where a test wants those.
func OpenEmulated(o Options, e emulated.Options) (*Emulated, error) {
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
	own := o.pager(o.MemoryBytes)
	own.Clock = dev.Elapsed
	c, err := chunker.New(dev, host, chunker.Options{
		Device: own,
		Host:   o.pager(o.HostBytes),
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
	return &Emulated{
		compiler{
			device: Device{
				Name: "emu", Target: plan.Target{Name: "emu", AlignBytes: emulatedAlign},
				Memory: Memory{e.MemoryBytes, e.MemoryBytes}, Emulated: true, Rates: rates,
				Lower: dev.Lower, HostLower: host.Lower,
			},
			arrange: arranged, encoded: anyEncoding,
		}, c, dev, host,
	}, nil
}

// Inventory is that of the accelerator and of the CPU beside it.
func (m *Emulated) Inventory() []Inventory {
	pagers, crossing := m.Inventories()
	return []Inventory{
		{Name: "emu", Inventory: pagers[0], AllocatedBytes: m.dev.Allocated(), CrossingBytes: crossing},
		{Name: "cpu", Inventory: pagers[1], AllocatedBytes: m.host.Allocated()},
	}
}

// MostHeld leaves out what the CPU beside the device computes in.
func (m *Emulated) MostHeld() int64 {
	held, _ := m.Held()
	return held.Total()
}

// Accelerator is what is emulated, for tests.
func (m *Emulated) Accelerator() *emulated.Device { return m.dev }

func (m *Emulated) Free() (int64, bool) {
	total, free := m.dev.Memory()
	return free, total > 0
}

func (m *Emulated) Clock() (time.Duration, bool) { return m.dev.Elapsed(), true }

func (m *Emulated) Close() error {
	return errors.Join(m.Chunker.Close(), m.dev.Close(), m.host.Close())
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
