//go:build unix

package hostmem

import "golang.org/x/sys/unix"

// outsideHeap says that buffers are no part of what Go counts as its memory.
const outsideHeap = true

func acquire(n int) ([]byte, error) {
	return unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
}

func release(b []byte) error { return unix.Munmap(b) }
