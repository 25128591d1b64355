//go:build linux || darwin

package newfile

import "golang.org/x/sys/unix"

// diskFree returns the bytes that an ordinary user can still write in a folder, false where that is unknown.
func diskFree(dir string) (int64, bool) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, false
	}
	return saturatingProduct(uint64(s.Bavail), uint64(s.Bsize)), true
}
