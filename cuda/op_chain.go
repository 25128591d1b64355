package cuda

import (
	"fmt"
	"math"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// chainKernels compute ops that were put together: kernels/elementwise.cu and kernels/rotary.cu.
var chainKernels = map[graph.Kind]kernel{
	"chain":  {supports: supportsChain, launch: launchChain},
	"rotary": {launch: launchRotary},
}

// instructionInts is how many numbers an instruction of kernels/elementwise.cu takes.
const instructionInts = 3

func supportsChain(_, _ []graph.Spec, a graph.Attrs) error {
	for _, q := range a.Program("program") {
		if _, ok := functionCodes[q.Kind]; !ok {
			return fmt.Errorf("it has no %s", q.Kind)
		}
	}
	return nil
}

// launchChain runs a program on each element.
func launchChain(l *launch) error {
	out, p := l.out[0], l.attrs.Program("program")
	n := out.size()
	c := l.call("om_chain").write(out)
	bools := int32(0)
	for k := range graph.MaxChainOperands {
		if k >= len(l.in) {
			c.i64(0).layout(tensor.Contiguous(1))
			continue
		}
		if l.in[k].dtype == tensor.Bool {
			bools |= 1 << k
		}
		c.read(l.in[k]).layout(l.in[k].layout)
	}
	var program []int
	for _, q := range p {
		kind := q.Kind
		if kind == "gelu" && q.Attrs.String("approximate") == "tanh" {
			kind = "gelu_tanh"
		}
		code := int64(functionCodes[kind])
		for k, arg := range q.Args {
			code |= int64(arg) << (8 + 8*k)
		}
		x := numbers(kind, q.Attrs)
		switch len(q.Args) {
		case 2:
			x[0] = alphaOf(q.Attrs)
		case 3:
			x[0] = q.Attrs.Float("value")
		}
		bits := func(v float64) int { return int(math.Float32bits(float32(v))) }
		program = append(program, int(code), bits(x[0])|bits(x[1])<<32, bits(x[2]))
	}
	list, width := hows(out, l.in...)
	packed := int32(0)
	for k, how := range list {
		packed |= how << (2 * k)
	}
	c.i32(int32(len(l.in))).i32(bools).i32(packed).i32(int32(width)).ints(graph.MaxChainInstructions*instructionInts, program...)
	return c.i32(int32(len(p))).i64(n).over(n / width)
}

// launchRotary turns pairs of elements that are half a line apart.
func launchRotary(l *launch) error {
	out := l.out[0]
	n, last := out.size()/2, len(out.shape())-1
	if n == 0 {
		return nil
	}
	half := out.shape()[last] / 2
	first := make([]operand, len(l.in))
	far := make([]int64, len(l.in))
	for i, o := range l.in {
		o.layout = tensor.Layout{Shape: slices.Clone(o.layout.Shape), Strides: o.layout.Strides, Offset: o.layout.Offset}
		o.layout.Shape[last] = half
		first[i], far[i] = o, int64(half)*int64(o.layout.Strides[last])
	}
	list, width := hows(out, first...)
	if half%4 != 0 {
		list, width = make([]int32, len(first)), 1
	}
	c, packed := l.call("om_rotary").write(out), int32(0)
	for i, o := range first {
		c.read(o).layout(o.layout).i64(far[i])
		packed |= list[i] << (2 * i)
	}
	return c.i32(dtypeCodes[out.dtype]).divisor(int64(half), n).i32(packed).i32(int32(width)).i64(n).over(n / width)
}
