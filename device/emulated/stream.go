package emulated

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu"
)

// A stream executes at once what it is given, which is one of the orders that events allow, and counts when it would
// have been done.
type stream struct {
	d  *Device
	id int
	// at is when the work given so far is done.
	at time.Duration
	// runs says that the stream has run an op.
	runs bool
	// knows holds, for each stream, up to which of its steps this one has waited for it.
	knows clock
}

// NewStream returns a stream.
func (d *Device) NewStream() (device.Stream, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := &stream{d: d, id: d.streams}
	d.streams++
	return s, nil
}

// takes makes the stream busy for a while.
func (s *stream) takes(t time.Duration) {
	if s.runs {
		s.at = max(s.at, s.d.hosted)
	}
	s.at += t
	s.knows.tick(s.id)
}

// transfer counts a copy of n bytes.
func (s *stream) transfer(n int) error {
	d := s.d
	d.copies++
	if d.copies == d.opts.FailCopy {
		return ErrCopy
	}
	t := d.opts.CopyLatency
	if d.opts.CopyBytes > 0 {
		t += time.Duration(float64(n) / d.opts.CopyBytes * float64(time.Second))
	}
	s.takes(t)
	return nil
}

// CopyIn copies host bytes to the device.
func (s *stream) CopyIn(dst device.Region, src []byte) error {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	m, bytes, err := s.d.region(dst)
	if err != nil {
		return err
	}
	if int64(len(src)) > dst.Bytes {
		return fmt.Errorf("%d bytes do not go into %d", len(src), dst.Bytes)
	}
	if err := s.transfer(len(src)); err != nil {
		return err
	}
	s.d.moved += int64(len(src))
	s.access(m, dst, true)
	copy(bytes, src)
	return nil
}

// CopyOut copies device bytes to the host.
func (s *stream) CopyOut(dst []byte, src device.Region) error {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	m, bytes, err := s.d.region(src)
	if err != nil {
		return err
	}
	if int64(len(dst)) > src.Bytes {
		return fmt.Errorf("%d bytes are not in %d", len(dst), src.Bytes)
	}
	if err := s.transfer(len(dst)); err != nil {
		return err
	}
	s.access(m, src, false)
	copy(dst, bytes)
	return nil
}

// Run computes an op with the CPU's kernels.
func (s *stream) Run(ctx context.Context, l device.Launch) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	in, out, work, err := s.launch(&l)
	if err != nil || s.d.opts.Dry {
		return err
	}
	return s.d.cpu.Compute(ctx, &l.Op, in, out, work)
}

// Pack packs a weight with the CPU's kernels. It takes no time on the clock: no pass has to do it.
func (s *stream) Pack(
	ctx context.Context, op *graph.Op, p graph.Pack, src device.Argument, dst device.Region,
) error {
	s.d.mu.Lock()
	s.knows.tick(s.id)
	from, raw, err := s.d.region(src.Region)
	if err == nil {
		s.access(from, src.Region, false)
	}
	to, packed, dstErr := s.d.region(dst)
	if dstErr == nil {
		s.access(to, dst, true)
	}
	s.d.mu.Unlock()
	if err = cmp.Or(err, dstErr); err != nil || s.d.opts.Dry {
		return err
	}
	return s.d.cpu.Pack(ctx, op, p, cpu.Operand{Bytes: raw, DType: src.Spec.DType, Layout: src.Operand.Layout}, packed)
}

// launch counts an op and finds its operands.
func (s *stream) launch(l *device.Launch) (in, out []cpu.Operand, work []byte, err error) {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	var inSpecs, outSpecs []graph.Spec
	operands := func(args []device.Argument, write bool) ([]cpu.Operand, []graph.Spec, error) {
		list, specs := make([]cpu.Operand, len(args)), make([]graph.Spec, len(args))
		for i, a := range args {
			if a.Operand.Value == graph.NoValue {
				continue
			}
			m, bytes, err := s.d.region(a.Region)
			if err != nil {
				return nil, nil, err
			}
			s.access(m, a.Region, write || l.Op.Kind.Writes(i))
			specs[i] = a.Spec
			list[i] = cpu.Operand{Bytes: bytes, DType: a.Spec.DType, Layout: a.Operand.Layout, Packed: a.Packed}
		}
		return list, specs, nil
	}
	s.knows.tick(s.id)
	if in, inSpecs, err = operands(l.In, false); err != nil {
		return nil, nil, nil, err
	}
	if out, outSpecs, err = operands(l.Out, true); err != nil {
		return nil, nil, nil, err
	}
	if l.Work.Bytes > 0 {
		m, bytes, err := s.d.region(l.Work)
		if err != nil {
			return nil, nil, nil, err
		}
		s.access(m, l.Work, true)
		work = bytes
	}
	s.runs = true
	if s.d.opts.Cost != nil {
		s.takes(s.d.opts.Cost(&l.Step, &l.Op, inSpecs, outSpecs))
	}
	return in, out, work, nil
}

// An event is a point in a stream: when it is reached, and what the stream knew.
type event struct {
	at    time.Duration
	knows clock
}

// Done is always true: what a stream is given is executed at once.
func (*event) Done() bool { return true }

// Sync returns at once, for the same reason.
func (*event) Sync(ctx context.Context) error { return ctx.Err() }

// Record marks the work given so far.
func (s *stream) Record() device.Event {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	return &event{s.at, s.knows.copy()}
}

// Wait makes this stream wait for a mark of another.
func (s *stream) Wait(e device.Event) {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	s.at = max(s.at, e.(*event).at)
	s.knows.join(e.(*event).knows)
}

// Sync says when all work given so far is done.
func (s *stream) Sync(ctx context.Context) error {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	s.d.elapsed = max(s.d.elapsed, s.at)
	s.d.order.host.join(s.knows)
	s.knows.join(s.d.order.host)
	if s.d.order.err != nil {
		return s.d.order.err
	}
	return ctx.Err()
}

// Close ends the stream.
func (s *stream) Close() error { return nil }
