// Package chunker runs a plan that has two sides: pinned groups run on their device, the others on the CPU or on
// further devices, and a value that one side computes and the other reads is copied once. If the plan says so, both
// sides compute at the same time, on neighbouring micro-batches.
//
// It knows plans and devices. It does not know models or files, and it makes no decisions: the plan says which group
// runs where.
//
//	c, err := chunker.New(dev, host, chunker.Options{})
//	err = c.Pass(ctx, plan, io) // many times, one at a time; plans with one side, too
//	err = c.Close()
package chunker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/hostmem"
	"github.com/optimem/optimem/internal/panicked"
	"github.com/optimem/optimem/pager"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/plan/slots"
)

// Options change how a plan is run. The zero value is right.
type Options struct {
	// Device and Host are the options of the pagers of both sides. Events number groups as the plan of both does.
	Device, Host pager.Options
	// HostRan is told what the host's processor has done; nil tells nobody. It is how an emulated device's clock learns of
	// time spent elsewhere.
	HostRan func(HostWork)
}

// HostWork are groups that the host's processor has run for some instances, in a plan of its side.
type HostWork struct {
	Plan      *plan.Plan
	Segment   plan.Segment
	Instances int
	// After is what the host waited for, while the device goes on. It is nil where the device waits for the host, which is
	// the case with the Last of a pass in any case.
	After device.Event
	Last  bool
}

// Seconds is what the plan expects it to take; what a pass waits for weights on the host is in what its first groups take.
func (w HostWork) Seconds() float64 {
	var seconds float64
	if w.Segment.First == 0 {
		seconds = w.Plan.Forecast.StallSeconds
	}
	for _, group := range w.Plan.Groups[w.Segment.First:w.Segment.End] {
		seconds += group.Seconds * float64(w.Instances)
	}
	return seconds
}

// A Chunker is a device and the host's processor. It must not be used by two goroutines at once.
type Chunker struct {
	opts Options
	// sides are the device's pager and the host's.
	sides [2]side
	// pagers are those of all devices, in order; peers says that there are several and no host's processor.
	pagers []*pager.Pager
	peers  bool
	// alone says that the pass that was begun has a plan without sides, that of the first device: peers may be more than
	// groups.
	alone bool
	// current is the plan that the crossings are laid out for.
	current   *plan.Plan
	crossings device.HostMemory
	// offset is where each crossing begins, size what one instance of it takes.
	offset, size []int64
	io           [2]sideIO
	// mu orders the calls of the caller's IO by both sides, which may compute at the same time.
	mu sync.Mutex
	// groups has, for each side's groups, their numbers in the plan of both, and ops those of its ops; nil while a plan has
	// one side.
	groups, ops [2][]int
}

// A side runs one side of a plan: a pager does, and so does a chunker whose sides are further devices.
type side interface {
	Begin(ctx context.Context, p *plan.Plan) error
	Run(ctx context.Context, first, end int, io pager.IO) error
	RunInstance(ctx context.Context, instance int, io pager.IO) (device.Event, error)
	Settle(ctx context.Context) error
	Finish(ctx context.Context, io pager.IO) error
	Commit()
	Abandon(err error) error
	AllocHost(bytes int64, purpose hostmem.Purpose) (device.HostMemory, error)
	HostBytes() int64
	GiveBack(ctx context.Context) error
	Rest(ctx context.Context) error
	Trim() error
	Close() error
}

// New returns a chunker without a plan. The devices must outlive it.
func New(dev, host device.Device, opts Options) (*Chunker, error) {
	c := &Chunker{opts: opts}
	shared := cmp.Or(opts.Device.States, opts.Host.States, pager.NewStates())
	opts.Device.States, opts.Host.States = shared, shared
	caches := cmp.Or(opts.Device.Caches, opts.Host.Caches, pager.NewCaches())
	opts.Device.Caches, opts.Host.Caches = caches, caches
	opts.Device.Observe, opts.Host.Observe = c.numbered(0, opts.Device.Observe), c.numbered(1, opts.Host.Observe)
	first, err := pager.New(dev, opts.Device)
	if err != nil {
		return nil, err
	}
	second, err := pager.New(host, opts.Host)
	if err != nil {
		return nil, errors.Join(err, first.Close())
	}
	c.sides, c.pagers = [2]side{first, second}, []*pager.Pager{first, second}
	return c, nil
}

// Spread returns a chunker for plans whose groups are placed over several devices, in order. opts.Device are the options
// of all their pagers.
func Spread(devices []device.Device, opts Options) (*Chunker, error) {
	if len(devices) < 2 {
		return nil, errors.New("a plan is spread over two devices at least")
	}
	opts.Device.States = cmp.Or(opts.Device.States, pager.NewStates())
	opts.Device.Caches = cmp.Or(opts.Device.Caches, pager.NewCaches())
	c := &Chunker{opts: opts, peers: true}
	own, others := opts.Device, opts
	own.Observe, others.Device.Observe = c.numbered(0, opts.Device.Observe), c.numbered(1, opts.Device.Observe)
	first, err := pager.New(devices[0], own)
	if err != nil {
		return nil, err
	}
	c.pagers = []*pager.Pager{first}
	c.sides[0] = first
	if len(devices) > 2 {
		rest, err := Spread(devices[1:], others)
		if err != nil {
			return nil, errors.Join(err, first.Close())
		}
		c.sides[1], c.pagers = rest, append(c.pagers, rest.pagers...)
		return c, nil
	}
	last, err := pager.New(devices[1], others.Device)
	if err != nil {
		return nil, errors.Join(err, first.Close())
	}
	c.sides[1], c.pagers = last, append(c.pagers, last)
	return c, nil
}

// numbered returns an observer of a side that tells the given one.
func (c *Chunker) numbered(side int, observe func(pager.Event)) func(pager.Event) {
	if observe == nil {
		return nil
	}
	return func(e pager.Event) {
		if e.Group >= 0 && e.Group < len(c.groups[side]) {
			e.Group = c.groups[side][e.Group]
		}
		if e.Kind == pager.OpDone && e.Op < len(c.ops[side]) {
			e.Op = c.ops[side][e.Op]
		}
		observe(e)
	}
}

// Pass runs a plan once. Where it fails, or ctx is done, it returns within the op that runs, and the chunker can be used
// again.
func (c *Chunker) Pass(ctx context.Context, p *plan.Plan, io pager.IO) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = c.Abandon(panicked.By(v))
		}
	}()
	if err := c.Begin(ctx, p); err != nil {
		return err
	}
	if err := c.Run(ctx, 0, len(p.Groups), io); err != nil {
		return err
	}
	if err := c.Finish(ctx, io); err != nil {
		return err
	}
	c.Commit()
	return nil
}

// Begin starts a pass over a plan, with two sides or for the first device alone, of which Run runs all groups and which Finish
// and Commit end, as a pager's do.
func (c *Chunker) Begin(ctx context.Context, p *plan.Plan) error {
	if c.alone = p.Sides == nil; c.alone {
		c.groups, c.ops = [2][]int{}, [2][]int{}
		return c.sides[0].Begin(ctx, p)
	}
	if err := c.use(p); err != nil {
		return err
	}
	for i, plan := range []*plan.Plan{p.Sides.Device, p.Sides.Host} {
		if err := c.sides[i].Begin(ctx, plan); err != nil {
			return c.Abandon(err)
		}
	}
	return nil
}

// Run runs the groups of the pass that was begun: all of them, for no side can be left in its middle.
func (c *Chunker) Run(ctx context.Context, first, end int, io pager.IO) error {
	if c.alone {
		return c.sides[0].Run(ctx, first, end, io)
	}
	if first != 0 || end != len(c.current.Groups) {
		panic(fmt.Sprintf("BUG: groups %d to %d of the %d of several devices", first, end, len(c.current.Groups)))
	}
	c.give(io)
	run := c.inTurns
	if c.current.Sides.Overlaps && !c.opts.Device.ObserveOps { // an observer is told by one goroutine
		run = c.overlapped
	}
	if err := run(ctx, c.current.Sides); err != nil {
		return c.Abandon(err)
	}
	return nil
}

// give makes the caller's IO that of both sides.
func (c *Chunker) give(io pager.IO) {
	for i := range c.io {
		c.io[i].caller = io
	}
}

// Finish reads what the states of both sides become, and changes none.
func (c *Chunker) Finish(ctx context.Context, io pager.IO) error {
	if c.alone {
		return c.sides[0].Finish(ctx, io)
	}
	c.give(io)
	for i, side := range c.sides {
		if err := side.Finish(ctx, &c.io[i]); err != nil {
			return c.Abandon(err)
		}
	}
	return nil
}

// Commit makes the states what was read, and ends the pass.
func (c *Chunker) Commit() {
	if c.alone {
		c.sides[0].Commit()
		return
	}
	for _, side := range c.sides {
		side.Commit()
	}
}

// RunInstance runs all groups for one instance, as a pager's does.
func (c *Chunker) RunInstance(ctx context.Context, instance int, io pager.IO) (device.Event, error) {
	if c.alone {
		return c.sides[0].RunInstance(ctx, instance, io)
	}
	c.give(io)
	e, err := c.sides[0].RunInstance(ctx, instance, &c.io[0])
	if err != nil || e == nil {
		return nil, err
	}
	if err := e.Sync(ctx); err != nil {
		return nil, err
	}
	return c.sides[1].RunInstance(ctx, instance, &c.io[1])
}

// Settle returns once what RunInstance gave to both sides is done.
func (c *Chunker) Settle(ctx context.Context) error {
	if c.alone {
		return c.sides[0].Settle(ctx)
	}
	for _, side := range c.sides {
		if err := side.Settle(ctx); err != nil {
			return err
		}
	}
	return nil
}

// AllocHost takes host memory as a pager's does.
func (c *Chunker) AllocHost(bytes int64, purpose hostmem.Purpose) (device.HostMemory, error) {
	return c.sides[0].AllocHost(bytes, purpose)
}

// inTurns runs the segments one after the other, each for all instances.
func (c *Chunker) inTurns(ctx context.Context, s *plan.Sides) error {
	for i, segment := range s.Segments {
		side := sideOf(segment)
		if err := c.sides[side].Run(ctx, segment.First, segment.End, &c.io[side]); err != nil {
			return err
		}
		if segment.OnHost && c.opts.HostRan != nil && !c.peers {
			c.opts.HostRan(HostWork{
				Plan: s.Host, Segment: segment, Instances: s.Host.Instances, Last: i == len(s.Segments)-1,
			})
		}
	}
	return nil
}

// sideOf returns the number of the side that a segment is of.
func sideOf(segment plan.Segment) int {
	if segment.OnHost {
		return 1
	}
	return 0
}

// Abandon brings both sides back to where a pass begins, and returns err.
func (c *Chunker) Abandon(err error) error {
	for _, side := range c.sides {
		err = side.Abandon(err)
	}
	return err
}

// use lays out the memory through which values cross.
func (c *Chunker) use(p *plan.Plan) error {
	s := p.Sides
	if c.groups[0] == nil && c.groups[1] == nil || c.current != p {
		c.groups, c.ops = [2][]int{}, [2][]int{s.Whole[0].Ops, s.Whole[1].Ops}
		at := 0
		for _, segment := range s.Segments {
			for range segment.End - segment.First {
				side := sideOf(segment)
				c.groups[side] = append(c.groups[side], at)
				at++
			}
		}
	}
	if c.current == p {
		return nil
	}
	c.dropCrossings()
	buf, err := c.sides[0].AllocHost(s.CrossingBytes, hostmem.Activations)
	if err != nil {
		return err
	}
	c.crossings, c.offset, c.size = buf, c.offset[:0], c.size[:0]
	for i := range c.io {
		c.io[i] = sideIO{c: c, side: s.Whole[i], whole: wholeOf(s.Whole[i]), crossing: make(map[graph.ValueID]int)}
		n := len(s.Whole[i].Graph.Outputs)
		c.io[i].outputs = make([]int, n)
		for k := range n {
			c.io[i].outputs[k] = -1
		}
	}
	var at int64
	for k, x := range s.Crossings {
		n := s.Whole[1-x.From].Graph.Values[x.Input].Bytes()
		c.offset, c.size = append(c.offset, at), append(c.size, n)
		at += n * int64(p.Instances)
		c.io[1-x.From].crossing[x.Input] = k
		c.io[x.From].outputs[x.Output] = k
	}
	c.current = p
	return nil
}

// wholeOf returns, for each value of a side, the value of the whole graph.
func wholeOf(side *graph.Side) []graph.ValueID {
	whole := make([]graph.ValueID, len(side.Graph.Values))
	for id, own := range side.Values {
		if own != graph.NoValue {
			whole[own] = graph.ValueID(id)
		}
	}
	return whole
}

// bytes returns the memory of a crossing.
func (c *Chunker) bytes(crossing, instance int) []byte {
	return c.crossings.Bytes()[c.offset[crossing]+int64(instance)*c.size[crossing]:][:c.size[crossing]]
}

// A sideIO gives a side what the caller or the other side has for it, and takes what it gives them.
type sideIO struct {
	c      *Chunker
	caller pager.IO
	side   *graph.Side
	whole  []graph.ValueID
	// crossing has the inputs that come from the other side, outputs the crossing that an output is, −1 for the caller's.
	crossing map[graph.ValueID]int
	outputs  []int
}

// Input implements pager.IO.
func (x *sideIO) Input(instance int, id graph.ValueID) []byte {
	if k, ok := x.crossing[id]; ok {
		return x.c.bytes(k, instance)
	}
	x.c.mu.Lock()
	defer x.c.mu.Unlock()
	return x.caller.Input(instance, x.whole[id])
}

// Output implements pager.IO.
func (x *sideIO) Output(instance, output int, made bool) []byte {
	if k := x.outputs[output]; k >= 0 {
		return x.c.bytes(k, instance)
	}
	x.c.mu.Lock()
	defer x.c.mu.Unlock()
	return x.caller.Output(instance, x.side.Outputs[output], made)
}

// Instances implements pager.Shared: of an IO that is not shared, all take part.
func (x *sideIO) Instances() int {
	if shared, ok := x.caller.(pager.Shared); ok {
		return shared.Instances()
	}
	return x.c.current.Instances
}

// Wanted implements pager.Shared.
func (x *sideIO) Wanted(instance int) bool {
	x.c.mu.Lock()
	defer x.c.mu.Unlock()
	shared, ok := x.caller.(pager.Shared)
	return !ok || shared.Wanted(instance)
}

// Left implements pager.Shared. An instance that left on one side is not wanted on the other.
func (x *sideIO) Left(instance int, err error) (othersGoOn bool) {
	x.c.mu.Lock()
	defer x.c.mu.Unlock()
	shared, ok := x.caller.(pager.Shared)
	return ok && shared.Left(instance, err)
}

// Routing returns nil: experts are lent on the CPU alone, which has no chunker.
func (c *Chunker) Routing() map[string]*slots.Curve { return nil }

// Stats returns what both sides did: the device's, and the host's. Of several devices it is the sum, with the peak of the
// one that held most.
func (c *Chunker) Stats() (dev, host pager.Stats) {
	if !c.peers {
		return c.pagers[0].Stats(), c.pagers[1].Stats()
	}
	for _, p := range c.pagers {
		s := p.Stats()
		dev.Passes = max(dev.Passes, s.Passes)
		dev.FixedBytes, dev.MovedBytes, dev.ReadBytes = dev.FixedBytes+s.FixedBytes, dev.MovedBytes+s.MovedBytes, dev.ReadBytes+s.ReadBytes
		dev.PageableBytes, dev.PeakBytes = dev.PageableBytes+s.PageableBytes, max(dev.PeakBytes, s.PeakBytes)
		dev.Stall, dev.Compute = dev.Stall+s.Stall, dev.Compute+s.Compute
		dev.CacheInBytes, dev.CacheOutBytes = dev.CacheInBytes+s.CacheInBytes, dev.CacheOutBytes+s.CacheOutBytes
	}
	return dev, host
}

// Held returns the memory that both sides hold: the device's, and the host's, without what crosses. Of several devices it
// is the sum.
func (c *Chunker) Held() (dev, host pager.Held) {
	if !c.peers {
		return c.pagers[0].Held(), c.pagers[1].Held()
	}
	for _, p := range c.pagers {
		h := p.Held()
		dev.FixedBytes, dev.RingBytes = dev.FixedBytes+h.FixedBytes, dev.RingBytes+h.RingBytes
		dev.CacheBytes += h.CacheBytes
		dev.ActivationBytes, dev.WorkBytes = dev.ActivationBytes+h.ActivationBytes, dev.WorkBytes+h.WorkBytes
	}
	return dev, host
}

// Inventories returns what each device holds, in order, and the host memory through which values cross.
func (c *Chunker) Inventories() (list []pager.Inventory, crossingBytes int64) {
	for _, p := range c.pagers {
		list = append(list, p.Inventory())
	}
	if c.crossings != nil {
		crossingBytes = int64(len(c.crossings.Bytes()))
	}
	if rest, ok := c.sides[1].(*Chunker); ok {
		_, more := rest.Inventories()
		crossingBytes += more
	}
	return list, crossingBytes
}

// MostHeld returns what the device holds that holds most.
func (c *Chunker) MostHeld() int64 {
	var most int64
	for _, p := range c.pagers {
		most = max(most, p.Held().Total())
	}
	return most
}

// HostBytes returns the host memory through which devices are filled and values cross.
func (c *Chunker) HostBytes() int64 {
	n := c.sides[0].HostBytes()
	if c.peers {
		n += c.sides[1].HostBytes()
	}
	if c.crossings != nil {
		n += int64(len(c.crossings.Bytes()))
	}
	return n
}

// DropCaches frees the caches on both sides: they begin as zeros again.
func (c *Chunker) DropCaches() error {
	var errs []error
	for _, p := range c.pagers {
		errs = append(errs, p.DropCaches())
	}
	return errors.Join(errs...)
}

// ShrinkCaches takes memory from caches on both sides: see [pager.Pager.ShrinkCaches].
func (c *Chunker) ShrinkCaches(blocks, now int) error {
	var errs []error
	for _, p := range c.pagers {
		errs = append(errs, p.ShrinkCaches(blocks, now))
	}
	return errors.Join(errs...)
}

// ReadCache copies what a cache holds on the side that has it: see [pager.Pager.ReadCache].
func (c *Chunker) ReadCache(ctx context.Context, name string, dst []byte, at int64) error {
	return c.pagers[0].ReadCache(ctx, name, dst, at)
}

// WriteCache puts bytes into a cache on the side that has it: see [pager.Pager.WriteCache].
func (c *Chunker) WriteCache(ctx context.Context, name string, src []byte, at int64) error {
	return c.pagers[0].WriteCache(ctx, name, src, at)
}

// GiveBack frees all memory that both sides hold, and that through which values cross, between passes.
func (c *Chunker) GiveBack(ctx context.Context) error {
	c.dropCrossings()
	return errors.Join(c.sides[0].GiveBack(ctx), c.sides[1].GiveBack(ctx))
}

// Rest is [Chunker.GiveBack] with all else that both sides have on devices with memory of their own: see [pager.Pager.Rest].
func (c *Chunker) Rest(ctx context.Context) error {
	c.dropCrossings()
	return errors.Join(c.sides[0].Rest(ctx), c.sides[1].Rest(ctx))
}

// Keep gives all back: what stays on two sides is not moved.
func (c *Chunker) Keep(ctx context.Context, _ *plan.Plan) (bool, error) {
	return false, c.GiveBack(ctx)
}

// Trim frees the device memory that both sides hold but weights that stay and caches, between passes.
func (c *Chunker) Trim() error { return errors.Join(c.sides[0].Trim(), c.sides[1].Trim()) }

// Bound changes [pager.Options.MemoryBytes] of each device for plans from now on. That of the host's processor stays.
func (c *Chunker) Bound(memoryBytes int64) {
	devices := c.pagers
	if !c.peers {
		devices = devices[:1]
	}
	for _, p := range devices {
		p.Bound(memoryBytes)
	}
}

func (c *Chunker) dropCrossings() {
	if c.crossings != nil {
		c.crossings.Free()
		c.crossings = nil
	}
	c.current = nil
}

// Close frees everything. A second Close returns nil.
func (c *Chunker) Close() error {
	c.dropCrossings()
	return errors.Join(c.sides[0].Close(), c.sides[1].Close())
}
