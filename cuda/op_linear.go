package cuda

import (
	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/tensor"
)

// linearKernels are products of matrices: kernels/linear.cu.
var linearKernels = map[layers.Kind]kernel{
	"linear": {supports: onlyReal, launch: launchLinear},
}

// productTile is TILE of kernels/linear.cu; mostRows is how many of a grid's lines lie one above the other, beyond which
// the kernel goes round.
const (
	productTile = 16
	mostRows    = 1 << 15
)

func launchLinear(l *launch) error {
	x, w, out := l.in[0], l.in[1], l.out[0]
	n, k := int64(w.shape()[0]), int64(w.shape()[1])
	if out.size() == 0 {
		return nil
	}
	m := out.size() / n
	last := len(x.shape()) - 1
	rows := tensor.Layout{Shape: x.layout.Shape[:last], Strides: x.layout.Strides[:last]}
	var bias operand
	biasStep := int64(0)
	if len(l.in) > 2 && !l.in[2].absent() {
		bias = l.in[2]
		biasStep = int64(bias.layout.Strides[0])
	}
	c := l.call("om_linear_" + suffix(out.dtype))
	c.write(out).read(x).layout(rows).i64(int64(x.layout.Strides[last]))
	c.read(w).i64(int64(w.layout.Strides[0])).i64(int64(w.layout.Strides[1]))
	c.read(bias).i64(biasStep).i64(m).i64(n).i64(k)
	return c.grid(dims{ceilDiv(n, productTile), min(ceilDiv(m, productTile), mostRows), 1}, dims{productTile, productTile, 1}, 0)
}
