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

// stream is make_packed.py's.
func stream(seed uint32, size int64) storage.Extent {
	data := make([]byte, size)
	for i := range data {
		seed = seed*1664525 + 1013904223
		data[i] = byte(seed >> 24)
	}
	return storage.Extent{Source: &memory{data: data}, Bytes: size}
}

func scalesOf(d tensor.DType, n int64) storage.Extent {
	width := int64(d.Size())
	e := stream(2, width*n)
	data := e.Source.(*memory).data
	for i := width - 1; i < int64(len(data)); i += width {
		data[i] &= 0xbf
	}
	return e
}

type packedCase struct {
	matrix   func() (encoded.Matrix, *encoded.Encoding)
	columns  int64
	dtype    tensor.DType
	encoding string // "" for numbers
}

const packedRows, packedColumns = 32, 256

// packedCases are make_packed.py's.
func packedCases() map[string]packedCase {
	const rows, columns = packedRows, packedColumns
	words := func(order encoded.Order, bits int, group int64, less uint8) encoded.Words {
		zeros := int64(rows * bits / 32)
		w := encoded.Words{
			Rows: rows, Columns: columns, Group: group, Bits: bits, Order: order, Codes: stream(1, rows*columns*int64(bits)/8),
			Scales: scalesOf(tensor.Float16, columns/group*rows), DType: tensor.Float16,
			Zeros: stream(3, columns/group*zeros*4), ZeroLess: less,
		}
		return w
	}
	inRows := func(bits int, group int64, d tensor.DType, zeros bool) encoded.Words {
		w := words(encoded.InRows, bits, group, 0)
		w.DType, w.Scales, w.ByRow, w.Nothing = d, scalesOf(d, columns/group*rows), true, 1<<(bits-1)
		if !zeros {
			w.Zeros = storage.Extent{}
		}
		return w
	}
	ordered := words(encoded.AlongColumns, 4, 32, 1)
	index := make([]byte, 4*columns)
	for k := range columns {
		binary.LittleEndian.PutUint32(index[4*k:], uint32(k*7%(columns/32)))
	}
	ordered.Groups = storage.Extent{Source: &memory{data: index}, Bytes: int64(len(index))}
	signed := inRows(8, columns, tensor.BFloat16, false)
	signed.Order = encoded.SignedBytes
	fp8 := func(rows, columns, blockRows, blockColumns int64, scale, d tensor.DType) func() (encoded.Matrix, *encoded.Encoding) {
		codes := stream(1, rows*columns)
		for i := range codes.Source.(*memory).data {
			codes.Source.(*memory).data[i] &= 0xfe
		}
		n := (rows + blockRows - 1) / blockRows * ((columns + blockColumns - 1) / blockColumns)
		return encoded.Floats8{
			Rows: rows, Columns: columns, BlockRows: blockRows, BlockColumns: blockColumns, Codes: codes,
			Scales: scalesOf(scale, n), ScaleDType: scale, DType: d,
		}.Matrix
	}
	nested := func(kind string, d tensor.DType, eight bool) func() (encoded.Matrix, *encoded.Encoding) {
		w := encoded.Nested{
			Rows: rows, Columns: columns, Block: 64, Kind: kind, Codes: stream(1, rows*columns/2),
			Scales: scalesOf(tensor.Float32, rows*columns/64), DType: d,
		}
		if eight {
			w.Scales8, w.Scales, w.NestedBlock, w.Offset = stream(4, rows*columns/64), scalesOf(tensor.Float32, 2), 64, 0.3
			for i, b := 0, scalesOf(tensor.Float32, 256).Source.(*memory).data; i < 256; i++ {
				w.Map[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
			}
		}
		return func() (encoded.Matrix, *encoded.Encoding) {
			m, e, _ := w.Matrix()
			return m, e
		}
	}
	signed8 := func(columns, group int64, of127 bool, d tensor.DType) func() (encoded.Matrix, *encoded.Encoding) {
		return encoded.Signed8{
			Rows: rows, Columns: columns, Group: group, Codes: stream(1, rows*columns),
			Scales: scalesOf(tensor.Float32, rows*columns/group), Of127: of127, DType: d,
		}.Matrix
	}
	llm := func(columns int64, d tensor.DType) func() (encoded.Matrix, *encoded.Encoding) {
		return signed8(columns, columns, true, d)
	}
	return map[string]packedCase{
		"bnb nf4":             {nested("NF4", tensor.BFloat16, false), columns, tensor.BFloat16, "NF4/64 bfloat16"},
		"bnb fp4 nested":      {nested("FP4", tensor.Float16, true), columns, tensor.Float16, "FP4/64 float16"},
		"awq 128":             {words(encoded.AcrossRows, 4, 128, 0).Matrix, columns, tensor.Float16, "INT4/128 float16"},
		"awq 32":              {words(encoded.AcrossRows, 4, 32, 0).Matrix, columns, tensor.Float16, "INT4/32 float16"},
		"gptq 4 64":           {words(encoded.AlongColumns, 4, 64, 1).Matrix, columns, tensor.Float16, "INT4/64 float16"},
		"gptq 8 128":          {words(encoded.AlongColumns, 8, 128, 1).Matrix, columns, tensor.Float16, "INT8/128 float16"},
		"gptq 2 32":           {words(encoded.AlongColumns, 2, 32, 1).Matrix, columns, tensor.Float16, "INT4/32 float16"},
		"gptq 4 128 v2":       {words(encoded.AlongColumns, 4, 128, 0).Matrix, columns, tensor.Float16, "INT4/128 float16"},
		"gptq 4 32 act order": {ordered.Matrix, columns, tensor.Float16, ""},
		"gptq 4 16":           {words(encoded.AlongColumns, 4, 16, 1).Matrix, columns, tensor.Float16, ""},
		"gptq 3 32":           {words(encoded.AlongColumns, 3, 32, 1).Matrix, columns, tensor.Float16, "INT4/32 float16"},
		"gptq 3 128 v2":       {words(encoded.AlongColumns, 3, 128, 0).Matrix, columns, tensor.Float16, "INT4/128 float16"},
		"gptq 3 16":           {words(encoded.AlongColumns, 3, 16, 1).Matrix, columns, tensor.Float16, ""},
		"bnb int8":            {llm(columns, tensor.Float16), columns, tensor.Float16, "LLMINT8/128 float16"},
		"bnb int8 short":      {llm(40, tensor.BFloat16), 40, tensor.BFloat16, ""},
		"ao int8 rows":        {signed8(columns, columns, false, tensor.BFloat16), columns, tensor.BFloat16, "SINT8/128 bfloat16"},
		"ao int8 64":          {signed8(columns, 64, false, tensor.Float16), columns, tensor.Float16, "SINT8/64 float16"},
		"ao int8 short":       {signed8(40, 20, false, tensor.BFloat16), 40, tensor.BFloat16, ""},
		"ct 4 128":            {inRows(4, 128, tensor.BFloat16, false).Matrix, columns, tensor.BFloat16, "INT4/128 bfloat16"},
		"ct 4 32 zeros":       {inRows(4, 32, tensor.Float16, true).Matrix, columns, tensor.Float16, "INT4/32 float16"},
		"ct 8 256":            {inRows(8, 256, tensor.Float32, false).Matrix, columns, tensor.Float32, "INT8/128 float32"},
		"ct int8":             {signed.Matrix, columns, tensor.BFloat16, "INT8/128 bfloat16"},
		"fp8 blocks":          {fp8(24, 256, 8, 128, tensor.Float32, tensor.BFloat16), columns, tensor.BFloat16, "F8E4M3/128 bfloat16"},
		"fp8 edges":           {fp8(20, 200, 16, 128, tensor.Float32, tensor.BFloat16), 200, tensor.BFloat16, ""},
		"fp8 rows":            {fp8(24, 256, 1, 256, tensor.BFloat16, tensor.BFloat16), columns, tensor.BFloat16, "F8E4M3/128 bfloat16"},
		"fp8 whole":           {fp8(24, 96, 24, 96, tensor.Float32, tensor.Float32), 96, tensor.Float32, "F8E4M3/32 float32"},
	}
}

// TestNumbersAreThoseOfLibraries: what is made of packed codes is, to the bit, what the libraries make of them, whatever pieces it
// is read in.
func TestNumbersAreThoseOfLibraries(t *testing.T) {
	var want map[string]struct {
		First  []float32
		SHA256 string
	}
	text, err := os.ReadFile("testdata/packed.json")
	if err == nil {
		err = json.Unmarshal(text, &want)
	}
	if err != nil {
		t.Fatal(err)
	}
	cases := packedCases()
	if len(cases) != len(want) {
		t.Errorf("%d cases, and %d are recorded", len(cases), len(want))
	}
	for name, c := range cases {
		m, e := c.matrix()
		if (e != nil) != (c.encoding != "") || e != nil && e.Name != c.encoding {
			t.Errorf("%s: encoding %+v, want %q", name, e, c.encoding)
			continue
		}
		if m.SlabRows > 10 {
			m.SlabRows = 10 // several slabs
		}
		gap := encoded.Matrix{Rows: 1, RowBytes: 5, Fill: m.Fill}
		source, at := encoded.Make([]encoded.Matrix{m, m, gap})
		whole := make([]byte, m.Rows*m.RowBytes)
		if err := source.ReadAt(t.Context(), whole, at[1]); err != nil {
			t.Fatal(err)
		}
		rng := rand.New(rand.NewPCG(1, 9))
		for range 60 {
			n := 1 + rng.Int64N(int64(len(whole)))
			off := rng.Int64N(int64(len(whole)) - n + 1)
			p := bytes.Repeat([]byte{0xAA}, int(n))
			if err := source.ReadAt(t.Context(), p, at[1]+off); err != nil || !bytes.Equal(p, whole[off:off+n]) {
				t.Fatalf("%s: %d bytes at %d differ: %v", name, n, off, err)
			}
		}
		numbers := make([]float32, m.Rows*c.columns)
		if e != nil {
			e.Decode(numbers, whole)
		} else {
			for i := range numbers {
				switch c.dtype {
				case tensor.Float16:
					numbers[i] = tensor.Float16ToFloat32(binary.NativeEndian.Uint16(whole[2*i:]))
				default:
					numbers[i] = tensor.BFloat16ToFloat32(binary.NativeEndian.Uint16(whole[2*i:]))
				}
			}
		}
		var bits []byte
		for _, x := range numbers {
			bits = binary.LittleEndian.AppendUint32(bits, math.Float32bits(x))
		}
		if sum := sha256.Sum256(bits); hex.EncodeToString(sum[:]) != want[name].SHA256 {
			t.Errorf("%s begins %v, want %v", name, numbers[:4], want[name].First)
		}
		var parts int64
		for _, p := range m.Parts {
			parts += p.Bytes
		}
		if got := source.StoredBytes(at[0], m.Rows*m.RowBytes); got != parts {
			t.Errorf("%s: %d bytes are read for it, want %d", name, got, parts)
		}
	}
}
