package runtime

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/tensor"
)

// RunBatch computes a batch of any number of rows with weights stationary: each group of ops is brought once, and all
// micro-batches pass through it. A program that was exported for one row takes a batch of 64 as 64 micro-batches in one
// pass over the weights, if memory admits so many between two groups; else in several passes.
//
// Which dimension of the inputs and outputs counts the rows is found ([models.Model.BatchAxes]) or said by
// [Options.BatchAxes]; a program that mixes rows is a [*graph.NotBatchableError]. Inputs without such a dimension are the
// same for all rows; outputs without one are returned once. Rows come out in the order in which they went in. What is
// left of the rows when they do not divide is a micro-batch of its own.
//
// The results are the same bits as those of separate runs with the same micro-batches. How many rows a micro-batch has
// may choose another way to compute, so that other sizes may differ in the last bits; see [Options.MicroBatch].
func (s *Session) RunBatch(ctx context.Context, in Values) (Values, error) {
	if err := s.wait(ctx, "run"); err != nil {
		return nil, err
	}
	defer s.release()
	if s.opts.PlanOnly {
		return nil, ErrPlanOnly
	}
	if s.opts.Range != (graph.Range{}) {
		return nil, ErrRange
	}
	shapes, err := s.shapes(in)
	if err != nil {
		return nil, err
	}
	for name, t := range s.numbers(in) {
		if !s.model.HasNumber(name, t) {
			return nil, &InputError{Input: name,
				Msg: "is a number of the program: batches take the one that Model.SetNumber said"}
		}
	}
	for {
		d, err := s.divide(ctx, shapes)
		if err != nil {
			return nil, fmt.Errorf("run: %w", err)
		}
		b := &batch{division: d, in: in}
		if err := b.outputs(s.opts.Ops); err != nil {
			return nil, fmt.Errorf("run: %w", err)
		}
		err = b.run(ctx, s)
		if err == nil {
			return b.results(), nil
		}
		var full *device.OutOfMemoryError
		if !errors.As(err, &full) || !d.halves() {
			return nil, fmt.Errorf("run: %w", err)
		}
		// Nothing smaller goes through a pass than a micro-batch: they become smaller themselves.
		s.limits.rows = (d.micro + 1) / 2
		s.replanned(nil, err)
	}
}

// A division says how a batch is cut.
type division struct {
	// axes are those of the inputs, outAxes those of the outputs, −1 where there is none.
	axes, outAxes map[string]int
	// rows are cut into micro-batches of micro rows, of which full are whole and rest has the number of rows left.
	rows, micro, full, rest int
	// chosen says that the session chose micro.
	chosen bool
	// main computes a micro-batch, last the rest. So many instances go through a pass.
	main, last *program
	instances  int
	// seconds is what all of it is expected to take.
	seconds float64
}

// halves reports whether there are smaller micro-batches.
func (d *division) halves() bool { return d.chosen && d.micro > 1 }

// maxDivisions bounds the divisions kept, one for each set of input shapes.
const maxDivisions = 16

// divide finds out how to cut a batch.
func (s *Session) divide(ctx context.Context, shapes map[string]tensor.Shape) (*division, error) {
	if s.after != "" {
		return nil, &NotBatchableError{Msg: "the program keeps something of every call"}
	}
	key := fmt.Sprint(shapes)
	if d, ok := s.batches.Get(key); ok {
		return d, nil
	}
	within := func() planner {
		budgetBytes := s.batchBudget()
		return func(p *program, instances int) (*plan.Plan, error) {
			return s.planWithin(ctx, p, instances, budgetBytes)
		}
	}
	d, err := s.newDivision(ctx, shapes, within())
	if err != nil && s.unlearn(err) {
		d, err = s.newDivision(ctx, shapes, within())
	}
	if err != nil {
		return nil, err
	}
	s.batches.Put(key, d)
	return d, nil
}

// maxRows bounds a batch, so that what is counted in micro-batches and their bytes fits an int64.
const maxRows = math.MaxInt32

// A planner plans a pass of so many instances within the budget of a division.
type planner func(p *program, instances int) (*plan.Plan, error)

func (s *Session) newDivision(ctx context.Context, shapes map[string]tensor.Shape, within planner) (*division, error) {
	of, err := s.undivided(ctx, shapes)
	if err != nil {
		return nil, err
	}
	if of.micro == 0 {
		of.micro = s.opts.MicroBatch
	}
	if of.chosen = of.micro == 0; of.chosen {
		return s.choose(ctx, of, shapes, within)
	}
	if of.rows < of.micro {
		micro := of.micro
		of.micro = of.rows
		d, err := s.cut(ctx, of, shapes, within)
		var shape *models.InputError
		if errors.As(err, &shape) {
			err = &RowsError{Rows: of.rows, Micro: micro, Err: err}
		}
		return d, err
	}
	return s.cut(ctx, of, shapes, within)
}

// undivided finds the rows of inputs, and how many of them the program takes at a time: 0 is any number.
func (s *Session) undivided(ctx context.Context, shapes map[string]tensor.Shape) (of division, err error) {
	of.rows = -1
	if of.axes, of.outAxes, err = s.model.BatchAxesContext(ctx, s.asExported(shapes), s.opts.BatchAxes); err != nil {
		return of, err
	}
	for _, port := range s.model.Inputs() {
		shape, axis := shapes[port.Name], of.axes[port.Name]
		if axis < 0 || shape == nil {
			continue
		}
		if axis >= len(shape) {
			return of, &InputError{Input: port.Name,
				Msg: fmt.Sprintf("%v has no axis %d, which counts the rows", shape, axis)}
		}
		if n := shape[axis]; n > maxRows {
			return of, &InputError{Input: port.Name, Msg: fmt.Sprintf("%d rows, and %d are possible", n, maxRows)}
		} else if of.rows < 0 {
			of.rows = n
		} else if n != of.rows {
			return of, &InputError{Input: port.Name, Msg: fmt.Sprintf("%d rows, and another input has %d", n, of.rows)}
		}
		if axis < len(port.Shape) && port.Shape[axis] >= 0 {
			of.micro = port.Shape[axis]
		}
	}
	if of.rows <= 0 {
		return of, &graph.NotBatchableError{Msg: "there are no rows"}
	}
	return of, nil
}

// A RowsError says that a program takes so many rows at a time as a batch is no multiple of, and not what is left.
type RowsError struct {
	Rows, Micro int
	Err         error
}

// Error says how many rows are left, where there are others, and why they are not taken.
func (e *RowsError) Error() string {
	if e.Rows < e.Micro {
		return e.Err.Error()
	}
	return fmt.Sprintf("%d rows in micro-batches of %d leave %d: %v", e.Rows, e.Micro, e.Rows%e.Micro, e.Err)
}

// Unwrap returns why what is left is not taken.
func (e *RowsError) Unwrap() error { return e.Err }

// asExported returns shapes with the sizes that the model fixes.
func (s *Session) asExported(shapes map[string]tensor.Shape) map[string]tensor.Shape {
	fixed := make(map[string]tensor.Shape, len(shapes))
	for _, port := range s.model.Inputs() {
		shape, ok := shapes[port.Name]
		if !ok {
			continue
		}
		shape = slices.Clone(shape)
		for d := range shape {
			if len(port.Shape) == len(shape) && port.Shape[d] >= 0 {
				shape[d] = port.Shape[d]
			}
		}
		fixed[port.Name] = shape
	}
	return fixed
}

// choose tries micro-batches of all rows, of half of them, and so on. The first that fits is taken if all rows go
// through one pass by it at once; else smaller ones are tried while the batch is expected to take less time.
func (s *Session) choose(
	ctx context.Context, of division, shapes map[string]tensor.Shape, within planner,
) (*division, error) {
	micro := of.rows
	if s.limits.rows > 0 {
		micro = min(micro, s.limits.rows)
	}
	var best *division
	var refused error
	for {
		of.micro = micro
		d, err := s.cut(ctx, of, shapes, within)
		switch stopped := ctx.Err(); {
		case err != nil && stopped != nil:
			return nil, stopped
		case err != nil && best != nil:
			return best, nil
		case err != nil:
			refused = lesser(refused, err)
		case err == nil && (micro == of.rows && !s.divided(d) || best != nil && d.seconds > best.seconds):
			if best == nil {
				best = d
			}
			return best, nil
		case err == nil:
			best = d
		}
		if micro == 1 {
			break
		}
		micro = (micro + 1) / 2
	}
	if best == nil {
		return nil, refused
	}
	return best, nil
}

// lesser returns the one of two errors, of which the first may be nil, that says what would do: that of the least budget, and
// where none is of a budget the first.
func lesser(a, b error) error {
	var x, y *plan.CapacityError
	if a == nil || errors.As(b, &y) && (!errors.As(a, &x) || y.MinBytes < x.MinBytes) {
		return b
	}
	return a
}

// divided reports whether a device and the CPU share a division's passes: with smaller micro-batches they may compute at
// the same time.
func (s *Session) divided(d *division) bool {
	p := d.main.plans[d.instances]
	return p != nil && p.Divided()
}

// cut plans for micro-batches of a given size, as many in a pass as fit.
func (s *Session) cut(
	ctx context.Context, of division, shapes map[string]tensor.Shape, within planner,
) (*division, error) {
	d := &of
	d.full, d.rest = d.rows/d.micro, d.rows%d.micro
	var err error
	if d.main, err = s.forRows(ctx, d, shapes, d.micro); err != nil {
		return nil, err
	}
	var refused error // not always more by a larger number: what waits between groups may lie elsewhere
	for d.instances = s.limits.within(d.full); ; d.instances = (d.instances + 1) / 2 {
		var pl *plan.Plan
		if pl, err = within(d.main, d.instances); err == nil {
			passes := (d.full + d.instances - 1) / d.instances
			d.seconds = float64(passes) * pl.Forecast.Seconds
			break
		}
		if stopped := ctx.Err(); stopped != nil {
			return nil, stopped
		}
		refused = lesser(refused, err)
		var capacity *plan.CapacityError
		if !errors.As(err, &capacity) || d.instances == 1 {
			return nil, refused
		}
	}
	if d.rest == 0 {
		return d, nil
	}
	if d.last, err = s.forRows(ctx, d, shapes, d.rest); err != nil {
		return nil, &RowsError{Rows: d.rows, Micro: d.micro, Err: err}
	}
	pl, err := within(d.last, 1)
	if err != nil {
		return nil, err
	}
	d.seconds += pl.Forecast.Seconds
	return d, nil
}

// forRows returns the program for a number of rows.
func (s *Session) forRows(ctx context.Context, d *division, shapes map[string]tensor.Shape, n int) (*program, error) {
	shapes = maps.Clone(shapes)
	for name, shape := range shapes {
		if axis, ok := d.axes[name]; ok && axis >= 0 {
			shape = slices.Clone(shape)
			shape[axis] = n
			shapes[name] = shape
		}
	}
	g, err := s.model.GraphContext(ctx, shapes, nil)
	if err != nil {
		return nil, err
	}
	return s.program(ctx, g)
}

// A batch is a call of RunBatch.
type batch struct {
	*division
	in Values
	// shared has the bytes of inputs that are the same for all rows, by name.
	shared map[string][]byte
	// parts are the outputs, in the program's order.
	parts []part
}

// A part is an output of a batch.
type part struct {
	name string
	// axis counts the rows, −1 for an output that is there once; each is how many of its elements along the axis a
	// micro-batch has.
	axis, each int
	whole      *tensor.Tensor
	// missing says that an instance did not make it.
	missing bool
}

// outputs makes room for the outputs of all rows.
func (b *batch) outputs(ops *graph.Registry) error {
	axes := b.outAxes
	for _, o := range b.main.graph.Outputs {
		if _, known := axes[o.Name]; known {
			continue
		}
		given := maps.Clone(b.axes) // a dump of a module
		maps.Copy(given, axes)
		var err error
		if axes, err = graph.Batched(b.main.source, ops, given); err != nil {
			return err
		}
		break
	}
	for k, o := range b.main.graph.Outputs {
		if o.Count != "" {
			return &graph.NotBatchableError{Name: o.Name, Msg: "its shape depends on data"}
		}
		shape := slices.Clone(o.Operand.Layout.Shape)
		p := part{name: o.Name, axis: axes[o.Name]}
		if p.axis >= 0 {
			p.each = shape[p.axis]
			shape[p.axis] *= b.full
			if b.last != nil {
				rest := b.last.graph.Outputs[k].Operand.Layout.Shape
				if len(rest) != len(shape) {
					return &graph.NotBatchableError{Name: o.Name, Msg: "its shape depends on the number of rows"}
				}
				shape[p.axis] += rest[p.axis]
			}
		}
		n, err := shape.NumElements()
		if err != nil {
			return err
		}
		dtype := b.main.graph.Values[o.Operand.Value].DType
		p.whole = &tensor.Tensor{
			DType: dtype, Layout: tensor.Contiguous(shape...), Data: make([]byte, n*int64(dtype.Size())),
		}
		b.parts = append(b.parts, p)
	}
	return nil
}

// run computes all rows.
func (b *batch) run(ctx context.Context, s *Session) error {
	b.shared = make(map[string][]byte)
	io := &passIO{}
	for i := range b.full {
		io.members = append(io.members, &micro{b: b, p: b.main, index: i, from: i * b.micro, rows: b.micro})
	}
	if err := s.run(ctx, b.main, io, b.instances, b.halves()); err != nil {
		return err
	}
	for _, m := range io.members {
		m.(*micro).finish()
	}
	if b.last == nil {
		return nil
	}
	rest := &micro{b: b, p: b.last, index: b.full, from: b.full * b.micro, rows: b.rest}
	io.members = []member{rest}
	if err := s.run(ctx, b.last, io, 1, b.halves()); err != nil {
		return err
	}
	rest.finish()
	return nil
}

func (b *batch) results() Values {
	out := make(Values, len(b.parts))
	for _, p := range b.parts {
		if !p.missing {
			out[p.name] = p.whole
		}
	}
	return out
}

// A micro is a micro-batch: it implements member.
type micro struct {
	b                 *batch
	p                 *program
	index, from, rows int
	raw               [][]byte
}

func (m *micro) input(id graph.ValueID) []byte {
	v := &m.p.graph.Values[id]
	t := m.b.in[v.Name]
	axis, ok := m.b.axes[v.Name]
	if !ok || axis < 0 {
		bytes, ok := m.b.shared[v.Name]
		if !ok {
			bytes = ordered(t)
			m.b.shared[v.Name] = bytes
		}
		return bytes
	}
	rows := tensor.Tensor{DType: t.DType, Layout: t.Layout, Data: t.Data}
	rows.Layout.Shape = slices.Clone(t.Layout.Shape)
	rows.Layout.Shape[axis] = m.rows
	rows.Layout.Offset += m.from * t.Layout.Strides[axis]
	return ordered(&rows)
}

// ordered returns the bytes of a tensor's elements in order, the tensor's own where they lie so.
func ordered(t *tensor.Tensor) []byte {
	if bytes, ok := inOrder(t); ok {
		return bytes
	}
	n, _ := t.Layout.NumElements()
	bytes := make([]byte, n*int64(t.DType.Size()))
	t.CopyTo(bytes)
	return bytes
}

func (m *micro) output(output int, made bool) []byte {
	p := &m.b.parts[output]
	if !made {
		p.missing = true
		return nil
	}
	if p.axis < 0 && m.index > 0 {
		return nil
	}
	if m.p.whole[output] && m.together(p) {
		n := int64(len(p.whole.Data))
		if p.axis < 0 {
			return p.whole.Data
		}
		row := n / int64(max(p.whole.Layout.Shape[p.axis], 1))
		from := row * int64(m.index) * int64(p.each)
		return p.whole.Data[from : from+m.p.spanBytes[output]]
	}
	if m.raw == nil {
		m.raw = make([][]byte, len(m.b.parts))
	}
	m.raw[output] = make([]byte, m.p.spanBytes[output])
	return m.raw[output]
}

// together reports whether the rows of a micro-batch lie in one run of an output.
func (m *micro) together(p *part) bool {
	for d := range p.axis {
		if p.whole.Layout.Shape[d] != 1 {
			return false
		}
	}
	return true
}

// finish puts what could not be copied out in its place.
func (m *micro) finish() {
	for k, raw := range m.raw {
		if raw == nil {
			continue
		}
		t := m.p.view(k, raw)
		p := &m.b.parts[k]
		if p.axis < 0 {
			t.CopyTo(p.whole.Data)
			continue
		}
		bytes := ordered(&t)
		outer := 1
		for _, n := range t.Layout.Shape[:p.axis] {
			outer *= n
		}
		if outer == 0 || len(bytes) == 0 {
			continue
		}
		run, all := len(bytes)/outer, len(p.whole.Data)/outer
		from := all / p.whole.Layout.Shape[p.axis] * m.index * p.each
		for i := range outer {
			copy(p.whole.Data[i*all+from:], bytes[i*run:(i+1)*run])
		}
	}
	m.raw = nil
}
