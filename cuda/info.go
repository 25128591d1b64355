package cuda

import (
	"github.com/optimem/optimem/cuda/internal/driver"
	"github.com/optimem/optimem/internal/sysmem"
)

// Info describes a GPU.
type Info struct {
	// Name is the maker's. Capability is the compute capability, as in 86 for 8.6, Driver the release of CUDA that the
	// driver is of, as in 12040 for 12.4.
	Name               string
	Capability, Driver int
	MemoryBytes        int64
	Multiprocessors    int
	// FLOPs are the operations of float32 that its cores do in a second at its highest clock, MemoryRate and BusRate the bytes a second
	// that its memory and the bus can move, as the driver and the host say; 0 where they do not.
	FLOPs, MemoryRate, BusRate float64
	// Address is the GPU's on the PCI bus, such as "0000:65:00.0", Node the NUMA node of the host that it is at; −1
	// where there is but one, or the host does not say.
	Address string
	Node    int
	// Simulated says that the driver is the simulator.
	Simulated bool
}

// Precisions are what factors of products of float32 may be rounded to on the GPU: see [rewrite.Narrow].
func (i Info) Precisions() []string {
	if i.Capability < tensorCapability {
		return []string{"bf16"}
	}
	return []string{"bf16", "tf32"}
}

// List describes the GPUs that the process may use. The error is an *UnavailableError.
func List(library string) ([]Info, error) {
	lib, err := open(library)
	if err != nil {
		return nil, err
	}
	n, err := lib.DeviceCount()
	if err != nil {
		return nil, unavailable(err)
	}
	list := make([]Info, n)
	for i := range list {
		if list[i], _, err = describe(lib, i); err != nil {
			return nil, unavailable(err)
		}
	}
	return list, nil
}

// describe asks the driver about a GPU.
func describe(lib *driver.Library, ordinal int) (info Info, id driver.DeviceID, err error) {
	if id, err = lib.Device(ordinal); err != nil {
		return info, id, err
	}
	info.Simulated = lib.Simulated()
	if info.Name, err = lib.DeviceName(id); err != nil {
		return info, id, err
	}
	if info.Capability, err = lib.Capability(id); err != nil {
		return info, id, err
	}
	if info.Driver, err = lib.Version(); err != nil {
		return info, id, err
	}
	if info.MemoryBytes, err = lib.DeviceMemory(id); err != nil {
		return info, id, err
	}
	if info.Multiprocessors, err = lib.Attribute(id, driver.Multiprocessors); err != nil {
		return info, id, err
	}
	info.Address, info.Node = lib.Address(id), -1
	host := topology()
	if node, ok := host.Near(info.Address); ok {
		info.Node = node
	}
	if !info.Simulated { // whose address is none of the host's
		info.BusRate = host.Bus(info.Address)
	}
	err = info.ask(lib, id)
	return info, id, err
}

// ask finds what the cores and the memory can do. Of each clock of the memory two bits go over each of its lines.
func (i *Info) ask(lib *driver.Library, id driver.DeviceID) error {
	clock, err := lib.Attribute(id, driver.ClockKHz)
	if err != nil {
		return err
	}
	memory, err := lib.Attribute(id, driver.MemoryClockKHz)
	if err != nil {
		return err
	}
	bits, err := lib.Attribute(id, driver.MemoryBits)
	if err != nil {
		return err
	}
	cores := 128
	if i.Capability <= 80 {
		cores = 64
	}
	i.FLOPs = 2 * float64(cores*i.Multiprocessors) * float64(clock) * 1e3
	i.MemoryRate = 2 * float64(memory) * 1e3 * float64(bits) / 8
	return nil
}

// topology is the host's, but in tests.
var topology = sysmem.ReadTopology
