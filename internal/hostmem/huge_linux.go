package hostmem

import "golang.org/x/sys/unix"

// adviseHuge asks for huge pages, which a kernel built without them refuses: the memory works all the same.
func adviseHuge(b []byte) { _ = unix.Madvise(b, unix.MADV_HUGEPAGE) }
