package devicetest

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"testing"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
	"github.com/optimem/optimem/tensor/encoded"
)

// RunEncoded runs the ops that read blocks of codes, for every encoding: what a decode gives is to the bit what package encoded has
// of the blocks, whose numbers are recorded from the libraries that make them, and a linear's sums are within a bound of the sums of
// those. It is for devices that read blocks of the encodings that takes names; of others they are given numbers.
func RunEncoded(t *testing.T, takes func(encoding string) bool, run Runner) {
	for _, e := range slices.Concat(encoded.All(), encoded.Own()) {
		if e.Readable() && e.Elements > 1 && takes(e.Name) {
			t.Run(e.Name, func(t *testing.T) { runEncoding(t, run, e) })
		}
	}
}

func runEncoding(t *testing.T, run Runner, e *encoded.Encoding) {
	const rows, outputs, blocks = 3, 35, 3
	columns := blocks * int(e.Elements)
	rowBytes, _ := e.BlockBytes(columns)
	codes := make([]byte, outputs*rowBytes)
	state := e.ID
	for i := range codes {
		state = state*1664525 + 1013904223
		codes[i] = byte(state>>24) & 0xbf // no scale has all bits of its exponent
	}
	numbers := make([]float32, outputs*columns)
	e.Decode(numbers, codes)
	x := make([]float32, rows*columns)
	for i := range x {
		state = state*1664525 + 1013904223
		x[i] = float32(int32(state)) / (1 << 31)
	}
	g := &graph.Graph{}
	input := g.AddInput("x", tensor.Float32, tensor.Shape{rows, columns})
	blocksID := g.AddInput("blocks", tensor.UInt8, tensor.Shape{outputs, rowBytes})
	attrs := graph.Attrs{graph.EncodingAttr: e.Name}
	for _, op := range []graph.Op{
		{Kind: "decode", Attrs: attrs, In: []graph.Operand{g.Whole(blocksID)}},
		{Kind: "linear", Attrs: attrs, In: []graph.Operand{g.Whole(input), g.Whole(blocksID)}},
	} {
		out, err := g.Emit(graph.Standard(), op)
		if err != nil {
			t.Fatal(err)
		}
		g.Outputs = append(g.Outputs, graph.Output{Name: string(op.Kind), Operand: g.Whole(out[0])})
	}
	got, err := run(g, map[string]*tensor.Tensor{"x": tensor.Of(x, rows, columns),
		"blocks": tensor.Of(codes, outputs, rowBytes)})
	if err != nil {
		t.Fatal(err)
	}
	if want := tensor.Of(numbers, outputs, columns); !bytes.Equal(got["decode"].Data, want.Data) {
		t.Error("other numbers")
	}
	for i := range rows {
		for j := range outputs {
			var want, size float64
			for k := range columns {
				term := float64(x[i*columns+k]) * float64(numbers[j*columns+k])
				want, size = want+term, size+math.Abs(term)
			}
			bits := binary.NativeEndian.Uint32(got["linear"].Data[4*(i*outputs+j):])
			if x := float64(math.Float32frombits(bits)); math.Abs(x-want) > 1e-5*size+math.SmallestNonzeroFloat32 {
				t.Fatalf("sum %d of row %d is %v, want %v", j, i, x, want)
			}
		}
	}
}
