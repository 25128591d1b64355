package storage

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// reserve takes the disk's blocks for a file.
func reserve(file *os.File, bytes int64) error {
	if bytes == 0 {
		return nil
	}
	err := unix.Fallocate(int(file.Fd()), 0, 0, bytes)
	for errors.Is(err, unix.EINTR) {
		err = unix.Fallocate(int(file.Fd()), 0, 0, bytes)
	}
	if errors.Is(err, unix.EOPNOTSUPP) {
		return file.Truncate(bytes)
	}
	return err
}
