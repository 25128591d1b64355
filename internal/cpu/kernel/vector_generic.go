//go:build !amd64 || noasm

package kernel

// Pause waits for n pause instructions, where there are any.
func Pause(int) {}
