package graph

import (
	"crypto/sha256"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/optimem/optimem/tensor"
)

// A Range is a run of a graph's ops. It begins with the first op of the module From and ends before the first op of the
// module To; "" is where the graph begins and ends. The zero value is the whole graph.
type Range struct{ From, To string }

// String names the range.
func (r Range) String() string {
	switch {
	case r == Range{}:
		return "the whole model"
	case r.From == "":
		return "up to " + r.To
	case r.To == "":
		return "from " + r.From
	}
	return r.From + " up to " + r.To
}

// A Section is a range of a graph as a graph of its own, which computes the same bits as the range does within the
// whole. Values that ops before it compute are inputs of it; values that ops behind it read are outputs.
type Section struct {
	// Graph has the range's ops. Its inputs are those inputs of the whole that the ops read, and what is computed before.
	// Its outputs are those outputs of the whole that are computed here, and what is read behind.
	Graph *Graph
	// Before are the values that cross its beginning, After those that cross its end, each in the order of the whole
	// graph's values. The After of a section are the Before of the next one.
	Before, After []Handover
	// Digest tells the whole graph from others: its ops, their shapes and order.
	Digest [sha256.Size]byte
}

// A Handover is a value that crosses an end of a section.
type Handover struct {
	// Name is that of the input or output; no input or output of a model begins like it.
	Name  string
	DType tensor.DType
	Shape tensor.Shape
	// Used says, of a value that crosses the beginning, that the section reads it, Made, of one that crosses the end,
	// that it is computed here. What is neither only passes by.
	Used, Made bool
}

// Bytes returns the size of the value.
func (c *Handover) Bytes() int64 {
	return (Value{Name: c.Name, DType: c.DType, Shape: c.Shape}).Bytes()
}

// Section returns a range of the graph as a graph of its own. A graph cannot be divided that has buffers which it
// changes, results whose size depends on data, or, at an end of the range, a value that is computed under a condition.
func (g *Graph) Section(r Range) (*Section, error) {
	from, to, err := g.bounds(r)
	if err != nil {
		return nil, err
	}
	if err := g.divisible(); err != nil {
		return nil, err
	}
	before, err := g.crossing(from)
	if err != nil {
		return nil, err
	}
	after, err := g.crossing(to)
	if err != nil {
		return nil, err
	}
	s := &Section{Digest: g.digest()}
	c := &sectioning{of: g, to: &Graph{}, ids: make(map[ValueID]ValueID)}
	if s.Before, s.After, err = c.build(from, to, before, after); err != nil {
		return nil, err
	}
	s.Graph = c.to
	return s, nil
}

// under reports whether a path is that of a module, or of one within it. A module that is called again counts.
func under(path, module string) bool {
	rest, ok := strings.CutPrefix(path, module)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '@')
}

// first returns the number of the first op of a module.
func (g *Graph) first(module string) (int, error) {
	i := slices.IndexFunc(g.Ops, func(op Op) bool { return under(op.Path, module) })
	if i < 0 {
		return 0, fmt.Errorf("no op belongs to a module %q", module)
	}
	return i, nil
}

// bounds are the numbers of the first op of a range and of the first one behind it.
func (g *Graph) bounds(r Range) (from, to int, err error) {
	to = len(g.Ops)
	if r.From != "" {
		if from, err = g.first(r.From); err != nil {
			return 0, 0, err
		}
	}
	if r.To != "" {
		if to, err = g.first(r.To); err != nil {
			return 0, 0, err
		}
	}
	if from >= to {
		return 0, 0, fmt.Errorf("no op is in the range %v", r)
	}
	return from, to, nil
}

// divisible refuses graphs that cannot be divided anywhere.
func (g *Graph) divisible() error {
	if len(g.Updates) > 0 || g.Finds != g.Leaves ||
		slices.ContainsFunc(g.Values, func(v Value) bool { return v.Role == State }) {
		return fmt.Errorf("%w: a range of a model that changes its buffers", ErrUnsupported)
	}
	for _, o := range g.Outputs {
		if o.Count != "" || o.Counts {
			return fmt.Errorf("%w: a range of a model whose output %s has a size that depends on data",
				ErrUnsupported, o.Name)
		}
	}
	return nil
}

// eachRead calls f for the operands that an op reads, those of its conditions too.
func (op *Op) eachRead(f func(Operand)) {
	for _, o := range op.In {
		if o.Value != NoValue {
			f(o)
		}
	}
	for _, c := range op.Guard {
		f(c.Predicate)
	}
}

// crossing returns the values that ops before a place compute and ops behind it read, in order.
func (g *Graph) crossing(at int) ([]ValueID, error) {
	made := make(map[ValueID]int)
	for i := range g.Ops[:at] {
		for _, id := range g.Ops[i].Out {
			made[id] = i
		}
	}
	var list []ValueID
	var err error
	for i := at; i < len(g.Ops); i++ {
		g.Ops[i].eachRead(func(o Operand) {
			by, ok := made[o.Value]
			if !ok {
				return
			}
			delete(made, o.Value)
			list = append(list, o.Value)
			if len(g.Ops[by].Guard) > 0 {
				err = fmt.Errorf("%w: a range that ends within a condition of %s", ErrUnsupported, g.Ops[by].Path)
			}
		})
	}
	slices.Sort(list)
	return list, err
}

// A sectioning makes a graph of a range of another.
type sectioning struct {
	of, to *Graph
	ids    map[ValueID]ValueID
}

// crossingName is the name of a value that crosses an end.
func crossingName(id ValueID) string { return fmt.Sprintf("#%d", id) }

func (c *sectioning) build(from, to int, before, after []ValueID) (in, out []Handover, err error) {
	g := c.of
	made := make(map[ValueID]bool)
	used := make(map[ValueID]bool)
	for i := from; i < to; i++ {
		op := &g.Ops[i]
		op.eachRead(func(o Operand) {
			if !made[o.Value] {
				used[o.Value] = true
			}
		})
		for _, id := range op.Out {
			made[id] = true
		}
	}
	if err := c.ownCaches(from, to, used); err != nil {
		return nil, nil, err
	}
	// What is not computed by any op goes where the graph ends.
	here := func(o Output) bool { return made[o.Operand.Value] || to == len(g.Ops) && !g.computed(o.Operand.Value) }
	for _, o := range g.Outputs {
		if here(o) && !made[o.Operand.Value] {
			used[o.Operand.Value] = true
		}
	}
	crosses := func(id ValueID) bool { return slices.Contains(before, id) }
	for id := range g.Values {
		id := ValueID(id)
		if !used[id] && !made[id] {
			continue
		}
		v := g.Values[id]
		if crosses(id) {
			v = Value{Name: crossingName(id), Role: Input, DType: v.DType, Shape: v.Shape}
		}
		c.ids[id] = c.to.AddValue(v)
	}
	for _, id := range before {
		in = append(in, Handover{crossingName(id), g.Values[id].DType, g.Values[id].Shape, used[id], false})
		if used[id] {
			c.to.Inputs = append(c.to.Inputs, c.ids[id])
		}
	}
	for _, id := range g.Inputs {
		if used[id] {
			c.to.Inputs = append(c.to.Inputs, c.ids[id])
		}
	}
	for _, op := range g.Ops[from:to] {
		c.to.Ops = append(c.to.Ops, c.moved(op))
	}
	for _, o := range g.Outputs {
		if here(o) {
			o.Operand = c.operand(o.Operand)
			c.to.Outputs = append(c.to.Outputs, o)
		}
	}
	for _, id := range after {
		out = append(out, Handover{crossingName(id), g.Values[id].DType, g.Values[id].Shape, false, made[id]})
		if made[id] {
			c.to.Outputs = append(c.to.Outputs, Output{Name: crossingName(id), Operand: c.to.Whole(c.ids[id])})
		}
	}
	return in, out, nil
}

// computed reports whether an op computes a value.
func (g *Graph) computed(id ValueID) bool { return g.Values[id].Role == Computed }

// ownCaches refuses ranges one of whose caches ops elsewhere have, too.
func (c *sectioning) ownCaches(from, to int, used map[ValueID]bool) error {
	for i := range c.of.Ops {
		if i >= from && i < to {
			continue
		}
		var err error
		c.of.Ops[i].eachRead(func(o Operand) {
			if v := &c.of.Values[o.Value]; v.Role == Cache && used[o.Value] {
				err = fmt.Errorf("%w: a range whose cache %s is %s's, too", ErrUnsupported, v.Name, c.of.Ops[i].Path)
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// moved is an op with its operands and results in the section.
func (c *sectioning) moved(op Op) Op {
	in, out, guard := op.In, op.Out, op.Guard
	op.In, op.Out, op.Guard = nil, nil, nil
	for _, o := range in {
		op.In = append(op.In, c.operand(o))
	}
	for _, id := range out {
		op.Out = append(op.Out, c.ids[id])
	}
	for _, cond := range guard {
		cond.Predicate = c.operand(cond.Predicate)
		op.Guard = append(op.Guard, cond)
	}
	return op
}

func (c *sectioning) operand(o Operand) Operand {
	if o.Value != NoValue {
		o.Value = c.ids[o.Value]
	}
	return o
}

// digest hashes what each op is, what it reads and what it writes, and all constants.
func (g *Graph) digest() (sum [sha256.Size]byte) {
	h := sha256.New()
	for i := range g.Ops {
		op := &g.Ops[i]
		fmt.Fprintf(h, "%q %q %d", op.Kind, op.Path, op.Out)
		writeAttrs(h, op.Attrs)
		for _, o := range op.In {
			fmt.Fprintf(h, " %d %v", o.Value, o.Layout)
		}
		fmt.Fprintln(h)
	}
	for i := range g.Values {
		v := &g.Values[i]
		fmt.Fprintf(h, "%v %v %v %q %d\n", v.Role, v.DType, v.Shape, v.Weight.Name, len(v.Const))
		h.Write(v.Const)
	}
	h.Sum(sum[:0])
	return sum
}

// writeAttrs writes attributes in the order of their names. Those of a device's own, which follow from others, are left
// out.
func writeAttrs(w io.Writer, a Attrs) {
	for _, name := range slices.Sorted(maps.Keys(a)) {
		switch v := a[name].(type) {
		case int, []int, float64, bool, string, tensor.DType:
			fmt.Fprintf(w, " %s=%v", name, v)
		case Program:
			for _, i := range v {
				fmt.Fprintf(w, " %s %v", i.Kind, i.Args)
				writeAttrs(w, i.Attrs)
			}
		}
	}
}

// A Seam is a place where a graph can be divided: before the first op of a module.
type Seam struct {
	Module string
	// Bytes is what crosses there, WeightBytes what ops before it read of weights, each storage once.
	Bytes, WeightBytes int64
}

// Seams returns the places where a graph can be divided, in order: the first op of each module, of those that begin
// with the same op the outermost; and how many bytes of weights all ops read. There are none where the graph cannot be
// divided.
func (g *Graph) Seams() (seams []Seam, weightBytes int64) {
	if g.divisible() != nil {
		return nil, 0
	}
	last := make(map[ValueID]int)
	guarded := make(map[ValueID]bool)
	for i := range g.Ops {
		g.Ops[i].eachRead(func(o Operand) { last[o.Value] = i })
		for _, id := range g.Ops[i].Out {
			guarded[id] = len(g.Ops[i].Guard) > 0
		}
	}
	seen := make(map[string]bool)
	read := make(map[ValueID]bool)
	var live []ValueID
	for i := range g.Ops {
		op := &g.Ops[i]
		live = slices.DeleteFunc(live, func(id ValueID) bool { return last[id] < i })
		if module := begins(op.Path, seen); i > 0 && module != "" {
			seam := Seam{Module: module, WeightBytes: weightBytes}
			whole := true
			for _, id := range live {
				seam.Bytes += g.Values[id].Bytes()
				whole = whole && !guarded[id]
			}
			if whole && g.cachesApart(i) {
				seams = append(seams, seam)
			}
		}
		op.eachRead(func(o Operand) {
			if v := &g.Values[o.Value]; v.Role == Weight && !read[o.Value] {
				read[o.Value] = true
				weightBytes += v.Bytes()
			}
		})
		for _, id := range op.Out {
			if last[id] > i {
				live = append(live, id)
			}
		}
	}
	return seams, weightBytes
}

// begins returns the outermost module of a path that no op before belongs to, "" where there is none, and notes them
// all.
func begins(path string, seen map[string]bool) string {
	first := ""
	for end := 0; end < len(path); {
		next := strings.IndexAny(path[end:], ".@")
		if next < 0 {
			next = len(path) - end
		}
		module := path[:end+next]
		if end += next + 1; module == "" || strings.Contains(module, "@") {
			continue
		}
		if !seen[module] {
			seen[module] = true
			if first == "" {
				first = module
			}
		}
	}
	return first
}

// cachesApart reports whether no cache is that of ops on both sides of a place.
func (g *Graph) cachesApart(at int) bool {
	before := make(map[ValueID]bool)
	apart := true
	for i := range g.Ops {
		g.Ops[i].eachRead(func(o Operand) {
			switch {
			case g.Values[o.Value].Role != Cache:
			case i < at:
				before[o.Value] = true
			case before[o.Value]:
				apart = false
			}
		})
	}
	return apart
}
