package runtime

import (
	"context"
	"strings"

	"github.com/optimem/optimem/memory"
	"github.com/optimem/optimem/plan"
)

// Memory says what the memory that the session holds between passes is for, on each device and in the host's memory: the
// weights that stay by name, and the rest. Both add up to what each device counts. It waits for a pass that runs.
func (s *Session) Memory(ctx context.Context) (*memory.Report, error) {
	if err := s.wait(ctx, "memory"); err != nil {
		return nil, err
	}
	defer s.release()
	all := s.machine.Inventory()
	list := make([]memory.Held, len(all))
	for i, x := range all {
		list[i] = memory.Held{
			Name: x.Name, BudgetBytes: s.budgetOf(i), DeviceBytes: x.AllocatedBytes,
			DriverBytes: max(x.UsedBytes-x.AllocatedBytes, 0), Weights: x.Weights, Constants: x.Constants,
			FixedBytes: x.FixedBytes, RingBytes: x.RingBytes, ActivationBytes: x.ActivationBytes,
			WorkBytes:    x.WorkBytes,
			StagingBytes: x.StagingBytes, CopyBytes: x.CopyBytes, SwapBytes: x.SwapBytes, RowBytes: x.RowBytes,
			CrossingBytes: x.CrossingBytes, FileBytes: x.FileBytes,
			CacheSlotBytes: x.CacheSlotBytes, CacheFileBytes: x.CacheFileBytes, CacheHostBytes: x.CacheHostBytes,
		}
		for k := range x.Caches {
			c := &x.Caches[k]
			list[i].Caches = append(list[i].Caches, memory.HeldCache{Value: &c.Value, HeldBytes: c.HeldBytes})
		}
	}
	return memory.Now(list, memory.NamesOf(s.model.Weights())), nil
}

// PlannedMemory says what a pass with a plan of [Session.Plan] or [Session.PlanBatch] takes where it takes most. It asks no
// device, and waits for nothing.
func (s *Session) PlannedMemory(p *plan.Plan) *memory.Report {
	first, _, _ := strings.Cut(s.machine.Device().Name, ",") // of several GPUs
	r := memory.Planned(p, first, memory.NamesOf(s.model.Weights()))
	s.mu.Lock()
	defer s.mu.Unlock()
	r.Devices[0].BudgetBytes = s.budgetBytes
	return r
}

// budgetOf returns the budget of a device, by its number, or of the CPU beside one.
func (s *Session) budgetOf(device int) int64 {
	switch {
	case device == 0:
		return s.budgetBytes
	case device <= len(s.behind):
		return s.behind[device-1].MemoryBytes
	}
	return s.opts.HostMemory
}
