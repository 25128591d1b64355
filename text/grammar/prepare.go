package grammar

import "context"

// What is made ahead.
const (
	// costly is at how many nodes of the vocabulary's tree one looks for a mask that is kept: what takes less may be found again whenever
	// it is asked for.
	costly = 2_000
	// maxPreparedMasks bounds the masks that are kept, maxPreparedStates the states at which one looks, and maxPreparedNodes the nodes of the
	// tree that are looked at.
	maxPreparedMasks  = 256
	maxPreparedStates = 2_000
	maxPreparedNodes  = 2_000_000
)

// Prepare finds ahead the masks of states for which a look at the vocabulary takes long. It may run while others use the engine, and once is
// enough, until the engine forgot: a second call returns when the first is done.
//
// States are taken in the order in which texts come to them, so that what there is no room or no work left for comes late in texts. It returns
// before everything is found where that is so, or where ctx ends; masks are right all the same.
func (e *Engine) Prepare(ctx context.Context) {
	e.preparing.Lock()
	defer e.preparing.Unlock()
	if e.prepared.Load() {
		return
	}
	m, err := e.Start()
	seen := make(map[*state]bool)
	work := 0
	for these := []*state{m.s}; err == nil && len(these) > 0; {
		var then []*state
		for _, s := range these {
			if ctx.Err() != nil {
				return
			}
			p := e.prepare(s, seen)
			then = append(then, p.then...)
			work += p.visits
			if p.stop || work > maxPreparedNodes || len(seen) > maxPreparedStates {
				e.prepared.Store(true)
				return
			}
		}
		these = then
	}
	e.prepared.Store(true)
}

// A preparedState is what was done for a state: nodes of the tree looked at, whether it is the last, and the states after it.
type preparedState struct {
	visits int
	stop   bool
	then   []*state
}

// prepare finds the mask of a state, unless it was seen within other rules, and the states that follow. It lets others come between two
// states.
func (e *Engine) prepare(s *state, seen map[*state]bool) (p preparedState) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.v.learned.use(e); e.full() || e.masks >= maxPreparedMasks {
		p.stop = true
		return p
	}
	e.work = 0
	inner, around := e.inner(s)
	if seen[inner] {
		return p
	}
	seen[inner] = true
	visits, masks := e.visits, e.masks
	if _, err := e.maskOf(s); err != nil {
		p.stop = true
		return p
	}
	key := localKey{nil, inner, around != nil}
	p.visits = e.visits - visits
	if l := e.locals[key]; l != nil && p.visits < costly && e.masks == masks+1 {
		// Nothing else can hold it yet.
		delete(e.locals, key)
		e.masks--
		e.follow -= len(l.follow)
		e.hold(-e.localBytes(l))
	}
	for class := range e.g.firsts {
		next, err := e.step(s, uint8(class))
		if err != nil {
			p.stop = true
			return p
		}
		if next != nowhere {
			p.then = append(p.then, next)
		}
	}
	return p
}
