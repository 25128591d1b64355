//go:build !files

package running

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// dropCached makes the page cache forget a file, as far as it was written to the disk.
func dropCached(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED), f.Close())
}
