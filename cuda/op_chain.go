package cuda

import (
	"fmt"
	"math"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/tensor"
)

// chainKernels compute elementwise ops that were put together: kernels/elementwise.cu.
var chainKernels = map[layers.Kind]kernel{
	"chain": {supports: supportsChain, launch: launchChain},
}

// instructionInts is how many numbers an instruction of kernels/elementwise.cu takes.
const instructionInts = 3

func supportsChain(_, _ []layers.Spec, a layers.Attrs) error {
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
	for k := range layers.MaxChainOperands {
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
	c.i32(int32(len(l.in))).i32(bools).i32(packed).i32(int32(width)).ints(layers.MaxChainInstructions*instructionInts, program...)
	return c.i32(int32(len(p))).i64(n).over(n / width)
}
