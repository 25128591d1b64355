package pager

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/hostmem"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/storage"
)

// packFixed makes the weights that stay in forms of the device's own, in the arena for what stays, as some packings do,
// and returns how many bytes were read for them.
func (g *Pager) packFixed(ctx context.Context, p *plan.Plan, packings []plan.Packing) (read int64, err error) {
	f := &p.Fixed
	if len(packings) == 0 {
		return 0, nil
	}
	packer, ok := g.stream.(device.Packer)
	if !ok {
		return 0, fmt.Errorf("BUG: the plan packs weights, which %s cannot", g.dev.Name())
	}
	raw, err := g.dev.Alloc(f.PackingBytes)
	if err != nil {
		return 0, err
	}
	g.stats.PeakBytes = max(g.stats.PeakBytes, g.Held().Total()+raw.Bytes())
	defer func() { err = errors.Join(err, raw.Free()) }()
	bring, stop, err := g.rawBringer(ctx, p, packings, raw)
	if err != nil {
		return 0, err
	}
	defer stop()
	defer g.quiesce() // after an error, it may still work there
	for k := range packings {
		n, err := bring(k)
		if read += n; err != nil {
			return read, err
		}
		for i := range packings[k].Pieces {
			if err := g.packPiece(ctx, packer, p, &packings[k].Pieces[i], raw); err != nil {
				c := &f.Packed[packings[k].Pieces[i].Of]
				return read, located(err, module(p.Lowered.Graph.Values[c.Operand.Value].Weight.Name), "pack")
			}
		}
	}
	return read, g.stream.Sync(ctx)
}

// packPiece packs one piece, whose raw bytes are there.
func (g *Pager) packPiece(
	ctx context.Context, packer device.Packer, p *plan.Plan, piece *plan.Piece, raw device.Memory,
) error {
	c, graph := &p.Fixed.Packed[piece.Of], p.Lowered.Graph
	pack := c.Pack
	pack.Bytes = piece.Bytes
	src := device.Argument{
		Region:  device.Region{Memory: raw, Offset: piece.Part.Offset, Bytes: piece.Part.High - piece.Part.Low},
		Operand: piece.Operand, Spec: graph.Spec(piece.Operand),
	}
	src.Operand.Layout.Offset -= int(piece.Part.Low) / graph.Values[c.Operand.Value].DType.Size()
	dst := device.Region{Memory: g.fixed, Offset: piece.Offset, Bytes: piece.Bytes}
	return packer.Pack(ctx, &graph.Ops[c.Op], pack, src, dst)
}

// rawBringer returns a function that brings the raw bytes of one packing after another, and one that ends it. Where the
// host can write to the device's memory, the next packing's are read while the device packs, if they lie elsewhere.
func (g *Pager) rawBringer(
	ctx context.Context, p *plan.Plan, all []plan.Packing, raw device.Memory,
) (bring func(k int) (int64, error), stop func(), err error) {
	if !p.Target.Direct {
		buf, err := g.AllocHost(max(p.StagingBytes, storage.AlignBytes), hostmem.Staging)
		if err != nil {
			return nil, nil, err
		}
		return func(k int) (int64, error) {
			parts := make([]plan.Part, len(all[k].Pieces))
			for i := range parts {
				parts[i] = all[k].Pieces[i].Part
			}
			return g.stageParts(ctx, p, all[k].Spans, parts, raw, buf.Bytes())
		}, buf.Free, nil
	}
	host, err := g.hostVisible()
	if err != nil {
		return nil, nil, err
	}
	type result struct {
		bytes int64
		err   error
	}
	ctx, cancel := context.WithCancel(ctx)
	read := func(k int) result {
		requests, bytes := requestsOf(host, raw, all[k].Spans)
		return result{bytes, storage.Read(ctx, g.opts.Readers, requests...)}
	}
	var next chan result
	return func(k int) (int64, error) {
			var now result
			if next != nil {
				now, next = <-next, nil
			} else {
				now = read(k)
			}
			if now.err == nil && k+1 < len(all) && apart(all[k].Spans, all[k+1].Spans) {
				next = make(chan result, 1)
				go func(to chan<- result) { to <- read(k + 1) }(next)
			}
			return now.bytes, now.err
		}, func() {
			cancel()
			if next != nil {
				<-next
			}
		}, nil
}

// requestsOf returns the reads that bring spans to the device's memory, and how many bytes they are.
func requestsOf(host HostVisible, to device.Memory, list []plan.Span) (requests []storage.Request, bytes int64) {
	for _, s := range list {
		into := host.HostBytes(device.Region{Memory: to, Offset: s.Offset, Bytes: s.Extent.Bytes})
		requests = append(requests, storage.Request{Extent: s.Extent, Into: into})
		bytes += s.Extent.StoredBytes()
	}
	return requests, bytes
}

// apart reports whether two lists of reads have no bytes of memory in common.
func apart(a, b []plan.Span) bool {
	return !slices.ContainsFunc(a, func(s plan.Span) bool {
		return slices.ContainsFunc(b, func(t plan.Span) bool {
			return s.Offset < t.Offset+t.Extent.Bytes && t.Offset < s.Offset+s.Extent.Bytes
		})
	})
}

// packedOperand returns what stays of an op's operand in a form of the device's own.
func (p *program) packedOperand(o graph.Operand, step *graph.Step, in int) (*plan.Packed, bool) {
	for _, c := range p.packed[o.Value] {
		l := c.Operand.Layout
		if l.Offset == o.Layout.Offset && slices.Equal(l.Shape, o.Layout.Shape) && slices.Equal(l.Strides, o.Layout.Strides) {
			return c, !c.Copy || c.TakenBy(step, in)
		}
	}
	return nil, false
}
