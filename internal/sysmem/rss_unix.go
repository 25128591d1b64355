//go:build unix

package sysmem

import (
	"os"
	goruntime "runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// PeakRSS returns the most memory in bytes that the process ever held, 0 where it is not known.
func PeakRSS() int64 {
	if n := statusPeak(); n > 0 {
		return n
	}
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	if goruntime.GOOS == "darwin" {
		return int64(u.Maxrss)
	}
	return int64(u.Maxrss) << 10 // the others count in KiB
}

// statusPeak returns the peak as Linux tells it of this program, 0 elsewhere: what getrusage says begins with the peak of the
// process that started it, before it became this program.
func statusPeak() int64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	_, after, _ := strings.Cut(string(status), "VmHWM:")
	kib, _, _ := strings.Cut(strings.TrimSpace(after), " kB")
	n, err := strconv.ParseInt(kib, 10, 64)
	if err != nil {
		return 0
	}
	return n << 10
}
