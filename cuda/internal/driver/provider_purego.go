//go:build ((linux && !gorgonia) || darwin || freebsd) && (amd64 || arm64) && !nocuda

package driver

import "github.com/ebitengine/purego"

// A provider calls the driver without cgo.
type provider struct {
	symbols [fnCount]uintptr
}

func (l *Library) open(path string) error {
	handle, err := l.find(path, func(path string) (uintptr, error) {
		return purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_GLOBAL)
	})
	if err != nil {
		return err
	}
	for f := range fnCount {
		symbol, err := purego.Dlsym(handle, names[f])
		if err != nil && f < fnOptional {
			return l.old(f)
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
