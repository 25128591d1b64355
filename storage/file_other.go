//go:build !linux

package storage

import (
	"io/fs"
	"os"
	"time"
)

const openFlags = os.O_RDONLY

// uncached is what reading past the page cache needs: nothing where it is not done.
type uncached struct{}

func (*File) closeUncached() error { return nil }

// LookAgain does nothing: all is read through the page cache.
func (*File) LookAgain() {}

// readUncached reads through the page cache: there is no portable way around it.
func (s *File) readUncached(p []byte, want int, off int64) (int, error) {
	return s.file.ReadAt(p[:want], off)
}

// looker and look are for systems whose files can be asked without an allocation.
type looker struct{}

func (*File) look() (size int64, modTime time.Time, ok bool) { return 0, time.Time{}, false }

// diskOf knows of no disk.
func diskOf(fs.FileInfo) Disk { return 0 }
