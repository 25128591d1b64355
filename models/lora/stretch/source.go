// Package stretch has the factors by which DoRA stretches the rows of weights, as sources: a row of W + scale·B·A gets
// the length that the adapter says, so that its factor is that length over its own. They depend on the adapter and on
// the weight alone, so they are computed when they are first read, and kept.
//
// It knows numbers and where they lie. It does not know modules, names or who reads.
//
//	store := stretch.NewStore()
//	source, ok := store.Add(stretch.Parts{Weight: w, Down: a, Up: b, Strength: m, Scale: 2})
//	factors := storage.Extent{Source: source, Bytes: source.Size()} // float32, one for each row
package stretch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
)

// Parts are the weights that factors are computed of.
type Parts struct {
	// Weight has a row for each output, or, Turned, a column.
	Weight tensor.Weight
	Turned bool
	// Down is A, [rank inputs], Up is B, [outputs rank], Strength the lengths, [outputs].
	Down, Up, Strength tensor.Weight
	Scale              float64
}

// A Store is the sources of one model. One of them computes at a time.
type Store struct {
	token             chan struct{}
	keptBytes, atMost int64
}

// NewStore returns a store without sources.
func NewStore() *Store { return &Store{token: make(chan struct{}, 1)} }

// Bytes is the memory that all sources take together: what they keep, and what the one that computes needs meanwhile.
func (s *Store) Bytes() int64 { return s.keptBytes + s.atMost }

// mostRank bounds ranks: of higher ones the products of B's rows would cost more than those of W's.
const mostRank = 1024

// Add returns the source of the factors of some weights, false where one of them does not lie as a matrix of floats
// does, or has another shape than it must. All are to be added before the first is read.
func (s *Store) Add(p Parts) (*Source, bool) {
	ok := len(p.Up.Layout.Shape) == 2 && len(p.Down.Layout.Shape) == 2 && len(p.Strength.Layout.Shape) == 1
	if !ok {
		return nil, false
	}
	outputs, rank, inputs := p.Up.Layout.Shape[0], p.Up.Layout.Shape[1], p.Down.Layout.Shape[1]
	shape := tensor.Shape{outputs, inputs}
	if p.Turned {
		shape = tensor.Shape{inputs, outputs}
	}
	ok = plain(p.Weight, shape...) && plain(p.Down, rank, inputs) && plain(p.Up, outputs, rank) &&
		plain(p.Strength, outputs)
	if !ok || rank > mostRank || outputs == 0 || inputs == 0 || rank == 0 {
		return nil, false
	}
	source := &Source{store: s, parts: p, outputs: outputs, inputs: inputs, rank: rank}
	s.keptBytes += source.Size()
	s.atMost = max(s.atMost, source.room().bytes())
	return source, true
}

// plain reports whether a weight lies as a matrix of floats of some shape does, row by row.
func plain(w tensor.Weight, shape ...int) bool {
	switch w.DType {
	case tensor.Float16, tensor.BFloat16, tensor.Float32:
	default:
		return false
	}
	return w.Layout.Shape.Equal(shape) && w.Layout.IsContiguous() && w.Quant == nil && !w.BigEndian && !w.Conj && !w.Neg
}

// A Source has the factors of one weight, float32, one for each row.
type Source struct {
	store                 *Store
	parts                 Parts
	outputs, inputs, rank int
	kept                  atomic.Pointer[[]byte]
}

var _ storage.Guarded = (*Source)(nil)

// Size implements [storage.Source].
func (s *Source) Size() int64 { return 4 * int64(s.outputs) }

// ReadAt implements [storage.Source]. The first one computes all factors; one that fails leaves that to the next.
func (s *Source) ReadAt(ctx context.Context, p []byte, off int64) error {
	if off < 0 || off > s.Size() || int64(len(p)) > s.Size()-off {
		return fmt.Errorf("read %d bytes at %d of %d: %w", len(p), off, s.Size(), io.ErrUnexpectedEOF)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	kept := s.kept.Load()
	if kept == nil {
		select {
		case s.store.token <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
		defer func() { <-s.store.token }()
		if kept = s.kept.Load(); kept == nil { // else somebody else did while this one waited
			made, err := s.compute(ctx)
			if err != nil {
				return fmt.Errorf("row lengths of %s: %w", s.parts.Weight.Name, err)
			}
			kept = &made
			s.kept.Store(kept)
		}
	}
	copy(p, (*kept)[off:])
	return nil
}

// Unchanged implements [storage.Guarded]: what factors are computed of must be what it was.
func (s *Source) Unchanged() error {
	var all []error
	for _, w := range []*tensor.Weight{&s.parts.Weight, &s.parts.Down, &s.parts.Up, &s.parts.Strength} {
		if g, ok := w.Extent.Source.(storage.Guarded); ok {
			all = append(all, g.Unchanged())
		}
	}
	return errors.Join(all...)
}
