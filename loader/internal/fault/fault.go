// Package fault holds the classes of error that reading a checkpoint can end in, and the error that carries a class
// together with a place. It knows no format; the readers below the loader return its errors, and the loader adds the
// file's path and the record's name.
//
//	return fault.New(fault.ErrFormat, off, "length %d exceeds the %d bytes that remain", n, rest)
package fault

import (
	"errors"
	"fmt"
)

// The classes. Package loader exports them under the same names.
var (
	// ErrFormat: the bytes are not what the format says: truncated, inconsistent, corrupt.
	ErrFormat = errors.New("malformed file")
	// ErrUnsupported: well-formed, but something optimem does not read.
	ErrUnsupported = errors.New("unsupported")
	// ErrUnsafe: the file asks for something that only an attack or a foreign loader needs.
	ErrUnsafe = errors.New("unsafe file")
	// ErrLimit: the file would cost more memory or work than the limits allow.
	ErrLimit = errors.New("limit exceeded")
	// ErrMemory: of these, what a larger budget of memory would admit.
	ErrMemory = fmt.Errorf("%w: memory", ErrLimit)
)

// An Error is one thing wrong with the input.
type Error struct {
	// Class is ErrFormat, ErrUnsupported, ErrUnsafe, ErrLimit or ErrMemory.
	Class error
	// Offset is the byte position within the record being read, −1 where none applies.
	Offset int64
	// Msg says what is wrong, in lower case, without a place.
	Msg string
	// Err is the cause, if another error was.
	Err error
	// AllowedBytes is what was allowed, of ErrMemory.
	AllowedBytes int64
}

// New returns an error of the given class at byte position offset (−1: none).
//
//go:noinline
func New(class error, offset int64, format string, args ...any) *Error {
	return &Error{Class: class, Offset: offset, Msg: fmt.Sprintf(format, args...)}
}

// Error returns the message and, where known, the offset.
func (e *Error) Error() string {
	s := e.Msg
	if e.Offset >= 0 {
		s = fmt.Sprintf("%s (at byte %d)", s, e.Offset)
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap gives errors.Is both the class and the cause.
func (e *Error) Unwrap() []error {
	if e.Err != nil {
		return []error{e.Class, e.Err}
	}
	return []error{e.Class}
}
