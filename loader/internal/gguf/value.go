package gguf

import (
	"encoding/binary"
	"math"

	"github.com/optimem/optimem/loader/internal/fault"
)

// The types of values.
const (
	typeUint8 uint32 = iota
	typeInt8
	typeUint16
	typeInt16
	typeUint32
	typeInt32
	typeFloat32
	typeBool
	typeString
	typeArray
	typeUint64
	typeInt64
	typeFloat64
	numTypes
)

// widths are the bytes of a value; of a string and an array they are the least.
var widths = [numTypes]int64{1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8}

// value reads a value of a type, inside so many arrays.
func (r *reader) value(kind uint32, depth int) any {
	if r.err != nil {
		return nil
	}
	switch kind {
	case typeString:
		return r.text(0)
	case typeArray:
		return r.array(depth + 1)
	}
	if kind >= numTypes {
		_ = r.format("a value of the type %d", kind)
		return nil
	}
	n := r.number(int(widths[kind]))
	switch kind {
	case typeUint8:
		return uint8(n)
	case typeInt8:
		return int8(n)
	case typeUint16:
		return uint16(n)
	case typeInt16:
		return int16(n)
	case typeUint32:
		return uint32(n)
	case typeInt32:
		return int32(n)
	case typeFloat32:
		return math.Float32frombits(uint32(n))
	case typeUint64:
		return n
	case typeInt64:
		return int64(n)
	case typeFloat64:
		return math.Float64frombits(n)
	}
	if n > 1 {
		_ = r.format("a truth value of %d", n)
	}
	return n == 1
}

// array reads the elements of an array.
func (r *reader) array(depth int) any {
	if depth > r.o.Depth {
		r.fail(fault.New(fault.ErrLimit, r.at, "arrays are nested more than %d deep", r.o.Depth))
		return nil
	}
	kind, count := uint32(r.number(4)), r.number(8)
	if r.err == nil && kind >= numTypes {
		_ = r.format("an array of the type %d", kind)
	}
	if r.err == nil && count > uint64(r.left()/widths[kind]) {
		_ = r.format("an array of %d, and %d bytes are left", count, r.left())
	}
	if r.err != nil {
		return nil
	}
	n := int(count)
	r.sure += int64(n) * widths[kind]
	switch kind {
	case typeString:
		return list(r, n, 16, func() string { return r.text(0) })
	case typeArray:
		return list(r, n, 64, func() any { return r.array(depth + 1) })
	case typeBool:
		return list(r, n, 1, func() bool { b, _ := r.value(typeBool, 0).(bool); return b })
	case typeUint8:
		if !r.charge(int64(n)) {
			return nil
		}
		p := make([]byte, n)
		r.take(p)
		return p
	case typeInt8:
		return numbers(r, n, 1, func(b []byte) int8 { return int8(b[0]) })
	case typeUint16:
		return numbers(r, n, 2, binary.LittleEndian.Uint16)
	case typeInt16:
		return numbers(r, n, 2, func(b []byte) int16 { return int16(binary.LittleEndian.Uint16(b)) })
	case typeUint32:
		return numbers(r, n, 4, binary.LittleEndian.Uint32)
	case typeInt32:
		return numbers(r, n, 4, func(b []byte) int32 { return int32(binary.LittleEndian.Uint32(b)) })
	case typeFloat32:
		return numbers(r, n, 4, func(b []byte) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(b)) })
	case typeUint64:
		return numbers(r, n, 8, binary.LittleEndian.Uint64)
	case typeInt64:
		return numbers(r, n, 8, func(b []byte) int64 { return int64(binary.LittleEndian.Uint64(b)) })
	}
	return numbers(r, n, 8, func(b []byte) float64 { return math.Float64frombits(binary.LittleEndian.Uint64(b)) })
}

// list reads n elements one by one, which cost so many bytes of memory each, and what reading one charges.
func list[T any](r *reader, n int, cost int64, read func() T) any {
	if !r.charge(int64(n) * cost) {
		return nil
	}
	all := make([]T, n)
	for i := range all {
		if all[i] = read(); r.err != nil {
			return nil
		}
	}
	return all
}

// numbers reads n numbers of some bytes.
func numbers[T any](r *reader, n, width int, convert func([]byte) T) any {
	if !r.charge(int64(n) * int64(width)) {
		return nil
	}
	all := make([]T, n)
	for i := range all {
		if r.take(r.word[:width]); r.err != nil {
			return nil
		}
		all[i] = convert(r.word[:])
	}
	return all
}
