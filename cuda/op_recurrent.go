package cuda

import (
	"fmt"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// recurrentKernels walk a sequence with a state: kernels/recurrent.cu.
var recurrentKernels = map[graph.Kind]kernel{
	"lstm": {supports: supportsRecurrent(4), launch: func(l *launch) error { return launchRecurrent(l, 4) }},
	"gru":  {supports: supportsRecurrent(3), launch: func(l *launch) error { return launchRecurrent(l, 3) }},
	"rnn":  {supports: supportsRecurrent(1), launch: func(l *launch) error { return launchRecurrent(l, 1) }},
}

// recurrentThreads is THREADS of kernels/recurrent.cu; mostSharedBytes is what a block may have of shared memory.
const (
	recurrentThreads = 256
	mostSharedBytes  = 48 << 10
)

// recurrentBytes is the shared memory of a block: the state, the cell and the state to come.
func recurrentBytes(d tensor.DType, gates int, state, weight tensor.Shape) int64 {
	bytes := int64(4)
	if d == tensor.Float64 {
		bytes = 8
	}
	return bytes * (int64(state[2]) + 2*int64(weight[0]/gates))
}

func supportsRecurrent(gates int) func(in, _ []graph.Spec, _ graph.Attrs) error {
	return func(in, out []graph.Spec, a graph.Attrs) error {
		floats := append([]graph.Spec{in[0]}, in[2:]...) // without how many run at each step
		if err := onlyReal(floats, out, a); err != nil {
			return err
		}
		if b := recurrentBytes(in[0].DType, gates, in[2].Shape, in[4].Shape); b > mostSharedBytes {
			return fmt.Errorf("a state of %d bytes, of which a block holds %d", b, mostSharedBytes)
		}
		return nil
	}
}

// launchRecurrent walks the directions one after the other, the sequences side by side.
func launchRecurrent(l *launch, gates int) error {
	x, batches, first, out, a := l.in[0], l.in[1], l.in[2], l.out[0], l.attrs
	directions, batch, width := first.shape()[0], first.shape()[1], first.shape()[2]
	if batch == 0 || width == 0 {
		return nil
	}
	rank, rows := len(x.shape()), 1
	for _, n := range x.shape()[:rank-1] {
		rows *= n
	}
	steps, batchesStep := x.shape()[0], 0
	if !batches.absent() {
		steps, batchesStep = batches.shape()[0], batches.layout.Strides[0]
	}
	lastCell := operand{}
	if len(l.out) > 2 {
		lastCell = l.out[2]
	}
	three := func(o operand) []int {
		if o.absent() {
			return make([]int, 3)
		}
		return o.layout.Strides
	}
	matrix := func(o operand) []int { return three(o)[:2] }
	bias := func(o operand) int { return three(o)[0] }
	for d := range directions {
		p := l.in[4+d*graph.RecurrentParams:][:graph.RecurrentParams]
		hidden := p[0].shape()[0] / gates
		if batches.absent() && steps > 0 && rank == 3 && p[4].absent() && x.dtype != tensor.Float64 && hidden == width {
			if err := stepwise(l, gates, d, p); err != nil {
				return err
			}
			continue
		}
		sizes := []int{
			gates, directions, d, flag(d == 1 || a.Bool("reverse")), flag(a.String("nonlinearity") == "relu"),
			rows, steps, batch, x.shape()[rank-1], hidden, width, x.layout.Strides[rank-1], batchesStep,
		}
		sizes = append(append(sizes, three(first)...), three(l.in[3])...)
		sizes = append(append(sizes, matrix(p[0])...), matrix(p[1])...)
		sizes = append(append(sizes, bias(p[2]), bias(p[3])), matrix(p[4])...)
		c := l.call(ofFloats("om_recurrent", x.dtype)).write(out).write(l.out[1]).write(lastCell)
		c.read(x).layout(x.layout.Leading(1)).read(batches).read(first).read(l.in[3])
		for _, o := range []operand{p[0], p[1], p[2], p[3], p[4]} {
			c.read(o)
		}
		c.i32(dtypeCodes[x.dtype]).ints(len(sizes), sizes...).status()
		shared := recurrentBytes(x.dtype, gates, first.shape(), p[0].shape())
		if err := c.grid(dims{min(int64(batch), mostBlocks), 1, 1}, dims{recurrentThreads, 1, 1}, shared); err != nil {
			return err
		}
	}
	return nil
}

// The constants of om_recurrent_step: the threads of a block, a warp of which has a unit, and its sequences.
const (
	stepThreads = 128
	stepRows    = 4
)

// stepwise walks one direction of sequences of one length with a launch for each step, whose state is what the one before
// wrote to the result.
func stepwise(l *launch, gates, d int, p []operand) error {
	x, first, firstCell, out, a := l.in[0], l.in[2], l.in[3], l.out[0], l.attrs
	directions, batch, width := first.shape()[0], first.shape()[1], first.shape()[2]
	steps, input := x.shape()[0], x.shape()[2]
	// at is a part of an operand that begins some elements on, with strides of its own.
	at := func(o operand, elements int, strides ...int) operand {
		o.layout = tensor.Layout{Offset: o.layout.Offset + elements, Shape: make(tensor.Shape, len(strides)), Strides: strides}
		return o
	}
	state := at(first, d*first.layout.Strides[0], first.layout.Strides[1:]...)
	var lastCell, cell operand
	if gates == 4 {
		lastCell = at(l.out[2], d*batch*width)
		cell = at(firstCell, d*firstCell.layout.Strides[0], firstCell.layout.Strides[1:]...)
	}
	bias := func(o operand) int {
		if o.absent() {
			return 0
		}
		return o.layout.Strides[0]
	}
	grid := dims{ceilDiv(int64(batch), stepRows), ceilDiv(int64(width), stepThreads/32), 1}
	for t := range steps {
		now := t
		if d == 1 || a.Bool("reverse") {
			now = steps - 1 - t
		}
		in := at(x, now*x.layout.Strides[0], x.layout.Strides[1:]...)
		to := at(out, (now*batch*directions+d)*width, directions*width, 1)
		last := operand{}
		if t == steps-1 {
			last = at(l.out[1], d*batch*width)
		}
		wide := input%8 == 0 && width%8 == 0
		for _, o := range []operand{in, state, p[0], p[1]} {
			wide = wide && vectors(o, 16/o.dtype.Size(), o.layout.Strides[1], o.layout.Strides[0])
		}
		sizes := []int{
			gates, flag(a.String("nonlinearity") == "relu"), batch, width, input, width,
			in.layout.Strides[0], state.layout.Strides[0], in.layout.Strides[1], state.layout.Strides[1],
			p[0].layout.Strides[0], p[1].layout.Strides[0], p[0].layout.Strides[1], p[1].layout.Strides[1],
			bias(p[2]), bias(p[3]), 0, 0, directions * width,
		}
		if !cell.absent() {
			sizes[16], sizes[17] = cell.layout.Strides[0], cell.layout.Strides[1]
		}
		c := l.call("om_recurrent_step").write(to).write(last).write(lastCell).read(in).read(state).read(cell)
		c.read(p[0]).read(p[1]).read(p[2]).read(p[3]).i32(dtypeCodes[x.dtype]).ints(len(sizes), sizes...).i32(int32(flag(wide)))
		if err := c.grid(grid, dims{stepThreads, 1, 1}, 0); err != nil {
			return err
		}
		state, cell = to, operand{}
	}
	return nil
}
