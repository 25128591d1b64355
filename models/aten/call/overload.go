package call

import (
	"strings"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/models/aten/cells"
)

// An Overload is one overload: its schema, in PyTorch's text, and what it means in ops, which sets the results of the
// call.
type Overload struct {
	// Schema is text for [ParseSchema], Build sets the results of a call.
	Schema string
	Build  func(c *Call) error
}

// Several returns an overload that sets its results itself: several of them, or lists.
//
//go:noinline
func Several(schema string, build func(c *Call) error) Overload { return Overload{schema, build} }

// A Meaning builds the one result of an overload.
type Meaning func(c *Call) (*cells.Ref, error)

// One returns an overload with one result.
// Tables call it, and without its copies they compile faster.
//
//go:noinline
func One(schema string, f Meaning) Overload {
	return Several(schema, func(c *Call) error { return c.GiveRef(f(c)) })
}

// Twins returns an overload and its in-place twin, which PyTorch names with an underscore after.
func Twins(schema string, f Meaning) []Overload {
	name, rest, _ := strings.Cut(schema, "(")
	base, overload, ok := strings.Cut(name, ".")
	if ok {
		overload = "." + overload
	}
	return []Overload{One(schema, f), InPlace(base+"_"+overload+"("+rest, f)}
}

// InPlace returns the overload that writes the result to self, from the schema of one that does not.
func InPlace(schema string, f Meaning) Overload {
	schema = strings.Replace(schema, "(Tensor self", "(Tensor(a!) self", 1)
	schema = strings.TrimSuffix(schema, "-> Tensor") + "-> Tensor(a!)"
	return Several(schema, func(c *Call) error {
		self := c.Tensor("self")
		r, err := f(c)
		if err != nil || c.Err != nil {
			return c.GiveRef(nil, err)
		}
		return c.GiveRef(self, c.Write(self, r))
	})
}

// Binary is the meaning of a kind over "self" and "other" with PyTorch's promotion.
func Binary(kind graph.Kind) Meaning {
	return func(c *Call) (*cells.Ref, error) { return c.Combine(kind, nil, c.Operands("self", "other")...) }
}

// FloatBinary is binary for kinds over floats: integers become float32.
func FloatBinary(kind graph.Kind) Meaning {
	return func(c *Call) (*cells.Ref, error) { return c.CombineFloat(kind, nil, c.Operands("self", "other")...) }
}
