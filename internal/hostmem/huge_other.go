//go:build !linux

package hostmem

func adviseHuge([]byte) {}

func adviseSmall([]byte) {}

func collapse([]byte) {}
