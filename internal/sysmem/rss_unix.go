//go:build unix

package sysmem

import (
	goruntime "runtime"

	"golang.org/x/sys/unix"
)

// PeakRSS returns the most memory in bytes that the process ever held, 0 where it is not known.
func PeakRSS() int64 {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	if goruntime.GOOS == "darwin" {
		return int64(u.Maxrss)
	}
	return int64(u.Maxrss) << 10 // the others count in KiB
}
