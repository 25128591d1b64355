package cuda

import (
	"github.com/optimem/optimem/graph"
)

// specialKernels are functions that few networks use: kernels/special.cu.
var specialKernels = func() map[graph.Kind]kernel {
	all := map[graph.Kind]kernel{"zeta": {supports: onlyReal, launch: launchZeta}}
	for i, kind := range specials {
		all[kind] = kernel{supports: onlyReal, launch: func(l *launch) error { return launchSpecial(l, int32(i)) }}
	}
	return all
}()

// specials are the functions of one operand in the order of the enum.
var specials = []graph.Kind{
	"lgamma", "digamma", "trigamma", "erfinv", "entr", "erfcx", "log_ndtr", "ndtri", "bessel_j0", "bessel_j1", "bessel_y0",
	"bessel_y1", "spherical_bessel_j0", "i0", "i0e", "i1", "i1e",
}

// launchSpecial computes out[i] = f(in[0][i]).
func launchSpecial(l *launch, code int32) error {
	x, out := l.in[0], l.out[0]
	n := out.size()
	return l.call("om_special").write(out).read(x).i32(dtypeCodes[x.dtype]).layout(x.layout).i64(n).i32(code).over(n)
}

// launchZeta computes the Hurwitz zeta function of in[0] and in[1].
func launchZeta(l *launch) error {
	out := l.out[0]
	n := out.size()
	c := l.call("om_zeta").write(out).i32(dtypeCodes[out.dtype])
	for _, o := range l.in {
		c.read(o).i32(dtypeCodes[o.dtype]).layout(o.layout)
	}
	return c.i64(n).over(n)
}
