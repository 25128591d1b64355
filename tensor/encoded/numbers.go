package encoded

import (
	"encoding/binary"
	"math"

	"github.com/optimem/optimem/tensor"
)

// Numbers are rounded and stored many at a time: which dtype they are of is asked once for all.

// storeFloats writes numbers of a dtype, in the machine's order.
func storeFloats(to []byte, x []float32, dtype tensor.DType) {
	to = to[:len(x)*dtype.Size()]
	switch dtype {
	case tensor.Float16:
		tensor.PutFloat16s(to, x)
	case tensor.BFloat16:
		for i, f := range x {
			binary.NativeEndian.PutUint16(to[2*i:], tensor.BFloat16FromFloat32(f))
		}
	default:
		for i, f := range x {
			binary.NativeEndian.PutUint32(to[4*i:], math.Float32bits(f))
		}
	}
}

// loadFloats reads numbers of a dtype.
func loadFloats(to []float32, from []byte, dtype tensor.DType) {
	from = from[:len(to)*dtype.Size()]
	switch dtype {
	case tensor.Float16:
		for i := range to {
			to[i] = tensor.Float16ToFloat32(binary.LittleEndian.Uint16(from[2*i:]))
		}
	case tensor.BFloat16:
		for i := range to {
			to[i] = tensor.BFloat16ToFloat32(binary.LittleEndian.Uint16(from[2*i:]))
		}
	default:
		for i := range to {
			to[i] = math.Float32frombits(binary.LittleEndian.Uint32(from[4*i:]))
		}
	}
}

// roundFloats rounds numbers to a dtype.
func roundFloats(x []float32, dtype tensor.DType) {
	switch dtype {
	case tensor.Float16:
		tensor.RoundFloat16s(x)
	case tensor.BFloat16:
		for i, f := range x {
			x[i] = tensor.BFloat16ToFloat32(tensor.BFloat16FromFloat32(f))
		}
	}
}

// offsetFloats makes round(x − zero) × scale of numbers.
func offsetFloats(x []float32, scale, zero float32, dtype tensor.DType) {
	for i := range x {
		x[i] -= zero
	}
	roundFloats(x, dtype)
	for i := range x {
		x[i] *= scale
	}
}
