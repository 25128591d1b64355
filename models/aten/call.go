package aten

import (
	"fmt"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/loader/exported"
	"github.com/optimem/optimem/tensor"
)

// A call is one node of a program with its arguments, defaults filled in. Its methods fetch arguments by their names in
// the schema; the first that is missing or of another type is remembered and fails the call.
type call struct {
	*Builder
	schema schema
	args   map[string]any
	Site
	results []any
	err     error
}

// A Site is what a program tells of the place of a call. The zero Site tells nothing.
type Site struct {
	// Meta is what the program recorded of its values, by name; Names maps tensors to theirs, Symbols are those of sizes
	// and strides.
	Meta    map[string]*exported.TensorMeta
	Names   map[*Ref]string
	Symbols map[string]int64
	// InPlace says that the program writes to tensors, so that it shows what is a view.
	InPlace bool
	// Selects says that what calls takes a [Selection] for a tensor.
	Selects bool
	// Most is the largest size that the program admits for what the call gives, where only data says it; 0 where it does not say.
	Most int
}

// An argument is one of: nil, *ref, []*ref (nil elements are None), int, []int, float64, []float64, bool, []bool, string,
// tensor.DType, complex128, exported.Device, exported.MemoryFormat, exported.Layout, *exported.Graph.

func (c *call) fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf(format, args...)
	}
}

// has reports whether an argument is given and not None.
func (c *call) has(name string) bool { return c.args[name] != nil }

// tensor returns a tensor argument.
func (c *call) tensor(name string) *Ref {
	r := c.optTensor(name)
	if r == nil {
		c.fail("argument %s is not a tensor", name)
		r, _ = c.Scalar(0, tensor.Float32) // a tensor that can be read, so that the caller need not check
	}
	return r
}

// optTensor returns a tensor argument that may be None.
func (c *call) optTensor(name string) *Ref {
	switch v := c.args[name].(type) {
	case nil:
		return nil
	case *Ref:
		return v
	case int, float64, bool, complex128: // a number where the schema says Tensor
		r, err := c.Scalar(v, NumberDType(v))
		if err != nil {
			c.fail("argument %s: %v", name, err)
		}
		return r
	}
	c.fail("argument %s is not a tensor", name)
	return nil
}

// tensors returns a list of tensors, some of which may be nil.
func (c *call) tensors(name string) []*Ref {
	switch v := c.args[name].(type) {
	case nil:
		return nil
	case []*Ref:
		return v
	case *Ref:
		return []*Ref{v}
	}
	c.fail("argument %s is not a list of tensors", name)
	return nil
}

// int returns an integer argument.
func (c *call) int(name string) int {
	switch v := c.args[name].(type) {
	case int:
		return v
	case bool:
		if v {
			return 1
		}
		return 0
	}
	c.fail("argument %s is not an integer", name)
	return 0
}

// optInt returns an integer argument, or other where it is None.
func (c *call) optInt(name string, other int) int {
	if !c.has(name) {
		return other
	}
	return c.int(name)
}

// ints returns a list argument. A bare integer stands for a list of one; an empty default is nil.
func (c *call) ints(name string) []int {
	switch v := c.args[name].(type) {
	case nil:
		return nil
	case []int:
		return v
	case int:
		return []int{v}
	}
	c.fail("argument %s is not a list of integers", name)
	return nil
}

// intsOf returns a list argument of exactly n integers; one integer stands for n equal ones.
func (c *call) intsOf(name string, n int) []int {
	v := c.ints(name)
	if len(v) == 1 && n > 1 {
		out := make([]int, n)
		for i := range out {
			out[i] = v[0]
		}
		return out
	}
	if len(v) != n {
		c.fail("argument %s has %d integers, not %d", name, len(v), n)
		return make([]int, n)
	}
	return v
}

// float returns a number argument as a float.
func (c *call) float(name string) float64 {
	switch v := c.args[name].(type) {
	case float64:
		return v
	case int:
		return float64(v)
	case bool:
		if v {
			return 1
		}
		return 0
	}
	c.fail("argument %s is not a number", name)
	return 0
}

// optFloat returns a number argument, or other where it is None.
func (c *call) optFloat(name string, other float64) float64 {
	if !c.has(name) {
		return other
	}
	return c.float(name)
}

// floats returns a list of numbers, nil where it is None.
func (c *call) floats(name string) []float64 {
	switch v := c.args[name].(type) {
	case nil:
		return nil
	case []float64:
		return v
	case []int:
		out := make([]float64, len(v))
		for i, n := range v {
			out[i] = float64(n)
		}
		return out
	}
	c.fail("argument %s is not a list of numbers", name)
	return nil
}

// number returns a Python number as it is: int, float64, bool or complex128.
func (c *call) number(name string) number {
	switch v := c.args[name].(type) {
	case int, float64, bool, complex128:
		return v
	}
	c.fail("argument %s is not a number", name)
	return 0
}

// bool returns a flag.
func (c *call) bool(name string) bool {
	switch v := c.args[name].(type) {
	case nil:
		return false
	case bool:
		return v
	case int:
		return v != 0
	}
	c.fail("argument %s is not a flag", name)
	return false
}

// str returns a text, "" where it is None.
func (c *call) str(name string) string {
	switch v := c.args[name].(type) {
	case nil:
		return ""
	case string:
		return v
	}
	c.fail("argument %s is not a text", name)
	return ""
}

// dtype returns a dtype argument, or other where it is None.
func (c *call) dtype(name string, other tensor.DType) tensor.DType {
	switch v := c.args[name].(type) {
	case nil:
		return other
	case tensor.DType:
		return v
	}
	c.fail("argument %s is not a dtype", name)
	return other
}

// dim returns a dimension argument as an index into a tensor of the given rank; a 0-dimensional tensor counts as one
// of rank one.
func (c *call) dim(name string, rank int) int { return c.wrapDim(c.int(name), rank) }

// wrapDim returns a dimension counted from the front.
func (c *call) wrapDim(d, rank int) int {
	n := max(rank, 1)
	if d < -n || d >= n {
		c.fail("dimension %d of a tensor of rank %d", d, rank)
		return 0
	}
	if d < 0 {
		d += n
	}
	return d
}

// set gives the results of the call, in the order of the schema: *ref, []*ref, int, float64 or bool.
func (c *call) set(results ...any) { c.results = results }

// give emits an op and makes its results those of the call.
func (c *call) give(kind graph.Kind, attrs graph.Attrs, in ...graph.Operand) error {
	if c.err != nil {
		return c.err
	}
	refs, err := c.Emit(kind, attrs, in...)
	if err != nil {
		return err
	}
	for _, r := range refs {
		c.results = append(c.results, r)
	}
	return nil
}

// giveRef makes r the result of the call, unless an argument was bad.
func (c *call) giveRef(r *Ref, err error) error {
	if c.err != nil {
		return c.err
	}
	if err != nil {
		return err
	}
	c.set(r)
	return nil
}
