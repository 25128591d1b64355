package tokenizer

import (
	"fmt"
	"math"
)

// maxText is the longest text that can be encoded, in bytes.
const maxText = math.MaxInt32 - 1

// A FormatError says what is wrong with a file.
type FormatError struct {
	File    string // its name; empty if there is none
	Path    string // where in the file: "model.vocab", "line 7"
	Problem string
}

func (e *FormatError) Error() string {
	return where(e.File, e.Path) + e.Problem
}

// An UnsupportedError names what a file asks for, or a caller, that this package does not do.
type UnsupportedError struct {
	File string
	Path string
	What string
}

func (e *UnsupportedError) Error() string {
	return where(e.File, e.Path) + e.What + " is not supported"
}

func where(file, path string) string {
	switch {
	case file != "" && path != "":
		return file + ": " + path + ": "
	case file != "" || path != "":
		return file + path + ": "
	}
	return ""
}

// A TextError says why a text cannot be encoded by this tokenizer.
type TextError struct{ Problem string }

func (e *TextError) Error() string { return "text: " + e.Problem }

//go:noinline
func format(path, problem string, args ...any) error {
	return &FormatError{Path: path, Problem: fmt.Sprintf(problem, args...)}
}
