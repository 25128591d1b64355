package storage

import (
	"context"
	"errors"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

var _ PastSource = (*File)(nil)

// A readQueue reads with O_DIRECT by the kernel's asynchronous I/O: a read that is begun needs no thread and no processor
// until somebody asks for it, so that computing on all of them does not hold up the next one.
type readQueue struct {
	s *File
	// file is a descriptor of its own, with O_DIRECT.
	file *os.File
	fd   int
	// aio is the kernel's context, 0 before a read needs it: to give it back takes tens of milliseconds. none says that the
	// kernel has none to give.
	aio  uintptr
	none bool
	// past says that nobody asks what the page cache holds.
	past bool
	// reads are those under way, by number.
	reads    []queuedRead
	underWay int
	// blocks are those that the kernel was not told of, addresses where they are.
	blocks    []ioControlBlock
	addresses []*ioControlBlock
	// refused are the numbers of reads that the kernel did not take.
	refused []int
	// events[next:have] have ended and were not told of.
	events     [16]ioEvent
	next, have int
}

type queuedRead struct {
	off  int64
	want int
}

// An ioEvent is the kernel's struct io_event: a read that has ended.
type ioEvent struct {
	data   uint64
	_      uint64
	result int64
	_      int64
}

// An ioControlBlock is the kernel's struct iocb: a read that is asked for.
type ioControlBlock struct {
	data   uint64
	_      [2]uint32 // key and flags
	_      [2]uint16 // opcode, of which 0 is a read, and priority
	fd     uint32
	buffer uint64
	bytes  uint64
	offset int64
	_      [2]uint64
}

// waitTime is how long one wait for the kernel takes at most, so that a cancelled one returns.
var waitTime = unix.NsecToTimespec(10e6)

// Queue implements [storage.QueuedSource].
func (s *File) Queue(n int) (ReadQueue, error) {
	s.once.Do(s.openUncached)
	if !s.direct {
		return nil, errors.ErrUnsupported
	}
	var again string
	if err := s.control(func(fd int) error { again = descriptorPath(fd); return nil }); err != nil {
		return nil, err
	}
	file := openDirect(again)
	if file == nil {
		return nil, errors.ErrUnsupported
	}
	q := &readQueue{
		s: s, file: file, fd: int(file.Fd()), reads: make([]queuedRead, n),
		blocks: make([]ioControlBlock, 0, n), addresses: make([]*ioControlBlock, 0, n), refused: make([]int, 0, n),
	}
	return q, nil
}

// QueuePast implements [storage.PastSource].
func (s *File) QueuePast(n int) (ReadQueue, error) {
	q, err := s.Queue(n)
	if err == nil {
		q.(*readQueue).past = true
	}
	return q, err
}

// ReadsPast implements [storage.PastSource].
func (s *File) ReadsPast() bool {
	s.once.Do(s.openUncached)
	return s.direct
}

// setUp reports whether the kernel takes reads.
func (q *readQueue) setUp() bool {
	if q.aio == 0 && !q.none {
		_, _, errno := unix.Syscall(unix.SYS_IO_SETUP, uintptr(len(q.reads)), uintptr(unsafe.Pointer(&q.aio)), 0)
		q.none = errno != 0
	}
	return !q.none
}

// Begin implements [storage.ReadQueue].
func (q *readQueue) Begin(number int, p []byte, off int64) bool {
	address := uintptr(unsafe.Pointer(unsafe.SliceData(p)))
	want := int(min(int64(len(p)), q.s.size-off))
	if want <= 0 || q.s.closed.Load() || (off|int64(len(p))|int64(address))%AlignBytes != 0 {
		return false
	}
	if !q.past && q.s.source(q.fd, off, want) == wholly { // what is held in part is not worth reading piece by piece
		return false
	}
	if !q.setUp() {
		return false
	}
	q.blocks = append(q.blocks, ioControlBlock{
		data: uint64(number), fd: uint32(q.fd), buffer: uint64(address), bytes: uint64(len(p)), offset: off,
	})
	q.addresses = append(q.addresses, &q.blocks[len(q.blocks)-1])
	q.reads[number] = queuedRead{off, want}
	q.underWay++
	return true
}

// Flush implements [storage.ReadQueue]. Of reads that the kernel does not take Wait says that they are not filled.
func (q *readQueue) Flush() {
	for at := 0; at < len(q.addresses); {
		// The scheduler is not told of this call, which is short: a thread that has computed so far goes on with its
		// processor.
		n, _, errno := unix.RawSyscall(
			unix.SYS_IO_SUBMIT, q.aio, uintptr(len(q.addresses)-at), uintptr(unsafe.Pointer(&q.addresses[at])),
		)
		if errno == 0 && n > 0 {
			at += int(n)
			continue
		}
		q.refused = append(q.refused, int(q.addresses[at].data))
		at++
	}
	q.blocks, q.addresses = q.blocks[:0], q.addresses[:0]
}

// Wait implements [storage.ReadQueue].
func (q *readQueue) Wait(ctx context.Context) (number int, filled bool, err error) {
	q.Flush()
	if last := len(q.refused) - 1; last >= 0 {
		number, q.refused = q.refused[last], q.refused[:last]
		q.underWay--
		return number, false, nil
	}
	if q.next == q.have {
		if err := q.collect(ctx); err != nil {
			return 0, false, err
		}
	}
	e := &q.events[q.next]
	q.next++
	q.underWay--
	number = int(e.data)
	r := q.reads[number]
	if !q.past && q.s.probes.Load() {
		last := (r.want - 1) &^ (AlignBytes - 1)
		_ = unix.Fadvise(q.fd, r.off+int64(last), AlignBytes, unix.FADV_DONTNEED) // the page that the probe brought in
	}
	return number, e.result >= int64(r.want), nil
}

// collect waits for at least one read to end. It looks before it waits: a wait lets others have the processor.
func (q *readQueue) collect(ctx context.Context) error {
	if q.underWay == 0 {
		return errors.New("BUG: no read is under way")
	}
	var at unix.Timespec
	n, _, errno := unix.RawSyscall6(unix.SYS_IO_GETEVENTS, q.aio, 0, uintptr(len(q.events)),
		uintptr(unsafe.Pointer(&q.events)), uintptr(unsafe.Pointer(&at)), 0)
	for {
		if errno != 0 && errno != unix.EINTR {
			return os.NewSyscallError("io_getevents", errno)
		}
		if errno == 0 && n > 0 {
			q.next, q.have = 0, int(n)
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		wait := waitTime
		if end, ok := ctx.Deadline(); ok {
			wait = unix.NsecToTimespec(max(min(int64(time.Until(end)), wait.Nano()), 0))
		}
		n, _, errno = unix.Syscall6(unix.SYS_IO_GETEVENTS, q.aio, 1, uintptr(len(q.events)),
			uintptr(unsafe.Pointer(&q.events)), uintptr(unsafe.Pointer(&wait)), 0)
	}
}

// Close implements [storage.ReadQueue].
func (q *readQueue) Close() error {
	if q.file == nil {
		return nil
	}
	var err error
	if q.aio != 0 {
		if _, _, errno := unix.Syscall(unix.SYS_IO_DESTROY, q.aio, 0, 0); errno != 0 { // which waits for what is under way
			err = os.NewSyscallError("io_destroy", errno)
		}
	}
	err = errors.Join(err, q.file.Close())
	q.file = nil
	return err
}
