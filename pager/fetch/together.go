package fetch

import (
	"context"

	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/storage"
)

// A Gathering is one read that brings several spans.
type Gathering struct {
	// Reads has the read.
	Reads []storage.Request
	// Decode makes the spans' bytes of what was read.
	Decode func(ctx context.Context) error
}

// Together returns the one read that brings blocks of a packed file for all spans to memory, where they are decoded in
// place; false where there is more to read, or no packed file.
func Together(list []plan.Span, into []byte) (g Gathering, ok bool) {
	if len(list) == 0 {
		return g, false
	}
	source, ok := list[0].Extent.Source.(storage.InPlaceSource)
	if !ok {
		return g, false
	}
	parts := make([]storage.Part, len(list))
	for i, s := range list {
		if s.Extent.Source != storage.Source(source) {
			return g, false
		}
		parts[i] = storage.Part{Offset: s.Extent.Offset, Bytes: s.Extent.Bytes, At: s.Offset}
	}
	blocks, at, ok := source.InPlace(into, parts)
	if !ok {
		return g, false
	}
	g.Reads = []storage.Request{{Extent: blocks, Into: into[at:][:blocks.Bytes]}}
	g.Decode = func(ctx context.Context) error {
		if err := source.Decode(ctx, into, parts); err != nil {
			return &storage.ReadError{Extent: list[0].Extent, Err: err}
		}
		return nil
	}
	return g, true
}
