package adapt

import (
	"errors"
	"syscall"
)

// IsOutOfMemory reports whether an error, or one that it wraps or joins, says that memory was short: by a method OutOfMemory
// that returns true, or as the operating system's ENOMEM. Those of this module do: a device that refuses memory, a budget
// in which a model has no plan, the CUDA driver, [LimitProcess]. What an error's text says does not matter.
func IsOutOfMemory(err error) bool {
	for err != nil {
		if e, ok := err.(interface{ OutOfMemory() bool }); ok && e.OutOfMemory() {
			return true
		}
		if code, ok := err.(syscall.Errno); ok {
			return noMemory(code)
		}
		if joined, ok := err.(interface{ Unwrap() []error }); ok {
			for _, e := range joined.Unwrap() {
				if IsOutOfMemory(e) {
					return true
				}
			}
			return false
		}
		err = errors.Unwrap(err)
	}
	return false
}

// OutOfMemory returns an error with err's text that wraps it and for which [IsOutOfMemory] holds: for code that knows by a
// library's status what its error means. It is nil for a nil error.
func OutOfMemory(err error) error {
	if err == nil {
		return nil
	}
	return &outOfMemoryError{err}
}

type outOfMemoryError struct{ err error }

func (e *outOfMemoryError) Error() string   { return e.err.Error() }
func (e *outOfMemoryError) Unwrap() error   { return e.err }
func (*outOfMemoryError) OutOfMemory() bool { return true }
