//go:build nocuda

package driver_test

import (
	"errors"
	"testing"

	"github.com/optimem/optimem/cuda/internal/driver"
)

// TestNone: a program without CUDA says so.
func TestNone(t *testing.T) {
	if _, err := driver.Open(""); !errors.Is(err, driver.ErrAbsent) {
		t.Error(err)
	}
}
