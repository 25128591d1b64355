// Package call is one call of an overload: its schema and its arguments.
//
// An [Overload] is a schema in PyTorch's text and a function of a [Call] that says what it means. The function reads
// arguments by their names in the schema, emits ops through the builder of package cells, and sets the results:
//
//	call.One("aten::square(Tensor self) -> Tensor", func(c *call.Call) (*cells.Ref, error) {
//		return c.Combine("mul", nil, c.Tensor("self"), c.Tensor("self"))
//	})
//
// It does not know which overloads there are.
package call

import (
	"fmt"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/loader/exported"
	"github.com/optimem/optimem/models/aten/cells"
	"github.com/optimem/optimem/tensor"
)

// A Call is one node of a program with its arguments, defaults filled in. Its methods fetch arguments by their names in
// the schema; the first that is missing or of another type is remembered and fails the call.
type Call struct {
	*cells.Builder
	Schema Schema
	// Args are the arguments by the names of the schema's parameters.
	Args map[string]any
	Site
	// Results are what [Call.Set] set. Err is what is wrong with an argument, the first that is.
	Results []any
	Err     error
}

// A Site is what a program tells of the place of a call. The zero Site tells nothing.
type Site struct {
	// Meta is what the program recorded of its values, by name; Names maps tensors to theirs, Symbols are those of sizes
	// and strides.
	Meta    map[string]*exported.TensorMeta
	Names   map[*cells.Ref]string
	Symbols map[string]int64
	// InPlace says that the program writes to tensors, so that it shows what is a view.
	InPlace bool
	// Selects says that what calls takes a [Selection] for a tensor.
	Selects bool
	// Most is the largest size that the program admits for what the call gives, where only data says it; 0 where it
	// does not say.
	Most int
}

// An argument is one of: nil, *ref, []*ref (nil elements are None), int, []int, float64, []float64, bool, []bool,
// string, tensor.DType, complex128, exported.Device, exported.MemoryFormat, exported.Layout, *exported.Graph.

// Fail remembers what is wrong with an argument, if nothing was before.
func (c *Call) Fail(format string, args ...any) {
	if c.Err == nil {
		c.Err = fmt.Errorf(format, args...)
	}
}

// Has reports whether an argument is given and not None.
func (c *Call) Has(name string) bool { return c.Args[name] != nil }

// Tensor returns a tensor argument.
func (c *Call) Tensor(name string) *cells.Ref {
	r := c.OptTensor(name)
	if r == nil {
		c.Fail("argument %s is not a tensor", name)
		r, _ = c.Scalar(0, tensor.Float32) // a tensor that can be read, so that the caller need not check
	}
	return r
}

// OptTensor returns a tensor argument that may be None.
func (c *Call) OptTensor(name string) *cells.Ref {
	switch v := c.Args[name].(type) {
	case nil:
		return nil
	case *cells.Ref:
		return v
	case int, float64, bool, complex128: // a number where the schema says Tensor
		r, err := c.Scalar(v, cells.NumberDType(v))
		if err != nil {
			c.Fail("argument %s: %v", name, err)
		}
		return r
	}
	c.Fail("argument %s is not a tensor", name)
	return nil
}

// Tensors returns a list of tensors, some of which may be nil.
func (c *Call) Tensors(name string) []*cells.Ref {
	switch v := c.Args[name].(type) {
	case nil:
		return nil
	case []*cells.Ref:
		return v
	case *cells.Ref:
		return []*cells.Ref{v}
	}
	c.Fail("argument %s is not a list of tensors", name)
	return nil
}

// Int returns an integer argument.
func (c *Call) Int(name string) int {
	switch v := c.Args[name].(type) {
	case int:
		return v
	case bool:
		if v {
			return 1
		}
		return 0
	}
	c.Fail("argument %s is not an integer", name)
	return 0
}

// OptInt returns an integer argument, or other where it is None.
func (c *Call) OptInt(name string, other int) int {
	if !c.Has(name) {
		return other
	}
	return c.Int(name)
}

// Ints returns a list argument. A bare integer stands for a list of one; an empty default is nil.
func (c *Call) Ints(name string) []int {
	switch v := c.Args[name].(type) {
	case nil:
		return nil
	case []int:
		return v
	case int:
		return []int{v}
	}
	c.Fail("argument %s is not a list of integers", name)
	return nil
}

// IntsOf returns a list argument of exactly n integers; one integer stands for n equal ones.
func (c *Call) IntsOf(name string, n int) []int {
	v := c.Ints(name)
	if len(v) == 1 && n > 1 {
		out := make([]int, n)
		for i := range out {
			out[i] = v[0]
		}
		return out
	}
	if len(v) != n {
		c.Fail("argument %s has %d integers, not %d", name, len(v), n)
		return make([]int, n)
	}
	return v
}

// Float returns a number argument as a float.
func (c *Call) Float(name string) float64 {
	switch v := c.Args[name].(type) {
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
	c.Fail("argument %s is not a number", name)
	return 0
}

// OptFloat returns a number argument, or other where it is None.
func (c *Call) OptFloat(name string, other float64) float64 {
	if !c.Has(name) {
		return other
	}
	return c.Float(name)
}

// Floats returns a list of numbers, nil where it is None.
func (c *Call) Floats(name string) []float64 {
	switch v := c.Args[name].(type) {
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
	c.Fail("argument %s is not a list of numbers", name)
	return nil
}

// Number returns a Python number as it is: int, float64, bool or complex128.
func (c *Call) Number(name string) cells.Number {
	switch v := c.Args[name].(type) {
	case int, float64, bool, complex128:
		return v
	}
	c.Fail("argument %s is not a number", name)
	return 0
}

// Bool returns a flag.
func (c *Call) Bool(name string) bool {
	switch v := c.Args[name].(type) {
	case nil:
		return false
	case bool:
		return v
	case int:
		return v != 0
	}
	c.Fail("argument %s is not a flag", name)
	return false
}

// Text returns a text, "" where it is None.
func (c *Call) Text(name string) string {
	switch v := c.Args[name].(type) {
	case nil:
		return ""
	case string:
		return v
	}
	c.Fail("argument %s is not a text", name)
	return ""
}

// DType returns a dtype argument, or other where it is None.
func (c *Call) DType(name string, other tensor.DType) tensor.DType {
	switch v := c.Args[name].(type) {
	case nil:
		return other
	case tensor.DType:
		return v
	}
	c.Fail("argument %s is not a dtype", name)
	return other
}

// Dim returns a dimension argument as an index into a tensor of the given rank; a 0-dimensional tensor counts as one
// of rank one.
func (c *Call) Dim(name string, rank int) int { return c.WrapDim(c.Int(name), rank) }

// WrapDim returns a dimension counted from the front.
func (c *Call) WrapDim(d, rank int) int {
	n := max(rank, 1)
	if d < -n || d >= n {
		c.Fail("dimension %d of a tensor of rank %d", d, rank)
		return 0
	}
	if d < 0 {
		d += n
	}
	return d
}

// Set gives the results of the call, in the order of the schema: *ref, []*ref, int, float64 or bool.
func (c *Call) Set(results ...any) { c.Results = results }

// Give emits an op and makes its results those of the call.
func (c *Call) Give(kind graph.Kind, attrs graph.Attrs, in ...graph.Operand) error {
	if c.Err != nil {
		return c.Err
	}
	refs, err := c.Emit(kind, attrs, in...)
	if err != nil {
		return err
	}
	for _, r := range refs {
		c.Results = append(c.Results, r)
	}
	return nil
}

// GiveRef makes r the result of the call, unless an argument was bad.
func (c *Call) GiveRef(r *cells.Ref, err error) error {
	if c.Err != nil {
		return c.Err
	}
	if err != nil {
		return err
	}
	c.Set(r)
	return nil
}

// WrapDims returns dimensions of r counted from the front, ascending.
func (c *Call) WrapDims(r *cells.Ref, dims []int) []int {
	out := make([]int, 0, len(dims))
	for _, d := range dims {
		out = append(out, c.WrapDim(d, r.Rank()))
	}
	slices.Sort(out)
	if len(slices.Compact(slices.Clone(out))) < len(dims) {
		c.Fail("dimensions %v twice", dims)
	}
	if r.Rank() == 0 {
		return []int{}
	}
	return out
}

// ReductionDims returns the dimensions in argument "dim"; none means all.
func (c *Call) ReductionDims(r *cells.Ref) []int {
	if dims := c.Ints("dim"); len(dims) > 0 {
		return c.WrapDims(r, dims)
	}
	return cells.AllDims(r.Rank())
}

// Operand returns an argument that is a tensor or, also where the schema says Tensor, a Python number.
//
//go:noinline
func (c *Call) Operand(name string) cells.Argument {
	switch v := c.Args[name].(type) {
	case *cells.Ref, int, float64, bool, complex128:
		return v
	}
	c.Fail("argument %s is not a tensor or a number", name)
	return 0
}

// OptOperand returns an operand that may be None, which is nil.
func (c *Call) OptOperand(name string) cells.Argument {
	if !c.Has(name) {
		return nil
	}
	return c.Operand(name)
}

// Operands returns several of them.
func (c *Call) Operands(names ...string) []cells.Argument {
	list := make([]cells.Argument, len(names))
	for i, name := range names {
		list[i] = c.Operand(name)
	}
	return list
}

// Refs returns the tensors of results, those of lists one after another.
func Refs(results []any) []*cells.Ref {
	var refs []*cells.Ref
	for _, r := range results {
		switch r := r.(type) {
		case *cells.Ref:
			refs = append(refs, r)
		case []*cells.Ref:
			refs = append(refs, r...)
		}
	}
	return refs
}

// IsComplex reports whether an argument of the call is complex, or says that a result is.
func (c *Call) IsComplex() bool {
	for _, v := range c.Args {
		switch v := v.(type) {
		case *cells.Ref:
			if v != nil && cells.IsComplex(v.DType()) {
				return true
			}
		case []*cells.Ref:
			if slices.ContainsFunc(v, func(r *cells.Ref) bool { return r != nil && cells.IsComplex(r.DType()) }) {
				return true
			}
		case tensor.DType:
			if cells.IsComplex(v) {
				return true
			}
		case complex128:
			return true
		}
	}
	return false
}

// GiveRefs makes several tensors the results of the call.
func (c *Call) GiveRefs(list []*cells.Ref, err error) error {
	if c.Err != nil {
		return c.Err
	}
	for _, r := range list {
		c.Results = append(c.Results, r)
	}
	return err
}
