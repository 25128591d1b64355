package cells

import (
	"fmt"

	"github.com/optimem/optimem/graph"
)

// maxReadBytes bounds a weight that is read while a graph is built: a number for each of some thousand channels.
const maxReadBytes = 16 << 10

// Zeros reports whether all memory behind a tensor is known to be zero bytes: that of a constant, or of a small weight
// where the builder may read those. What the program has written to is not known.
func (b *Builder) Zeros(r *Ref) (bool, error) {
	id := r.cell.value
	v := &b.Graph.Values[id]
	switch {
	case v.Role == graph.Const:
		return allZero(v.Const), nil
	case v.Role != graph.Weight || !b.Reads || v.Weight.Extent.Bytes > maxReadBytes:
		return false, nil
	}
	if zero, ok := b.known[id]; ok {
		return zero, nil
	}
	data := make([]byte, v.Weight.Extent.Bytes)
	if err := v.Weight.Extent.ReadAt(b.Ctx, data, 0); err != nil {
		return false, fmt.Errorf("%s: %w", v.Weight.Name, err)
	}
	if b.known == nil {
		b.known = make(map[graph.ValueID]bool)
	}
	b.known[id] = allZero(data)
	return b.known[id], nil
}

// ChangesKnown reports whether a pass changes a weight that was read.
func (b *Builder) ChangesKnown() bool {
	for id := range b.known {
		if b.Graph.Values[id].Role == graph.State {
			return true
		}
	}
	return false
}

func allZero(data []byte) bool {
	for _, x := range data {
		if x != 0 {
			return false
		}
	}
	return true
}
