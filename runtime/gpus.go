package runtime

import (
	"errors"
	"fmt"

	"github.com/optimem/optimem/cuda"
)

// A GPU is what can be said of one before anything runs on it.
type GPU struct {
	// Name is what [Options.Device] takes, Model the maker's name.
	Name, Model string
	// Capability is the compute capability, as in 86 for 8.6; Driver the release of CUDA that the driver is of, as in 12040
	// for 12.4.
	Capability, Driver    int
	TotalBytes, FreeBytes int64
	// Node is the NUMA node of the host that the GPU is at, of which memory for copies is taken; −1 where there is but
	// one, or the host does not say.
	Node int
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
			TotalBytes: info.MemoryBytes, Node: info.Node, Simulated: info.Simulated,
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
