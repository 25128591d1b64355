package cuda

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/optimem/optimem/cuda/internal/driver"
	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/graph"
)

// A stream is a queue of work on the GPU. What runs ops must be one goroutine; other methods may be called from several,
// though what they give the stream then has no order.
type stream struct {
	d      *Device
	handle driver.Stream

	mu sync.Mutex
	// err is what went wrong where nothing could be returned. Until Sync returns it the stream takes no work.
	err error
	// events are those recorded, the oldest first.
	events []*event
	// ahead are marks in the work that is given out, one each aheadOps ops; since counts those after the last.
	ahead []*event
	since int
	args  call
	// room is where factors are described for a launch.
	room driver.TensorRoom
	// launch is that of the op being run; op is it.
	launch launch
	op     *graph.Op
	notes  notes
	// keeping is what Run keeps ops for, nil where it computes them.
	keeping *kept
	// dry is told of kernels instead of the GPU, where ops are only to say which they launch.
	dry func(kernel string)
}

var _ device.Packer = (*stream)(nil)

// NewStream returns a stream.
func (d *Device) NewStream() (device.Stream, error) {
	if err := d.enter(); err != nil {
		return nil, err
	}
	defer d.leave()
	handle, err := d.lib.NewStream()
	if err != nil {
		return nil, d.failed(err)
	}
	s := &stream{d: d, handle: handle}
	s.launch.s = s
	return s, nil
}

// begin enters the device, unless the stream takes no work. The stream is locked.
func (s *stream) begin() error {
	if s.err != nil {
		return s.err
	}
	return s.d.enter()
}

// CopyIn copies host bytes to the GPU.
func (s *stream) CopyIn(dst device.Region, src []byte) error {
	to, err := s.d.span(dst)
	if err != nil {
		return err
	}
	if int64(len(src)) > to.bytes {
		return fmt.Errorf("%d bytes do not go into %d", len(src), to.bytes)
	}
	if len(src) == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.begin(); err != nil {
		return err
	}
	defer s.d.leave()
	return s.d.failed(s.d.lib.CopyIn(driver.Pointer(to.address), src, s.handle))
}

// CopyOut copies bytes of the GPU to the host.
func (s *stream) CopyOut(dst []byte, src device.Region) error {
	from, err := s.d.span(src)
	if err != nil {
		return err
	}
	if int64(len(dst)) > from.bytes {
		return fmt.Errorf("%d bytes are not in %d", len(dst), from.bytes)
	}
	if len(dst) == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.begin(); err != nil {
		return err
	}
	defer s.d.leave()
	return s.d.failed(s.d.lib.CopyOut(dst, driver.Pointer(from.address), s.handle))
}

// aheadOps bounds the ops that wait on the GPU to three times as many, so that who cancels a pass need not wait for all of
// it: what the driver was given it cannot be told to leave.
const aheadOps = 64

// pace waits where the GPU is far behind, before it is given some ops more.
func (s *stream) pace(ctx context.Context, ops int) error {
	if s.since += ops; s.since < aheadOps {
		return nil
	}
	s.since = 0
	s.ahead = append(s.ahead, s.Record().(*event))
	if len(s.ahead) <= 2 {
		return nil
	}
	oldest := s.ahead[0]
	s.ahead = append(s.ahead[:0], s.ahead[1:]...)
	return oldest.Sync(ctx)
}

// Run gives an op's kernels to the GPU.
func (s *stream) Run(ctx context.Context, l device.Launch) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.keeping != nil {
		s.keeping.ops++
	} else if err := s.pace(ctx, 1); err != nil {
		return err
	}
	k, ok := table[l.Op.Kind]
	if !ok {
		return fmt.Errorf("%w: there is no CUDA kernel for %s", graph.ErrUnsupported, l.Op.Kind)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	a := &s.launch
	var err error
	a.kind, a.attrs, a.work, a.blas = l.Op.Kind, l.Op.Attrs, span{}, l.Step.Kernel == blasKernel &&
		s.d.blas.handle.Load() != nil
	a.hopper = byWGMMA(&l.Step)
	if a.in, err = s.d.operands(a.in[:0], l.In); err != nil {
		return err
	}
	if a.out, err = s.d.operands(a.out[:0], l.Out); err != nil {
		return err
	}
	if l.Work.Bytes > 0 {
		if a.work, err = s.d.span(l.Work); err != nil {
			return err
		}
	}
	s.op = &l.Op
	if err := s.begin(); err != nil {
		return err
	}
	defer s.d.leave()
	return k.launch(a)
}

// Pack implements device.Packer.
func (s *stream) Pack(
	ctx context.Context, op *graph.Op, p graph.Pack, src device.Argument, dst device.Region,
) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	k := table[op.Kind]
	if k.pack == nil {
		return fmt.Errorf("BUG: %s has no packed operands", op.Kind)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	raw, err := s.d.operands(nil, []device.Argument{src})
	if err != nil {
		return err
	}
	to, err := s.d.span(dst)
	if err != nil {
		return err
	}
	if to.bytes < p.Bytes {
		return fmt.Errorf("%d bytes do not go into %d", p.Bytes, to.bytes)
	}
	if err := s.begin(); err != nil {
		return err
	}
	defer s.d.leave()
	return k.pack(&launch{kind: op.Kind, attrs: op.Attrs, s: s}, p, raw[0], to.slice(0, p.Bytes))
}

// operands finds the operands of an op.
func (d *Device) operands(list []operand, args []device.Argument) ([]operand, error) {
	for i := range args {
		a := &args[i]
		if a.Operand.Value == graph.NoValue {
			list = append(list, operand{})
			continue
		}
		at, err := d.span(a.Region)
		if err != nil {
			return list, err
		}
		list = append(list, operand{span: at, dtype: a.Spec.DType, layout: a.Operand.Layout, packed: a.Packed})
	}
	return list, nil
}

// What a grid may have of blocks.
const (
	mostAlongX  = 1<<31 - 1
	mostAlongYZ = 1<<16 - 1
)

// start gives a kernel to the GPU. The context is current and the stream locked.
func (s *stream) start(c *call, blocks, threads dims, sharedBytes int64) error {
	if blocks[0] > mostAlongX || blocks[1] > mostAlongYZ || blocks[2] > mostAlongYZ {
		return fmt.Errorf("%w: kernel %s by %d × %d × %d blocks", graph.ErrUnsupported, c.name, blocks[0], blocks[1], blocks[2])
	}
	if s.dry != nil {
		s.dry(c.name)
		return nil
	}
	f, err := s.d.function(c.name)
	if err != nil {
		return err
	}
	g := driver.Grid{SharedBytes: uint32(sharedBytes)}
	for i := range blocks {
		g.Blocks[i], g.Threads[i] = uint32(blocks[i]), uint32(threads[i])
	}
	if err := s.d.failed(s.d.lib.Launch(f, g, &c.p, s.handle)); err != nil {
		return fmt.Errorf("kernel %s: %w", c.name, err)
	}
	return nil
}

// Sync returns when all work given so far is done, with the first error of it. The driver cannot be told to stop, so a
// context that is done meanwhile is noticed after that.
func (s *stream) Sync(ctx context.Context) error {
	s.mu.Lock()
	kept := s.err
	s.err = nil
	s.mu.Unlock()
	e := s.Record()
	err := e.Sync(context.Background()) // it sleeps, where synchronising the stream might spin
	s.mu.Lock()
	defer s.mu.Unlock()
	settled := s.settle() // whatever failed, the work must be done before its memory is used again
	if errors.Is(settled, err) {
		err = nil
	}
	if err = errors.Join(kept, err, settled); err != nil {
		return err
	}
	return ctx.Err()
}

// settle synchronises the stream, and looks at what ops noted on the GPU.
func (s *stream) settle() error {
	if err := s.d.enter(); err != nil {
		return err
	}
	defer s.d.leave()
	if err := s.d.failed(s.d.lib.SyncStream(s.handle)); err != nil {
		return err
	}
	return s.noted()
}

// Close waits for the stream's work and ends it.
func (s *stream) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.d.gone() {
		s.notes = notes{}
		return nil
	}
	if err := s.d.enter(); err != nil {
		return err
	}
	defer s.d.leave()
	// A stream that ends with work lets go of it, and it goes on: what it works with is not free yet.
	errs := []error{s.d.failed(s.d.lib.SyncStream(s.handle))}
	for _, e := range s.events {
		errs = append(errs, s.d.lib.DestroyEvent(e.retire()))
	}
	s.events = nil
	errs = append(errs, s.d.failed(s.d.lib.DestroyStream(s.handle)))
	if s.notes.at != nil {
		s.d.mu.Lock()
		s.d.used -= s.notes.at.bytes
		s.d.mu.Unlock()
		errs = append(errs, s.d.failed(s.d.lib.Free(s.notes.at.pointer)))
		s.notes.at = nil
	}
	return errors.Join(errs...)
}
