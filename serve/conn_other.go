//go:build !linux

package serve

// acknowledge does nothing: there is no such option.
func acknowledge(uintptr) {}
