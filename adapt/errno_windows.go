package adapt

import "syscall"

// noMemory reports whether a system call failed for want of memory: ERROR_NOT_ENOUGH_MEMORY, ERROR_OUTOFMEMORY,
// ERROR_COMMITMENT_LIMIT.
func noMemory(code syscall.Errno) bool {
	return code == syscall.ENOMEM || code == 8 || code == 14 || code == 1455
}
