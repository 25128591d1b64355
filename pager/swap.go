package pager

import (
	"context"
	"errors"
	"time"

	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/storage"
)

// A scratch is where bytes wait until they are read back: a [storage.Scratch].
type scratch interface {
	Read(p []byte, off int64) error
	Write(p []byte, off int64) error
	Grow(bytes int64) error
	Bytes() int64
	Close() error
}

func newScratch(folder string, bytes int64) (scratch, error) {
	s, err := storage.NewScratch(folder, bytes)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// swapOut copies an activation to where it waits: to host memory, in the order of the stream, or from a device whose
// memory is the host's to a file.
func (g *Pager) swapOut(ctx context.Context, s plan.Swap, instance int) error {
	from := g.place(s.Value, instance)
	g.stats.SwappedOutBytes += from.Bytes
	if !g.current.plan.Target.Direct {
		return g.stream.CopyOut(g.waiting(s, instance), from)
	}
	return g.swapFile(ctx, s, instance, scratch.Write)
}

// swapIn copies it back.
func (g *Pager) swapIn(ctx context.Context, s plan.Swap, instance int) error {
	to := g.place(s.Value, instance)
	g.stats.SwappedInBytes += to.Bytes
	if !g.current.plan.Target.Direct {
		return g.stream.CopyIn(to, g.waiting(s, instance))
	}
	return g.swapFile(ctx, s, instance, scratch.Read)
}

// swapFile writes or reads an activation, once the device is done with its memory.
func (g *Pager) swapFile(
	ctx context.Context, s plan.Swap, instance int, copy func(scratch, []byte, int64) error,
) error {
	host, err := g.hostVisible()
	if err != nil {
		return err
	}
	if err := g.stream.Sync(ctx); err != nil {
		return err
	}
	begin := time.Now()
	defer func() { g.stats.SwapStall += time.Since(begin) }()
	return copy(g.file, host.HostBytes(g.place(s.Value, instance)), s.Offset+int64(instance)*s.Stride)
}

// waiting returns the host memory of an activation that waits there. The stream that copies it there brings it back.
func (g *Pager) waiting(s plan.Swap, instance int) []byte {
	return g.swaps.Bytes()[s.Offset+int64(instance)*s.Stride:][:g.current.plan.Places[s.Value].Bytes]
}

// sizeFile makes the file in which a plan's activations wait large enough, or gives it back where none is wanted.
func (g *Pager) sizeFile(p *plan.Plan) (err error) {
	if g.file != nil && p.SwapBytes > 0 && g.file.Bytes() >= p.SwapBytes {
		return nil
	}
	err = g.dropFile()
	if p.SwapBytes > 0 {
		var made error
		g.file, made = g.opts.newScratch(g.opts.SwapFolder, p.SwapBytes)
		err = errors.Join(err, made)
	}
	return err
}

func (g *Pager) dropFile() error {
	if g.file == nil {
		return nil
	}
	err := g.file.Close()
	g.file = nil
	return err
}
