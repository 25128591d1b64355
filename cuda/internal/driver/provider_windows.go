//go:build windows && (amd64 || arm64) && !nocuda

package driver

import (
	"fmt"
	"syscall"
)

// A provider calls the driver without cgo.
type provider struct {
	symbols [fnCount]uintptr
}

func (l *Library) open(path string) error {
	if path == "" {
		path = "nvcuda.dll"
	}
	handle, err := syscall.LoadLibrary(path)
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrAbsent, path, err)
	}
	l.path = path
	for f := range fnCount {
		symbol, err := syscall.GetProcAddress(handle, names[f])
		if err != nil && f < fnOptional {
			return fmt.Errorf("the driver %s is too old: it lacks %s", path, names[f])
		}
		l.symbols[f] = symbol
	}
	return nil
}

// has reports whether the library has a call that it may lack.
func (p *provider) has(f fn) bool { return p.symbols[f] != 0 }

// call calls the driver. Pointers to Go memory must be converted in the list of arguments, where they are kept alive and in
// place.
//
//go:uintptrescapes
func (p *provider) call(f fn, args ...uintptr) Code {
	r, _, _ := syscall.SyscallN(p.symbols[f], args...)
	return Code(int32(r))
}
