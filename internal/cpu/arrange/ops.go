package arrange

import (
	"encoding/binary"
	"maps"
	"math"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu"
	"github.com/optimem/optimem/internal/cpu/blocked"
	"github.com/optimem/optimem/internal/cpu/elementwise"
	"github.com/optimem/optimem/tensor"
)

// planarChannels is how many channels an input may have that a convolution reads as it is.
const planarChannels = 4

// conv adds a convolution in blocks.
func (a *arranger) conv(i int, op *graph.Op) bool {
	rank := len(op.Attrs.Ints("stride"))
	w := op.In[1]
	if rank != 1 && rank != 2 || op.Attrs.Bool("transposed") || a.g.Values[w.Value].Role != graph.Weight {
		return false
	}
	shape := a.g.Values[op.Out[0]].Shape
	attrs := maps.Clone(op.Attrs)
	planar := a.forms[op.In[0].Value] == nil && op.In[0].Layout.Shape[1] <= planarChannels && op.Attrs.Int("groups") == 1
	geometry, ok := convGeometry(op.In[0].Layout.Shape, w.Layout.Shape, shape, attrs)
	geometry.Planar, geometry.Exact = planar, a.exact
	if !ok || blocked.Supports(geometry) != nil {
		return false
	}
	in := slices.Clone(op.In)
	var from []*form
	if !planar {
		f := a.needForm(op.In[0], op)
		if f == nil {
			return false
		}
		in[0], from = f.all(a.out), append(from, f)
	}
	if len(in) > 7 && in[7].Value != graph.NoValue {
		f := a.needForm(in[7], op)
		if f == nil {
			return false
		}
		in[7], from = f.all(a.out), append(from, f)
	}
	attrs["conv"] = blocked.New(geometry)
	f := a.expansion(op, attrs, shape, in)
	if f == nil {
		f = a.emit(op, "conv16", attrs, shape, in...)
	}
	flops := 2 * float64(volume(shape)) * float64(volume(w.Layout.Shape[1:]))
	before := flops / productFLOPs
	if geometry.Groups > 1 && geometry.In == geometry.Groups {
		before = flops / depthwiseFLOPs
	}
	a.regions[f.region].convs = []int{i}
	a.regions[f.region].seconds = before - flops/blockedFLOPs
	return a.result(op, f, from...)
}

// convOf returns the convolution that the attributes of a conv16 hold.
func convOf(a graph.Attrs) *blocked.Conv { return a["conv"].(*blocked.Conv) }

// expansion adds a depthwise convolution in blocks and the pointwise one before it as one op, if nobody else reads what
// lies between; nil where that cannot be.
func (a *arranger) expansion(op *graph.Op, attrs graph.Attrs, shape tensor.Shape, in []graph.Operand) *form {
	maker, ok := a.makers[in[0].Value]
	if !ok || a.uses[op.In[0].Value] != 1 || attrs.String("precision") != "" {
		return nil
	}
	first := &a.out.Ops[maker]
	if first.Kind != "conv16" || first.Attrs.String("precision") != "" || len(first.Guard) != len(op.Guard) ||
		len(first.In) > 7 && first.In[7].Value != graph.NoValue ||
		!blocked.CanExpand(convOf(first.Attrs).Geometry, convOf(attrs).Geometry) {
		return nil
	}
	both := make([]graph.Operand, 2*cpu.ConvOperands)
	for i := range both {
		both[i] = graph.Absent
	}
	copy(both, first.In)
	copy(both[cpu.ConvOperands+1:], in[1:])
	delete(a.forms, op.In[0].Value) // it is not computed by itself
	return a.emit(op, "expand16", graph.Attrs{
		"expansion": blocked.NewExpansion(convOf(first.Attrs).Geometry, convOf(attrs).Geometry),
		"first":     first.Attrs, "second": attrs,
	}, shape, both...)
}

// pool adds a pool in blocks.
func (a *arranger) pool(op *graph.Op) bool {
	f := a.formOf(op.In[0], op)
	shape := a.g.Values[op.Out[0]].Shape
	if _, _, _, _, ok := geometry(shape); f == nil || !ok || len(shape) != len(f.shape) {
		return false
	}
	attrs := maps.Clone(op.Attrs)
	attrs["channels"], attrs["pool"] = shape[1], string(op.Kind)
	return a.result(op, a.emit(op, "pool16", attrs, shape, f.all(a.out)), f)
}

// globalMean adds a mean of all pixels in blocks.
func (a *arranger) globalMean(op *graph.Op) bool {
	f := a.formOf(op.In[0], op)
	if f == nil || op.Attrs.DType("dtype") != tensor.Float32 {
		return false
	}
	dims := slices.Sorted(slices.Values(op.Attrs.Ints("dims")))
	shape := tensor.Shape{f.shape[0], f.shape[1], 1}
	want := []int{2}
	if len(f.shape) == 4 {
		shape, want = append(shape, 1), append(want, 3)
	}
	if !slices.Equal(dims, want) {
		return false
	}
	attrs := graph.Attrs{"channels": shape[1], "pool": "adaptive_avg_pool"}
	return a.result(op, a.emit(op, "pool16", attrs, shape, f.all(a.out)), f)
}

// norm adds a batch norm in blocks.
func (a *arranger) norm(op *graph.Op) bool {
	f := a.formOf(op.In[0], op)
	if f == nil {
		return false
	}
	for _, o := range op.In[1:] {
		if o.Value != graph.NoValue && (a.g.Values[o.Value].DType != tensor.Float32 || !a.planar[o.Value]) {
			return false
		}
	}
	in := append([]graph.Operand{f.all(a.out)}, op.In[1:]...)
	attrs := graph.Attrs{"eps": op.Attrs.Float("eps"), "channels": f.shape[1]}
	return a.result(op, a.emit(op, "norm16", attrs, f.shape, in...), f)
}

// cat puts channels in blocks behind each other, where all but the last are whole blocks.
func (a *arranger) cat(op *graph.Op) bool {
	shape := a.g.Values[op.Out[0]].Shape
	if op.Attrs.Int("dim") != 1 || len(op.In) < 2 {
		return false
	}
	any, at := false, 0
	for _, o := range op.In {
		f := a.forms[o.Value]
		any = any || f != nil && a.shows(o, f, false)
		if len(o.Layout.Shape) != len(shape) || !a.whole(o) && f == nil ||
			!blocked.CanCopy(o.Layout.Shape[1], o.Layout.Shape[1], 0, shape[1], at) {
			return false
		}
		at += o.Layout.Shape[1]
	}
	if _, _, _, _, ok := geometry(shape); !any || !ok {
		return false
	}
	channels := make([]int, len(op.In))
	in := make([]graph.Operand, len(op.In))
	from := make([]*form, len(op.In))
	for k, o := range op.In {
		f := a.needForm(o, op)
		if f == nil {
			return false
		}
		channels[k], in[k], from[k] = o.Layout.Shape[1], f.all(a.out), f
	}
	return a.result(op, a.emit(op, "cat16", graph.Attrs{"counts": channels, "channels": shape[1]}, shape, in...), from...)
}

// elementwise adds an elementwise op over values in blocks: as it is, over all their elements, where the padding of the
// last block stays zero, or as an activation or a product of this package.
func (a *arranger) elementwise(op *graph.Op) bool {
	shape := a.g.Values[op.Out[0]].Shape
	if graph.ChainOperands(op.Kind) == 0 && op.Kind != "chain" {
		return false
	}
	s, ok := blockedShape(shape)
	if !ok || !slices.ContainsFunc(op.In, func(o graph.Operand) bool {
		if f := a.forms[o.Value]; f != nil && f.shape.Equal(shape) && a.shows(o, f, false) {
			return true
		}
		f := a.views[viewKey(o)]
		return f != nil && f.shape.Equal(shape)
	}) {
		return false
	}
	in := make([]graph.Operand, len(op.In))
	from := make([]*form, len(op.In))
	lanes := make([]float32, len(op.In)) // what each operand has in the padding
	each := -1                           // the operand that has a number for each channel of each image
	for k, o := range op.In {
		switch number, isNumber := a.number(o); {
		case !o.Layout.Shape.Equal(shape) || a.g.Values[o.Value].DType != tensor.Float32:
			return false
		case isNumber:
			in[k] = graph.Operand{Value: o.Value, Layout: tensor.Layout{
				Shape: s, Strides: make([]int, len(s)), Offset: o.Layout.Offset,
			}}
			lanes[k] = number
		case a.whole(o) || a.forms[o.Value] != nil && a.shows(o, a.forms[o.Value], false):
			if from[k] = a.needForm(o, op); from[k] == nil {
				return false
			}
			in[k] = from[k].all(a.out)
		case a.channelNumbers(o):
			l := o.Layout
			in[k] = graph.Operand{Value: o.Value, Layout: tensor.Layout{
				Shape: s, Strides: []int{0, blocked.Lanes * l.Strides[1], 0, 0, l.Strides[1]}, Offset: l.Offset,
			}}
		case a.distinct(o):
			if from[k] = a.needForm(o, op); from[k] == nil {
				return false
			}
			in[k] = from[k].all(a.out)
		default:
			if from[k] = a.eachChannel(o, op); from[k] == nil {
				return false
			}
			in[k] = graph.Operand{Value: from[k].id, Layout: tensor.Layout{
				Shape: s, Strides: []int{s[1] * blocked.Lanes, blocked.Lanes, 0, 0, 1},
			}}
			each = k
		}
	}
	kind, attrs := op.Kind, op.Attrs
	act, isAct := graph.ActivationOf(op)
	switch {
	case op.Kind == "mul" && each >= 0 && from[1-each] != nil && in[1-each].Layout.IsContiguous():
		kind, attrs = "mul16", nil
		in = []graph.Operand{in[1-each], from[each].all(a.out)}
	case isAct && len(op.In) == 1 && a.intoNorm(op, from[0], act):
		return a.result(op, from[0])
	case shape[1]%blocked.Lanes == 0 || keepsZero(op, lanes):
	case isAct && len(op.In) == 1:
		kind, attrs = "act16", act
		attrs["channels"] = shape[1]
	default:
		return false
	}
	return a.result(op, a.emit(op, kind, attrs, shape, in...), from...)
}

// intoNorm makes an activation the end of the batch norm before it, if nobody else reads that.
func (a *arranger) intoNorm(op *graph.Op, f *form, act graph.Attrs) bool {
	maker, ok := a.makers[f.id]
	if !ok || a.uses[op.In[0].Value] != 1 {
		return false
	}
	norm := &a.out.Ops[maker]
	if norm.Kind != "norm16" || norm.Attrs.String("act") != "" || len(norm.Guard) != len(op.Guard) {
		return false
	}
	maps.Copy(norm.Attrs, act)
	delete(a.forms, op.In[0].Value) // its value is another one now
	return true
}

// channelNumbers reports whether an operand has a number for each channel, which is the same for all images and pixels, and
// can be read in blocks where it lies.
func (a *arranger) channelNumbers(o graph.Operand) bool {
	for d, n := range o.Layout.Shape {
		if d != 1 && n != 1 && o.Layout.Strides[d] != 0 {
			return false
		}
	}
	return a.planar[o.Value] && o.Layout.Shape[1]%blocked.Lanes == 0
}

// distinct reports whether an operand shows no element twice.
func (a *arranger) distinct(o graph.Operand) bool {
	for d, n := range o.Layout.Shape {
		if n > 1 && o.Layout.Strides[d] == 0 {
			return false
		}
	}
	return true
}

// number returns a number of the graph that an operand shows everywhere.
func (a *arranger) number(o graph.Operand) (float32, bool) {
	if o.Value == graph.NoValue {
		return 0, false
	}
	v := &a.g.Values[o.Value]
	for d, n := range o.Layout.Shape {
		if n != 1 && o.Layout.Strides[d] != 0 {
			return 0, false
		}
	}
	if v.Role != graph.Const || v.DType != tensor.Float32 || len(v.Const) < 4*o.Layout.Offset+4 {
		return 0, false
	}
	return math.Float32frombits(binary.NativeEndian.Uint32(v.Const[4*o.Layout.Offset:])), true
}

// eachChannel returns the form [N, C, 1, 1] of an operand that repeats its elements along all pixels; nil where it does
// not.
func (a *arranger) eachChannel(o graph.Operand, like *graph.Op) *form {
	l := o.Layout
	for d := 2; d < len(l.Shape); d++ {
		if l.Strides[d] != 0 && l.Shape[d] != 1 {
			return nil
		}
	}
	n, channels := l.Shape[0], l.Shape[1]
	if l.Offset != 0 || channels > 1 && l.Strides[1] != 1 || n > 1 && l.Strides[0] != channels {
		return nil
	}
	shape := tensor.Shape{n, channels, 1, 1}[:len(l.Shape)]
	one := graph.Operand{Value: o.Value, Layout: tensor.Contiguous(shape...)}
	if f := a.forms[o.Value]; f != nil && len(f.shape) != len(shape) {
		return nil
	}
	return a.needForm(one, like)
}

// keepsZero reports whether an elementwise op gives zero in the padding, where its operands are the given numbers.
func keepsZero(op *graph.Op, lanes []float32) bool {
	program := graph.Program{{Kind: op.Kind, Attrs: op.Attrs}}
	for k := range op.In {
		program[0].Args = append(program[0].Args, k)
	}
	if op.Kind == "chain" {
		program = op.Attrs.Program("program")
	}
	result, ok := elementwise.OfNumbers(program, lanes)
	return ok && result == 0
}

// convGeometry returns the geometry of a convolution in blocks, false where there is none.
func convGeometry(x, w, out tensor.Shape, at graph.Attrs) (blocked.Geometry, bool) {
	batch, in, height, width, ok := geometry(x)
	_, outputs, outHeight, outWidth, ok2 := geometry(out)
	if !ok || !ok2 || len(w) != len(x) {
		return blocked.Geometry{}, false
	}
	two := func(name string, fill int) (int, int) {
		v := at.Ints(name)
		if len(v) == 1 {
			return fill, v[0]
		}
		return v[0], v[1]
	}
	g := blocked.Geometry{
		Batch: batch, In: in, Out: outputs, Groups: at.Int("groups"), Height: height, Width: width,
		OutHeight: outHeight, OutWidth: outWidth, KernelH: 1, KernelW: w[len(w)-1],
	}
	if len(w) == 4 {
		g.KernelH = w[2]
	}
	g.StrideH, g.StrideW = two("stride", 1)
	g.PadTop, g.PadLeft = two("padding", 0)
	g.DilationH, g.DilationW = two("dilation", 1)
	return g, true
}
