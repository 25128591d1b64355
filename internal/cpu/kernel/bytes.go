package kernel

import "encoding/binary"

// TransposeBytes writes 8 rows of 8 bytes, lds bytes apart, as columns: squares of one byte, of two by two and of four
// by four change places.
func TransposeBytes(dst []byte, ldd int, src []byte, lds int) {
	var x [8]uint64
	for i := range x {
		x[i] = binary.LittleEndian.Uint64(src[i*lds:])
	}
	for _, s := range [3]struct {
		apart, bits int
		low         uint64
	}{{4, 32, 1<<32 - 1}, {2, 16, 0x0000ffff0000ffff}, {1, 8, 0x00ff00ff00ff00ff}} {
		for i := range x {
			if j := i + s.apart; i&s.apart == 0 {
				change := (x[i]>>s.bits ^ x[j]) & s.low
				x[i], x[j] = x[i]^change<<s.bits, x[j]^change
			}
		}
	}
	for i, v := range x {
		binary.LittleEndian.PutUint64(dst[i*ldd:], v)
	}
}
