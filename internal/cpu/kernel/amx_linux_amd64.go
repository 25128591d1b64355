//go:build !noasm

package kernel

import (
	"sync"
	"syscall"

	"golang.org/x/sys/cpu"
)

// tilesAllowed asks the system, once, for the matrix unit's registers: a process has none of them unless it asks.
var tilesAllowed = sync.OnceValue(func() bool {
	const requestPermission, tileData = 0x1023, 18
	if !cpu.X86.HasAMXTile || !cpu.X86.HasAMXBF16 {
		return false
	}
	_, _, e := syscall.RawSyscall(syscall.SYS_ARCH_PRCTL, requestPermission, tileData, 0)
	return e == 0
})
