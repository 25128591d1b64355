package cuda

import (
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// castKernels convert numbers and make them: kernels/cast.cu.
var castKernels = map[graph.Kind]kernel{
	"cast":     {supports: supportsCast, launch: launchCast},
	"arange":   {supports: makesNumbers, launch: launchArange},
	"linspace": {supports: makesNumbers, launch: launchLinspace},
	"eye":      {supports: makesNumbers, launch: launchEye},
}

func supportsCast(in, out []graph.Spec, a graph.Attrs) error {
	if in[0].DType == out[0].DType {
		return nil
	}
	if err := onlyNumbers(in, out, a); err != nil {
		return err
	}
	return makesNumbers(in, out, a)
}

func makesNumbers(_, out []graph.Spec, a graph.Attrs) error { return onlyNumbers(out, nil, a) }

// launchCast computes out[i] = in[0][i] as a number of another dtype.
func launchCast(l *launch) error {
	x, out := l.in[0], l.out[0]
	if x.dtype == out.dtype {
		return l.gather(out, x)
	}
	n := out.size()
	c := l.call("om_cast").write(out).i32(dtypeCodes[out.dtype]).read(x).i32(dtypeCodes[x.dtype]).layout(x.layout)
	return c.i64(n).over(n)
}

// launchArange computes out[i] = start + i·step.
func launchArange(l *launch) error {
	out := l.out[0]
	n := out.size()
	if !isReal(out.dtype) {
		c := l.call("om_arange_i").write(out).i32(dtypeCodes[out.dtype])
		return c.i64(int64(l.attrs.Int("start"))).i64(int64(l.attrs.Int("step"))).i64(n).over(n)
	}
	c := l.call("om_arange_d").write(out).i32(dtypeCodes[out.dtype])
	return c.f64(l.attrs.Float("start")).f64(l.attrs.Float("step")).i64(n).over(n)
}

// launchLinspace computes numbers from start to end, both exactly.
func launchLinspace(l *launch) error {
	out, start, end := l.out[0], l.attrs.Float("start"), l.attrs.Float("end")
	n := out.size()
	var step float64
	if n > 1 {
		step = (end - start) / float64(n-1)
		if isReal(out.dtype) && out.dtype != tensor.Float64 {
			step = float64(float32(end-start) / float32(n-1))
		}
	}
	return l.call("om_linspace").write(out).i32(dtypeCodes[out.dtype]).f64(start).f64(end).f64(step).i64(n).over(n)
}

// launchEye writes ones on the diagonal of zeros.
func launchEye(l *launch) error {
	out := l.out[0]
	n := out.size()
	return l.call("om_eye").write(out).i32(dtypeCodes[out.dtype]).i64(int64(out.shape()[1])).i64(n).over(n)
}
