package storage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync/atomic"
	"time"
	"unsafe"
)

// pieceBytes bounds one system call, so that a cancelled read returns within the time of one piece.
const pieceBytes = 8 << 20

// A File is a regular file that is read by position. It is safe for parallel use; Close fails the reads that start after
// it and lets those in flight finish.
type File struct {
	path    string
	file    *os.File
	size    int64
	modTime time.Time
	disk    Disk
	closed  atomic.Bool
	uncached
	looker
}

var (
	_ BulkSource = (*File)(nil)
	_ Guarded    = (*File)(nil)
)

// Open opens a regular file. Anything else is refused, before it is opened: a FIFO would wait for its writer, and
// a device has no size.
func Open(path string) (*File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if err := checkRegular(path, info); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, openFlags, 0)
	if err != nil {
		return nil, err
	}
	if info, err = f.Stat(); err == nil {
		err = checkRegular(path, info) // the path may name something else by now
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &File{path: path, file: f, size: info.Size(), modTime: info.ModTime(), disk: diskOf(info)}, nil
}

func checkRegular(path string, info fs.FileInfo) error {
	if info.Mode().IsRegular() {
		return nil
	}
	kind := "a special file"
	switch mode := info.Mode(); {
	case mode.IsDir():
		kind = "a directory"
	case mode&fs.ModeNamedPipe != 0:
		kind = "a named pipe"
	case mode&fs.ModeSocket != 0:
		kind = "a socket"
	case mode&fs.ModeDevice != 0:
		kind = "a device"
	}
	return &NotRegularError{path, kind}
}

// A NotRegularError says what a path names instead of a regular file.
type NotRegularError struct {
	Path string
	// Kind is "a directory", "a named pipe" or the like.
	Kind string
}

// Error names the path and what is there.
func (e *NotRegularError) Error() string { return e.Path + ": " + e.Kind + ", not a regular file" }

// Size returns the size that the file had when it was opened.
func (s *File) Size() int64 { return s.size }

// ReadAt implements [storage.Source].
func (s *File) ReadAt(ctx context.Context, p []byte, off int64) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		piece := p[:min(len(p), pieceBytes)]
		if n, err := s.file.ReadAt(piece, off); n < len(piece) {
			return s.readError(err, len(piece), off)
		}
		if p = p[len(piece):]; len(p) == 0 {
			return nil
		}
		off += int64(len(piece))
	}
}

// ReadBulk implements [tensor.BulkSource].
func (s *File) ReadBulk(ctx context.Context, p []byte, off int64) error {
	address := uintptr(unsafe.Pointer(unsafe.SliceData(p)))
	if off < 0 || (off|int64(len(p))|int64(address))%AlignBytes != 0 {
		return s.readError(errors.New("offset, length and buffer of a bulk read must be aligned to 4096"), len(p), off)
	}
	for len(p) > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		piece := p[:min(len(p), pieceBytes)]
		want := int(min(int64(len(piece)), s.size-off))
		if want == 0 {
			return nil
		}
		if want < 0 {
			return s.readError(io.EOF, len(piece), off)
		}
		if n, err := s.readUncached(piece, want, off); n < want {
			return s.readError(err, want, off)
		}
		p = p[len(piece):]
		off += int64(len(piece))
	}
	return nil
}

// readError names the file and the place, and tells a file that was truncated under us from one that was always short.
func (s *File) readError(err error, n int, off int64) error {
	if err == nil || errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
		if info, statErr := s.file.Stat(); statErr == nil && info.Size() < s.size {
			err = fmt.Errorf(
				"the file has shrunk from %d to %d bytes since it was opened: %w", s.size, info.Size(), err,
			)
		}
	}
	var inner *fs.PathError
	if errors.As(err, &inner) {
		err = inner.Err
	}
	return &fs.PathError{Op: fmt.Sprintf("read %d bytes at %d of", n, off), Path: s.path, Err: err}
}

// Unchanged implements [storage.Guarded]: the file has the size and the modification time that it was opened with.
func (s *File) Unchanged() error {
	left, modTime, ok := s.look()
	if !ok {
		info, err := s.file.Stat()
		if err != nil {
			return err
		}
		left, modTime = info.Size(), info.ModTime()
	}
	if left == s.size && modTime.Equal(s.modTime) {
		return nil
	}
	why := fmt.Errorf("the file %w", ErrChanged)
	if left < s.size {
		why = fmt.Errorf("%w: %d bytes are left of %d: %w", why, left, s.size, io.ErrUnexpectedEOF)
	}
	return &fs.PathError{Op: "read", Path: s.path, Err: why}
}

// Close closes the file. A second Close returns nil.
func (s *File) Close() error {
	s.closed.Store(true)
	err := errors.Join(s.file.Close(), s.closeUncached())
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}
