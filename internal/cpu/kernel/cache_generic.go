//go:build !amd64 || noasm

package kernel

func secondCache() int { return 0 }
