package cpu

import (
	"sync"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/tensor"
)

// An ending is what a product does to its sums once they are complete:
//
//	sum = residual[i, j] + act(alpha·sum + beta·addend[i, j])
//
// The rows of addend and residual are all their dimensions but the last.
type ending[T real] struct {
	// scaled says that alpha counts; it does where there is an addend.
	scaled      bool
	alpha, beta T
	addend      view
	act         func(dst []float32, in [][]float32)
	residual    view
}

// any reports whether there is something to do.
func (e *ending[T]) any() bool {
	return e.scaled || !e.addend.absent() || e.act != nil || !e.residual.absent()
}

// finish does to sums, those of a row from column j on, what the product's ending says. Lanes call it side by side.
func (g *gemmCall[T]) finish(lane, row, j int, sums []T) {
	e := &g.o.ending
	switch {
	case !e.addend.absent():
		at, stride := rowAt(e.addend.layout, row, j)
		scaleAndAdd(sums, e.alpha, e.beta, e.addend, at, stride)
	case e.scaled:
		for i := range sums {
			sums[i] *= e.alpha
		}
	}
	if e.act != nil {
		in := &g.operands[lane]
		in[0] = singles(sums)
		e.act(in[0], in[:])
	}
	if e.residual.absent() {
		return
	}
	at, stride := rowAt(e.residual.layout, row, j)
	src := elements[T](e.residual)
	if stride == 1 {
		for i, x := range src[at:][:len(sums)] {
			sums[i] += x
		}
		return
	}
	for i := range sums {
		sums[i] += src[at+i*stride]
	}
}

// rowAt returns where element j of a row lies, and the elements to the next.
func rowAt(l tensor.Layout, row, j int) (at, stride int) {
	stride = lastStride(l)
	return offsetOf(l.Leading(1), row) + j*stride, stride
}

// plainActivations are those without numbers, so that looking one up allocates nothing.
var plainActivations = sync.OnceValue(func() map[string]func(dst []float32, in [][]float32) {
	all := make(map[string]func(dst []float32, in [][]float32))
	for _, name := range []string{
		"relu", "relu6", "silu", "hardswish", "hardsigmoid", "sigmoid", "tanh", "gelu", "gelu_tanh",
	} {
		all[name] = activationLoop(layers.Attrs{"act": name})
	}
	return all
})

// activation returns the loop of the activation that attributes name, nil for none.
func activation(a layers.Attrs) func(dst []float32, in [][]float32) {
	if act, ok := plainActivations()[a.String("act")]; ok {
		return act
	}
	return activationLoop(a)
}
