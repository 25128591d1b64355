//go:build !amd64 || noasm

package kernel

func identify() processor { return processor{} }
