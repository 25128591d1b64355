//go:build unix

package blocked

import (
	"syscall"
	"time"
)

// processorTime returns the time that the process has computed, which others on the machine disturb less than the clock.
func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
