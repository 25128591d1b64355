//go:build nocuda || !linux || !(amd64 || arm64)

package cublaslt

import "fmt"

// A Library is none.
type Library struct{}

// Open says that there is none.
func Open(string, int, func(string) string) (*Library, error) {
	return nil, fmt.Errorf("%w: this program cannot call it", ErrAbsent)
}

// New fails.
func (l *Library) New() (*Handle, error) { return nil, ErrAbsent }

// A Handle is none.
type Handle struct{}

// Product fails.
func (h *Handle) Product(*Product, *Places, uintptr) error { return ErrAbsent }

// Close does nothing.
func (h *Handle) Close() error { return nil }
