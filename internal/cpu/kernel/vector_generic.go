//go:build (!amd64 && !arm64) || noasm

package kernel

// Pause waits for n pause instructions, where there are any.
func Pause(int) {}

// FetchRows fetches memory into a cache, where there are instructions for that.
func FetchRows(rows int, at uintptr, pitch, bytes int) {}
