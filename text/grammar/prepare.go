package grammar

import "context"

// What is made ahead.
const (
	// costlyNodes is at how many nodes of the vocabulary's tree one looks for what a costly place allows: what takes less may be found again
	// whenever it is asked for.
	costlyNodes = 5_000
	// maxCostly and maxCheap bound the places of which it is kept.
	maxCostly = 384
	maxCheap  = 128
	// maxPrepared bounds the nodes of the tree that are looked at ahead.
	maxPrepared = 20_000_000
)

// Prepare finds ahead what tokens may do at the places of the grammar where a look at the vocabulary takes long, so that a mask asked for later
// joins what is known. It may run while others use the engine, and once is enough: a second call returns when the first is done.
//
// Places are taken in the order in which texts come to them, so that what there is no room or no work left for comes late in texts. It returns
// before everything is found where that is so, or where ctx ends; masks are right all the same.
func (e *Engine) Prepare(ctx context.Context) {
	e.preparing.Lock()
	defer e.preparing.Unlock()
	if e.prepared {
		return
	}
	work := 0
	for _, n := range e.g.inOrder() {
		visits, ok := e.prepare(n)
		if work += visits; !ok || work > maxPrepared {
			break
		}
		if ctx.Err() != nil {
			return
		}
	}
	e.prepared = true
}

// prepare finds what tokens may do at a node of the grammar, and returns how many nodes of the tree that took, and whether there is room for
// more. It lets others come between two nodes.
func (e *Engine) prepare(n int32) (visits int, room bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.costly[n] != nil {
		return 0, true
	}
	e.bound(&Matcher{e: e, s: &state{}})
	before := e.visits
	_, err := e.local(n)
	visits = e.visits - before
	return visits, err == nil && len(e.costly) < maxCostly
}

// inOrder returns the nodes that take bytes, those that are the least number of bytes away from the beginning first.
func (g *Grammar) inOrder() []int32 {
	seen := make([]bool, len(g.nodes))
	var order []int32
	this := []int32{g.start}
	for len(this) > 0 {
		var next []int32
		for len(this) > 0 {
			n := this[len(this)-1]
			this = this[:len(this)-1]
			if seen[n] {
				continue
			}
			seen[n] = true
			node := &g.nodes[n]
			if len(node.bytes) > 0 {
				order = append(order, n)
			}
			this = append(this, node.free...)
			for _, c := range node.calls {
				this = append(this, c.rule)
				next = append(next, c.back)
			}
			for _, b := range node.bytes {
				next = append(next, b.to)
			}
		}
		this = next
	}
	return order
}

// keep keeps what tokens may do at a node, which took so many nodes of the tree.
func (e *Engine) keep(n int32, l *local, visits int) {
	kept, most := &e.cheap, maxCheap
	if visits >= costlyNodes {
		kept, most = &e.costly, maxCostly
	}
	if len(*kept) >= most || *kept == nil {
		*kept = make(map[int32]*local)
	}
	(*kept)[n] = l
}
