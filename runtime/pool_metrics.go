package runtime

import (
	"time"

	"github.com/optimem/optimem/plan/share"
)

// PoolMetrics say what a pool did and what its members hold.
type PoolMetrics struct {
	// BudgetBytes is the budget; HeldBytes is what members may hold of it now, PeakBytes the most that they might.
	BudgetBytes, HeldBytes, PeakBytes int64
	// Running is how many turns run now, Waiting how many calls wait.
	Running, Waiting int
	// Turns counts those that began, Freed how often a member's weights gave way, Refused calls for which the queue was full.
	Turns, Freed, Refused int64
	// Waited is how long turns waited together, LongestWait the longest.
	Waited, LongestWait time.Duration
	Members             []MemberMetrics
}

// MemberMetrics are those of a member.
type MemberMetrics struct {
	Name string
	// HeldBytes is what it may hold now, KeptBytes the weights among it that stay between its turns.
	HeldBytes, KeptBytes int64
	Calls                int64
	// Waiting is how many calls wait, Running says that a turn runs.
	Waiting int
	Running bool
	// Session has its session's, in which LoadedBytes are those read.
	Session Metrics
}

// begun counts a turn that begins.
func (m *PoolMetrics) begun(s *share.Start, waited time.Duration, heldBytes int64) {
	m.Turns++
	for _, f := range s.Frees {
		if f.All {
			m.Freed++
		}
	}
	m.Waited += waited
	m.LongestWait, m.PeakBytes = max(m.LongestWait, waited), max(m.PeakBytes, heldBytes)
}

// Metrics returns what the pool did. It does not wait for passes.
func (p *Pool) Metrics() PoolMetrics {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.metrics
	all.BudgetBytes, all.HeldBytes = p.opts.Memory, p.ledger.HeldBytes()
	all.Running, all.Waiting = p.running, p.waiting
	for _, m := range p.members {
		all.Members = append(all.Members, m.told())
	}
	return all
}

// Metrics returns what the member did, false once it is closed. It does not wait for passes.
func (m *Member) Metrics() (MemberMetrics, bool) {
	m.pool.mu.Lock()
	defer m.pool.mu.Unlock()
	if m.gone {
		return MemberMetrics{Name: m.name}, false
	}
	return m.told(), true
}

// told is what metrics tell of the member. The pool's mutex is held.
func (m *Member) told() MemberMetrics {
	one := MemberMetrics{
		Name: m.name, HeldBytes: m.model.HeldBytes(), KeptBytes: m.model.KeepBytes(), Calls: m.calls,
		Running: m.model.Running(), Session: m.session.Metrics(),
	}
	for _, t := range m.open {
		one.Waiting += len(t.calls)
	}
	return one
}

// ForecastSeconds is what a pass is expected to take with the least memory, by the plan for the shapes that were called last; 0
// before one was made. It waits for nothing, for who has to say when to come back.
func (m *Member) ForecastSeconds() float64 {
	m.pool.mu.Lock()
	defer m.pool.mu.Unlock()
	if len(m.menus) == 0 {
		return 0
	}
	return m.menus[0].plans[0].Forecast.Seconds
}
