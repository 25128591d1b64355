package runtime

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/plan/share"
	"github.com/optimem/optimem/tensor"
)

// PoolOptions say what a pool may take. The zero value is right on the CPU.
type PoolOptions struct {
	// Memory is the budget in bytes of all models together: weights that stay, rings, activations and workspace on the device. 0
	// is, on the CPU, what [Options.Memory] says; other devices have to be given one.
	Memory int64
	// Device is where the models run, one device as [Options.Device] names it.
	Device string
	// HostMemory bounds, beside a device with memory of its own, what all models together take of the host's for staging, copies
	// and what the CPU computes. Each has its [Options.HostMemory] of it from Open to Close; 0 is no bound.
	HostMemory int64
	// Passes is how many passes run at one time at most, each of another model; 0 is 2, so that a model whose pass takes long
	// holds up no other one by itself. The budget leaves room for that beside the weights that stay.
	Passes int
	// MaxWaiting is how many calls wait at most; 0 is 1024. One more is an [ErrPoolFull].
	MaxWaiting int
}

// ErrPoolFull says that as many calls wait as [PoolOptions.MaxWaiting] allows.
var ErrPoolFull = errors.New("too many calls wait for the pool")

// A PoolError says why a pool does not take a model.
type PoolError struct{ Name, Msg string }

// Error names the model.
func (e *PoolError) Error() string { return fmt.Sprintf("pool: model %q: %s", e.Name, e.Msg) }

// A Pool runs many models under one budget. A model that runs has all that its pass needs; between passes it keeps
// weights as far as they save more reading there than another model's would, by how often each is called.
//
// # Who calls what
//
// Any number of goroutines call any methods of a pool and its members. Calls of a member wait in one queue with those
// of the others and go in the order in which they came, those of one member by their priority ([CallOptions]); calls
// that wait with inputs of the same shapes go together. One that needs more memory than is free waits until passes end,
// and is overtaken meanwhile by [share.MaxOvertaken] turns at most. A call waits as long as its context allows. Close
// of a member waits for its pass, Close of the pool for all.
//
// # Who owns what
//
// The pool owns a session for each member, with its device's memory and goroutines; Close gives all of it back. Models and their
// checkpoints are the caller's, and stay open until the member was closed; several members may share them. Inputs are read
// during a call and not kept; outputs are the caller's.
//
// Memory goes from model to model: what a member keeps is its own until another one's turn needs it, or until weights of
// another save more. It is freed before it is taken. What all members hold of the device is within the budget at any
// time, to the byte, as a session's is: see [Session.GiveBack] for what that leaves out.
//
// # What is checked
//
// That a call can run is decided by its model and the budget alone, never by the other models: a program whose least plan is
// within the budget is never refused. Where shapes are known from the model, Open makes its plans and refuses what does not
// fit with a [*CapacityError]; else the first call with new shapes does. A program that keeps something from call to call
// (buffers that it changes, caches) is refused with a [*PoolError], since what it keeps could not give way. A call that fails
// or is cancelled leaves the others as they were. Results are the same bits as those of a session alone that leaves nothing to the
// CPU beside a device: a pool does so for ops only that the device does not have.
type Pool struct {
	opts PoolOptions

	// mu guards what follows, and what members say is the pool's.
	mu      sync.Mutex
	idle    *sync.Cond
	ledger  *share.Ledger
	members []*Member
	turns   map[*share.Turn]*turn
	byModel map[*share.Model]*Member
	closed  bool
	// waiting counts calls, running turns.
	waiting, running int
	hostBytes        int64
	metrics          PoolMetrics
	// now is the clock by which calls come.
	now func() time.Time
}

// NewPool returns a pool without models.
func NewPool(opts PoolOptions) (*Pool, error) {
	session := Options{Device: opts.Device, Memory: opts.Memory}
	switch {
	case opts.Memory < 0:
		return nil, &OptionError{"Memory", fmt.Sprintf("a budget of %d bytes", opts.Memory)}
	case opts.HostMemory < 0:
		return nil, &OptionError{"HostMemory", fmt.Sprintf("a budget of %d bytes", opts.HostMemory)}
	case opts.Passes < 0:
		return nil, &OptionError{"Passes", fmt.Sprintf("%d passes at one time", opts.Passes)}
	case opts.MaxWaiting < 0:
		return nil, &OptionError{"MaxWaiting", fmt.Sprintf("%d calls", opts.MaxWaiting)}
	case strings.HasPrefix(opts.Device, "cuda") && strings.Contains(opts.Device, ","):
		return nil, &OptionError{"Device", "a pool has one device"}
	case opts.Memory == 0 && !session.onHost():
		return nil, &OptionError{"Memory", "a pool on a device with memory of its own has to be given a budget"}
	case opts.Memory == 0:
		if opts.Memory = session.cpuBudget(0); opts.Memory == 0 {
			return nil, &OptionError{"Memory", "nothing is known of the host's: say how much the pool may take"}
		}
	}
	if opts.Passes == 0 {
		opts.Passes = 2
	}
	if opts.MaxWaiting == 0 {
		opts.MaxWaiting = 1024
	}
	p := &Pool{
		opts: opts, ledger: share.New(opts.Memory, opts.Passes), now: time.Now,
		turns: make(map[*share.Turn]*turn), byModel: make(map[*share.Model]*Member),
	}
	p.idle = sync.NewCond(&p.mu)
	return p, nil
}

// A Member is a model of a pool.
type Member struct {
	pool *Pool
	name string
	// session is called by nobody else, so that it does what the pool's turns say.
	session   *Session
	maxJoin   int
	hostBytes int64

	// What follows is guarded by the pool's mutex.
	model *share.Model
	menus []*menu
	open  []*turn
	calls int64
	// closed says that Close was called, gone that it is over.
	closed, gone bool
	// busy counts calls that plan, and turns that run or free something.
	busy int
}

// Open admits a model under a name of its own. Options are a session's, but for the budget and the device, which are the
// pool's; [Chunk] has a capacity of its own and is refused.
func (p *Pool) Open(ctx context.Context, name string, model *models.Model, opts Options) (*Member, error) {
	switch {
	case name == "":
		return nil, &PoolError{name, "it needs a name"}
	case opts.Memory != 0 || opts.MemoryShare != 0 || opts.Reserve != 0:
		return nil, &OptionError{"Memory", "the budget is the pool's"}
	case opts.Device != "" && opts.Device != p.opts.Device:
		return nil, &OptionError{"Device", "the device is the pool's"}
	case opts.Mode == plan.Chunk:
		return nil, &OptionError{"Mode", "a pool decides what stays, and chunk pins a prefix"}
	case opts.PlanOnly:
		return nil, &OptionError{"PlanOnly", "a pool runs its models"}
	case opts.HostMemory < 0 || opts.HostMemory == 0 && p.opts.HostMemory > 0:
		return nil, &OptionError{"HostMemory", "the pool has a bound: say how much of it is the model's"}
	}
	opts.Device, opts.Memory = p.opts.Device, p.opts.Memory
	session, err := Start(ctx, model, opts)
	if err != nil {
		return nil, err
	}
	session.pooled = true
	m := &Member{pool: p, name: name, session: session, maxJoin: opts.MaxJoin, hostBytes: opts.HostMemory}
	if shapes, known := fixedShapes(model); known {
		_, err = m.planFixed(ctx, shapes)
	}
	if err == nil {
		err = p.admit(m)
	}
	if err != nil {
		return nil, errors.Join(err, session.Close())
	}
	return m, nil
}

// admit adds a member, if its name and its host memory are free.
func (p *Pool) admit(m *Member) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return ErrClosed
	case slices.ContainsFunc(p.members, func(x *Member) bool { return x.name == m.name }):
		return &PoolError{m.name, "there is one of that name"}
	case p.opts.HostMemory > 0 && m.hostBytes > p.opts.HostMemory-p.hostBytes:
		return &PoolError{m.name, fmt.Sprintf("%d bytes of host memory, and %d are left", m.hostBytes,
			p.opts.HostMemory-p.hostBytes)}
	}
	p.hostBytes += m.hostBytes
	m.model = p.ledger.Add()
	p.members = append(p.members, m)
	p.byModel[m.model] = m
	return nil
}

// forget removes a member that holds nothing.
func (p *Pool) forget(m *Member) {
	p.hostBytes -= m.hostBytes
	p.ledger.Remove(m.model)
	delete(p.byModel, m.model)
	p.members = slices.DeleteFunc(p.members, func(x *Member) bool { return x == m })
}

// fixedShapes returns the shapes of a model that takes no others.
func fixedShapes(model *models.Model) (map[string]tensor.Shape, bool) {
	shapes := make(map[string]tensor.Shape)
	for _, port := range model.Inputs() {
		if port.Shape == nil || port.Optional || port.Number ||
			slices.ContainsFunc(port.Shape, func(n int) bool { return n < 0 }) {
			return nil, false
		}
		shapes[port.Name] = port.Shape
	}
	return shapes, len(shapes) > 0
}

// Member returns the member of a name, nil where there is none.
func (p *Pool) Member(name string) *Member {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range p.members {
		if m.name == name {
			return m
		}
	}
	return nil
}

// Run runs the member of a name.
func (p *Pool) Run(ctx context.Context, name string, in Values) (Values, error) {
	m := p.Member(name)
	if m == nil {
		return nil, &PoolError{name, "there is none of that name"}
	}
	return m.Run(ctx, in)
}

// Close closes all members.
func (p *Pool) Close() error {
	p.mu.Lock()
	p.closed = true
	members := slices.Clone(p.members)
	p.mu.Unlock()
	var errs []error
	for _, m := range members {
		errs = append(errs, m.Close())
	}
	return errors.Join(errs...)
}

// Name is that under which the model was opened.
func (m *Member) Name() string { return m.name }

// Run computes one pass, as [Session.Run] does, once it is the call's turn.
func (m *Member) Run(ctx context.Context, in Values) (Values, error) {
	return m.RunWith(ctx, in, CallOptions{})
}

// RunInto is [Member.Run] into tensors of the caller, as [Session.RunInto] is.
func (m *Member) RunInto(ctx context.Context, in, out Values) error {
	if out == nil {
		out = Values{}
	}
	return m.do(&call{ctx: ctx, in: in, into: out, done: make(chan struct{}), since: Priority(0).Since(m.pool.now())})
}

// Plan plans for inputs of the given shapes, as the first call with them would, and returns the plan with the least memory.
// Nothing is read or run. Shapes that the pool's budget does not admit are a [*CapacityError], which names the least that does.
func (m *Member) Plan(ctx context.Context, shapes map[string]tensor.Shape) (*plan.Plan, error) {
	m.pool.mu.Lock()
	if m.closed {
		m.pool.mu.Unlock()
		return nil, ErrClosed
	}
	m.busy++
	m.pool.mu.Unlock()
	made, err := m.planFixed(ctx, shapes)
	m.pool.mu.Lock()
	defer m.pool.mu.Unlock()
	defer m.done()
	if err != nil {
		return nil, err
	}
	return made.plans[0], nil
}

// GiveBack frees all memory that the member holds, as [Session.GiveBack] does. Its next call takes it again. It waits for a pass
// that runs.
func (m *Member) GiveBack(ctx context.Context, how ...Giving) error {
	if err := m.session.wait(ctx, "give back"); err != nil {
		return err
	}
	defer m.session.release()
	err := m.session.giveBack(ctx, how...)
	m.pool.mu.Lock()
	defer m.pool.mu.Unlock()
	if err == nil && !m.model.Running() {
		m.pool.ledger.Freed(m.model)
		m.pool.schedule()
	}
	return err
}

// Close waits for a pass that runs, frees all that the member has, and ends calls that wait with [ErrClosed]. A second
// Close returns nil.
func (m *Member) Close() error {
	p := m.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if m.closed {
		for !m.gone {
			p.idle.Wait()
		}
		return nil
	}
	m.closed = true
	for _, t := range slices.Clone(m.open) {
		p.ledger.Leave(t.at)
		p.drop(t)
		for _, c := range t.calls {
			p.waiting--
			c.end(ErrClosed)
		}
	}
	p.schedule()
	for m.busy > 0 {
		p.idle.Wait()
	}
	p.ledger.Hold(m.model) // what it holds is nobody else's before the session is closed
	p.mu.Unlock()
	err := m.session.Close()
	p.mu.Lock()
	p.forget(m)
	m.gone = true
	p.idle.Broadcast()
	p.schedule()
	return err
}

// done says that something is over that kept the member busy.
func (m *Member) done() {
	m.busy--
	m.pool.idle.Broadcast()
}
