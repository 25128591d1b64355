package elements

import (
	"fmt"
	"math"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/models/aten/call"
	"github.com/optimem/optimem/models/aten/cells"
	"github.com/optimem/optimem/tensor"
)

// createTargets are the ops that make tensors from numbers. What PyTorch leaves undefined ("empty") is zero here.
var createTargets = func() []call.Overload {
	const (
		factory = "ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None"
		like    = ", *, " + factory + ", MemoryFormat? memory_format=None) -> Tensor"
		made    = ", *, " + factory + ") -> Tensor"
		indices = "(int row, int col, int offset=0, *, ScalarType? dtype=4, Layout? layout=None, " +
			"Device? device=None, bool? pin_memory=None) -> Tensor"
	)
	all := []call.Overload{
		call.One("aten::full(SymInt[] size, Scalar fill_value"+made, func(c *call.Call) (*cells.Ref, error) {
			n := c.Number("fill_value")
			return filledSize(c, n, cells.NumberDType(n))
		}),
		call.One("aten::full_like(Tensor self, Scalar fill_value"+like, func(c *call.Call) (*cells.Ref, error) {
			return filledLike(c, c.Number("fill_value"))
		}),
		call.One("aten::new_full(Tensor self, SymInt[] size, Scalar fill_value"+made,
			func(c *call.Call) (*cells.Ref, error) {
				return filledSize(c, c.Number("fill_value"), c.Tensor("self").DType())
			}),
		call.One("aten::scalar_tensor(Scalar s"+made, func(c *call.Call) (*cells.Ref, error) {
			return c.Filled(c.Number("s"), c.DType("dtype", cells.DefaultFloat), tensor.Shape{})
		}),
		call.One("aten::empty.memory_format(SymInt[] size"+like, filledWith(0)),
		call.One("aten::empty_permuted(SymInt[] size, int[] physical_layout"+made, filledWith(0)),
		call.One("aten::empty_strided(SymInt[] size, SymInt[] stride"+made, filledWith(0)),
		call.One("aten::new_empty_strided(Tensor self, SymInt[] size, SymInt[] stride"+made, filledWith(0)),
		call.One("aten::arange(Scalar end"+made,
			func(c *call.Call) (*cells.Ref, error) { return arange(c, 0, c.Number("end"), 1) }),
		call.One("aten::arange.start(Scalar start, Scalar end"+made, func(c *call.Call) (*cells.Ref, error) {
			return arange(c, c.Number("start"), c.Number("end"), 1)
		}),
		call.One("aten::arange.start_step(Scalar start, Scalar end, Scalar step=1"+made,
			func(c *call.Call) (*cells.Ref, error) {
				return arange(c, c.Number("start"), c.Number("end"), c.Number("step"))
			}),
		call.One("aten::linspace(Scalar start, Scalar end, int steps"+made, linspace),
		call.One("aten::eye(SymInt n"+made, func(c *call.Call) (*cells.Ref,
			error) {
			return eye(c, c.Int("n"), c.Int("n"))
		}),
		call.One("aten::eye.m(SymInt n, SymInt m"+made,
			func(c *call.Call) (*cells.Ref, error) { return eye(c, c.Int("n"), c.Int("m")) }),
		call.One("aten::tril_indices"+indices,
			func(c *call.Call) (*cells.Ref, error) { return triangleIndices(c, false) }),
		call.One("aten::triu_indices"+indices,
			func(c *call.Call) (*cells.Ref, error) { return triangleIndices(c, true) }),
	}
	for name, value := range map[string]cells.Number{"zeros": 0, "ones": 1, "empty": 0} {
		f := filledWith(value)
		if name != "empty" {
			all = append(all, call.One("aten::"+name+"(SymInt[] size"+made, f))
		}
		all = append(all, call.One("aten::new_"+name+"(Tensor self, SymInt[] size"+made, f))
		all = append(all, call.One("aten::"+name+"_like(Tensor self"+like, func(c *call.Call) (*cells.Ref, error) {
			return filledLike(c, value)
		}))
	}
	for name, kind := range map[string]graph.Kind{"tril": "tril", "triu": "triu"} {
		all = append(all, call.Twins("aten::"+name+"(Tensor self, SymInt diagonal=0) -> Tensor",
			func(c *call.Call) (*cells.Ref, error) {
				return c.Apply(kind, graph.Attrs{"diagonal": c.Int("diagonal")}, c.Tensor("self"))
			})...)
	}
	all = append(all, call.Twins("aten::fill.Scalar(Tensor self, Scalar value) -> Tensor", fill)...)
	all = append(all, call.Twins("aten::fill.Tensor(Tensor self, Tensor value) -> Tensor", fill)...)
	return append(all, call.Twins("aten::zero(Tensor self) -> Tensor", func(c *call.Call) (*cells.Ref, error) {
		x := c.Tensor("self")
		return c.Filled(0, x.DType(), x.Shape())
	})...)
}()

// filledWith is the meaning of ops that fill "size" with a number, in the dtype asked for, else that of a tensor
// "self", else the default.
func filledWith(n cells.Number) call.Meaning {
	return func(c *call.Call) (*cells.Ref, error) {
		d := tensor.DType(cells.DefaultFloat)
		if c.Has("self") {
			d = c.Tensor("self").DType()
		}
		return filledSize(c, n, d)
	}
}

// filledSize returns a tensor of argument "size".
func filledSize(c *call.Call, n cells.Number, other tensor.DType) (*cells.Ref, error) {
	shape := tensor.Shape(append([]int{}, c.Ints("size")...))
	if _, err := shape.NumElements(); err != nil {
		return nil, err
	}
	return c.Filled(n, c.DType("dtype", other), shape)
}

// filledLike returns a tensor of the shape of "self".
func filledLike(c *call.Call, n cells.Number) (*cells.Ref, error) {
	x := c.Tensor("self")
	return c.Filled(n, c.DType("dtype", x.DType()), x.Shape())
}

// fill returns "value" in self's dtype and shape.
func fill(c *call.Call) (*cells.Ref, error) {
	x := c.Tensor("self")
	r, err := c.As(c.Operand("value"), x.DType())
	if err != nil {
		return nil, err
	}
	if cells.NumElements(r.Shape()) != 1 {
		return nil, fmt.Errorf("filled with a tensor of shape %v", r.Shape())
	}
	if r, err = c.Reshape(r, tensor.Shape{}); err != nil {
		return nil, err
	}
	if r, err = c.Expand(r, x.Shape()); err != nil {
		return nil, err
	}
	return c.Copy(r)
}

// arange: start, start + step, … before end. Without a dtype it has the default float's if any number is a float.
func arange(c *call.Call, start, end, step cells.Number) (*cells.Ref, error) {
	d := tensor.DType(tensor.Int64)
	for _, n := range []cells.Number{start, end, step} {
		if _, ok := n.(float64); ok {
			d = cells.DefaultFloat
		}
	}
	d = c.DType("dtype", d)
	first, last, by := cells.FloatOfNumber(start), cells.FloatOfNumber(end), cells.FloatOfNumber(step)
	if by == 0 || (last-first)*by < 0 || math.IsNaN((last-first)/by) {
		return nil, fmt.Errorf("arange from %v to %v by %v", start, end, step)
	}
	count := math.Ceil((last - first) / by)
	if count >= 1<<53 {
		return nil, fmt.Errorf("arange of %v elements", count)
	}
	attrs := graph.Attrs{"start": first, "step": by, "size": int(count), "dtype": d}
	if !cells.IsFloat(d) { // the numbers are truncated, the count is not that of the truncated ones
		attrs["start"], attrs["step"] = integerOf(start), integerOf(step)
	}
	return c.Emit1("arange", attrs)
}

// integerOf returns a number truncated.
func integerOf(n cells.Number) int {
	if k, ok := n.(int); ok {
		return k
	}
	return int(cells.Truncate(cells.FloatOfNumber(n)))
}

func linspace(c *call.Call) (*cells.Ref, error) {
	d := c.DType("dtype", cells.DefaultFloat)
	start, end := c.Float("start"), c.Float("end")
	if !cells.IsFloat(d) {
		start, end = wrapInteger(start, d), wrapInteger(end, d)
	}
	return c.Emit1("linspace", graph.Attrs{"start": start, "end": end, "steps": c.Int("steps"), "dtype": d})
}

// wrapInteger returns a number as an integer dtype holds it.
func wrapInteger(x float64, d tensor.DType) float64 {
	n := cells.Truncate(x)
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

func eye(c *call.Call, rows, columns int) (*cells.Ref, error) {
	return c.Emit1("eye", graph.Attrs{"rows": rows, "columns": columns, "dtype": c.DType("dtype", cells.DefaultFloat)})
}

func triangleIndices(c *call.Call, upper bool) (*cells.Ref, error) {
	d := tensor.DType(tensor.Int64)
	if c.Args["dtype"] != 4 { // the schema's default is PyTorch's number of int64
		d = c.DType("dtype", d)
	}
	return c.Emit1("triangle_indices", graph.Attrs{
		"rows": c.Int("row"), "columns": c.Int("col"), "offset": c.Int("offset"), "upper": upper, "dtype": d,
	})
}
