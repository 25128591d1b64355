//go:build !linux || !amd64 || noasm

package kernel

func unitAllowed() bool { return false }

func multiplyUnit(*UnitBlock) { panic("BUG: no matrix unit") }

func fastUnitSets() []*UnitSet { return nil }
