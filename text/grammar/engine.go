package grammar

import (
	"encoding/binary"
	"slices"
	"sync"
)

// An Engine matches texts against a grammar, by tokens of a vocabulary. What it has learned about states is shared by all
// matchers, which may be used by many goroutines. For 128,000 tokens that comes to 30 MB at most.
type Engine struct {
	g *Grammar
	v *Vocabulary

	mu     sync.Mutex
	states map[string]*state
	frames map[frame]*frame
	count  uint32 // of frames, for their numbers
	masks  int    // of states
	work   int    // places looked at since a call began
	visits int    // nodes of the tree looked at
	costly map[int32]*local
	cheap  map[int32]*local
	start  *state
	marks  []uint32 // by node: the round of closure in which it was seen without a frame
	round  uint32

	preparing sync.Mutex // is taken before mu
	prepared  bool
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
	items []item
	end   bool // the root, or what stands for it, may end here
	next  [256]*state
	known [4]uint64 // for which bytes next is filled
	mask  Mask      // nil: not asked for yet
	// then is the state after any one character of text, nil if there is no such one. It is looked for once.
	then   *state
	looked bool
	// groups are the states after any one byte of a group, where there is one such state; grouped are those that were looked for.
	groups  *[len(byteGroups)]*state
	grouped uint32
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
	e.start, e.masks = nil, 0
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
	e.work = 0
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
		if i%maxTokenBytes == maxTokenBytes-1 {
			at := Matcher{m.e, s}
			m.e.bound(&at)
			s = at.s
		}
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

// bound begins a call. It forgets all states once there are many; the matcher's own is made anew.
func (e *Engine) bound(m *Matcher) {
	e.work = 0
	if len(e.states) < maxStates && len(e.frames) < 8*maxStates && e.masks < maxMasks {
		return
	}
	e.forget()
	mask := m.s.mask
	m.s = e.fresh(m.s)
	m.s.mask = mask
}

// fresh returns a state of before forget as one of now.
func (e *Engine) fresh(s *state) *state {
	fresh := &state{end: s.end}
	for _, it := range s.items {
		fresh.items = append(fresh.items, item{it.node, e.again(it.frame)})
	}
	return fresh
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
		if e.work++; e.work > maxWork {
			return nil, errorf(ErrLimit, "", "more than %d places to look at: the grammar is too ambiguous", maxWork)
		}
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
	lo, hi := byte(0), byte(255) // bytes around b that lead to the same
	for _, it := range s.items {
		for _, edge := range e.g.nodes[it.node].bytes {
			switch {
			case edge.lo > b:
				hi = min(hi, edge.lo-1)
			case edge.hi < b:
				lo = max(lo, edge.hi+1)
			default:
				lo, hi = max(lo, edge.lo), min(hi, edge.hi)
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
	for c := int(lo); c <= int(hi); c++ {
		s.next[c] = next
		s.known[c/64] |= 1 << (c % 64)
	}
	return next, nil
}

// afterText returns the one state to which every character of text leads, nil if they lead to several or to none. Whether the
// rule may end there does not matter: what follows its end is asked only for tokens that it does not take itself.
func (e *Engine) afterText(s *state) (*state, error) {
	then, err := e.step(s, 'a')
	if err != nil || then == nil {
		return nil, err
	}
	for b := range rune(0x80) {
		if isText(b) {
			if next, err := e.step(s, byte(b)); err != nil || next != then {
				return nil, err
			}
		}
	}
	// What bytes of a longer character may follow each other.
	for _, lead := range []struct {
		lo, hi, from, to byte
		more             int
	}{
		{0xc2, 0xdf, 0x80, 0xbf, 1},
		{0xe0, 0xe0, 0xa0, 0xbf, 2}, {0xe1, 0xec, 0x80, 0xbf, 2}, {0xed, 0xed, 0x80, 0x9f, 2},
		{0xee, 0xef, 0x80, 0xbf, 2},
		{0xf0, 0xf0, 0x90, 0xbf, 3}, {0xf1, 0xf3, 0x80, 0xbf, 3}, {0xf4, 0xf4, 0x80, 0x8f, 3},
	} {
		var last *state
		for b := lead.lo; b <= lead.hi; b++ {
			next, err := e.step(s, b)
			if err != nil || next == nil {
				return nil, err
			}
			if next == last {
				continue
			}
			last = next
			if ok, err := e.allContinue(next, lead.from, lead.to, lead.more, then); err != nil || !ok {
				return nil, err
			}
		}
	}
	return then, nil
}

// allContinue reports whether all ways through the rest of a character lead to a state.
func (e *Engine) allContinue(s *state, from, to byte, more int, then *state) (bool, error) {
	var last *state
	for b := from; b <= to; b++ {
		next, err := e.step(s, b)
		if err != nil || next == nil || more == 1 && next != then {
			return false, err
		}
		if more == 1 || next == last {
			continue
		}
		last = next
		if ok, err := e.allContinue(next, 0x80, 0xbf, more-1, then); err != nil || !ok {
			return false, err
		}
	}
	return true, nil
}

// textRoom returns for how many characters of text a state has room, up to what is wanted.
func (e *Engine) textRoom(s *state, wanted int16) (int16, error) {
	room := int16(0)
	for at := s; room < wanted; room++ {
		if !at.looked {
			then, err := e.afterText(at)
			if err != nil {
				return 0, err
			}
			at.then, at.looked = then, true
		}
		if at.then == nil {
			break
		}
		if at.then == at {
			return wanted, nil
		}
		at = at.then
	}
	return room, nil
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
		m.e.masks++
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

// bulk is how many nodes of the tree are worth asking whether all of them are text.
const bulk = 8

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
	plain := false // tokens that are text are done with
	if from == 0 && int(end) == len(v.bytes) {
		var err error
		if plain, err = e.markText(s, mask, onEnd != nil); err != nil {
			return err
		}
	}
	for n := from; n < end; {
		if plain && v.plain[n] {
			n = v.after[n]
			continue
		}
		e.visits++
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
		if v.after[n]-n > bulk {
			all, err := e.takesAll(next, n)
			if err != nil {
				return err
			}
			if all {
				for _, id := range v.ids[v.ends[n+1]:v.ends[v.after[n]]] {
					mask.set(id)
				}
				n = v.after[n]
				continue
			}
		}
		path[d+1] = next
		n++
	}
	return nil
}

// markText marks all tokens that are text where a state has room for so many characters of any text and for no more, or for
// any number, and reports whether it does. Where somebody wants to know the ends of the rule, there may be none before that.
func (e *Engine) markText(s *state, mask Mask, ends bool) (bool, error) {
	const most = 255
	room, err := e.textRoom(s, most)
	if err != nil || room == 0 {
		return false, err
	}
	if room < most {
		at := s
		for range room {
			if at = at.then; ends && at.end {
				return false, nil
			}
		}
		for b := range 256 {
			if b >= 0x80 || isText(rune(b)) {
				if next, err := e.step(at, byte(b)); err != nil || next != nil {
					return false, err
				}
			}
		}
	}
	for i, id := range e.v.ids {
		if c := int16(e.v.chars[i]); c > 0 && c <= room {
			mask.set(id)
		}
	}
	return true, nil
}

// takesAll reports whether a state is seen to allow all that is below a node of the tree: nothing but text where any text may
// follow, or bytes of groups that are all allowed.
func (e *Engine) takesAll(s *state, n int32) (bool, error) {
	if tall := int16(e.v.tall[n]); tall > 1 {
		if room, err := e.textRoom(s, tall-1); err != nil || room >= tall-1 {
			return err == nil, err
		}
	}
	return e.takes(s, e.v.below[n], int(e.v.high[n]))
}

// local returns what tokens may do at a node of the grammar.
func (e *Engine) local(n int32) (*local, error) {
	if l := e.costly[n]; l != nil {
		return l, nil
	}
	if l := e.cheap[n]; l != nil {
		return l, nil
	}
	s, err := e.closure([]item{{n, nil}})
	if err != nil {
		return nil, err
	}
	before := e.visits
	l := &local{mask: e.v.mask()}
	err = e.walk(s, 0, int32(len(e.v.bytes)), l.mask, func(n int32) {
		if e.v.after[n] > n+1 {
			l.ends = append(l.ends, n)
		}
	})
	if err != nil {
		return nil, err
	}
	e.keep(n, l, e.visits-before)
	return l, nil
}
