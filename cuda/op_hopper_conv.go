package cuda

import "github.com/optimem/optimem/graph"

// Convolutions of half floats on GPUs of 9.0, by wgmma: kernels/hopper_conv.h. Plans decide which ones, by sizes alone.

// hopperConvKernel is what reports call them.
const hopperConvKernel = "conv_wgmma"

// byWGMMA reports whether a step is one of wgmma.
func byWGMMA(step *graph.Step) bool {
	return step.Kernel == hopperKernel || step.Kernel == hopperConvKernel
}

// leastHopperOutputs and leastHopperPixels are from how many outputs of a group and pixels of all images on they compute: less leaves
// most of a block idle. They are changed in tests.
var leastHopperOutputs, leastHopperPixels int64 = 64, 128

// convByHopper reports whether a convolution, whose result is N×C×space, is one of wgmma.
func convByHopper(in, out []graph.Spec, a graph.Attrs) bool {
	if !isHalf(out[0].DType) || tensorConv(in, out, a) == "" {
		return false
	}
	count, m, n, k := convSizes(in, out, a)
	k = k / int64(in[1].Shape[1]) * paddedChannels(in[1])
	return m >= leastHopperOutputs && n >= leastHopperPixels && k >= hopperTerms && max(count*m, n, k) <= mostHopper
}

// lowerHopperConv lowers a convolution to wgmma where it is one.
func lowerHopperConv(in, out []graph.Spec, a graph.Attrs, step *graph.Step) {
	if out = planarResult(out, a); convByHopper(in, out, a) {
		p := tensorPlanOf(in, out, a)
		p.divideHopper(in, out, a)
		step.Kernel, step.WorkBytes = hopperConvKernel, max(step.WorkBytes, p.workBytes())
	}
}

// divideHopper divides a convolution for wgmma: its blocks have channels from top to bottom, and pixels across.
func (p *tensorPlan) divideHopper(in, out []graph.Spec, a graph.Attrs) {
	count, m, n, k := convSizes(in, out, a)
	k = k / int64(in[1].Shape[1]) * p.padded
	p.division = divide(hopperBlocks, count, m, n, k)
	if p.parts > 1 {
		p.part = ceilDiv(p.part, hopperTerms) * hopperTerms
		p.parts = ceilDiv(k, p.part)
		p.division = p.with(p.blocking, count, m, n)
	}
	p.partBytes = p.partsBytes(count * m * n)
}

// hopperConv returns the name of the kernel of wgmma that computes a convolution, and has the plan divide it for that, or "" where
// another kernel is to.
func (l *launch) hopperConv(p *tensorPlan) (string, error) {
	if !l.hopper || !convByHopper(specs(l.in), specs(l.out), l.attrs) {
		return "", nil
	}
	by := *p
	by.divideHopper(specs(l.in), specs(l.out), l.attrs)
	name := "om_hopper_conv_" + suffix(l.out[0].dtype) + by.suffix
	if has, err := l.s.hopper(name); !has {
		return "", err
	}
	*p = by
	return name, nil
}

// withMap passes what the unit that copies parts of tensors is to know of a weight, whose lines lie one behind the other.
func (c *call) withMap(w operand, g *geometry, rows int64) *call {
	k := int64(g.inputs * g.kernel[0] * g.kernel[1] * g.kernel[2])
	return c.tensorMap(w, k, int64(g.groups*g.outputs), k*int64(w.dtype.Size()), rows)
}
