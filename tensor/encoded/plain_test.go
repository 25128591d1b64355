package encoded_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
	"github.com/optimem/optimem/tensor/encoded"
)

// The plain way to read codes: one number at a time, by what the types say of where it lies. What makes many at once is held
// against it.

// bitsAt are bits of an extent, from one on, of which the first of a byte is its least.
func bitsAt(e storage.Extent, at int64, bits int) uint8 {
	data, code := e.Source.(*memory).data, uint8(0)
	for i := range int64(bits) {
		code |= data[(at+i)/8] >> ((at + i) % 8) & 1 << i
	}
	return code
}

// floatAt is a number of an extent.
func floatAt(e storage.Extent, i int64, d tensor.DType) float32 {
	data := e.Source.(*memory).data
	switch d {
	case tensor.Int8:
		return float32(int8(data[i]))
	case tensor.Float16:
		return tensor.Float16ToFloat32(binary.LittleEndian.Uint16(data[2*i:]))
	case tensor.BFloat16:
		return tensor.BFloat16ToFloat32(binary.LittleEndian.Uint16(data[2*i:]))
	}
	return math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
}

func roundedTo(x float32, d tensor.DType) float32 {
	switch d {
	case tensor.Float16:
		return tensor.Float16ToFloat32(tensor.Float16FromFloat32(x))
	case tensor.BFloat16:
		return tensor.BFloat16ToFloat32(tensor.BFloat16FromFloat32(x))
	}
	return x
}

// plainWords is the number of a weight of words.
func plainWords(w encoded.Words, r, k int64) float32 {
	bits, codes := int64(w.Bits), int64(32/w.Bits)
	code := func(e storage.Extent, line, column, wide, i int64) uint8 {
		if w.Bits != 3 {
			return bitsAt(e, (line*wide+column)*32+i*bits, w.Bits)
		}
		c := uint8(0)
		for b := range int64(3) { // a code may be in two words
			c |= bitsAt(e, ((line*3+(i*3+b)/32)*wide+column)*32+(i*3+b)%32, 1) << b
		}
		return c
	}
	if w.Bits == 3 {
		codes = 32
	}
	turned := []int64{0, 4, 1, 5, 2, 6, 3, 7}
	var c uint8
	switch w.Order {
	case encoded.AlongColumns:
		c = code(w.Codes, k/codes, r, w.Rows, k%codes)
	case encoded.AcrossRows:
		c = code(w.Codes, k, r/codes, w.Rows/codes, turned[r%8])
	case encoded.InRows:
		c = code(w.Codes, r, k/codes, (w.Columns+codes-1)/codes, k%codes)
	default:
		c = w.Codes.Source.(*memory).data[r*w.Columns+k] ^ 0x80
	}
	groups := (w.Columns + w.Group - 1) / w.Group
	g := k / w.Group
	if w.Groups.Bytes > 0 {
		g = int64(binary.LittleEndian.Uint32(w.Groups.Source.(*memory).data[4*k:]))
	}
	at, nothing := g*w.Rows+r, w.Nothing
	if w.ByRow {
		at = r*groups + g
	}
	if w.Zeros.Bytes > 0 {
		switch {
		case w.ByRow:
			nothing = code(w.Zeros, r/codes, g, groups, r%codes)
		case w.Bits == 3:
			nothing = bitsAt(w.Zeros, (g*w.Rows+r)*3, 3)
		case w.Order == encoded.AcrossRows:
			nothing = code(w.Zeros, g, r/codes, w.Rows/codes, turned[r%8])
		default:
			nothing = code(w.Zeros, g, r/codes, (w.Rows+codes-1)/codes, r%codes)
		}
		nothing += w.ZeroLess
		if w.Bits != 3 {
			nothing &= uint8(1<<w.Bits - 1)
		}
	}
	return roundedTo(float32(int(c)-int(nothing))*floatAt(w.Scales, at, w.DType), w.DType)
}

// checkPlain holds what a matrix makes against numbers made one at a time.
func checkPlain(t *testing.T, name string, m encoded.Matrix, e *encoded.Encoding, columns int64, d tensor.DType,
	plain func(r, k int64) float32) {
	t.Helper()
	m.SlabRows = min(m.SlabRows, 13)
	source, _ := encoded.Make([]encoded.Matrix{m})
	whole := make([]byte, m.Rows*m.RowBytes)
	if err := source.ReadAt(t.Context(), whole, 0); err != nil {
		t.Fatal(err)
	}
	numbers := numbersOf(whole, m.Rows*columns, d, e)
	for i, x := range numbers {
		r, k := int64(i)/columns, int64(i)%columns
		if want := plain(r, k); math.Float32bits(want) != math.Float32bits(x) && (want == want || x == x) {
			t.Fatalf("%s: row %d column %d is %v, want %v", name, r, k, x, want)
		}
	}
}

// TestWordsAsPlain: words of every order, of every number of bits, with groups in order and in none.
func TestWordsAsPlain(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 1))
	for _, d := range []tensor.DType{tensor.Float16, tensor.BFloat16, tensor.Float32} {
		for _, c := range []struct {
			order encoded.Order
			bits  int
		}{
			{encoded.AlongColumns, 2}, {encoded.AlongColumns, 3}, {encoded.AlongColumns, 4}, {encoded.AlongColumns, 8},
			{encoded.AcrossRows, 4}, {encoded.InRows, 4}, {encoded.InRows, 8}, {encoded.SignedBytes, 8},
		} {
			for _, group := range []int64{16, 32, 96, 160} {
				for _, zeros := range []bool{false, true} {
					for _, mixed := range []bool{false, true} {
						rows := int64(32 * (1 + rng.IntN(2)))
						columns := int64(480)
						groups := (columns + group - 1) / group
						w := encoded.Words{
							Rows: rows, Columns: columns, Group: group, Bits: c.bits, Order: c.order, DType: d,
							Codes: stream(rng.Uint32(), rows*columns*int64(c.bits)/8), ByRow: c.order >= encoded.InRows,
							Scales: multiples(rng.Uint32(), d, groups*rows, 1.0/1024), Nothing: 1 << (c.bits - 1),
							ZeroLess: uint8(rng.IntN(2)),
						}
						if zeros && c.order != encoded.SignedBytes {
							w.Zeros = stream(rng.Uint32(), groups*rows*int64(c.bits)/8)
						}
						if mixed {
							index := make([]byte, 0, 4*columns)
							for range columns {
								index = binary.LittleEndian.AppendUint32(index, uint32(rng.IntN(int(groups))))
							}
							w.Groups = held(index)
						}
						m, e := w.Matrix()
						name := fmt.Sprintf("order %d, %d bits, group %d, zeros %v, mixed %v, %v", c.order, c.bits, group, zeros, mixed, d)
						checkPlain(t, name, m, e, columns, d, func(r, k int64) float32 { return plainWords(w, r, k) })
					}
				}
			}
		}
	}
}
