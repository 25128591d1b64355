//go:build !windows

package adapt

import "syscall"

// noMemory reports whether a system call failed for want of memory.
func noMemory(code syscall.Errno) bool { return code == syscall.ENOMEM }
