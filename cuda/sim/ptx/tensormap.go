package ptx

import (
	"encoding/binary"
	"hash/crc32"
)

// TensorMapBytes is the size of a tensor map.
const TensorMapBytes = 128

// A TensorMap says how a tensor lies in global memory and which box of it is copied at a time. The fields have the
// numbers of cuTensorMapEncodeTiled; the innermost dimension is the first.
type TensorMap struct {
	Type, Rank, Interleave, Swizzle, Promotion, Fill uint8
	Address                                          uint64
	Dims                                             [5]uint64
	Strides                                          [4]uint64 // in bytes, of the second dimension on
	Box, Steps                                       [5]uint16
	// Allocation is the driver's number of the memory.
	Allocation uint64
}

// mapMagic begins the bytes of a tensor map. How GPUs lay them out is not documented; the simulated driver has this.
const mapMagic = 0x70616d7473696d6f

// Encode writes a map as the simulated driver does.
func (m *TensorMap) Encode() [TensorMapBytes]byte {
	var to [TensorMapBytes]byte
	list := binary.LittleEndian.AppendUint64(to[:0], mapMagic)
	list = binary.LittleEndian.AppendUint64(list, m.Address)
	list = binary.LittleEndian.AppendUint64(list, m.Allocation)
	for _, n := range m.Dims {
		list = binary.LittleEndian.AppendUint32(list, uint32(n-1))
	}
	for _, n := range m.Strides {
		list = binary.LittleEndian.AppendUint64(list, n)
	}
	for i := range m.Box {
		list = binary.LittleEndian.AppendUint16(list, m.Box[i])
		list = binary.LittleEndian.AppendUint16(list, m.Steps[i])
	}
	copy(to[len(list):], []byte{m.Type, m.Rank, m.Interleave, m.Swizzle, m.Promotion, m.Fill})
	binary.LittleEndian.PutUint32(to[TensorMapBytes-4:], crc32.ChecksumIEEE(to[:TensorMapBytes-4]))
	return to
}

// decodeMap reads a map, and reports whether it is one.
func decodeMap(from []byte) (m TensorMap, ok bool) {
	if binary.LittleEndian.Uint64(from) != mapMagic ||
		binary.LittleEndian.Uint32(from[TensorMapBytes-4:]) != crc32.ChecksumIEEE(from[:TensorMapBytes-4]) {
		return m, false
	}
	m.Address, m.Allocation = binary.LittleEndian.Uint64(from[8:]), binary.LittleEndian.Uint64(from[16:])
	at := 24
	for i := range m.Dims {
		m.Dims[i] = uint64(binary.LittleEndian.Uint32(from[at:])) + 1
		at += 4
	}
	for i := range m.Strides {
		m.Strides[i] = binary.LittleEndian.Uint64(from[at:])
		at += 8
	}
	for i := range m.Box {
		m.Box[i], m.Steps[i] = binary.LittleEndian.Uint16(from[at:]), binary.LittleEndian.Uint16(from[at+2:])
		at += 4
	}
	m.Type, m.Rank, m.Interleave, m.Swizzle = from[at], from[at+1], from[at+2], from[at+3]
	m.Promotion, m.Fill = from[at+4], from[at+5]
	return m, m.Type < uint8(len(mapTypes)) && m.Rank >= 1 && m.Rank <= 5 && m.Swizzle <= 3
}

// mapTypes are the bytes of the elements of each type.
var mapTypes = [...]int{1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4}

// swizzleSpans are the bytes of the lines that each mode's pattern is for.
var swizzleSpans = [...]int{0, 32, 64, 128}

// swizzled returns where a byte lies whose pattern is for lines of 32, 64 or 128 bytes; 0 is none. Of the pieces
// of 16 bytes in a line, the number is turned by that of the line of 128 bytes, of the whole of shared memory.
func swizzled(address uint64, span int) uint64 {
	if span == 0 {
		return address
	}
	return address ^ address>>7&uint64(span/16-1)<<4
}
