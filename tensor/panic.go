package tensor

import (
	"fmt"
	"runtime/debug"
)

// A PanicError is what code of an embedder's panicked with, a source or an op, or a bug. It is an error where panics of a
// goroutine that nobody called would end the process.
type PanicError struct {
	Value any
	// Stack is the goroutine's that panicked.
	Stack []byte
}

// Error says what the panic said, without the stack.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Unwrap returns the error that the panic was with, nil where it was with something else.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// Panicked returns the error for what recover returned.
func Panicked(v any) *PanicError {
	if known, ok := v.(interface{ Stack() []byte }); ok { // it comes from another goroutine
		return &PanicError{v, known.Stack()}
	}
	return &PanicError{v, debug.Stack()}
}
