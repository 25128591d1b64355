package newfile

import "golang.org/x/sys/windows"

// diskFree returns the bytes that an ordinary user can still write in a folder, false where that is unknown.
func diskFree(dir string) (int64, bool) {
	name, err := windows.UTF16PtrFromString(dir)
	if err != nil {
		return 0, false
	}
	var free uint64
	if err := windows.GetDiskFreeSpaceEx(name, &free, nil, nil); err != nil {
		return 0, false
	}
	return saturatingProduct(free, 1), true
}
