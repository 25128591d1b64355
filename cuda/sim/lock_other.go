//go:build !linux

package sim

import (
	"errors"
	"fmt"
)

// lock says that the simulated driver is for Linux.
func lock(string) (unlock func(), err error) {
	return nil, fmt.Errorf("the simulated driver: %w", errors.ErrUnsupported)
}
