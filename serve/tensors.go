package serve

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/serve/oip"
	"github.com/optimem/optimem/serve/otlp"
	"github.com/optimem/optimem/tensor"
)

// A tensorRunner is a member of the pool.
type tensorRunner struct {
	version *version
	model   *models.Model
	member  *runtime.Member
	pool    *runtime.Pool
	done    closers
	join    int
	// pictures is nil where no input takes them.
	pictures *pictureInput
	// unseen says why a folder's own preprocessing is not done, nil where there is none.
	unseen   error
	allBytes int64
	// lastPass is how long the last pass took, outputs what is known of outputs since one was there.
	lastPass atomic.Int64
	outputs  atomic.Pointer[[]portJSON]
	// cut says how rows beyond the program's are kept apart, once rows was asked.
	rows sync.Once
	cut  atomic.Pointer[partition]
	// passes counts those that were observed, groups are those of the one that goes on. Passes are one after another.
	passes int64
	groups []otlp.Event
}

// A call is a request to a model, with what it took.
type call struct {
	request  *oip.Request
	response *oip.Response
	// body is what the answer's bytes are charged to.
	body *body
	// rows counts what went in: the first dimension of the first input.
	rows                        int64
	queue, input, infer, output time.Duration
	name, version               string
	// priority is that of the request.
	priority runtime.Priority
}

// portJSON is an input or output in metadata.
type portJSON struct {
	Name     string `json:"name"`
	Datatype string `json:"datatype"`
	Shape    []int  `json:"shape"`
	// Parameters say what the protocol has no field for.
	Parameters map[string]string `json:"parameters,omitempty"`
}

// tryPlan plans for one row, so that what does not fit is said now and not to the first client, and what a pass takes is known.
// A program that takes no single row, or whose sizes are not told, is planned with the first request.
func (m *tensorRunner) tryPlan(ctx context.Context) error {
	shapes := make(map[string]tensor.Shape)
	for _, p := range m.model.Inputs() {
		switch {
		case p.Optional:
			continue
		case p.Shape == nil || p.Number:
			return nil
		}
		s := append(tensor.Shape{}, p.Shape...)
		for i, n := range s {
			if n < 0 {
				s[i] = 1
			}
		}
		shapes[p.Name] = s
	}
	_, err := m.member.Plan(ctx, shapes)
	var capacity *runtime.CapacityError
	var pool *runtime.PoolError
	var unsupported *models.UnsupportedError
	if errors.As(err, &capacity) || errors.As(err, &unsupported) || errors.Is(err, context.Canceled) {
		return err
	}
	if errors.As(err, &pool) {
		return &Error{Status: 501, Msg: pool.Msg, Err: err}
	}
	return nil
}

func (m *tensorRunner) ports() (inputs, outputs []portJSON) {
	for _, p := range m.model.Inputs() {
		port := portJSON{Name: p.Name, Datatype: oip.Datatype(p.DType), Shape: dims(p.Shape)}
		if m.pictures != nil && m.pictures.Input == p.Name {
			port.Parameters = map[string]string{"pictures": oip.Bytes, "preprocess": m.pictures.Spec}
		}
		inputs = append(inputs, port)
	}
	if known := m.outputs.Load(); known != nil {
		return inputs, *known
	}
	outputs = []portJSON{}
	for _, name := range m.model.Outputs() {
		outputs = append(outputs, portJSON{Name: name, Datatype: "FP32", Shape: []int{}})
	}
	if known, ok := m.plannedOutputs(); ok {
		m.outputs.Store(&known)
		return inputs, known
	}
	return inputs, outputs
}

// plannedOutputs asks a graph for the outputs' dtypes and shapes, for inputs of one row. Nothing is run.
func (m *tensorRunner) plannedOutputs() ([]portJSON, bool) {
	shapes := func(rows int) map[string]tensor.Shape {
		all := make(map[string]tensor.Shape)
		for _, p := range m.model.Inputs() {
			if p.Optional {
				continue
			}
			if p.Shape == nil {
				return nil
			}
			s := append(tensor.Shape{}, p.Shape...)
			for i, n := range s {
				if n < 0 {
					s[i] = rows
				}
			}
			all[p.Name] = s
		}
		return all
	}
	one, two := shapes(2), shapes(3)
	if one == nil {
		return nil, false
	}
	g, err := m.model.Graph(one)
	if err != nil {
		return nil, false
	}
	h, err := m.model.Graph(two)
	if err != nil {
		return nil, false
	}
	list := make([]portJSON, 0, len(g.Outputs))
	for i, o := range g.Outputs {
		if o.Counts || i >= len(h.Outputs) {
			continue
		}
		p := portJSON{Name: o.Name, Datatype: oip.Datatype(g.Values[o.Operand.Value].DType), Shape: []int{}}
		other := h.Outputs[i].Operand.Layout.Shape
		for j, n := range o.Operand.Layout.Shape {
			if j < len(other) && other[j] != n {
				n = -1
			}
			p.Shape = append(p.Shape, n)
		}
		list = append(list, p)
	}
	return list, true
}

func dims(s tensor.Shape) []int {
	if s == nil {
		return []int{-1}
	}
	return append([]int{}, s...)
}

// values makes the inputs of a pass of those of a request. The caller gives back what is held of the bodies, also of an
// error.
func (m *tensorRunner) values(ctx context.Context, r *oip.Request) (_ runtime.Values, held int64, err error) {
	in := make(runtime.Values)
	if r.IsRaw {
		return in, 0, m.rawValue(r, in)
	}
	for i := range r.Inputs {
		x := &r.Inputs[i]
		if in[x.Name] != nil {
			return nil, held, refuse(400, "input %.100q is given twice", x.Name)
		}
		switch {
		case x.Tensor != nil:
			in[x.Name] = x.Tensor
		case m.pictures != nil && m.pictures.Input == x.Name:
			if in[x.Name], held, err = m.pictures.rows(ctx, x); err != nil {
				return nil, held, err
			}
		case m.unseen != nil && x.Name == folderInput:
			return nil, held, refuse(501, "input %.100q takes no pictures: %v", x.Name, m.unseen)
		default:
			return nil, held, refuse(400, "input %.100q: the model takes no %s", x.Name, oip.Bytes)
		}
	}
	return in, held, nil
}

// rawValue is the value of the only input, whose shape may have one dimension that is free.
func (m *tensorRunner) rawValue(r *oip.Request, in runtime.Values) error {
	var port *models.Port
	for _, p := range m.model.Inputs() {
		if !p.Optional {
			if port != nil {
				return refuse(400, "a raw request is for a model with one input")
			}
			port = &p
		}
	}
	if port == nil || port.Shape == nil {
		return refuse(400, "a raw request is for a model with one input of a known shape")
	}
	shape, free, fixed := append(tensor.Shape{}, port.Shape...), -1, int64(port.DType.Size())
	for i, n := range shape {
		switch {
		case n >= 0:
			var ok bool
			if fixed, ok = tensor.MulBytes(fixed, int64(n)); !ok {
				return refuse(400, "the input's shape is none")
			}
		case free >= 0:
			return refuse(400, "a raw request is for a model whose input has one free dimension at most")
		default:
			free = i
		}
	}
	if free >= 0 {
		if fixed == 0 || int64(len(r.Raw))%fixed != 0 {
			return refuse(400, "%d bytes are no number of rows of %d", len(r.Raw), fixed)
		}
		shape[free] = int(int64(len(r.Raw)) / fixed)
	}
	x := oip.Input{Name: port.Name, Datatype: oip.Datatype(port.DType), Shape: shape}
	left := int64(len(r.Raw))
	if err := x.SetRaw(port.Name, r.Raw, &left); err != nil {
		return err
	}
	in[port.Name] = x.Tensor
	return nil
}

func (m *tensorRunner) infer(ctx context.Context, c *call) error {
	begin := time.Now()
	in, held, err := m.values(ctx, c.request)
	defer m.version.registry.bodies.give(held)
	if err != nil {
		return err
	}
	c.rows = 1
	for _, p := range m.model.Inputs() {
		if x := in[p.Name]; x != nil && len(x.Layout.Shape) > 0 {
			c.rows = int64(x.Layout.Shape[0])
			break
		}
	}
	c.input = time.Since(begin)
	begin = time.Now()
	out, err := m.run(ctx, c, in)
	if err != nil {
		return m.explain(err)
	}
	begin = time.Now()
	defer func() { c.output = time.Since(begin) }()
	names := m.model.Outputs()
	for _, w := range c.request.Outputs {
		if out[w.Name] == nil {
			return refuse(400, "the model has no output %.100q", w.Name)
		}
	}
	c.response = &oip.Response{Model: c.name, Version: c.version, ID: c.request.ID}
	for _, name := range names {
		t := out[name]
		wanted, binary := c.request.Wants(name)
		if t == nil || !wanted {
			continue
		}
		if oip.Datatype(t.DType) == "" {
			return refuse(501, "output %q is of %s, for which the protocol has no name", name, t.DType)
		}
		c.response.Outputs = append(c.response.Outputs, oip.Output{Name: name, Tensor: t, Binary: binary})
	}
	return nil
}

// run runs the passes of a call, with room for its answer.
func (m *tensorRunner) run(ctx context.Context, c *call, in runtime.Values) (out runtime.Values, err error) {
	parts := m.parts(in)
	into, bytes := m.answer(ctx, in, parts)
	if err := c.body.more(bytes); err != nil {
		return nil, err
	}
	w := &ride{passage: passageOf(ctx)}
	ctx = context.WithValue(ctx, rideKey{}, w)
	asked := time.Now()
	if parts > 1 {
		out, err = m.runParts(ctx, c, in, parts)
	} else {
		out, err = m.member.RunWith(ctx, in, runtime.CallOptions{Priority: c.priority, Into: c.body.seats(into)})
	}
	c.queue, c.infer = w.times(asked, time.Now())
	w.tell(m.version.registry, asked)
	return out, err
}

// answer is the outputs of a call, without their memory, and what that takes, twice where parts are put together. Where
// sizes depend on data, or there are parts, it tells no outputs. A call whose graph is not known fails when it runs, by
// itself.
func (m *tensorRunner) answer(ctx context.Context, in runtime.Values, parts int) (into runtime.Values, bytes int64) {
	of := models.Call{Inputs: make(map[string]tensor.Shape)}
	for _, p := range m.model.Inputs() {
		x := in[p.Name]
		switch {
		case x == nil:
		case p.Number:
			if of.Numbers == nil {
				of.Numbers = make(models.Numbers)
			}
			of.Numbers[p.Name], of.Inputs[p.Name] = x, x.Layout.Shape
		case parts > 1:
			of.Inputs[p.Name] = p.Shape
		default:
			of.Inputs[p.Name] = x.Layout.Shape
		}
	}
	g, err := m.model.GraphOf(ctx, of)
	if err != nil {
		return nil, 0
	}
	into, sum, fixed := make(runtime.Values), int64(0), parts == 1
	for _, o := range g.Outputs {
		n, err := o.Operand.Layout.NumElements()
		if err != nil {
			continue
		}
		n, ok := tensor.MulBytes(n, int64(g.Values[o.Operand.Value].DType.Size()))
		if !ok || n > math.MaxInt64/2-sum {
			return nil, math.MaxInt64
		}
		sum, fixed = sum+keptSize(n), fixed && !o.Counts && o.Count == ""
		into[o.Name] = &tensor.Tensor{DType: g.Values[o.Operand.Value].DType, Layout: tensor.Contiguous(slices.Clone(o.Operand.Layout.Shape)...)}
	}
	if !fixed {
		into = nil
	}
	if parts > 1 {
		parts *= 2
	}
	sum, ok := tensor.MulBytes(sum, int64(parts))
	if !ok {
		return nil, math.MaxInt64
	}
	return into, sum
}

// explain says more of an error that a pool has.
func (m *tensorRunner) explain(err error) error {
	var pool *runtime.PoolError
	if errors.As(err, &pool) {
		return &Error{Status: 501, Msg: pool.Msg, Err: err}
	}
	return err
}

func (m *tensorRunner) facts() facts {
	f := facts{allBytes: m.allBytes, join: m.join, passSeconds: m.member.ForecastSeconds()}
	one, ok := m.member.Metrics()
	if !ok {
		return f
	}
	s := one.Session
	f.heldBytes, f.weightBytes, f.cacheBytes, f.ringBytes = one.HeldBytes, one.KeptBytes, s.CacheBytes, s.RingBytes
	f.activationBytes, f.workBytes = s.ActivationBytes, s.WorkBytes
	f.passes, f.calls, f.joined, f.movedBytes, f.loadedBytes = s.Runs, s.Calls, s.Joined, s.MovedBytes, s.LoadedBytes
	f.passing, f.stall = s.Passing, s.Stall
	if f.waiting = one.Waiting; one.Running {
		f.running = 1
	}
	if last := m.lastPass.Load(); last > 0 {
		f.passSeconds = time.Duration(last).Seconds()
	}
	return f
}

func (m *tensorRunner) giveBack(ctx context.Context) error {
	if err := m.member.GiveBack(ctx, runtime.Everything); err != nil && !errors.Is(err, runtime.ErrClosed) {
		return fmt.Errorf("%s: %w", m.version.name(), err)
	}
	return nil
}

func (m *tensorRunner) resume() {}

func (m *tensorRunner) close() error { return errors.Join(m.member.Close(), m.done.close()) }
