package grammar

import (
	"encoding/binary"
	"slices"
	"sync"
	"sync/atomic"
)

// An Engine matches texts against a grammar, by tokens of a vocabulary. What it has learned about states is shared by all
// matchers, which may be used by many goroutines. [Vocabulary.Bytes] has what that comes to at most.
type Engine struct {
	g *Grammar
	v *Vocabulary

	mu      *sync.Mutex // of all engines of the vocabulary
	holding *holding
	states  map[string]*state
	frames  map[frame]*frame
	count   uint32 // of frames, for their numbers
	locals  map[localKey]*local
	masks   int // of states and locals
	follow  int // nodes of the tree in locals
	held    int // places of states
	work    int // places looked at since a call began
	visits  int // nodes of the tree looked at, and
	places  int // places in the grammar, ever
	start   *state
	marks   []uint32 // by node: the round of closure in which it was seen without a frame
	round   uint32

	// Memory that is used again.
	path    []pathStep
	ends    []int32
	chain   []*state
	reached []*state

	bulky   int32 // the constant, but for tests
	leads   [][]item
	leadTo  []item
	grouped []bool
	stack   []item
	seen    []item
	items   []item
	key     []byte

	preparing sync.Mutex // is taken before mu
	prepared  atomic.Bool
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
	end   bool     // the root, or what stands for it, may end here
	next  []*state // by class of bytes: nil where it is not known yet, nowhere where there is none
	run   *run     // nil: not looked for yet
	mask  Mask     // nil: not asked for yet
}

// nowhere stands for no state.
var nowhere = &state{}

// NewEngine returns an engine. It keeps states and masks that it found, bounded in number.
func NewEngine(g *Grammar, v *Vocabulary) *Engine {
	e := &Engine{g: g, v: v, mu: &v.learned.mu, marks: make([]uint32, len(g.nodes)), bulky: bulky}
	v.learned.open(e)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.forget()
	return e
}

// forget gives up what was found. Matchers stay valid: each holds its own state, without what follows from it.
func (e *Engine) forget() {
	for _, s := range e.states {
		clear(s.next)
		s.run, s.mask = nil, nil
	}
	e.hold(-e.holding.bytes)
	e.prepared.Store(false)
	e.states = make(map[string]*state)
	e.frames = make(map[frame]*frame)
	e.locals = make(map[localKey]*local)
	e.start, e.masks, e.follow, e.held = nil, 0, 0, 0
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
		next, err := m.e.step(s, m.e.g.classOf[b])
		if err != nil {
			return m, err
		}
		if next == nowhere {
			return m, errorf(ErrRejected, "", "byte %d of %q", i, text)
		}
		s = next
	}
	return Matcher{m.e, s}, nil
}

// bound begins a call. It forgets all states once there are many; the matcher's own is made anew.
func (e *Engine) bound(m *Matcher) {
	e.work = 0
	if e.v.learned.use(e); !e.full() {
		return
	}
	mask := m.s.mask
	e.forget()
	m.s = e.fresh(m.s)
	m.s.mask = mask
}

// full reports whether all states are to be forgotten.
func (e *Engine) full() bool {
	return len(e.states) >= maxStates || len(e.frames) >= 4*maxStates || e.held >= maxHeld || e.masks >= maxMasks || e.follow >= maxFollow ||
		e.v.learned.held > e.v.learned.most
}

// fresh returns a state of before forget as one of now.
func (e *Engine) fresh(s *state) *state {
	fresh := &state{end: s.end, next: make([]*state, len(e.g.firsts))}
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
		e.hold(frameBytes)
	}
	return f
}

// closure returns the state of items and of all that follow from them without a byte.
func (e *Engine) closure(from []item) (*state, error) {
	e.round++
	work, items, end := append(e.stack[:0], from...), e.items[:0], false
	seen := e.seen[:0]
	var more map[item]bool // of seen, once they are many
	for len(work) > 0 {
		e.places++
		if e.work++; e.work > maxWork {
			return nil, errorf(ErrLimit, "", "more than %d places to look at: the grammar is too ambiguous", maxWork)
		}
		if l := &e.v.learned; l.held > 2*l.most {
			return nil, errorf(ErrLimit, "", "more than %d bytes for what was found: the grammar is too ambiguous", l.most)
		}
		it := work[len(work)-1]
		work = work[:len(work)-1]
		n := &e.g.nodes[it.node]
		if it.frame == nil {
			if e.marks[it.node] == e.round {
				continue
			}
			e.marks[it.node] = e.round
		} else {
			const few = 24
			if more[it] || more == nil && slices.Contains(seen, it) {
				continue
			}
			seen = append(seen, it)
			if more != nil {
				more[it] = true
			} else if len(seen) > few {
				more = make(map[item]bool)
				for _, it := range seen {
					more[it] = true
				}
			}
			if len(seen) > 20*maxItems {
				return nil, errorf(ErrLimit, "", "more than %d places at once", 20*maxItems)
			}
		}
		if n.final {
			if it.frame == nil {
				end = true
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
			items = append(items, it)
		}
	}
	e.stack, e.items, e.seen = work[:0], items[:0], seen[:0]
	if len(items) > maxItems {
		return nil, errorf(ErrLimit, "", "more than %d places at once", maxItems)
	}
	return e.state(items, end), nil
}

// state returns the one state of these items, which it sorts.
func (e *Engine) state(items []item, end bool) *state {
	number := func(f *frame) uint32 {
		if f == nil {
			return 0
		}
		return f.number
	}
	if len(items) > 1 {
		slices.SortFunc(items, func(a, b item) int {
			if a.node != b.node {
				return int(a.node) - int(b.node)
			}
			return int(int64(number(a.frame)) - int64(number(b.frame)))
		})
	}
	key := e.key[:0]
	for _, it := range items {
		key = binary.LittleEndian.AppendUint32(key, uint32(it.node))
		key = binary.LittleEndian.AppendUint32(key, number(it.frame))
	}
	if end {
		key = append(key, 1)
	}
	e.key = key
	if old := e.states[string(key)]; old != nil {
		return old
	}
	s := &state{items: slices.Clone(items), end: end, next: make([]*state, len(e.g.firsts))}
	e.states[string(key)] = s
	e.held += len(items)
	e.hold(stateBytes + placeBytes*int64(len(items)) + 8*int64(len(s.next)))
	return s
}

// step returns the state after a byte of a class, nowhere if there is none.
func (e *Engine) step(s *state, class uint8) (*state, error) {
	if next := s.next[class]; next != nil {
		return next, nil
	}
	b := e.g.firsts[class]
	work := e.leadTo[:0]
	for _, it := range s.items {
		for _, edge := range e.g.nodes[it.node].bytes {
			if edge.lo <= b && b <= edge.hi {
				work = append(work, item{edge.to, it.frame})
			}
		}
	}
	e.leadTo = work
	next := nowhere
	if len(work) > 0 {
		var err error
		if next, err = e.closure(work); err != nil {
			return nil, err
		}
	}
	s.next[class] = next
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
