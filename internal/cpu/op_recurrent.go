package cpu

import (
	"fmt"
	"math"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu/ops"
	"github.com/optimem/optimem/internal/cpu/tasks"
	"github.com/optimem/optimem/tensor"
)

// recurrentKernels walk a sequence with a state. Half floats are computed in float32; the state is rounded after each
// step, as PyTorch keeps it.
var recurrentKernels = map[graph.Kind]ops.Kernel{
	"lstm": {Run: runRecurrent(4), Work: recurrentWork(4), Supports: ops.OnlyReal},
	"gru":  {Run: runRecurrent(3), Work: recurrentWork(3), Supports: ops.OnlyReal},
	"rnn":  {Run: runRecurrent(1), Work: recurrentWork(1), Supports: ops.OnlyReal},
}

// recurrentSizes are those of a call. The input's part of the gates is computed for several steps at once.
type recurrentSizes struct {
	gates, directions           int
	rows, steps, batch          int
	input, hidden, width        int
	gateWidth, chunk, chunkRows int
}

// sizesOfRecurrent returns the sizes for the shapes of the input, the first state and the first weight, and that of how many
// sequences run at each step, nil where all do.
func sizesOfRecurrent(gates int, x, h, w, running tensor.Shape) recurrentSizes {
	const rowsAtOnce = 256
	s := recurrentSizes{
		gates: gates, directions: h[0], rows: ops.Volume(x[:len(x)-1]), steps: x[0], batch: h[1],
		input: x[len(x)-1], width: h[2], gateWidth: w[0],
	}
	s.hidden = s.gateWidth / gates
	if running != nil {
		s.steps = running[0]
	}
	s.chunk = max(1, rowsAtOnce/max(s.batch, 1))
	s.chunkRows = min(s.rows, s.chunk*s.batch)
	return s
}

func recurrentWork(gates int) func(in, out []graph.Spec, _ graph.Attrs) int64 {
	return func(in, _ []graph.Spec, _ graph.Attrs) int64 {
		s := sizesOfRecurrent(gates, in[0].Shape, in[2].Shape, in[4].Shape, in[1].Shape)
		size := ops.RealBytes(in[0].DType)
		pieces := s.pieces()
		return ops.ScratchBytes(size, pieces[:]...) + max(
			gemmWork(s.chunkRows, s.gateWidth, s.input, size),
			gemmWork(s.batch, s.gateWidth, s.width, size),
			gemmWork(s.batch, s.width, s.hidden, size),
		)
	}
}

// pieces are the sizes of a recurrence's slices, in the order of its fields.
func (s recurrentSizes) pieces() [7]int {
	return [...]int{
		s.chunkRows * s.gateWidth, s.batch * s.gateWidth, s.batch * s.width, s.batch * s.hidden, s.batch * s.hidden,
		s.gateWidth, s.gateWidth,
	}
}

func runRecurrent(gates int) func(c *ops.Call) error {
	return func(c *ops.Call) error {
		s := sizesOfRecurrent(gates, c.In[0].Shape(), c.In[2].Shape(), c.In[4].Shape(), c.In[1].Shape())
		if c.In[0].DType == tensor.Float64 {
			return recur[float64](c, s)
		}
		return recur[float32](c, s)
	}
}

// A recurrence is one direction of a call being computed in T, and the task of a step: a part is some of the hidden state.
type recurrence[T ops.Real] struct {
	recurrentSizes
	c         *ops.Call
	direction int
	reverse   bool
	relu      bool
	// The operands of the direction: [G·H I], [G·H P] and [P H], which may be absent.
	inputWeight, stateWeight, projection ops.View
	// inputGates are the input's part of the gates for a chunk of steps, stateGates the state's part for one step.
	inputGates, stateGates []T
	// state [B P] and cell [B H] are those after the last step; hidden [B H] is the state before its projection.
	state, cell, hiddenState []T
	inputBias, stateBias     []T
	products                 ops.Scratch
	// left and right are the factors of a product.
	left, right matrix[T]
	// stepGates is the input's part of the gates for the step at hand, next [B H] the state that it makes.
	stepGates, next []T
}

func recur[T ops.Real](c *ops.Call, s recurrentSizes) error {
	if err := s.checkBatches(c.In[1]); err != nil {
		return err
	}
	r := tasks.Take[recurrence[T]]()
	defer func() {
		*r = recurrence[T]{}
		tasks.Give(r)
	}()
	for d := range s.directions {
		params := c.In[4+d*graph.RecurrentParams:]
		*r = recurrence[T]{
			recurrentSizes: s, c: c, direction: d,
			reverse: d == 1 || c.Attrs.Bool("reverse"), relu: c.Attrs.String("nonlinearity") == "relu",
			inputWeight: params[0], stateWeight: params[1], projection: params[4],
		}
		r.products = ops.Scratch(c.Work)
		pieces := s.pieces()
		for i, to := range []*[]T{
			&r.inputGates, &r.stateGates, &r.state, &r.cell, &r.hiddenState, &r.inputBias, &r.stateBias,
		} {
			*to = ops.TakeReal[T](&r.products, pieces[i])
		}
		r.inputBias, r.stateBias = loadBias(r.inputBias, params[2]), loadBias(r.stateBias, params[3])
		ops.LoadAll(r.state, selectFirst(c.In[2], d))
		if s.gates == 4 {
			ops.LoadAll(r.cell, selectFirst(c.In[3], d))
		}
		if err := r.walk(); err != nil {
			return err
		}
		ops.StoreReal(c.Out[1], d*len(r.state), r.state)
		if s.gates == 4 {
			ops.StoreReal(c.Out[2], d*len(r.cell), r.cell)
		}
	}
	return nil
}

// loadBias reads a bias, nil for an absent one.
func loadBias[T ops.Real](dst []T, v ops.View) []T {
	if v.Absent() {
		return nil
	}
	ops.LoadAll(dst, v)
	return dst
}

// selectFirst returns the view at index i of the first dimension.
func selectFirst(v ops.View, i int) ops.View {
	v.Layout = tensor.Layout{
		Shape: v.Layout.Shape[1:], Strides: v.Layout.Strides[1:], Offset: v.Layout.Offset + i*v.Layout.Strides[0],
	}
	return v
}

// checkBatches checks how many sequences run at each step of a packed sequence: never more than before.
func (s recurrentSizes) checkBatches(v ops.View) error {
	if v.Absent() {
		return nil
	}
	rows, last := 0, s.batch
	for t := range s.steps {
		n := int(ops.IntegerAt(v, t))
		if n < 0 || n > last {
			return fmt.Errorf("%d sequences at step %d after %d", n, t, last)
		}
		rows, last = rows+n, n
	}
	if rows != s.rows {
		return fmt.Errorf("a packed sequence of %d rows has %d at its steps", s.rows, rows)
	}
	return nil
}

// running returns how many sequences run at step t.
func (r *recurrence[T]) running(t int) int {
	if r.c.In[1].Absent() {
		return r.batch
	}
	return int(ops.IntegerAt(r.c.In[1], t))
}

// walk goes over all steps. A sequence that does not run at a step keeps its state.
func (r *recurrence[T]) walk() error {
	at := 0 // the row of the next step, or the row after it where the direction is reversed
	if r.reverse {
		at = r.rows
	}
	step := func(i int) int {
		if r.reverse {
			return r.steps - 1 - i
		}
		return i
	}
	for done := 0; done < r.steps; done += r.chunk {
		if err := r.c.Ctx.Err(); err != nil {
			return err
		}
		end := min(done+r.chunk, r.steps)
		rows := 0
		for i := done; i < end; i++ {
			rows += r.running(step(i))
		}
		first := at
		if r.reverse {
			first = at - rows
		}
		r.project(first, rows)
		for i := done; i < end; i++ {
			n := r.running(step(i))
			row := at
			if r.reverse {
				row = at - n
				at = row
			} else {
				at += n
			}
			r.step(r.inputGates[(row-first)*r.gateWidth:][:n*r.gateWidth], n, row)
		}
	}
	return nil
}

// weightOf returns a weight [N K] as the right factor of a product with its transpose.
func weightOf[T ops.Real](v ops.View) matrix[T] {
	return matrix[T]{
		data: v.Data, dtype: v.DType, offset: v.Layout.Offset, line: v.Layout.Strides[0], step: v.Layout.Strides[1],
	}
}

// project computes the input's part of the gates for rows of the sequence.
func (r *recurrence[T]) project(first, rows int) {
	x := r.c.In[0]
	ops.LinesOf(x.Layout.Leading(1), first, first+rows, func(at, offset, stride, n int) {
		r.left = matrix[T]{data: x.Data, dtype: x.DType, offset: offset, line: stride, step: ops.LastStride(x.Layout)}
		r.right = weightOf[T](r.inputWeight)
		gemm(r.c.Pool, n, r.gateWidth, r.input, &r.left, &r.right, r.inputGates[(at-first)*r.gateWidth:], r.gateWidth,
			gemmOptions[T]{columnBias: r.inputBias}, r.products)
	})
}

// step advances the first n sequences, whose results are the rows from row on.
func (r *recurrence[T]) step(inputGates []T, n, row int) {
	r.left, r.right = leftOf(r.state, r.width), weightOf[T](r.stateWeight)
	gemm(r.c.Pool, n, r.gateWidth, r.width, &r.left, &r.right, r.stateGates, r.gateWidth,
		gemmOptions[T]{columnBias: r.stateBias}, r.products)
	r.stepGates, r.next = inputGates, r.hiddenState
	if r.projection.Absent() {
		r.next = r.state
	}
	const each = 1 << 11
	r.c.Pool.Do(n*r.hidden, each, r)
	if !r.projection.Absent() {
		r.left, r.right = leftOf(r.next, r.hidden), weightOf[T](r.projection)
		gemm(r.c.Pool, n, r.width, r.hidden, &r.left, &r.right, r.state, r.width, gemmOptions[T]{}, r.products)
		for i, x := range r.state[:n*r.width] {
			r.state[i] = ops.Rounded(r.c.Out[0].DType, x)
		}
	}
	for b := range n {
		ops.StoreReal(r.c.Out[0], ((row+b)*r.directions+r.direction)*r.width, r.state[b*r.width:(b+1)*r.width])
	}
}

// leftOf returns rows of the given width as the left factor of a product.
func leftOf[T ops.Real](values []T, width int) matrix[T] {
	return matrix[T]{data: ops.MemoryOf(values), dtype: ops.RealDType[T](), line: width, step: 1}
}

// Run implements Task.
func (r *recurrence[T]) Run(from, to int) {
	dtype, hidden := r.c.Out[0].DType, r.next
	for i := from; i < to; i++ {
		b, j := i/r.hidden, i%r.hidden
		x, h := r.stepGates[b*r.gateWidth+j:], r.stateGates[b*r.gateWidth+j:]
		switch r.gates {
		case 4:
			r.cell[i] = ops.Rounded(dtype, r.lstmCell(x, h, r.cell[i]))
			out := sigmoid(x[3*r.hidden] + h[3*r.hidden])
			hidden[i] = ops.Rounded(dtype, T(out*tanh(r.cell[i])))
		case 3:
			hidden[i] = ops.Rounded(dtype, r.gruState(x, h, hidden[i]))
		default:
			sum := x[0] + h[0]
			if r.relu {
				sum = max(sum, 0)
			} else {
				sum = tanh(sum)
			}
			hidden[i] = ops.Rounded(dtype, sum)
		}
	}
}

// lstmCell: c' = σ(f)·c + σ(i)·tanh(g), for gates i, f, g, o (and h' = σ(o)·tanh(c')): torch.nn.LSTM.
func (r *recurrence[T]) lstmCell(x, h []T, cell T) T {
	n := r.hidden
	in, forget, value := sigmoid(x[0]+h[0]), sigmoid(x[n]+h[n]), tanh(x[2*n]+h[2*n])
	return T(forget*cell) + T(in*value)
}

// gruState: h' = (h − n)·σ(z) + n with n = tanh(x_n + σ(r)·h_n), for gates r, z, n: torch.nn.GRU.
func (r *recurrence[T]) gruState(x, h []T, state T) T {
	n := r.hidden
	reset, update := sigmoid(x[0]+h[0]), sigmoid(x[n]+h[n])
	value := tanh(x[2*n] + T(reset*h[2*n]))
	return T((state-value)*update) + value
}

func sigmoid[T ops.Real](x T) T { return T(1 / (1 + math.Exp(-float64(x)))) }

func tanh[T ops.Real](x T) T { return T(math.Tanh(float64(x))) }
