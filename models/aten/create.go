package aten

import (
	"fmt"
	"math"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// createTargets are the ops that make tensors from numbers. What PyTorch leaves undefined ("empty") is zero here.
var createTargets = func() []atenOp {
	const (
		factory = "ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None"
		like    = ", *, " + factory + ", MemoryFormat? memory_format=None) -> Tensor"
		made    = ", *, " + factory + ") -> Tensor"
		indices = "(int row, int col, int offset=0, *, ScalarType? dtype=4, Layout? layout=None, " +
			"Device? device=None, bool? pin_memory=None) -> Tensor"
	)
	all := []atenOp{
		op("aten::full(SymInt[] size, Scalar fill_value"+made, func(c *call) (*Ref, error) {
			n := c.number("fill_value")
			return c.filledSize(n, NumberDType(n))
		}),
		op("aten::full_like(Tensor self, Scalar fill_value"+like, func(c *call) (*Ref, error) {
			return c.filledLike(c.number("fill_value"))
		}),
		op("aten::new_full(Tensor self, SymInt[] size, Scalar fill_value"+made, func(c *call) (*Ref, error) {
			return c.filledSize(c.number("fill_value"), c.tensor("self").dtype)
		}),
		op("aten::scalar_tensor(Scalar s"+made, func(c *call) (*Ref, error) {
			return c.filled(c.number("s"), c.dtype("dtype", defaultFloat), tensor.Shape{})
		}),
		op("aten::empty.memory_format(SymInt[] size"+like, filledWith(0)),
		op("aten::empty_permuted(SymInt[] size, int[] physical_layout"+made, filledWith(0)),
		op("aten::empty_strided(SymInt[] size, SymInt[] stride"+made, filledWith(0)),
		op("aten::new_empty_strided(Tensor self, SymInt[] size, SymInt[] stride"+made, filledWith(0)),
		op("aten::arange(Scalar end"+made, func(c *call) (*Ref, error) { return c.arange(0, c.number("end"), 1) }),
		op("aten::arange.start(Scalar start, Scalar end"+made, func(c *call) (*Ref, error) {
			return c.arange(c.number("start"), c.number("end"), 1)
		}),
		op("aten::arange.start_step(Scalar start, Scalar end, Scalar step=1"+made, func(c *call) (*Ref, error) {
			return c.arange(c.number("start"), c.number("end"), c.number("step"))
		}),
		op("aten::linspace(Scalar start, Scalar end, int steps"+made, linspace),
		op("aten::eye(SymInt n"+made, func(c *call) (*Ref, error) { return c.eye(c.int("n"), c.int("n")) }),
		op("aten::eye.m(SymInt n, SymInt m"+made, func(c *call) (*Ref, error) { return c.eye(c.int("n"), c.int("m")) }),
		op("aten::tril_indices"+indices, func(c *call) (*Ref, error) { return c.triangleIndices(false) }),
		op("aten::triu_indices"+indices, func(c *call) (*Ref, error) { return c.triangleIndices(true) }),
	}
	for name, value := range map[string]number{"zeros": 0, "ones": 1, "empty": 0} {
		f := filledWith(value)
		if name != "empty" {
			all = append(all, op("aten::"+name+"(SymInt[] size"+made, f))
		}
		all = append(all, op("aten::new_"+name+"(Tensor self, SymInt[] size"+made, f))
		all = append(all, op("aten::"+name+"_like(Tensor self"+like, func(c *call) (*Ref, error) {
			return c.filledLike(value)
		}))
	}
	for name, kind := range map[string]graph.Kind{"tril": "tril", "triu": "triu"} {
		all = append(all, twins("aten::"+name+"(Tensor self, SymInt diagonal=0) -> Tensor", func(c *call) (*Ref, error) {
			return c.apply(kind, graph.Attrs{"diagonal": c.int("diagonal")}, c.tensor("self"))
		})...)
	}
	all = append(all, twins("aten::fill.Scalar(Tensor self, Scalar value) -> Tensor", fill)...)
	all = append(all, twins("aten::fill.Tensor(Tensor self, Tensor value) -> Tensor", fill)...)
	return append(all, twins("aten::zero(Tensor self) -> Tensor", func(c *call) (*Ref, error) {
		x := c.tensor("self")
		return c.filled(0, x.dtype, x.shape())
	})...)
}()

// filledWith is the meaning of ops that fill "size" with a number, in the dtype asked for, else that of a tensor
// "self", else the default.
func filledWith(n number) meaning {
	return func(c *call) (*Ref, error) {
		d := tensor.DType(defaultFloat)
		if c.has("self") {
			d = c.tensor("self").dtype
		}
		return c.filledSize(n, d)
	}
}

// filledSize returns a tensor of argument "size".
func (c *call) filledSize(n number, other tensor.DType) (*Ref, error) {
	shape := tensor.Shape(append([]int{}, c.ints("size")...))
	if _, err := shape.NumElements(); err != nil {
		return nil, err
	}
	return c.filled(n, c.dtype("dtype", other), shape)
}

// filledLike returns a tensor of the shape of "self".
func (c *call) filledLike(n number) (*Ref, error) {
	x := c.tensor("self")
	return c.filled(n, c.dtype("dtype", x.dtype), x.shape())
}

// fill returns "value" in self's dtype and shape.
func fill(c *call) (*Ref, error) {
	x := c.tensor("self")
	r, err := c.as(c.operand("value"), x.dtype)
	if err != nil {
		return nil, err
	}
	if NumElements(r.shape()) != 1 {
		return nil, fmt.Errorf("filled with a tensor of shape %v", r.shape())
	}
	if r, err = c.Reshape(r, tensor.Shape{}); err != nil {
		return nil, err
	}
	if r, err = c.expand(r, x.shape()); err != nil {
		return nil, err
	}
	return c.copy(r)
}

// arange: start, start + step, … before end. Without a dtype it has the default float's if any number is a float.
func (c *call) arange(start, end, step number) (*Ref, error) {
	d := tensor.DType(tensor.Int64)
	for _, n := range []number{start, end, step} {
		if _, ok := n.(float64); ok {
			d = defaultFloat
		}
	}
	d = c.dtype("dtype", d)
	first, last, by := floatOfNumber(start), floatOfNumber(end), floatOfNumber(step)
	if by == 0 || (last-first)*by < 0 || math.IsNaN((last-first)/by) {
		return nil, fmt.Errorf("arange from %v to %v by %v", start, end, step)
	}
	count := math.Ceil((last - first) / by)
	if count >= 1<<53 {
		return nil, fmt.Errorf("arange of %v elements", count)
	}
	attrs := graph.Attrs{"start": first, "step": by, "size": int(count), "dtype": d}
	if !IsFloat(d) { // the numbers are truncated, the count is not that of the truncated ones
		attrs["start"], attrs["step"] = integerOf(start), integerOf(step)
	}
	return c.Emit1("arange", attrs)
}

// integerOf returns a number truncated.
func integerOf(n number) int {
	if k, ok := n.(int); ok {
		return k
	}
	return int(truncate(floatOfNumber(n)))
}

func linspace(c *call) (*Ref, error) {
	d := c.dtype("dtype", defaultFloat)
	start, end := c.float("start"), c.float("end")
	if !IsFloat(d) {
		start, end = wrapInteger(start, d), wrapInteger(end, d)
	}
	return c.Emit1("linspace", graph.Attrs{"start": start, "end": end, "steps": c.int("steps"), "dtype": d})
}

// wrapInteger returns a number as an integer dtype holds it.
func wrapInteger(x float64, d tensor.DType) float64 {
	n := truncate(x)
	switch d {
	case tensor.UInt8:
		n = int64(uint8(n))
	case tensor.UInt16:
		n = int64(uint16(n))
	case tensor.UInt32:
		n = int64(uint32(n))
	case tensor.Int8:
		n = int64(int8(n))
	case tensor.Int16:
		n = int64(int16(n))
	case tensor.Int32:
		n = int64(int32(n))
	}
	return float64(n)
}

func (c *call) eye(rows, columns int) (*Ref, error) {
	return c.Emit1("eye", graph.Attrs{"rows": rows, "columns": columns, "dtype": c.dtype("dtype", defaultFloat)})
}

func (c *call) triangleIndices(upper bool) (*Ref, error) {
	d := tensor.DType(tensor.Int64)
	if c.args["dtype"] != 4 { // the schema's default is PyTorch's number of int64
		d = c.dtype("dtype", d)
	}
	return c.Emit1("triangle_indices", graph.Attrs{
		"rows": c.int("row"), "columns": c.int("col"), "offset": c.int("offset"), "upper": upper, "dtype": d,
	})
}
