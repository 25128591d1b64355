package torchscript

import (
	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/tensor"
)

// tensorFuncs take a tensor first: what asks for its shape, and what takes its contents.
var tensorFuncs map[string]builtin

func init() {
	tensorFuncs = map[string]builtin{
		"aten::size":  size,
		"prim::shape": size,
		"aten::_shape_as_tensor": func(c *invocation) (any, bool) {
			if d, _ := c.rows(c.tensor()); d >= 0 {
				return &countedList{c.sizes(c.tensor())}, true
			}
			shape := c.tensor().Shape()
			return c.newConstant(c.ints(shape).elems, tensor.Shape{len(shape)}, tensor.Int64), true
		},
		"aten::dim":   func(c *invocation) (any, bool) { return len(c.tensor().Shape()), true },
		"prim::ndim":  func(c *invocation) (any, bool) { return len(c.tensor().Shape()), true },
		"aten::numel": func(c *invocation) (any, bool) { return c.elementCount(c.tensor()), true },
		"prim::nbytes": func(c *invocation) (any, bool) {
			c.certain(c.tensor())
			return c.elementsOf(c.tensor()) * c.tensor().DType().Size(), true
		},
		"aten::len": func(c *invocation) (any, bool) {
			sizes := c.sizes(c.tensor())
			if len(sizes) == 0 {
				c.fail("len of a tensor without dimensions")
			}
			return sizes[0], true
		},
		"aten::stride":         stride,
		"aten::storage_offset": func(c *invocation) (any, bool) { return c.layout(c.tensor()).Offset, true },
		"aten::is_contiguous": func(c *invocation) (any, bool) {
			l := c.layout(c.tensor())
			return l.IsContiguous(), len(c.args) == 1
		},
		"aten::element_size":      func(c *invocation) (any, bool) { return c.tensor().DType().Size(), true },
		"prim::itemsize":          func(c *invocation) (any, bool) { return c.tensor().DType().Size(), true },
		"aten::is_floating_point": func(c *invocation) (any, bool) { return isFloat(c.tensor().DType()), true },
		"aten::is_complex":        func(c *invocation) (any, bool) { return isComplex(c.tensor().DType()), true },
		"aten::is_signed":         func(c *invocation) (any, bool) { return !isUnsigned(c.tensor().DType()), true },
		"aten::is_same_size":      sameSize,
		"aten::is_inference":      never,
		"aten::is_conj":           never,
		"aten::is_neg":            never,
		"aten::retains_grad":      never,
		"aten::get_device":        func(*invocation) (any, bool) { return -1, true },
		"prim::dtype":             func(c *invocation) (any, bool) { return c.dtypeNumber(c.tensor().DType()), true },
		"prim::device":            func(*invocation) (any, bool) { return device("cpu"), true },
		"prim::layout":            func(*invocation) (any, bool) { return 0, true },
		"prim::requires_grad":     never,
		"prim::is_leaf":           func(*invocation) (any, bool) { return true, true },
		"prim::is_cuda":           never,
		"prim::is_cpu":            func(*invocation) (any, bool) { return true, true },
		"prim::is_xpu":            never,
		"prim::is_xla":            never,
		"prim::is_mtia":           never,
		"prim::is_ipu":            never,
		"prim::is_mps":            never,
		"prim::is_maia":           never,
		"prim::is_vulkan":         never,
		"prim::is_meta":           never,
		"prim::is_sparse":         never,
		"prim::is_sparse_csr":     never,
		"prim::is_mkldnn":         never,
		"prim::is_quantized":      never,
		"prim::is_nested":         never,
		"prim::data":              same,
		"prim::grad":              ignored,
		"prim::name":              ignored,
		"aten::cpu":               same,
		"aten::requires_grad_":    same,
		"aten::item":              item,
		"aten::ScalarImplicit":    item,
		"aten::Int":               func(c *invocation) (any, bool) { return c.toInt(c.mustItem("int(Tensor)")), true },
		"aten::IntImplicit":       func(c *invocation) (any, bool) { return c.toInt(c.mustItem("int(Tensor)")), true },
		"aten::Float":             toFloat,
		"aten::FloatImplicit":     toFloat,
		"aten::Bool":              func(c *invocation) (any, bool) { return c.truth(c.tensor()), true },
		"aten::is_nonzero":        func(c *invocation) (any, bool) { return c.truth(c.tensor()), true },
		"prim::tolist":            func(c *invocation) (any, bool) { return c.tolist(c.tensor()), true },
		"aten::to":                convert,
	}

}

// tensor is the tensor that a function is called on.
func (c *invocation) tensor() layers.Tensor { return c.args[0].(layers.Tensor) }

// layout returns where the elements of a tensor lie whose sizes are all known.
func (c *invocation) layout(t layers.Tensor) tensor.Layout {
	c.certain(t)
	return c.rec.Layout(t)
}

func (m *machine) elementsOf(t layers.Tensor) int {
	n, err := t.Shape().NumElements()
	if err != nil {
		m.fail("%v", err)
	}
	return int(n)
}

// size is x.size() or x.size(dim).
func size(c *invocation) (any, bool) {
	sizes := c.sizes(c.tensor())
	if d, ok := c.arg(1, "dim"); ok {
		n, isInt := d.(int)
		if !isInt {
			c.wrong("dim", d)
		}
		return sizes[c.dim(n, len(sizes))], true
	}
	return &list{elems: sizes}, true
}

func stride(c *invocation) (any, bool) {
	strides := c.layout(c.tensor()).Strides
	if _, ok := c.arg(1, "dim"); ok {
		return strides[c.dim(c.int(1, "dim"), len(strides))], true
	}
	return c.ints(strides), true
}

func (m *machine) ints(values []int) *list {
	m.grow(len(values))
	l := &list{elems: make([]any, len(values))}
	for i, n := range values {
		l.elems[i] = n
	}
	return l
}

// dim counts a dimension from the front.
func (m *machine) dim(d, rank int) int {
	if d < -rank || d >= rank {
		m.fail("dimension %d of a tensor of rank %d", d, rank)
	}
	if d < 0 {
		d += rank
	}
	return d
}

func sameSize(c *invocation) (any, bool) {
	other, ok := c.must(1, "other").(layers.Tensor)
	c.certain(c.tensor())
	if ok {
		c.certain(other)
	}
	return ok && c.tensor().Shape().Equal(other.Shape()), ok
}

// item is x.item().
func item(c *invocation) (any, bool) { return c.mustItem(c.short()), true }

func toFloat(c *invocation) (any, bool) {
	x, ok := number(c.mustItem("float(Tensor)"))
	return real(x), ok
}

// mustItem returns the one element of the tensor that a function is called on.
func (c *invocation) mustItem(what string) any {
	v, ok := c.item(c.tensor())
	if !ok {
		c.unsupported(what, onData)
	}
	return v
}

// truth is bool(x).
func (m *machine) truth(t layers.Tensor) bool {
	v, ok := m.item(t)
	if !ok {
		m.unsupported("bool(Tensor)", branchesOnData)
	}
	x, _ := number(v)
	return x != 0
}

// item returns the one element of a tensor, where it is known before a run.
func (m *machine) item(t layers.Tensor) (any, bool) {
	if d, _ := m.rows(t); d >= 0 {
		return nil, false
	}
	if n := m.elementsOf(t); n != 1 {
		m.fail("a tensor of %d elements as a number", n)
	}
	known := m.known(t)
	if known == nil {
		return nil, false
	}
	return decode(known, known.Layout.Offset)
}

// known returns the contents of a tensor, nil where they depend on inputs.
func (m *machine) known(t layers.Tensor) *tensor.Tensor {
	x, err := m.rec.Known(t)
	if err != nil {
		panic(failure{err})
	}
	return x
}

// tolist is x.tolist(): nested lists of numbers.
func (m *machine) tolist(t layers.Tensor) any {
	x := m.known(t)
	if x == nil {
		m.unsupported("Tensor.tolist", onData)
	}
	m.grow(2 * m.elementsOf(t))
	var build func(d, at int) any
	build = func(d, at int) any {
		if d == len(x.Layout.Shape) {
			v, ok := decode(x, at)
			if !ok {
				m.unsupported("Tensor.tolist", "of "+x.DType.String())
			}
			return v
		}
		l := &list{}
		for i := range x.Layout.Shape[d] {
			l.elems = append(l.elems, build(d+1, at+i*x.Layout.Strides[d]))
		}
		return l
	}
	return build(0, x.Layout.Offset)
}

// numToTensor makes a tensor of a number: a size that traced code computes with.
func numToTensor(c *invocation) (any, bool) {
	v := c.must(0, "a")
	d := tensor.Float64
	switch v.(type) {
	case layers.Tensor:
		return v, true
	case int:
		d = tensor.Int64
	case bool:
		d = tensor.Bool
	case float64:
	default:
		c.wrong("a", v)
	}
	return c.scalar(v, d), true
}

// scalar makes a tensor without dimensions.
func (m *machine) scalar(v any, d tensor.DType) layers.Tensor {
	return m.newConstant([]any{v}, tensor.Shape{}, d)
}

// newConstant makes a tensor of known contents.
func (m *machine) newConstant(values []any, shape tensor.Shape, d tensor.DType) layers.Tensor {
	m.charge(opBytes + int64(len(values)*d.Size()))
	x := &tensor.Tensor{DType: d, Layout: tensor.Contiguous(shape...), Data: make([]byte, len(values)*d.Size())}
	for i, v := range values {
		if !encode(x, i, v) {
			m.unsupported("a tensor of "+d.String()+" of "+kindOf(v), "constants of that type are not made")
		}
	}
	t, err := m.rec.Constant(x)
	if err != nil {
		panic(failure{err})
	}
	return t
}

// newTensor is torch.tensor(data, dtype=…): of a number, or of nested lists of numbers.
func newTensor(c *invocation) (any, bool) {
	data := c.must(0, "data")
	if t, ok := data.(layers.Tensor); ok {
		args := []any{t}
		if d, ok := c.named["dtype"]; ok && d != nil {
			return c.op("aten::to", append(args, d), nil), true
		}
		if c.name == "aten::tensor" {
			return c.op("aten::clone", args, nil), true
		}
		return t, true
	}
	var values []any
	shape := tensor.Shape{}
	c.flatten(data, 0, &shape, &values)
	d := tensor.Bool
	if len(values) == 0 {
		d = tensor.Float32
	}
	for _, v := range values {
		switch v.(type) {
		case int:
			if d == tensor.Bool {
				d = tensor.Int64
			}
		case float64:
			d = tensor.Float32
		}
	}
	if v, ok := c.arg(1, "dtype"); ok && v != nil {
		d = c.dtype(v)
	}
	return c.newConstant(values, shape, d), true
}

// flatten lists the numbers of nested lists and measures the lists.
func (m *machine) flatten(v any, depth int, shape *tensor.Shape, values *[]any) {
	l, ok := v.(*list)
	if !ok {
		if depth != len(*shape) {
			m.fail("lists of different depth are no tensor")
		}
		if t, ok := v.(layers.Tensor); ok {
			n, known := m.item(t)
			if !known {
				m.unsupported("torch.tensor of a list with a tensor", onData)
			}
			v = n
		}
		m.grow(1)
		*values = append(*values, v)
		return
	}
	if depth > maxTextDepth {
		m.limit("lists nested more than %d deep", maxTextDepth)
	}
	switch {
	case depth < len(*shape) && (*shape)[depth] != len(l.elems):
		m.fail("lists of different length are no tensor")
	case depth == len(*shape) && len(*values) > 0:
		m.fail("lists of different depth are no tensor")
	case depth == len(*shape):
		*shape = append(*shape, len(l.elems))
	}
	m.tick(1)
	for _, e := range l.elems {
		m.flatten(e, depth+1, shape, values)
	}
}

// convert is x.to(…) in its many forms: to a dtype, a device, another tensor's, or both.
func convert(c *invocation) (any, bool) {
	var dtype any
	rest := c.args[1:]
	if len(rest) > 0 {
		switch first := rest[0].(type) {
		case layers.Tensor: // to(other, non_blocking, copy)
			dtype, rest = c.dtypeNumber(first.DType()), rest[1:]
		case device: // to(device, dtype, non_blocking, copy)
			rest = rest[1:]
			if len(rest) > 0 {
				if _, isFlag := rest[0].(bool); !isFlag {
					dtype, rest = rest[0], rest[1:]
				}
			}
		case int: // to(dtype, non_blocking, copy)
			dtype, rest = first, rest[1:]
		case nil:
			rest = rest[1:]
			if len(rest) > 0 {
				if n, isInt := rest[0].(int); isInt {
					dtype, rest = n, rest[1:]
				}
			}
		}
	}
	copied := c.named["copy"] == true || len(rest) > 1 && rest[1] == true
	for name, v := range c.named {
		switch name {
		case "dtype":
			dtype = v
		case "other":
			if t, ok := v.(layers.Tensor); ok {
				dtype = c.dtypeNumber(t.DType())
			}
		}
	}
	if dtype == nil {
		if copied {
			return c.op("aten::clone", c.args[:1], nil), true
		}
		return c.args[0], true
	}
	d := c.dtype(dtype)
	if d == c.tensor().DType() && !copied {
		return c.args[0], true
	}
	if v, ok := c.fold("aten::to", []any{c.args[0], c.dtypeNumber(d)}, nil); ok {
		return v, true
	}
	return c.op("aten::to.dtype", []any{c.args[0], c.dtypeNumber(d), false, copied}, nil), true
}
