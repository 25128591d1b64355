package torchscript

import (
	"math"

	"github.com/optimem/optimem/tensor"
)

// scalarTypes are the numbers that stand for dtypes.
var scalarTypes = map[int]tensor.DType{
	0: tensor.UInt8, 1: tensor.Int8, 2: tensor.Int16, 3: tensor.Int32, 4: tensor.Int64, 5: tensor.Float16,
	6: tensor.Float32, 7: tensor.Float64, 8: tensor.Complex32, 9: tensor.Complex64, 10: tensor.Complex128,
	11: tensor.Bool, 12: tensor.QInt8, 13: tensor.QUInt8, 14: tensor.QInt32, 15: tensor.BFloat16,
	23: tensor.Float8E5M2, 24: tensor.Float8E4M3FN, 25: tensor.Float8E5M2FNUZ, 26: tensor.Float8E4M3FNUZ,
	27: tensor.UInt16, 28: tensor.UInt32, 29: tensor.UInt64, 44: tensor.Float8E8M0FNU,
}

// DType returns the dtype that a number stands for in the language.
func DType(n int) (tensor.DType, bool) {
	d, ok := scalarTypes[n]
	return d, ok
}

// dtype returns the dtype that a value stands for.
func (m *machine) dtype(v any) tensor.DType {
	n, ok := v.(int)
	d, known := scalarTypes[n]
	if !ok || !known {
		m.fail("%s is no dtype", m.text(v))
	}
	return d
}

func (m *machine) dtypeNumber(d tensor.DType) int {
	for n, other := range scalarTypes {
		if other == d {
			return n
		}
	}
	m.fail("%v has no number", d)
	return 0
}

func isFloat(d tensor.DType) bool {
	switch d {
	case tensor.Float32, tensor.Float64, tensor.Float16, tensor.BFloat16, tensor.Float8E4M3FN, tensor.Float8E5M2,
		tensor.Float8E4M3FNUZ, tensor.Float8E5M2FNUZ, tensor.Float8E8M0FNU:
		return true
	}
	return false
}

func isComplex(d tensor.DType) bool {
	return d == tensor.Complex32 || d == tensor.Complex64 || d == tensor.Complex128
}

func isUnsigned(d tensor.DType) bool {
	switch d {
	case tensor.Bool, tensor.UInt8, tensor.UInt16, tensor.UInt32, tensor.UInt64:
		return true
	}
	return false
}

// decode returns the element of a tensor at an offset, in elements.
func decode(x *tensor.Tensor, at int) (any, bool) {
	size := x.DType.Size()
	if at < 0 || (at+1)*size > len(x.Data) {
		return nil, false
	}
	var bits uint64
	for i := range size {
		if i >= 8 {
			return nil, false
		}
		bits |= uint64(x.Data[at*size+i]) << (8 * i)
	}
	switch x.DType {
	case tensor.Bool:
		return bits != 0, true
	case tensor.Int8:
		return int(int8(bits)), true
	case tensor.Int16:
		return int(int16(bits)), true
	case tensor.Int32:
		return int(int32(bits)), true
	case tensor.Int64, tensor.UInt8, tensor.UInt16, tensor.UInt32:
		return int(bits), true
	case tensor.Float32:
		return float64(math.Float32frombits(uint32(bits))), true
	case tensor.Float64:
		return math.Float64frombits(bits), true
	case tensor.Float16:
		return float64(tensor.Float16ToFloat32(uint16(bits))), true
	case tensor.BFloat16:
		return float64(tensor.BFloat16ToFloat32(uint16(bits))), true
	}
	return nil, false
}

// encode writes a number as the element i of a contiguous tensor.
func encode(x *tensor.Tensor, i int, v any) bool {
	c, ok := number(v)
	f := real(c)
	n, whole := integer(v)
	if !whole && math.Abs(f) < 1<<63 {
		n = int(f)
	}
	var bits uint64
	switch x.DType {
	case tensor.Bool:
		if c != 0 {
			bits = 1
		}
	case tensor.Int8, tensor.Int16, tensor.Int32, tensor.Int64, tensor.UInt8, tensor.UInt16, tensor.UInt32,
		tensor.UInt64:
		bits = uint64(n)
	case tensor.Float32:
		bits = uint64(math.Float32bits(float32(f)))
	case tensor.Float64:
		bits = math.Float64bits(f)
	case tensor.Float16:
		bits = uint64(tensor.Float16FromFloat32(float32(f)))
	case tensor.BFloat16:
		bits = uint64(tensor.BFloat16FromFloat32(float32(f)))
	default:
		return false
	}
	size := x.DType.Size()
	for k := range size {
		x.Data[i*size+k] = byte(bits >> (8 * k))
	}
	return ok
}
