// Package panicked turns panics (of an embedder's code, or of bugs) into errors where they would end the process.
//
//	defer func() {
//		if v := recover(); v != nil {
//			err = panicked.By(v)
//		}
//	}()
package panicked

import (
	"fmt"
	"runtime/debug"
)

// An Error is what code of an embedder's panicked with, a source or an op, or a bug. It is an error where panics of a
// goroutine that nobody called would end the process.
type Error struct {
	Value any
	// Stack is the goroutine's that panicked.
	Stack []byte
}

// Error says what the panic said, without the stack.
func (e *Error) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Unwrap returns the error that the panic was with, nil where it was with something else.
func (e *Error) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// By returns the error for what recover returned.
func By(v any) *Error {
	if known, ok := v.(interface{ Stack() []byte }); ok { // it comes from another goroutine
		return &Error{v, known.Stack()}
	}
	return &Error{v, debug.Stack()}
}
