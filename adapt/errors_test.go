package adapt_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"syscall"
	"testing"

	"github.com/optimem/optimem/adapt"
	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/internal/hostmem"
	"github.com/optimem/optimem/plan"
)

// says is an error with an opinion.
type says bool

func (s says) Error() string     { return "CUDA out of memory." }
func (s says) OutOfMemory() bool { return bool(s) }

// around is an error that says no and wraps one that may say something else.
type around struct {
	says
	err error
}

func (a around) Unwrap() error { return a.err }

// Errors that say that memory was short count, wherever they stand in a tree of errors; texts do not.
func TestIsOutOfMemory(t *testing.T) {
	for _, err := range []error{
		&device.OutOfMemoryError{Device: "cpu", WantBytes: 5},
		&plan.CapacityError{NeedBytes: 5},
		&hostmem.LimitError{},
		syscall.ENOMEM,
		&os.SyscallError{Syscall: "mmap", Err: syscall.ENOMEM},
		says(true),
		adapt.OutOfMemory(io.EOF),
		errors.Join(says(false), io.EOF, fmt.Errorf("second: %w", says(true))),
		fmt.Errorf("%w and %w", says(false), syscall.ENOMEM),
		around{false, says(true)},
	} {
		for _, err := range []error{err, fmt.Errorf("run: layer: %w", err)} {
			if !adapt.IsOutOfMemory(err) {
				t.Errorf("%v (%T) is not", err, err)
			}
		}
	}
	for _, err := range []error{
		nil, io.EOF, syscall.ENOSPC, says(false), errors.New("CUDA out of memory."), errors.Join(io.EOF, says(false)),
	} {
		if adapt.IsOutOfMemory(err) {
			t.Errorf("%v (%T) is", err, err)
		}
	}
	if err := adapt.OutOfMemory(nil); err != nil {
		t.Errorf("of nothing: %v", err)
	}
	if err := adapt.OutOfMemory(io.EOF); err.Error() != "EOF" || !errors.Is(err, io.EOF) {
		t.Errorf("of the end: %v", err)
	}
}

// A limit of the process refuses memory for tensors with an error that adapts, can be raised again, and is gone without a
// trace, unlike the one that toma sets.
func TestLimitProcess(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	const limit = 512 << 20
	if was := adapt.LimitProcess(limit); was != 0 {
		t.Fatalf("a limit before: %d", was)
	}
	defer adapt.LimitProcess(0)
	if heap := debug.SetMemoryLimit(-1); heap != min(limit, before) {
		t.Errorf("the heap's limit is %d", heap)
	}
	_, err := hostmem.Alloc(limit, hostmem.Weights)
	var refused *hostmem.LimitError
	if !adapt.IsOutOfMemory(err) || !errors.As(err, &refused) || refused.LimitBytes != limit || refused.LeftBytes >= limit {
		t.Fatalf("%v", err)
	}
	if was := adapt.LimitProcess(2 * limit); was != limit {
		t.Errorf("a limit before: %d", was)
	}
	buf, err := hostmem.Alloc(limit, hostmem.Weights)
	if err != nil {
		t.Fatal(err)
	}
	buf.Free()
	if was := adapt.LimitProcess(0); was != 2*limit {
		t.Errorf("a limit before: %d", was)
	}
	if heap := debug.SetMemoryLimit(-1); heap != before {
		t.Errorf("the heap's limit was %d and is %d", before, heap)
	}
}
