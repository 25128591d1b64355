package loader

import (
	"errors"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// openFlags: without O_NONBLOCK, a path that became a FIFO after it was looked at would wait for its writer. Reads of
// regular files ignore the flag.
const openFlags = os.O_RDONLY | unix.O_NONBLOCK

// uncached holds the second descriptor of a file, which reads past the page cache. It is opened at the first need and
// absent where the file system refuses it.
type uncached struct {
	once   sync.Once
	direct *os.File
}

// openDirect opens the file again with O_DIRECT. By its path, so a file that was renamed or replaced since has no
// direct descriptor and is read through the cache.
func (s *fileSource) openDirect() {
	f, err := os.OpenFile(s.path, openFlags|unix.O_DIRECT, 0)
	if err != nil {
		return
	}
	a, errA := s.file.Stat()
	b, errB := f.Stat()
	if errA != nil || errB != nil || !os.SameFile(a, b) {
		f.Close()
		return
	}
	s.direct = f
}

func (s *fileSource) closeUncached() error {
	s.once.Do(func() {}) // none is opened from now on, and the field is safe to read
	if s.direct == nil {
		return nil
	}
	return s.direct.Close()
}

// readUncached reads the first want bytes of p, and up to len(p) where the file goes on. p and off are aligned. What
// the page cache holds is copied from there; the rest goes past it, or through it and out again, so that streaming a
// file larger than memory does not push everything else out.
func (s *fileSource) readUncached(p []byte, want int, off int64) (int, error) {
	n, err := s.readCached(p[:want], off)
	if n == want || err != nil {
		return n, err
	}
	done := n &^ (alignBytes - 1)
	s.once.Do(s.openDirect)
	if s.direct != nil {
		n, err := s.direct.ReadAt(p[done:], off+int64(done))
		if done+n >= want || !refused(err) {
			return done + n, err
		}
	}
	n, err = s.file.ReadAt(p[done:want], off+int64(done))
	_ = s.control(func(fd int) error { return unix.Fadvise(fd, off+int64(done), int64(n), unix.FADV_DONTNEED) })
	return done + n, err
}

// refused reports whether err says that the file system or the disk does not do what was asked, rather than that it
// failed.
func refused(err error) bool {
	return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOTSUP)
}

// readCached copies what the page cache holds from off on, without waiting for the disk.
func (s *fileSource) readCached(p []byte, off int64) (int, error) {
	done := 0
	err := s.control(func(fd int) error {
		for done < len(p) {
			n, err := unix.Preadv2(fd, [][]byte{p[done:]}, off+int64(done), unix.RWF_NOWAIT)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if err != nil {
				return err
			}
			if n == 0 {
				return io.EOF
			}
			done += n
		}
		return nil
	})
	if errors.Is(err, unix.EAGAIN) || refused(err) || errors.Is(err, unix.ENOSYS) {
		err = nil
	}
	return done, err
}

// control calls f with the descriptor, which cannot be closed and reused meanwhile. (RawConn.Read would do as well but
// admits one reader at a time.)
func (s *fileSource) control(f func(fd int) error) error {
	raw, err := s.file.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	if err := raw.Control(func(fd uintptr) { inner = f(int(fd)) }); err != nil {
		return os.ErrClosed // package os says so in every other call; here its internal error comes through
	}
	return inner
}
