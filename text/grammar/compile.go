package grammar

import "unicode/utf8"

// A compiler makes an automaton of rules. A rule that does not contain itself is copied to where it is named, as long as it is
// small, so that matching keeps a stack only for what is recursive.
type compiler struct {
	set    *ruleSet
	nodes  []node
	size   []int   // nodes of a rule with all that is copied into it, inlineNodes+1 for more
	starts []int32 // first node of a rule that is called, -1 before there is one
	todo   []int
	// encoded are the sequences of bytes of classes, by their first range: a class that is repeated is one.
	encoded map[*runeRange][][]byteRange
}

func compile(set *ruleSet) (*Grammar, error) {
	if err := leftRecursion(set); err != nil {
		return nil, err
	}
	c := &compiler{set: set, size: make([]int, len(set.rules)), starts: make([]int32, len(set.rules)),
		encoded: make(map[*runeRange][][]byteRange)}
	for i := range c.starts {
		c.starts[i] = -1
	}
	c.measureAll()
	if _, err := c.called(set.root); err != nil {
		return nil, err
	}
	for len(c.todo) > 0 {
		r := c.todo[len(c.todo)-1]
		c.todo = c.todo[:len(c.todo)-1]
		end, err := c.node()
		if err != nil {
			return nil, err
		}
		c.nodes[end].final = true
		if err := c.build(c.set.rules[r], c.starts[r], end); err != nil {
			return nil, err
		}
	}
	g := &Grammar{nodes: c.nodes, start: c.starts[set.root]}
	if !g.prune() {
		return nil, errorf(ErrNothing, "", "every way through it leads nowhere")
	}
	g.settle()
	return g, nil
}

// measureAll finds the size of every rule; a rule within itself is too large to copy.
func (c *compiler) measureAll() {
	const open = -1
	var measure func(t term) int
	var rule func(r int) int
	measure = func(t term) int {
		n := 1
		switch t := t.(type) {
		case literal:
			n = max(1, len(t))
		case class:
			n = max(1, 4*len(t))
		case sequence:
			for _, e := range t {
				n = min(n+measure(e), inlineNodes+1)
			}
		case choice:
			for _, e := range t {
				n = min(n+measure(e), inlineNodes+1)
			}
		case repeat:
			n = min(2+measure(t.of)*max(t.min, t.max, 1), inlineNodes+1)
		case reference:
			n = rule(int(t))
		}
		return n
	}
	rule = func(r int) int {
		switch {
		case c.size[r] == open:
			return inlineNodes + 1
		case c.size[r] > 0:
			return c.size[r]
		}
		c.size[r] = open
		n := measure(c.set.rules[r])
		c.size[r] = n
		return n
	}
	for r := range c.set.rules {
		rule(r)
	}
}

// references calls f for every rule that a term names.
func references(t term, f func(int)) {
	switch t := t.(type) {
	case sequence:
		for _, e := range t {
			references(e, f)
		}
	case choice:
		for _, e := range t {
			references(e, f)
		}
	case repeat:
		references(t.of, f)
	case reference:
		f(int(t))
	}
}

// components calls f for each strongly connected component of a graph.
func components(edges [][]int, f func(members []int)) {
	index := make([]int, len(edges))
	low := make([]int, len(edges))
	onStack := make([]bool, len(edges))
	var stack []int
	count := 0
	type frame struct{ v, next int }
	for root := range edges {
		if index[root] > 0 {
			continue
		}
		work := []frame{{root, 0}}
		for len(work) > 0 {
			w := &work[len(work)-1]
			if w.next == 0 {
				count++
				index[w.v], low[w.v] = count, count
				stack = append(stack, w.v)
				onStack[w.v] = true
			}
			if w.next < len(edges[w.v]) {
				to := edges[w.v][w.next]
				w.next++
				if index[to] == 0 {
					work = append(work, frame{to, 0})
				} else if onStack[to] {
					low[w.v] = min(low[w.v], index[to])
				}
				continue
			}
			v := w.v
			work = work[:len(work)-1]
			if len(work) > 0 {
				up := work[len(work)-1].v
				low[up] = min(low[up], low[v])
			}
			if low[v] == index[v] {
				i := len(stack) - 1
				for stack[i] != v {
					i--
				}
				for _, m := range stack[i:] {
					onStack[m] = false
				}
				f(stack[i:])
				stack = stack[:i]
			}
		}
	}
}

// nullable says of each rule whether it may take no character.
type nullable []bool

// empty reports whether a term may take no character, as far as is known of rules.
func (n nullable) empty(t term) bool {
	switch t := t.(type) {
	case literal:
		return t == ""
	case sequence:
		for _, e := range t {
			if !n.empty(e) {
				return false
			}
		}
		return true
	case choice:
		for _, e := range t {
			if n.empty(e) {
				return true
			}
		}
	case repeat:
		return t.min == 0 || n.empty(t.of)
	case reference:
		return n[t]
	}
	return false
}

// nullableRules finds which rules may take no character.
func nullableRules(set *ruleSet) nullable {
	known := make(nullable, len(set.rules))
	users := make([][]int, len(set.rules)) // who has to look again once a rule may be empty
	var work []int
	for r, t := range set.rules {
		references(t, func(to int) {
			if n := len(users[to]); n == 0 || users[to][n-1] != r {
				users[to] = append(users[to], r)
			}
		})
		work = append(work, r)
	}
	for len(work) > 0 {
		r := work[len(work)-1]
		work = work[:len(work)-1]
		if !known[r] && known.empty(set.rules[r]) {
			known[r] = true
			work = append(work, users[r]...)
		}
	}
	return known
}

// leftRecursion refuses rules that name themselves before they take a character: they would be entered without end.
func leftRecursion(set *ruleSet) error {
	rules := nullableRules(set)
	edges := make([][]int, len(set.rules))
	var left func(r int, t term)
	left = func(r int, t term) {
		switch t := t.(type) {
		case sequence:
			for _, e := range t {
				left(r, e)
				if !rules.empty(e) {
					return
				}
			}
		case choice:
			for _, e := range t {
				left(r, e)
			}
		case repeat:
			left(r, t.of)
		case reference:
			edges[r] = append(edges[r], int(t))
		}
	}
	var bad []int
	for r, t := range set.rules {
		left(r, t)
		for _, to := range edges[r] {
			if to == r {
				bad = append(bad, r)
			}
		}
	}
	components(edges, func(members []int) {
		if len(members) > 1 {
			bad = append(bad, members...)
		}
	})
	if len(bad) > 0 {
		return errorf(ErrUnsupported, "", "left recursion: the rule %q begins with itself", set.names[bad[0]])
	}
	return nil
}

func (c *compiler) node() (int32, error) {
	if len(c.nodes) >= maxNodes {
		return 0, errorf(ErrLimit, "", "an automaton of more than %d nodes", maxNodes)
	}
	c.nodes = append(c.nodes, node{})
	return int32(len(c.nodes) - 1), nil
}

// called returns the first node of a rule, which is built once.
func (c *compiler) called(r int) (int32, error) {
	if c.starts[r] < 0 {
		n, err := c.node()
		if err != nil {
			return 0, err
		}
		c.starts[r] = n
		c.todo = append(c.todo, r)
	}
	return c.starts[r], nil
}

func (c *compiler) free(from, to int32) {
	c.nodes[from].free = append(c.nodes[from].free, to)
}

// build adds a term between two nodes.
func (c *compiler) build(t term, from, to int32) error {
	switch t := t.(type) {
	case literal:
		for i := range len(t) {
			next := to
			if i < len(t)-1 {
				var err error
				if next, err = c.node(); err != nil {
					return err
				}
			}
			c.nodes[from].bytes = append(c.nodes[from].bytes, byteEdge{t[i], t[i], next})
			c.nodes[from].partial = c.nodes[from].partial || t[i] >= utf8.RuneSelf
			from = next
		}
		if t == "" {
			c.free(from, to)
		}
	case class:
		return c.class(t, from, to)
	case sequence:
		for i, e := range t {
			next := to
			if i < len(t)-1 {
				var err error
				if next, err = c.node(); err != nil {
					return err
				}
			}
			if err := c.build(e, from, next); err != nil {
				return err
			}
			from = next
		}
		if len(t) == 0 {
			c.free(from, to)
		}
	case choice:
		for _, e := range t {
			// A node of its own, so that a loop in one alternative does not lead into another.
			first, err := c.node()
			if err != nil {
				return err
			}
			c.free(from, first)
			if err := c.build(e, first, to); err != nil {
				return err
			}
		}
	case repeat:
		return c.repeat(t, from, to)
	case reference:
		r := int(t)
		if c.size[r] <= inlineNodes && len(c.nodes) < maxNodes/2 {
			return c.build(c.set.rules[r], from, to)
		}
		start, err := c.called(r)
		if err != nil {
			return err
		}
		c.nodes[from].calls = append(c.nodes[from].calls, callEdge{start, to})
	}
	return nil
}

func (c *compiler) class(t class, from, to int32) error {
	// Sequences with the same bytes at their end share nodes, or [^"] would take hundreds.
	type tail struct {
		r  byteRange
		to int32
	}
	shared := make(map[tail]int32)
	if t.wide() {
		c.nodes[from].wide = append(c.nodes[from].wide, to)
	} else if len(t) > 0 && t[len(t)-1].hi >= utf8.RuneSelf {
		c.nodes[from].partial = true
	}
	if len(t) == 0 {
		return nil
	}
	all, ok := c.encoded[&t[0]]
	if !ok {
		if err := t.encoded(func(seq []byteRange) error {
			all = append(all, seq)
			return nil
		}); err != nil {
			return err
		}
		c.encoded[&t[0]] = all
	}
	for _, seq := range all {
		end := to
		for i := len(seq) - 1; i > 0; i-- {
			key := tail{seq[i], end}
			n, ok := shared[key]
			if !ok {
				var err error
				if n, err = c.node(); err != nil {
					return err
				}
				shared[key] = n
				c.nodes[n].partial = true
				c.nodes[n].bytes = append(c.nodes[n].bytes, byteEdge{seq[i].lo, seq[i].hi, end})
			}
			end = n
		}
		c.nodes[from].bytes = append(c.nodes[from].bytes, byteEdge{seq[0].lo, seq[0].hi, end})
	}
	return nil
}

func (c *compiler) repeat(t repeat, from, to int32) error {
	one := func() error {
		next, err := c.node()
		if err == nil {
			err = c.build(t.of, from, next)
		}
		from = next
		return err
	}
	for range t.min {
		if err := one(); err != nil {
			return err
		}
	}
	if t.max < 0 {
		// A node that nothing else leads to, or what comes before could be repeated too.
		loop, err := c.node()
		if err != nil {
			return err
		}
		c.free(from, loop)
		c.free(loop, to)
		return c.build(t.of, loop, loop)
	}
	for range t.max - t.min {
		c.free(from, to)
		if err := one(); err != nil {
			return err
		}
	}
	c.free(from, to)
	return nil
}

// prune removes every edge after which no text ends, and reports whether any text is left.
func (g *Grammar) prune() bool {
	// Backwards from the ends: a node leads somewhere once one of its edges does. A call waits for its rule and for where it
	// comes back to.
	type waiting struct{ node, other int32 } // other -1: for nothing else
	before := make([][]waiting, len(g.nodes))
	good := make([]bool, len(g.nodes))
	var work []int32
	reach := func(n int32) {
		if !good[n] {
			good[n] = true
			work = append(work, n)
		}
	}
	for i := range g.nodes {
		n := int32(i)
		for _, e := range g.nodes[i].bytes {
			before[e.to] = append(before[e.to], waiting{n, -1})
		}
		for _, to := range g.nodes[i].free {
			before[to] = append(before[to], waiting{n, -1})
		}
		for _, e := range g.nodes[i].calls {
			before[e.rule] = append(before[e.rule], waiting{n, e.back})
			before[e.back] = append(before[e.back], waiting{n, e.rule})
		}
		if g.nodes[i].final {
			reach(n)
		}
	}
	for len(work) > 0 {
		n := work[len(work)-1]
		work = work[:len(work)-1]
		for _, w := range before[n] {
			if w.other < 0 || good[w.other] {
				reach(w.node)
			}
		}
	}
	for i := range g.nodes {
		n := &g.nodes[i]
		bytes, free, calls, wide := n.bytes[:0], n.free[:0], n.calls[:0], n.wide[:0]
		for _, e := range n.bytes {
			if good[e.to] {
				bytes = append(bytes, e)
			}
		}
		for _, to := range n.free {
			if good[to] {
				free = append(free, to)
			}
		}
		for _, e := range n.calls {
			if good[e.rule] && good[e.back] {
				calls = append(calls, e)
			}
		}
		for _, to := range n.wide {
			if good[to] {
				wide = append(wide, to)
			}
		}
		n.bytes, n.free, n.calls, n.wide = bytes, free, calls, wide
	}
	return good[g.start]
}
