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

// masked is a stream of some bits of bytes.
func masked(seed uint32, size int64, mask byte) storage.Extent {
	e := stream(seed, size)
	for i := range e.Source.(*memory).data {
		e.Source.(*memory).data[i] &= mask
	}
	return e
}

// TestNumbersOfFours: NVFP4, MXFP4 and MXFP8 have the bits that compressed-tensors decompresses, as blocks and, where
// none fit, as numbers, whatever rows they are read in.
func TestNumbersOfFours(t *testing.T) {
	var want map[string]struct {
		First  []float32
		SHA256 string
	}
	text, err := os.ReadFile("testdata/fours.json")
	if err == nil {
		err = json.Unmarshal(text, &want)
	}
	if err != nil {
		t.Fatal(err)
	}
	const rows = 12
	nvfp4 := func(columns int64, global float32) packedCase {
		f := encoded.Fours{
			Rows: rows, Columns: columns, Group: 16, Codes: stream(1, rows*columns/2),
			Scales: masked(2, rows*columns/16, 0x7e), Global: global, DType: tensor.BFloat16,
		}
		return packedCase{f.Matrix, columns, tensor.BFloat16, "E2M1PAIR/32 bfloat16"}
	}
	odd := nvfp4(48, 3)
	odd.encoding = ""
	cases := map[string]packedCase{
		"nvfp4": nvfp4(256, 437.5), "nvfp4 plain": nvfp4(64, 0), "nvfp4 odd": odd,
		"mxfp4": {encoded.Fours{
			Rows: rows, Columns: 256, Group: 32, Codes: stream(1, rows*128), Scales: masked(2, rows*8, 0xfe),
			Powers: true, DType: tensor.BFloat16,
		}.Matrix, 256, tensor.BFloat16, "E2M1/32 bfloat16"},
		"mxfp8": {encoded.Floats8{
			Rows: rows, Columns: 96, BlockRows: 1, BlockColumns: 32, Codes: masked(1, rows*96, 0xfe),
			Scales: masked(2, rows*3, 0xfe), ScaleDType: tensor.UInt8, DType: tensor.BFloat16,
		}.Matrix, 96, tensor.BFloat16, "F8E4M3/32 bfloat16"},
	}
	if len(cases) != len(want) {
		t.Errorf("%d cases, and %d are recorded", len(cases), len(want))
	}
	for name, c := range cases {
		m, e := c.matrix()
		if (e != nil) != (c.encoding != "") || e != nil && e.Name != c.encoding {
			t.Errorf("%s: encoding %+v, want %q", name, e, c.encoding)
			continue
		}
		m.SlabRows = 5
		source, at := encoded.Make([]encoded.Matrix{m})
		whole := make([]byte, m.Rows*m.RowBytes)
		if err := source.ReadAt(t.Context(), whole, at[0]); err != nil {
			t.Fatal(err)
		}
		numbers := make([]float32, m.Rows*c.columns)
		if e != nil {
			e.Decode(numbers, whole)
		} else {
			for i := range numbers {
				numbers[i] = tensor.BFloat16ToFloat32(binary.NativeEndian.Uint16(whole[2*i:]))
			}
		}
		var bits []byte
		for _, x := range numbers {
			bits = binary.LittleEndian.AppendUint32(bits, math.Float32bits(x))
		}
		if sum := sha256.Sum256(bits); hex.EncodeToString(sum[:]) != want[name].SHA256 {
			t.Errorf("%s begins %v, want %v", name, numbers[:4], want[name].First)
		}
	}
}
