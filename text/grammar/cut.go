package grammar

import "sync"

// A cut is the part of a vocabulary that has only characters of a set.
type cut struct {
	set    charSet
	all    sync.Once
	tokens Mask
	sets   sync.Once
	inside []uint64 // bits of the vocabulary's sets that are within this one
}

// maxCuts is for how many sets a vocabulary keeps what it found: some 20 KB each for 128,000 tokens.
const maxCuts = 64

// cutOf returns the part for a set. Grammars share it: the characters of JSON's strings are the same in all schemas.
func (v *Vocabulary) cutOf(set *charSet) *cut {
	v.mu.Lock()
	defer v.mu.Unlock()
	if c := v.cut[*set]; c != nil {
		return c
	}
	if v.cut == nil || len(v.cut) >= maxCuts {
		v.cut = make(map[charSet]*cut)
	}
	c := &cut{set: *set}
	v.cut[*set] = c
	return c
}

// setsInside returns the bits of the vocabulary's sets that are within this one.
func (c *cut) setsInside(v *Vocabulary) []uint64 {
	c.sets.Do(func() {
		c.inside = make([]uint64, (len(v.sets)+63)/64)
		for i := range v.sets {
			if v.sets[i].within(&c.set) {
				c.inside[i/64] |= 1 << (i % 64)
			}
		}
	})
	return c.inside
}

// mark marks, in a mask without others, the tokens with characters of the set only, and so many at most.
func (c *cut) mark(v *Vocabulary, mask Mask, chars int) {
	few := v.tallFrom[min(chars+1, len(v.tallFrom)-1)]
	if few < int32(len(v.tall)/8) {
		for _, id := range v.tall[:few] {
			if v.whole[id].within(&c.set) {
				mask[id/64] |= 1 << (id % 64)
			}
		}
		return
	}
	c.markAll(v, mask)
	for _, id := range v.tall[few:] {
		mask[id/64] &^= 1 << (id % 64)
	}
}

// markAll marks the tokens with characters of the set only.
func (c *cut) markAll(v *Vocabulary, mask Mask) {
	c.all.Do(func() {
		c.tokens = v.mask()
		not := charSet{[2]uint64{^c.set.ascii[0], ^c.set.ascii[1]}, ^c.set.other}
		for w := range c.tokens {
			sets := v.whole[w*64 : min(w*64+64, len(v.whole))]
			word := uint64(0)
			for i := range sets {
				// 1 where no character is one too many, without a branch.
				more := sets[i].ascii[0]&not.ascii[0] | sets[i].ascii[1]&not.ascii[1] | uint64(sets[i].other&not.other)
				word |= ((more|-more)>>63 ^ 1) << i
			}
			c.tokens[w] = word
		}
	})
	copy(mask, c.tokens)
}

// markAfter marks, in a mask without others, the tokens with characters of the set only whose first is in another.
func (c *cut) markAfter(v *Vocabulary, mask Mask, first *charSet) {
	c.markAll(v, mask)
	for n := int32(0); int(n) < len(v.tree)-1; n = v.tree[n].after {
		if first.hasByte(v.tree[n].byte) {
			continue
		}
		from, to := v.tree[n].ids, v.tree[v.tree[n].after].ids
		for _, id := range v.ids[from:to] {
			mask[id/64] &^= 1 << (id % 64)
		}
	}
}

// bulky is how many nodes of the tree have to begin with characters of a set so that one does not go through them.
const bulky = 8_000

// A bulk is how a state takes the characters of its run's set: first one of it, then, often more, of later.
type bulk struct {
	s     *state
	run   *run
	room  int      // characters
	chain []*state // after so many characters; the last stands for all that follow
	along bool     // the chain does not say: the state after characters is found by them
	later *run
}

// inBulk marks the tokens that a state allows, from the beginning of the tree: first those that are nothing but characters of its run's
// set, then those that begin so and go on otherwise. It reports false, and is not done, where that is no faster.
func (w *walk) inBulk(s *state) (bool, error) {
	e, v := w.e, w.e.v
	r, err := e.widest(s)
	if err != nil || r.then == nil {
		return false, err
	}
	nodes := int32(0)
	for b := range v.heavy {
		if r.set.hasByte(byte(b)) {
			nodes += v.heavy[b]
		}
	}
	if nodes < e.bulky {
		return false, nil
	}
	if _, err := e.hasRoom(r, v.most); err != nil {
		return false, err
	}
	b := &bulk{s: s, run: r, room: min(r.room, v.most), chain: append(w.chain[:0], s), along: r.closed, later: r}
	if ends, err := w.follow(b); err != nil || ends {
		return false, err
	}
	w.chain = b.chain
	// Often the first character has fewer choices than all after it, as in a name.
	if len(b.chain) > 1 && !b.along {
		if then := b.chain[1].run; then != nil && then.then == b.chain[1] && r.set.within(&then.set) {
			b.later = then
		}
	}
	if c := v.cutOf(&b.later.set); b.later.set == r.set {
		c.mark(v, w.mask, b.room)
	} else {
		c.markAfter(v, w.mask, &r.set)
	}
	return true, w.leave(b)
}

// follow finds the chain of states. It reports whether one of them may come to its end where that is wanted.
func (w *walk) follow(b *bulk) (ends bool, err error) {
	if w.open && b.run.ends {
		return true, nil
	}
	for len(b.chain) <= b.room && !b.along {
		last := b.chain[len(b.chain)-1]
		next, err := w.e.runOf(last)
		if err != nil {
			return false, err
		}
		if next.closed {
			b.along = true
			return w.open && (next.ends || last.end && len(b.chain) > 1), nil
		}
		if w.open && next.then.end {
			return true, nil
		}
		b.chain = append(b.chain, next.then)
		if next.then == last {
			break
		}
	}
	return false, nil
}

// leave marks the tokens that begin with characters of a run's set and go on otherwise.
func (w *walk) leave(b *bulk) error {
	v := w.e.v
	for c := range 256 {
		chars, most := 0, b.room
		switch {
		case b.run.set.hasByte(byte(c)):
			chars = b.room
		case b.later.set.hasByte(byte(c)):
			most = 0
		}
		for ; chars <= most && chars < len(v.from[c]); chars++ {
			if nodes := v.after(byte(c), chars); len(nodes) > 0 {
				if err := w.leaveAt(b, w.e.g.classOf[c], chars, nodes); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// leaveAt does so for nodes with a byte of a class after so many characters.
func (w *walk) leaveAt(b *bulk, class uint8, chars int, nodes []behind) error {
	e, v := w.e, w.e.v
	at := b.chain[min(chars, len(b.chain)-1)]
	if !b.along {
		if next, err := e.step(at, class); err != nil || next == nowhere {
			return err
		}
	}
	e.visits += len(nodes)
	first := chars > 0 && b.later.set != b.run.set
	for i := range nodes {
		n := &nodes[i]
		if before := (charSet{n.ascii, n.other}); !before.within(&b.later.set) || first && !b.run.set.hasByte(v.prefix(n.node)[0]) {
			continue
		}
		at := at
		if b.along {
			var err error
			if at, err = e.along(b.s, v.prefix(n.node)); err != nil {
				return err
			}
		}
		if err := w.from(at, class, n.node); err != nil {
			return err
		}
	}
	return nil
}

// from marks the tokens from a node on, in the state before it.
func (w *walk) from(s *state, class uint8, n int32) error {
	v := w.e.v
	node := &v.tree[n]
	next, err := w.e.step(s, class)
	if err != nil || next == nowhere {
		return err
	}
	w.mask.set(v.ids[node.ids:v.tree[n+1].ids])
	if node.after == n+1 {
		return nil
	}
	if r := next.run; r != nil && r.then != nil {
		all, err := w.e.takes(r, node, 1)
		if err != nil {
			return err
		}
		if all {
			w.mask.set(v.ids[v.tree[n+1].ids:v.tree[node.after].ids])
			return nil
		}
	}
	return w.below(next, n+1, node.after, true)
}

// along returns the state after bytes that a state allows.
func (e *Engine) along(s *state, text []byte) (*state, error) {
	for _, b := range text {
		var err error
		if s, err = e.step(s, e.g.classOf[b]); err != nil {
			return nil, err
		}
	}
	return s, nil
}
