//go:build !linux && !noasm

package kernel

// tilesAllowed is false where nobody knows how to ask the system for the matrix unit's registers.
func tilesAllowed() bool { return false }
