package hostmem

import "golang.org/x/sys/unix"

// adviseHuge asks for huge pages, which a kernel built without them refuses: the memory works all the same.
func adviseHuge(b []byte) { _ = unix.Madvise(b, unix.MADV_HUGEPAGE) }

// adviseSmall asks for none, also where the system gives huge pages to all.
func adviseSmall(b []byte) { _ = unix.Madvise(b, unix.MADV_NOHUGEPAGE) }

// collapse makes one huge page of small ones, all of which are there. Kernels before 6.1 do it when they come to it.
func collapse(b []byte) {
	adviseHuge(b)
	_ = unix.Madvise(b, unix.MADV_COLLAPSE)
}
