package encoded_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
	"github.com/optimem/optimem/tensor/encoded"
)

// held is an extent of bytes.
func held(data []byte) storage.Extent {
	return storage.Extent{Source: &memory{data: data}, Bytes: int64(len(data))}
}

// codesOf are make_torchao.py's codes.
func codesOf(seed uint32, low, high int, n int64) []int {
	all := make([]int, n)
	for i, b := range stream(seed, n).Source.(*memory).data {
		all[i] = int(b)%(high-low+1) + low
	}
	return all
}

func bytesOf(codes []int) []byte {
	data := make([]byte, len(codes))
	for i, c := range codes {
		data[i] = byte(c)
	}
	return data
}

// halvesOf puts two codes in a byte, the first in the low half.
func halvesOf(codes []int, less int) []byte {
	data := make([]byte, len(codes)/2)
	for i := range data {
		data[i] = byte((codes[2*i]-less)&15 | (codes[2*i+1]-less)&15<<4)
	}
	return data
}

// turned is [column][row] of [row][column], of elements of a width.
func turned(e storage.Extent, rows, columns, width int64) []byte {
	data := e.Source.(*memory).data
	out := make([]byte, len(data))
	for r := range rows {
		for c := range columns {
			copy(out[(c*rows+r)*width:][:width], data[(r*columns+c)*width:][:width])
		}
	}
	return out
}

// tilesOf puts codes where tinygemm's kernels read them.
func tilesOf(codes []int, rows, wide int64) []byte {
	data := make([]byte, rows*wide/2)
	for r := range rows {
		for k := range wide {
			in := k % 128
			word, within := in/32, in%32
			lane := r%8*4 + within%8/2
			at := (((r/8*(wide/128)+k/128)*32+lane)*4 + word) * 4
			place := within/8 + within%2*4
			data[at+place/2] |= byte(codes[r*wide+k]) << (place % 2 * 4)
		}
	}
	return data
}

// pairsOf puts scales and zeros beside each other, [group][row][2].
func pairsOf(scales, zeros []byte) []byte {
	var out []byte
	for i := 0; i < len(scales); i += 2 {
		out = append(append(out, scales[i:i+2]...), zeros[i:i+2]...)
	}
	return out
}

// affineCases are make_torchao.py's.
func affineCases() map[string]packedCase {
	const rows, columns = 24, 256
	bf, half, single := tensor.BFloat16, tensor.Float16, tensor.Float32
	int8 := func(d tensor.DType, group int64, zeros bool) func() (encoded.Matrix, *encoded.Encoding) {
		n := rows * columns / group
		a := encoded.Affine{
			Rows: rows, Columns: columns, Group: group, Bits: 8, Signed: true, Codes: held(bytesOf(codesOf(1, -128, 127, rows*columns))),
			Scales: multiples(2, single, n, 1.0/1024), ScaleDType: single, DType: d,
		}
		if zeros {
			a.Zeros, a.ZeroDType = held(bytesOf(codesOf(3, -9, 9, n))), tensor.Int8
			return a.Matrix
		}
		return encoded.Signed8{Rows: rows, Columns: columns, Group: group, Codes: a.Codes, Scales: a.Scales, DType: d}.Matrix
	}
	whole := encoded.Signed8{
		Rows: rows, Columns: columns, Group: columns, Codes: held(bytesOf(codesOf(1, -128, 127, rows*columns))),
		Scales: multiples(2, single, 1, 1.0/1024), Whole: true, DType: bf,
	}
	intx := func(d tensor.DType, group int64, bits int, zero tensor.DType) func() (encoded.Matrix, *encoded.Encoding) {
		n := rows * columns / group
		a := encoded.Affine{
			Rows: rows, Columns: columns, Group: group, Bits: 8, Signed: true, ScaleDType: d, ZeroDType: zero, DType: d,
			Codes: held(bytesOf(codesOf(1, -1<<(bits-1), 1<<(bits-1)-1, rows*columns))), Scales: multiples(2, d, n, 1.0/1024),
		}
		switch zero {
		case tensor.Int8:
			a.Zeros = held(bytesOf(codesOf(3, -4, 3, n)))
		case tensor.Invalid:
		default:
			a.Zeros, a.Rule = multiples(3, zero, n, 1.0/64), encoded.OffsetFloat
		}
		return a.Matrix
	}
	tile := func(rows, columns, group int64) func() (encoded.Matrix, *encoded.Encoding) {
		high, wide := (rows+7)/8*8, (columns+1023)/1024*1024
		s, z := multiples(2, bf, high*wide/group, 1.0/1024), multiples(3, bf, high*wide/group, 1.0/64)
		return encoded.Affine{
			Rows: rows, Columns: columns, Group: group, Bits: 4, Rule: encoded.MiddleFloat, Tiles: true, Wide: wide, GroupRows: high,
			Codes:  held(tilesOf(codesOf(1, 0, 15, high*wide), high, wide)),
			Scales: held(pairsOf(turned(s, high, wide/group, 2), turned(z, high, wide/group, 2))), ScaleDType: bf, ByGroup: true,
			Paired: true, DType: bf,
		}.Matrix
	}
	int4 := func(d tensor.DType, group int64, words bool) func() (encoded.Matrix, *encoded.Encoding) {
		groups := columns / group
		a := encoded.Affine{
			Rows: rows, Columns: columns, Group: group, Bits: 4, Rule: encoded.MiddleFloat, Signed: true, ScaleDType: d, ZeroDType: d,
			Codes: held(halvesOf(codesOf(1, 0, 15, rows*columns), 8)), ByGroup: true, DType: d,
			Scales: held(turned(multiples(2, d, rows*groups, 1.0/1024), rows, groups, 2)),
			Zeros:  held(turned(multiples(3, d, rows*groups, 1.0/64), rows, groups, 2)),
		}
		if words {
			a.Rule, a.Signed, a.ZeroDType = encoded.OffsetInteger, false, tensor.Int8
			a.Codes = held(halvesOf(codesOf(1, 0, 15, rows*columns), 0))
			a.Zeros = held(turned(held(bytesOf(codesOf(3, 0, 15, rows*groups))), rows, groups, 1))
		}
		return a.Matrix
	}
	metal := func(d tensor.DType, group int64, bits int) func() (encoded.Matrix, *encoded.Encoding) {
		return encoded.Affine{
			Rows: rows, Columns: columns, Group: group, Bits: bits, Rule: encoded.PlainFloat, Codes: stream(1, rows*columns*int64(bits)/8),
			Scales: multiples(2, d, rows*columns/group, 1.0/1024), Zeros: multiples(3, d, rows*columns/group, 1.0/64), ScaleDType: d,
			ZeroDType: d, DType: d,
		}.Matrix
	}
	bitnet := func(columns int64, divides bool) func() (encoded.Matrix, *encoded.Encoding) {
		raw := codesOf(1, 0, 2, rows*columns)
		packed := make([]byte, rows/4*columns)
		for i, c := range raw {
			packed[i%len(packed)] |= byte(c) << (2 * (i / len(packed)))
		}
		scale := held(binary.LittleEndian.AppendUint32(nil, math.Float32bits(0.71875)))
		return encoded.Ternary{Rows: rows, Columns: columns, Codes: held(packed), Scale: scale, ScaleDType: single, Divides: divides}.Matrix
	}
	return map[string]packedCase{
		"int8 rows":       {int8(bf, columns, false), columns, bf, "SINT8/128 bfloat16"},
		"int8 64":         {int8(half, 64, false), columns, half, "SINT8/64 float16"},
		"int8 zeros":      {int8(bf, 64, true), columns, bf, ""},
		"int8 whole":      {whole.Matrix, columns, bf, "SINT8/128 bfloat16"},
		"intx 4 32":       {intx(bf, 32, 4, tensor.Invalid), columns, bf, "INT8/32 bfloat16"},
		"intx 4 32 zeros": {intx(half, 32, 4, tensor.Int8), columns, half, "INT8/32 float16"},
		"intx 8 rows":     {intx(bf, columns, 8, tensor.Int8), columns, bf, "INT8/128 bfloat16"},
		"intx 3 floats":   {intx(bf, 64, 3, bf), columns, bf, ""},
		"intx 2 16":       {intx(half, 16, 2, tensor.Int8), columns, half, ""},
		"tiles":           {tile(24, 256, 64), columns, bf, "MID4/64 bfloat16"},
		"tiles cut":       {tile(20, 136, 32), 136, bf, ""},
		"int4":            {int4(bf, 128, false), columns, bf, "MID4/128 bfloat16"},
		"int4 half":       {int4(half, 32, false), columns, half, ""},
		"int4 words":      {int4(bf, 32, true), columns, bf, "INT4/32 bfloat16"},
		"int4 words half": {int4(half, 64, true), columns, half, "INT4/64 float16"},
		"metal 4 64":      {metal(bf, 64, 4), columns, bf, "MLX4/64 bfloat16"},
		"metal 8 128":     {metal(half, 128, 8), columns, half, "MLX8/128 float16"},
		"metal 2 32":      {metal(bf, 32, 2), columns, bf, "MLX4/32 bfloat16"},
		"metal 4 single":  {metal(single, 64, 4), columns, single, ""},
		"metal 4 16":      {metal(half, 16, 4), columns, half, ""},
		"bitnet":          {bitnet(256, true), 256, single, "INT4/128 float32"},
		"bitnet auto":     {bitnet(256, false), 256, single, "INT4/128 float32"},
		"bitnet odd":      {bitnet(40, true), 40, single, ""},
	}
}

// TestNumbersOfTorchAO: what is made of torchao's, MLX's and bitnet's codes is to the bit what the libraries make of them, as blocks
// where these fit, and whatever pieces it is read in.
func TestNumbersOfTorchAO(t *testing.T) {
	var recorded struct {
		Numbers map[string]struct {
			First  []float32
			SHA256 string
		}
	}
	text, err := os.ReadFile("testdata/torchao.json")
	if err == nil {
		err = json.Unmarshal(text, &recorded)
	}
	if err != nil {
		t.Fatal(err)
	}
	cases := affineCases()
	if len(cases) != len(recorded.Numbers) {
		t.Errorf("%d cases, and %d are recorded", len(cases), len(recorded.Numbers))
	}
	for name, c := range cases {
		m, e := c.matrix()
		if (e != nil) != (c.encoding != "") || e != nil && e.Name != c.encoding {
			t.Errorf("%s: encoding %+v, want %q", name, e, c.encoding)
			continue
		}
		m.SlabRows = min(m.SlabRows, 7) // several slabs, which begin within tiles
		source, _ := encoded.Make([]encoded.Matrix{m})
		whole := make([]byte, m.Rows*m.RowBytes)
		if err := source.ReadAt(t.Context(), whole, 0); err != nil {
			t.Fatal(err)
		}
		rng := rand.New(rand.NewPCG(1, 9))
		for range 20 {
			n := 1 + rng.Int64N(int64(len(whole)))
			off := rng.Int64N(int64(len(whole)) - n + 1)
			p := bytes.Repeat([]byte{0xAA}, int(n))
			if err := source.ReadAt(t.Context(), p, off); err != nil || !bytes.Equal(p, whole[off:off+n]) {
				t.Fatalf("%s: %d bytes at %d differ: %v", name, n, off, err)
			}
		}
		var bits []byte
		numbers := numbersOf(whole, m.Rows*c.columns, c.dtype, e)
		for _, x := range numbers {
			bits = binary.LittleEndian.AppendUint32(bits, math.Float32bits(x))
		}
		if sum := sha256.Sum256(bits); hex.EncodeToString(sum[:]) != recorded.Numbers[name].SHA256 {
			t.Errorf("%s begins %v, want %v", name, numbers[:4], recorded.Numbers[name].First)
		}
	}
}

// numbersOf decodes blocks, or reads numbers of a dtype.
func numbersOf(data []byte, n int64, d tensor.DType, e *encoded.Encoding) []float32 {
	numbers := make([]float32, n)
	if e != nil {
		e.Decode(numbers, data)
		return numbers
	}
	for i := range numbers {
		switch d {
		case tensor.Float16:
			numbers[i] = tensor.Float16ToFloat32(binary.NativeEndian.Uint16(data[2*i:]))
		case tensor.BFloat16:
			numbers[i] = tensor.BFloat16ToFloat32(binary.NativeEndian.Uint16(data[2*i:]))
		default:
			numbers[i] = math.Float32frombits(binary.NativeEndian.Uint32(data[4*i:]))
		}
	}
	return numbers
}

// TestZeroPointOutside: a zero point that no code can be is an error where the row is made, not another number.
func TestZeroPointOutside(t *testing.T) {
	a := encoded.Affine{
		Rows: 1, Columns: 32, Group: 32, Bits: 4, Codes: held(make([]byte, 16)), Scales: held(make([]byte, 2)), Zeros: held([]byte{16}),
		ScaleDType: tensor.BFloat16, ZeroDType: tensor.Int8, ByGroup: true, DType: tensor.BFloat16,
	}
	m, e := a.Matrix()
	if e == nil {
		t.Fatal("no blocks")
	}
	source, _ := encoded.Make([]encoded.Matrix{m})
	if err := source.ReadAt(t.Context(), make([]byte, m.RowBytes), 0); err == nil {
		t.Error("no error")
	}
}
