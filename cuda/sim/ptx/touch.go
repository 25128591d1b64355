package ptx

import "strings"

// Groups are a thread's groups of wgmma: how many were closed, how many of those are known to be done, and its
// fences.
type groups struct {
	closed, done, fences uint32
}

// A mark is what is known of a register that products of warpgroups use.
type mark struct {
	// group is that of the last product, 0 is none; shape its columns where it summed up in it; under the fences
	// that there were.
	group, shape, under uint32
	// touched is one more than the fences that there were when an instruction used it.
	touched uint32
}

// A touch is how an instruction uses such registers: it moves one, or does something else with some.
type touch struct {
	to, from int32
	moves    bool
	others   []int32
}

// watch finds the registers of products, and those that are moved from and to them, and which instructions use
// them. A move takes along what is known of a register, as compilers give several names to one.
func (c *compiler) watch() {
	if len(c.groups) == 0 {
		return
	}
	c.marked = make([]int32, c.slots)
	add := func(slot int) bool {
		if c.marked[slot] != 0 {
			return false
		}
		c.marks++
		c.marked[slot] = int32(c.marks)
		return true
	}
	for _, g := range c.groups {
		for _, r := range g.d {
			add(r.slot)
		}
		for _, slot := range g.a {
			add(slot)
		}
	}
	for more := true; more; {
		more = false
		for i := range c.used {
			if u := &c.used[i]; u.moves && (c.marked[u.slots[0]] != 0) != (c.marked[u.slots[1]] != 0) {
				more = true
				add(u.slots[0])
				add(u.slots[1])
			}
		}
	}
	for _, g := range c.groups {
		for _, r := range g.d {
			g.registers = append(g.registers, c.marked[r.slot]-1)
		}
		for _, slot := range g.a {
			g.registers = append(g.registers, c.marked[slot]-1)
		}
	}
	for i := range c.used {
		u, x := &c.used[i], &touch{}
		for _, slot := range u.slots {
			if c.marked[slot] != 0 {
				x.others = append(x.others, c.marked[slot]-1)
			}
		}
		if len(x.others) == 0 {
			continue
		}
		if x.moves = u.moves; x.moves {
			x.to, x.from = x.others[0], x.others[len(x.others)-1]
		}
		c.code[i].touch = x
	}
}

// A usage is what an instruction has of registers.
type usage struct {
	slots []int
	moves bool
}

// usage finds the registers of a statement's operands. Those of products are not among them.
func (c *compiler) usage(s *statement) (u usage) {
	if s == nil || strings.HasPrefix(s.op, "wgmma") {
		return u
	}
	var walk func(o *operand)
	walk = func(o *operand) {
		if o.kind == isName {
			what, _ := c.lookup(o.name)
			if r, is := what.(register); is {
				u.slots = append(u.slots, r.slot)
			}
		}
		for i := range o.args {
			walk(&o.args[i])
		}
	}
	for i := range s.args {
		walk(&s.args[i])
	}
	u.moves = strings.HasPrefix(s.op, "mov.") && len(u.slots) == 2 && len(s.args) == 2 && s.args[0].kind == isName &&
		s.args[1].kind == isName
	return u
}

// touches has an instruction use registers of products, and reports whether it may.
func (t *thread) touches(x *touch) bool {
	if x.moves {
		t.marks[x.to] = t.marks[x.from]
		return true
	}
	for _, i := range x.others {
		m := &t.marks[i]
		if m.group > t.groups.done {
			t.fault(Race, "a register is used that products of the warpgroup use, and nobody waited for their group %d", m.group)
			return false
		}
		m.touched = t.groups.fences + 1
	}
	return true
}

// claim has a product use its registers, and reports whether it may.
func (t *thread) claim(g *groupProduct) bool {
	if t.groups.fences == 0 {
		t.fault(Race, "a product of a warpgroup without a wgmma.fence before it")
		return false
	}
	for i, at := range g.registers {
		m, shape := &t.marks[at], uint32(0)
		if i < len(g.d) {
			shape = g.shape
		}
		busy := m.group > t.groups.done
		switch {
		case m.touched == t.groups.fences+1:
			t.fault(Race, "a register of a product of the warpgroup was used, and no wgmma.fence lies between")
			return false
		case busy && m.shape != shape && (shape == 0 || m.under == t.groups.fences):
			t.fault(Race, "a register of a product of the warpgroup is another's, in another way")
			return false
		}
		m.group, m.shape, m.under = t.groups.closed+1, shape, t.groups.fences
	}
	return true
}
