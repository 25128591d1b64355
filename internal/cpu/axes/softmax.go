package axes

import (
	"math"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu/ops"
	"github.com/optimem/optimem/tensor"
)

// softmaxKernels: exp(x[i] − m) ÷ Σ exp(x − m) for m = max x along "dim", torch.softmax; x[i] − m − log Σ exp(x − m),
// torch.log_softmax.
var softmaxKernels = map[graph.Kind]ops.Kernel{
	"softmax":     {Run: runSoftmax(false), InPlace: ops.OverFirst},
	"log_softmax": {Run: runSoftmax(true), InPlace: ops.OverFirst},
}

func runSoftmax(logarithm bool) func(c *ops.Call) error {
	return func(c *ops.Call) error {
		x := c.In[0]
		safe := c.Attrs.Bool("safe")
		if ops.Volume(x.Shape()[min(c.Attrs.Int("dim")+1, len(x.Shape())):]) == 1 {
			if r := rowsOfCall(c, len(x.Shape())-c.Attrs.Int("dim")); r != nil {
				r.do, r.safe, r.logarithm = softmaxOf, safe, logarithm
				r.run(c.Pool)
				return nil
			}
		}
		a := ops.AlongDim(x.Layout, c.Attrs.Int("dim"))
		exp := ExpFast
		if x.DType == tensor.Float64 {
			exp = math.Exp
		}
		ops.DoLines(c.Pool, &a, softmaxLines{Along: a, x: x, out: c.Out[0], exp: exp, logarithm: logarithm, safe: safe})
		return nil
	}
}

// softmaxLines is the task of runSoftmax: a part is some lines.
type softmaxLines struct {
	ops.Along
	x, out          ops.View
	exp             func(float64) float64
	logarithm, safe bool
}

// Run implements Task.
func (t *softmaxLines) Run(from, to int) {
	if t.x.DType == tensor.Float32 && t.Stride == 1 && t.Inner == 1 && !t.logarithm {
		in, out := ops.Elements[float32](t.x), ops.Elements[float32](t.out)
		t.Each(from, to, func(line, first int) {
			softmaxRow(out[line*t.N:(line+1)*t.N], in[first:first+t.N], t.safe)
		})
		return
	}
	t.Each(from, to, func(line, first int) {
		softmaxLine(t.out, t.x, &t.Along, line, first, t.exp, t.logarithm, t.safe)
	})
}

// softmaxRow is the softmax of a row of float32.
func softmaxRow(out, x []float32, safe bool) {
	top := float32(math.Inf(-1))
	for _, v := range x {
		if v > top || v != v {
			top = v
		}
	}
	if safe && math.IsInf(float64(top), -1) {
		clear(out)
		return
	}
	out = out[:len(x)]
	var sum float64
	for i, v := range x {
		e := ExpFast(float64(v - top))
		out[i] = float32(e)
		sum += e
	}
	scale := 1 / sum
	for i, v := range out {
		out[i] = float32(float64(v) * scale)
	}
}

// softmaxLine computes a line of any float dtype and stride, the exponentials twice instead of keeping them.
func softmaxLine(out, x ops.View, a *ops.Along, line, first int, exp func(float64) float64, logarithm, safe bool) {
	var buf [ops.Chunk]float64
	each := func(body func(i int, v float64)) {
		for k := 0; k < a.N; k += ops.Chunk {
			part := buf[:min(ops.Chunk, a.N-k)]
			ops.LoadReal(part, x, first+k*a.Stride, a.Stride)
			for i, v := range part {
				body(k+i, v)
			}
		}
	}
	top := math.Inf(-1)
	each(func(_ int, v float64) {
		if v > top || v != v {
			top = v
		}
	})
	to := a.First(line, a.N)
	if safe && math.IsInf(top, -1) {
		each(func(i int, _ float64) { ops.StoreFloat(out, to+i*a.Inner, 0) })
		return
	}
	var sum float64
	each(func(_ int, v float64) { sum += exp(v - top) })
	if logarithm {
		shift := math.Log(sum)
		each(func(i int, v float64) { ops.StoreFloat(out, to+i*a.Inner, v-top-shift) })
		return
	}
	each(func(i int, v float64) { ops.StoreFloat(out, to+i*a.Inner, exp(v-top)/sum) })
}

// ExpFast returns exp x with a relative error below 1e-8: for results of at most single precision.
func ExpFast(x float64) float64 {
	const (
		// Adding it to a number rounds the number to an integer, in the low bits of the sum.
		toInteger = 3 << 51
		c1        = math.Ln2
		c2        = c1 * math.Ln2 / 2
		c3        = c2 * math.Ln2 / 3
		c4        = c3 * math.Ln2 / 4
		c5        = c4 * math.Ln2 / 5
		c6        = c5 * math.Ln2 / 6
		c7        = c6 * math.Ln2 / 7
	)
	switch {
	case x < -700:
		return 0
	case !(x < 700):
		return math.Exp(x)
	}
	t := x * math.Log2E
	k := t + toInteger
	r := t - (k - toInteger)
	p := 1 + r*(c1+r*(c2+r*(c3+r*(c4+r*(c5+r*(c6+r*c7))))))
	return p * math.Float64frombits((math.Float64bits(k)+1023)<<52)
}
