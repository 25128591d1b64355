package elementwise

import (
	"sync"

	"github.com/optimem/optimem/graph"
	simd "github.com/optimem/optimem/internal/cpu/kernel"
	"github.com/optimem/optimem/internal/cpu/ops"
	"github.com/optimem/optimem/internal/cpu/tasks"
	"github.com/optimem/optimem/tensor"
)

const (
	// shortLine is the length of lines that are gathered into blocks; longer ones are worked on one by one.
	shortLine = 64
)

// A blockStep is an elementwise op of a chain: of values, the operands before the results of steps.
type blockStep struct {
	op VectorOp
	// loop is the op where no kernel has it.
	loop     func(dst []float32, in [][]float32)
	args     [3]int
	operands int
	// at is the buffer of the result, −1 for the memory of the last.
	at int
}

// A blockOperand is an operand of blocks.
type blockOperand struct {
	view    ops.View
	strides [ops.MostDims]int
	// whole says that elements lie in order without gaps, single that all are one.
	whole, single bool
}

// blocks compute a chain of elementwise ops of float32 over operands of one shape, in one pass over memory. Halves are
// widened before it and rounded after it, bools are 0 and 1.
type blocks struct {
	set      *simd.Set
	operands [graph.MaxChainOperands]blockOperand
	inputs   int
	out      ops.View
	steps    [graph.MaxChainInstructions]blockStep
	count    int
	buffers  int
	// shape is that of all operands with dimensions joined; the last is a line.
	shape [ops.MostDims]int
	rank  int
}

var blocksPool = sync.Pool{New: func() any { return new(blocks) }}

// newBlocks returns blocks without steps for a call's operands, nil where they have too many dimensions.
func newBlocks(c *ops.Call) *blocks {
	b := blocksPool.Get().(*blocks)
	b.set, b.out, b.inputs, b.count, b.buffers, b.rank = c.Pool.Set, c.Out[0], len(c.In), 0, 0, 0
	for i, v := range c.In {
		b.operands[i] = blockOperand{view: v}
	}
	for d, n := range c.Out[0].Shape() {
		if n == 1 {
			continue
		}
		if !b.join(c, d, n) {
			if b.rank == ops.MostDims {
				blocksPool.Put(b)
				return nil
			}
			b.shape[b.rank] = n
			for i, v := range c.In {
				b.operands[i].strides[b.rank] = v.Layout.Strides[d]
			}
			b.rank++
		}
	}
	if b.rank == 0 {
		b.shape[0], b.rank = 1, 1
	}
	for i := range c.In {
		o := &b.operands[i]
		o.whole, o.single = true, true
		size := 1
		for d := b.rank - 1; d >= 0; d-- {
			o.whole = o.whole && (o.strides[d] == size || b.shape[d] == 1)
			o.single = o.single && o.strides[d] == 0
			size *= b.shape[d]
		}
		o.single = o.single || size == 1
	}
	return b
}

// join makes dimension d one with the last if it lies in order with it in all operands.
func (b *blocks) join(c *ops.Call, d, n int) bool {
	last := b.rank - 1
	if last < 0 {
		return false
	}
	for i, v := range c.In {
		if b.operands[i].strides[last] != v.Layout.Strides[d]*n {
			return false
		}
	}
	b.shape[last] *= n
	for i, v := range c.In {
		b.operands[i].strides[last] = v.Layout.Strides[d]
	}
	return true
}

// run computes the result and ends the use of b.
func (b *blocks) run(c *ops.Call) {
	c.Pool.Do(c.Out[0].Size(), ops.Grain, b)
	for i := range b.operands[:b.inputs] {
		b.operands[i] = blockOperand{}
	}
	b.out = ops.View{}
	for i := range b.steps[:b.count] {
		b.steps[i].loop = nil
	}
	blocksPool.Put(b)
}

// A spot is an element of the operands' common shape.
type spot struct {
	index [ops.MostDims]int // of the line; the last is the element of it
	first [graph.MaxChainOperands]int
}

// to goes to element at of the row-major order.
func (b *blocks) to(p *spot, at int) {
	for i := range b.operands[:b.inputs] {
		p.first[i] = b.operands[i].view.Layout.Offset
	}
	for d := b.rank - 1; d >= 0; d-- {
		p.index[d] = at % b.shape[d]
		at /= b.shape[d]
		if d == b.rank-1 {
			continue
		}
		for i := range b.operands[:b.inputs] {
			p.first[i] += p.index[d] * b.operands[i].strides[d]
		}
	}
}

// advance goes n elements on, within the line or to the next.
func (b *blocks) advance(p *spot, n int) {
	last := b.rank - 1
	p.index[last] += n
	if p.index[last] < b.shape[last] {
		return
	}
	p.index[last] = 0
	for d := last - 1; d >= 0; d-- {
		p.index[d]++
		for i := range b.operands[:b.inputs] {
			p.first[i] += b.operands[i].strides[d]
		}
		if p.index[d] < b.shape[d] {
			return
		}
		for i := range b.operands[:b.inputs] {
			p.first[i] -= p.index[d] * b.operands[i].strides[d]
		}
		p.index[d] = 0
	}
}

// Run implements Task.
func (b *blocks) Run(from, to int) {
	var (
		at     spot
		values [graph.MaxChainOperands + graph.MaxChainInstructions][]float32
		taken  [graph.MaxChainOperands + graph.MaxChainInstructions + 1]ops.BlockBuffer
		loads  = taken[:b.inputs]
		holds  = taken[b.inputs : b.inputs+b.buffers]
	)
	b.to(&at, from)
	line := b.shape[b.rank-1]
	for k := from; k < to; {
		n := min(ops.BlockFloats, to-k)
		if line >= shortLine {
			n = min(n, line-at.index[b.rank-1])
		}
		for i := range b.operands[:b.inputs] {
			values[i] = b.operand(i, &at, k, n, &loads[i])
		}
		for i := range b.steps[:b.count] {
			s := &b.steps[i]
			var dst []float32
			if s.at >= 0 {
				dst = ops.FloatsOf(&holds[s.at])[:n]
			} else if b.out.DType == tensor.Float32 {
				dst = ops.Elements[float32](b.out)[b.out.Layout.Offset+k:][:n]
			} else {
				dst = ops.FloatsOf(&taken[len(taken)-1])[:n]
			}
			b.step(s, dst, values[:])
			values[b.inputs+i] = dst
		}
		if b.out.DType != tensor.Float32 {
			ops.NarrowRow(b.set, b.out, b.out.Layout.Offset+k, values[b.inputs+b.count-1])
		}
		if line >= shortLine {
			b.advance(&at, n)
		} else {
			b.to(&at, k+n)
		}
		k += n
	}
	for _, t := range taken {
		if t != nil {
			ops.BlockBuffers.Put(t)
		}
	}
}

// step computes one op of a block.
func (b *blocks) step(s *blockStep, dst []float32, values [][]float32) {
	if s.loop != nil {
		callLoop(s, dst, values)
		return
	}
	var y, z []float32
	if s.operands > 1 {
		y = values[s.args[1]]
	}
	if s.operands > 2 {
		z = values[s.args[2]]
	}
	b.set.Map(s.op.M, dst, values[s.args[0]], y, z, s.op.P0, s.op.P1, s.op.P2)
}

// callLoop computes an op that no kernel has. Operands of one element are written out.
func callLoop(s *blockStep, dst []float32, values [][]float32) {
	in := tasks.Take[[3][]float32]()
	var room [3]ops.BlockBuffer
	for k := range s.operands {
		in[k] = values[s.args[k]]
		if len(in[k]) == 1 && len(dst) > 1 {
			x := in[k][0]
			in[k] = ops.FloatsOf(&room[k])[:len(dst)]
			for i := range in[k] {
				in[k][i] = x
			}
		}
	}
	s.loop(dst, in[:s.operands])
	for _, b := range room {
		if b != nil {
			ops.BlockBuffers.Put(b)
		}
	}
	clear(in[:])
	tasks.Give(in)
}

// operand returns n elements of an operand from element k on, at which p is: one if all are the same.
func (b *blocks) operand(i int, p *spot, k, n int, room *ops.BlockBuffer) []float32 {
	o := &b.operands[i]
	last := b.rank - 1
	direct := o.view.DType == tensor.Float32
	first, stride := p.first[i]+p.index[last]*o.strides[last], o.strides[last]
	within := p.index[last]+n <= b.shape[last]
	switch {
	case o.single || within && stride == 0:
		if direct {
			return ops.Elements[float32](o.view)[first : first+1]
		}
		n, within = 1, true
	case o.whole:
		first = o.view.Layout.Offset + k
		if direct {
			return ops.Elements[float32](o.view)[first : first+n]
		}
		stride, within = 1, true
	case direct && within && stride == 1:
		return ops.Elements[float32](o.view)[first : first+n]
	}
	to := ops.FloatsOf(room)[:n]
	if within {
		ops.LoadSingle(b.set, to, o.view, first, stride)
		return to
	}
	here := *p
	for at := 0; at < n; {
		m := min(n-at, b.shape[last]-here.index[last])
		ops.LoadSingle(b.set, to[at:at+m], o.view, here.first[i]+here.index[last]*stride, stride)
		b.advance(&here, m)
		at += m
	}
	return to
}
