package cuda

import (
	"fmt"

	"github.com/optimem/optimem/graph"
)

// stateKernels walk a sequence with a state that lies in a cache: kernels/state.cu.
var stateKernels = map[graph.Kind]kernel{
	"causal_conv":    {supports: supportsStateConv, launch: launchStateConv},
	"selective_scan": {supports: supportsState(3), launch: launchStateScan},
	"delta_rule":     {supports: supportsState(1), launch: launchStateDelta},
}

// The constants of kernels/state.cu: the threads of a block, how many numbers of a column one has, and the most taps.
const (
	stateThreads  = 128
	stateEach     = 16
	mostStateTaps = 8
)

func supportsStateConv(in, _ []graph.Spec, _ graph.Attrs) error {
	if taps := in[1].Shape[1]; taps > mostStateTaps {
		return fmt.Errorf("%d taps, it takes %d", taps, mostStateTaps)
	}
	return nil
}

// supportsState takes states of as many rows as the last dimension of an operand says.
func supportsState(operand int) func(in, _ []graph.Spec, _ graph.Attrs) error {
	return func(in, _ []graph.Spec, _ graph.Attrs) error {
		if rows := in[operand].Shape[3]; rows > 32*stateEach {
			return fmt.Errorf("a state of %d rows, it takes %d", rows, 32*stateEach)
		}
		return nil
	}
}

// stateTeam is how many threads have a column of so many rows.
func stateTeam(rows int) int {
	team := 1
	for team*stateEach < rows {
		team *= 2
	}
	return team
}

// A walk are the sizes of an op with a state.
type walk struct{ sequences, tokens, heads, each, rows, columns int }

// walked launches a kernel over columns, of which a block has so many.
func (l *launch) walked(name string, w walk, team int, inputs []operand, extra ...int32) error {
	if l.out[0].size() == 0 {
		return nil
	}
	first, _ := l.kind.StateOperand()
	cache, states := l.optional(first), l.optional(first+1)
	places, steps := 0, [2]int{}
	if !cache.absent() {
		places, steps = cache.shape()[0], [2]int(states.layout.Strides)
	}
	sizes := []int{w.tokens, w.heads, w.each, w.rows, w.columns, places, team, steps[0], steps[1]}
	c := l.call(name).write(l.out[0]).write(cache).read(states)
	for i := range 5 {
		var strides [4]int
		if i < len(inputs) {
			c.read(inputs[i])
			if !inputs[i].absent() {
				copy(strides[:], inputs[i].layout.Strides)
			}
		}
		sizes = append(sizes, strides[:]...)
	}
	c.ints(len(sizes), sizes...)
	for _, x := range extra {
		c.i32(x)
	}
	each := stateThreads / team // columns of a block
	columns := int64(w.heads) * int64(w.columns)
	return c.status().grid(dims{ceilDiv(columns, int64(each)), int64(w.sequences), 1}, dims{stateThreads, 1, 1}, 0)
}

// launchStateConv computes out[t][c] = in[2][c] + Σ_k in[1][c][k]·in[0][t−K+1+k][c].
func launchStateConv(l *launch) error {
	x := l.in[0].shape()
	w := walk{sequences: x[0], tokens: x[1], heads: x[2], each: 1, rows: l.in[1].shape()[1] - 1, columns: 1}
	return l.walked("om_state_conv", w, 1, []operand{l.in[0], l.in[1], l.optional(2)})
}

// launchStateScan computes a selective scan.
func launchStateScan(l *launch) error {
	x, ins := l.in[0].shape(), l.in[3].shape()
	w := walk{sequences: x[0], tokens: x[1], heads: x[2], each: x[2] / ins[2], rows: ins[3], columns: x[3]}
	return l.walked("om_state_scan", w, stateTeam(w.rows), l.in[:5], int32(flag(l.in[2].shape()[1] > 1)))
}

// launchStateDelta computes the gated delta rule.
func launchStateDelta(l *launch) error {
	keys, values := l.in[1].shape(), l.in[2].shape()
	w := walk{
		sequences: values[0], tokens: values[1], heads: values[2], each: values[2] / keys[2], rows: keys[3],
		columns: values[3],
	}
	return l.walked("om_state_delta", w, stateTeam(w.rows), l.in[:5], int32(flag(len(l.in[3].shape()) == 4)))
}
