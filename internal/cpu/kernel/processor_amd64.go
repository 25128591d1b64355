//go:build amd64 && !noasm

package kernel

import "encoding/binary"

func identify() processor {
	_, b, c, d := cpuid(0, 0)
	var vendor []byte
	for _, part := range []uint32{b, d, c} {
		vendor = binary.LittleEndian.AppendUint32(vendor, part)
	}
	a, _, _, _ := cpuid(1, 0)
	return processor{string(vendor), familyOf(a)}
}
