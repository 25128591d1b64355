//go:build unix

package kernel

import (
	"syscall"
	"testing"
	"unsafe"
)

// guarded returns a copy of x that ends where the memory of the process does: a read or a write behind it ends the test.
func guarded(t *testing.T, x []float32) []float32 {
	t.Helper()
	page := syscall.Getpagesize()
	pages := (4*len(x)+page-1)/page + 1
	memory, err := syscall.Mmap(-1, 0, pages*page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Munmap(memory) })
	end := (pages - 1) * page
	if err := syscall.Mprotect(memory[end:], syscall.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	if len(x) == 0 {
		return nil
	}
	to := unsafe.Slice((*float32)(unsafe.Pointer(&memory[end-4*len(x)])), len(x))
	copy(to, x)
	return to
}
