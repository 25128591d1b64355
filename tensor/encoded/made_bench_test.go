package encoded_test

import (
	"testing"

	"github.com/optimem/optimem/tensor"
	"github.com/optimem/optimem/tensor/encoded"
)

// BenchmarkMade makes the blocks that weights of packed codes are read as, in bytes of blocks.
func BenchmarkMade(b *testing.B) {
	const rows, columns, group = 2048, 2048, 128
	for name, c := range map[string]struct {
		order encoded.Order
		bits  int
	}{
		"AWQ": {encoded.AcrossRows, 4}, "GPTQ": {encoded.AlongColumns, 4}, "GPTQ 8": {encoded.AlongColumns, 8},
		"compressed-tensors": {encoded.InRows, 4}, "compressed-tensors 8": {encoded.InRows, 8}, "int8": {encoded.SignedBytes, 8},
	} {
		b.Run(name, func(b *testing.B) {
			w := encoded.Words{
				Rows: rows, Columns: columns, Group: group, Bits: c.bits, Order: c.order, Codes: stream(1, int64(rows*columns*c.bits/8)),
				Scales: scalesOf(tensor.Float16, rows*columns/group), DType: tensor.Float16, ByRow: c.order >= encoded.InRows, Nothing: 8,
			}
			if c.order < encoded.InRows {
				w.Zeros = stream(3, int64(rows*columns/group*c.bits/8))
			}
			m, _ := w.Matrix()
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
