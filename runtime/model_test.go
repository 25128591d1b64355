package runtime_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"github.com/optimem/optimem/device/emulated"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/plan"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// A modelled is a program with what is expected of its sessions.
type modelled struct {
	model *models.Model
	// input draws the inputs of a call, shapes says which there are.
	input  func(t *rapid.T) optimem.Values
	shapes map[string]tensor.Shape
	// alone computes with a session that does nothing else; it is nil for a program that counts its passes.
	alone *optimem.Session
	// memory is what is enough for everything, little and much are budgets in between, and none is too little.
	memory, much, little, none int64
}

// modelledPrograms are a model whose weights are paged, one with outputs across memory, and one with states.
func modelledPrograms(t *testing.T) map[string]*modelled {
	t.Helper()
	digits := &modelled{model: build(t, digitsModel, nil), memory: 4 << 20, much: 1 << 20, little: 350 << 10, none: 1000}
	digits.alone = start(t, digits.model, optimem.Options{})
	digits.shapes = map[string]tensor.Shape{"input": {1, 1, 8, 8}}
	digits.input = func(t *rapid.T) optimem.Values {
		rows := rapid.SampledFrom([]int{1, 1, 1, 3}).Draw(t, "rows")
		return optimem.Values{"input": anywhere(t, tensor.Shape{rows, 1, 8, 8})}
	}
	rows := &modelled{model: build(t, rowsModel, nil), memory: 1 << 20, much: 1 << 19, little: 64 << 10, none: 10}
	rows.alone = start(t, rows.model, optimem.Options{})
	rows.shapes = rowsShapes(2)
	rows.input = func(t *rapid.T) optimem.Values {
		in := make(optimem.Values)
		shapes := rowsShapes(rapid.SampledFrom([]int{2, 2, 2, 4}).Draw(t, "rows"))
		for _, name := range []string{"x", "z", "w"} {
			in[name] = anywhere(t, shapes[name])
		}
		return in
	}
	states := &modelled{model: build(t, "testdata/states.pt2", nil), memory: 1 << 20, much: 1 << 19, little: 64 << 10, none: 10}
	states.shapes = map[string]tensor.Shape{"x": {1, 2}}
	states.input = func(t *rapid.T) optimem.Values {
		rows := rapid.SampledFrom([]int{1, 1, 3}).Draw(t, "rows")
		return optimem.Values{"x": anywhere(t, tensor.Shape{rows, 2})}
	}
	return map[string]*modelled{"digits": digits, "rows": rows, "states": states}
}

// A buffers is what the program states.pt2 has changed, as a model of it in Go: no number is rounded.
type buffers struct {
	a, b  [2]float32
	count int64
}

// pass returns what a pass gives for an input and changes.
func (s *buffers) pass(x *tensor.Tensor) optimem.Values {
	old := s.a
	s.a, s.b = s.b, old
	elements, _ := tensor.Slice[float32](laidOut(x))
	for i, v := range elements {
		s.b[i%2] += v
	}
	s.count++
	sum := []float32{s.a[0] + s.b[0], s.a[1] + s.b[1]}
	return optimem.Values{
		"sum": tensor.Of(sum, 2), "a": tensor.Of(slices.Clone(s.a[:]), 2), "count": tensor.Of([]int64{s.count}),
	}
}

// A modelSession is a session and what the model of it knows.
type modelSession struct {
	*modelled
	s   *optimem.Session
	dev *emulated.Device // nil on the CPU
	// budget is that of the session now, most the largest it had; taken is what others have of the device.
	budget, most, taken int64
	lacked              bool // others had some of the device's memory once
	states              buffers
	// calls were served, passes are over; batches says that some were those of batches.
	calls   int64
	passes  atomic.Int64
	batches bool
	before  optimem.Metrics

	// armed has the first event of a pass wait for letGo, after entered was closed.
	armed          atomic.Bool
	entered, letGo chan struct{}
	// events counts those since the pass was let go, cancels are called at some of them.
	mu      sync.Mutex
	events  int
	cancels map[int][]context.CancelFunc
}

// observe is called by passes.
func (m *modelSession) observe(e optimem.Event) {
	if e.Kind == optimem.PassDone {
		m.passes.Add(1)
	}
	if m.armed.CompareAndSwap(true, false) {
		close(m.entered)
		<-m.letGo
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, cancel := range m.cancels[m.events] {
		cancel()
	}
	m.events++
}

// newModelSession opens a session in a way that is drawn.
func newModelSession(t *rapid.T, p *modelled) *modelSession {
	m := &modelSession{modelled: p, states: buffers{a: [2]float32{1, 2}, b: [2]float32{10, 20}}}
	mode := rapid.SampledFrom([]plan.Mode{plan.Page, plan.Auto, plan.Chunk, plan.Resident}).Draw(t, "mode")
	o := optimem.Options{
		Observe: m.observe, Threads: rapid.IntRange(1, 2).Draw(t, "threads"),
		MaxJoin:    rapid.SampledFrom([]int{0, 1, 2, 4}).Draw(t, "join"),
		MicroBatch: rapid.IntRange(0, 2).Draw(t, "micro"),
		Memory:     rapid.SampledFrom([]int64{p.memory, p.much}).Draw(t, "memory"),
	}
	if mode == plan.Chunk {
		o.Capacity = plan.Limit{N: rapid.SampledFrom([]int64{0, 20_000, 1 << 30}).Draw(t, "capacity"), Unit: plan.Bytes}
	}
	m.budget, m.most = o.Memory, o.Memory
	var err error
	if rapid.Bool().Draw(t, "emulated") {
		m.s, m.dev, err = optimem.StartEmulated(context.Background(), p.model, mode, o, emulated.Options{MemoryBytes: p.memory})
	} else {
		m.s, err = map[plan.Mode]func(context.Context, *models.Model, optimem.Options) (*optimem.Session, error){
			plan.Page: optimem.Page, plan.Auto: optimem.Auto, plan.Chunk: optimem.Chunk, plan.Resident: optimem.Resident,
		}[mode](context.Background(), p.model, o)
	}
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// mayFail reports whether a session may refuse inputs for want of memory, as an error says that it does.
func (m *modelSession) mayFail(err error) bool {
	var capacity *optimem.CapacityError
	var full *optimem.OutOfMemoryError
	if errors.As(err, &full) {
		return m.taken > 0
	}
	return errors.As(err, &capacity) && (capacity.MinBytes > m.budget || m.taken > 0)
}

// tooLittle reports whether there is no plan for inputs, or may be none.
func (m *modelSession) tooLittle(in optimem.Values) bool {
	if m.taken > 0 {
		return true
	}
	shapes := make(map[string]tensor.Shape)
	for name, x := range in {
		shapes[name] = x.Layout.Shape
	}
	_, err := m.s.Plan(context.Background(), shapes)
	return err != nil
}

// A caller calls a session once.
type caller struct {
	in optimem.Values
	// into is nil for Run; kept says that what lies around the outputs is untouched.
	into optimem.Values
	kept func() error
	// spoilt says what of the inputs or outputs the session cannot take.
	spoilt string
	// cancelled is when the call is: 1 before it is made, 2 while it waits for another, n > 2 at a later event of passes; 0 is
	// never.
	cancelled int
	ctx       context.Context
	cancel    context.CancelFunc
	want, out optimem.Values
	err       error
	done      chan struct{}
}

// newCaller draws one.
func (m *modelSession) newCaller(t *rapid.T) *caller {
	c := &caller{in: m.input(t), done: make(chan struct{})}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	expected := (&buffers{}).pass
	if m.alone != nil {
		ordered := make(optimem.Values)
		for name, x := range c.in {
			ordered[name] = laidOut(x)
		}
		var err error
		if c.want, err = m.alone.Run(context.Background(), ordered); err != nil {
			t.Fatal(err)
		}
	}
	if rapid.Bool().Draw(t, "into") {
		like := c.want
		if like == nil {
			like = expected(c.in["x"])
		}
		c.into, c.kept = roomFor(t, like)
	}
	switch rapid.IntRange(0, 9).Draw(t, "spoilt") {
	case 0:
		for name, x := range c.in {
			short := *x
			short.Data = x.Data[:3]
			c.in[name], c.spoilt = &short, "input"
		}
	case 1:
		if c.into != nil {
			c.into["nothing"], c.spoilt = tensor.Of([]float32{0}, 1), "output"
		}
	}
	return c
}

// call makes the call.
func (c *caller) call(s *optimem.Session) {
	defer close(c.done)
	if c.into == nil {
		c.out, c.err = s.Run(c.ctx, c.in)
		return
	}
	c.out, c.err = c.into, s.RunInto(c.ctx, c.in, c.into)
	if c.err != nil { // the memory is the caller's again, for something else
		for _, x := range c.into {
			for i := range x.Data {
				x.Data[i] = 0x5a
			}
		}
	}
}

// answers checks what callers got whose calls are over. Those that were served by a program that counts are sorted by that.
func (m *modelSession) answers(t *rapid.T, callers []*caller, closing bool) {
	served := slices.DeleteFunc(slices.Clone(callers), func(c *caller) bool { return c.err != nil })
	if m.alone == nil {
		at := func(c *caller) int64 {
			x := c.out["count"]
			data, _ := tensor.Slice[int64](x)
			if x.Layout.Offset > 0 {
				data, _ = tensor.Slice[int64](&tensor.Tensor{DType: x.DType, Layout: tensor.Contiguous(), Data: x.Data[8*x.Layout.Offset:]})
			}
			return data[0]
		}
		slices.SortFunc(served, func(a, b *caller) int { return int(at(a) - at(b)) })
		for _, c := range served {
			c.want = m.states.pass(c.in["x"])
		}
	}
	m.calls += int64(len(served))
	for i, c := range callers {
		var input *optimem.InputError
		var output *optimem.OutputError
		switch {
		case c.err == nil && c.spoilt != "":
			t.Fatalf("caller %d: nobody saw that %s cannot be", i, c.spoilt)
		case c.err == nil:
			if err := sameBits(c.out, c.want); err != nil {
				t.Fatalf("caller %d: %v", i, err)
			}
		case c.spoilt != "" && (errors.As(c.err, &input) || errors.As(c.err, &output)):
		case c.cancelled > 0 && errors.Is(c.err, context.Canceled):
		case closing && errors.Is(c.err, optimem.ErrClosed):
		case m.mayFail(c.err) && m.tooLittle(c.in):
		default:
			t.Fatalf("caller %d, budget %d, %d taken: %v", i, m.budget, m.taken, c.err)
		}
		if c.kept != nil && c.err == nil {
			if err := c.kept(); err != nil {
				t.Fatal(err)
			}
		}
		for name, x := range c.into {
			if c.err != nil && slices.ContainsFunc(x.Data, func(b byte) bool { return b != 0x5a }) {
				t.Fatalf("output %s was written after its call had returned", name)
			}
		}
	}
}

// together has several callers call at once: the first one's pass lasts until the others wait, and beside them others do
// what is drawn.
func (m *modelSession) together(t *rapid.T) {
	callers := make([]*caller, rapid.IntRange(1, 6).Draw(t, "callers"))
	m.cancels, m.events = make(map[int][]context.CancelFunc), 0
	for i := range callers {
		c := m.newCaller(t)
		defer c.cancel()
		if i == 0 { // who leads is there
			c.mend()
		}
		if rapid.IntRange(0, 2).Draw(t, "cancelled") == 0 {
			if c.cancelled = rapid.IntRange(1, 12).Draw(t, "at"); i == 0 {
				c.cancelled = max(c.cancelled, 3)
			}
		}
		if c.cancelled > 2 {
			m.cancels[c.cancelled-3] = append(m.cancels[c.cancelled-3], c.cancel)
		}
		callers[i] = c
	}
	m.entered, m.letGo = make(chan struct{}), make(chan struct{})
	m.armed.Store(len(callers) > 1)
	go callers[0].call(m.s)
	held := false
	if len(callers) > 1 {
		select {
		case <-m.entered:
			held = true
		case <-callers[0].done:
			m.armed.Store(false)
		}
	}
	waiting := 0
	for _, c := range callers[1:] {
		if c.cancelled == 1 {
			c.cancel()
		} else {
			waiting++
		}
		go c.call(m.s)
		if held {
			m.s.WaitFor(waiting) // so that they come in this order
		}
	}
	for _, c := range callers[1:] {
		if c.cancelled == 2 && held {
			c.cancel()
			<-c.done
		}
	}
	var beside sync.WaitGroup
	if rapid.Bool().Draw(t, "beside") {
		what := rapid.SampledFrom([]string{"GiveBack", "Plan"}).Draw(t, "what")
		beside.Go(func() {
			var err error
			if what == "Plan" {
				_, err = m.s.Plan(context.Background(), m.shapes)
			} else {
				err = m.s.GiveBack(context.Background())
			}
			if err != nil && !m.mayFail(err) {
				t.Errorf("%s: %v", what, err)
			}
		})
	}
	if held {
		close(m.letGo)
	}
	for _, c := range callers {
		<-c.done
	}
	beside.Wait()
	m.answers(t, callers, false)
}

// mend makes a caller's inputs and outputs such that the session can take them.
func (c *caller) mend() {
	for _, x := range c.in {
		x.Data = x.Data[:cap(x.Data)]
	}
	delete(c.into, "nothing")
	c.spoilt = ""
}

func (m *modelSession) runBatch(t *rapid.T) {
	c := m.newCaller(t)
	defer c.cancel()
	m.batches = true
	c.mend()
	out, err := m.s.RunBatch(c.ctx, c.in)
	var axes *optimem.NotBatchableError
	switch {
	case m.alone == nil && errors.As(err, &axes):
	case err != nil && m.mayFail(err):
	case err != nil || m.alone == nil:
		t.Fatalf("a batch: %v", err)
	case m.shapes["w"] != nil: // which rounds nothing, whatever the micro-batches
		if err := sameBits(out, c.want); err != nil {
			t.Fatalf("a batch: %v", err)
		}
	}
}

func (m *modelSession) giveBack(t *rapid.T) {
	if err := m.s.GiveBack(context.Background()); err != nil {
		t.Fatal(err)
	}
	if n := onDevice(m.s); n != 0 {
		t.Fatalf("%d bytes are held after they were given back", n)
	}
}

func (m *modelSession) resize(t *rapid.T) {
	budget := rapid.SampledFrom([]int64{m.memory, m.much, m.little, m.none, 64 << 20, 0, -1}).Draw(t, "budget")
	err := m.s.Resize(context.Background(), budget)
	var capacity *optimem.CapacityError
	switch {
	case err == nil && budget > 0:
		if m.dev != nil {
			budget = min(budget, m.memory)
		}
		m.budget, m.most = budget, max(m.most, budget)
		if n := onDevice(m.s); n > budget {
			t.Fatalf("%d bytes are held of %d", n, budget)
		}
	case err == nil:
		t.Fatalf("%d bytes are a budget", budget)
	case budget > 0 && (!errors.As(err, &capacity) || capacity.MinBytes <= budget):
		t.Fatalf("%d bytes: %v", budget, err)
	}
}

func (m *modelSession) plan(t *rapid.T) {
	p, err := m.s.Plan(context.Background(), m.shapes)
	if err != nil && !m.mayFail(err) {
		t.Fatal(err)
	}
	if err == nil && p.PeakBytes() > m.budget {
		t.Fatalf("a plan of %d bytes within %d", p.PeakBytes(), m.budget)
	}
}

func (m *modelSession) take(t *rapid.T) {
	if m.dev == nil {
		t.Skip("the host's memory is not to be taken")
	}
	m.taken = rapid.SampledFrom([]int64{0, 0, m.memory / 2, m.memory * 9 / 10, m.memory}).Draw(t, "taken")
	m.dev.Take(m.taken)
	m.lacked = m.lacked || m.taken > 0
}

// check is what holds between calls.
func (m *modelSession) check(t *rapid.T) {
	if !m.s.Idle() {
		t.Fatal("nobody calls, and it is somebody's turn or somebody waits")
	}
	now := m.s.Metrics()
	if now.Calls != m.calls || now.Runs != m.passes.Load() || !m.batches && now.Runs+now.Joined != now.Calls {
		t.Fatalf("%d calls served in %d passes, and counted are %+v", m.calls, m.passes.Load(), now)
	}
	if now.PeakBytes > m.most {
		t.Fatalf("%d bytes were held of %d", now.PeakBytes, m.most)
	}
	b := m.before
	if now.PeakBytes < b.PeakBytes || now.HostPeakBytes < max(b.HostPeakBytes, b.HostBytes) || now.LoadedBytes < b.LoadedBytes ||
		now.MovedBytes < b.MovedBytes || now.Replans < b.Replans || now.Replans > 0 && !m.lacked {
		t.Fatalf("%+v\nafter %+v", now, b)
	}
	m.before = now
}

// close closes the session while callers call, and checks that nothing of it is left.
func (m *modelSession) close(t *rapid.T) {
	callers := make([]*caller, rapid.IntRange(0, 3).Draw(t, "callers at the end"))
	for i := range callers {
		callers[i] = m.newCaller(t)
		defer callers[i].cancel()
		go callers[i].call(m.s)
	}
	for range 2 {
		if err := m.s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range callers {
		<-c.done
	}
	m.answers(t, callers, true)
	in := m.input(t)
	ctx := context.Background()
	for range 2 { // and it is nobody's turn for ever
		for name, call := range map[string]func() error{
			"Run":       func() error { _, err := m.s.Run(ctx, in); return err },
			"RunInto":   func() error { return m.s.RunInto(ctx, in, nil) },
			"RunBatch":  func() error { _, err := m.s.RunBatch(ctx, in); return err },
			"GiveBack":  func() error { return m.s.GiveBack(ctx) },
			"Resize":    func() error { return m.s.Resize(ctx, m.memory) },
			"Plan":      func() error { _, err := m.s.Plan(ctx, m.shapes); return err },
			"PlanBatch": func() error { _, err := m.s.PlanBatch(ctx, m.shapes); return err },
			"Least":     func() error { _, err := m.s.LeastForBatch(ctx, m.shapes); return err },
		} {
			if err := call(); !errors.Is(err, optimem.ErrClosed) {
				t.Fatalf("%s of a closed session: %v", name, err)
			}
			if !m.s.Idle() {
				t.Fatalf("%s of a closed session keeps the turn", name)
			}
		}
	}
	if n := m.s.Metrics(); onDevice(m.s) != 0 || n.HostBytes != 0 {
		t.Fatalf("a closed session holds %+v", n)
	}
	if m.dev != nil {
		if total, free := m.dev.Memory(); free != total-m.taken {
			t.Fatalf("%d of %d bytes are free on the device, of which others have %d", free, total, m.taken)
		}
	}
}

// TestSessionsAsModelled does with sessions in every mode what is drawn: calls alone and together, some of which cannot be or
// are cancelled at any time, batches, other budgets, memory that others take and that is given back. Every caller gets what
// it would get by itself, or an error that says why not; what cannot be changes nothing; and nothing is left at the end.
func TestSessionsAsModelled(t *testing.T) {
	for name, p := range modelledPrograms(t) {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				left := func() int64 {
					if p.alone != nil {
						if err := p.alone.GiveBack(context.Background()); err != nil {
							t.Fatal(err)
						}
					}
					return offHeap()
				}
				before := left()
				m := newModelSession(t, p)
				defer func() {
					if t.Failed() {
						_ = m.s.Close()
					}
				}()
				t.Repeat(map[string]func(*rapid.T){
					"": m.check, "Together": m.together, "Together too": m.together, "RunBatch": m.runBatch, "GiveBack": m.giveBack,
					"Resize": m.resize, "Plan": m.plan, "Take": m.take,
				})
				m.close(t)
				if n := left() - before; n != 0 {
					t.Fatalf("%d bytes are left", n)
				}
			})
		})
	}
}
