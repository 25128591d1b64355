// Package cublaslt multiplies matrices with NVIDIA's library cuBLASLt, which it loads at run time, without cgo or
// headers, and only if a program asks for it.
//
// It knows column-major matrices and addresses, and nothing of ops. All calls but [Open] need a current context on the
// calling thread, so the goroutine must be locked to its thread.
//
//	lib, err := cublaslt.Open("auto", 12040, os.Getenv)
//	h, err := lib.New()
//	err = h.Product(p, places, stream)
//
// With the build tag nocuda, and on platforms that cannot load it, [Open] returns an error.
package cublaslt

import (
	"errors"
	"fmt"
)

// ErrAbsent is wrapped where there is no library to open.
var ErrAbsent = errors.New("no cuBLASLt")

// An Error is a call of the library that failed.
type Error struct {
	Call string
	// Status is a cublasStatus_t.
	Status int32
}

// Error names the call.
func (e *Error) Error() string { return fmt.Sprintf("%s: status %d", e.Call, e.Status) }

// A NoWayError says that the library does not compute a product.
type NoWayError struct{ Err error }

// Error gives the reason.
func (e *NoWayError) Error() string { return "cuBLASLt does not compute it: " + e.Err.Error() }

// Unwrap returns the reason.
func (e *NoWayError) Unwrap() error { return e.Err }

// A Type is that of a matrix's elements: a cudaDataType.
type Type int32

// The types of elements.
const (
	Float32  Type = 0
	Float16  Type = 2
	BFloat16 Type = 14
)

// A Sum says how products are added up, and how factors of float32 are rounded before: a cublasComputeType_t.
type Sum int32

// The ways of adding up. All sums are float32.
const (
	Exact       Sum = 68
	ByBFloat16s Sum = 75
	ByTF32      Sum = 77
)

// A Matrix says how one lies: elements of a column behind each other, columns a pitch apart, and matrices of a batch a
// step apart. Transposed says that what is multiplied is its transpose.
type Matrix struct {
	Rows, Columns, Pitch, Step int64
	Transposed                 bool
}

// A Product is D = alpha·A·B + beta·C + bias, clipped at zero if wanted, C having as many rows and columns as D and bias an element for
// each of D's rows. It says all that the way to compute it depends on.
type Product struct {
	Type    Type
	Sum     Sum
	A, B, D Matrix
	// C is how what is added lies.
	C     Matrix
	Batch int32
	// Whole is how many rows the product has that D has some of: the way to compute it is that of the whole one, whose sums have the
	// same order, if the library takes that for a part.
	Whole int64

	Bias, Clip, AddsC bool
	// AlignTo is a number that the addresses are multiples of, MostWork how many bytes of memory may be used besides.
	AlignTo  uint32
	MostWork int64
}

// Places are the addresses of a product's matrices, and its numbers. Those of what it does not have are not looked at.
type Places struct {
	A, B, C, D, Bias, Work uint64
	Alpha, Beta            float32
}
