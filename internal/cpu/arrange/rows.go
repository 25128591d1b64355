package arrange

import (
	"maps"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu/blocked"
	"github.com/optimem/optimem/tensor"
)

// Networks that turn a picture to put the channels of a pixel side by side, [N, H, W, C], do to each pixel what a
// convolution with a window of one does: they stay in blocks.

// rowsForm returns the form of a picture that an operand shows as [N, H, W, C], nil where there is none.
func (a *arranger) rowsForm(o graph.Operand) *form {
	if o.Value == graph.NoValue {
		return nil
	}
	if f := a.forms[o.Value]; f != nil && a.shows(o, f, true) {
		return f
	}
	return nil
}

// numbers reports whether an operand is absent, or a row of numbers that is not computed.
func (a *arranger) numbers(o graph.Operand, n int) bool {
	if o.Value == graph.NoValue {
		return true
	}
	v := &a.g.Values[o.Value]
	return v.Role != graph.Computed && v.DType == tensor.Float32 && o.Layout.Shape.Equal(tensor.Shape{n})
}

// layerNorm adds a norm of each pixel over its channels.
func (a *arranger) layerNorm(op *graph.Op) bool {
	f := a.rowsForm(op.In[0])
	if f == nil || op.Attrs.Int("dims") != 1 || f.shape[1]%blocked.Lanes != 0 ||
		slices.ContainsFunc(op.In[1:], func(o graph.Operand) bool { return !a.numbers(o, f.shape[1]) }) {
		return false
	}
	in := append([]graph.Operand{f.all(a.out)}, op.In[1:]...)
	g := a.emit(op, "layer16", graph.Attrs{"eps": op.Attrs.Float("eps")}, f.shape, in...)
	g.rows = true
	return a.result(op, g, f)
}

// linear adds a linear over the channels of each pixel as a convolution.
func (a *arranger) linear(i int, op *graph.Op) bool {
	f := a.rowsForm(op.In[0])
	w := op.In[1]
	if f == nil || len(w.Layout.Shape) != 2 || a.g.Values[w.Value].Role != graph.Weight ||
		op.Attrs.String("precision") != "" || graph.IsEncoded(op.Attrs) {
		return false
	}
	outputs := w.Layout.Shape[0]
	if len(op.In) > 2 && !a.numbers(op.In[2], outputs) {
		return false
	}
	from := []*form{f}
	in := slices.Clone(op.In[:min(3, len(op.In))])
	in[0] = f.all(a.out)
	if len(op.In) > 3 && op.In[3].Value != graph.NoValue {
		// A linear adds behind its activation, a convolution before.
		r := a.rowsForm(op.In[3])
		if r == nil || op.Attrs.String("act") != "" {
			return false
		}
		for len(in) < 7 {
			in = append(in, graph.Absent)
		}
		in, from = append(in, r.all(a.out)), append(from, r)
	}
	n, _, height, width, _ := geometry(f.shape)
	attrs := maps.Clone(op.Attrs)
	if attrs == nil {
		attrs = make(graph.Attrs)
	}
	attrs["conv"] = blocked.New(blocked.Geometry{
		Batch: n, In: f.shape[1], Out: outputs, Groups: 1, Height: height, Width: width, OutHeight: height,
		OutWidth: width,
		KernelH:  1, KernelW: 1, StrideH: 1, StrideW: 1, DilationH: 1, DilationW: 1, Exact: a.exact,
	})
	g := a.emit(op, "conv16", attrs, tensor.Shape{n, outputs, height, width}, in...)
	g.rows = true
	a.regions[g.region].convs = []int{i}
	return a.result(op, g, from...)
}

// scaleAndAdd makes a number for each channel, and an addition, the end of the linear before them, which nobody else
// reads.
func (a *arranger) scaleAndAdd(op *graph.Op) bool {
	program := op.Attrs.Program("program")
	if len(program) != 2 || len(op.In) != 3 || program[0].Kind != "mul" || program[1].Kind != "add" ||
		len(program[1].Attrs) > 0 {
		return false
	}
	args := [2][]int{slices.Sorted(slices.Values(program[0].Args)), slices.Sorted(slices.Values(program[1].Args))}
	if args[1][1] != len(op.In) || args[0][0] == args[1][0] || args[0][1] == args[1][0] {
		return false
	}
	shape := a.g.Values[op.Out[0]].Shape
	residual := op.In[args[1][0]]
	for k := range 2 {
		scale, x := op.In[args[0][k]], op.In[args[0][1-k]]
		f := a.forms[x.Value]
		if x.Value == graph.NoValue || f == nil || !a.shows(x, f, false) || !f.shape.Equal(shape) ||
			a.uses[x.Value] != 1 ||
			scale.Value == graph.NoValue || a.g.Values[scale.Value].Role == graph.Computed ||
			a.g.Values[scale.Value].DType != tensor.Float32 || !scale.Layout.Shape.Equal(shape) ||
			!a.channelNumbers(scale) {
			continue
		}
		r := a.formOf(residual, op)
		maker, ok := a.makers[f.id]
		if !ok || r == nil || !r.shape.Equal(shape) {
			return false
		}
		conv := a.out.Ops[maker]
		if conv.Kind != "conv16" || len(conv.In) > 3 || conv.Attrs.String("act") != "" ||
			len(conv.Guard) != len(op.Guard) {
			return false
		}
		if at, ok := a.makers[r.id]; !ok || at > maker { // it must be there before
			return false
		}
		in := slices.Clone(conv.In)
		for len(in) < 8 {
			in = append(in, graph.Absent)
		}
		in[3] = graph.Operand{Value: scale.Value, Layout: tensor.Layout{
			Shape: shape[1:2], Strides: scale.Layout.Strides[1:2], Offset: scale.Layout.Offset,
		}}
		in[7] = r.all(a.out)
		attrs := maps.Clone(conv.Attrs)
		attrs["scaled"] = true
		delete(attrs, "eps")
		conv.In, conv.Attrs = in, attrs
		a.out.Ops[maker] = conv
		delete(a.forms, x.Value) // its value is another one now
		f.rows = false
		f.shape = shape
		return a.result(op, f, r)
	}
	return false
}
