package rewrite_test

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// edge is the size of nearly all dimensions below: views that take one for another still fit.
const edge = 4

// A program is a graph written at random: what a pass looks for, or nearly that.
type program struct {
	*sketch
	r *rand.Rand
}

// often is true once in n times.
func (p program) often(n int) bool { return p.r.IntN(n) == 0 }

// one of some operands.
func (p program) one(list ...graph.Operand) graph.Operand { return list[p.r.IntN(len(list))] }

// emit emits an op whose result others may read too: as an output, as what a state becomes, or through another op.
func (p program) emit(kind graph.Kind, a graph.Attrs, in ...graph.Operand) graph.Operand {
	y := p.op(kind, a, in...)
	if len(p.guard) > 0 || p.Values[y.Value].DType == tensor.Bool {
		return y
	}
	switch p.r.IntN(50) {
	case 0:
		p.output(y)
	case 1:
		p.output(p.op("neg", nil, y))
	case 2:
		s := p.weight(int(p.Values[y.Value].Bytes() / 4))
		p.Values[s.Value].Role = graph.State
		p.Updates = append(p.Updates, graph.StateUpdate{State: s.Value, Operand: y})
	}
	return p.other(y)
}

// other seldom returns another view of what an operand shows.
func (p program) other(o graph.Operand) graph.Operand {
	l := o.Layout
	if !p.often(40) || len(l.Shape) < 2 {
		return o
	}
	a, b := p.r.IntN(len(l.Shape)), p.r.IntN(len(l.Shape))
	if l.Shape[a] != l.Shape[b] {
		return o
	}
	l.Strides = slices.Clone(l.Strides)
	l.Strides[a], l.Strides[b] = l.Strides[b], l.Strides[a]
	if p.often(3) {
		l.Strides[a] = 0
	}
	return graph.Operand{Value: o.Value, Layout: l}
}

// both emits an op of two operands in either order.
func (p program) both(kind graph.Kind, a graph.Attrs, x, y graph.Operand) graph.Operand {
	if p.often(2) {
		x, y = y, x
	}
	return p.emit(kind, a, x, y)
}

func (p program) mul(x, y graph.Operand) graph.Operand { return p.both("mul", nil, x, y) }

func (p program) add(x, y graph.Operand) graph.Operand {
	switch p.r.IntN(10) {
	case 0:
		return p.both("add", graph.Attrs{"alpha": 2.0}, x, y)
	case 1:
		return p.both("add", graph.Attrs{"alpha": 1.0}, x, y)
	}
	return p.both("add", nil, x, y)
}

// like is a number everywhere in the shape of an operand, now and then one of several that lie in one constant.
func (p program) like(o graph.Operand, x float32) graph.Operand {
	shape := o.Layout.Shape
	if p.often(20) {
		x *= []float32{1.01, 0.5, -1}[p.r.IntN(3)]
	}
	if p.often(3) {
		id := p.AddConst(tensor.Of([]float32{7, x, -x, 0.5, 2}, 5))
		strides := make([]int, len(shape))
		if n := len(shape); p.often(10) && n > 0 && shape[n-1] <= edge {
			strides[n-1] = 1
		}
		return view(graph.Operand{Value: id}, 1, shape, strides)
	}
	return p.number(x, shape...)
}

// row repeats what has one dimension along a dimension of a shape, mostly the right one.
func (p program) row(v graph.Operand, dim int, shape ...int) graph.Operand {
	if p.often(6) {
		if d := p.r.IntN(len(shape)); shape[d] == shape[dim] {
			dim = d
		}
	}
	return along(v, dim, shape...)
}

// norm is an RMS norm as programs write it.
func (p program) norm() graph.Operand {
	x, z := p.input(edge, edge, edge), p.input(edge, edge, edge)
	of := p.one(x, x, x, x, x, z)
	var square graph.Operand
	switch p.r.IntN(5) {
	case 0:
		square = p.emit("square", nil, of)
	case 1, 2:
		square = p.emit("pow", nil, of, p.number([]float32{2, 2, 3}[p.r.IntN(3)], edge, edge, edge))
	default:
		square = p.emit("mul", nil, of, p.one(of, of, of, z))
	}
	kind, dim := graph.Kind("mean"), 2
	if p.often(8) {
		kind = "sum"
	}
	if p.often(5) {
		dim = p.r.IntN(3)
	}
	mean := p.op(kind, graph.Attrs{"dims": []int{dim}, "keepdim": true, "dtype": tensor.Float32}, square)
	eps := p.number([]float32{1e-5, 0.25}[p.r.IntN(2)], mean.Layout.Shape...)
	root := p.add(mean, eps)
	switch p.r.IntN(4) {
	case 0:
		root = p.emit("pow", nil, root, p.number([]float32{-0.5, -0.5, -1}[p.r.IntN(3)], root.Layout.Shape...))
	default:
		root = p.emit("rsqrt", nil, root)
	}
	strides := []int{edge, 1, 0}
	if dim == 1 && p.often(2) {
		strides = []int{edge, 0, 1}
	}
	y := p.mul(x, view(root, 0, []int{edge, edge, edge}, strides))
	if p.often(3) {
		return y
	}
	return p.mul(y, p.row(p.weight(edge), 2, edge, edge, edge))
}

// activation is one that is written out.
func (p program) activation() graph.Operand {
	x := p.input(edge, edge)
	if p.often(2) {
		x = p.emit("linear", nil, x, p.weight(edge, edge), p.weight(edge))
	}
	of := func() graph.Operand {
		if p.often(30) {
			return p.input(edge, edge)
		}
		return p.other(x)
	}
	n := func(v float32) graph.Operand { return p.like(x, v) }
	switch p.r.IntN(5) {
	case 0:
		return p.mul(of(), p.emit("sigmoid", nil, of()))
	case 1:
		one := p.add(p.emit("exp", nil, p.emit("neg", nil, of())), n(1))
		return p.emit("div", nil, of(), one)
	case 2:
		e := p.emit("erf", nil, p.emit("div", nil, of(), n(math.Sqrt2)))
		return p.mul(p.mul(of(), n(0.5)), p.add(e, n(1)))
	case 3:
		cube := p.mul(p.emit("pow", nil, of(), n(3)), n(0.044715))
		inner := p.mul(p.add(of(), cube), n(0.7978845608))
		return p.mul(p.mul(n(0.5), of()), p.add(p.emit("tanh", nil, inner), n(1)))
	}
	limited := p.emit("clamp", graph.Attrs{"min": 0.0, "max": 6.0}, p.add(of(), n(3)))
	if p.often(2) {
		return p.emit("div", nil, limited, n(6))
	}
	return p.emit("div", nil, p.mul(of(), limited), n(6))
}

// attention is written out, over heads of edge queries and keys.
func (p program) attention() graph.Operand {
	q, k, v := p.input(edge, edge, edge), p.input(edge, edge, edge), p.input(edge, edge, edge)
	if p.often(3) {
		q = p.mul(q, p.like(q, 0.5))
	}
	multiply := func(a, b graph.Operand) graph.Operand {
		switch p.r.IntN(16) {
		case 0:
			return p.emit("matmul", graph.Attrs{"alpha": 3.0, "beta": 1.0}, a, b)
		case 1:
			return p.emit("matmul", product, a, b, p.input(edge, edge, edge))
		}
		return p.emit("matmul", product, a, b)
	}
	turned := view(k, 0, []int{edge, edge, edge}, []int{edge * edge, 1, edge})
	scores := multiply(q, p.one(turned, turned, turned, k))
	for range p.r.IntN(4) {
		switch p.r.IntN(4) {
		case 0:
			scores = p.mul(scores, p.like(scores, 0.75))
		case 1:
			scores = p.emit("div", nil, scores, p.like(scores, 1.5))
		default:
			scores = p.add(scores, p.mask())
		}
	}
	dim := 2
	if p.often(8) {
		dim = 1
	}
	a := softmax(dim)
	a["safe"] = p.often(2)
	return multiply(p.emit("softmax", a, scores), v)
}

// mask is a mask for all heads or for each, perhaps one under which a query sees nothing.
func (p program) mask() graph.Operand {
	low := float32(math.Inf(-1))
	if p.often(2) {
		low = -math.MaxFloat32
	}
	switch p.r.IntN(3) {
	case 0:
		m := make([]float32, edge*edge)
		for i := range m {
			m[i] = []float32{0, 0.5, low}[p.r.IntN(3)]
		}
		for i := range edge {
			m[edge+i] = low
		}
		o := p.Whole(p.AddConst(tensor.Of(m, edge, edge)))
		return view(o, 0, []int{edge, edge, edge}, []int{0, edge, 1})
	case 1:
		return view(p.input(edge, edge), 0, []int{edge, edge, edge}, []int{edge, 0, 1})
	}
	return p.input(edge, edge, edge)
}

// repeated is attention over keys and values that groups of queries share.
func (p program) repeated() graph.Operand {
	q, k, v := p.input(2, edge, edge, edge), p.input(2, 2, edge, edge), p.input(2, 2, edge, edge)
	repeat := func(o graph.Operand) graph.Operand {
		strides := []int{2 * edge * edge, edge * edge, 0, edge, 1}
		if p.often(5) {
			strides = []int{2 * edge * edge, 0, edge * edge, edge, 1}
		}
		return shaped(p.emit("copy", nil, view(o, 0, []int{2, 2, 2, edge, edge}, strides)), 2, edge, edge, edge)
	}
	in := []graph.Operand{q, repeat(k), repeat(v)}
	if p.often(4) {
		in[2] = p.input(2, edge, edge, edge)
	}
	if p.often(2) {
		strides := [][]int{{16, 0, 4, 1}, {0, 16, 4, 1}, {0, 0, 4, 1}}[p.r.IntN(3)]
		in = append(in, view(p.input(edge, edge, edge), 0, []int{2, edge, edge, edge}, strides))
	}
	a := graph.Attrs{"scale": 0.5, "is_causal": p.often(3), "also": ""}
	return p.emit("scaled_dot_product_attention", a, in...)
}

// rotary turns halves of rows.
func (p program) rotary(d tensor.DType) graph.Operand {
	given := func() graph.Operand {
		x := p.input(edge, edge, edge)
		if d != tensor.Float32 {
			x = p.op("cast", graph.Attrs{"dtype": d}, x)
		}
		return x
	}
	x, cos, sin := given(), given(), given()
	dim, stride := 2, edge
	if p.often(8) {
		dim = 1
	}
	if p.often(4) { // windows, two elements after each other
		stride, dim = 2, 1
		x = view(x, 0, []int{edge, edge, edge}, []int{edge * edge, stride, 1})
	}
	half := func(n int) graph.Operand {
		o := view(x, 2*n, []int{edge, edge, 2}, []int{edge * edge, stride, 1})
		if dim == 1 {
			o = view(x, 2*n, []int{edge, 2, edge}, []int{edge * edge, edge, 1})
		}
		return o
	}
	second, first := half(1), half(0)
	if p.often(6) {
		second.Value = given().Value
	}
	if p.often(6) {
		second, first = first, second
	}
	kind := graph.Kind("neg")
	if p.often(8) {
		kind = "abs"
	}
	turned := p.emit("cat", graph.Attrs{"dim": dim}, p.emit(kind, nil, second), first)
	y := p.add(p.mul(x, cos), p.mul(turned, sin))
	if d != tensor.Float32 {
		y = p.op("cast", graph.Attrs{"dtype": tensor.Float32}, y)
	}
	return y
}

// ends are what comes behind a convolution or a linear layer, in any order.
func (p program) ends(y, x graph.Operand) graph.Operand {
	shape := y.Layout.Shape
	for range p.r.IntN(5) {
		switch p.r.IntN(8) {
		case 0, 1:
			if len(shape) < 3 {
				continue
			}
			eps := graph.Attrs{"eps": []float64{1e-3, 0.5}[p.r.IntN(2)]}
			in := y
			if p.often(5) {
				in = shaped(y, edge*edge, edge, edge)
			}
			y = p.emit("batch_norm", eps, in, p.weight(edge), p.weight(edge), p.weight(edge), p.weight(edge))
			y = shaped(y, shape...)
		case 2, 3:
			z := p.input(shape...)
			others := []graph.Operand{x, p.other(x), z, z, y, p.row(p.input(edge), len(shape)-1, shape...)}
			y = p.add(y, p.one(others...))
		case 4:
			y = p.emit("leaky_relu", graph.Attrs{"slope": 0.25}, y)
		case 5:
			most := []float64{6, 7, math.Inf(1)}[p.r.IntN(3)]
			y = p.emit("clamp", graph.Attrs{"min": []float64{0, 0, -0.5}[p.r.IntN(3)], "max": most}, y)
		case 6:
			a := graph.Attrs{"alpha": 0.5, "scale": []float64{1, 1.5}[p.r.IntN(2)], "input_scale": []float64{1, 2}[p.r.IntN(2)]}
			y = p.emit("elu", a, y)
		case 7:
			y = p.emit("gelu", graph.Attrs{"approximate": []string{"none", "tanh"}[p.r.IntN(2)]}, y)
		}
	}
	return y
}

func (p program) conv2d() graph.Operand {
	x := p.input(edge, edge, edge, edge)
	return p.ends(p.other(p.sketch.conv(x, edge, false)), x)
}

// dense is a linear layer of floats of 32 bits or of int8 with scales.
func (p program) dense() graph.Operand {
	x := p.input(edge, edge)
	if p.often(2) {
		return p.ends(p.emit("linear", nil, x, p.weight(edge, edge), p.weight(edge)), x)
	}
	raw := scaledSketch{p.sketch, tensor.Float32}.bytes(edge, edge)
	if p.often(6) {
		raw = p.op("cast", graph.Attrs{"dtype": tensor.Int8}, p.mul(p.input(edge, edge), p.number(20, edge, edge)))
	}
	w := p.op("cast", graph.Attrs{"dtype": tensor.Float32}, raw)
	if p.often(2) {
		w = p.mul(w, p.row(p.weight(edge), p.r.IntN(2), edge, edge))
	}
	var y graph.Operand
	switch p.r.IntN(3) {
	case 0:
		alpha := []float64{1, 1, 1, 2}[p.r.IntN(4)]
		y = p.emit("matmul", graph.Attrs{"alpha": alpha, "beta": 1.0}, x, p.one(w, transposed(w)))
	case 1:
		y = p.emit("linear", nil, x, w, p.weight(edge))
	default:
		y = p.emit("linear", nil, x, w)
	}
	if p.often(2) {
		y = p.mul(y, p.row(p.weight(edge), 1, edge, edge))
	}
	for range p.r.IntN(3) {
		y = p.add(y, p.row(p.weight(edge), 1, edge, edge))
	}
	return p.ends(y, x)
}

// narrow is a linear layer and elementwise ops in half precision, which rounds after each.
func (p program) narrow() graph.Operand {
	d := []tensor.DType{tensor.Float16, tensor.BFloat16}[p.r.IntN(2)]
	cast := func(o graph.Operand, d tensor.DType) graph.Operand {
		return p.op("cast", graph.Attrs{"dtype": d}, o)
	}
	x, z := cast(p.input(edge, edge), d), cast(p.input(edge, edge), d)
	y := p.op("linear", nil, x, cast(p.weight(edge, edge), d), cast(p.weight(edge), d))
	for range 1 + p.r.IntN(4) {
		switch p.r.IntN(4) {
		case 0:
			y = p.op("add", nil, y, p.one(x, z))
		case 1:
			y = p.op("mul", nil, y, p.one(x, z))
		case 2:
			y = p.op("exp", nil, p.op("clamp", graph.Attrs{"min": -2.0, "max": 2.0}, y))
		default:
			y = p.op("mul", nil, y, p.op("sigmoid", nil, y))
		}
	}
	return cast(y, tensor.Float32)
}

// soup is many small ops of few operands, views of them and constants: some compute the same, some nearly.
func (p program) soup() graph.Operand {
	whole := p.input(2*edge, edge)
	list := []graph.Operand{
		view(whole, 0, []int{edge, edge}, []int{edge, 1}), view(whole, edge, []int{edge, edge}, []int{edge, 1}),
		view(whole, 0, []int{edge, edge}, []int{1, edge}), p.number(0.5, edge, edge),
	}
	one := p.AddConst(&tensor.Tensor{DType: tensor.Int32, Layout: tensor.Contiguous(), Data: []byte{0, 0, 0, 0x3f}})
	flat := view(graph.Operand{Value: one}, 0, []int{edge, edge}, []int{0, 0})
	list = append(list, p.op("mul", nil, p.op("cast", graph.Attrs{"dtype": tensor.Float32}, flat), p.number(1e-9, edge, edge)))
	pick := func() graph.Operand { return list[max(p.r.IntN(len(list)), p.r.IntN(len(list)))] }
	if p.often(4) { // more than a chain may have
		y := pick()
		for k := range 40 {
			if p.often(2) && k < 25 {
				y = p.op("sub", nil, y, p.input(edge, edge))
			}
			y = p.op("leaky_relu", graph.Attrs{"slope": 0.5}, y)
		}
		list = append(list, y)
	}
	for range 4 + p.r.IntN(30) {
		var y graph.Operand
		switch p.r.IntN(8) {
		case 0:
			y = p.emit("leaky_relu", graph.Attrs{"slope": []float64{0.25, 0.5}[p.r.IntN(2)]}, pick())
		case 1:
			y = p.emit("clamp", graph.Attrs{"min": -1.0, "max": []float64{0.5, 1}[p.r.IntN(2)]}, pick())
		case 2:
			y = p.emit("cumsum", graph.Attrs{"dim": p.r.IntN(2)}, pick())
		case 3:
			a := graph.Attrs{"dim": 1, "k": edge, "largest": p.often(2)}
			ids, err := p.Emit(graph.Standard(), graph.Op{Kind: "topk", Attrs: a, In: []graph.Operand{pick()}, Guard: p.guard})
			if err != nil {
				p.t.Fatal(err)
			}
			index := p.op("cast", graph.Attrs{"dtype": tensor.Float32}, p.Whole(ids[1]))
			y = p.emit("sub", nil, p.Whole(ids[0]), index)
		case 4:
			y = p.emit("where", nil, p.op("lt", nil, pick(), pick()), pick(), pick())
		default:
			kind := []graph.Kind{"sub", "maximum", "add"}[p.r.IntN(3)]
			y = p.emit(kind, nil, pick(), pick())
		}
		list = append(list, y)
	}
	return list[len(list)-1]
}
