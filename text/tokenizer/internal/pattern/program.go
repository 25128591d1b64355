package pattern

type opcode uint8

const (
	opMatch  opcode = iota
	opFail          // nothing matches
	opClass         // one character of class
	opLoop          // characters of class, from min to max of them; max < 0 is without end
	opSplit         // x, and y if that fails
	opJump          // x
	opAssert        // assert
	opLook          // the program at x matches here, or not; then y
	opBehind        // the program at x matches from min characters before up to here, or not; then y
	opAtomic        // the first match of the program at x; then y
)

type instr struct {
	op     opcode
	assert assertion
	greed  greed
	negate bool
	class  *class
	min    int32
	max    int32
	x, y   int32
	choice int32 // of opSplit: its number
	// What x and y can begin with, for opSplit.
	firstX, firstY first
}

// first is what a match can begin with.
type first struct {
	ascii [2]uint64
	other bool // characters beyond ASCII
	empty bool // it may be empty
}

func (f *first) add(g first) {
	f.ascii[0] |= g.ascii[0]
	f.ascii[1] |= g.ascii[1]
	f.other = f.other || g.other
	f.empty = f.empty || g.empty
}

// can reports whether a match may begin at a place of a text.
func (f *first) can(text string, at int) bool {
	if f.empty {
		return true
	}
	if at >= len(text) {
		return false
	}
	b := text[at]
	if b >= 0x80 {
		return f.other
	}
	return f.ascii[b>>6]>>(b&63)&1 != 0
}

type program struct {
	code    []instr
	choices int
	first   first // of the whole
}

type assembler struct {
	source string
	sets   *sets
	code   []instr
	safe   bool
	err    error
}

// assemble makes the program of a tree. A safe one has no loops but those made of choices.
func assemble(source string, n *node, sets *sets, safe bool) (*program, error) {
	a := &assembler{source: source, sets: sets, safe: safe}
	a.node(n)
	a.emit(instr{op: opMatch})
	if a.err != nil {
		return nil, a.err
	}
	p := &program{code: a.code}
	for i := range p.code {
		if in := &p.code[i]; in.op == opSplit {
			in.choice = int32(p.choices)
			p.choices++
		}
	}
	p.first = p.firsts()
	return p, nil
}

func (a *assembler) refuse(problem string) {
	if a.err == nil {
		a.err = &Error{Pattern: a.source, Problem: problem, Unsupported: true}
	}
}

func (a *assembler) emit(in instr) int32 {
	if len(a.code) >= maxProgram {
		a.refuse("too large a program")
		return 0
	}
	a.code = append(a.code, in)
	return int32(len(a.code) - 1)
}

func (a *assembler) here() int32 { return int32(len(a.code)) }

func (a *assembler) class(s set) *class {
	c, ok := a.sets.class(s)
	if !ok {
		a.refuse("too many sets of characters")
	}
	return c
}

func (a *assembler) node(n *node) {
	if a.err != nil {
		return
	}
	switch n.kind {
	case kSet:
		if len(n.set) == 0 {
			a.emit(instr{op: opFail})
			return
		}
		a.emit(instr{op: opClass, class: a.class(n.set)})
	case kCat:
		for _, s := range n.subs {
			a.node(s)
		}
	case kAlt:
		var ends []int32
		for i, s := range n.subs {
			if i == len(n.subs)-1 {
				a.node(s)
				break
			}
			split := a.emit(instr{op: opSplit})
			a.code[split].x = a.here()
			a.node(s)
			ends = append(ends, a.emit(instr{op: opJump}))
			a.code[split].y = a.here()
		}
		for _, e := range ends {
			a.code[e].x = a.here()
		}
	case kAssert:
		a.emit(instr{op: opAssert, assert: n.assert})
	case kRepeat:
		if n.greed == possessive {
			inner := *n
			inner.greed = greedy
			a.sub(instr{op: opAtomic}, &inner)
			return
		}
		a.repeat(n)
	case kAtomic:
		a.sub(instr{op: opAtomic}, n.subs[0])
	case kLook:
		if !n.behind {
			a.sub(instr{op: opLook, negate: n.negate}, n.subs[0])
			return
		}
		a.behind(n)
	}
}

// sub writes a program of its own for n, and then in, which runs it.
func (a *assembler) sub(in instr, n *node) {
	if in.op == opAtomic && !a.safe && n.kind == kRepeat && n.greed == greedy && n.subs[0].kind == kSet &&
		len(n.subs[0].set) > 0 {
		a.loop(n, possessive)
		return
	}
	over := a.emit(instr{op: opJump})
	in.x = a.here()
	a.node(n)
	a.emit(instr{op: opMatch})
	at := a.emit(in)
	if a.err == nil {
		a.code[over].x = at
		a.code[at].y = at + 1
	}
}

func (a *assembler) loop(n *node, g greed) {
	a.emit(instr{
		op: opLoop, class: a.class(n.subs[0].set), min: int32(n.min), max: int32(n.max), greed: g,
	})
}

func (a *assembler) repeat(n *node) {
	if !a.safe && n.subs[0].kind == kSet && len(n.subs[0].set) > 0 {
		a.loop(n, n.greed)
		return
	}
	for range n.min {
		if a.node(n.subs[0]); a.err != nil {
			return
		}
	}
	split := func() int32 { return a.emit(instr{op: opSplit}) }
	// aim sets where a split goes: into the body at once, or past it.
	aim := func(at, body, past int32) {
		if a.err != nil {
			return
		}
		if a.code[at].x, a.code[at].y = body, past; n.greed == lazy {
			a.code[at].x, a.code[at].y = past, body
		}
	}
	if n.max < 0 {
		at := split()
		a.node(n.subs[0])
		a.emit(instr{op: opJump, x: at})
		aim(at, at+1, a.here())
		return
	}
	var splits []int32
	for range n.max - n.min {
		if a.err != nil {
			return
		}
		splits = append(splits, split())
		a.node(n.subs[0])
	}
	for _, at := range splits {
		aim(at, at+1, a.here())
	}
}

// behind writes a look at what comes before, whose alternatives have fixed lengths.
func (a *assembler) behind(n *node) {
	alts := []*node{n.subs[0]}
	if n.subs[0].kind == kAlt {
		alts = n.subs[0].subs
	}
	var each []*node
	for _, alt := range alts {
		length, ok := width(alt)
		if !ok {
			a.refuse("look-behind of no fixed length")
			return
		}
		each = append(each, &node{kind: kLook, behind: true, subs: []*node{alt}, min: length})
	}
	if len(each) > 1 && n.negate { // none of them: one after the other
		for _, e := range each {
			e.negate = true
			a.one(e)
		}
		return
	}
	if len(each) == 1 {
		each[0].negate = n.negate
		a.one(each[0])
		return
	}
	var ends []int32
	for i, e := range each {
		if i == len(each)-1 {
			a.one(e)
			break
		}
		split := a.emit(instr{op: opSplit})
		a.code[split].x = a.here()
		a.one(e)
		ends = append(ends, a.emit(instr{op: opJump}))
		a.code[split].y = a.here()
	}
	for _, e := range ends {
		a.code[e].x = a.here()
	}
}

func (a *assembler) one(e *node) {
	a.sub(instr{op: opBehind, negate: e.negate, min: int32(e.min)}, e.subs[0])
}

// width is how many characters a node matches, if that is always the same.
func width(n *node) (int, bool) {
	switch n.kind {
	case kSet:
		return 1, true
	case kCat:
		sum := 0
		for _, s := range n.subs {
			w, ok := width(s)
			if !ok {
				return 0, false
			}
			sum += w
		}
		return sum, true
	case kAlt:
		w, ok := width(n.subs[0])
		for _, s := range n.subs[1:] {
			if v, same := width(s); !same || v != w {
				return 0, false
			}
		}
		return w, ok
	case kRepeat:
		w, ok := width(n.subs[0])
		return w * n.min, ok && n.min == n.max
	case kAtomic:
		return width(n.subs[0])
	}
	return 0, true
}

// firsts finds what the program and the branches of its choices can begin with.
func (p *program) firsts() first {
	known := make([]first, len(p.code))
	// Only characters and loops begin a match; from the back, since jumps go forward except to a loop's choice, whose own
	// first is that of its branches.
	for changed, round := true, 0; changed && round < 100; round++ {
		changed = false
		for i := len(p.code) - 1; i >= 0; i-- {
			f := p.firstAt(known, int32(i))
			if f != known[i] {
				known[i] = f
				changed = true
			}
		}
		if round == 99 && changed {
			for i := range known {
				known[i] = first{empty: true}
			}
		}
	}
	for i := range p.code {
		if in := &p.code[i]; in.op == opSplit {
			in.firstX, in.firstY = known[in.x], known[in.y]
		}
	}
	return known[0]
}

func (p *program) firstAt(known []first, i int32) first {
	in := &p.code[i]
	var f first
	switch in.op {
	case opMatch:
		f.empty = true
	case opClass, opLoop:
		f.ascii = in.class.ascii
		f.other = in.class.from[len(in.class.from)-1] >= 0x80
		if in.op == opLoop && in.min == 0 {
			f.add(known[i+1])
		}
	case opSplit:
		f = known[in.x]
		f.add(known[in.y])
	case opJump:
		f = known[in.x]
	case opAssert:
		f = known[i+1]
	case opLook, opBehind:
		f = known[in.y]
	case opAtomic:
		if f = known[in.x]; f.empty {
			f.empty = false
			f.add(known[in.y])
		}
	}
	return f
}
