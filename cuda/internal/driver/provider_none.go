//go:build nocuda || !(linux || darwin || freebsd || windows) || !(amd64 || arm64)

package driver

import "fmt"

// A provider without which no call is made.
type provider struct{}

func (l *Library) open(string) error {
	return fmt.Errorf("%w: this program was built without CUDA", ErrAbsent)
}

func (p *provider) has(fn) bool { return false }

func (p *provider) call(fn, ...uintptr) Code { return NoDevice }
