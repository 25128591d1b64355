// Package pager executes a plan: it brings the weights of each group of ops to the device just before the group runs,
// and prefetches the next group meanwhile. It holds no policy: the plan says which weights are resident, where
// everything lies and what has to be waited for.
//
// It knows plans and devices. It does not know models or files: it reads weights through the sources in the plan's
// extents.
//
//	p, err := pager.New(dev, pager.Options{})
//	err = p.Pass(ctx, plan, io) // many times, one at a time
//	err = p.Close()
//
// The goroutine that calls [Pager.Pass] runs the pass; the pager's own goroutines read, and prefetch for the next pass.
package pager

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/recent"
	"github.com/optimem/optimem/pager/fetch"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/plan/slots"
	"github.com/optimem/optimem/storage"
)

// Options change how a plan is run. The zero value is right.
type Options struct {
	// MemoryBytes bounds what the pager holds when it goes from one plan to another, each of which is within it; 0 is no
	// bound.
	MemoryBytes int64
	// HostBytes bounds the host memory that plans take together with that of sources that the device copies from in place;
	// 0 is no bound.
	HostBytes int64
	// Readers is how many reads are under way at once; 0 is 4.
	Readers int
	// Observe is told what happens, on the goroutine that runs the pass. It must not block.
	Observe func(Event)
	// ObserveOps has Observe told of every op, too. The pager then waits for the device after each op, so that a pass
	// takes longer, and gives out none together with others; results are the same bits.
	ObserveOps bool
	// ObserveLoads has Observe told of every bringing of a group, too. On a device with memory of its own the copies of one
	// are then waited for before those of the next are given to it.
	ObserveLoads bool
	// Routed is told where rows of each layer with experts that are lent went: its module, how many rows there were,
	// and the experts that they named, by id. It is called as Observe is, and what it is given is not its to keep.
	Routed func(module string, rows int, experts []int32)
	// Clock is what the times of ops, and the stalls before them, are taken from where ops are observed; nil is the
	// wall's.
	Clock func() time.Duration
	// States are those of the program, where several pagers have parts of its plans; nil is the pager's own.
	States *States
	// Caches are those of the program, in the same way.
	Caches *Caches
	// Meter notes how fast disks are read; nil is nobody.
	Meter *Meter
	// SwapFolder is where the files lie in which activations and caches wait if a plan for a device whose memory is the
	// host's wants one. It is needed for such plans alone.
	SwapFolder string
	// pieceBytes, queuesPay and copiers are those of fetch.Options.
	pieceBytes, queuesPay int64
	copiers               int
	// newScratch makes the files; nil is storage.NewScratch.
	newScratch func(folder string, bytes int64) (scratch, error)
}

// A Meter notes how fast disks are read.
type Meter = fetch.Meter

// Metered is what was read of a disk, and how long that took.
type Metered = fetch.Metered

// A Kind says what an event is about.
type Kind uint8

// The kinds of events. A pager tells of groups and of the weights that stay; who runs passes tells of the others.
const (
	// GroupDone ends a group of a pass.
	GroupDone Kind = iota
	// WeightsLoaded ends the bringing of the weights that stay, before a pass or with the last group of one.
	WeightsLoaded
	// PassDone ends a pass.
	PassDone
	// Replanned says that the device refused memory and that there is a smaller plan.
	Replanned
	// OpDone ends an op of one instance. Ops whose branch did not run are not told of, nor is one that failed.
	OpDone
	// LoadDone ends the bringing of a group's weights. It is told once the pass is done with a group, that one or another.
	LoadDone
)

// An Event is a step of a pass that is done.
type Event struct {
	Kind Kind
	// Group is the group's index in the plan, −1 where the event is not about one. Path is the module's, of the group or
	// of the op.
	Group int
	Path  string
	// Op is the op's index in the plan's graph, OpKind what it computes, and Instance the micro-batch that it computed it
	// for, in an event about an op.
	Op       int
	OpKind   graph.Kind
	Instance int
	// LoadedBytes is what was brought, to the ring for the group or to stay. Stall is how long the group's ops waited for
	// weights, those that stay among them in the pass that brings these, Compute how long they took until they were given
	// to the device (on the CPU: until they were computed).
	LoadedBytes    int64
	Stall, Compute time.Duration
	// SwapStall is how long a group's ops waited for activations on their way to a file and back.
	SwapStall time.Duration
	// Begin and End are when the step began and when it had ended, by the wall's clock. A group begins by waiting for its
	// weights, which had Arrived before its ops ran. A LoadDone begins when reads are begun, and ends when the last is
	// known to have ended; both are zero where nothing was read. CopyBegin and CopyEnd are when the bytes were copied to a
	// device with memory of its own.
	Begin, Arrived, End, CopyBegin, CopyEnd time.Time
	// Plan is that of the pass; who runs passes fills it in.
	Plan *plan.Plan
	// Calls are those that a PassDone answers, nil where a pass cannot be that of several. Who runs passes fills it in.
	Calls *Calls
	// Took is how long a pass or an op took, Instances how many micro-batches went through it.
	Took      time.Duration
	Instances int
	// Err is why there is another plan, PeakBytes what that takes.
	Err       error
	PeakBytes int64
}

// Calls are the calls that a pass answers, by their contexts: what these carry tells an observer whose they are.
type Calls struct{ Contexts []context.Context }

// IO gives a pass its inputs and takes its outputs. Instances are numbered from 0; bytes belong to the caller and must
// not change until the pass is over.
type IO interface {
	// Input returns the bytes of an input: all of its value, contiguous.
	Input(instance int, id graph.ValueID) []byte
	// Output returns where the bytes of an output go: those between the first and the last element of its operand, the
	// gaps included. Nil says that the output is not wanted, or was not made because its branch did not run.
	Output(instance, output int, made bool) []byte
}

// A Shared IO is that of a pass whose instances are not all of one caller. They may be fewer than the plan's, and one
// may leave while the others go on.
type Shared interface {
	IO
	// Instances is how many take part: those numbered below it.
	Instances() int
	// Wanted reports whether an instance is to go on. It is asked before each group.
	Wanted(instance int) bool
	// Left is told that an instance goes no further: because it was not wanted, or because of an error, which then is not
	// nil. Nothing touches the instance's bytes from then on. The pass ends where nobody goes on.
	Left(instance int, err error) (othersGoOn bool)
}

// A Pager is a device with the weights of a model on it, as plans say: it makes a plan's arenas, fills them and runs
// the plan's groups, pass after pass.
//
// # Who calls what
//
// One goroutine at a time calls its methods, not always the same. A pass is [Pager.Pass], or its steps one by one:
// Begin, Run of all groups in order (or RunInstance of all instances, then Settle, where no group is paged), Finish,
// Commit. A step that fails has ended the pass, and the pager is where a pass begins. Between passes one may go to
// another plan, simply by beginning it, and call GiveBack, DropCaches, Bound, Held, HostBytes and Stats. A closed pager
// refuses passes; a second Close returns nil. Observe and the IO are called by the goroutine that runs the pass, and
// only during it.
//
// # Who owns what
//
// The pager owns all memory that it takes of the device and of the host, its stream, its fetchers and their goroutines,
// which outlive a pass since they read for the next one; Close gives everything back, and the device is closed after.
// The arenas are as large as the largest plan so far needs and are shared by its plans, whose weights that stay must
// lie alike for that ([plan.SameFixed]); otherwise these are brought anew. What a program changes (states) is on the
// device, or, where another plan or budget takes its memory, on Go's heap; [States] says which pager has it. [Caches]
// outlive plans and GiveBack: DropCaches and Close free them. Inputs and outputs are the caller's: from Begin on the
// pager may read the inputs and write the outputs until the pass has ended, however it ends. An instance of a [Shared]
// IO that leaves gets its bytes back when Left is called.
//
// Memory that the device may still work with is given back only once it has been waited for, whatever failed before.
//
// # What is checked
//
// A plan is trusted (see [plan.Plan]): offsets are not compared with arenas. That it suits the device is checked where
// it costs nothing, and is a bug. A source that changed ends the pass that would have computed with a mixture. A panic
// of an op, a source, an observer or the IO ends the pass with an error that names the group. Before Commit a pass has
// changed no state: one that fails or is cancelled can be run again. In caches it may have written, but only to the
// places that its own inputs name. Tests run plans on device/late, which does everything as late as it may and fails on
// request, and on device/emulated with CheckOrder, which finds what touches memory unordered; both check that nothing is
// left when the pager is closed.
type Pager struct {
	dev  device.Device
	opts Options

	// stream is nil while the pager rests. direct says that plans are for a device that shares the host's memory.
	stream device.Stream
	direct bool
	// keeper is the stream where that can keep ops, nil where it cannot. given is the first op of this pass that
	// was not given out together with those before it, until the end of those that may be.
	keeper       device.Keeper
	given, until int
	// fixed holds the weights that stay, laid out as in current and in every plan that shares them; the other arenas are
	// as large as the largest plan so far needs.
	fixed, ring, activations, scratch device.Memory
	// staging and copies are the host memory through which a device that files cannot be read into is filled, swaps that
	// in which activations wait.
	staging, swaps device.HostMemory
	// transferMemory is that through which inputs and outputs of whole passes go, transfers those of this pass.
	transferMemory device.HostMemory
	transfers      transfers
	// file is that in which they wait where the device's memory is the host's.
	file scratch
	// rowsMemory is that through which rows of embeddings pass, rows reads them.
	rowsMemory device.HostMemory
	rows       rowReaders
	copies     *copies
	// registered has the memory of sources that the device copies from by itself, nil for those that it did not take.
	registered map[storage.Source]device.HostMemory
	// held is the plan whose weights fixed holds.
	held     *plan.Plan
	current  *program
	programs *recent.Map[*plan.Plan, *program]
	branches branches
	// first brings the weights that stay while the pass runs that needs them first; nil where they are there. early says
	// that the pass which begins may do so.
	first *first
	early bool
	// away is what moves caches between where they wait and the device's memory.
	away away
	// cacheChanges counts what caches came to the device or left it.
	cacheChanges int
	// borrower is the device where ops can use what callers have, else nil; borrows says that those of this pass may.
	borrower device.Borrower
	borrows  bool
	// gone are the instances of this pass that have left, spent what groups of one that goes by instances have taken.
	gone []bool
	// loads are what was brought and not told of yet, nil where nobody wants to know.
	loads  *fetch.Loads
	spent  []spent
	stats  counters
	closed bool
	// slots is what lies in the slots of experts, routing what passes have shown of where rows go, and lentStall how
	// long ops of this group waited for experts.
	slots     *expertSlots
	routing   map[string]*slots.Curve
	lentStall time.Duration
}

// Stats count what a pager did.
type Stats struct {
	Passes int64
	// FixedBytes were brought once; MovedBytes were brought to the ring for passes; ReadBytes is what of all that came
	// from files.
	FixedBytes, MovedBytes, ReadBytes int64
	// KeptBytes are those that stayed from one plan to another that wants other weights to stay.
	KeptBytes int64
	// PageableBytes is host memory that was taken for copies and is not page-locked, because the device had none to give:
	// such copies are slower.
	PageableBytes int64
	// RegisteredBytes is memory of sources that the device copies from in place.
	RegisteredBytes int64
	// PeakBytes is the most device memory that was held at once.
	PeakBytes int64
	// SwappedOutBytes and SwappedInBytes are those of activations that went to wait and came back.
	SwappedOutBytes, SwappedInBytes int64
	// CacheInBytes and CacheOutBytes are those of caches that came from where they wait, a file or the host's memory, and went
	// there.
	CacheInBytes, CacheOutBytes int64
	// RecomputedBytes are those of activations that were computed anew.
	RecomputedBytes int64
	// ExpertHits is how many experts passes needed that were in their slots, ExpertReads how many had to be read.
	ExpertHits, ExpertReads int64
	// Stall is how long ops waited for their weights, Compute how long they took, SwapStall how long they waited for
	// activations on their way to a file and back. Copies to and from the host's memory are part of what ops take.
	Stall, Compute, SwapStall time.Duration
}

// A GroupError says at which group of a plan something failed.
type GroupError struct {
	Path string
	// Step is what failed: "load", "run", "input", "output".
	Step string
	Err  error
}

// Error reads outside-in.
func (e *GroupError) Error() string {
	if e.Path == "" {
		return e.Step + ": " + e.Err.Error()
	}
	return e.Path + ": " + e.Step + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *GroupError) Unwrap() error { return e.Err }

// An OpError says which op of a model failed.
type OpError struct {
	// Path is the module, Kind the op, Source the line of Python where known.
	Path, Kind, Source string
	Err                error
}

// Error reads outside-in.
func (e *OpError) Error() string {
	s := e.Kind + ": " + e.Err.Error()
	if e.Path != "" {
		s = e.Path + ": " + s
	}
	if e.Source != "" {
		s += " (" + e.Source + ")"
	}
	return s
}

// Unwrap returns the cause.
func (e *OpError) Unwrap() error { return e.Err }

// New returns a pager without a plan. The device must outlive it.
func New(dev device.Device, opts Options) (*Pager, error) {
	if opts.Readers <= 0 {
		opts.Readers = storage.DefaultInFlight
	}
	opts.ObserveOps = opts.ObserveOps && opts.Observe != nil
	opts.ObserveLoads = opts.ObserveLoads && opts.Observe != nil
	if opts.Clock == nil {
		begin := time.Now()
		opts.Clock = func() time.Duration { return time.Since(begin) }
	}
	if opts.newScratch == nil {
		opts.newScratch = newScratch
	}
	if opts.States == nil {
		opts.States = NewStates()
	}
	if opts.Caches == nil {
		opts.Caches = NewCaches()
	}
	g := &Pager{dev: dev, opts: opts, programs: recent.New[*plan.Plan, *program](maxPrograms)}
	g.borrower, _ = dev.(device.Borrower)
	if opts.ObserveLoads {
		g.loads = fetch.NewLoads()
	}
	return g, g.open()
}

// open makes the stream, where there is none.
func (g *Pager) open() error {
	if g.stream != nil {
		return nil
	}
	stream, err := g.dev.NewStream()
	if err != nil {
		return err
	}
	g.stream = stream
	if !g.opts.ObserveOps { // else what is given out together has one end
		g.keeper, _ = stream.(device.Keeper)
	}
	if y, ok := stream.(device.Yielder); ok {
		y.Meanwhile(g.tick)
	}
	return nil
}

// Rest is [Pager.GiveBack] with all else that the pager has on a device with memory of its own: the stream, and caches, whose
// contents are on Go's heap until the next pass.
func (g *Pager) Rest(ctx context.Context) error {
	if err := g.GiveBack(ctx); err != nil || g.direct || g.stream == nil {
		return err
	}
	if err := g.leaveCaches(ctx, nil, true); err != nil {
		return err
	}
	err := errors.Join(free(&g.away.slots), g.closeLink(), g.stream.Close())
	g.stream, g.keeper = nil, nil
	return err
}

// counters are the stats with those that readers, and who takes host memory beside them, count.
type counters struct {
	Stats
	readBytes, pageableBytes atomic.Int64
}

// Stats returns what was done so far.
func (g *Pager) Stats() Stats {
	s := g.stats.Stats
	s.ReadBytes += g.stats.readBytes.Load()
	s.PageableBytes = g.stats.pageableBytes.Load()
	return s
}

// Held is the device memory that a pager holds, by purpose. Constants count as fixed.
type Held struct{ FixedBytes, CacheBytes, RingBytes, ActivationBytes, WorkBytes int64 }

// Total returns the sum.
func (h Held) Total() int64 {
	return h.FixedBytes + h.CacheBytes + h.RingBytes + h.ActivationBytes + h.WorkBytes
}

// Held returns the device memory that the pager holds now.
func (g *Pager) Held() Held {
	h := Held{bytesOf(g.fixed), g.cacheBytes(), bytesOf(g.ring), bytesOf(g.activations), bytesOf(g.scratch)}
	for _, p := range g.programs.All() {
		h.FixedBytes += bytesOf(p.consts)
	}
	return h
}

// HostBytes returns the host memory that the pager holds now: that through which the device is filled, and that in
// which activations and caches wait.
func (g *Pager) HostBytes() int64 {
	var n int64
	for _, b := range []device.HostMemory{g.staging, g.swaps, g.rowsMemory, g.transferMemory} {
		if b != nil {
			n += int64(len(b.Bytes()))
		}
	}
	return n + g.copies.bytes() + g.waitingBytes()
}

func bytesOf(m device.Memory) int64 {
	if m == nil {
		return 0
	}
	return m.Bytes()
}

// Close ends the pager's goroutines and frees what it allocated. A second Close returns nil.
func (g *Pager) Close() error {
	if g.closed {
		return nil
	}
	g.closed = true
	g.rows.close()
	err := errors.Join(g.drop(), g.empty(), g.DropCaches(), g.closeLink())
	if g.stream == nil {
		return err
	}
	return errors.Join(err, g.stream.Close())
}

// empty frees all memory. No program may use it any more.
func (g *Pager) empty() error {
	errs := []error{g.closeFirst(), g.dropFile()}
	for _, m := range []*device.Memory{&g.fixed, &g.ring, &g.activations, &g.scratch} {
		errs = append(errs, free(m))
	}
	g.held = nil
	dropHost(&g.staging)
	dropHost(&g.swaps)
	dropHost(&g.rowsMemory)
	dropHost(&g.transferMemory)
	dropHost(&g.away.link.tables)
	g.dropCopies()
	g.unregister()
	return errors.Join(errs...)
}

func free(m *device.Memory) error {
	if *m == nil {
		return nil
	}
	err := (*m).Free()
	*m = nil
	return err
}

// errClosed is returned by the methods of a closed pager.
var errClosed = errors.New("pager is closed")

// located says where in a plan an error came up, unless it says so itself.
func located(err error, path, step string) error {
	if err == nil {
		return nil
	}
	var known *GroupError // on the heap: no step that ends well pays for it
	if errors.As(err, &known) {
		return err
	}
	return &GroupError{path, step, err}
}
