package storage

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// A Scratch is a file without a name: memory beside memory, for bytes that wait until they are read back. Nobody else sees
// it, and it is gone with the process, however that ends. Writes go through the page cache, which the system may give back
// once they are on the disk. Reads and writes of other bytes may go on at once; else one goroutine at a time uses it.
type Scratch struct {
	file  *os.File
	bytes int64
	// name is the file's where it could not be taken away.
	name string
}

// A ScratchError says why bytes cannot wait in a folder.
type ScratchError struct {
	Folder string
	// Bytes is how many there were to be.
	Bytes int64
	Err   error
}

// Error names the folder and says how much there was to be.
func (e *ScratchError) Error() string {
	return fmt.Sprintf("%d bytes of a file in %s: %v", e.Bytes, e.Folder, e.Err)
}

// Unwrap returns the cause, such as ENOSPC.
func (e *ScratchError) Unwrap() error { return e.Err }

// NewScratch makes one of so many bytes. The disk's blocks are taken at once, where the file system can do that, so that
// it is full now and not later. The caller closes it.
func NewScratch(folder string, bytes int64) (*Scratch, error) {
	if folder == "" {
		return nil, &ScratchError{folder, bytes, errors.New("no folder is given")}
	}
	file, err := os.CreateTemp(folder, ".optimem-*")
	if err != nil {
		return nil, &ScratchError{folder, bytes, err}
	}
	s := &Scratch{file: file, bytes: bytes}
	if os.Remove(file.Name()) != nil { // the system does not take the name of an open file away
		s.name = file.Name()
	}
	if err := reserve(file, bytes); err != nil {
		return nil, &ScratchError{folder, bytes, errors.Join(err, s.Close())}
	}
	return s, nil
}

// Grow gives it more bytes, of which the disk's blocks are taken at once, too. Where that cannot be it is as it was.
func (s *Scratch) Grow(bytes int64) error {
	if bytes <= s.bytes {
		return nil
	}
	if err := reserve(s.file, bytes); err != nil {
		return &ScratchError{filepath.Dir(s.file.Name()), bytes, err}
	}
	s.bytes = bytes
	return nil
}

// Bytes is how many it has.
func (s *Scratch) Bytes() int64 { return s.bytes }

// Write puts p at an offset.
func (s *Scratch) Write(p []byte, off int64) error {
	if err := s.check(p, off); err != nil {
		return err
	}
	_, err := s.file.WriteAt(p, off)
	return err
}

// Read fills p from an offset.
func (s *Scratch) Read(p []byte, off int64) error {
	if err := s.check(p, off); err != nil {
		return err
	}
	_, err := s.file.ReadAt(p, off)
	return err
}

func (s *Scratch) check(p []byte, off int64) error {
	if n := int64(len(p)); off < 0 || off > s.bytes-n {
		return fmt.Errorf("%d bytes at %d of a file of %d", n, off, s.bytes)
	}
	return nil
}

// Close gives the disk its room back.
func (s *Scratch) Close() error {
	err := s.file.Close()
	if s.name != "" {
		err = errors.Join(err, os.Remove(s.name))
	}
	return err
}
