package sysmem

import (
	"unsafe"

	"golang.org/x/sys/windows"
)

// memoryStatus is MEMORYSTATUSEX of the Windows API.
type memoryStatus struct {
	length, load                                    uint32
	total, available, totalPage, availablePage      uint64
	totalVirtual, availableVirtual, availableExtend uint64
}

var globalMemoryStatus = windows.NewLazySystemDLL("kernel32.dll").NewProc("GlobalMemoryStatusEx")

// readRoot returns what the system says of the host's memory. Limits of jobs it does not look for.
func readRoot(string) Info {
	i := Info{LimitBytes: Unlimited, LeftBytes: Unlimited}
	s := memoryStatus{length: uint32(unsafe.Sizeof(memoryStatus{}))}
	if globalMemoryStatus.Find() != nil {
		return i
	}
	ok, _, _ := globalMemoryStatus.Call(uintptr(unsafe.Pointer(&s)))
	if ok != 0 && s.total < Unlimited && s.available < Unlimited {
		i.TotalBytes, i.AvailableBytes = int64(s.total), int64(s.available)
	}
	return i
}
