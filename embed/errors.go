package embed

import "fmt"

// A FolderError says what is wrong in a file of a folder: it is not what it should be, or does not go with the others.
type FolderError struct {
	// File is the path within the folder.
	File, Msg string
}

// Error names the file.
func (e *FolderError) Error() string { return e.File + ": " + e.Msg }

// An UnsupportedError says what a folder asks for that is not known here.
type UnsupportedError struct {
	File, What string
}

// Error names the file.
func (e *UnsupportedError) Error() string { return e.File + ": " + e.What + " is not supported" }

// A RequestError says what cannot be done with a folder that is in order.
type RequestError struct {
	// Field is that of [Options] or [Request], or "prompt" for the name of one.
	Field, Msg string
}

// Error names the field.
func (e *RequestError) Error() string { return e.Field + ": " + e.Msg }

//go:noinline
func wrong(file, format string, args ...any) error {
	return &FolderError{file, fmt.Sprintf(format, args...)}
}

func unsupported(file, format string, args ...any) error {
	return &UnsupportedError{file, fmt.Sprintf(format, args...)}
}
