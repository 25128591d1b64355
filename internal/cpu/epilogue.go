package cpu

import (
	"fmt"
	"math"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu/blocked"
	"github.com/optimem/optimem/internal/cpu/elementwise"
	"github.com/optimem/optimem/internal/cpu/ops"
	"github.com/optimem/optimem/internal/cpu/tasks"
	"github.com/optimem/optimem/tensor"
)

// An epilogue is what a conv or a linear does to its results (graph.HasEpilogue says whether there is one), for kernels
// that do not compute it with the product.
type epilogue struct {
	// scale and shift are the batch norm of each output channel, nil for none.
	scale, shift []float32
	// residual is added; absent for none.
	residual ops.View
	// act is the activation, nil for none.
	act func(dst []float32, in [][]float32)
}

// epilogueSupports is the support of kernels that compute epilogues in float32.
func epilogueSupports(in, out []graph.Spec, a graph.Attrs) error {
	if graph.HasEpilogue(in, a) && out[0].DType != tensor.Float32 {
		return fmt.Errorf("no epilogue of %v", out[0].DType)
	}
	return nil
}

// An activation is an elementwise op of one operand that ends a product or a convolution.
type activation struct {
	loop func(dst []float32, in [][]float32)
	// op is the same for kernels, if vector says that they have it.
	op     elementwise.VectorOp
	vector bool
}

// activationOf returns the activation that attributes name, nil for none.
func activationOf(a graph.Attrs) *activation {
	name := a.String("act")
	if name == "" {
		return nil
	}
	key := activationKey{name, math.Float64bits(a.Float("act_a")), math.Float64bits(a.Float("act_b"))}
	return activations.Get(key, func() *activation {
		kind, attrs := graph.Activation(a)
		act := &activation{loop: elementwise.SingleLoop(kind, attrs)}
		if of := elementwise.VectorOps[kind]; of != nil {
			act.op, act.vector = of(attrs)
		}
		return act
	})
}

// activationLoop returns the loop of the activation that attributes name, nil for none.
func activationLoop(a graph.Attrs) func(dst []float32, in [][]float32) {
	if act := activationOf(a); act != nil {
		return act.loop
	}
	return nil
}

// An activationKey is the name of an activation and the bits of its parameters.
type activationKey struct {
	name string
	a, b uint64
}

// activations has those that were made.
var activations = ops.NewMemo[activationKey, *activation]()

// applyLoop computes a loop of one operand in place.
func applyLoop(loop func(dst []float32, in [][]float32), x []float32) {
	in := tasks.Take[[1][]float32]()
	in[0] = x
	loop(x, in[:])
	in[0] = nil
	tasks.Give(in)
}

// convEpilogueBytes is the scratch that a conv's epilogue takes.
func convEpilogueBytes(in, out []graph.Spec) int64 {
	if len(in) > 3 && in[3].DType != tensor.Invalid {
		return ops.ScratchBytes(4, out[0].Shape[1], out[0].Shape[1])
	}
	return 0
}

// convEpilogue reads the epilogue of a conv, and reports whether there is one. The scale and shift of a batch norm are in
// work.
func convEpilogue(c *ops.Call, work *ops.Scratch) (e epilogue, ok bool) {
	e = epilogue{residual: c.Operand(7), act: activationLoop(c.Attrs)}
	if w := c.Operand(3); !w.Absent() {
		n := c.Out[0].Shape()[1]
		e.scale, e.shift = ops.TakeReal[float32](work, n), ops.TakeReal[float32](work, n)
		normScales(e.scale, e.shift, w, c.In[4], c.In[5], c.In[6], c.Attrs.Float("eps"))
		return e, true
	}
	return e, !e.residual.Absent() || e.act != nil
}

// normScales: scale = w/√(var+eps), shift = b − mean·scale: what a batch norm does to each channel. A weight that is absent
// is 1, a bias 0.
func normScales(scale, shift []float32, w, b, mean, variance ops.View, eps float64) {
	var rows [4][]float32
	plain := true
	for i, v := range [4]ops.View{w, b, mean, variance} {
		if plain = plain && !v.Absent() && v.Layout.Strides[0] == 1; plain {
			rows[i] = ops.Elements[float32](v)[v.Layout.Offset:]
		}
	}
	if plain {
		blocked.NormScales(scale, shift, rows[0], rows[1], rows[2], rows[3], eps)
		return
	}
	at := func(v ops.View, i int, absent float64) float64 {
		if v.Absent() {
			return absent
		}
		return float64(ops.Elements[float32](v)[v.Layout.Offset+i*v.Layout.Strides[0]])
	}
	for i := range scale {
		s := at(w, i, 1) / math.Sqrt(at(variance, i, 0)+eps)
		scale[i] = float32(s)
		shift[i] = float32(at(b, i, 0) - at(mean, i, 0)*s)
	}
}

// finish applies an epilogue to results whose first is number at in the result's order. channel is theirs.
func (e *epilogue) finish(dst []float32, at, channel int) {
	if e.scale != nil {
		scale, shift := e.scale[channel], e.shift[channel]
		for i, x := range dst {
			dst[i] = float32(x*scale) + shift
		}
	}
	e.add(dst, at)
	if e.act != nil {
		applyLoop(e.act, dst)
	}
}

// add adds the residual to results whose first is number at in the result's order.
func (e *epilogue) add(dst []float32, at int) {
	if e.residual.Absent() {
		return
	}
	src := ops.Elements[float32](e.residual)
	ops.LinesOf(e.residual.Layout, at, at+len(dst), func(i, first, stride, n int) {
		line := dst[i-at:][:n]
		for k := range line {
			line[k] += src[first+k*stride]
		}
	})
}

// planes applies an epilogue to the planes of some channels of an image, by all threads where there is a pool.
func (e *epilogue) planes(p *ops.Pool, out ops.View, image, channel, channels, pixels int) {
	t := endPlanes{epilogue: *e, out: out, image: image, channel: channel, pixels: pixels}
	if p == nil {
		t.Run(0, channels)
		return
	}
	tasks.Do(p, channels, 1, t)
}

// endPlanes is the task of epilogue.planes: a part is some channels from channel on.
type endPlanes struct {
	epilogue
	out                    ops.View
	image, channel, pixels int
}

// Run implements Task.
func (t *endPlanes) Run(from, to int) {
	all := ops.Elements[float32](t.out)[t.out.Layout.Offset:]
	for o := from; o < to; o++ {
		at := (t.image*t.out.Shape()[1] + t.channel + o) * t.pixels
		for first := 0; first < t.pixels; first += ops.BlockElements {
			n := min(ops.BlockElements, t.pixels-first)
			t.finish(all[at+first:][:n], at+first, t.channel+o)
		}
	}
}
