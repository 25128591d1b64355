// Package encoded has the encodings of weights that GGUF files hold, blocks of codes with their scales, and sources of the
// numbers that they stand for.
//
// It knows what the bytes of a block mean, bit for bit as Python's package gguf computes it. It does not know file formats,
// models or which weight is for what.
//
//	e, _ := encoded.ByID(2) // Q4_0
//	source, offsets := encoded.New(file, []encoded.Run{{Encoding: e, Offset: 4096, Rows: 64, RowElements: 128}})
package encoded

import (
	"math"

	"github.com/optimem/optimem/tensor"
)

// An Encoding says how numbers lie in a file: in blocks of so many, which take so many bytes.
type Encoding struct {
	// ID is ggml's number of the encoding, Name its name.
	ID   uint32
	Name string
	// Elements and Bytes are those of a block.
	Elements, Bytes int64
	// DType is that of the numbers where a block is one of them as it is, else Invalid.
	DType tensor.DType
	// decode writes the numbers of one block, nil where they cannot be told.
	decode func(to []float32, block []byte)
}

// Readable reports whether the numbers of the encoding can be told.
func (e *Encoding) Readable() bool { return e.decode != nil || e.DType != tensor.Invalid }

// Decodes returns the dtype of the numbers: their own, or float32 for codes.
func (e *Encoding) Decodes() tensor.DType {
	if e.DType != tensor.Invalid {
		return e.DType
	}
	return tensor.Float32
}

// Decode writes the numbers of blocks.
func (e *Encoding) Decode(to []float32, blocks []byte) {
	for len(blocks) > 0 {
		e.decode(to[:e.Elements], blocks[:e.Bytes])
		to, blocks = to[e.Elements:], blocks[e.Bytes:]
	}
}

// mostElements is how many numbers a block has at most.
const mostElements = 256

// ByID returns ggml's encoding of a number.
func ByID(id uint32) (*Encoding, bool) {
	for i := range encodings {
		if encodings[i].ID == id {
			return &encodings[i], true
		}
	}
	return nil, false
}

// ByName returns the encoding of a name, ggml's or one of an own make.
func ByName(name string) (*Encoding, bool) {
	for i := range encodings {
		if encodings[i].Name == name {
			return &encodings[i], true
		}
	}
	for i := range own {
		if own[i].Name == name {
			return &own[i], true
		}
	}
	return nil, false
}

// BlockBytes returns what n numbers take, false where they are not whole blocks.
func (e *Encoding) BlockBytes(n int) (int, bool) {
	return n / int(e.Elements) * int(e.Bytes), n%int(e.Elements) == 0
}

// Numbers returns how many numbers so many bytes of whole blocks stand for.
func (e *Encoding) Numbers(bytes int64) int64 { return bytes / e.Bytes * e.Elements }

// All returns every encoding of ggml's.
func All() []*Encoding {
	all := make([]*Encoding, len(encodings))
	for i := range encodings {
		all[i] = &encodings[i]
	}
	return all
}

var encodings = []Encoding{
	{0, "F32", 1, 4, tensor.Float32, decodeF32},
	{1, "F16", 1, 2, tensor.Float16, decodeF16},
	{2, "Q4_0", 32, 18, tensor.Invalid, decodeQ40},
	{3, "Q4_1", 32, 20, tensor.Invalid, decodeQ41},
	{6, "Q5_0", 32, 22, tensor.Invalid, decodeQ50},
	{7, "Q5_1", 32, 24, tensor.Invalid, decodeQ51},
	{8, "Q8_0", 32, 34, tensor.Invalid, decodeQ80},
	{10, "Q2_K", 256, 84, tensor.Invalid, decodeQ2K},
	{11, "Q3_K", 256, 110, tensor.Invalid, decodeQ3K},
	{12, "Q4_K", 256, 144, tensor.Invalid, decodeQ4K},
	{13, "Q5_K", 256, 176, tensor.Invalid, decodeQ5K},
	{14, "Q6_K", 256, 210, tensor.Invalid, decodeQ6K},
	{16, "IQ2_XXS", 256, 66, tensor.Invalid, decodeIQ2XXS},
	{17, "IQ2_XS", 256, 74, tensor.Invalid, decodeIQ2XS},
	{18, "IQ3_XXS", 256, 98, tensor.Invalid, decodeIQ3XXS},
	{19, "IQ1_S", 256, 50, tensor.Invalid, decodeIQ1S},
	{20, "IQ4_NL", 32, 18, tensor.Invalid, decodeIQ4NL},
	{21, "IQ3_S", 256, 110, tensor.Invalid, decodeIQ3S},
	{22, "IQ2_S", 256, 82, tensor.Invalid, decodeIQ2S},
	{23, "IQ4_XS", 256, 136, tensor.Invalid, decodeIQ4XS},
	{24, "I8", 1, 1, tensor.Int8, nil},
	{25, "I16", 1, 2, tensor.Int16, nil},
	{26, "I32", 1, 4, tensor.Int32, nil},
	{27, "I64", 1, 8, tensor.Int64, nil},
	{28, "F64", 1, 8, tensor.Float64, nil},
	{29, "IQ1_M", 256, 56, tensor.Invalid, decodeIQ1M},
	{30, "BF16", 1, 2, tensor.BFloat16, decodeBF16},
	{34, "TQ1_0", 256, 54, tensor.Invalid, decodeTQ10},
	{35, "TQ2_0", 256, 66, tensor.Invalid, decodeTQ20},
	{39, "MXFP4", 32, 17, tensor.Invalid, decodeMXFP4},
	{40, "NVFP4", 64, 36, tensor.Invalid, nil},
	{41, "Q1_0", 128, 18, tensor.Invalid, nil},
}

// half reads a float16.
func half(b []byte) float32 { return tensor.Float16ToFloat32(word(b)) }

func word(b []byte) uint16 { return uint16(b[0]) | uint16(b[1])<<8 }

func double(b []byte) uint32 { return uint32(word(b)) | uint32(word(b[2:]))<<16 }

func decodeF32(to []float32, b []byte) { to[0] = math.Float32frombits(double(b)) }

func decodeF16(to []float32, b []byte) { to[0] = half(b) }

func decodeBF16(to []float32, b []byte) { to[0] = math.Float32frombits(uint32(word(b)) << 16) }
