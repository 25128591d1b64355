package runtime

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"

	"github.com/optimem/optimem/pager"
	"github.com/optimem/optimem/plan"
)

// A Giving says what [Session.GiveBack] gives back besides.
type Giving uint8

// Everything has GiveBack give back, beside what passes take, what the device has for the process: the context of a GPU with
// its compiled kernels and the driver's own memory, some hundred MB, if no other session of the process is on that GPU. Caches
// on a device with memory of its own, and those that wait in the host's, are kept on Go's heap meanwhile, as many bytes as they have. Free memory
// of Go's heap goes to the operating system, for which it is collected.
//
// What stays is on the host: on the CPU [Metrics.CacheBytes] off Go's heap, the caches, to the byte and nothing else; on the
// heap, on all devices, graphs and plans, states and what was kept aside; and the threads. The next pass takes longer: a GPU's driver
// makes a context and compiles kernels again.
const Everything Giving = 1

// GiveBack frees the memory that the session keeps between passes: weights that stay, the ring, activations and scratch on
// the device, and staging, copies and what the CPU computes with in the host's memory. Others can use it until the next
// pass, which takes it again and brings the weights anew, with the same results. Buffers that the program changes keep
// what they hold. GiveBack waits for a pass that runs. What stays is the session's own: its plans, some buffers of its
// kernels, the context of a GPU, and caches: what earlier passes left there is only there, and who generates text goes on
// with it. [Session.DropCaches] frees them. With [Everything] a GPU's context and caches on the device go, too.
func (s *Session) GiveBack(ctx context.Context, how ...Giving) error {
	if err := s.wait(ctx, "give back"); err != nil {
		return err
	}
	defer s.release()
	return s.giveBack(ctx, how...)
}

// DropCaches frees the memory of the program's caches, which begin as zeros in the next pass: for who has no use for what
// they hold any more. It waits for a pass that runs.
func (s *Session) DropCaches(ctx context.Context) error {
	if err := s.wait(ctx, "drop caches"); err != nil {
		return err
	}
	defer s.release()
	err := s.machine.DropCaches()
	held, _ := s.machine.Held()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.metrics.hold(held)
	if err != nil {
		return fmt.Errorf("drop caches: %w", err)
	}
	return nil
}

// ErrNoCache is returned for a cache that no pass has used yet.
var ErrNoCache = pager.ErrNoCache

// ReadCache copies what a cache of the program holds, from a byte on: what passes left there. It waits for a pass that runs.
func (s *Session) ReadCache(ctx context.Context, name string, dst []byte, at int64) error {
	if err := s.wait(ctx, "read cache"); err != nil {
		return err
	}
	defer s.release()
	return s.machine.ReadCache(ctx, name, dst, at)
}

// WriteCache puts bytes into a cache of the program, from a byte on, which the next passes find there. It waits for a pass that
// runs. A cache has memory from the first pass on.
func (s *Session) WriteCache(ctx context.Context, name string, src []byte, at int64) error {
	if err := s.wait(ctx, "write cache"); err != nil {
		return err
	}
	defer s.release()
	return s.machine.WriteCache(ctx, name, src, at)
}

// Resize changes [Options.Memory] for the passes to come: weights that no longer fit are paged, and those that fit now
// stay. Where the session holds more than the new budget it is given back at once, but for weights that go on staying.
// A budget in which what ran last has no plan is a [plan.CapacityError] that names the least, and the session goes on
// as before. Of several GPUs each has the budget for itself. Resize waits for a pass that runs.
func (s *Session) Resize(ctx context.Context, memoryBytes int64) error {
	if memoryBytes <= 0 {
		return fmt.Errorf("resize: a budget of %d bytes", memoryBytes)
	}
	if err := s.wait(ctx, "resize"); err != nil {
		return err
	}
	defer s.release()
	memoryBytes = (&Options{Memory: memoryBytes}).budget(s.machine.Device(), s.machine.Device().Memory)
	given, learnt, peers := s.given, s.limits, s.behind
	s.behind = slices.Clone(peers)
	for i := range s.behind {
		s.behind[i].MemoryBytes = memoryBytes
	}
	s.given.memory, s.within = memoryBytes, nil
	s.limits = s.given
	s.forget()
	var next *plan.Plan
	if s.recent != nil {
		var err error
		if next, err = s.planWithin(ctx, s.recent, 1, memoryBytes); err != nil {
			s.given, s.limits, s.behind = given, learnt, peers
			s.forget()
			return fmt.Errorf("resize: %w", err)
		}
	}
	s.mu.Lock()
	s.budgeted, s.budgetBytes = true, memoryBytes
	s.mu.Unlock()
	s.machine.Bound(memoryBytes)
	if s.machine.MostHeld() <= memoryBytes {
		return nil
	}
	if next != nil { // of the weights that stay those that fit need not be read again
		if ok, err := s.machine.Keep(ctx, next); ok && err == nil && s.machine.MostHeld() <= memoryBytes {
			s.mu.Lock()
			s.metrics.WeightBytes = next.Fixed.WeightBytes
			s.mu.Unlock()
			s.noteHeld()
			return nil
		}
	}
	return s.giveBack(ctx)
}

// noteHeld counts what is held between passes.
func (s *Session) noteHeld() {
	held, host := s.machine.Held()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.metrics.hold(held)
	s.metrics.HostBytes = host.Total() + s.machine.HostBytes()
}

// giveBack frees what passes left, and counts what is held now.
func (s *Session) giveBack(ctx context.Context, how ...Giving) error {
	give := s.machine.GiveBack
	if slices.Contains(how, Everything) {
		give = s.machine.Rest
		defer debug.FreeOSMemory()
	}
	err := give(ctx)
	s.mu.Lock()
	s.metrics.WeightBytes = 0
	s.mu.Unlock()
	s.noteHeld()
	if err != nil {
		return fmt.Errorf("give back: %w", err)
	}
	return nil
}
