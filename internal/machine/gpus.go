package machine

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/optimem/optimem/chunker"
	"github.com/optimem/optimem/cuda"
	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/graph"
)

// gpuNames splits "cuda:0,cuda:1" into the names of GPUs. It reports false where there are not several.
func gpuNames(device string) ([]string, bool) {
	names := strings.Split(device, ",")
	if len(names) < 2 || !strings.HasPrefix(device, "cuda") {
		return nil, false
	}
	return names, true
}

// maxGPUs bounds how many GPUs a machine has.
const maxGPUs = 16

// openGPUs opens several GPUs, over which the groups of a plan are placed in order. No CPU computes beside them.
func openGPUs(o Options, names []string) (Machine, error) {
	if len(names) > maxGPUs {
		return nil, &Error{Device: o.Device, Msg: fmt.Sprintf("more than %d GPUs", maxGPUs)}
	}
	c := compiler{
		device:  Device{Name: o.Device, Target: cudaTarget, Rates: o.Rates.Or(cudaRates), Lower: cuda.Lower},
		arrange: arrangedBy(cuda.Arrange), encoded: cuda.ReadsCodes, gpu: true, precisions: precisions[1:],
	}
	m := &gpuMachine{name: o.Device}
	closeAll := func() error {
		var errs []error
		for _, dev := range m.devs {
			errs = append(errs, dev.Close())
		}
		return errors.Join(errs...)
	}
	for i, name := range names {
		kind, ordinal, _ := strings.Cut(name, ":")
		var err error
		opts := cudaOptions(o)
		if kind != "cuda" || ordinal == "" || slices.Contains(names[:i], name) {
			err = errors.New("several GPUs are named once each, as in cuda:0,cuda:1")
		} else {
			opts.Ordinal, err = gpuOrdinal(ordinal)
		}
		if err != nil {
			return nil, errors.Join(&Error{Device: o.Device, Msg: err.Error()}, closeAll())
		}
		dev, err := cuda.New(opts)
		if err != nil {
			if o.Absent && o.MemoryBytes > 0 {
				for _, name := range names[1:] {
					c.device.Peers = append(c.device.Peers, Peer{Name: name})
				}
				return &absentMachine{compiler: c}, closeAll()
			}
			return nil, errors.Join(&Error{Device: name, Msg: err.Error(), Err: err}, closeAll())
		}
		m.devs = append(m.devs, dev)
	}
	devices := make([]device.Device, len(m.devs))
	oldest := m.devs[0]
	var capabilities []int
	for i, dev := range m.devs {
		devices[i], capabilities = dev, append(capabilities, dev.Info().Capability)
		if can := dev.Info().Precisions(); len(can) < len(c.precisions) {
			c.precisions, c.without = can, names[i]+" has "+capabilityOf(dev)
		}
		if dev.Info().Capability < oldest.Info().Capability {
			oldest = dev
		}
		total, free := dev.Memory()
		if i == 0 {
			c.device.Memory = Memory{total, free}
		} else {
			c.device.Peers = append(c.device.Peers, Peer{names[i], Memory{total, free}})
		}
	}
	c.arrange, c.device.Rates = arrangedBy(oldest.Arrange), o.Rates.Or(ratesOf(oldest.Info()))
	c.device.Lower = func(g *graph.Graph) (*graph.Lowered,
		error) {
		return cuda.LowerFor(g, cuda.Shared(capabilities...))
	}
	own := o.pager(o.MemoryBytes)
	own.HostBytes = o.HostBytes / int64(len(devices)) // as plans share it
	spread, err := chunker.Spread(devices, chunker.Options{Device: own})
	if err != nil {
		return nil, errors.Join(lost(o.Device, err), closeAll())
	}
	m.compiler, m.Chunker = c, spread
	return m, nil
}
