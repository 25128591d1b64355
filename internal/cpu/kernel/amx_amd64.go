//go:build linux && !noasm

package kernel

import (
	"sync"
	"syscall"

	"golang.org/x/sys/cpu"
)

// unitAllowed asks the system, once, for the matrix unit's registers: a process has none of them unless it asks.
var unitAllowed = sync.OnceValue(func() bool {
	const requestPermission, tileData = 0x1023, 18
	if !cpu.X86.HasAMXTile || !cpu.X86.HasAMXBF16 {
		return false
	}
	_, _, e := syscall.RawSyscall(syscall.SYS_ARCH_PRCTL, requestPermission, tileData, 0)
	return e == 0
})

// unitConfig says that all eight tiles have 16 rows of 64 bytes.
var unitConfig = func() (config [64]byte) {
	config[0] = 1
	for tile := range 8 {
		config[16+2*tile] = 64
		config[48+tile] = 16
	}
	return config
}()

//go:noescape
func amxTiles(
	config *byte, blocks, steps int, a *uint16, aBlock int, b *byte, first *float32, ldf, firstBlock int,
	c *float32, ldc int,
)

func multiplyUnit(u *UnitBlock) {
	amxTiles(&unitConfig[0], u.Blocks, u.Steps, &u.A[0], 2*u.ABlock, &u.B[0], &u.First[0], 4*u.LdFirst,
		4*UnitRows*u.LdFirst, &u.C[0], 4*u.Ldc)
}

//go:noescape
func amxConv(tile *UnitTile)

//go:noescape
func amxMax(row *UnitRow)

//go:noescape
func amxNarrow(pixels int, low, high *float32, step int, y *uint16, mask uint32)

//go:noescape
func amxGather(lines int, x *uint16, step int, y *uint16)

//go:noescape
func amxWiden(pixels int, x *uint16, y *float32)

//go:noescape
func amxWeigh(t *UnitScores)

//go:noescape
func amxPairRows(pairs int, x *uint16, step int, y *uint16)

// fastUnitSets returns the sets in assembly.
func fastUnitSets() []*UnitSet {
	set := Best()
	if set == nil || !set.HasUnit() || !cpu.X86.HasAVX512BF16 {
		return nil
	}
	return []*UnitSet{{
		Name: "amx", Vectors: set, conv: amxConv, max: amxMax, narrow: amxNarrow, widen: amxWiden,
		gather: amxGather, weigh: amxWeigh, pairRows: amxPairRows,
	}}
}
