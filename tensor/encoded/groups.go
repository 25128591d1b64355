package encoded

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/optimem/optimem/tensor"
)

// Blocks of an own make hold what libraries beside ggml make of weights. A block has numbers of one row that have a scale in
// common:
//
//	INT4, INT8   scale, in the dtype that products are rounded to; the code that stands for nothing; codes, of INT4 in half bytes,
//	             the low ones first:                            round((code − nothing) × scale)
//	F8E4M3       scale, float32; codes:                          round(float8_e4m3fn × scale)
//	LLMINT8      scale, float32; codes with a sign:              round(float32(code × scale) × float32(1 ÷ 127))
//	SINT8        scale, float32; codes with a sign:              round(code × scale)
//	NF4, FP4     scale, float32; codes in half bytes:            round(number of the code × scale)
//	HQQ4, HQQ8   scale and what stands for nothing, both in the dtype that is rounded to; codes as INT4's and INT8's:
//	             round(round(code − nothing) × scale)
//	MID4         scale and zero, both in the dtype; codes:       round(round((code − 8) × scale) + zero)
//	MLX4, MLX8   scale and zero, both in the dtype; codes:       round(float32(code × scale) + zero)
//
// Their names end in how many numbers a block has and in the dtype that numbers are rounded to, as the library rounds them.

// blockSizes are how many numbers blocks of an own make have, the largest first: fewer bytes go to scales.
var blockSizes = []int64{128, 64, 32}

// own are the encodings of an own make, which no file names.
var own = makeOwn()

// Own returns the encodings of an own make.
func Own() []*Encoding {
	all := make([]*Encoding, len(own))
	for i := range own {
		all[i] = &own[i]
	}
	return all
}

// ownID begins where no number of ggml's is.
const ownID = 1 << 20

func makeOwn() []Encoding {
	var all []Encoding
	dtypes := []tensor.DType{tensor.Float16, tensor.BFloat16, tensor.Float32}
	adder := func(n int64, dtype tensor.DType) func(kind string, bytes int64, decode func(to []float32, b []byte)) {
		return func(kind string, bytes int64, decode func(to []float32, b []byte)) {
			all = append(all, Encoding{
				ID: ownID + uint32(len(all)), Name: ownName(kind, n, dtype), Elements: n, Bytes: bytes,
				decode: decode,
			})
		}
	}
	for _, dtype := range dtypes {
		for _, n := range blockSizes {
			width, add := int64(dtype.Size()), adder(n, dtype)
			add("INT4", width+1+n/2, func(to []float32, b []byte) { decodeInt4(to, b, dtype) })
			add("INT8", width+1+n, func(to []float32, b []byte) { decodeInt8(to, b, dtype) })
			add("F8E4M3", 4+n, func(to []float32, b []byte) { decodeFloat8(to, b, dtype) })
			add("LLMINT8", 4+n, func(to []float32, b []byte) { decodeLLMInt8(to, b, dtype) })
			add("SINT8", 4+n, func(to []float32, b []byte) { decodeSigned8(to, b, dtype) })
			add("NF4", 4+n/2, func(to []float32, b []byte) { decodeTable(to, b, dtype, &tableNF4) })
			add("FP4", 4+n/2, func(to []float32, b []byte) { decodeTable(to, b, dtype, &tableFP4) })
		}
	}
	for _, dtype := range dtypes { // behind the others, whose numbers stay what they were
		for _, n := range blockSizes {
			width, add := int64(dtype.Size()), adder(n, dtype)
			add("HQQ4", 2*width+n/2, func(to []float32, b []byte) { decodeHQQ4(to, b, dtype) })
			add("HQQ8", 2*width+n, func(to []float32, b []byte) { decodeHQQ8(to, b, dtype) })
		}
	}
	for _, n := range blockSizes { // numbers that no library rounds to others
		const dtype = tensor.BFloat16
		adder(n, dtype)("E2M1", 4+n/2, func(to []float32, b []byte) { decodeTable(to, b, dtype, &tableE2M1) })
	}
	adder(32, tensor.BFloat16)("E2M1PAIR", 8+16,
		func(to []float32, b []byte) { decodeE2M1Pair(to, b, tensor.BFloat16) })
	for _, dtype := range dtypes[:2] {
		for _, n := range blockSizes {
			add := adder(n, dtype)
			if dtype == tensor.BFloat16 { // the only one that tinygemm has
				add("MID4", 4+n/2, func(to []float32, b []byte) { decodeMiddle4(to, b, dtype) })
			}
			add("MLX4", 4+n/2, func(to []float32, b []byte) { decodePlain4(to, b, dtype) })
			add("MLX8", 4+n, func(to []float32, b []byte) { decodePlain8(to, b, dtype) })
		}
	}
	return all
}

func ownName(kind string, n int64, dtype tensor.DType) string {
	return fmt.Sprintf("%s/%d %v", kind, n, dtype)
}

// ownEncoding returns the encoding of a kind whose blocks have as many numbers as can be of a group, and of rows, false where no
// block fits in.
func ownEncoding(kind string, group, columns int64, dtype tensor.DType) (*Encoding, bool) {
	for _, n := range blockSizes {
		if group%n != 0 || columns%n != 0 {
			continue
		}
		name := ownName(kind, n, dtype)
		for i := range own {
			if own[i].Name == name {
				return &own[i], true
			}
		}
	}
	return nil, false
}

// rounded rounds a number to a dtype.
func rounded(x float32, dtype tensor.DType) float32 {
	switch dtype {
	case tensor.Float16:
		return tensor.Float16ToFloat32(tensor.Float16FromFloat32(x))
	case tensor.BFloat16:
		return tensor.BFloat16ToFloat32(tensor.BFloat16FromFloat32(x))
	}
	return x
}

// loadFloat reads a number of a dtype.
func loadFloat(b []byte, dtype tensor.DType) float32 {
	switch dtype {
	case tensor.Float16:
		return half(b)
	case tensor.BFloat16:
		return tensor.BFloat16ToFloat32(word(b))
	}
	return math.Float32frombits(double(b))
}

// putFloat writes a number of a dtype, as blocks have it.
func putFloat(to []byte, x float32, dtype tensor.DType) {
	switch dtype {
	case tensor.Float16:
		binary.LittleEndian.PutUint16(to, tensor.Float16FromFloat32(x))
	case tensor.BFloat16:
		binary.LittleEndian.PutUint16(to, tensor.BFloat16FromFloat32(x))
	default:
		binary.LittleEndian.PutUint32(to, math.Float32bits(x))
	}
}

func decodeInt4(to []float32, b []byte, dtype tensor.DType) {
	width := dtype.Size()
	scale, nothing := loadFloat(b, dtype), int(b[width])
	var numbers [16]float32
	for c := range numbers {
		numbers[c] = rounded(float32(c-nothing)*scale, dtype)
	}
	halfBytes(to, b[width+1:], &numbers)
}

// halfBytes looks codes up, the low halves of bytes before the high ones.
func halfBytes(to []float32, codes []byte, numbers *[16]float32) {
	n := len(to) / 2
	low, high := to[:n], to[n:][:n]
	for i, c := range codes[:n] {
		low[i], high[i] = numbers[c&15], numbers[c>>4]
	}
}

func decodeInt8(to []float32, b []byte, dtype tensor.DType) {
	width := dtype.Size()
	scale, nothing := loadFloat(b, dtype), int(b[width])
	for i, c := range b[width+1:][:len(to)] {
		to[i] = rounded(float32(int(c)-nothing)*scale, dtype)
	}
}

func decodeFloat8(to []float32, b []byte, dtype tensor.DType) {
	scale := loadFloat(b, tensor.Float32)
	for i, c := range b[4:][:len(to)] {
		to[i] = rounded(tensor.Float8ToFloat32(tensor.Float8E4M3FN, c)*scale, dtype)
	}
}

// reciprocal127 is what bitsandbytes multiplies by to divide by 127.
const reciprocal127 = float32(7.874015718698502e-3)

func decodeLLMInt8(to []float32, b []byte, dtype tensor.DType) {
	llmInt8(to, b[4:], loadFloat(b, tensor.Float32))
	roundFloats(to, dtype)
}

// llmInt8 and signed8 are what codes stand for, not rounded yet.
func llmInt8(to []float32, codes []byte, scale float32) {
	for i, c := range codes[:len(to)] {
		to[i] = float32(float32(int8(c))*scale) * reciprocal127
	}
}

func decodeSigned8(to []float32, b []byte, dtype tensor.DType) {
	signed8(to, b[4:], loadFloat(b, tensor.Float32))
	roundFloats(to, dtype)
}

func signed8(to []float32, codes []byte, scale float32) {
	for i, c := range codes[:len(to)] {
		to[i] = float32(int8(c)) * scale
	}
}

// tableNF4 and tableFP4 are the numbers of bitsandbytes' codes of 4 bits.
var (
	tableNF4 = [16]float32{
		-1, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
		-0.09105003625154495, 0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
		0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1,
	}
	tableFP4 = [16]float32{
		0, 1.0 / 192, 2.0 / 3, 1, 1.0 / 3, 0.5, 1.0 / 6, 0.25, 0, -1.0 / 192, -2.0 / 3, -1, -1.0 / 3, -0.5, -1.0 / 6,
		-0.25,
	}
)

func decodeTable(to []float32, b []byte, dtype tensor.DType, table *[16]float32) {
	scale := loadFloat(b, tensor.Float32)
	var numbers [16]float32
	for c, x := range table {
		numbers[c] = rounded(x*scale, dtype)
	}
	halfBytes(to, b[4:], &numbers)
}

// TableOf returns the numbers of bitsandbytes' codes of 4 bits of a kind, "NF4" or "FP4", false for others.
func TableOf(kind string) ([16]float32, bool) {
	switch kind {
	case "NF4":
		return tableNF4, true
	case "FP4":
		return tableFP4, true
	}
	return [16]float32{}, false
}
