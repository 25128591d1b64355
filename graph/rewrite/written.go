package rewrite

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// wholes puts together what a program computes in parts and what a kind computes as a whole. The functions are the
// same, and the rounding between the parts is gone.
func (w *rewriting) wholes() {
	for i := range w.g.Ops {
		op := &w.g.Ops[i]
		if w.gone[i] || len(op.Out) != 1 {
			continue
		}
		if op.Kind == "add" && (w.g.Values[op.Out[0]].DType == tensor.Float32 || w.g.Values[op.Out[0]].DType.IsHalf()) {
			w.rotary(i)
		}
		if w.g.Values[op.Out[0]].DType != tensor.Float32 {
			continue
		}
		switch op.Kind {
		case "mul", "div":
			if !w.rmsNorm(i) {
				w.activation(i)
			}
		case "matmul":
			w.attention(i)
		case "scaled_dot_product_attention":
			w.repeatedKeys(i)
		}
	}
}

// number returns what an operand shows everywhere if it is one number of float32 in the graph.
func (w *rewriting) number(o graph.Operand) (float64, bool) {
	if o.Value == graph.NoValue {
		return 0, false
	}
	v := &w.g.Values[o.Value]
	for d, n := range o.Layout.Shape {
		if n != 1 && o.Layout.Strides[d] != 0 {
			return 0, false
		}
	}
	at := o.Layout.Offset * 4
	if v.Role != graph.Const || v.DType != tensor.Float32 || at+4 > len(v.Const) || slices.Contains(o.Layout.Shape, 0) {
		return 0, false
	}
	return float64(math.Float32frombits(binary.LittleEndian.Uint32(v.Const[at:]))), true
}

// writtenActivations are those that programs write out, by name.
var writtenActivations = map[string]func(x float64) float64{
	"silu": func(x float64) float64 { return x / (1 + math.Exp(-x)) },
	"gelu": func(x float64) float64 { return x * 0.5 * (1 + math.Erf(x*math.Sqrt2/2)) },
	"gelu_tanh": func(
		x float64,
	) float64 {
		return 0.5 * x * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x)))
	},
	"hardswish":   func(x float64) float64 { return x * min(max(x+3, 0), 6) / 6 },
	"hardsigmoid": func(x float64) float64 { return min(max(x+3, 0), 6) / 6 },
}

// writtenPoints are where a function is compared with an activation. The first tells most of them apart.
var writtenPoints = func() []float64 {
	points := []float64{-1.37, 0, 20, -20}
	for x := -7.0; x <= 7; x += 0.21 {
		points = append(points, x)
	}
	return points
}()

// maxWritten is the most ops that an activation is written in.
const maxWritten = 12

// activation makes an activation of op i and the ops before it that compute one of numbers and a single operand:
// whichever way it is written, its values tell.
func (w *rewriting) activation(i int) {
	members := []int{i}
	guards := w.g.Ops[i].Guard
	shape := w.g.Values[w.g.Ops[i].Out[0]].Shape
	for {
		// The member furthest from the start that can come in next. What lies before all others is the argument.
		var arguments []graph.Operand
		next := -1
		for _, k := range members {
			for _, o := range w.g.Ops[k].In {
				if _, ok := w.number(o); ok || slices.Contains(members, w.from[o.Value]) {
					continue
				}
				o, ok := reshaped(o, shape)
				if !ok {
					return
				}
				if !slices.ContainsFunc(arguments, func(q graph.Operand) bool { return sameOperand(q, o) }) {
					arguments = append(arguments, o)
				}
				if _, p := w.maker(o, guards); p > next {
					next = p
				}
			}
		}
		if len(arguments) == 1 && len(members) > 1 {
			if name := w.recognise(members); name != "" {
				first := w.g.Ops[slices.Min(members)]
				kind, attrs := graph.Activation(graph.Attrs{"act": name})
				w.replace(
					i, graph.Op{Kind: kind, Path: first.Path, Source: first.Source, In: arguments, Attrs: attrs}, shape,
				)
				return
			}
		}
		if next < 0 || len(members) == maxWritten || !writable(w.g.Ops[next].Kind) ||
			w.usesIn(members, w.g.Ops[next].Out[0]) != w.uses[w.g.Ops[next].Out[0]] {
			return
		}
		members = append(members, next)
	}
}

// recognise returns the name of the activation that members compute of their only operand, "" for none.
func (w *rewriting) recognise(members []int) string {
	ops := slices.Clone(members)
	slices.Sort(ops)
	values := make([]float64, len(ops))
	compute := func(x float64) float64 {
		for n, k := range ops {
			var in [2]float64
			for a, o := range w.g.Ops[k].In {
				if number, ok := w.number(o); ok {
					in[a] = number
				} else if m := slices.Index(ops, w.from[o.Value]); m >= 0 {
					in[a] = values[m]
				} else {
					in[a] = x
				}
			}
			values[n] = written(&w.g.Ops[k], in[0], in[1])
		}
		return values[len(ops)-1]
	}
	for name, want := range writtenActivations {
		if !slices.ContainsFunc(writtenPoints, func(x float64) bool {
			return !(math.Abs(compute(x)-want(x)) <= 2e-7*max(1, math.Abs(x)))
		}) {
			return name
		}
	}
	return ""
}

// writable reports whether written can compute a kind.
func writable(k graph.Kind) bool {
	switch k {
	case "add", "sub", "mul", "div", "pow", "tanh", "erf", "sigmoid", "square", "exp", "neg", "reciprocal", "clamp",
		"relu":
		return true
	}
	return false
}

// written computes an elementwise op of numbers.
func written(op *graph.Op, x, y float64) float64 {
	alpha := 1.0
	if a, ok := op.Attrs["alpha"].(float64); ok {
		alpha = a
	}
	switch op.Kind {
	case "add":
		return x + alpha*y
	case "sub":
		return x - alpha*y
	case "mul":
		return x * y
	case "div":
		return x / y
	case "pow":
		return math.Pow(x, y)
	case "tanh":
		return math.Tanh(x)
	case "erf":
		return math.Erf(x)
	case "sigmoid":
		return 1 / (1 + math.Exp(-x))
	case "square":
		return x * x
	case "exp":
		return math.Exp(x)
	case "neg":
		return -x
	case "reciprocal":
		return 1 / x
	case "relu":
		return max(x, 0)
	case "clamp":
		return min(max(x, op.Attrs.Float("min")), op.Attrs.Float("max"))
	}
	return math.NaN()
}

// rmsNorm makes a norm of x × rsqrt(mean(x²) + eps), and of a norm times a weight one norm, where op i is the product.
func (w *rewriting) rmsNorm(i int) bool {
	op := &w.g.Ops[i]
	if op.Kind != "mul" {
		return false
	}
	shape := w.g.Values[op.Out[0]].Shape
	for k, o := range op.In {
		other := op.In[1-k]
		if norm, _ := w.only(o, op.Guard); norm != nil && norm.Kind == "rms_norm" && len(norm.In) == 1 {
			if weight, ok := rowOf(other, len(shape)-1); ok && w.isFloat32(weight) &&
				o.Layout.Shape.Equal(w.g.Values[norm.Out[0]].Shape) {
				whole := *norm
				whole.In = []graph.Operand{norm.In[0], weight}
				w.replace(i, whole, shape)
				return true
			}
		}
		if eps, ok := w.inverseRoot(other, o, op.Guard); ok && w.isFloat32(o) && o.Layout.Shape.Equal(shape) {
			w.replace(i, graph.Op{
				Kind: "rms_norm", Path: op.Path, Source: op.Source, In: []graph.Operand{o},
				Attrs: graph.Attrs{"dims": 1, "eps": eps},
			}, shape)
			return true
		}
	}
	return false
}

// rowOf returns the one-dimensional operand that an operand repeats along all dimensions but one.
func rowOf(o graph.Operand, dim int) (graph.Operand, bool) {
	if dim < 0 || dim >= len(o.Layout.Shape) {
		return o, false
	}
	for d, n := range o.Layout.Shape {
		if d != dim && n != 1 && o.Layout.Strides[d] != 0 {
			return o, false
		}
	}
	l := tensor.Layout{
		Shape: tensor.Shape{o.Layout.Shape[dim]}, Strides: []int{o.Layout.Strides[dim]}, Offset: o.Layout.Offset,
	}
	return graph.Operand{Value: o.Value, Layout: l}, true
}

// inverseRoot reports whether an operand is 1 ÷ √(mean of squares + eps) over the last dimension of another, repeated
// along it.
func (w *rewriting) inverseRoot(o, of graph.Operand, guards []graph.Guard) (eps float64, ok bool) {
	last := len(o.Layout.Shape) - 1
	if last < 0 || o.Value == graph.NoValue || w.uses[o.Value] != 1 ||
		o.Layout.Strides[last] != 0 && o.Layout.Shape[last] != 1 {
		return 0, false
	}
	each := o
	each.Layout = tensor.Layout{Shape: o.Layout.Shape[:last], Strides: o.Layout.Strides[:last], Offset: o.Layout.Offset}
	root, _ := w.only(each, guards)
	if root == nil {
		return 0, false
	}
	switch root.Kind {
	case "rsqrt":
	case "pow":
		if exponent, ok := w.number(root.In[1]); !ok || exponent != -0.5 {
			return 0, false
		}
	default:
		return 0, false
	}
	sum, _ := w.only(root.In[0], guards)
	if sum == nil || sum.Kind != "add" || sum.Attrs["alpha"] != nil && sum.Attrs["alpha"] != 1.0 {
		return 0, false
	}
	k := 0
	if eps, ok = w.number(sum.In[1]); !ok {
		k = 1
		if eps, ok = w.number(sum.In[0]); !ok {
			return 0, false
		}
	}
	mean, _ := w.only(sum.In[k], guards)
	if mean == nil || mean.Kind != "mean" || !slices.Equal(mean.Attrs.Ints("dims"), []int{last}) ||
		mean.Attrs.DType("dtype") != tensor.Float32 {
		return 0, false
	}
	square, _ := w.only(mean.In[0], guards)
	if square == nil || !mean.In[0].Layout.Shape.Equal(of.Layout.Shape) || !sameOperand(square.In[0], of) ||
		!square.In[0].Layout.Shape.Equal(of.Layout.Shape) {
		return 0, false
	}
	switch square.Kind {
	case "square":
		return eps, true
	case "pow":
		exponent, ok := w.number(square.In[1])
		return eps, ok && exponent == 2
	case "mul":
		return eps, sameOperand(square.In[0], square.In[1])
	}
	return 0, false
}
