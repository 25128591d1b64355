package family

import (
	"fmt"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/tensor"
)

// Tokens is an input of one number for each token.
func Tokens(name string, optional bool) layers.Port {
	return layers.Port{
		Name: name, DType: tensor.Int64, Shape: tensor.Shape{-1, -1}, Dims: []string{"batch", "sequence"}, Optional: optional,
	}
}

// TokenInputs returns what makes the inputs input_ids and, optional ones, those named.
// Tables call it, and without its copies they compile faster.
//
//go:noinline
func TokenInputs(optional ...string) func(*Config) []layers.Port {
	return func(*Config) []layers.Port {
		ports := []layers.Port{Tokens("input_ids", false)}
		for _, name := range optional {
			ports = append(ports, Tokens(name, true))
		}
		return ports
	}
}

// TokenIDs returns the first argument, [batch, tokens].
func TokenIDs(t *layers.Trace, args []any) layers.Tensor {
	ids := Optional(t, args, 0)
	if ids == nil || len(ids.Shape()) != 2 {
		t.Fail("input_ids of [batch, tokens] are needed")
	}
	return ids
}

// Optional returns an argument, nil where it was not given.
func Optional(t *layers.Trace, args []any, i int) layers.Tensor {
	if i >= len(args) || args[i] == nil {
		return nil
	}
	x, ok := args[i].(layers.Tensor)
	if !ok {
		t.Fail("argument %d is a %T, not a tensor", i, args[i])
	}
	return x
}

// Table returns a buffer of int64 that is computed: 0, step, 2·step, ….
func Table(name string, shape tensor.Shape, step int64) layers.Param {
	n, err := shape.NumElements()
	if err != nil || n > MaxTable {
		panic(fmt.Sprintf("BUG: a table of %v", shape))
	}
	values := make([]int64, n)
	for i := range values {
		values[i] = int64(i) * step
	}
	return layers.Param{
		Name: name, DType: tensor.Int64, Shape: shape, Buffer: true, Transient: true, Value: tensor.Of(values, shape...),
	}
}
