package machine

import (
	"errors"
	"time"

	"github.com/optimem/optimem/cost"
	"github.com/optimem/optimem/internal/cpu"
	"github.com/optimem/optimem/pager"
	"github.com/optimem/optimem/plan"
)

// A cpuMachine is the host's processor, whose memory is the host's.
type cpuMachine struct {
	compiler
	*pager.Pager
	dev *cpu.Device
}

func openCPU(o Options) (Machine, error) {
	dev := cpu.New(o.Threads, o.Ops)
	opts := o.pager(o.MemoryBytes)
	opts.SwapFolder = o.SwapFolder
	p, err := pager.New(dev, opts)
	if err != nil {
		return nil, errors.Join(err, dev.Close())
	}
	return &cpuMachine{
		compiler{
			device:  Device{Name: "cpu", Target: plan.CPU, Lower: dev.Lower, Rates: cpuRates(o.Rates, dev)},
			arrange: arranged, encoded: anyEncoding,
		}, p, dev,
	}, nil
}

// cpuRates are the rates of a CPU as far as they are given, guesses from its kernels and threads for its arithmetic and
// memory. A ring that is chosen for a processor of a tenth of the speed leaves it waiting for weights.
func cpuRates(given cost.Rates, dev *cpu.Device) cost.Rates {
	flops, memoryBytes := dev.Guess()
	return given.Or(cost.Rates{FLOPs: flops, MemoryBytes: memoryBytes})
}

func (m *cpuMachine) Held() (dev, host pager.Held) { return m.Pager.Held(), pager.Held{} }
func (m *cpuMachine) Inventory() []Inventory {
	return []Inventory{{Name: "cpu", Inventory: m.Pager.Inventory(), AllocatedBytes: m.dev.Allocated()}}
}
func (m *cpuMachine) MostHeld() int64                { return m.Pager.Held().Total() }
func (m *cpuMachine) Stats() (dev, host pager.Stats) { return m.Pager.Stats(), pager.Stats{} }
func (m *cpuMachine) Free() (int64, bool)            { return 0, false }
func (m *cpuMachine) Clock() (time.Duration, bool)   { return 0, false }
func (m *cpuMachine) Close() error                   { return errors.Join(m.Pager.Close(), m.dev.Close()) }

// anyEncoding is that the CPU's products read blocks of every encoding.
func anyEncoding(string) bool { return true }
