//go:build !linux

package loader

import (
	"os"
	"time"
)

const openFlags = os.O_RDONLY

// uncached is what reading past the page cache needs: nothing where it is not done.
type uncached struct{}

func (*fileSource) closeUncached() error { return nil }

// readUncached reads through the page cache: there is no portable way around it.
func (s *fileSource) readUncached(p []byte, want int, off int64) (int, error) {
	return s.file.ReadAt(p[:want], off)
}

// looker and look are for systems whose files can be asked without an allocation.
type looker struct{}

func (*fileSource) look() (size int64, modTime time.Time, ok bool) { return 0, time.Time{}, false }
