// Package share divides one budget among many models: whose turn it is to run, which weights each keeps between its
// turns, and what is freed before.
//
// It knows bytes, how often each model is called, and the order in which things happen. It does not know sessions,
// plans, devices or clocks: the same events in the same order give the same decisions, so that what a process did can
// be played again.
//
//	l := share.New(8<<30, 2)
//	m := l.Add()
//	t := l.Wait(m, levels)                     // a turn; each call in it is counted by l.Count(m)
//	for s := l.Next(); s != nil; s = l.Next() { // free s.Frees, run s.Turn at s.Level within s.Bytes
//	}
//	l.Settled(s)                               // what had to be freed is
//	l.Done(t, heldBytes, true)
package share

import (
	"cmp"
	"math"
	"slices"
)

// A Level is a way to run a model: what it keeps between passes, what it takes during one, that included, and what a
// pass reads. Of a model's levels each keeps at least as much as the one before it; the first is the least.
type Level struct{ KeepBytes, PassBytes, ReadBytes int64 }

// A Ledger is a budget and the models under it.
//
// # Who calls what
//
// One goroutine at a time calls its methods: Add for each model, Count for each call, Wait for each turn, Next until
// it returns nil whenever something has changed, Settled once what a turn has others free is free, Done once a turn is over,
// Freed where a model that does not run gave memory back by itself.
//
// # Who owns what
//
// Nothing: a ledger writes down who may hold how much, and who calls it makes that true. What a [Start] says is freed
// has to be free before the turn takes memory; from then on, until Done, the turn's model may hold s.Bytes.
//
// # What is checked
//
// What all models may hold together is never more than the budget. A turn whose first level does not fit into the
// budget alone is the caller's to refuse. Turns begin in the order in which they came, where nobody swaps two of a
// model, but one that has to wait for memory may be overtaken by [MaxOvertaken] others that need less.
type Ledger struct {
	budgetBytes int64
	passes      int
	models      []*Model
	queue       []*Turn
	running     int
	// owedBytes are still held of what turns that began have others free, beyond what these turns may take.
	owedBytes int64
	// calls counts all calls; it is the clock by which counts fade.
	calls int64
}

// MaxOvertaken is how many turns may begin before one that came earlier and waits for memory.
const MaxOvertaken = 8

// A Model is one of those that share the budget.
type Model struct {
	levels []Level
	// at is the level whose weights are kept, −1 where none are.
	at int
	// heldBytes is what the model may hold now, keepBytes what of it are weights that stay; more is only there so that the next
	// pass need not take it again.
	heldBytes, keepBytes int64
	running              bool
	// freeing counts the turns that wait until the model has freed something. It begins none meanwhile, and is not asked for
	// more.
	freeing int
	// count is how often the model was called, where a call of long ago counts less; it was right at the call counted.
	count   float64
	counted int64
	// used is when the model ran last.
	used int64
}

// HeldBytes is what the model may hold now, KeepBytes what of it are weights that stay.
func (m *Model) HeldBytes() int64 { return m.heldBytes }

// KeepBytes is the weights that stay.
func (m *Model) KeepBytes() int64 { return m.keepBytes }

// Running reports whether the model has a turn that began and is not done.
func (m *Model) Running() bool { return m.running }

// A Turn is a model's wish to run.
type Turn struct {
	model  *Model
	levels []Level
	// MoreBytes is what the turn could use besides, so that several calls go through one pass.
	MoreBytes int64
	overtaken int
}

// A Start says that a turn begins.
type Start struct {
	Turn *Turn
	// Level is that of the turn's levels at which it runs, Bytes what its model may hold meanwhile.
	Level int
	Bytes int64
	// Frees is what other models, and the turn's own, give back before.
	Frees []Free
	// owedBytes is the turn's part of the ledger's.
	owedBytes int64
}

// A Free says that a model gives back what it holds beside the weights that stay, or with All those, too.
type Free struct {
	Model *Model
	All   bool
}

// New returns a ledger under which so many turns run at one time.
func New(budgetBytes int64, passes int) *Ledger {
	return &Ledger{budgetBytes: budgetBytes, passes: max(passes, 1)}
}

// Add admits a model.
func (l *Ledger) Add() *Model {
	m := &Model{at: -1}
	l.models = append(l.models, m)
	return m
}

// Hold says that a model is to be removed: it begins no turn, and what it holds is asked of nobody until it is Freed or removed.
func (l *Ledger) Hold(m *Model) { m.freeing++ }

// Remove forgets a model that has no turn, and what it held, which is free now.
func (l *Ledger) Remove(m *Model) {
	l.models = slices.DeleteFunc(l.models, func(x *Model) bool { return x == m })
}

// HeldBytes is what all models may hold, and what is not free yet although it is to be.
func (l *Ledger) HeldBytes() int64 {
	n := l.owedBytes
	for _, m := range l.models {
		n += m.heldBytes
	}
	return n
}

// Count counts a call of a model.
func (l *Ledger) Count(m *Model) {
	l.calls++
	m.count, m.counted = l.rate(m)+1, l.calls
}

// rate is how often a model is expected to be called in the calls that matter.
func (l *Ledger) rate(m *Model) float64 {
	return m.count * math.Exp2(-float64(l.calls-m.counted)/float64(max(fade, fadeModels*len(l.models))))
}

// After so many calls, or so many of each model, one counts half. Fewer, and the counts of models that are called about as
// often say who was lucky.
const (
	fade       = 1024
	fadeModels = 32
)

// Wait has a model wait for a turn, with the levels at which it could run.
func (l *Ledger) Wait(m *Model, levels []Level) *Turn {
	t := &Turn{model: m, levels: levels}
	l.queue = append(l.queue, t)
	return t
}

// Swap has two turns of one model that wait take each other's places.
func (l *Ledger) Swap(a, b *Turn) {
	i, j := slices.Index(l.queue, a), slices.Index(l.queue, b)
	l.queue[i], l.queue[j] = b, a
	a.overtaken, b.overtaken = b.overtaken, a.overtaken
}

// Leave ends the waiting of a turn that has not begun.
func (l *Ledger) Leave(t *Turn) {
	l.queue = slices.DeleteFunc(l.queue, func(x *Turn) bool { return x == t })
}

// Done ends a turn, after which its model holds so many bytes. It has lost what it was to keep where kept is false.
func (l *Ledger) Done(t *Turn, heldBytes int64, kept bool) {
	m := t.model
	m.running = false
	l.running--
	m.used = l.calls
	if m.heldBytes = heldBytes; !kept {
		m.keepBytes, m.at = 0, -1
	}
	m.keepBytes = min(m.keepBytes, heldBytes)
}

// Settled says that what a turn had others free is free.
func (l *Ledger) Settled(s *Start) {
	l.owedBytes -= s.owedBytes
	for _, f := range s.Frees {
		if f.Model != s.Turn.model {
			f.Model.freeing--
		}
	}
}

// Freed says that a model that does not run holds nothing any more.
func (l *Ledger) Freed(m *Model) { m.heldBytes, m.keepBytes, m.at = 0, 0, -1 }

// Next returns which turn begins now, nil where none can.
func (l *Ledger) Next() *Start {
	var blocked []*Turn
	for i, t := range l.queue {
		if l.running >= l.passes {
			return nil
		}
		if t.model.running || t.model.freeing > 0 {
			continue
		}
		if s := l.start(t); s != nil {
			for _, b := range blocked {
				b.overtaken++
			}
			l.queue = slices.Delete(l.queue, i, i+1)
			return s
		}
		if t.overtaken >= MaxOvertaken {
			return nil
		}
		blocked = append(blocked, t)
	}
	return nil
}

// start begins a turn, if there is room for it.
func (l *Ledger) start(t *Turn) *Start {
	m := t.model
	level, drops := l.choose(t)
	for {
		if more, ok := l.makeRoom(m, t.levels[level].PassBytes, drops); ok {
			return l.begin(t, level, append(drops, more...))
		}
		if level == 0 {
			return nil
		}
		// Who runs now holds what this level would take. It waits for that, unless it would wait for weights that stay.
		if l.keptBut(m, drops)+t.levels[level].PassBytes <= l.budgetBytes {
			return nil
		}
		level, drops = level-1, nil
	}
}

// makeRoom returns which further models give up their weights so that one has room for a pass, and whether it has.
func (l *Ledger) makeRoom(m *Model, passBytes int64, drops []*Model) (more []*Model, ok bool) {
	all := slices.Clone(drops)
	if l.keptBut(m, all)+passBytes > l.budgetBytes {
		for _, v := range l.victims(m) {
			if slices.Contains(all, v) {
				continue
			}
			all, more = append(all, v), append(more, v)
			if l.keptBut(m, all)+passBytes <= l.budgetBytes {
				break
			}
		}
	}
	return more, l.takenBut(m, all)+passBytes <= l.budgetBytes
}

// keptBut is the weights that stay of all models but one and those that give theirs up.
func (l *Ledger) keptBut(m *Model, drops []*Model) (n int64) {
	for _, x := range l.models {
		if x != m && !slices.Contains(drops, x) {
			n += x.keepBytes
		}
	}
	return n
}

// takenBut is keptBut with all that models hold which run, or cannot be asked for anything now.
func (l *Ledger) takenBut(m *Model, drops []*Model) int64 {
	n := l.owedBytes
	for _, x := range l.models {
		switch {
		case x == m || slices.Contains(drops, x):
		case x.running || x.freeing > 0:
			n += x.heldBytes
		default:
			n += x.keepBytes
		}
	}
	return n
}

// begin writes down that a turn runs at a level.
func (l *Ledger) begin(t *Turn, level int, drops []*Model) *Start {
	m, of := t.model, t.levels[level]
	s := &Start{Turn: t, Level: level}
	before := m.heldBytes // with what is freed, until that is done
	for _, x := range drops {
		s.Frees = append(s.Frees, Free{Model: x, All: true})
		x.freeing++
		before += x.heldBytes
		l.Freed(x)
	}
	switch {
	case m.at >= 0 && !(m.at == level && m.keepBytes == of.KeepBytes): // other weights are to stay
		s.Frees = append(s.Frees, Free{Model: m, All: true})
		l.Freed(m)
	case m.heldBytes > of.PassBytes:
		s.Frees = append(s.Frees, Free{Model: m})
	}
	m.heldBytes = 0
	wish := of.PassBytes + t.MoreBytes
	for _, x := range l.spare() {
		if l.HeldBytes()+wish <= l.budgetBytes {
			break
		}
		s.Frees = append(s.Frees, Free{Model: x})
		x.freeing++
		before += x.heldBytes - x.keepBytes
		x.heldBytes = x.keepBytes
	}
	s.Bytes = min(wish, l.budgetBytes-l.HeldBytes())
	s.owedBytes = max(before-s.Bytes, 0)
	l.owedBytes += s.owedBytes
	m.levels, m.at, m.keepBytes, m.heldBytes, m.running = t.levels, level, of.KeepBytes, s.Bytes, true
	l.running++
	return s
}

// spare lists the models that hold more than they keep and do not run, the one that ran longest ago first.
func (l *Ledger) spare() []*Model {
	list := slices.DeleteFunc(slices.Clone(l.models), func(x *Model) bool {
		return x.running || x.freeing > 0 || x.heldBytes <= x.keepBytes
	})
	slices.SortStableFunc(list, func(a, b *Model) int { return cmp.Compare(a.used, b.used) })
	return list
}
