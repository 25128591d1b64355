package encoded_test

import (
	"encoding/binary"
	"testing"

	"github.com/optimem/optimem/tensor"
	"github.com/optimem/optimem/tensor/encoded"
)

const benchRows, benchColumns, benchGroup = 2048, 2048, 128

// benchWords are codes in words, with zero points where codes lie in columns.
func benchWords(order encoded.Order, bits int) encoded.Words {
	const rows, columns, group = benchRows, benchColumns, benchGroup
	w := encoded.Words{
		Rows: rows, Columns: columns, Group: group, Bits: bits, Order: order, Codes: stream(1, int64(rows*columns*bits/8)),
		Scales: multiples(2, tensor.Float16, rows*columns/group, 1.0/1024), DType: tensor.Float16, ByRow: order >= encoded.InRows, Nothing: 8,
	}
	if order < encoded.InRows {
		w.Zeros = stream(3, int64(rows*columns/group*bits/8))
	}
	return w
}

// mixed are groups of columns in no order.
func mixed(w encoded.Words) encoded.Words {
	data := make([]byte, 0, 4*w.Columns)
	for k := range w.Columns {
		data = binary.LittleEndian.AppendUint32(data, uint32(k*7%(w.Columns/w.Group)))
	}
	w.Groups = held(data)
	return w
}

// benchAffine are bytes with a sign and with zero points, as torchao has them.
func benchAffine(scale, dtype tensor.DType, zero tensor.DType, rule encoded.Rule) func() (encoded.Matrix, *encoded.Encoding) {
	const rows, columns, group = benchRows, benchColumns, benchGroup
	zeros := held(bytesOf(codesOf(3, -9, 9, rows*columns/group)))
	if zero != tensor.Int8 {
		zeros = multiples(3, zero, rows*columns/group, 1.0/64)
	}
	return encoded.Affine{
		Rows: rows, Columns: columns, Group: group, Bits: 8, Signed: true, Rule: rule, Codes: stream(1, rows*columns),
		Scales: multiples(2, scale, rows*columns/group, 1.0/1024), ScaleDType: scale, Zeros: zeros, ZeroDType: zero, DType: dtype,
	}.Matrix
}

// BenchmarkMade makes the blocks, or the numbers where none fit, that weights of codes are read as, in bytes of what is made.
func BenchmarkMade(b *testing.B) {
	const rows, columns, group = benchRows, benchColumns, benchGroup
	hqq := func(bits int, across bool) func() (encoded.Matrix, *encoded.Encoding) {
		q := encoded.HalfQuadratic{
			Rows: rows, Columns: columns, Group: group, Bits: bits, Across: across, DType: tensor.Float16,
			Scales: multiples(2, tensor.Float16, rows*columns/group, 1.0/1024),
			Zeros:  multiples(3, tensor.Float16, rows*columns/group, 1.0/16),
		}
		size, _ := q.CodeBytes()
		q.Codes = stream(1, size)
		return q.Matrix
	}
	nested := encoded.Nested{
		Rows: rows, Columns: columns, Block: 64, Kind: "NF4", Codes: stream(1, rows*columns/2), DType: tensor.BFloat16,
		Scales8: stream(4, rows*columns/64), Scales: multiples(2, tensor.Float32, rows*columns/64/256, 1.0/1024), NestedBlock: 256, Offset: 0.3,
	}
	signed := encoded.Signed8{
		Rows: rows, Columns: columns, Group: columns, Codes: stream(1, rows*columns), Scales: multiples(2, tensor.Float32, rows, 1.0/1024),
		Of127: true, DType: tensor.Float16,
	}
	cut := signed
	cut.Columns, cut.Group, cut.Scales = columns-8, columns-8, signed.Scales
	fp8 := encoded.Floats8{
		Rows: rows, Columns: columns, BlockRows: 128, BlockColumns: 128, Codes: stream(1, rows*columns),
		Scales: multiples(2, tensor.Float32, rows*columns/128/128, 1.0/1024), ScaleDType: tensor.Float32, DType: tensor.BFloat16,
	}
	fp8Cut := fp8
	fp8Cut.Columns = columns - 8
	zeros := benchWords(encoded.InRows, 4)
	zeros.Zeros = stream(3, rows*columns/group/2)
	sixteen := benchWords(encoded.AlongColumns, 4)
	sixteen.Group, sixteen.Scales, sixteen.Zeros = 16, multiples(2, tensor.Float16, rows*columns/16, 1.0/1024), stream(3, rows*columns/16/2)
	for _, c := range []struct {
		name   string
		matrix func() (encoded.Matrix, *encoded.Encoding)
	}{
		{"AWQ", benchWords(encoded.AcrossRows, 4).Matrix},
		{"GPTQ", benchWords(encoded.AlongColumns, 4).Matrix},
		{"GPTQ 8", benchWords(encoded.AlongColumns, 8).Matrix},
		{"GPTQ 3", benchWords(encoded.AlongColumns, 3).Matrix},
		{"GPTQ 2", benchWords(encoded.AlongColumns, 2).Matrix},
		{"GPTQ mixed", mixed(benchWords(encoded.AlongColumns, 4)).Matrix},
		{"GPTQ 8 mixed", mixed(benchWords(encoded.AlongColumns, 8)).Matrix},
		{"GPTQ 3 mixed", mixed(benchWords(encoded.AlongColumns, 3)).Matrix},
		{"GPTQ 16", sixteen.Matrix},
		{"compressed-tensors", benchWords(encoded.InRows, 4).Matrix},
		{"compressed-tensors zeros", zeros.Matrix},
		{"compressed-tensors mixed", mixed(benchWords(encoded.InRows, 4)).Matrix},
		{"compressed-tensors 8", benchWords(encoded.InRows, 8).Matrix},
		{"int8", benchWords(encoded.SignedBytes, 8).Matrix},
		{"int8 zeros", benchAffine(tensor.Float32, tensor.BFloat16, tensor.Int8, encoded.OffsetInteger)},
		{"intx", benchAffine(tensor.BFloat16, tensor.BFloat16, tensor.Int8, encoded.OffsetInteger)},
		{"intx floats", benchAffine(tensor.BFloat16, tensor.BFloat16, tensor.BFloat16, encoded.OffsetFloat)},
		{"HQQ 8", hqq(8, false)},
		{"HQQ 4", hqq(4, false)},
		{"HQQ 3", hqq(3, false)},
		{"HQQ 2", hqq(2, false)},
		{"HQQ 1", hqq(1, false)},
		{"HQQ 4 across", hqq(4, true)},
		{"HQQ 3 across", hqq(3, true)},
		{"NF4", func() (encoded.Matrix, *encoded.Encoding) { m, e, _ := nested.Matrix(); return m, e }},
		{"LLM.int8", signed.Matrix},
		{"LLM.int8 cut", cut.Matrix},
		{"fp8", fp8.Matrix},
		{"fp8 cut", fp8Cut.Matrix},
	} {
		b.Run(c.name, func(b *testing.B) {
			m, _ := c.matrix()
			source, at := encoded.Make([]encoded.Matrix{m})
			p := make([]byte, m.Rows*m.RowBytes)
			b.SetBytes(int64(len(p)))
			for b.Loop() {
				if err := source.ReadAt(b.Context(), p, at[0]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
