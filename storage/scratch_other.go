//go:build !linux

package storage

import "os"

// reserve makes a file as large as it is to be: there is no portable way to take the disk's blocks.
func reserve(file *os.File, bytes int64) error { return file.Truncate(bytes) }
