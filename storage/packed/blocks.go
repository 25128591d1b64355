package packed

import (
	"encoding/binary"
	"fmt"
	"iter"
	"math/bits"

	"github.com/optimem/optimem/storage"
)

var _ storage.BlockSource = (*Source)(nil)

// File implements [storage.BlockSource].
func (s *Source) File() storage.Source { return s.raw }

// Blocks implements [storage.BlockSource].
func (s *Source) Blocks(off, n int64) iter.Seq[storage.Block] {
	return func(yield func(storage.Block) bool) {
		for b := range s.blocks(off, n) {
			if !yield(storage.Block{
				Number: b.i, Offset: b.off(), Bytes: b.end() - b.off(), At: b.at(), Stored: b.stored(),
			}) {
				return
			}
		}
	}
}

// CheckBlock implements [storage.BlockSource].
func (s *Source) CheckBlock(of storage.Block, stored []byte) error {
	for b := range s.blocks(of.Offset, 1) {
		if b.i != of.Number || int64(len(stored)) != b.stored() {
			break
		}
		if err := s.check(b.i, stored); err != nil {
			return b.explain(err)
		}
		if err := decodes(stored, int(of.Bytes)); err != nil {
			return b.explain(err)
		}
		return nil
	}
	return fmt.Errorf("BUG: %d bytes are no block %d", len(stored), of.Number)
}

// decodes returns the error that decode would return.
func decodes(stored []byte, n int) error {
	if stored[0] == asIs {
		if len(stored)-1 != n {
			return corrupt("%d bytes as they are, for %d", len(stored)-1, n)
		}
		return nil
	}
	b, err := split(stored, n)
	switch {
	case err != nil:
		return err
	case b.groups == 0 && len(b.escapes) > 0:
		return corrupt("%d exponents of no numbers", len(b.escapes))
	case len(b.escapes) > 0 && b.elsewhere() != len(b.escapes):
		return corrupt("the codes do not name the %d exponents that are elsewhere", len(b.escapes))
	}
	return nil
}

// elsewhere counts the exponents that codes say to be elsewhere.
func (b *parts) elsewhere() (n int) {
	step := b.planeWords() * 8
	for g := range b.groups {
		all := ^uint64(0)
		for k := range b.bits {
			all &= binary.LittleEndian.Uint64(b.planes[g*step+8*k:])
		}
		n += bits.OnesCount64(all)
	}
	return n
}
