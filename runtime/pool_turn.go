package runtime

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/plan/share"
	"github.com/optimem/optimem/tensor"
)

// A menu is a program of a member with plans that keep more and more of its weights, and what each takes.
type menu struct {
	p      *program
	levels []share.Level
	plans  []*plan.Plan
	// joint are plans for several instances that keep what the plan of a level does, nil where there is none that pays.
	joint map[jointOf]*plan.Plan
}

type jointOf struct{ level, instances int }

// menuSteps is into how many parts the way from the least memory to that which keeps everything is cut.
const menuSteps = 4

// maxMenus bounds the menus of a member, one for each set of input shapes.
const maxMenus = 16

// planFixed makes the menu for inputs of these shapes.
func (m *Member) planFixed(ctx context.Context, shapes map[string]tensor.Shape) (*menu, error) {
	s := m.session
	if err := s.wait(ctx, "plan"); err != nil {
		return nil, err
	}
	defer s.release()
	g, err := s.model.GraphOf(ctx, models.Call{Inputs: shapes})
	if err != nil {
		return nil, fmt.Errorf("pool: %w", err)
	}
	p, err := s.program(ctx, g)
	if err != nil {
		return nil, fmt.Errorf("pool: %w", err)
	}
	made, err := m.newMenu(ctx, p)
	if err != nil {
		return nil, err
	}
	m.keepMenu(made)
	return made, nil
}

// menuFor returns the menu for inputs.
func (m *Member) menuFor(ctx context.Context, in Values) (*menu, error) {
	if of := m.knownMenu(in); of != nil {
		return of, nil
	}
	s := m.session
	if err := s.wait(ctx, "run"); err != nil {
		return nil, err
	}
	defer s.release()
	if of := m.knownMenu(in); of != nil { // made by another call meanwhile
		return of, nil
	}
	p, err := s.programFor(ctx, in)
	if err != nil {
		return nil, err
	}
	of, err := m.newMenu(ctx, p)
	if err != nil {
		return nil, err
	}
	m.keepMenu(of)
	return of, nil
}

func (m *Member) knownMenu(in Values) *menu {
	m.pool.mu.Lock()
	defer m.pool.mu.Unlock()
	for i, of := range m.menus {
		if of.p.takes(in) {
			m.menus = slices.Insert(slices.Delete(m.menus, i, i+1), 0, of)
			return of
		}
	}
	return nil
}

func (m *Member) keepMenu(of *menu) {
	m.pool.mu.Lock()
	defer m.pool.mu.Unlock()
	m.menus = slices.Insert(m.menus, 0, of)
	m.menus = m.menus[:min(len(m.menus), maxMenus)]
}

// newMenu plans with more and more memory, up to the pool's budget. Weights lie as they do in another menu of the
// member, where they can, so that calls of other shapes find them.
func (m *Member) newMenu(ctx context.Context, p *program) (*menu, error) {
	s := m.session
	if len(p.graph.Updates) > 0 || p.finds != p.leaves || p.graph.HasCaches() {
		return nil, &PoolError{m.name, "the program keeps something from call to call, which could not give way to other models"}
	}
	budget := m.pool.opts.Memory
	most, err := s.newPlanLike(ctx, p, 1, budget, nil)
	if err != nil {
		return nil, fmt.Errorf("pool: model %q: %w", m.name, err)
	}
	m.pool.mu.Lock()
	var before *menu
	if len(m.menus) > 0 {
		before = m.menus[0]
	}
	m.pool.mu.Unlock()
	of := &menu{p: p, joint: make(map[jointOf]*plan.Plan)}
	least, peak := most.MinBytes, most.PeakBytes()
	for k := range menuSteps + 1 {
		pl := most
		bytes := least + (peak-least)/menuSteps*int64(k)
		if k == 0 { // a ring with some room is worth more than the same bytes of weights
			bytes = min(least+least/4, peak)
		}
		if k < menuSteps || before != nil {
			var like *plan.Plan
			if before != nil {
				like = before.plans[min(k, len(before.plans)-1)]
			}
			pl, err = s.newPlanLike(ctx, p, 1, max(bytes, least), like)
			var capacity *plan.CapacityError
			if errors.As(err, &capacity) {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("pool: model %q: %w", m.name, err)
			}
		}
		of.add(forTurns(pl))
	}
	if len(of.plans) == 0 {
		of.add(forTurns(most))
	}
	return of, nil
}

// add adds a level, if it keeps more and reads less than the one before.
func (of *menu) add(pl *plan.Plan) {
	level := share.Level{KeepBytes: pl.Fixed.Bytes, PassBytes: pl.PeakBytes(), ReadBytes: pl.MovedBytes}
	if n := len(of.levels); n > 0 && (level.KeepBytes <= of.levels[n-1].KeepBytes ||
		level.ReadBytes >= of.levels[n-1].ReadBytes) {
		return
	}
	of.plans, of.levels = append(of.plans, pl), append(of.levels, level)
}

// forTurns returns a plan of which no pass reads ahead for the next one: its ring is another model's by then.
func forTurns(pl *plan.Plan) *plan.Plan {
	if !pl.Target.Direct || pl.Sides != nil {
		return pl
	}
	q := *pl
	q.Once = true
	return &q
}

// A turn is calls of a member with inputs of the same shapes, which go together.
type turn struct {
	at     *share.Turn
	member *Member
	menu   *menu
	calls  []*call
	since  time.Time
}

// do runs a call when its turn has come.
func (m *Member) do(c *call) error {
	if err := c.ctx.Err(); err != nil {
		return fmt.Errorf("run: %w", err)
	}
	if err := m.enqueue(c); err != nil {
		return err
	}
	select {
	case <-c.done:
		return c.err
	case <-c.ctx.Done():
	}
	if m.leave(c) {
		return waitError(c.ctx, "run")
	}
	<-c.done // it is in a pass, which lets go of it before the next group
	return c.err
}

// enqueue has a call wait for a turn: one of its member's that waits already and has the same shapes, or a new one.
func (m *Member) enqueue(c *call) error {
	p := m.pool
	p.mu.Lock()
	if m.closed {
		p.mu.Unlock()
		return ErrClosed
	}
	if p.waiting >= p.opts.MaxWaiting {
		p.metrics.Refused++
		p.mu.Unlock()
		return ErrPoolFull
	}
	p.waiting++
	m.busy++
	p.mu.Unlock()
	of, err := m.menuFor(c.ctx, c.in)
	p.mu.Lock()
	defer p.mu.Unlock()
	defer m.done()
	if err == nil && m.closed {
		err = ErrClosed
	}
	if err != nil {
		p.waiting--
		return err
	}
	m.calls++
	p.ledger.Count(m.model)
	m.place(of, c)
	p.schedule()
	return nil
}

// place gives a call its place among those that wait. A turn that has as many calls as it may have passes its last one
// on, where that came later; turns go in the order of their first calls.
func (m *Member) place(of *menu, c *call) {
	most := m.maxJoin
	if most == 0 {
		most = defaultJoin
	}
	for _, t := range m.open {
		switch {
		case t.menu != of:
		case len(t.calls) < most:
			t.take(c)
			m.sort()
			return
		default:
			if last := t.calls[len(t.calls)-1]; c.since.Before(last.since) {
				t.calls = t.calls[:len(t.calls)-1]
				t.take(c)
				c = last
			}
		}
	}
	p := m.pool
	t := &turn{at: p.ledger.Wait(m.model, of.levels), member: m, menu: of, since: time.Now()}
	t.take(c)
	m.open = append(m.open, t)
	p.turns[t.at] = t
	m.sort()
}

// take adds a call behind those that came before it.
func (t *turn) take(c *call) {
	i := len(t.calls)
	for i > 0 && c.since.Before(t.calls[i-1].since) {
		i--
	}
	t.calls, c.at = slices.Insert(t.calls, i, c), t
	t.at.MoreBytes = t.more()
}

// sort has the member's turns go in the order of their first calls. Other members' turns go when they would have gone.
func (m *Member) sort() {
	l := m.pool.ledger
	for i := range m.open {
		for k := i; k > 0 && m.open[k].calls[0].since.Before(m.open[k-1].calls[0].since); k-- {
			l.Swap(m.open[k].at, m.open[k-1].at)
			m.open[k], m.open[k-1] = m.open[k-1], m.open[k]
		}
	}
}

// more is what the turn's calls could use to go through one pass.
func (t *turn) more() int64 {
	if !t.joins() {
		return 0
	}
	least := t.menu.plans[0]
	return (least.ActivationBytes + least.WorkBytes) * int64(len(t.calls)-1)
}

// joins reports whether calls gain by going through one pass: where it reads something.
func (t *turn) joins() bool { return t.member.maxJoin > 1 || t.menu.levels[0].ReadBytes > 0 }

// leave takes a call out of a turn that has not begun, and reports whether it was there.
func (m *Member) leave(c *call) bool {
	p := m.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	t := c.at
	i := slices.Index(t.calls, c)
	if p.turns[t.at] == nil || i < 0 {
		return false
	}
	t.calls = slices.Delete(t.calls, i, i+1)
	p.waiting--
	t.at.MoreBytes = t.more()
	if len(t.calls) == 0 {
		p.ledger.Leave(t.at)
		p.drop(t)
		p.schedule()
	}
	return true
}

// drop forgets a turn that waits no longer.
func (p *Pool) drop(t *turn) {
	delete(p.turns, t.at)
	t.member.open = slices.DeleteFunc(t.member.open, func(x *turn) bool { return x == t })
}

// schedule begins the turns for which there is room. The pool's mutex is held.
func (p *Pool) schedule() {
	for s := p.ledger.Next(); s != nil; s = p.ledger.Next() {
		t := p.turns[s.Turn]
		p.drop(t)
		p.waiting -= len(t.calls)
		p.running++
		p.metrics.begun(s, time.Since(t.since), p.ledger.HeldBytes())
		var frees []*Member
		for _, f := range s.Frees {
			x := p.byModel[f.Model]
			x.busy++
			frees = append(frees, x)
		}
		t.member.busy++
		go p.run(s, t, frees)
	}
}

// run frees what a turn needs, runs it, and ends it.
func (p *Pool) run(s *share.Start, t *turn, frees []*Member) {
	m := t.member
	var errs []error
	for i, f := range s.Frees {
		errs = append(errs, frees[i].free(f.All))
	}
	err := errors.Join(errs...)
	p.mu.Lock()
	p.ledger.Settled(s)
	for _, x := range frees {
		x.done()
	}
	p.schedule()
	p.mu.Unlock()
	held, kept := m.turn(s, t, err)
	p.mu.Lock()
	defer p.mu.Unlock()
	defer m.done()
	p.running--
	p.ledger.Done(t.at, held, kept)
	p.schedule()
}

// free gives back what the member holds beside the weights that stay, or all.
func (m *Member) free(all bool) error {
	s := m.session
	s.acquire()
	defer s.release()
	if all {
		return s.giveBack(context.Background())
	}
	return s.trim()
}

// turn runs the calls of a turn, and returns what the member holds then, and whether the weights that are to stay do.
func (m *Member) turn(start *share.Start, t *turn, err error) (heldBytes int64, kept bool) {
	s := m.session
	s.acquire()
	defer s.release()
	pl, instances := t.menu.plans[start.Level], 1
	s.adopt(t.menu.p, pl, start.Bytes)
	if err == nil && t.joins() {
		instances = m.join(t.menu, start, len(t.calls))
	}
	calls := slices.DeleteFunc(t.calls, func(c *call) bool {
		wrong := err
		if wrong == nil {
			wrong = c.x.begin(t.menu.p, c.in, c.into)
		}
		if wrong != nil {
			c.end(wrong)
		}
		return wrong != nil
	})
	replans := s.Metrics().Replans
	// Who called learns of the end before the turn's memory is another's, which nobody needs to wait for.
	if len(calls) > 0 {
		s.pass(t.menu.p, calls, instances)
	}
	held, _ := s.machine.Held()
	kept = held.FixedBytes >= pl.Fixed.Bytes && s.Metrics().Replans == replans && s.machine.MostHeld() <= start.Bytes
	if !kept { // a pass failed, or ran by another plan
		if err := s.giveBack(context.Background()); err != nil {
			return start.Bytes, false
		}
	}
	return s.machine.MostHeld(), kept
}

// join returns how many calls go through one pass, for which the session then has a plan.
func (m *Member) join(of *menu, start *share.Start, calls int) int {
	alone := of.plans[start.Level]
	for n := 2; ; n *= 2 {
		if n/2 >= calls || alone.MovedBytes == 0 && m.maxJoin < 2 {
			return n / 2
		}
		key := jointOf{start.Level, n}
		joint, known := of.joint[key]
		if !known {
			bytes := alone.PeakBytes() + (alone.ActivationBytes+alone.WorkBytes)*int64(n-1)
			made, err := m.session.newPlanLike(context.Background(), of.p, n, bytes, alone)
			if err == nil && plan.SameFixed(made, alone) && made.MovedBytes <= alone.MovedBytes*int64(n)/2 {
				joint = forTurns(made)
			}
			of.joint[key] = joint
		}
		if joint == nil || joint.PeakBytes() > start.Bytes {
			return n / 2
		}
		of.p.plans[n] = joint
	}
}

// adopt has the session's next passes go by a plan, within so many bytes.
func (s *Session) adopt(p *program, pl *plan.Plan, budgetBytes int64) {
	s.forget()
	p.forget() // which may be none of the session's any more
	s.given.memory, p.plans[1] = budgetBytes, pl
	s.limits = s.given
	s.machine.Bound(budgetBytes)
	s.mu.Lock()
	s.budgetBytes = budgetBytes
	s.mu.Unlock()
}

// trim frees what passes left beside the weights that stay.
func (s *Session) trim() error {
	err := s.machine.Trim()
	held, _ := s.machine.Held()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.metrics.hold(held)
	if err != nil {
		return fmt.Errorf("trim: %w", err)
	}
	return nil
}
