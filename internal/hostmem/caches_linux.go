package hostmem

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// unwritten asks of each page whether it is there: mincore(2). Memory begins with a page.
func unwritten(data []byte) int64 {
	if len(data) == 0 {
		return 0
	}
	var there [1 << 12]byte
	missing := int64(len(data))
	for at := int64(0); at < int64(len(data)); at += int64(len(there)) * pageBytes {
		n := min(int64(len(data))-at, int64(len(there))*pageBytes)
		_, _, errno := unix.Syscall(unix.SYS_MINCORE,
			uintptr(unsafe.Pointer(&data[at])), uintptr(n), uintptr(unsafe.Pointer(&there)))
		if errno != 0 {
			continue
		}
		for k, page := int64(0), 0; k < n; k, page = k+pageBytes, page+1 {
			if there[page]&1 != 0 {
				missing -= min(pageBytes, n-k)
			}
		}
	}
	return missing
}
