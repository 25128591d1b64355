package loader

import (
	"errors"
	"fmt"

	"github.com/optimem/optimem/loader/internal/fault"
)

// The classes of error that opening a file can end in; test for them with errors.Is.
var (
	// ErrFormat: the bytes are not what the format says: truncated, inconsistent, corrupt.
	ErrFormat = fault.ErrFormat
	// ErrUnsupported: well-formed, but something optimem does not read.
	ErrUnsupported = fault.ErrUnsupported
	// ErrUnsafe: the file asks for something that only an attack or a foreign loader needs.
	ErrUnsafe = fault.ErrUnsafe
	// ErrLimit: the file would cost more memory or work than [Limits] allow.
	ErrLimit = fault.ErrLimit
	// ErrMemory: an ErrLimit that more [Limits].MemoryBytes would do away with.
	ErrMemory = fault.ErrMemory
)

// An Error is one thing wrong with a file, and where. Errors of the operating system (no such file, permission) are
// returned as they are, wrapped with the path.
type Error struct {
	// Path is the file.
	Path string
	// Record is the part of the file: a zip record's name, a tensor's name, or "" for the file itself.
	Record string
	// Offset is the byte position within the record, −1 where none applies.
	Offset int64
	// Err says what is wrong and wraps one of the classes above.
	Err error
}

// Error reads outside-in: path, record, what is wrong, byte offset.
func (e *Error) Error() string {
	s := e.Path
	if e.Record != "" {
		s += ": " + e.Record
	}
	return s + ": " + e.Err.Error()
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// Class returns the sentinel among ErrFormat, ErrUnsupported, ErrUnsafe and ErrLimit that err wraps, or nil.
func Class(err error) error {
	for _, class := range []error{ErrUnsafe, ErrLimit, ErrUnsupported, ErrFormat} {
		if errors.Is(err, class) {
			return class
		}
	}
	return nil
}

// AllowedBytes returns how much memory was allowed where more would have been taken ([ErrMemory]), 0 where err does not
// say.
func AllowedBytes(err error) int64 {
	var found *fault.Error
	if errors.As(err, &found) {
		return found.AllowedBytes
	}
	return 0
}

// errorAt places err in a record of a file. An error that is placed already keeps its place and gains the path.
func errorAt(path, record string, err error) error {
	if err == nil {
		return nil
	}
	var placed *Error
	if errors.As(err, &placed) {
		return err
	}
	var f *fault.Error
	if errors.As(err, &f) {
		return &Error{Path: path, Record: record, Offset: f.Offset, Err: err}
	}
	if record != "" {
		return fmt.Errorf("%s: %s: %w", path, record, err)
	}
	return fmt.Errorf("%s: %w", path, err)
}
