// Package arrange decides which values of a graph have their channels last, and says so in layouts. It does not know how
// kernels compute, nor devices: whoever calls it says which ops gain by it.
//
//	arranged := arrange.Graph(g, kernels, false)
package arrange

import (
	"maps"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// The attributes that convolutions are given. ReadsLast says that the first operand has the channels of a place behind each
// other, in sixteens of bytes; MakesLast that the result is N×space×C.
const (
	ReadsLast = "reads_channels_last"
	MakesLast = "channels_last"
)

// Kernels say of ops what they are computed by, all from sizes and attributes.
type Kernels struct {
	// Gathers reports whether a convolution reads sixteen bytes of channels at a time, and can make either order. Each reports whether
	// one is of channels by themselves, which can make its result channels-last from such an operand.
	Gathers, Each func(in, out []graph.Spec, a graph.Attrs) bool
	// Elementwise reports whether ops of a kind compute every element of the same elements of their operands.
	Elementwise func(kind graph.Kind) bool
	// Pools reports whether pools of a dtype go over one dimension more.
	Pools func(d tensor.DType) bool
}

// Graph returns the graph with its regions of convolutions on tensor cores channels-last: their values are N×space×C
// instead of N×C×space, so that sixteen bytes of what a window reads lie behind each other, and nothing has to be put so
// first. Ops stay what they are and views stay views: a value's elements only lie elsewhere, which the layouts of those that
// read it say. Elementwise ops, pools, batch norms and concatenations in a region go through its values in that order;
// everything else reads views. A region is taken where convolutions save more bytes of copies than others read far apart.
// Outputs of the graph, updates of states and values that are read as no view of the new order can say stay as they are.
//
// With all, every region is taken that can be, and outputs become views. The graph itself does not change, and its values keep their
// ids.
func Graph(g *graph.Graph, k Kernels, all bool) *graph.Graph {
	a := newArranger(g, all)
	a.kernels = k
	for i := range g.Ops {
		a.find(&g.Ops[i])
	}
	for i := range g.Ops {
		a.weigh(&g.Ops[i])
	}
	for r := range a.saved {
		if all {
			a.saved[r] = 1
		}
	}
	return a.finish()
}

// An arranger is a graph being arranged.
type arranger struct {
	g       *graph.Graph
	kernels Kernels
	// fixed are values that stay as they are.
	fixed []bool
	// region has for each value that may be channels-last its region, −1 for others. Regions that became part of others
	// name those in into; saved are the bytes that one saves.
	region, into []int
	saved        []int64
}

// A bounds is a value of images, channels and pixels.
type bounds struct{ images, channels, pixels int }

// boundsOf returns those of a shape N×C×space; ok is false where the order of channels and pixels makes no difference.
func boundsOf(s tensor.Shape) (b bounds, ok bool) {
	if len(s) < 3 || len(s) > 5 {
		return b, false
	}
	b = bounds{s[0], s[1], 1}
	for _, n := range s[2:] {
		b.pixels *= n
	}
	return b, b.images > 0 && b.channels > 1 && b.pixels > 1
}

func newArranger(g *graph.Graph, all bool) *arranger {
	a := &arranger{g: g, fixed: make([]bool, len(g.Values)), region: make([]int, len(g.Values))}
	for id, v := range g.Values {
		_, ok := boundsOf(v.Shape)
		a.fixed[id], a.region[id] = !ok || v.Role != graph.Computed, -1
	}
	fix := func(o graph.Operand) {
		if o.Value != graph.NoValue {
			a.fixed[o.Value] = true
		}
	}
	for _, o := range g.Outputs {
		if !all || !a.turns(o.Operand) {
			fix(o.Operand)
		}
	}
	for _, u := range g.Updates {
		fix(u.Operand)
	}
	for i := range g.Ops {
		for _, c := range g.Ops[i].Guard {
			fix(c.Predicate)
		}
		for _, o := range g.Ops[i].In {
			if o.Value == graph.NoValue || a.fixed[o.Value] {
				continue
			}
			if !a.turns(o) {
				fix(o)
			}
		}
	}
	return a
}

// turns reports whether there is a layout for what an operand shows of a value that is channels-last.
func (a *arranger) turns(o graph.Operand) bool {
	b, ok := boundsOf(a.g.Values[o.Value].Shape)
	if ok {
		_, ok = b.turned(o.Layout)
	}
	return ok
}

// turned returns the layout of a view of a value N×C×space once that is N×space×C, false where there is none.
func (b bounds) turned(l tensor.Layout) (tensor.Layout, bool) {
	image := b.channels * b.pixels
	at := [3]int{l.Offset / image, l.Offset % image / b.pixels, l.Offset % b.pixels}
	strides := make([]int, len(l.Strides))
	for d, s := range l.Strides {
		switch n := l.Shape[d]; {
		case n == 0 || s < 0:
			return l, false
		case n == 1 || s == 0:
		case s%image == 0:
			at[0], strides[d] = at[0]+(n-1)*(s/image), s
		case s%b.pixels == 0:
			at[1], strides[d] = at[1]+(n-1)*(s/b.pixels), s/b.pixels
		case s < b.pixels:
			at[2], strides[d] = at[2]+(n-1)*s, s*b.channels
		default:
			return l, false
		}
	}
	offset := l.Offset/image*image + l.Offset%b.pixels*b.channels + l.Offset%image/b.pixels
	ok := at[0] < b.images && at[1] < b.channels && at[2] < b.pixels
	return tensor.Layout{Shape: l.Shape, Strides: strides, Offset: offset}, ok
}

// whole reports whether an operand is all of a value that may be channels-last, in order.
func (a *arranger) whole(o graph.Operand) bool {
	return o.Value != graph.NoValue && a.region[o.Value] >= 0 && o.Layout.Offset == 0 &&
		o.Layout.Shape.Equal(a.g.Values[o.Value].Shape) && o.Layout.IsContiguous()
}

// root returns the region that a value is in.
func (a *arranger) root(id graph.ValueID) int {
	r := a.region[id]
	for a.into[r] != r {
		r = a.into[r]
	}
	return r
}

// add makes a value one that may be channels-last, in the region of those operands that are whole.
func (a *arranger) add(id graph.ValueID, with ...graph.Operand) {
	a.region[id] = len(a.into)
	a.into, a.saved = append(a.into, len(a.into)), append(a.saved, 0)
	for _, o := range with {
		if a.whole(o) {
			a.into[a.root(o.Value)] = a.root(id)
		}
	}
}

// find adds the result of an op where that may be channels-last.
func (a *arranger) find(op *graph.Op) {
	if len(op.Out) != 1 || a.fixed[op.Out[0]] {
		return
	}
	in, out := a.g.Specs(op, nil, nil)
	switch {
	case op.Kind == "conv" && a.kernels.Gathers(in, out, op.Attrs):
		a.add(op.Out[0], a.added(op)...)
	case op.Kind == "conv" && a.kernels.Each(in, out, op.Attrs) && a.whole(op.In[0]):
		a.add(op.Out[0], append(a.added(op), op.In[0])...)
	case op.Kind == "batch_norm" && a.whole(op.In[0]),
		(op.Kind == "max_pool" || op.Kind == "avg_pool") && len(in[0].Shape) <= 4 && a.kernels.Pools(in[0].DType) && a.whole(op.In[0]):
		a.add(op.Out[0], op.In[0])
	case op.Kind == "cat" && op.Attrs.Int("dim") == 1 && slices.ContainsFunc(op.In, a.whole), a.elementwise(op):
		a.add(op.Out[0], op.In...)
	}
}

// added returns what is added to the result of a convolution.
func (a *arranger) added(op *graph.Op) []graph.Operand {
	if len(op.In) > 7 {
		return op.In[7:8]
	}
	return nil
}

// elementwise reports whether each element of an op's result is of the same elements of its operands, one of which is
// whole.
func (a *arranger) elementwise(op *graph.Op) bool {
	if !a.kernels.Elementwise(op.Kind) {
		return false
	}
	for _, o := range op.In {
		if o.Value == graph.NoValue || !o.Layout.Shape.Equal(a.g.Values[op.Out[0]].Shape) {
			return false
		}
	}
	return slices.ContainsFunc(op.In, a.whole)
}

// weigh adds to the regions what an op saves there, and what it loses: bytes that are read or written.
func (a *arranger) weigh(op *graph.Op) {
	follows := len(op.Out) == 1 && a.region[op.Out[0]] >= 0
	in, out := a.g.Specs(op, nil, nil)
	for k, o := range op.In {
		if o.Value == graph.NoValue {
			continue
		}
		bytes := a.g.Values[o.Value].Bytes()
		switch may := a.region[o.Value] >= 0; {
		case op.Kind == "conv" && k == 0:
			switch {
			case !may:
			case a.kernels.Gathers(in, out, op.Attrs):
				if a.inSixteens(in[1], a.laid(o)) {
					a.saved[a.root(o.Value)] += 2 * bytes // read and written
				}
			case !follows:
				a.saved[a.root(o.Value)] -= bytes
			}
		case follows && op.Kind != "batch_norm":
			// What is not in the region is read across, unless it is small.
			b, _ := boundsOf(a.g.Values[op.Out[0]].Shape)
			if !a.whole(o) && bytes >= a.g.Values[op.Out[0]].Bytes()/int64(b.images*b.pixels)*2 && (op.Kind != "conv" || k == 7) {
				a.saved[a.root(op.Out[0])] -= bytes
			}
		case may && !follows && !reduces(op):
			before, after := o.Layout.IsContiguous(), a.laid(o).Layout.IsContiguous()
			if before && !after {
				a.saved[a.root(o.Value)] -= bytes
			} else if after && !before {
				a.saved[a.root(o.Value)] += bytes
			}
		}
	}
}

// reduces reports whether an op reads its operand once, in whatever order suits how that lies.
func reduces(op *graph.Op) bool {
	switch op.Kind {
	case "mean", "sum", "amax", "adaptive_avg_pool":
		return true
	}
	return false
}

// laid returns an operand as it is read where its value is channels-last.
func (a *arranger) laid(o graph.Operand) graph.Operand {
	b, _ := boundsOf(a.g.Values[o.Value].Shape)
	o.Layout, _ = b.turned(o.Layout)
	return o
}

// inSixteens reports whether a convolution on tensor cores can copy what it reads sixteen bytes of channels at a time: a view
// of a value that begins where they are aligned.
func (a *arranger) inSixteens(w graph.Spec, o graph.Operand) bool {
	each := 16 / w.DType.Size()
	if a.g.Values[o.Value].Role != graph.Computed || w.Shape[1]%each != 0 || o.Layout.Offset%each != 0 {
		return false
	}
	for d, s := range o.Layout.Strides {
		switch {
		case o.Layout.Shape[d] == 1 && d != 1:
		case d == 1 && s != 1, d != 1 && s%each != 0:
			return false
		}
	}
	return true
}

// finish returns the graph with the regions that save something.
func (a *arranger) finish() *graph.Graph {
	last := func(id graph.ValueID) bool {
		return id != graph.NoValue && a.region[id] >= 0 && a.saved[a.root(id)] > 0
	}
	g := *a.g
	g.Values, g.Ops = slices.Clone(g.Values), slices.Clone(g.Ops)
	g.Outputs, g.Modules = slices.Clone(g.Outputs), maps.Clone(g.Modules)
	for path, o := range g.Modules { // whoever cuts modules wants to know which there are
		if last(o.Value) {
			g.Modules[path] = a.laid(o)
		}
	}
	for i, o := range g.Outputs {
		if last(o.Operand.Value) {
			g.Outputs[i].Operand = a.laid(o.Operand)
		}
	}
	for i := range g.Ops {
		op := &g.Ops[i]
		op.In = slices.Clone(op.In)
		for k, o := range op.In {
			if last(o.Value) {
				op.In[k] = a.laid(o)
			}
		}
		in, out := a.g.Specs(op, nil, nil)
		makes := len(op.Out) == 1 && last(op.Out[0])
		if op.Kind == "conv" {
			reads := a.kernels.Gathers(in, out, op.Attrs) && a.inSixteens(in[1], op.In[0])
			if makes || reads {
				op.Attrs = maps.Clone(op.Attrs)
				op.Attrs[MakesLast], op.Attrs[ReadsLast] = makes, reads
			}
		}
		if makes {
			a.turn(op, &g.Values[op.Out[0]])
		}
	}
	return &g
}

// lastly returns a list of N, C and space as one of N, space and C.
func lastly(list []int) []int { return append(append([]int{list[0]}, list[2:]...), list[1]) }

// turn has an op make its result channels-last; its operands are laid out.
func (a *arranger) turn(op *graph.Op, v *graph.Value) {
	turned := func(o graph.Operand) graph.Operand {
		o.Layout.Shape, o.Layout.Strides = lastly(o.Layout.Shape), lastly(o.Layout.Strides)
		return o
	}
	b, _ := boundsOf(v.Shape)
	shape := tensor.Shape(lastly(v.Shape))
	switch op.Kind {
	case "conv":
		if len(op.In) > 7 && op.In[7].Value != graph.NoValue {
			op.In[7] = turned(op.In[7])
		}
	case "batch_norm": // of pixels × channels
		shape = tensor.Shape{b.images * b.pixels, b.channels}
		op.In[0].Layout = tensor.Contiguous(shape...)
	case "max_pool", "avg_pool": // channels are one dimension of space more
		o := turned(op.In[0])
		o.Layout.Shape = slices.Insert(o.Layout.Shape, 1, 1)
		o.Layout.Strides = slices.Insert(o.Layout.Strides, 1, 0)
		op.In[0] = o
		op.Attrs = maps.Clone(op.Attrs)
		for name, one := range map[string]int{"kernel": 1, "stride": 1, "padding": 0, "dilation": 1} {
			if list := op.Attrs.Ints(name); list != nil {
				op.Attrs[name] = append(slices.Clone(list), one)
			}
		}
		shape = slices.Insert(shape, 1, 1)
	case "cat":
		op.Attrs = maps.Clone(op.Attrs)
		op.Attrs["dim"] = len(shape) - 1
		fallthrough
	default:
		for k, o := range op.In {
			op.In[k] = turned(o)
		}
	}
	v.Shape = shape
}
