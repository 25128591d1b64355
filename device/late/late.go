// Package late is a test device that does everything as late, and in as odd an order, as its streams and events allow,
// and in which any call can be made to fail or to block. A copy reads and writes its bytes when it runs, not when it is
// queued, so code that does not wait for it sees the wrong bytes. Memory and ops are those of another device.
//
// It knows streams. It does not know what is copied or computed.
//
//	dev := late.New(emulated.New(emulated.Options{}), late.Options{Seed: 1})
//	// … run something on it …
//	dev.Drain() // runs what nothing has waited for
package late

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/graph"
)

// Options say when things are done, and what fails. The zero value is one of the orders.
type Options struct {
	// Seed is that of the order.
	Seed uint64
	// Before is asked at each call that a stream or an event is given, if it is not nil. What it returns is the call's
	// error; it may return late, but must not call the device. ctx is the call's, or the background where it has none.
	Before func(ctx context.Context, c Call) error
	// Later has copies and ops for which Before returns an error be accepted and fail when they are made.
	Later bool
	// Prompt has everything done at once, for devices that compute in the caller's time.
	Prompt bool
	// Keeps has streams keep ops.
	Keeps bool
}

// A Kind is that of a call.
type Kind uint8

// The kinds of calls.
const (
	CopyIn Kind = iota
	CopyOut
	Run
	Pack
	Sync      // of a stream
	EventSync // of an event
)

// A Call is one that a stream or an event is given, numbered from 1.
type Call struct {
	N      int
	Kind   Kind
	Stream int
}

// A Device does late what another does.
type Device struct {
	device.Device
	opts Options

	mu      sync.Mutex
	random  *rand.Rand
	calls   int
	streams []*stream
	made    int // streams so far
	kept    int
	// misuse is what nobody may do, told when the device is closed.
	misuse error
	// err is the first error since a stream was synchronised: those of one fail all, as a GPU's do.
	err error
}

// New returns a device over another, which closes with it.
func New(dev device.Device, opts Options) *Device {
	return &Device{Device: dev, opts: opts, random: rand.New(rand.NewPCG(opts.Seed, 0))}
}

// HostBytes returns the bytes of a region of a device whose memory the host can write to.
func (d *Device) HostBytes(r device.Region) []byte {
	return d.Device.(interface {
		HostBytes(r device.Region) []byte
	}).HostBytes(inner(r))
}

// Alloc takes memory of the other device, which may not be given back while a stream has work with it.
func (d *Device) Alloc(bytes int64) (device.Memory, error) {
	m, err := d.Device.Alloc(bytes)
	if err != nil {
		return nil, err
	}
	return &memory{m, d}, nil
}

type memory struct {
	device.Memory
	d *Device
}

// Free gives the memory back.
func (m *memory) Free() error {
	m.d.mu.Lock()
	defer m.d.mu.Unlock()
	for _, s := range m.d.streams {
		for _, t := range s.tasks {
			if slices.ContainsFunc(t.regions, func(r device.Region) bool { return r.Memory == m }) {
				m.d.misuse = errors.New("memory is given back that a stream still has work with")
			}
		}
	}
	return m.Memory.Free()
}

// inner returns a region of the other device's memory.
func inner(r device.Region) device.Region {
	if m, ok := r.Memory.(*memory); ok {
		r.Memory = m.Memory
	}
	return r
}

// AllocHost takes memory that may not be given back while a copy from or to it is under way.
func (d *Device) AllocHost(bytes int64) (device.HostMemory, error) {
	return &hostMemory{d, make([]byte, bytes)}, nil
}

type hostMemory struct {
	d     *Device
	bytes []byte
}

func (m *hostMemory) Bytes() []byte { return m.bytes }

func (m *hostMemory) Free() {
	m.d.mu.Lock()
	defer m.d.mu.Unlock()
	for _, s := range m.d.streams {
		for _, t := range s.tasks {
			for i := range m.bytes {
				if len(t.host) > 0 && &t.host[0] == &m.bytes[i] {
					m.d.misuse = errors.New("host memory is given back that a stream still copies from or to")
				}
			}
		}
	}
}

// Close closes the other device, and fails where the device was misused.
func (d *Device) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return errors.Join(d.misuse, d.Device.Close())
}

// Calls returns how many calls there were.
func (d *Device) Calls() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.calls
}

// KeptRuns returns how many times ops that were kept were run.
func (d *Device) KeptRuns() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.kept
}

// Drain does all that was given to streams and that nobody has waited for.
func (d *Device) Drain() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range d.streams {
		d.until(s, s.given())
	}
}

// NewStream returns a stream of the other device's, given its work late.
func (d *Device) NewStream() (device.Stream, error) {
	inner, err := d.Device.NewStream()
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	s := &stream{d: d, inner: inner, id: d.made}
	d.made++
	d.streams = append(d.streams, s)
	if d.opts.Keeps {
		return &keeper{stream: s}, nil
	}
	return s, nil
}

// before numbers a call and asks what it ends with.
func (d *Device) before(ctx context.Context, kind Kind, stream int) error {
	d.mu.Lock()
	d.calls++
	n := d.calls
	d.mu.Unlock()
	if d.opts.Before == nil {
		return nil
	}
	return d.opts.Before(ctx, Call{n, kind, stream})
}

// until does work of any streams, in a random order, until one has done so many of its tasks.
func (d *Device) until(s *stream, count int) {
	for s.done < count {
		d.step()
	}
}

// step does the next task of a random stream of those that do not wait for another.
func (d *Device) step() bool {
	var able []*stream
	for _, s := range d.streams {
		if len(s.tasks) > 0 && (s.tasks[0].wait == nil || s.tasks[0].wait.reached()) {
			able = append(able, s)
		}
	}
	if len(able) == 0 {
		return false
	}
	s := able[d.random.IntN(len(able))]
	t := s.tasks[0]
	s.tasks = s.tasks[1:]
	s.done++
	if err := t.do(); err != nil && d.err == nil {
		d.err = err
	}
	return true
}

// A task is what a stream was given, behind an event where wait is not nil.
type task struct {
	do   func() error
	wait *event
	// host is what is copied from or to, regions are what the task works with.
	host    []byte
	regions []device.Region
}

type stream struct {
	d     *Device
	inner device.Stream
	id    int
	tasks []task
	done  int
}

func (s *stream) given() int { return s.done + len(s.tasks) }

// give adds a task. Now and then something is done meanwhile.
func (s *stream) give(t task) {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	s.tasks = append(s.tasks, t)
	if s.d.opts.Prompt {
		s.d.until(s, s.given())
	}
	for s.d.random.IntN(3) == 0 && s.d.step() {
	}
}

// accept adds a task unless its call fails at once.
func (s *stream) accept(ctx context.Context, kind Kind, t task) error {
	err := s.d.before(ctx, kind, s.id)
	if err != nil && !s.d.opts.Later {
		return err
	}
	if err != nil {
		t.do = func() error { return err }
	}
	s.give(t)
	return nil
}

func (s *stream) CopyIn(dst device.Region, src []byte) error {
	return s.accept(context.Background(), CopyIn, task{
		do: func() error { return s.inner.CopyIn(inner(dst), src) }, host: src, regions: []device.Region{dst},
	})
}

func (s *stream) CopyOut(dst []byte, src device.Region) error {
	return s.accept(context.Background(), CopyOut, task{
		do: func() error { return s.inner.CopyOut(dst, inner(src)) }, host: dst, regions: []device.Region{src},
	})
}

func (s *stream) Run(ctx context.Context, l device.Launch) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.accept(ctx, Run, s.run(ctx, l))
}

// run returns what computes an op with its operands where they are now.
func (s *stream) run(ctx context.Context, l device.Launch) task {
	t := task{regions: []device.Region{l.Work}}
	l.In, l.Out = slices.Clone(l.In), slices.Clone(l.Out)
	l.Work = inner(l.Work)
	for _, list := range [][]device.Argument{l.In, l.Out} {
		for i := range list {
			t.regions = append(t.regions, list[i].Region)
			list[i].Region = inner(list[i].Region)
		}
	}
	t.do = func() error { return s.inner.Run(context.WithoutCancel(ctx), l) }
	return t
}

func (s *stream) Pack(ctx context.Context, op *graph.Op, p graph.Pack, src device.Argument, dst device.Region) error {
	packer, ok := s.inner.(device.Packer)
	if !ok {
		return errors.New("the device packs nothing")
	}
	t := task{regions: []device.Region{src.Region, dst}}
	src.Region = inner(src.Region)
	t.do = func() error { return packer.Pack(context.WithoutCancel(ctx), op, p, src, inner(dst)) }
	return s.accept(ctx, Pack, t)
}

func (s *stream) Record() device.Event {
	e := &event{s: s}
	s.give(task{do: func() error { e.inner = s.inner.Record(); return nil }})
	return e
}

func (s *stream) Wait(of device.Event) {
	e := of.(*event)
	s.give(task{wait: e, do: func() error { s.inner.Wait(e.inner); return nil }})
}

func (s *stream) Sync(ctx context.Context) error {
	failed := s.d.before(ctx, Sync, s.id)
	if failed != nil && ctx.Err() != nil {
		return failed
	}
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	s.d.until(s, s.given())
	err := s.d.err
	s.d.err = nil
	return errors.Join(failed, err, s.inner.Sync(ctx))
}

// Close fails where work was forgotten.
func (s *stream) Close() error {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	left := len(s.tasks)
	s.d.until(s, s.given())
	s.d.streams = slices.DeleteFunc(s.d.streams, func(other *stream) bool { return other == s })
	if left > 0 {
		return errors.Join(errors.New("a stream is closed that has work"), s.inner.Close())
	}
	return s.inner.Close()
}

// An event is reached once its stream has done what it was given before.
type event struct {
	s     *stream
	inner device.Event
}

// reached is Done for who holds the lock.
func (e *event) reached() bool { return e.inner != nil }

func (e *event) Done() bool {
	e.s.d.mu.Lock()
	defer e.s.d.mu.Unlock()
	return e.reached()
}

func (e *event) Sync(ctx context.Context) error {
	if err := e.s.d.before(ctx, EventSync, e.s.id); err != nil {
		return err
	}
	e.s.d.mu.Lock()
	defer e.s.d.mu.Unlock()
	for !e.reached() {
		e.s.d.step()
	}
	return errors.Join(e.s.d.err, e.inner.Sync(ctx))
}

// A keeper is a stream that keeps ops.
type keeper struct {
	*stream
	now *kept
}

type kept struct{ ops []task }

func (*kept) Free() error { return nil }

func (k *keeper) BeginKeeping() error {
	k.now = &kept{}
	return nil
}

func (k *keeper) Run(ctx context.Context, l device.Launch) error {
	if k.now == nil {
		return k.stream.Run(ctx, l)
	}
	k.now.ops = append(k.now.ops, k.stream.run(ctx, l))
	return nil
}

func (k *keeper) EndKeeping() (device.Kept, error) {
	now := k.now
	k.now = nil
	return now, nil
}

func (k *keeper) RunKept(ctx context.Context, of device.Kept) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	k.d.mu.Lock()
	k.d.kept++
	k.d.mu.Unlock()
	for _, op := range of.(*kept).ops {
		if err := k.accept(ctx, Run, op); err != nil {
			return err
		}
	}
	return nil
}
