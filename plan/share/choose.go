package share

import (
	"cmp"
	"slices"
)

// gainOver is by how much more weights have to save than those that give way to them: counts of calls are uncertain, and
// who gave way today comes back tomorrow.
const gainOver = 1.25

// choose returns the level at which a turn is best run, with the models that give up their weights for it: the level
// that saves most reads, if the traffic goes on as it was, beyond what those models will read instead.
//
// A model goes up only when it runs, since it reads its weights then anyway. That it goes from one level that keeps
// weights to another costs it what it kept, which has to be earned twice.
func (l *Ledger) choose(t *Turn) (level int, drops []*Model) {
	m := t.model
	now := max(m.at, 0)
	if m.at < 0 || now >= len(t.levels) || m.keepBytes != t.levels[now].KeepBytes {
		now = 0
	}
	level = now
	room := l.budgetBytes - l.workBytes(t)
	rate, best := l.rate(m), 0.0
	for b := now + 1; b < len(t.levels); b++ {
		of := t.levels[b]
		gain := rate * float64(t.levels[now].ReadBytes-of.ReadBytes)
		gain -= 2 * float64(t.levels[now].KeepBytes)
		victims, fits := l.giving(m, of.KeepBytes, room)
		for _, v := range victims {
			gain -= gainOver * l.value(v)
		}
		if fits && gain > best {
			level, drops, best = b, victims, gain
		}
	}
	return level, drops
}

// workBytes is what is left for passes, beside the weights that stay: enough for the models that need most of it to run
// at one time, as long as that is no more than half of the budget.
func (l *Ledger) workBytes(t *Turn) int64 {
	works := []int64{mostWork(t.levels)}
	for _, m := range l.models {
		if m != t.model {
			works = append(works, mostWork(m.levels))
		}
	}
	slices.SortFunc(works, func(a, b int64) int { return cmp.Compare(b, a) })
	var sum int64
	for _, w := range works[:min(l.passes, len(works))] {
		sum += w
	}
	return max(works[0], min(sum, l.budgetBytes/2))
}

// mostWork is what passes of a model take beside the weights that stay.
func mostWork(levels []Level) (n int64) {
	for _, of := range levels {
		n = max(n, of.PassBytes-of.KeepBytes)
	}
	return n
}

// giving returns the models that give up their weights so that one has room for its own: those whose weights save least
// for each byte. None is among them without which there is room.
func (l *Ledger) giving(m *Model, keepBytes, roomBytes int64) (victims []*Model, fits bool) {
	need := l.keptBut(m, nil) + keepBytes - roomBytes
	for _, v := range l.victims(m) {
		if need <= 0 {
			break
		}
		victims = append(victims, v)
		need -= v.keepBytes
	}
	for i := len(victims) - 1; i >= 0 && need <= 0; i-- {
		if v := victims[i]; need+v.keepBytes <= 0 {
			need += v.keepBytes
			victims = slices.Delete(victims, i, i+1)
		}
	}
	return victims, need <= 0
}

// victims lists the models but one that keep weights and do not run, that whose weights save least for each byte first.
func (l *Ledger) victims(m *Model) []*Model {
	list := slices.DeleteFunc(slices.Clone(l.models), func(x *Model) bool {
		return x == m || x.running || x.freeing > 0 || x.keepBytes == 0
	})
	slices.SortStableFunc(list, func(a, b *Model) int {
		return cmp.Compare(l.value(a)/float64(a.keepBytes), l.value(b)/float64(b.keepBytes))
	})
	return list
}

// value is how many bytes a model's weights that stay are expected to save it from reading.
func (l *Ledger) value(m *Model) float64 {
	if m.at < 0 {
		return 0
	}
	least := m.levels[0]
	return l.rate(m) * float64(least.KeepBytes+least.ReadBytes-m.levels[m.at].ReadBytes)
}
