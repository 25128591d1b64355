package storage

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/optimem/optimem/internal/hostmem"
)

// openFlags: without O_NONBLOCK, a path that became a FIFO after it was looked at would wait for its writer. Reads of
// regular files ignore the flag.
const openFlags = os.O_RDONLY | unix.O_NONBLOCK

// uncached holds what reading past the page cache needs. It is set up at the first bulk read.
type uncached struct {
	once sync.Once
	// second is another descriptor of the file: with O_DIRECT where the file system takes it, else one that never
	// reads ahead. It is nil where there is no /proc to open the same file again.
	second *os.File
	direct bool
	// probes is set where the kernel does not tell what it holds of the file, so that reads have to find out.
	probes atomic.Bool
	known  known
}

// known is what the page cache held lately: of pieces of knownBytes, and of those parts of pieces held in part that reads
// asked for.
type known struct {
	mu    sync.Mutex
	found map[fileRange]finding
}

// A fileRange is bytes [from, to) of a file.
type fileRange struct{ from, to int64 }

// A finding is how much of a range the page cache held, and when.
type finding struct {
	held residency
	when time.Time
}

// mostFindings is how many findings a file keeps; after that it begins anew.
const mostFindings = 8192

// knownBytes is the size of the pieces of which it is asked whether the page cache holds them.
const knownBytes = 1 << 20

// knownTime is for how long the page cache is taken to hold what it held, and nothing else. Where it let something go, what
// is read of that meanwhile comes through the page cache, and stays there; what it got is read past it.
const knownTime = time.Second

// A looker asks what the file is now. It keeps what that takes, which os.File.Stat allocates with every call.
type looker struct {
	mu   sync.Mutex
	conn syscall.RawConn
	ask  func(fd uintptr)
	stat unix.Stat_t
	err  error
}

// look returns the file's size and modification time. It allocates nothing after the first call.
func (s *File) look() (size int64, modTime time.Time, ok bool) {
	l := &s.looker
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn == nil {
		var err error
		if l.conn, err = s.file.SyscallConn(); err != nil {
			return 0, time.Time{}, false
		}
		l.ask = func(fd uintptr) { l.err = unix.Fstat(int(fd), &l.stat) }
	}
	if l.conn.Control(l.ask) != nil || l.err != nil {
		return 0, time.Time{}, false
	}
	return l.stat.Size, time.Unix(l.stat.Mtim.Unix()), true
}

// openUncached opens the file again, by its descriptor: its path may name another file by now.
func (s *File) openUncached() {
	_ = s.control(func(fd int) error {
		again := descriptorPath(fd)
		if s.second = openDirect(again); s.second != nil {
			s.direct = true
		} else {
			s.second = openRandom(again)
		}
		// An overlay's own inodes hold no pages: those of the layer below do, which cachestat does not see.
		var on unix.Statfs_t
		s.probes.Store(unix.Fstatfs(fd, &on) == nil && on.Type == unix.OVERLAYFS_SUPER_MAGIC)
		return nil
	})
}

// descriptorPath names the file that a descriptor has open.
func descriptorPath(fd int) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }

// openDirect opens a file with O_DIRECT and reads from it, since some file systems take the flag and then refuse to
// read. It returns nil where either fails.
func openDirect(path string) *os.File {
	f, err := os.OpenFile(path, openFlags|unix.O_DIRECT, 0)
	if err != nil {
		return nil
	}
	buf, err := hostmem.Alloc(AlignBytes, hostmem.Staging)
	if err == nil {
		defer buf.Free()
		if _, err = f.ReadAt(buf.Bytes(), 0); err == nil || errors.Is(err, io.EOF) {
			return f
		}
	}
	f.Close()
	return nil
}

// openRandom opens a file without reading ahead: of what is read ahead nobody would know that it may be dropped.
func openRandom(path string) *os.File {
	f, err := os.OpenFile(path, openFlags, 0)
	if err != nil {
		return nil
	}
	_ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_RANDOM)
	return f
}

func (s *File) closeUncached() error {
	s.once.Do(func() {}) // none is opened from now on, and the field is safe to read
	if s.second == nil {
		return nil
	}
	return s.second.Close()
}

// readUncached reads the first want bytes of p, and up to len(p) where the file goes on. p and off are aligned. What
// the page cache holds is copied from there; the rest goes past it, or through it and out again, so that streaming a
// file larger than memory does not push everything else out.
func (s *File) readUncached(p []byte, want int, off int64) (int, error) {
	s.once.Do(s.openUncached)
	held := not
	_ = s.control(func(fd int) error { held = s.source(fd, off, want); return nil })
	if half := want / 2 &^ (AlignBytes - 1); held == partly && half >= splitBytes {
		n, err := s.readUncached(p[:half], half, off)
		if n < half {
			return n, err
		}
		n, err = s.readUncached(p[half:], want-half, off+int64(half))
		return half + n, err
	}
	if held == wholly || s.second == nil {
		return s.file.ReadAt(p[:want], off)
	}
	if !s.direct {
		n, err := s.second.ReadAt(p[:want], off)
		s.drop(off, want)
		return n, err
	}
	n, err := s.second.ReadAt(p, off)
	if s.probes.Load() {
		last := (want - 1) &^ (AlignBytes - 1)
		s.drop(off+int64(last), AlignBytes) // the page that the probe brought in
	}
	return n, err
}

// drop asks the kernel to forget a range. Nothing depends on its doing so.
func (s *File) drop(off int64, n int) {
	_ = s.control(func(fd int) error { return unix.Fadvise(fd, off, int64(n), unix.FADV_DONTNEED) })
}

// residency is how much of a range the page cache holds.
type residency int

const (
	not residency = iota
	partly
	wholly
)

// splitBytes is the length from which a partly cached range is not looked at more closely.
const splitBytes = 256 << 10

// aheadBytes is more than kernels read ahead of a read at once.
const aheadBytes = 16 << 20

// source says where a range is to be read from, as residency does. A read through the page cache that ends close to what
// is not held would bring some of that in, which the next would find held, and so on through the file: such a range counts
// as not held.
func (s *File) source(fd int, off int64, n int) residency {
	if !s.probes.Load() {
		next := off + int64(n)
		held := s.holds(fd, off, next)
		if held == wholly && s.holds(fd, next, min(s.size, next+aheadBytes)) != wholly {
			held = not
		}
		if !s.probes.Load() {
			return held
		}
	}
	return probe(fd, off, n)
}

// holds returns how much of a range the page cache holds, or did lately; wholly where the range is empty. The kernel is
// asked once for what is not known of a piece, and of a part of one that is held in part: it looks at every page, and at every
// page that was there before, and asking it with each read for that and all that lies ahead takes as long as half the reads.
func (s *File) holds(fd int, from, to int64) residency {
	k := &s.known
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	none, all := true, true
	for low := from / knownBytes * knownBytes; low < to; low += knownBytes {
		high := min(s.size, low+knownBytes)
		held := s.find(fd, fileRange{low, high}, now)
		if held == partly && (low < from || high > to) {
			held = s.find(fd, fileRange{max(low, from), min(high, to)}, now)
		}
		if none, all = none && held == not, all && held == wholly; !none && !all {
			return partly
		}
	}
	if all {
		return wholly
	}
	return not
}

// LookAgain forgets what reads found the page cache to hold, so that the next ones ask the kernel. It is for who changed that.
func (s *File) LookAgain() {
	s.known.mu.Lock()
	defer s.known.mu.Unlock()
	clear(s.known.found)
}

// find returns what is known of a range, or asks.
func (s *File) find(fd int, r fileRange, now time.Time) residency {
	k := &s.known
	f, ok := k.found[r]
	if !ok || now.Sub(f.when) > knownTime {
		f = finding{s.ask(fd, r.from, r.to), now}
		if k.found == nil {
			k.found = make(map[fileRange]finding)
		} else if len(k.found) >= mostFindings {
			clear(k.found)
		}
		k.found[r] = f
	}
	return f.held
}

// ask asks the kernel what it holds of a range by cachestat (Linux 6.5), which costs some microseconds. It answers those who may
// write the file. Where it does not tell, reads find out from now on.
func (s *File) ask(fd int, from, to int64) residency {
	held, err := cachedPages(fd, from, to-from)
	switch {
	case err != nil:
		s.probes.Store(true)
		return not
	case held == 0:
		return not
	case held < pages(to-from):
		return partly
	}
	return wholly
}

// probe finds out by a read that must not wait whether the last page of a range is held: for such a read the kernel starts to
// read ahead all the same, so that probing with the whole range would read everything twice.
func probe(fd int, off int64, n int) residency {
	var page [1]byte
	if _, err := unix.Preadv2(fd, [][]byte{page[:]}, off+int64(n)-1, unix.RWF_NOWAIT); err != nil {
		return not
	}
	return wholly
}

// cachedPages returns how many pages of a range the page cache holds.
func cachedPages(fd int, off, n int64) (uint64, error) {
	var stat unix.Cachestat_t
	span := unix.CachestatRange{Off: uint64(off), Len: uint64(n)}
	err := unix.Cachestat(uint(fd), &span, &stat, 0)
	return stat.Cache, err
}

func pages(n int64) uint64 { return (uint64(n) + pageBytes - 1) / pageBytes }

// CachedBytes implements [storage.CachedSource].
func (s *File) CachedBytes(off, n int64) (int64, bool) {
	var held uint64
	if n <= 0 || s.control(func(fd int) (err error) { held, err = cachedPages(fd, off, n); return err }) != nil {
		return 0, false
	}
	return min(int64(held*pageBytes), n), true
}

var pageBytes = uint64(os.Getpagesize())

// control calls f with the descriptor, which cannot be closed and reused meanwhile. (RawConn.Read would do as well but
// admits one reader at a time.)
func (s *File) control(f func(fd int) error) error {
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

// diskOf returns the disk of an open file. What divides a disk, or lies on several, has a number of its own; of a part of
// one the whole disk is looked up.
func diskOf(info fs.FileInfo) Disk {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0
	}
	d := DiskOfNumbers(unix.Major(uint64(stat.Dev)), unix.Minor(uint64(stat.Dev)))
	if whole, ok := wholeDisk("/sys/dev/block", d); ok {
		return whole
	}
	return d
}

// wholeDisk returns the disk that another is a part of, as the kernel's tree of devices says; false where it is none.
func wholeDisk(tree string, part Disk) (Disk, bool) {
	at := filepath.Join(tree, part.String())
	if _, err := os.Stat(filepath.Join(at, "partition")); err != nil {
		return 0, false
	}
	folder, err := filepath.EvalSymlinks(at)
	if err != nil {
		return 0, false
	}
	text, err := os.ReadFile(filepath.Join(filepath.Dir(folder), "dev"))
	if err != nil {
		return 0, false
	}
	d, err := ParseDisk(strings.TrimSpace(string(text)))
	return d, err == nil && d != 0
}
