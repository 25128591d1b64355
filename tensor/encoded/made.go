package encoded

import (
	"context"
	"fmt"
	"io"
	"sort"
	"sync"

	"github.com/optimem/optimem/storage"
)

// A Matrix is a weight whose rows are made of other tensors of a checkpoint, a few rows at a time.
type Matrix struct {
	Rows, RowBytes int64
	// Parts are what it is made of.
	Parts []storage.Extent
	// SlabRows is how many rows are made at once at most.
	SlabRows int64
	// Fill makes rows [first, first+n), n at most SlabRows. p holds anything.
	Fill func(ctx context.Context, first, n int64, p []byte) error
}

// storedBytes is what all rows take in files.
func (m *Matrix) storedBytes() int64 {
	var n int64
	for _, e := range m.Parts {
		n += e.StoredBytes()
	}
	return n
}

// A Made source has matrices, one behind the other. Nothing of what it makes is kept. It may be used from several goroutines.
type Made struct {
	matrices []Matrix
	at       []int64
	size     int64
}

var (
	_ storage.StoredSource = (*Made)(nil)
	_ storage.Guarded      = (*Made)(nil)
)

// Make returns the source of matrices, and at which offset of it each begins.
func Make(matrices []Matrix) (*Made, []int64) {
	s := &Made{matrices: matrices}
	for _, m := range matrices {
		s.at = append(s.at, s.size)
		s.size += (m.Rows*m.RowBytes + alignBytes - 1) / alignBytes * alignBytes
	}
	return s, s.at
}

// Size implements [storage.Source].
func (s *Made) Size() int64 { return s.size }

// Unchanged implements [storage.Guarded].
func (s *Made) Unchanged() error {
	seen := make(map[storage.Source]bool)
	for _, m := range s.matrices {
		for _, e := range m.Parts {
			guarded, ok := e.Source.(storage.Guarded)
			if !ok || seen[e.Source] {
				continue
			}
			seen[e.Source] = true
			if err := guarded.Unchanged(); err != nil {
				return err
			}
		}
	}
	return nil
}

// StoredBytes implements [storage.StoredSource]: the share of rows of what a matrix is made of.
func (s *Made) StoredBytes(off, n int64) int64 {
	total := int64(0)
	_ = s.each(off, n, func(m *Matrix, from, to int64) error {
		whole := m.Rows * m.RowBytes
		total += int64(float64(m.storedBytes()) * (float64(to-from) / float64(whole)))
		return nil
	})
	return total
}

// each calls do with the matrices of which there is something in a range, and with that part of them.
func (s *Made) each(off, n int64, do func(m *Matrix, from, to int64) error) error {
	first := sort.Search(len(s.at), func(i int) bool { return s.at[i]+s.matrices[i].Rows*s.matrices[i].RowBytes > off })
	for i := first; i < len(s.at) && s.at[i] < off+n; i++ {
		m := &s.matrices[i]
		from, to := max(off-s.at[i], 0), min(off+n-s.at[i], m.Rows*m.RowBytes)
		if from >= to {
			continue
		}
		if err := do(m, from, to); err != nil {
			return err
		}
	}
	return nil
}

// rowsOf keeps room for single rows.
var rowsOf = sync.Pool{New: func() any { return new([]byte) }}

// ReadAt implements [storage.Source].
func (s *Made) ReadAt(ctx context.Context, p []byte, off int64) error {
	n := int64(len(p))
	if off < 0 || off > s.size || n > s.size-off {
		return fmt.Errorf("read %d bytes at %d of %d made ones: %w", n, off, s.size, io.ErrUnexpectedEOF)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	end := off // up to where p is filled
	first := sort.Search(len(s.at), func(i int) bool { return s.at[i] > off }) - 1
	err := s.each(off, n, func(m *Matrix, from, to int64) error {
		i := max(first, 0)
		for &s.matrices[i] != m {
			i++
		}
		at := s.at[i]
		clear(p[end-off : at+from-off]) // between two matrices
		end = at + to
		return m.read(ctx, p[at+from-off:end-off], from)
	})
	clear(p[end-off:])
	return err
}

// read fills p with bytes from an offset of a matrix on.
func (m *Matrix) read(ctx context.Context, p []byte, from int64) error {
	for len(p) > 0 {
		row, skip := from/m.RowBytes, from%m.RowBytes
		n := min(int64(len(p))/m.RowBytes, max(m.SlabRows, 1))
		if skip == 0 && n > 0 {
			if err := m.Fill(ctx, row, n, p[:n*m.RowBytes]); err != nil {
				return err
			}
			p, from = p[n*m.RowBytes:], from+n*m.RowBytes
			continue
		}
		room := rowsOf.Get().(*[]byte)
		if int64(cap(*room)) < m.RowBytes {
			*room = make([]byte, m.RowBytes)
		}
		one := (*room)[:m.RowBytes]
		err := m.Fill(ctx, row, 1, one)
		k := int64(copy(p, one[skip:]))
		rowsOf.Put(room)
		if err != nil {
			return err
		}
		p, from = p[k:], from+k
	}
	return nil
}
