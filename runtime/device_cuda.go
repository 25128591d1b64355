package runtime

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/optimem/optimem/chunker"
	"github.com/optimem/optimem/cuda"
	"github.com/optimem/optimem/internal/cpu"
	"github.com/optimem/optimem/pager"
	"github.com/optimem/optimem/plan"
)

// cudaTarget is what a plan knows of a GPU.
var cudaTarget = plan.Target{Name: "cuda", AlignBytes: 256}

// cudaRates are guesses for a GPU of the last years on a bus of the one before: nothing here has been measured.
var cudaRates = plan.Rates{FLOPs: 5e12, MemoryBytes: 300e9, OpSeconds: 5e-6, CopyBytes: 12e9, CopySeconds: 10e-6}

// gpuOrdinal reads the number of a GPU.
func gpuOrdinal(text string) (int, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return 0, errors.New("a GPU has a number, as in cuda:1")
	}
	return int(n), nil
}

// cudaMachine opens a GPU, "cuda" or "cuda:1".
func cudaMachine(o Options, ordinal string) (*machine, error) {
	opts := cuda.Options{Library: o.CUDALibrary, CUBLASLt: o.CUBLASLt}
	if ordinal != "" {
		n, err := gpuOrdinal(ordinal)
		if err != nil {
			return nil, &DeviceError{Device: o.Device, Msg: err.Error()}
		}
		opts.Ordinal = n
	}
	rates := o.Rates.Or(cudaRates)
	host := cpu.New(o.Threads, o.Ops)
	dev, err := cuda.New(opts)
	if err != nil {
		if o.PlanOnly && o.Memory > 0 {
			return absentMachine(o, host, rates), nil
		}
		failed := &DeviceError{Device: o.Device, Msg: err.Error(), Err: err}
		if o.PlanOnly {
			failed.Msg += "; a plan for a GPU that is not here needs a budget"
		}
		return nil, errors.Join(failed, host.Close())
	}
	own := o.pager(o.Memory)
	own.HostBytes = o.HostMemory
	c, err := chunker.New(dev, host, chunker.Options{Device: own, Host: o.pager(o.HostMemory)})
	if err != nil {
		return nil, errors.Join(deviceFailed(o, err), dev.Close(), host.Close())
	}
	total, free := dev.Memory()
	return &machine{
		name: dev.Name(), target: cudaTarget,
		precisions: dev.Info().Precisions(), without: capabilityOf(dev),
		lower: dev.Lower, hostLower: host.Lower, supports: cuda.Supports, winograd: cuda.Winograd, channelsLast: dev.Arrange,
		pass: func(ctx context.Context, p *plan.Plan, io pager.IO) error { return deviceFailed(o, c.Pass(ctx, p, io)) },
		held: c.Held, stats: c.Stats, hostBytes: c.HostBytes,
		free: func() (int64, bool) {
			_, free := dev.Memory()
			return ofGPU(free), free > 0
		},
		own: deviceMemory{total, free}, rates: rates,
		giveBack: func(ctx context.Context) error { return deviceFailed(o, c.GiveBack(ctx)) }, bound: c.Bound,
		close: func() error { return errors.Join(c.Close(), dev.Close(), host.Close()) },
	}, nil
}

// capabilityOf says what a GPU is able to do.
func capabilityOf(dev *cuda.Device) string {
	return fmt.Sprintf("compute capability %d.%d", dev.Info().Capability/10, dev.Info().Capability%10)
}

// absentMachine plans for a GPU that is not here.
func absentMachine(o Options, host *cpu.Device, rates plan.Rates) *machine {
	m := &machine{
		name: o.Device, target: cudaTarget, rates: rates,
		precisions: allPrecisions[1:],
		lower:      cuda.Lower, hostLower: host.Lower, supports: cuda.Supports, winograd: cuda.Winograd, channelsLast: cuda.Arrange,
	}
	return m.absent(host.Close)
}

// absent makes a machine one that only plans.
func (m *machine) absent(done func() error) *machine {
	m.held = func() (dev, host pager.Held) { return }
	m.stats = func() (dev, host pager.Stats) { return }
	m.hostBytes = func() int64 { return 0 }
	m.free = func() (int64, bool) { return 0, false }
	m.giveBack, m.bound = func(context.Context) error { return nil }, func(int64) {}
	m.close = done
	return m
}

// deviceFailed names the device in an error after which it cannot be used any more.
func deviceFailed(o Options, err error) error {
	var lost *cuda.LostError
	if !errors.As(err, &lost) {
		return err
	}
	return fmt.Errorf("device %s: %w", o.Device, err)
}

// A GPU is what can be said of one before anything runs on it.
type GPU struct {
	// Name is what [Options.Device] takes, Model the maker's name.
	Name, Model string
	// Capability is the compute capability, as in 86 for 8.6; Driver the release of CUDA that the driver is of, as in 12040
	// for 12.4.
	Capability, Driver    int
	TotalBytes, FreeBytes int64
	// Simulated says that it is the simulated driver's.
	Simulated bool
	// Err says why it cannot be used, nil where it can.
	Err error
}

// GPUs returns those that the process may use, by the driver at a path, "" for the system's. The error says why there is
// none.
func GPUs(library string) ([]GPU, error) {
	list, err := cuda.List(library)
	if err != nil {
		return nil, err
	}
	gpus := make([]GPU, len(list))
	for i, info := range list {
		gpus[i] = GPU{
			Name: fmt.Sprintf("cuda:%d", i), Model: info.Name, Capability: info.Capability, Driver: info.Driver,
			TotalBytes: info.MemoryBytes, Simulated: info.Simulated,
		}
		dev, err := cuda.New(cuda.Options{Ordinal: i, Library: library})
		if err != nil {
			gpus[i].Err = err
			continue
		}
		_, gpus[i].FreeBytes = dev.Memory()
		gpus[i].Err = dev.Close()
	}
	return gpus, nil
}

// FirstGPU returns the name of the first GPU that can be used, by the driver at a path, "" for the system's; "" where there
// is no GPU, or no driver of one. The error says why there are GPUs and none can be used.
func FirstGPU(library string) (string, error) {
	list, err := cuda.List(library)
	var absent *cuda.UnavailableError
	if errors.As(err, &absent) && absent.None {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	var failed error
	for i := range list {
		dev, err := cuda.New(cuda.Options{Ordinal: i, Library: library})
		if err == nil {
			return fmt.Sprintf("cuda:%d", i), dev.Close()
		}
		failed = errors.Join(failed, fmt.Errorf("cuda:%d: %w", i, err))
	}
	return "", failed
}
