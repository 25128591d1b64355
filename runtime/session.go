// Package runtime runs models: it combines a model, a plan and a device into a [Session]. It is the public API of
// optimem. It decides which calls share a pass and how many rows a micro-batch has; the plan decides where and when
// anything is in memory.
//
// Outside this module it is imported under the project's name:
//
//	import optimem "github.com/optimem/optimem/runtime"
//
//	ckpt, err := loader.Open("model.pt2")                           // defer ckpt.Close()
//	model, err := models.Build(ckpt, models.Options{})
//	session, err := optimem.Page(ctx, model, optimem.PageOptions{}) // defer session.Close()
//	out, err := session.Run(ctx, optimem.Values{"x": tensor.Of(pixels, 1, 1, 8, 8)})
//
// [Resident] keeps the whole model in memory, [Page] brings each group of ops just before it runs, [Chunk] pins a
// prefix, [Auto] keeps what the budget allows. Results are bit-identical in every mode, as long as the same kind of
// device computes each layer.
package runtime

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/machine"
	"github.com/optimem/optimem/internal/panicked"
	"github.com/optimem/optimem/internal/recent"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/pager"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/plan/search"
	"github.com/optimem/optimem/plan/slots"
	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
)

// Values are tensors by name.
type Values map[string]*tensor.Tensor

// An InputError says that an input does not fit the model: it is missing or unknown, has another shape or dtype, or
// holds an index that is out of range.
type InputError = models.InputError

// An OutputError says that a tensor given to [Session.RunInto] cannot take an output, or that there is none as
// [Options.Dump] asks for.
type OutputError struct {
	Output string
	Msg    string
}

// Error names the output.
func (e *OutputError) Error() string { return "output " + e.Output + ": " + e.Msg }

// The errors of other packages that a session returns.
type (
	// A CapacityError says that a model does not fit its budget, and which budget would do.
	CapacityError = plan.CapacityError
	// An OutOfMemoryError says that a device refused memory, and no smaller plan was possible.
	OutOfMemoryError = device.OutOfMemoryError
	// A NotBatchableError says why rows cannot be kept apart.
	NotBatchableError = graph.NotBatchableError
	// A GroupError says at which group of the model a run failed.
	GroupError = pager.GroupError
)

// An OpError says which op of a model failed.
type OpError = pager.OpError

// A DeviceError says that a device cannot be used.
type DeviceError = machine.Error

// A PanicError ends a run in which an op, a source or an observer panicked; it is within the error that names the
// group.
type PanicError = panicked.Error

// A Session is a model ready to run, under a budget.
//
// # Who calls what
//
// Any number of goroutines call any methods. Passes take turns: a call waits for its turn as long as its context
// allows, and where weights are paged, calls that wait with inputs of the same shapes go through the next pass
// together. Plan, PlanBatch, LeastForBatch, Resize and GiveBack take a turn, too, and run nothing. Close waits for the
// pass that runs; whoever waits then, or comes later, gets [ErrClosed]. Observers are called by the goroutine whose
// call leads a pass.
//
// # Who owns what
//
// The session owns its machine: devices, memory, pagers, goroutines; Close gives back all of it. The model and its
// checkpoint are the caller's: a session reads weights from the checkpoint during passes and when it goes to another
// plan, so that it must stay open until the session was closed; several sessions may share it. Inputs are read during a
// call and not kept. Outputs of Run are the caller's alone; RunInto writes into tensors that are the caller's before
// and after. Buffers that the program changes belong to the session, from its first pass on.
//
// What the session holds of a device is within the budget at any time; plans for other shapes share it. Graphs, plans
// and divisions of batches are kept for some sets of shapes, those used last. GiveBack frees what is held between
// passes, but for caches, which are part of every plan and shared by all: DropCaches frees those.
//
// # What is checked
//
// Names, dtypes, shapes and indices of inputs are compared with the model before a pass begins, as is the memory that
// outputs go to. A call that fails or is cancelled leaves the session as it was: its states unchanged, its memory
// within the budget, the other callers of its pass with the results that they would have had. Panics of ops, sources
// and observers become errors.
//
// Where the device refuses memory that was planned with, because others use it too, the session plans for less: fewer
// micro-batches at once, then smaller ones, then fewer slots, then fewer weights that stay. It goes on with what
// worked, and says so ([Replanned]). A budget that is too small from the beginning is a [CapacityError] that names the
// least.
type Session struct {
	model *models.Model
	mode  plan.Mode
	opts  Options
	// machine is what passes run on.
	machine machine.Machine
	// meter notes how fast disks are read.
	meter pager.Meter
	// pooled says that the CPU beside the device computes no group that the device can: which ones would depend on other models'
	// calls, and with them the last bits.
	pooled bool
	// behind are the devices behind the first, each with its budget.
	behind []search.Peer

	// turn holds one token while no pass runs; whoever has it owns what follows. A lock could not be waited for with a
	// context.
	turn   chan struct{}
	closed bool
	// limits are what the device has been found to admit, given those of the options.
	limits, given limits
	// budgeted says that somebody said how much memory the session may take; budgetBytes is how much it may, for who asks.
	budgeted    bool
	budgetBytes int64
	// programs holds what was made of a graph; recent is what ran last, and ran its plan.
	programs *recent.Map[*graph.Graph, *program]
	recent   *program
	ran      *plan.Plan
	// lends is the plan before anything ran in which experts have slots, nil where they have none.
	lends *plan.Plan
	// mix is the passes to come, of [Session.PlanMix]; once it is chosen, stays is the plan that keeps the weights that
	// stay for them, nil where none suits all.
	mix    []PassKind
	chosen bool
	stays  *plan.Plan
	// apart are the plans of the kinds where each keeps its own, the one that keeps most first, kinds their programs.
	apart []*plan.Plan
	kinds []*program
	// cacheBlocks is how many blocks caches have for now: [Session.SizeCaches].
	cacheBlocks search.CacheBlocks
	// within is the plan whose weights stayed before caches grew, nil where they did not.
	within *plan.Plan
	// foreseen is what is planned ahead, nil where nothing is. Of a session that plans for another one mixed are the programs of
	// the mix, and read is how fast disks are read.
	foreseen *foresight
	mixed    []*program
	read     map[storage.Disk]float64
	// changed are the buffers that passes have changed: what any program has of them is not the checkpoint's.
	changed map[storage.Extent]bool
	// after is what the last pass left for the next one besides states.
	after string
	// passes is the plan of the pass that runs, or ran last.
	passes  *plan.Plan
	batches *recent.Map[string, *division]
	// own is the pass of calls that nobody joins.
	own passIO
	// spare is the call of RunInto, which allocates nothing.
	spare call

	// yielding is set between [Session.Yield] and [Session.Resume].
	yielding atomic.Bool

	// mu guards what follows.
	mu sync.Mutex
	// waiting are calls that wait for their turn, the first come first.
	waiting []*call
	metrics Metrics
	// yielded is closed once a pass that stands aside has given back what is held, with yieldErr; resumed once it may go on.
	yielded, resumed chan struct{}
	yieldErr         error
}

// ErrClosed is returned by the methods of a closed session.
var ErrClosed = errors.New("session is closed")

// ErrPlanOnly is returned by the methods that run something of a session that only plans.
var ErrPlanOnly = errors.New("the session only plans")

// Run computes one pass. Inputs are read during the call and not kept; the outputs are the caller's.
//
// A cancelled run returns within a part of one op's work with an error that wraps ctx's and names the group, and the
// session stays usable. Of a pass that several callers share it returns within one group's work, and the others'
// results are as if it had not been there.
func (s *Session) Run(ctx context.Context, in Values) (Values, error) {
	c := &call{ctx: ctx, in: in}
	if err := s.do(c); err != nil {
		return nil, err
	}
	return c.x.out, nil
}

// RunInto is [Session.Run] into tensors of the caller, which are contiguous, have the outputs' dtypes and shapes, and
// share no memory with the inputs. Outputs that out does not name are left out. After an error their contents are
// undefined. Of an output whose size depends on data the tensor has the largest size that can be, and out has besides the output
// that counts its rows ([graph.Output]); what lies behind them is undefined.
//
// After the first call with inputs of the same shapes nothing is allocated, neither on the device nor on Go's heap: not
// by the session and the pager, and not by the CPU's kernels on processors that have them in assembly. What is left are
// ops of an embedder's own, views of more than nine dimensions, and memory that the garbage collector took in between.
// A call that has to wait for others allocates its place in the queue.
func (s *Session) RunInto(ctx context.Context, in, out Values) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("run: %w", err)
	}
	if out == nil {
		out = Values{}
	}
	select {
	case <-s.turn:
	default:
		return s.do(&call{ctx: ctx, in: in, into: out})
	}
	defer s.release()
	c := &s.spare
	c.ctx, c.in, c.into = ctx, in, out
	err := s.lead(c, false)
	c.ctx, c.in, c.into = nil, nil, nil
	c.x.in, c.x.out = nil, nil
	return err
}

// planned returns the program for the shapes of inputs.
func (s *Session) planned(ctx context.Context, in Values) (*program, error) {
	if s.recent != nil && s.recent.finds == s.after && s.recent.takes(in) {
		return s.recent, nil
	}
	for g, p := range s.programs.All() {
		if p.finds == s.after && p.takes(in) {
			s.programs.Get(g) // which is used by that
			return p, nil
		}
	}
	p, err := s.programFor(ctx, in)
	if err != nil {
		return nil, err
	}
	s.notePlan(p, 1)
	if _, err = s.plan(ctx, p, 1); err != nil {
		return nil, fmt.Errorf("run: %w", err)
	}
	return p, nil
}

// programFor makes the program for the shapes of inputs.
func (s *Session) programFor(ctx context.Context, in Values) (*program, error) {
	shapes, err := s.shapes(in)
	if err != nil {
		return nil, err
	}
	g, err := s.model.GraphOf(ctx, models.Call{Inputs: shapes, Numbers: s.numbers(in), After: s.after})
	if err != nil {
		return nil, fmt.Errorf("run: %w", err)
	}
	p, err := s.program(ctx, g)
	if err != nil {
		return nil, fmt.Errorf("run: %w", err)
	}
	return p, nil
}

// alone runs a pass for one instance.
func (s *Session) alone(ctx context.Context, p *program, x *exchange) error {
	s.own.members = append(s.own.members[:0], x)
	err := s.run(ctx, p, &s.own, 1, false)
	clear(s.own.members)
	if err != nil {
		return err
	}
	x.finish()
	return nil
}

// wait waits for the turn to do something, of a session that is open.
func (s *Session) wait(ctx context.Context, what string) error {
	select {
	case <-s.turn:
	case <-ctx.Done():
		return waitError(ctx, what)
	}
	if s.closed {
		s.release()
		return ErrClosed
	}
	return nil
}

func waitError(ctx context.Context, what string) error {
	return fmt.Errorf("%s: waiting for another pass: %w", what, ctx.Err())
}

func (s *Session) acquire() { <-s.turn }
func (s *Session) release() { s.turn <- struct{}{} }

// shapes checks that the inputs are those of the model and returns their shapes.
func (s *Session) shapes(in Values) (map[string]tensor.Shape, error) {
	shapes := make(map[string]tensor.Shape, len(in))
	for _, port := range s.model.Inputs() {
		t, ok := in[port.Name]
		if t == nil && port.Optional {
			continue
		}
		if !ok || t == nil {
			return nil, &InputError{Input: port.Name,
				Msg: fmt.Sprintf("is missing: %v %v is wanted", port.DType, port.Shape)}
		}
		if t.DType != port.DType {
			return nil, &InputError{Input: port.Name,
				Msg: fmt.Sprintf("%v %v, and %v is wanted", t.DType, t.Layout.Shape, port.DType)}
		}
		_, end, err := t.Layout.Span()
		if err == nil && end > int64(len(t.Data)/max(t.DType.Size(), 1)) {
			err = fmt.Errorf("%d elements in %d bytes", end, len(t.Data))
		}
		if err != nil {
			return nil, &InputError{Input: port.Name, Msg: err.Error()}
		}
		shapes[port.Name] = t.Layout.Shape
	}
	for name, given := range in {
		if _, ok := shapes[name]; !ok && (given != nil || !s.optional(name)) {
			return nil, &InputError{Input: name, Msg: "the model has no such input"}
		}
	}
	return shapes, nil
}

// numbers returns the inputs that are numbers of the program.
func (s *Session) numbers(in Values) models.Numbers {
	var numbers models.Numbers
	for _, p := range s.model.Inputs() {
		if t := in[p.Name]; p.Number && t != nil {
			if numbers == nil {
				numbers = make(models.Numbers)
			}
			numbers[p.Name] = t
		}
	}
	return numbers
}

// optional reports whether the model has an input of that name that need not be given.
func (s *Session) optional(name string) bool {
	return slices.ContainsFunc(s.model.Inputs(), func(p models.Port) bool { return p.Name == name && p.Optional })
}

// Close frees everything. It waits for a running pass, and one that stands aside goes on. A second Close returns nil.
func (s *Session) Close() error {
	s.Resume()
	s.acquire()
	defer s.release()
	if s.closed {
		return nil
	}
	s.closed = true
	s.dropForesight()
	err := s.machine.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	m := &s.metrics
	m.hold(pager.Held{})
	m.WeightBytes, m.HostBytes = 0, 0
	return err
}

// Metrics count what a session did.
type Metrics struct {
	// Runs counts passes that ended without an error, Calls the calls of Run and RunInto that went through them, and
	// Joined those among them that went through another call's pass.
	Runs, Calls, Joined int64
	// Replans counts how often the device refused memory and another plan was made, PassPlans how often a pass waited until
	// there was a plan for it: the first of its shapes, or since plans are to be others.
	Replans, PassPlans int64
	// WeightBytes are the weights that stay, CacheBytes the caches, RingBytes the memory that paged weights pass through,
	// ActivationBytes and WorkBytes those of inputs, results and scratch, all on several devices together; PeakBytes is the
	// most that was held of everything on one.
	WeightBytes, CacheBytes, RingBytes, ActivationBytes, WorkBytes, PeakBytes int64
	// HeldBytes is what is held now of everything, on all devices together.
	HeldBytes int64
	// HostBytes is what is held in the host's memory beside a device with memory of its own: staging, copies of weights,
	// and what the CPU computes. HostPeakBytes is the most that was.
	HostBytes, HostPeakBytes int64
	// PageableBytes is host memory that was taken for copies to a GPU and is not page-locked, since there was none to be
	// had: such copies are slower.
	PageableBytes int64
	// LoadedBytes counts bytes read from the checkpoint, MovedBytes those that were brought to the device for a pass and
	// not to stay, from the checkpoint or from copies in the host's memory, with what lies between weights.
	LoadedBytes, MovedBytes int64
	// KeptBytes counts those of weights that stayed when passes went to a plan which wants other weights to stay, too:
	// they were moved in memory and not read.
	KeptBytes int64
	// ExpertHits is how many experts passes needed that were in memory, ExpertReads how many of those that lie in slots
	// were read.
	ExpertHits, ExpertReads int64
	// SwappedOutBytes and SwappedInBytes are those of activations that went to wait until they were needed again, in the
	// host's memory or in a file, and came back.
	SwappedOutBytes, SwappedInBytes int64
	// CacheInBytes and CacheOutBytes are those of caches that came from where they wait, a file or the host's memory beside a
	// device, and went there.
	CacheInBytes, CacheOutBytes int64
	// RecomputedBytes are those of activations that were computed anew, which takes less time than to have them wait.
	RecomputedBytes int64
	// Passing is how long passes took, Compute how long their ops did, Stall how long ops waited for weights, and SwapStall
	// for activations and caches on their way to a file and back.
	Passing, Compute, Stall, SwapStall time.Duration
}

// MovedPerSecond is the rate at which passes brought weights, in bytes.
func (m Metrics) MovedPerSecond() float64 {
	if m.Passing <= 0 {
		return 0
	}
	return float64(m.MovedBytes) / m.Passing.Seconds()
}

// Queue returns whether the session does something now, and how many calls wait for it.
func (s *Session) Queue() (busy bool, waiting int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.turn) == 0, len(s.waiting)
}

// Routing adds what passes have shown of where rows of layers with experts go, by module, to what was known before,
// which may be nil. It waits for a pass that runs.
func (s *Session) Routing(ctx context.Context, before map[string]*slots.Curve) (map[string]*slots.Curve, error) {
	if err := s.wait(ctx, "routing"); err != nil {
		return nil, err
	}
	defer s.release()
	all := make(map[string]*slots.Curve)
	for module, c := range s.machine.Routing() {
		sum := slots.NewCurve(len(c.Ranks))
		sum.Add(c)
		sum.Add(before[module])
		all[module] = sum
	}
	return all, nil
}

// Metrics returns what the session did in passes that are over. It does not wait for one that runs.
func (s *Session) Metrics() Metrics {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.metrics
}

// A DiskRead is how much was read of a disk, past the page cache, and for how long reads were under way there. Of reads that
// the system queues only those count for which a pass waited.
type DiskRead = pager.Metered

// DisksRead returns what was read of each disk so far.
func (s *Session) DisksRead() map[storage.Disk]DiskRead { return s.meter.Read() }

// hold notes what the device holds.
func (m *Metrics) hold(h pager.Held) {
	m.HeldBytes = h.Total()
	m.CacheBytes, m.RingBytes, m.ActivationBytes, m.WorkBytes = h.CacheBytes, h.RingBytes,
		h.ActivationBytes, h.WorkBytes
}

// count adds a pass to the metrics, with what is held after it.
func (s *Session) count(pl *plan.Plan, took time.Duration, err error) {
	held, host := s.machine.Held()
	stats, hostStats := s.machine.Stats()
	hostBytes := host.Total() + s.machine.HostBytes()
	s.mu.Lock()
	defer s.mu.Unlock()
	m := &s.metrics
	if err == nil {
		m.Runs++
		m.WeightBytes = pl.Fixed.WeightBytes
	}
	m.Passing += took
	m.hold(held)
	m.PeakBytes, m.HostBytes, m.HostPeakBytes = max(m.PeakBytes, stats.PeakBytes), hostBytes,
		max(m.HostPeakBytes, hostBytes)
	m.LoadedBytes, m.MovedBytes = stats.ReadBytes+hostStats.ReadBytes, stats.MovedBytes+hostStats.MovedBytes
	m.KeptBytes = stats.KeptBytes + hostStats.KeptBytes
	m.PageableBytes = stats.PageableBytes + hostStats.PageableBytes
	m.Stall, m.Compute = stats.Stall+hostStats.Stall, stats.Compute+hostStats.Compute
	m.SwappedOutBytes = stats.SwappedOutBytes + hostStats.SwappedOutBytes
	m.SwappedInBytes = stats.SwappedInBytes + hostStats.SwappedInBytes
	m.CacheInBytes, m.CacheOutBytes = stats.CacheInBytes, stats.CacheOutBytes
	m.RecomputedBytes = stats.RecomputedBytes + hostStats.RecomputedBytes
	m.ExpertHits, m.ExpertReads = stats.ExpertHits, stats.ExpertReads
	m.SwapStall = stats.SwapStall + hostStats.SwapStall
}
