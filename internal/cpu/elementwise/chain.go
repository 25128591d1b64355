package elementwise

import (
	"fmt"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu/ops"
	"github.com/optimem/optimem/tensor"
)

// chainKernels compute elementwise ops that were put together.
var chainKernels = map[graph.Kind]ops.Kernel{
	"chain": {Run: runChain, Supports: chainSupports, InPlace: ops.OverAny},
}

// chainSupports refuses programs with ops that have no loop over float32.
func chainSupports(_, _ []graph.Spec, a graph.Attrs) error {
	for _, q := range a.Program("program") {
		if chainLoop(q) == nil {
			return fmt.Errorf("no loop for %s", q.Kind)
		}
	}
	return nil
}

// chainLoop returns how an instruction is computed.
func chainLoop(q graph.Instruction) func(dst []float32, in [][]float32) {
	if q.Kind == "where" {
		return whereFloat32
	}
	k := elementwiseKernels[q.Kind]
	if k.Loops == nil {
		return nil
	}
	return k.Loops(q.Attrs, tensor.Float32).F32
}

// OfNumbers returns what a program of elementwise ops gives where its operands are the given numbers, as a chain computes
// it; false where there is no loop for one of the ops.
func OfNumbers(p graph.Program, operands []float32) (float32, bool) {
	values := make([][]float32, 0, len(operands)+len(p))
	for k := range operands {
		values = append(values, operands[k:k+1])
	}
	for _, q := range p {
		loop := chainLoop(q)
		if loop == nil {
			return 0, false
		}
		in := make([][]float32, len(q.Args))
		for k, arg := range q.Args {
			in[k] = values[arg]
		}
		result := make([]float32, 1)
		loop(result, in)
		values = append(values, result)
	}
	return values[len(values)-1][0], true
}

// whereFloat32 is where with a condition that is 0 or not.
func whereFloat32(dst []float32, in [][]float32) {
	a, b := in[1][:len(dst)], in[2][:len(dst)]
	for i, condition := range in[0][:len(dst)] {
		if condition != 0 {
			dst[i] = a[i]
		} else {
			dst[i] = b[i]
		}
	}
}

// loadBools reads bools as 0 and 1.
func loadBools(dst []float32, v ops.View, first, stride int) {
	src := ops.Elements[uint8](v)
	for i := range dst {
		dst[i] = 0
		if src[first+i*stride] != 0 {
			dst[i] = 1
		}
	}
}

// A chainStep is an instruction made ready.
type chainStep struct {
	loop func(dst []float32, in [][]float32)
	args []int
	// at is the buffer that the result goes to, −1 for the result of the chain.
	at int
}

// runChain computes the instructions one after the other, for a block of elements at a time that stays in the cache. The
// bits are those of the ops one by one.
func runChain(c *ops.Call) error {
	if b := newBlocks(c); b != nil {
		if err := b.program(c.Attrs.Program("program")); err != nil {
			return err
		}
		b.run(c)
		return nil
	}
	steps, buffers, err := chainSteps(c.Attrs.Program("program"), len(c.In))
	if err != nil {
		return err
	}
	c.Pool.For(c.Out[0].Size(), ops.Grain, func(from, to int) { chainPart(c, steps, buffers, from, to) })
	return nil
}

// chainSteps gives the results of the instructions buffers, which are used again when nobody is left to read them.
func chainSteps(p graph.Program, operands int) ([]chainStep, int, error) {
	lastUse := make([]int, operands+len(p))
	for i, q := range p {
		for _, arg := range q.Args {
			lastUse[arg] = i
		}
	}
	steps := make([]chainStep, len(p))
	var free []int
	buffers := 0
	for i, q := range p {
		steps[i] = chainStep{loop: chainLoop(q), args: q.Args, at: -1}
		if steps[i].loop == nil {
			return nil, 0, fmt.Errorf("no loop for %s", q.Kind)
		}
		if i == len(p)-1 {
			break
		}
		if n := len(free); n > 0 {
			steps[i].at, free = free[n-1], free[:n-1]
		} else {
			steps[i].at = buffers
			buffers++
		}
		for k, arg := range q.Args {
			if arg >= operands && lastUse[arg] == i && !contains(q.Args[:k], arg) {
				free = append(free, steps[arg-operands].at)
			}
		}
	}
	return steps, buffers, nil
}

// program makes the steps of a chain's instructions. Their results take buffers as those of chainSteps do.
func (b *blocks) program(p graph.Program) error {
	var lastUse [graph.MaxChainOperands + graph.MaxChainInstructions]int
	for i, q := range p {
		for _, arg := range q.Args {
			lastUse[arg] = i
		}
	}
	var free [graph.MaxChainInstructions]int
	room := 0
	for i, q := range p {
		s := &b.steps[i]
		*s = blockStep{operands: len(q.Args), at: -1}
		copy(s.args[:], q.Args)
		known := false
		if of := VectorOps[q.Kind]; of != nil && b.set != nil {
			s.op, known = of(q.Attrs)
		}
		if !known {
			if s.loop = chainLoop(q); s.loop == nil {
				return fmt.Errorf("no loop for %s", q.Kind)
			}
		}
		if i == len(p)-1 {
			break
		}
		if room > 0 {
			room--
			s.at = free[room]
		} else {
			s.at = b.buffers
			b.buffers++
		}
		for k, arg := range q.Args {
			if arg >= b.inputs && lastUse[arg] == i && !contains(q.Args[:k], arg) {
				free[room] = b.steps[arg-b.inputs].at
				room++
			}
		}
	}
	b.count = len(p)
	return nil
}

func contains(list []int, x int) bool {
	for _, y := range list {
		if x == y {
			return true
		}
	}
	return false
}

// chainPart computes elements [from, to) of a chain's result.
func chainPart(c *ops.Call, steps []chainStep, buffers, from, to int) {
	readers := make([]*reader[float32], len(c.In))
	for i, v := range c.In {
		if v.DType == tensor.Bool {
			readers[i] = newReader(v, loadBools, false, from)
		} else {
			readers[i] = newReader(v, ops.LoadStrided[float32], true, from)
		}
	}
	held := make([]ops.BlockBuffer, buffers)
	for i := range held {
		held[i] = ops.NewBlockBuffer()
	}
	out := ops.Elements[float32](c.Out[0])[c.Out[0].Layout.Offset:]
	values := make([][]float32, len(c.In)+len(steps))
	var in [3][]float32
	for at := from; at < to; at += ops.BlockElements {
		n := min(ops.BlockElements, to-at)
		for i := range readers {
			values[i] = readers[i].next(n)
		}
		for i := range steps {
			s := &steps[i]
			dst := out[at:][:n]
			if s.at >= 0 {
				dst = ops.BlockOf[float32](held[s.at])[:n]
			}
			for k, arg := range s.args {
				in[k] = values[arg]
			}
			s.loop(dst, in[:len(s.args)])
			values[len(c.In)+i] = dst
		}
	}
	for i := range readers {
		readers[i].release()
	}
	for _, b := range held {
		ops.BlockBuffers.Put(b)
	}
}
