//go:build linux && (amd64 || arm64) && !nocuda

package cuda_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/optimem/optimem/cuda"
	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/device/devicetest"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu"
	"github.com/optimem/optimem/tensor"
	"github.com/optimem/optimem/tensor/encoded"
)

// TestCodes runs what reads blocks of codes, for every encoding that there are kernels for.
func TestCodes(t *testing.T) {
	dev, _ := open(t, "order=lazy:9 memory=64M")
	compareCodes(t, dev, true)
}

// TestCodesPTX does so from the PTX.
func TestCodesPTX(t *testing.T) {
	some := func(t *testing.T, dev device.Device) { compareCodes(t, dev, false) }
	interpreted(t, "order=lazy:9 memory=64M", some, "om_codes_1", "om_codes_4", "om_codes_scaled_1", "om_codes_scaled_4",
		"om_codes_many", "om_decode")
}

// codesTaken returns the encodings that blocks are read of; not all of them are those of every way, and of an own make of the
// smallest blocks.
func codesTaken(all bool) []*encoded.Encoding {
	return slices.DeleteFunc(slices.Concat(encoded.All(), encoded.Own()), func(e *encoded.Encoding) bool {
		return !cuda.ReadsCodes(e.Name) || !all && strings.Contains(e.Name, "/") && e.Elements != 32
	})
}

// compareCodes runs every encoding, and compares linears with the CPU's and their rows with rows alone.
func compareCodes(t *testing.T, dev device.Device, all bool) {
	taken := codesTaken(all)
	devicetest.RunEncoded(t, func(name string) bool {
		return slices.ContainsFunc(taken, func(e *encoded.Encoding) bool { return e.Name == name })
	}, func(g *graph.Graph, inputs map[string]*tensor.Tensor) (map[string]*tensor.Tensor, error) {
		l, err := cuda.Lower(g)
		if err != nil {
			return nil, err
		}
		return interpret(t.Context(), dev, l, inputs)
	})
	pool := cpu.NewPool(1)
	defer pool.Close()
	for _, e := range taken {
		t.Run("rows/"+e.Name, func(t *testing.T) {
			codedRows(t, dev, pool, codedLinear{e: e, rows: 34, lines: 11, terms: int(3 * e.Elements)})
			// Weights that begin and end at multiples of four, as those of scaled encodings are read by words of.
			codedRows(t, dev, pool, codedLinear{e: e, rows: 13, lines: 9, terms: int(4 * e.Elements)})
			codedRows(t, dev, pool, codedLinear{e: e, rows: 13, lines: 4, terms: int(e.Elements)})
		})
	}
	q8, mxfp4 := blocksOf("Q8_0"), blocksOf("MXFP4")
	for name, c := range map[string]codedLinear{
		"many terms":          {e: q8, rows: 35, lines: 9, terms: 2080, bias: tensor.BFloat16, added: true, act: "silu"},
		"steps of a scale":    {e: blocksOf("Q4_0"), rows: 14, lines: 12, terms: 2592, bias: tensor.Float32, added: true},
		"steps of bfloat16":   {e: blocksOf("INT4/32 bfloat16"), rows: 13, lines: 8, terms: 1056, act: "relu"},
		"rows not in sixteen": {e: mxfp4, rows: 10, lines: 6, terms: 1312, bias: tensor.Float32, shift: 1},
		"many lines":          {e: mxfp4, rows: 13, lines: 20, terms: 96},
		"many rows":           {e: mxfp4, rows: 70, lines: 7, terms: 96},
		"rows far apart":      {e: mxfp4, rows: 6, lines: 3, terms: 64, uneven: true, added: true},
	} {
		t.Run(name, func(t *testing.T) { codedRows(t, dev, pool, c) })
	}
}

// blocksOf returns an encoding.
func blocksOf(name string) *encoded.Encoding {
	e, _ := encoded.ByName(name)
	return e
}

// A codedLinear is a linear whose weight lies as blocks.
type codedLinear struct {
	e                  *encoded.Encoding
	rows, lines, terms int
	bias               tensor.DType
	added, uneven      bool
	// shift is how many elements before its rows there are.
	shift int
	act   string
}

// graph returns the linear of rows from one on. Four lines of the weight lie before those that are read.
func (c codedLinear) graph(t *testing.T, from, count int) *graph.Graph {
	t.Helper()
	g := &graph.Graph{Modules: make(map[string]graph.Operand)}
	rowBytes, _ := c.e.BlockBytes(c.terms)
	codes := &tensor.Tensor{DType: tensor.UInt8, Layout: tensor.Contiguous(c.lines+4, rowBytes)}
	state := c.e.ID
	for range (c.lines + 4) * rowBytes {
		state = state*1664525 + 1013904223
		codes.Data = append(codes.Data, byte(state>>24)&0xbf) // no scale has all bits of its exponent
	}
	weight := g.Whole(g.AddConst(codes))
	weight.Layout = tensor.Layout{Shape: tensor.Shape{c.lines, rowBytes}, Strides: []int{rowBytes, 1}, Offset: 4 * rowBytes}
	x := g.Whole(g.AddConst(numbers(tensor.Float32, c.rows*c.terms+c.shift)))
	x.Layout = tensor.Layout{Shape: tensor.Shape{count, c.terms}, Strides: []int{c.terms, 1}, Offset: c.shift + from*c.terms}
	if c.uneven && count == c.rows { // the rows of the second half lie before those of the first
		x.Layout = tensor.Layout{Shape: tensor.Shape{2, c.rows / 2, c.terms}, Strides: []int{0, c.terms, 1}, Offset: c.shift}
	}
	op := graph.Op{
		Kind: "linear", Attrs: graph.Attrs{"act": c.act, graph.EncodingAttr: c.e.Name},
		In: []graph.Operand{x, weight, graph.Absent, graph.Absent},
	}
	if c.bias != tensor.Invalid {
		op.In[2] = g.Whole(g.AddConst(numbers(c.bias, c.lines)))
	}
	if c.added {
		added := g.Whole(g.AddConst(numbers(tensor.Float32, c.rows, c.lines)))
		added.Layout.Shape, added.Layout.Offset = tensor.Shape{count, c.lines}, from*c.lines
		if len(x.Layout.Shape) == 3 {
			added.Layout = tensor.Contiguous(2, c.rows/2, c.lines)
		}
		op.In[3] = added
	}
	out, err := g.Emit(graph.Standard(), op)
	if err != nil {
		t.Fatal(err)
	}
	g.Outputs = []graph.Output{{Name: "y", Operand: g.Whole(out[0])}}
	return g
}

// codedRows compares all rows with the CPU's, and one row and six with those of all.
func codedRows(t *testing.T, dev device.Device, pool *cpu.Pool, c codedLinear) {
	run := func(from, count int) (*graph.Graph, *tensor.Tensor) {
		g := c.graph(t, from, count)
		l, err := cuda.Lower(g)
		if err != nil {
			t.Fatal(err)
		}
		got, err := interpret(t.Context(), dev, l, nil)
		if err != nil {
			t.Fatal(err)
		}
		return g, got["y"]
	}
	g, all := run(0, c.rows)
	want, err := cpu.Interpret(t.Context(), pool, graph.Standard(), g, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := devicetest.Compare(all, want["y"], 1e-5); err != nil {
		t.Error(err)
	}
	for _, part := range [][2]int{{0, 1}, {c.rows/2 - 1, 1}, {c.rows/2 - 3, 3}, {max(c.rows/2-6, 0), min(6, c.rows/2)}} {
		_, some := run(part[0], part[1])
		line := 4 * c.lines
		if !bytes.Equal(some.Data, all.Data[part[0]*line:][:part[1]*line]) {
			t.Errorf("%d rows from %d on have other bits than among all", part[1], part[0])
		}
	}
}
