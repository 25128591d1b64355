package pager

import (
	"slices"

	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/graph"
)

// leastBorrowed is how many bytes an input or output has that ops use where the caller has it: fewer are copied as fast.
// Tests lower it.
var leastBorrowed int64 = 64 << 10

// A lendable value is an input that ops can read, or an output that the op which makes it can write, where the caller has
// it, on a device that works in the host's memory. Its place in the arena is there all the same, for callers whose memory
// lies otherwise.
type lendable struct {
	value graph.ValueID
	// output is the output's number, −1 for an input, and made the group that makes it.
	output, made int
}

// A use is an operand or a result of an op that is a lendable value, by its number.
type use struct {
	lendable, at int
	out          bool
}

// A loan is a lendable value of one instance in this pass. asked says that the caller was asked for an output, and dst where
// it goes.
type loan struct {
	mem       device.Memory
	on, asked bool
	output    int
	dst       []byte
}

// lendables finds the values of a program that callers can lend, and has no op's turn move the regions of their uses.
func (g *Pager) lendables(p *program) {
	if g.borrower == nil {
		return
	}
	gr := p.plan.Lowered.Graph
	apart := make(map[graph.ValueID]bool) // what waits elsewhere, or is not made once
	for k := range p.plan.Groups {
		for _, s := range slices.Concat(p.plan.Groups[k].SwapIn, p.plan.Groups[k].SwapOut) {
			apart[s.Value] = true
		}
	}
	for i := range gr.Ops {
		if p.ops[i].moved != nil { // what names the blocks of caches that wait in a file is read before the op's turn
			for _, at := range namesBlocks {
				if at < len(gr.Ops[i].In) {
					apart[gr.Ops[i].In[at].Value] = true
				}
			}
		}
	}
	maker := make(map[graph.ValueID]int)
	for k := range p.plan.Groups {
		for i := p.plan.Groups[k].First; i < p.plan.Groups[k].End; i++ {
			for _, id := range gr.Ops[i].Out {
				_, again := maker[id]
				maker[id], apart[id] = k, apart[id] || again || p.ops[i].gather != nil
			}
		}
	}
	number := make(map[graph.ValueID]int)
	add := func(x lendable) {
		if _, twice := number[x.value]; !twice && !apart[x.value] && gr.Values[x.value].Bytes() >= leastBorrowed {
			number[x.value] = len(p.lendable)
			p.lendable = append(p.lendable, x)
		}
	}
	for k := range p.plan.Groups {
		for _, id := range p.plan.Groups[k].Inputs {
			add(lendable{id, -1, k})
		}
	}
	for i := range gr.Outputs {
		o := gr.Outputs[i].Operand
		k, made := maker[o.Value]
		first, end, err := o.Layout.Span()
		size := int64(gr.Values[o.Value].DType.Size())
		if made && p.skipped == nil && err == nil && first == 0 && end*size == gr.Values[o.Value].Bytes() {
			add(lendable{o.Value, i, k})
		}
	}
	if len(p.lendable) == 0 {
		return
	}
	p.loans, p.uses = make([]loan, len(p.lendable)*p.plan.Instances), make([][]use, len(gr.Ops))
	for i := range gr.Ops {
		for at, o := range gr.Ops[i].In {
			if n, ok := number[o.Value]; ok && o.Value != graph.NoValue {
				p.uses[i], p.ops[i].in[at] = append(p.uses[i], use{n, at, false}), 0
			}
		}
		for at, id := range gr.Ops[i].Out {
			if n, ok := number[id]; ok {
				p.uses[i], p.ops[i].out[at] = append(p.uses[i], use{n, at, true}), 0
			}
		}
	}
}

// loan returns that of an instance's value, nil where it is not lendable or the pass borrows nothing.
func (g *Pager) loan(id graph.ValueID, instance int) *loan {
	if !g.borrows {
		return nil
	}
	p := g.current
	for n := range p.lendable {
		if p.lendable[n].value == id {
			return &p.loans[n*p.plan.Instances+instance]
		}
	}
	return nil
}

// borrow has ops use an input where the caller has it, if it lies as they need it.
func (g *Pager) borrow(id graph.ValueID, instance int, from []byte) bool {
	l := g.loan(id, instance)
	return l != nil && g.lend(l, from)
}

// lent returns where an output goes of which the caller was asked before it was made, and whether it is there already.
func (g *Pager) lent(id graph.ValueID, output, instance int) (dst []byte, asked, there bool) {
	l := g.loan(id, instance)
	if l == nil || !l.asked || l.output != output {
		return nil, false, false
	}
	return l.dst, true, l.on
}

func (g *Pager) lend(l *loan, mem []byte) bool {
	m := g.borrower.Borrow(l.mem, mem)
	if l.on = m != nil; l.on {
		l.mem = m
	}
	return l.on
}

// borrowOutputs has the ops of a group write outputs to where the caller wants them, if that lies as they need it.
func (g *Pager) borrowOutputs(k, instance int, io IO) {
	if !g.borrows {
		return
	}
	for n := range g.current.lendable {
		x := &g.current.lendable[n]
		if x.output < 0 || x.made != k {
			continue
		}
		l := &g.current.loans[n*g.current.plan.Instances+instance]
		l.asked, l.output, l.dst = true, x.output, io.Output(instance, x.output, true)
		if int64(len(l.dst)) == g.current.plan.Lowered.Graph.Values[x.value].Bytes() {
			g.lend(l, l.dst)
		}
	}
}

// turn makes the regions of op i those of an instance.
func (g *Pager) turn(i int, p *prepared, instance int) {
	p.turn(instance)
	if g.current.uses == nil {
		return
	}
	for _, u := range g.current.uses[i] {
		to := p.launch.In
		if u.out {
			to = p.launch.Out
		}
		to[u.at].Region = g.place(g.current.lendable[u.lendable].value, instance)
	}
}

// endBorrowing forgets what was lent.
func (g *Pager) endBorrowing() {
	g.borrows = false
	if g.current == nil {
		return
	}
	for i := range g.current.loans {
		l := &g.current.loans[i]
		if l.on {
			g.borrower.Borrow(l.mem, nil)
		}
		l.on, l.asked, l.dst = false, false, nil
	}
}
