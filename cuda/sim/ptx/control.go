package ptx

import "slices"

func buildBranch(c *compiler, f *form, s *statement) action {
	f.take("uni")
	to := c.args(s, 1)[0]
	if to.kind != isName {
		c.fail("a label must be here")
	}
	l := c.label(to.name)
	return func(t *thread) { t.pc = l.pc }
}

func buildLeave(c *compiler, f *form, s *statement) action {
	f.take("uni")
	return (*thread).leave
}

func buildExit(*compiler, *form, *statement) action {
	return func(t *thread) { t.state = exited }
}

func buildTrap(*compiler, *form, *statement) action {
	return func(t *thread) { t.fault(Trap, "the kernel gives up") }
}

// A fence orders what barriers do not; as threads here see each other's writes at once, and what is not ordered by a
// barrier is a race all the same, it does nothing; but fences of proxies are kept.
func buildFence(c *compiler, f *form, s *statement) action {
	proxy, global, barriers := f.take("proxy") && f.take("async"), f.take("global"), f.take("mbarrier_init")
	clear(f.flags)
	switch {
	case proxy && global:
		return nil // what is not copied from shared memory needs none
	case barriers:
		return func(t *thread) {
			for _, m := range t.initialised() {
				m.fenced = true
			}
		}
	case proxy:
		return func(t *thread) {
			if t.b.async != nil {
				t.fence()
			}
		}
	}
	return func(*thread) {}
}

// call appends a call: the operands are copied to where the function has its own, and back.
func (c *compiler) call(s *statement, in *called) {
	f := cut(s.op)
	f.take("uni")
	args := s.args
	var results, parameters []operand
	if len(args) > 1 && args[0].kind == isList {
		results, args = args[0].args, args[1:]
	}
	if len(f.flags) > 0 || len(args) == 0 || len(args) > 2 || args[0].kind != isName {
		c.fail("a call of that form is not known")
	}
	name := args[0].name
	if len(args) == 2 {
		if args[1].kind != isList {
			c.fail("a call of that form is not known")
		}
		parameters = args[1].args
	}
	to := c.callee(name)
	in.calls[name] = true
	if len(results) != len(to.results) || len(parameters) != len(to.parameters) {
		c.fail("%s takes %d operands and gives %d", name, len(to.parameters), len(to.results))
	}
	type move struct{ to, from, bytes int }
	pair := func(o operand, v variable, out bool) move {
		what, _ := c.lookup(o.name)
		own, is := what.(variable)
		if o.kind != isName || !is || own.in != inParameter || own.offset < frameBase || own.bytes != v.bytes {
			c.fail("%s: the operand %q is not the function's", name, o.name)
		}
		m := move{int(v.offset - frameBase), int(own.offset - frameBase), v.bytes}
		if out {
			m.to, m.from = m.from, m.to
		}
		return m
	}
	var there, back []move
	for i, o := range parameters {
		there = append(there, pair(o, to.parameters[i], false))
	}
	for i, o := range results {
		back = append(back, pair(o, to.results[i], true))
	}
	copies := func(t *thread, list []move) {
		for _, m := range list {
			copy(t.frame[m.to:m.to+m.bytes], t.frame[m.from:m.from+m.bytes])
		}
	}
	c.emit(func(t *thread) {
		copies(t, there)
		t.returns = append(t.returns, t.pc)
		t.pc = to.at.pc
	}, s)
	c.emit(func(t *thread) { copies(t, back) }, s)
}

// callee returns a function, which is linked in when it is first called.
func (c *compiler) callee(name string) *called {
	if to, ok := c.entries[name]; ok {
		return to
	}
	f, ok := c.m.functions[name]
	if !ok || f.entry {
		c.fail("there is no function %s", name)
	}
	to := &called{f: f, calls: make(map[string]bool)}
	for _, d := range f.parameters {
		to.parameters = append(to.parameters, c.frame(d))
	}
	for _, d := range f.results {
		to.results = append(to.results, c.frame(d))
	}
	c.entries[name] = to
	c.pending = append(c.pending, to)
	return to
}

// leave ends a function, or the thread.
func (t *thread) leave() {
	n := len(t.returns)
	if n == 0 {
		t.state = exited
		return
	}
	t.pc, t.returns = t.returns[n-1], t.returns[:n-1]
}

func buildBarrier(c *compiler, f *form, s *statement) action {
	if f.take("warp") {
		if !f.take("sync") || len(f.flags) > 0 {
			return nil
		}
		return c.together(&exchange{name: s.op, orders: true, run: func([]*thread) {}}, c.src(c.args(s, 1)[0]))
	}
	f.take("cta")
	f.take("aligned")
	if !f.take("sync") || len(f.flags) > 0 || len(f.types) > 0 {
		return nil
	}
	if len(s.args) != 1 {
		c.fail("%s: barriers of some threads only are not known", s.op)
	}
	if s.args[0].kind != isNumber || s.args[0].bits > 15 {
		c.fail("%s: the barrier's number must be a constant up to 15", s.op)
	}
	c.waits = true
	return func(t *thread) { t.state = atBarrier }
}

// An exchange is an instruction that threads of a warp run together.
type exchange struct {
	name string
	// aligned ones are met by all of a warp at one place.
	aligned bool
	// group ones are met by all of a warpgroup.
	group bool
	// orders says that what threads did before is done for the others then.
	orders bool
	run    func(list []*thread)
}

// together makes an action at which the threads of a mask meet. A mask of -1 is all of the warp.
func (c *compiler) together(x *exchange, mask int) action {
	c.waits = true
	return func(t *thread) {
		t.state, t.meets, t.mask = atExchange, x, ^uint32(0)
		if mask < 0 {
			return
		}
		if t.mask = uint32(t.r[mask]); t.mask>>(t.id%warpThreads)&1 == 0 {
			t.fault(Divergence, "%s: the thread is not among those that it waits for, %#x", x.name, t.mask)
		}
	}
}

// A shuffled is what a thread brings to a shuffle.
type shuffled struct {
	value, lane, clamp uint32
}

func buildShuffle(c *compiler, f *form, s *statement) action {
	mode := slices.IndexFunc([]string{"up", "down", "bfly", "idx"}, f.take)
	if mode < 0 || !f.take("sync") || len(f.types) != 1 || f.types[0].bits != 32 {
		return nil
	}
	args := c.args(s, 5)
	to, valid := args[0], register{slot: -1}
	if to.kind == isPair {
		to, valid = args[0].args[0], c.dst(args[0].args[1])
	}
	d, a, b, clamp := c.dst(to).slot, c.src(args[1]), c.src(args[2]), c.src(args[3])
	meet := c.together(&exchange{name: s.op, run: func(list []*thread) { shuffle(list, mode) }}, c.src(args[4]))
	return func(t *thread) {
		t.brings = shuffled{uint32(t.r[a]), uint32(t.r[b]), uint32(t.r[clamp])}
		t.gets = func(x uint32, ok bool) {
			t.r[d] = uint64(x)
			if valid.slot >= 0 {
				t.r[valid.slot] = truth(ok)
			}
		}
		meet(t)
	}
}

// shuffle gives each thread the value of another.
func shuffle(list []*thread, mode int) {
	var byLane [warpThreads]*thread
	for _, t := range list {
		byLane[t.id%warpThreads] = t
	}
	for _, t := range list {
		lane := int32(t.id % warpThreads)
		limits := t.brings.clamp
		segment, clamp, by := int32(limits>>8&31), int32(limits&31), int32(t.brings.lane&31)
		most := lane&segment | clamp&^segment
		from, ok := int32(0), false
		switch mode {
		case 0:
			from = lane - by
			ok = from >= most
		case 1:
			from = lane + by
			ok = from <= most
		case 2:
			from = lane ^ by
			ok = from <= most
		default:
			from = lane&segment | by&^segment
			ok = from <= most
		}
		if !ok {
			from = lane
		}
		other := byLane[from]
		if other == nil {
			t.fault(Divergence, "%s: lane %d is asked for its value and takes no part", t.meets.name, from)
			return
		}
		t.gets(other.brings.value, ok)
	}
}

func buildVote(c *compiler, f *form, s *statement) action {
	mode := slices.IndexFunc([]string{"all", "any", "uni", "ballot"}, f.take)
	if mode < 0 || !f.take("sync") || len(f.types) != 1 {
		return nil
	}
	args := c.args(s, 3)
	d, a := c.dst(args[0]).slot, c.src(args[1])
	meet := c.together(&exchange{name: s.op, run: func(list []*thread) {
		var ballot, all uint32
		for _, t := range list {
			lane := t.id % warpThreads
			all |= 1 << lane
			ballot |= t.brings.value << lane
		}
		for _, t := range list {
			switch mode {
			case 0:
				t.gets(0, ballot == all)
			case 1:
				t.gets(0, ballot != 0)
			case 2:
				t.gets(0, ballot == all || ballot == 0)
			default:
				t.gets(ballot, false)
			}
		}
	}}, c.src(args[2]))
	return func(t *thread) {
		t.brings.value = uint32(t.r[a] & 1)
		t.gets = func(x uint32, ok bool) { t.r[d] = uint64(x) | truth(ok) }
		meet(t)
	}
}

func truth(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}
