package runtime

import (
	"github.com/optimem/optimem/internal/machine"
	"github.com/optimem/optimem/internal/sysmem"
)

// Budgets are decided here, for every mode and for the command line alike: what the user said, in bytes or as a share, and
// what the device, the host and its container have become bytes. All other code receives those.
//
//	CPU       what the host and the container leave, less 128 MiB or three eighths of it, and less what the caller reserves
//	GPU       nine tenths of what is free
//	emulated  all that it is said to have, also where more is asked for
//	host      four fifths of what is free, beside a device with memory of its own

// hostMemory asks what the host has. Tests have another host.
var hostMemory = sysmem.Read

// ofGPU is how much of a GPU's free memory a session takes that is given no budget: the driver needs some for kernels, and
// what is free is not always in one piece.
func ofGPU(freeBytes int64) int64 { return freeBytes / 10 * 9 }

// settle makes bytes of what the options say of the host's memory beside a device.
func (o *Options) settle() {
	if free, known := hostMemory().FreeBytes(); known && o.HostMemory == 0 && !o.onHost() {
		o.HostMemory = max(free/5*4, 1)
	}
}

// onHost reports whether the device is the host's processor.
func (o *Options) onHost() bool { return o.Device == "" || o.Device == "cpu" }

// budget returns what a session may take of a device that has memory of its own, 0 where there is no limit that is known.
func (o *Options) budget(of *machine.Device, own machine.Memory) int64 {
	given := o.Memory
	if o.MemoryShare > 0 {
		given = max(int64(o.MemoryShare*float64(own.TotalBytes)), 1)
	}
	switch {
	case of.Emulated && own.TotalBytes > 0 && (given == 0 || given > own.TotalBytes):
		return own.TotalBytes
	case given == 0:
		return ofGPU(own.FreeBytes)
	}
	return given
}

// cpuBudget returns what a session on the CPU may take beside what it holds already, 0 where nothing is known of the host.
func (o *Options) cpuBudget(heldBytes int64) int64 {
	info := hostMemory()
	free, known := info.FreeBytes()
	budget, ok := info.BudgetBytes()
	switch {
	case o.MemoryShare > 0 && info.MostBytes() > 0:
		return max(int64(o.MemoryShare*float64(info.MostBytes())), 1)
	case o.Memory > 0 || !ok:
		return o.Memory
	case known:
		budget = max(budget, free/8*5)
	}
	return max(budget-o.Reserve, 1) + heldBytes
}

// Budget returns how many bytes the session may take on the device, or on each of several, and of the host's memory beside
// it; 0 is no limit that is known. A session that was given none has a share of what was free when it began.
func (s *Session) Budget() (deviceBytes, hostBytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.budgetBytes, s.opts.HostMemory
}

// batchBudget is what a batch may take, which is as large as the caller likes: the session's budget, or, where nobody gave
// one, no more than what the process may still take of the host's memory.
func (s *Session) batchBudget() int64 {
	if s.budgeted || !s.machine.Device().Target.Direct {
		return s.limits.memory
	}
	held, _ := s.machine.Held()
	left := s.opts.cpuBudget(held.Total())
	if s.limits.memory > 0 && left > 0 {
		return min(s.limits.memory, left)
	}
	return max(s.limits.memory, left)
}

// room returns what the device could give a session now that is refused memory, false where it does not know.
func (s *Session) room() (int64, bool) {
	free, known := s.machine.Free()
	if !s.machine.Device().Emulated {
		free = ofGPU(free)
	}
	return free, known
}
