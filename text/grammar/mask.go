package grammar

import "slices"

// A localKey is what a local is of: a state whose frames end where those of all its places meet, so that it is the same within
// whatever rules it lies. After another local it is what follows where that comes to its end.
type localKey struct {
	after *local
	state *state
	open  bool // there is something around it
}

// A local is what tokens may do in a state without a look at what is around it.
type local struct {
	mask Mask
	// follow are nodes of the tree, by their bytes, before which the state may have come to its end: what is around it decides about
	// them.
	follow []int32
}

// maskOf joins what tokens may do in a state and, where they come to its end, in what is around it.
func (e *Engine) maskOf(s *state) (Mask, error) {
	inner, around := e.inner(s)
	l, err := e.local(localKey{nil, inner, around != nil})
	if err != nil {
		return nil, err
	}
	mask, own := l.mask, false
	for around != nil && len(l.follow) > 0 {
		outer, err := e.closure([]item{{around.back, around.parent}})
		if err != nil {
			return nil, err
		}
		if len(outer.items) == 0 {
			break
		}
		inner, around = e.inner(outer)
		if l, err = e.local(localKey{l, inner, around != nil}); err != nil {
			return nil, err
		}
		if !own {
			mask, own = slices.Clone(mask), true
			e.masks++
			e.hold(e.v.maskBytes())
		}
		for w, bits := range l.mask {
			mask[w] |= bits
		}
	}
	return mask, nil
}

// inner returns a state with only those frames that not all of its places have, and the first that they have, nil if there is none.
func (e *Engine) inner(s *state) (*state, *frame) {
	if len(s.items) == 0 || s.items[0].frame == nil {
		return s, nil
	}
	meet := s.items[0].frame
	for _, it := range s.items[1:] {
		f := it.frame
		for f != meet {
			if f == nil || meet == nil {
				return s, nil
			}
			if f.depth >= meet.depth {
				f = f.parent
			} else {
				meet = meet.parent
			}
		}
	}
	if meet == nil {
		return s, nil
	}
	items := make([]item, len(s.items))
	for i, it := range s.items {
		items[i] = item{it.node, e.without(it.frame, meet)}
	}
	return e.state(items, false), meet
}

// without returns a frame without those from another on.
func (e *Engine) without(f, from *frame) *frame {
	if f == from {
		return nil
	}
	return e.frame(f.back, e.without(f.parent, from))
}

// local returns what tokens may do in a state, or after another local in a state.
func (e *Engine) local(key localKey) (*local, error) {
	if l := e.locals[key]; l != nil {
		return l, nil
	}
	l := &local{mask: e.v.mask()}
	w := walk{e: e, mask: l.mask, open: key.open, ends: e.ends[:0], chain: e.chain[:0]}
	if key.after == nil {
		done, err := w.inBulk(key.state)
		if err == nil && !done {
			err = w.below(key.state, 0, int32(len(e.v.tree)-1), false)
		}
		if err != nil {
			return nil, err
		}
	} else if err := w.after(key.after.follow, key.state); err != nil {
		return nil, err
	}
	e.ends, e.chain = w.ends[:0], w.chain[:0]
	l.follow = e.byBytes(w.ends)
	e.locals[key] = l
	e.masks++
	e.follow += len(l.follow)
	e.hold(e.localBytes(l))
	return l, nil
}

// localBytes is what a local takes.
func (e *Engine) localBytes(l *local) int64 {
	return localBytes + e.v.maskBytes() + 4*int64(len(l.follow))
}

// byBytes returns nodes of the tree by their bytes, each once.
func (e *Engine) byBytes(nodes []int32) []int32 {
	if len(nodes) == 0 {
		return nil
	}
	var begin [257]int32
	for _, n := range nodes {
		begin[int(e.v.tree[n].byte)+1]++
	}
	for b := range 256 {
		begin[b+1] += begin[b]
	}
	sorted := make([]int32, len(nodes))
	at := begin
	for _, n := range nodes {
		b := e.v.tree[n].byte
		sorted[at[b]] = n
		at[b]++
	}
	for b := range 256 {
		if same := sorted[begin[b]:begin[b+1]]; !slices.IsSorted(same) {
			slices.Sort(same)
		}
	}
	return slices.Compact(sorted)
}

// A walk marks the tokens that a state allows.
type walk struct {
	e    *Engine
	mask Mask
	open bool    // the nodes before which the state comes to its end are wanted
	ends []int32 // they

	chain []*state // memory for inBulk
}

// after goes on at nodes that are sorted by their bytes.
func (w *walk) after(nodes []int32, s *state) error {
	e, tree := w.e, w.e.v.tree
	for len(nodes) > 0 {
		b := tree[nodes[0]].byte
		same, _ := slices.BinarySearchFunc(nodes, int(b)+1, func(n int32, b int) int { return int(tree[n].byte) - b })
		next, err := e.step(s, e.g.classOf[b])
		if err != nil {
			return err
		}
		if next != nowhere {
			for _, n := range nodes[:same] {
				if err := w.below(s, n, tree[n].after, false); err != nil {
					return err
				}
			}
		}
		nodes = nodes[same:]
	}
	return nil
}

// many is below how many nodes of the tree one does not look for what most characters do.
const many = 8

// A pathStep is a state on the way to a node of the tree, with its run where that is worth a look.
type pathStep struct {
	next []*state
	run  *run
	s    *state
}

// below marks tokens among nodes from to end of the tree, which are below one node. begun says that the state is one after some byte.
func (w *walk) below(s *state, from, end int32, begun bool) error {
	e, v, tree := w.e, w.e.v, w.e.v.tree
	if len(e.path) < v.deepst+1 {
		e.path = make([]pathStep, v.deepst+1)
	}
	path, top := e.path, tree[from].depth
	first, err := w.step(s, end-from)
	if err != nil {
		return err
	}
	path[0] = first
	visits := 0
	for n := from; n < end; {
		visits++
		node := &tree[n]
		d := node.depth - top
		at := &path[d]
		leaf := node.after == n+1
		if r := at.run; r != nil && !leaf {
			all, err := e.takes(r, node, 0)
			if err != nil {
				return err
			}
			if all {
				w.mask.set(v.ids[node.ids:tree[node.after].ids])
				n = node.after
				continue
			}
		}
		class := e.g.classOf[node.byte]
		next := at.next[class]
		if next == nil {
			if next, err = e.step(at.s, class); err != nil {
				return err
			}
		}
		if w.open && (begun || d > 0) && at.s.end {
			w.ends = append(w.ends, n)
		}
		if next == nowhere {
			n = node.after
			continue
		}
		w.mask.set(v.ids[node.ids:tree[n+1].ids])
		if leaf {
			n++
			continue
		}
		then := &path[d+1]
		if *then, err = w.step(next, node.after-n); err != nil {
			return err
		}
		all := false
		if then.run != nil {
			if all, err = e.takes(then.run, node, 1); err != nil {
				return err
			}
		}
		if n++; all {
			w.mask.set(v.ids[tree[n].ids:tree[node.after].ids])
			n = node.after
		}
	}
	e.visits += visits
	return nil
}

// step returns a state for the path to so many nodes.
func (w *walk) step(s *state, nodes int32) (pathStep, error) {
	const wide = 500 // so many nodes are worth a look at more than one state
	r := s.run
	var err error
	switch {
	case nodes > wide && (r == nil || !r.widened):
		r, err = w.e.widest(s)
	case nodes > many && r == nil:
		r, err = w.e.runOf(s)
	}
	if err != nil {
		return pathStep{}, err
	}
	if r != nil && r.then == nil {
		r = nil
	}
	return pathStep{s.next, r, s}, nil
}
