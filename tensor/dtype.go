// Package tensor has the types that the rest of optimem shares: dtypes, shapes, layouts, tensors in memory ([Tensor])
// and weights that are still on disk ([Weight]).
//
// It does not know file formats, models, ops or devices.
//
//	t := tensor.Of([]float32{1, 2, 3, 4}, 2, 2)
//	w := tensor.Weight{Name: "fc.weight", DType: tensor.Float32, Layout: tensor.Contiguous(10, 512), Extent: e}
package tensor

import "fmt"

// A DType is the type of a tensor's elements. The zero value is Invalid.
type DType uint8

// The dtypes that a PyTorch checkpoint can hold. The quantized ones carry their scales beside them
// ([Weight.Quant]); their elements are the raw integers.
const (
	Invalid DType = iota
	Float32
	Float64
	Float16
	BFloat16
	Float8E4M3FN
	Float8E5M2
	Float8E4M3FNUZ
	Float8E5M2FNUZ
	Float8E8M0FNU
	Int8
	Int16
	Int32
	Int64
	UInt8
	UInt16
	UInt32
	UInt64
	Bool
	Complex32
	Complex64
	Complex128
	QInt8
	QUInt8
	QInt32
	numDTypes
)

var dtypes = [numDTypes]struct {
	name  string
	bytes int
}{
	Invalid:        {"invalid", 0},
	Float32:        {"float32", 4},
	Float64:        {"float64", 8},
	Float16:        {"float16", 2},
	BFloat16:       {"bfloat16", 2},
	Float8E4M3FN:   {"float8_e4m3fn", 1},
	Float8E5M2:     {"float8_e5m2", 1},
	Float8E4M3FNUZ: {"float8_e4m3fnuz", 1},
	Float8E5M2FNUZ: {"float8_e5m2fnuz", 1},
	Float8E8M0FNU:  {"float8_e8m0fnu", 1},
	Int8:           {"int8", 1},
	Int16:          {"int16", 2},
	Int32:          {"int32", 4},
	Int64:          {"int64", 8},
	UInt8:          {"uint8", 1},
	UInt16:         {"uint16", 2},
	UInt32:         {"uint32", 4},
	UInt64:         {"uint64", 8},
	Bool:           {"bool", 1},
	Complex32:      {"complex32", 4},
	Complex64:      {"complex64", 8},
	Complex128:     {"complex128", 16},
	QInt8:          {"qint8", 1},
	QUInt8:         {"quint8", 1},
	QInt32:         {"qint32", 4},
}

// String returns PyTorch's name of the dtype without the "torch." prefix, such as "bfloat16".
//
//go:noinline
func (d DType) String() string {
	if d >= numDTypes {
		return fmt.Sprintf("dtype(%d)", uint8(d))
	}
	return dtypes[d].name
}

// Size returns the bytes that one element takes, 0 for [Invalid].
func (d DType) Size() int {
	if d >= numDTypes {
		return 0
	}
	return dtypes[d].bytes
}

// IsHalf reports whether elements are floats of 16 bits.
func (d DType) IsHalf() bool { return d == Float16 || d == BFloat16 }

// Quantized reports whether elements are integers that stand for scaled real numbers.
func (d DType) Quantized() bool { return d == QInt8 || d == QUInt8 || d == QInt32 }

// ParseDType returns the dtype with the given PyTorch name ("float32", "bfloat16", …), with or without the
// "torch." prefix.
func ParseDType(name string) (DType, bool) {
	const prefix = "torch."
	if len(name) > len(prefix) && name[:len(prefix)] == prefix {
		name = name[len(prefix):]
	}
	for d := Invalid + 1; d < numDTypes; d++ {
		if dtypes[d].name == name {
			return d, true
		}
	}
	return Invalid, false
}
