package graph

import (
	"fmt"

	"github.com/optimem/optimem/tensor"
)

// chainOps are elementwise ops that were put together, so that memory is passed over once. [Fuse] makes them; no program
// has them.
var chainOps = []OpDef{
	// chain: attribute "program" ([Program]) over operands of one shape, which are float32 or, for conditions, bool.
	{Kind: "chain", Shape: chainShape, FLOPs: chainFLOPs, Axes: samePlace},
	// rotary: In[0] × In[1] + turned × In[2] of one shape and dtype, float32 or half floats, where turned is the second half of
	// In[0] along the last dimension, negated, and then the first. Products are rounded to the dtype, as what ops give is.
	{Kind: "rotary", Shape: rotaryShape, FLOPs: rotaryFLOPs, Axes: rotaryAxes},
}

func rotaryShape(in []Spec, _ Attrs) ([]Spec, error) {
	if err := wantOperands(in, 3, 3); err != nil {
		return nil, err
	}
	rank := len(in[0].Shape)
	if rank == 0 || in[0].Shape[rank-1]%2 != 0 {
		return nil, fmt.Errorf("no two halves of %v", in[0].Shape)
	}
	for _, s := range in {
		if s.DType != tensor.Float32 && !s.DType.IsHalf() || s.DType != in[0].DType {
			return nil, fmt.Errorf("%w: turned by %v", ErrDType, s.DType)
		}
		if !s.Shape.Equal(in[0].Shape) {
			return nil, mismatch(in)
		}
	}
	return in[:1], nil
}

func rotaryFLOPs(_, out []Spec, _ Attrs) int64 { return product(3, Elements(out[0].Shape)) }

// rotaryAxes keeps all dimensions but the last.
func rotaryAxes(in, _ []Spec, _ Attrs) [][]int { return allBut(in, []int{len(in[0].Shape) - 1}) }

// A Program is what a chain computes for each element. Value 0 to n−1 are its n operands, where true is 1 and false 0, value
// n+i is the result of its instruction i, and the last of them is the chain's result.
type Program []Instruction

// An Instruction is an elementwise op, with its attributes, over values that come before it.
type Instruction struct {
	Kind  Kind
	Args  []int
	Attrs Attrs
}

// The bounds of a chain.
const (
	MaxChainOperands     = 12
	MaxChainInstructions = 32
)

// Program returns a chain's program, nil where there is none.
func (a Attrs) Program(name string) Program { return attr[Program](a, name) }

// chainArgs are the kinds that a chain may have and how many operands they take: those that compute float32 of float32.
// "where" takes a condition first. Products that round differently when they are put together, such as fused
// multiplications and additions, are not made: a chain gives the bits of its ops one by one.
var chainArgs = func() map[Kind]int {
	args := map[Kind]int{"where": 3}
	for n, kinds := range map[int][]Kind{
		1: {
			"abs", "neg", "relu", "sign", "square", "cos", "erf", "exp", "exp2", "expm1", "log", "log1p", "reciprocal",
			"rsqrt",
			"sigmoid", "sin", "sqrt", "tanh", "floor", "ceil", "round", "trunc", "gelu", "silu", "mish", "hardswish",
			"hardsigmoid", "elu", "leaky_relu", "softplus", "clamp", "log_sigmoid", "hardshrink", "softshrink",
		},
		2: {"add", "sub", "mul", "div", "maximum", "minimum", "pow", "prelu", "glu"},
		3: {"addcmul", "addcdiv", "lerp"},
	} {
		for _, kind := range kinds {
			args[kind] = n
		}
	}
	return args
}()

// ChainOperands returns how many operands ops of a kind take in a chain, 0 for a kind that no chain has.
func ChainOperands(k Kind) int { return chainArgs[k] }

func chainShape(in []Spec, a Attrs) ([]Spec, error) {
	if len(in) == 0 || len(in) > MaxChainOperands {
		return nil, fmt.Errorf("%d operands", len(in))
	}
	for _, s := range in {
		if s.DType != tensor.Float32 && s.DType != tensor.Bool {
			return nil, fmt.Errorf("%w: a chain of %v", ErrDType, s.DType)
		}
		if !s.Shape.Equal(in[0].Shape) {
			return nil, mismatch(in)
		}
	}
	p := a.Program("program")
	if len(p) == 0 || len(p) > MaxChainInstructions {
		return nil, fmt.Errorf("a chain of %d instructions", len(p))
	}
	for i, q := range p {
		if n := chainArgs[q.Kind]; n == 0 || len(q.Args) != n {
			return nil, fmt.Errorf("instruction %d: %s of %d", i, q.Kind, len(q.Args))
		}
		for k, arg := range q.Args {
			if arg < 0 || arg >= len(in)+i {
				return nil, fmt.Errorf("instruction %d reads value %d", i, arg)
			}
			condition := arg < len(in) && in[arg].DType == tensor.Bool
			if condition != (q.Kind == "where" && k == 0) {
				return nil, fmt.Errorf("instruction %d: operand %d of %s", i, k, q.Kind)
			}
		}
	}
	return []Spec{{DType: tensor.Float32, Shape: in[0].Shape}}, nil
}

// chainFLOPs counts one for each element and instruction.
func chainFLOPs(_, out []Spec, a Attrs) int64 {
	return product(int64(len(a.Program("program"))), Elements(out[0].Shape))
}
