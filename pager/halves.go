package pager

import (
	"context"

	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/pager/fetch"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/storage"
)

// stagedReadBytes is how much a read into staging memory takes at most, so that several are under way for each half.
const stagedReadBytes = 1 << 20

// Halves bring weights through host memory of two halves: one is filled while the device copies from the other.
type halves struct {
	g      *Pager
	plan   *plan.Plan
	memory device.Memory
	runs   []plan.Run
	parts  []plan.Part
	// halves are filled in turn, each once the copies from it, which copied marks, are done. now is the one being
	// filled, of which used bytes are spoken for.
	halves [2][]byte
	copied [2]device.Event
	now    int
	used   int64
	// requests are the reads that fill it, pieces what they bring.
	requests []storage.Request
	pieces   []stagedPiece
	read     int64
}

// A stagedPiece is a run of bytes of reads, and where it is in a half.
type stagedPiece struct{ staged, bytes, at int64 }

// stageParts brings parts to the device's memory through the given host memory, and returns how many bytes were read.
// After an error what was given to the device has to be waited for before that memory is given back.
func (g *Pager) stageParts(
	ctx context.Context, p *plan.Plan, list []plan.Span, parts []plan.Part, memory device.Memory, stage []byte,
) (read int64, err error) {
	h := &halves{g: g, plan: p, memory: memory, parts: parts, runs: plan.Runs(parts, p.Target.AlignBytes)}
	half := max(int64(len(stage))/2/storage.AlignBytes*storage.AlignBytes, storage.AlignBytes)
	h.halves[0] = stage[:half]
	if h.halves[1] = stage[half:]; int64(len(h.halves[1])) < storage.AlignBytes {
		h.halves[1] = h.halves[0] // there is one
	}
	for _, span := range list {
		for at := int64(0); at < span.Extent.Bytes; {
			room := int64(len(h.halves[h.now])) - h.used
			if room = room / storage.AlignBytes * storage.AlignBytes; room == 0 {
				if err := h.flush(ctx); err != nil {
					return h.read, err
				}
				continue
			}
			n := min(room, span.Extent.Bytes-at)
			h.add(span, at, n)
			at += n
		}
	}
	if err := h.flush(ctx); err != nil {
		return h.read, err
	}
	return h.read, g.stream.Sync(ctx)
}

// add has a part of a span read to where the half is free.
func (h *halves) add(span plan.Span, at, n int64) {
	h.pieces = append(h.pieces, stagedPiece{span.Offset + at, n, h.used})
	for from := int64(0); from < n; from += stagedReadBytes {
		e := span.Extent
		e.Offset, e.Bytes = e.Offset+at+from, min(stagedReadBytes, n-from)
		h.requests = append(h.requests, storage.Request{Extent: e, Into: h.halves[h.now][h.used+from:][:e.Bytes]})
	}
	h.used = plan.AlignUp(h.used+n, storage.AlignBytes)
}

// flush fills the half, gives the copies from there to the device, and goes on to the other.
func (h *halves) flush(ctx context.Context) error {
	if len(h.requests) == 0 {
		return nil
	}
	if e := h.copied[h.now]; e != nil {
		if err := e.Sync(ctx); err != nil { // what it holds is still copied
			return err
		}
	}
	readers := fetch.Copiers(h.g.opts.Readers, h.g.opts.copiers, func(yield func(storage.Extent) bool) {
		for i := range h.requests {
			if !yield(h.requests[i].Extent) {
				return
			}
		}
	})
	if err := storage.Read(ctx, readers, h.requests...); err != nil {
		return err
	}
	for i := range h.requests {
		h.read += h.requests[i].Extent.StoredBytes()
	}
	for _, piece := range h.pieces {
		if err := h.copy(piece); err != nil {
			return err
		}
	}
	e := h.g.stream.Record()
	if h.copied[h.now] = e; &h.halves[0][0] != &h.halves[1][0] {
		h.now = 1 - h.now
	}
	h.used, h.requests, h.pieces = 0, h.requests[:0], h.pieces[:0]
	return nil
}

// copy gives the copies of what a piece has of parts to the device.
func (h *halves) copy(piece stagedPiece) error {
	end := piece.staged + piece.bytes
	for i := range h.runs {
		r := &h.runs[i]
		low, high := max(r.Staged, piece.staged), min(r.Staged+r.Bytes, end)
		if low >= high {
			continue
		}
		to := device.Region{Memory: h.memory, Offset: r.Offset + low - r.Staged, Bytes: high - low}
		from := h.halves[h.now][piece.at+low-piece.staged:][:high-low]
		if err := h.g.stream.CopyIn(to, from); err != nil {
			name := h.plan.Lowered.Graph.Values[h.parts[r.First].Value].Weight.Name
			return located(err, module(name), "load")
		}
	}
	return nil
}
