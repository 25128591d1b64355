package encoded_test

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"math"
	"os"
	"testing"

	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
	"github.com/optimem/optimem/tensor/encoded"
)

// multiples are make_hqq.py's floats.
func multiples(seed uint32, d tensor.DType, n int64, by float32) storage.Extent {
	var data []byte
	for _, b := range stream(seed, n).Source.(*memory).data {
		switch x := float32(b) * by; d {
		case tensor.Float16:
			data = binary.LittleEndian.AppendUint16(data, tensor.Float16FromFloat32(x))
		case tensor.BFloat16:
			data = binary.LittleEndian.AppendUint16(data, tensor.BFloat16FromFloat32(x))
		default:
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(x))
		}
	}
	return storage.Extent{Source: &memory{data: data}, Bytes: int64(len(data))}
}

// TestNumbersOfHQQ: what is made of HQQ's codes, of every number of bits and along both axes, is to the bit what the library makes
// of them, as blocks where these fit, and whatever pieces it is read in.
func TestNumbersOfHQQ(t *testing.T) {
	var cases []struct {
		Rows, Columns, Group int64
		Bits, Axis           int
		DType, SHA256        string
		First                []float32
	}
	text, err := os.ReadFile("testdata/hqq.json")
	if err == nil {
		err = json.Unmarshal(text, &cases)
	}
	if err != nil || len(cases) != 12 {
		t.Fatalf("%d cases: %v", len(cases), err)
	}
	blocks := 0
	for _, c := range cases {
		d, _ := tensor.ParseDType(c.DType)
		groups := c.Rows * c.Columns / c.Group
		q := encoded.HalfQuadratic{
			Rows: c.Rows, Columns: c.Columns, Group: c.Group, Bits: c.Bits, Across: c.Axis == 0, DType: d,
			Scales: multiples(2, d, groups, 1.0/1024), Zeros: multiples(3, d, groups, 1.0/16),
		}
		size, ok := q.CodeBytes()
		if !ok {
			t.Errorf("%+v: no codes", c)
			continue
		}
		q.Codes = stream(1, size)
		m, e := q.Matrix()
		m.SlabRows = 7
		source, _ := encoded.Make([]encoded.Matrix{m})
		whole := make([]byte, m.Rows*m.RowBytes)
		if err := source.ReadAt(t.Context(), whole, 0); err != nil {
			t.Fatal(err)
		}
		numbers := make([]float32, c.Rows*c.Columns)
		for i := range numbers {
			if e != nil {
				break
			}
			switch d {
			case tensor.Float16:
				numbers[i] = tensor.Float16ToFloat32(binary.NativeEndian.Uint16(whole[2*i:]))
			case tensor.BFloat16:
				numbers[i] = tensor.BFloat16ToFloat32(binary.NativeEndian.Uint16(whole[2*i:]))
			default:
				numbers[i] = math.Float32frombits(binary.NativeEndian.Uint32(whole[4*i:]))
			}
		}
		if e != nil {
			blocks++
			e.Decode(numbers, whole)
		}
		var bits []byte
		for _, x := range numbers {
			bits = binary.LittleEndian.AppendUint32(bits, math.Float32bits(x))
		}
		if sum := sha256.Sum256(bits); hex.EncodeToString(sum[:]) != c.SHA256 {
			t.Errorf("%+v begins %v", c, numbers[:4])
		}
	}
	if blocks != 6 {
		t.Errorf("%d weights are blocks", blocks)
	}
	odd := encoded.HalfQuadratic{Rows: 3, Columns: 64, Group: 64, Bits: 4}
	if _, ok := odd.CodeBytes(); ok {
		t.Error("three groups share bytes by twos")
	}
}
