package sysmem

import "golang.org/x/sys/unix"

// readRoot returns what the system says of itself: the total of the memory. How much of it is available it does not
// tell without calls into its kernel library.
func readRoot(string) Info {
	i := Info{LimitBytes: Unlimited, LeftBytes: Unlimited}
	if n, err := unix.SysctlUint64("hw.memsize"); err == nil && n < Unlimited {
		i.TotalBytes = int64(n)
	}
	i.Model, _ = unix.Sysctl("machdep.cpu.brand_string")
	return i
}
