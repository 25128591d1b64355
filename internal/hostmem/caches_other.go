//go:build !linux

package hostmem

func unwritten(data []byte) int64 { return int64(len(data)) }
