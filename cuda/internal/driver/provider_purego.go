//go:build (linux || darwin || freebsd) && (amd64 || arm64) && !nocuda

package driver

import (
	"fmt"

	"github.com/ebitengine/purego"
)

// paths are where the driver is looked for: where the loader finds it, then where WSL has it. The libcuda.so without a
// number that toolkits bring is a stub and never opened.
var paths = []string{"libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1"}

// A provider calls the driver without cgo.
type provider struct {
	symbols [fnCount]uintptr
}

func (l *Library) open(path string) error {
	tried := paths
	if path != "" {
		tried = []string{path}
	}
	var handle uintptr
	var err error
	for _, p := range tried {
		var failed error
		if handle, failed = purego.Dlopen(p, purego.RTLD_NOW|purego.RTLD_GLOBAL); failed == nil {
			l.path, err = p, nil
			break
		}
		if err == nil {
			err = failed
		}
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrAbsent, err)
	}
	for f := range fnCount {
		symbol, err := purego.Dlsym(handle, names[f])
		if err != nil && f < fnSimSubAlloc {
			return fmt.Errorf("the driver %s is too old: it lacks %s", l.path, names[f])
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
	r, _, _ := purego.SyscallN(p.symbols[f], args...)
	return Code(int32(r))
}
