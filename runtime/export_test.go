package runtime

import (
	"context"
	"time"

	"github.com/optimem/optimem/device/emulated"
	"github.com/optimem/optimem/internal/machine"
	"github.com/optimem/optimem/internal/sysmem"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/plan/share"
)

// StartEmulated starts a session on a device with faults.
func StartEmulated(
	ctx context.Context, model *models.Model, mode plan.Mode, o Options, e emulated.Options,
) (*Session, *emulated.Device, error) {
	s, err := start(ctx, model, mode, o)
	if err != nil {
		return nil, nil, err
	}
	if err := s.machine.Close(); err != nil {
		return nil, nil, err
	}
	m, err := machine.OpenEmulated(machine.Options{
		Device: "emu", MemoryBytes: o.Memory, HostBytes: s.opts.HostMemory, Threads: s.opts.Threads, Ops: s.opts.Ops,
		Rates: s.opts.Rates, Observe: s.told(s.opts.Observe), ObserveOps: s.opts.ObserveOps,
		ObserveLoads: s.opts.ObserveLoads,
	}, e)
	if err != nil {
		return nil, nil, err
	}
	s.machine = m
	if s.limits.memory = o.Memory; o.Memory == 0 {
		s.limits.memory = e.MemoryBytes
	}
	s.given = s.limits
	return s, m.Accelerator(), nil
}

// OnHost has sessions start on a host that leaves so many bytes, until the function that it returns is called.
func OnHost(bytes int64) (restore func()) {
	before := hostMemory
	hostMemory = func() sysmem.Info {
		n := bytes / 5 * 8
		return sysmem.Info{TotalBytes: n, AvailableBytes: n, LimitBytes: sysmem.Unlimited, LeftBytes: sysmem.Unlimited}
	}
	return func() { hostMemory = before }
}

// Yielding reports whether passes are to stand aside.
func (s *Session) Yielding() bool { return s.yielding.Load() }

// WaitFor returns once so many calls wait for their turn.
func (s *Session) WaitFor(calls int) {
	for {
		s.mu.Lock()
		n := len(s.waiting)
		s.mu.Unlock()
		if n >= calls {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// WaitForNobody returns once no call waits for its turn: those that did are in a pass.
func (s *Session) WaitForNobody() {
	for {
		s.mu.Lock()
		n := len(s.waiting)
		s.mu.Unlock()
		if n == 0 {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// Lesser is lesser.
var Lesser = lesser

// Idle returns once the next call has its turn at once, since no pass runs and nobody waits; false where that does not come
// to be. A pass answers its callers before it passes the turn on.
func (s *Session) Idle() bool {
	for range 10_000 {
		s.mu.Lock()
		idle := len(s.turn) == 1 && len(s.waiting) == 0
		s.mu.Unlock()
		if idle {
			return true
		}
		time.Sleep(time.Millisecond)
	}
	return false
}

// TakeTurn holds the session until the function that it returns is called.
func (s *Session) TakeTurn() (free func()) {
	s.acquire()
	return s.release
}

// WaitForTurnTaken returns once somebody runs a pass.
func (s *Session) WaitForTurnTaken() {
	for len(s.turn) > 0 {
		time.Sleep(time.Millisecond)
	}
}

// Levels are those of the member's menu used last.
func (m *Member) Levels() []share.Level { return m.menus[0].levels }

// SetClock has calls come by another clock.
func (p *Pool) SetClock(now func() time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now = now
}
