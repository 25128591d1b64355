package runtime

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/optimem/optimem/chunker"
	"github.com/optimem/optimem/cuda"
	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/pager"
	"github.com/optimem/optimem/plan"
)

// gpuNames splits "cuda:0,cuda:1" into the names of GPUs. It reports false where there are not several.
func gpuNames(device string) ([]string, bool) {
	names := strings.Split(device, ",")
	if len(names) < 2 || !strings.HasPrefix(device, "cuda") {
		return nil, false
	}
	return names, true
}

// maxGPUs bounds how many GPUs a session has.
const maxGPUs = 16

// spreadMachine opens several GPUs, over which the groups of a plan are placed in order. No CPU computes beside them.
func spreadMachine(o Options, names []string) (*machine, error) {
	if len(names) > maxGPUs {
		return nil, &DeviceError{Device: o.Device, Msg: fmt.Sprintf("more than %d GPUs", maxGPUs)}
	}
	rates := o.Rates.Or(cudaRates)
	m := &machine{
		name: o.Device, precisions: allPrecisions[1:],
		target: cudaTarget, lower: cuda.Lower, winograd: cuda.Winograd, channelsLast: cuda.Arrange,
		rates: rates,
	}
	var list []*cuda.Device
	closeAll := func() error {
		var errs []error
		for _, dev := range list {
			errs = append(errs, dev.Close())
		}
		return errors.Join(errs...)
	}
	for i, name := range names {
		kind, ordinal, _ := strings.Cut(name, ":")
		var err error
		opts := cuda.Options{Library: o.CUDALibrary, CUBLASLt: o.CUBLASLt}
		if kind != "cuda" || ordinal == "" || slices.Contains(names[:i], name) {
			err = errors.New("several GPUs are named once each, as in cuda:0,cuda:1")
		} else {
			opts.Ordinal, err = gpuOrdinal(ordinal)
		}
		if err != nil {
			return nil, errors.Join(&DeviceError{Device: o.Device, Msg: err.Error()}, closeAll())
		}
		dev, err := cuda.New(opts)
		if err != nil {
			if o.PlanOnly && o.Memory > 0 {
				return absentGPUs(o, m, names), closeAll()
			}
			failed := &DeviceError{Device: name, Msg: err.Error(), Err: err}
			return nil, errors.Join(failed, closeAll())
		}
		list = append(list, dev)
	}
	devices := make([]device.Device, len(list))
	oldest := list[0]
	for i, dev := range list {
		devices[i] = dev
		if can := dev.Info().Precisions(); len(can) < len(m.precisions) {
			m.precisions, m.without = can, names[i]+" has "+capabilityOf(dev)
		}
		if dev.Info().Capability < oldest.Info().Capability {
			oldest = dev
		}
		total, free := dev.Memory()
		own := deviceMemory{total, free}
		if i == 0 {
			m.own = own
		} else {
			m.peers = append(m.peers, plan.Peer{Name: names[i], MemoryBytes: o.budget(own, false)})
		}
	}
	m.channelsLast = oldest.Arrange
	m.lower = func(g *graph.Graph) (*graph.Lowered, error) { return cuda.LowerFor(g, oldest.Info().Capability) }
	own := o.pager(o.Memory)
	own.HostBytes = o.HostMemory / int64(len(devices)) // as plans share it
	c, err := chunker.Spread(devices, chunker.Options{Device: own})
	if err != nil {
		return nil, errors.Join(deviceFailed(o, err), closeAll())
	}
	m.pass = func(ctx context.Context, p *plan.Plan, io pager.IO) error { return deviceFailed(o, c.Pass(ctx, p, io)) }
	m.held, m.stats, m.hostBytes, m.bound, m.mostHeld = c.Held, c.Stats, c.HostBytes, c.Bound, c.MostHeld
	m.giveBack = func(ctx context.Context) error { return deviceFailed(o, c.GiveBack(ctx)) }
	m.free = func() (int64, bool) {
		var least int64
		for i, dev := range list {
			if _, free := dev.Memory(); i == 0 || free < least {
				least = free
			}
		}
		return ofGPU(least), least > 0
	}
	m.close = func() error { return errors.Join(c.Close(), closeAll()) }
	return m, nil
}

// absentGPUs makes a machine one that plans for GPUs that are not here.
func absentGPUs(o Options, m *machine, names []string) *machine {
	for _, name := range names[1:] {
		m.peers = append(m.peers, plan.Peer{Name: name, MemoryBytes: o.Memory})
	}
	return m.absent(func() error { return nil })
}
