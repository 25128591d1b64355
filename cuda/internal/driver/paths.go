//go:build (linux || darwin || freebsd) && (amd64 || arm64) && !nocuda

package driver

import "fmt"

// paths are where the driver is looked for: where the loader finds it, then where WSL has it. The libcuda.so without a
// number that toolkits bring is a stub and never opened.
var paths = []string{"libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1"}

// find opens the driver at a path, or for "" the first that is there, and keeps which one that was.
func (l *Library) find(path string, open func(string) (uintptr, error)) (uintptr, error) {
	tried := paths
	if path != "" {
		tried = []string{path}
	}
	var err error
	for _, p := range tried {
		handle, failed := open(p)
		if failed == nil {
			l.path = p
			return handle, nil
		}
		if err == nil {
			err = failed
		}
	}
	return 0, fmt.Errorf("%w: %w", ErrAbsent, err)
}

// old is the error of a driver without a call.
func (l *Library) old(f fn) error {
	return fmt.Errorf("the driver %s is too old: it lacks %s", l.path, names[f])
}
