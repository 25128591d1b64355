package cuda

import "github.com/optimem/optimem/layers"

// elementwiseKernels compute each element by itself: kernels/elementwise.cu.
var elementwiseKernels = map[layers.Kind]kernel{
	"relu": {supports: onlyReal, launch: launchUnary},
}

// launchUnary launches om_<kind>_<dtype> over all elements of one operand.
func launchUnary(l *launch) error {
	x, out := l.in[0], l.out[0]
	c := l.call("om_" + string(l.kind) + "_" + suffix(x.dtype))
	c.write(out).read(x).layout(x.layout).i64(out.size())
	return c.over(out.size())
}
