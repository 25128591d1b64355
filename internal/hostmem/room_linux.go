package hostmem

import "golang.org/x/sys/unix"

// CanResize says that room which nothing was written to takes no memory, and that memory can go back to the system
// while the room for it stays.
const CanResize = true

// reserve returns room, which the system does not count before it is written to.
func reserve(n int) ([]byte, error) {
	return unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_NORESERVE)
}

// discard gives back the memory of whole pages, and reports whether it did. What lies beyond what is still used is not
// to become huge pages again.
func discard(b, beyond []byte) bool {
	if len(beyond) > 0 {
		_ = unix.Madvise(beyond, unix.MADV_NOHUGEPAGE)
	}
	return len(b) == 0 || unix.Madvise(b, unix.MADV_DONTNEED) == nil
}
