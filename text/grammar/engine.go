package grammar

import (
	"encoding/binary"
	"slices"
	"sync"
)

// An Engine matches texts against a grammar, by tokens of a vocabulary. What it has learned about states is shared by all
// matchers, which may be used by many goroutines.
type Engine struct {
	g *Grammar
	v *Vocabulary

	mu     sync.Mutex
	states map[string]*state
	frames map[frame]*frame
	count  uint32 // of frames, for their numbers
	locals map[int32]*local
	start  *state
	marks  []uint32 // by node: the round of closure in which it was seen without a frame
	round  uint32
}

// A frame is a rule that is to go on at back, and those around it. nil is the grammar's root. Equal frames are one.
type frame struct {
	back   int32
	parent *frame
	number uint32
	depth  int32
}

// An item is a place in the grammar.
type item struct {
	node  int32
	frame *frame
}

// A state is all places at which a text may be. Those that take no byte themselves are left out.
type state struct {
	items  []item
	end    bool // the root, or what stands for it, may end here
	next   [256]*state
	known  [4]uint64 // for which bytes next is filled
	mask   Mask      // nil: not asked for yet
	failed error
}

// A local is what a vocabulary may do at one place in the grammar without a look at what is around the rule.
type local struct {
	mask Mask
	// nodes of the tree at whose end the rule may end, so that what is around it decides about what follows.
	ends []int32
}

// NewEngine returns an engine. It keeps states and masks that it found, bounded in number.
func NewEngine(g *Grammar, v *Vocabulary) *Engine {
	e := &Engine{g: g, v: v, marks: make([]uint32, len(g.nodes))}
	e.forget()
	return e
}

func (e *Engine) forget() {
	e.states = make(map[string]*state)
	e.frames = make(map[frame]*frame)
	e.start = nil
}

// A Matcher is a state of a text that is being written. It is a value: an older one stays valid, so going back is free.
type Matcher struct {
	e *Engine
	s *state
}

// Start returns a matcher of the empty text.
func (e *Engine) Start() (Matcher, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.start == nil {
		s, err := e.closure([]item{{e.g.start, nil}})
		if err != nil {
			return Matcher{}, err
		}
		e.start = s
	}
	return Matcher{e, e.start}, nil
}

// CanEnd reports whether the text is complete.
func (m Matcher) CanEnd() bool { return m.s.end }

// Advance returns the matcher after a token.
func (m Matcher) Advance(token int) (Matcher, error) {
	if token < 0 || token >= len(m.e.v.tokens) || len(m.e.v.tokens[token]) == 0 {
		return m, errorf(ErrRejected, "", "token %d has no text", token)
	}
	return m.AdvanceBytes(m.e.v.tokens[token])
}

// AdvanceBytes returns the matcher after bytes of text. After an error it is the one from before.
func (m Matcher) AdvanceBytes(text []byte) (Matcher, error) {
	m.e.mu.Lock()
	defer m.e.mu.Unlock()
	m.e.bound(&m)
	s := m.s
	for i, b := range text {
		next, err := m.e.step(s, b)
		if err != nil {
			return m, err
		}
		if next == nil {
			return m, errorf(ErrRejected, "", "byte %d of %q", i, text)
		}
		s = next
	}
	return Matcher{m.e, s}, nil
}

// bound forgets all states once there are many. The matcher's own is made anew.
func (e *Engine) bound(m *Matcher) {
	if len(e.states) < maxStates && len(e.frames) < 8*maxStates {
		return
	}
	e.forget()
	fresh := &state{end: m.s.end, mask: m.s.mask}
	for _, it := range m.s.items {
		fresh.items = append(fresh.items, item{it.node, e.again(it.frame)})
	}
	m.s = fresh
}

// again returns a frame of before forget as one of now.
func (e *Engine) again(f *frame) *frame {
	if f == nil {
		return nil
	}
	return e.frame(f.back, e.again(f.parent))
}

// frame returns the one frame of these parts.
func (e *Engine) frame(back int32, parent *frame) *frame {
	key := frame{back: back, parent: parent}
	f := e.frames[key]
	if f == nil {
		e.count++
		f = &frame{back: back, parent: parent, number: e.count}
		if parent != nil {
			f.depth = parent.depth + 1
		}
		e.frames[key] = f
	}
	return f
}

// closure returns the state of items and of all that follow from them without a byte.
func (e *Engine) closure(work []item) (*state, error) {
	s := &state{}
	e.round++
	seen := make(map[item]bool)
	for len(work) > 0 {
		it := work[len(work)-1]
		work = work[:len(work)-1]
		if it.frame == nil {
			if e.marks[it.node] == e.round {
				continue
			}
			e.marks[it.node] = e.round
		} else {
			if seen[it] {
				continue
			}
			seen[it] = true
			if len(seen) > 20*maxItems {
				return nil, errorf(ErrLimit, "", "more than %d places at once", 20*maxItems)
			}
		}
		n := &e.g.nodes[it.node]
		if n.final {
			if it.frame == nil {
				s.end = true
			} else {
				work = append(work, item{it.frame.back, it.frame.parent})
			}
		}
		for _, to := range n.free {
			work = append(work, item{to, it.frame})
		}
		for _, call := range n.calls {
			f := it.frame
			// Where the rule would only come back to an end, it need not come back.
			if back := &e.g.nodes[call.back]; !back.final || len(back.bytes)+len(back.free)+len(back.calls) > 0 {
				f = e.frame(call.back, f)
				if f.depth > maxStack {
					return nil, errorf(ErrLimit, "", "more than %d rules inside each other", maxStack)
				}
			}
			work = append(work, item{call.rule, f})
		}
		if len(n.bytes) > 0 {
			s.items = append(s.items, it)
		}
	}
	if len(s.items) > maxItems {
		return nil, errorf(ErrLimit, "", "more than %d places at once", maxItems)
	}
	number := func(f *frame) uint32 {
		if f == nil {
			return 0
		}
		return f.number
	}
	slices.SortFunc(s.items, func(a, b item) int {
		if a.node != b.node {
			return int(a.node) - int(b.node)
		}
		return int(int64(number(a.frame)) - int64(number(b.frame)))
	})
	key := make([]byte, 0, 8*len(s.items)+1)
	for _, it := range s.items {
		key = binary.LittleEndian.AppendUint32(key, uint32(it.node))
		key = binary.LittleEndian.AppendUint32(key, number(it.frame))
	}
	if s.end {
		key = append(key, 1)
	}
	if old := e.states[string(key)]; old != nil {
		return old, nil
	}
	e.states[string(key)] = s
	return s, nil
}

// step returns the state after a byte, nil if there is none.
func (e *Engine) step(s *state, b byte) (*state, error) {
	if s.known[b/64]>>(b%64)&1 != 0 {
		return s.next[b], nil
	}
	var work []item
	for _, it := range s.items {
		for _, edge := range e.g.nodes[it.node].bytes {
			if edge.lo <= b && b <= edge.hi {
				work = append(work, item{edge.to, it.frame})
			}
		}
	}
	var next *state
	if len(work) > 0 {
		var err error
		if next, err = e.closure(work); err != nil {
			return nil, err
		}
	}
	s.next[b] = next
	s.known[b/64] |= 1 << (b % 64)
	return next, nil
}

// Mask returns the tokens that may follow. The caller must not change it.
func (m Matcher) Mask() (Mask, error) {
	m.e.mu.Lock()
	defer m.e.mu.Unlock()
	asked := m.s
	if asked.mask == nil {
		m.e.bound(&m)
		mask, err := m.e.maskOf(m.s)
		if err != nil {
			return nil, err
		}
		asked.mask = mask
	}
	return asked.mask, nil
}

// maskOf joins what the places of a state allow by themselves and what the rules around them allow after their ends.
func (e *Engine) maskOf(s *state) (Mask, error) {
	mask := e.v.mask()
	for i, it := range s.items {
		l, err := e.local(it.node)
		if err != nil {
			return nil, err
		}
		if i == 0 || s.items[i-1].node != it.node {
			for w, bits := range l.mask {
				mask[w] |= bits
			}
		}
		if it.frame == nil || len(l.ends) == 0 {
			continue
		}
		outer, err := e.closure([]item{{it.frame.back, it.frame.parent}})
		if err != nil {
			return nil, err
		}
		for _, n := range l.ends {
			if err := e.walk(outer, n+1, e.v.after[n], mask, nil); err != nil {
				return nil, err
			}
		}
	}
	return mask, nil
}

// walk marks the tokens among nodes from to end of the tree, which are below one node, that a state allows. onEnd is told of
// the nodes at which the state may end.
func (e *Engine) walk(s *state, from, end int32, mask Mask, onEnd func(int32)) error {
	if from >= end {
		return nil
	}
	v := e.v
	top := v.depth[from]
	path := make([]*state, v.deepst+1)
	path[0] = s
	for n := from; n < end; {
		d := v.depth[n] - top
		at, b := path[d], v.bytes[n]
		next := at.next[b]
		if next == nil {
			if at.known[b/64]>>(b%64)&1 == 0 {
				var err error
				if next, err = e.step(at, b); err != nil {
					return err
				}
			}
			if next == nil {
				n = v.after[n]
				continue
			}
		}
		for _, id := range v.ids[v.ends[n]:v.ends[n+1]] {
			mask.set(id)
		}
		if next.end && onEnd != nil {
			onEnd(n)
		}
		path[d+1] = next
		n++
	}
	return nil
}

// local returns what tokens may do at a node of the grammar.
func (e *Engine) local(n int32) (*local, error) {
	if l := e.locals[n]; l != nil {
		return l, nil
	}
	s, err := e.closure([]item{{n, nil}})
	if err != nil {
		return nil, err
	}
	l := &local{mask: e.v.mask()}
	err = e.walk(s, 0, int32(len(e.v.bytes)), l.mask, func(n int32) {
		if e.v.after[n] > n+1 {
			l.ends = append(l.ends, n)
		}
	})
	if err != nil {
		return nil, err
	}
	if len(e.locals) >= maxMasks || e.locals == nil {
		e.locals = make(map[int32]*local)
	}
	e.locals[n] = l
	return l, nil
}
