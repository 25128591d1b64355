package packed

import (
	"context"
	"fmt"

	"github.com/optimem/optimem/storage"
)

// ReadStored implements [storage.KeepingSource].
func (s *Source) ReadStored(ctx context.Context, p []byte, off, n int64) error {
	if have := s.StoredBytes(off, n); int64(len(p)) != have {
		return fmt.Errorf("BUG: room for %d bytes of blocks that take %d", len(p), have)
	}
	return s.each(ctx, off, n, true, func(_ block, stored []byte, _ *buffer) error {
		p = p[copy(p, stored):]
		return nil
	})
}

// A keptRun is bytes of the file and where in memory they are.
type keptRun struct{ at, bytes, place int64 }

// A keptSource is a source some of whose blocks are in memory.
type keptSource struct{ *Source }

// Kept implements [storage.KeepingSource].
func (s *Source) Kept(p []byte, off, n int64) storage.PackedSource {
	k := *s
	k.kept, k.keptRuns = p, nil
	place := int64(0)
	for at, bytes := range s.inFile(off, n) {
		k.keptRuns = append(k.keptRuns, keptRun{at, bytes, place})
		place += bytes
	}
	return keptSource{&k}
}

// StoredBytes implements [storage.StoredSource]: nothing is read of the file.
func (keptSource) StoredBytes(int64, int64) int64 { return 0 }

// CachedBytes implements [storage.CachedSource].
func (keptSource) CachedBytes(int64, int64) (int64, bool) { return 0, false }

// Unchanged implements [storage.Guarded]: whatever becomes of the file, the blocks stay as they were checked.
func (keptSource) Unchanged() error { return nil }
