//go:build linux && (amd64 || arm64) && !nocuda

package cuda_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/optimem/optimem/cuda"
	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/device/devicetest"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/graph/rewrite"
	"github.com/optimem/optimem/internal/cpu"
	"github.com/optimem/optimem/models/aten"
	"github.com/optimem/optimem/tensor"
)

// A multiplication is of factors of a dtype, rounded to a precision; bound is how far a result may be off.
type multiplication struct {
	dtype     tensor.DType
	precision string
	bound     float64
}

// multiplications are what tensor cores do. Half floats are rounded once more where they are stored.
var multiplications = []multiplication{
	{tensor.Float16, "", 1.0 / 1024}, {tensor.BFloat16, "", 1.0 / 128}, {tensor.Float32, "bf16", 1e-5}, {tensor.Float32, "tf32", 1e-5},
}

// round returns what a product is given in the place of a tensor of its factors: what the hardware is to round it to.
func (m multiplication) round(x *tensor.Tensor) *tensor.Tensor {
	if m.precision == "" {
		return x
	}
	y := *x
	y.Data = make([]byte, len(x.Data))
	for i := 0; i < len(y.Data); i += 4 {
		bits := binary.LittleEndian.Uint32(x.Data[i:])
		if f := math.Float32frombits(bits); f-f == 0 {
			bits = roundings[m.precision](bits)
		}
		binary.LittleEndian.PutUint32(y.Data[i:], bits)
	}
	return &y
}

// compare runs a product on a device and, of factors that were rounded, on the CPU. lay says how a factor lies.
func (m multiplication) compare(t *testing.T, dev device.Device, op graph.Op, in []*tensor.Tensor, lay func(g *graph.Graph, x *tensor.Tensor) graph.Operand) *tensor.Tensor {
	t.Helper()
	build := func(attrs graph.Attrs, round func(*tensor.Tensor) *tensor.Tensor) *graph.Graph {
		g := &graph.Graph{Modules: make(map[string]graph.Operand)}
		op := graph.Op{Kind: op.Kind, Attrs: attrs}
		for i, x := range in {
			if i < 2 {
				op.In = append(op.In, lay(g, round(x)))
			} else {
				op.In = append(op.In, g.Whole(g.AddConst(x)))
			}
		}
		out, err := g.Emit(graph.Standard(), op)
		if err != nil {
			t.Fatal(err)
		}
		g.Outputs = []graph.Output{{Name: "y", Operand: g.Whole(out[0])}}
		return g
	}
	return m.compareGraphs(t, dev, cuda.Lower, op.Attrs, build)
}

// compareGraphs runs the graph that build makes with a precision on a device, lowered for it, and on the CPU the one of
// factors that are rounded.
func (m multiplication) compareGraphs(
	t *testing.T, dev device.Device, lower func(*graph.Graph) (*graph.Lowered, error), attrs graph.Attrs,
	build func(attrs graph.Attrs, round func(*tensor.Tensor) *tensor.Tensor) *graph.Graph,
) *tensor.Tensor {
	t.Helper()
	pool := cpu.NewPool(1)
	defer pool.Close()
	want, err := cpu.Interpret(t.Context(), pool, graph.Standard(), build(attrs, m.round), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	precise := graph.Attrs{}
	maps.Copy(precise, attrs)
	if m.precision != "" {
		precise["precision"] = m.precision
	}
	l, err := lower(build(precise, func(x *tensor.Tensor) *tensor.Tensor { return x }))
	if err != nil {
		t.Fatal(err)
	}
	got, err := interpret(t.Context(), dev, l, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := devicetest.Compare(got["y"], want["y"], m.bound); err != nil {
		t.Error(err)
	}
	return got["y"]
}

// lays are ways in which a factor lies, of whose last two dimensions the last one has its terms.
var lays = map[string]func(g *graph.Graph, x *tensor.Tensor) graph.Operand{
	"aligned": func(g *graph.Graph, x *tensor.Tensor) graph.Operand { return g.Whole(g.AddConst(x)) },
	"one element on": func(g *graph.Graph, x *tensor.Tensor) graph.Operand {
		n := len(x.Data) / x.DType.Size()
		moved := &tensor.Tensor{DType: x.DType, Layout: tensor.Contiguous(n + 1)}
		moved.Data = append(make([]byte, x.DType.Size()), x.Data...)
		o := g.Whole(g.AddConst(moved))
		o.Layout = tensor.Contiguous(x.Layout.Shape...)
		o.Layout.Offset = 1
		return o
	},
	"across":             func(g *graph.Graph, x *tensor.Tensor) graph.Operand { return across(g, x, 0) },
	"across, lines odd":  func(g *graph.Graph, x *tensor.Tensor) graph.Operand { return across(g, x, 1) },
	"every second of it": func(g *graph.Graph, x *tensor.Tensor) graph.Operand { return withGaps(g, x) },
	"in sixteens":        inSixteens,
	"in sixteens, the right one across": func(g *graph.Graph, x *tensor.Tensor) graph.Operand {
		if len(g.Values) == 0 {
			return inSixteens(g, x)
		}
		return across(g, x, 0)
	},
}

// across lays a matrix with its columns behind each other, at multiples of 16 bytes and then some elements on.
func across(g *graph.Graph, x *tensor.Tensor, more int) graph.Operand {
	size, rows, columns := x.DType.Size(), x.Layout.Shape[0], x.Layout.Shape[1]
	line := (rows+15)/16*16 + more
	y := &tensor.Tensor{DType: x.DType, Layout: tensor.Contiguous(columns, line), Data: make([]byte, columns*line*size)}
	for r := range rows {
		for c := range columns {
			copy(y.Data[(c*line+r)*size:][:size], x.Data[(r*columns+c)*size:])
		}
	}
	o := g.Whole(g.AddConst(y))
	o.Layout = tensor.Layout{Shape: tensor.Shape{rows, columns}, Strides: []int{1, line}}
	return o
}

// inSixteens lays a matrix with its lines at multiples of 16 bytes, and NaN behind each.
func inSixteens(g *graph.Graph, x *tensor.Tensor) graph.Operand {
	size, rows, columns := x.DType.Size(), x.Layout.Shape[0], x.Layout.Shape[1]
	line := (columns + 15) / 16 * 16
	y := &tensor.Tensor{DType: x.DType, Layout: tensor.Contiguous(rows, line), Data: bytes.Repeat([]byte{0xff}, rows*line*size)}
	for r := range rows {
		copy(y.Data[r*line*size:], x.Data[r*columns*size:(r+1)*columns*size])
	}
	o := g.Whole(g.AddConst(y))
	o.Layout = tensor.Layout{Shape: tensor.Shape{rows, columns}, Strides: []int{line, 1}}
	return o
}

// withGaps lays a matrix with something else behind each element.
func withGaps(g *graph.Graph, x *tensor.Tensor) graph.Operand {
	size, rows, columns := x.DType.Size(), x.Layout.Shape[0], x.Layout.Shape[1]
	y := &tensor.Tensor{DType: x.DType, Layout: tensor.Contiguous(rows, columns, 2), Data: make([]byte, 2*len(x.Data))}
	for i := range rows * columns {
		copy(y.Data[2*i*size:][:size], x.Data[i*size:])
	}
	o := g.Whole(g.AddConst(y))
	o.Layout = tensor.Layout{Shape: tensor.Shape{rows, columns}, Strides: []int{2 * columns, 2}}
	return o
}

// TestTensorCores runs products from the PTX for tensor cores, by each size of blocks: with tails in every dimension,
// however their factors lie, with all that they end with.
func TestTensorCores(t *testing.T) {
	if testing.Short() {
		t.Skip("long under the race detector")
	}
	dev, lib := open(t, "order=lazy:6 memory=64M cc=80")
	lib.Interpret(t)
	compareTensorCores(t, dev)
}

func compareTensorCores(t *testing.T, dev device.Device, only ...tensor.DType) {
	for block, side := range []int{128, 64, 32} {
		undo := cuda.OnlyTensorBlocks(block)
		defer undo()
		for _, m := range multiplications {
			if len(only) > 0 && !slices.Contains(only, m.dtype) {
				continue
			}
			name := fmt.Sprint(side, " ", m.dtype, m.precision)
			d, terms := m.dtype, 64/m.dtype.Size()
			var first *tensor.Tensor
			for how, lay := range lays {
				if side != 64 && how != "aligned" && how != "across" && !strings.HasPrefix(how, "in sixteens") {
					continue // how other factors are copied does not depend on the size
				}
				t.Run(name+", "+how, func(t *testing.T) {
					in := []*tensor.Tensor{numbers(d, side+3, 2*terms+5), numbers(d, 4096/side+9, 2*terms+5), numbers(d, 4096/side+9)}
					y := m.compare(t, dev, graph.Op{Kind: "linear"}, in, lay)
					if first == nil {
						first = y
					}
					if !bytes.Equal(y.Data, first.Data) {
						t.Error("the bits depend on how the factors lie")
					}
				})
			}
			if side != 64 {
				continue
			}
			// PyTorch rounds half floats before an activation, so that no op has both.
			ending := func(act string) graph.Op {
				if d != tensor.Float32 {
					return graph.Op{Kind: "linear"}
				}
				return graph.Op{Kind: "linear", Attrs: graph.Attrs{"act": act}}
			}
			ended := func(in ...*tensor.Tensor) []*tensor.Tensor {
				if d != tensor.Float32 {
					return in[:3]
				}
				return in
			}
			for what, c := range map[string]struct {
				op graph.Op
				in []*tensor.Tensor
			}{
				"all at the end":        {ending("gelu"), ended(numbers(d, 2, 9, 24), numbers(d, 20, 24), numbers(d, 20), numbers(d, 2, 9, 20))},
				"parts, all at the end": {ending("relu"), ended(numbers(d, 9, 1050), numbers(d, 22, 1050), numbers(d, 22), numbers(d, 9, 22))},
				"several and a sum": {graph.Op{Kind: "matmul", Attrs: graph.Attrs{"alpha": 0.5, "beta": -2.0}}, []*tensor.Tensor{
					numbers(d, 2, 3, 9, 16), numbers(d, 2, 3, 16, 24), numbers(d, 2, 3, 9, 24),
				}},
				"no rows":            {graph.Op{Kind: "linear"}, []*tensor.Tensor{numbers(d, 0, 8), numbers(d, 9, 8)}},
				"no columns":         {graph.Op{Kind: "linear"}, []*tensor.Tensor{numbers(d, 9, 8), numbers(d, 0, 8)}},
				"no terms":           {graph.Op{Kind: "linear"}, []*tensor.Tensor{numbers(d, 9, 0), numbers(d, 17, 0), numbers(d, 17)}},
				"one of all":         {graph.Op{Kind: "matmul", Attrs: graph.Attrs{"alpha": 1.0}}, []*tensor.Tensor{numbers(d, 1, 1), numbers(d, 1, 1)}},
				"not finite":         {graph.Op{Kind: "linear"}, []*tensor.Tensor{notFinite(d, 20, 40), numbers(d, 20, 40)}},
				"weights not finite": {graph.Op{Kind: "linear"}, []*tensor.Tensor{numbers(d, 20, 40), notFinite(d, 20, 40)}},
			} {
				t.Run(name+", "+what, func(t *testing.T) { m.compare(t, dev, c.op, c.in, lays["aligned"]) })
			}
		}
		undo()
	}
}

// notFinite returns numbers, of which some rows have an infinity, NaN, the largest or the smallest number.
func notFinite(d tensor.DType, rows, columns int) *tensor.Tensor {
	x := numbers(d, rows, columns)
	for i, special := range []uint64{0x7fc00000, 0x7f800000, 0xff800000, 0x7f7fffff, 0xff7fffff, 1, 0x80000000} {
		to := x.Data[((2*i+1)*columns+5*i)*d.Size():]
		switch d {
		case tensor.Float32:
			binary.LittleEndian.PutUint32(to, uint32(special))
		case tensor.BFloat16:
			binary.LittleEndian.PutUint16(to, uint16(special>>16|special&1))
		default:
			// Halves have three bits of the exponent less.
			binary.LittleEndian.PutUint16(to, uint16(special>>16&0x8000|special>>13&0x7fff|special&1))
		}
	}
	return x
}

// TestRecordedRounded computes PyTorch's recorded products of float32 with factors that are rounded. A factor is off by a
// part of 2⁻¹¹ at most in TF32 and of 2⁻⁸ in bfloat16; so a product is off by twice that and its square, and a sum by that
// part of the sum of the products' magnitudes, besides what the call is off without.
func TestRecordedRounded(t *testing.T) {
	dev, _ := open(t, "order=lazy:7 memory=64M cc=80")
	compareRecordedRounded(t, dev, "bf16", "tf32")
}

func compareRecordedRounded(t *testing.T, dev device.Device, precisions ...string) {
	cases, err := devicetest.Cases()
	if err != nil {
		t.Fatal(err)
	}
	for _, precision := range precisions {
		part := map[string]float64{"bf16": 1.0 / 256, "tf32": 1.0 / 2048}[precision]
		ran, differs := 0, 0
		for _, c := range cases {
			g, err := aten.BuildCall(graph.Standard(), c.Target, c.Args)
			if err != nil || len(g.Ops) != 1 || len(c.Outputs) != 1 || g.Ops[0].Kind != "linear" && g.Ops[0].Kind != "matmul" {
				continue
			}
			narrowed := rewrite.Narrow(g, precision)
			if narrowed.Ops[0].Attrs.String("precision") == "" || !allFinite(c.Inputs) {
				continue
			}
			ran++
			t.Run(precision+", "+c.Name, func(t *testing.T) {
				run := func(g *graph.Graph, inputs map[string]*tensor.Tensor) []float64 {
					l, err := cuda.Lower(g)
					if err != nil {
						t.Fatal(err)
					}
					out, err := interpret(t.Context(), dev, l, inputs)
					if err != nil {
						t.Fatal(err)
					}
					return devicetest.Floats(out["0"])
				}
				got, want := run(narrowed, c.Inputs), devicetest.Floats(c.Outputs[0])
				magnitudes := run(magnitudesOf(g), absolutes(c.Inputs))
				largest := 0.0
				for _, m := range magnitudes {
					largest = max(largest, m)
				}
				for i := range want {
					allowed := (2*part+part*part)*magnitudes[i] + (c.Bound+1e-6)*largest
					if off := math.Abs(got[i] - want[i]); !(off <= allowed) {
						t.Errorf("%s%v: element %d is %v, PyTorch gave %v: off by %v, %v allowed", c.Target, c.Args, i, got[i], want[i], off, allowed)
					}
					if math.Abs(got[i]-want[i]) > 2*c.Bound*largest {
						differs++
					}
				}
			})
		}
		if ran < 20 || differs == 0 {
			t.Errorf("%s: %d products ran, %d results were not those of factors that are not rounded", precision, ran, differs)
		}
	}
}

// magnitudesOf returns a graph of one product that adds where it subtracts.
func magnitudesOf(g *graph.Graph) *graph.Graph {
	h := *g
	op := g.Ops[0]
	op.Attrs = maps.Clone(op.Attrs)
	for _, name := range []string{"alpha", "beta"} {
		if x, ok := op.Attrs[name].(float64); ok {
			op.Attrs[name] = math.Abs(x)
		} else if x, ok := op.Attrs[name].(int); ok {
			op.Attrs[name] = max(x, -x)
		}
	}
	h.Ops = []graph.Op{op}
	return &h
}

// absolutes returns float32 inputs without their signs.
func absolutes(inputs map[string]*tensor.Tensor) map[string]*tensor.Tensor {
	all := make(map[string]*tensor.Tensor, len(inputs))
	for name, x := range inputs {
		y := *x
		y.Data = append([]byte(nil), x.Data...)
		for i := 3; i < len(y.Data) && x.DType == tensor.Float32; i += 4 {
			y.Data[i] &= 0x7f
		}
		all[name] = &y
	}
	return all
}

func allFinite(inputs map[string]*tensor.Tensor) bool {
	for _, x := range inputs {
		for _, f := range devicetest.Floats(x) {
			if f-f != 0 {
				return false
			}
		}
	}
	return true
}

// TestWeights runs linears on tensor cores whose weights are narrower than their rows, from the PTX for those and without.
func TestWeights(t *testing.T) {
	for _, capability := range []string{"70", "75", "80"} {
		t.Run(capability, func(t *testing.T) {
			dev, _ := open(t, "order=lazy:6 memory=64M cc="+capability)
			compareWeights(t, dev, capability == "80")
		})
	}
	if testing.Short() {
		t.Skip("long under the race detector")
	}
	for _, capability := range []string{"75", "80"} {
		t.Run("interpreted "+capability, func(t *testing.T) {
			dev, lib := open(t, "order=lazy:6 memory=64M cc="+capability)
			in := lib.Interpret(t)
			compareWeights(t, dev, capability == "80")
			for _, name := range []string{"f16_128", "f16_32", "bf16_128"} {
				ran, _ := in.Ran("om_weights_" + name)
				if want := capability == "80" || name[:3] == "f16"; (ran > 0) != want {
					t.Errorf("%s ran: %v", name, ran > 0)
				}
			}
		})
	}
}

func compareWeights(t *testing.T, dev *cuda.Device, tf32 bool) {
	const m = 37
	for _, how := range multiplications {
		d, other := how.dtype, how.dtype
		if d == tensor.Float32 {
			other = tensor.Float16
			if !tf32 && how.precision == "tf32" {
				continue
			}
			if !tf32 {
				how.bound = 1.0 / 256 // what scales made of int8 is rounded too
			}
		}
		for name, c := range map[string]struct {
			n, k         int
			lay          string
			scales, bias tensor.DType
			added        bool
		}{
			"lines":          {140, 72, "aligned", d, d, d == tensor.Float32},
			"lines, odd":     {9, 45, "aligned", other, tensor.Invalid, false},
			"elsewhere":      {33, 40, "one element on", d, tensor.Invalid, false},
			"across":         {21, 40, "across", d, other, false},
			"every second":   {10, 33, "every second of it", d, d, false},
			"parts":          {20, 1050, "aligned", d, d, d == tensor.Float32},
			"parts of lines": {24, 1056, "aligned", d, tensor.Invalid, false},
			"no columns":     {0, 16, "aligned", d, tensor.Invalid, false},
			"no terms":       {5, 0, "aligned", d, d, false},
		} {
			weights := []tensor.DType{tensor.Int8}
			if d == tensor.Float32 {
				weights = append(weights, tensor.Float16, tensor.BFloat16)
			}
			for _, kind := range weights {
				for block, rows := range []int{128, 32} {
					if rows == 128 && name != "lines" {
						continue
					}
					t.Run(fmt.Sprint(rows, " ", d, how.precision, " ", kind, ", ", name), func(t *testing.T) {
						defer cuda.OnlyWeightBlocks(block)()
						how.weights(t, dev, kind, c.lay, m, c.n, c.k, c.scales, c.bias, c.added)
					})
				}
			}
		}
	}
}

// weights compares a linear whose weight is of another dtype. That is rounded to the precision as its rows are; int8 never has
// to be.
func (m multiplication) weights(t *testing.T, dev *cuda.Device, kind tensor.DType, lay string, rows, n, k int, scales, bias tensor.DType, added bool) {
	build := func(attrs graph.Attrs, round func(*tensor.Tensor) *tensor.Tensor) *graph.Graph {
		g := &graph.Graph{Modules: make(map[string]graph.Operand)}
		w := numbers(kind, n, k)
		if kind == tensor.Int8 {
			for i := range n * k {
				w.Data = append(w.Data, byte(31*i+7))
			}
		} else if m.precision == "bf16" && kind == tensor.Float16 {
			w = widenedTo(w, round)
		}
		op := graph.Op{Kind: "linear", Attrs: attrs, In: []graph.Operand{
			g.Whole(g.AddConst(round(numbers(m.dtype, rows, k)))), lays[lay](g, w), graph.Absent, graph.Absent, graph.Absent,
		}}
		if bias != tensor.Invalid {
			op.In[2] = g.Whole(g.AddConst(numbers(bias, n)))
		}
		if added {
			op.In[3] = g.Whole(g.AddConst(numbers(m.dtype, rows, n)))
		}
		if kind == tensor.Int8 {
			op.In[4] = g.Whole(g.AddConst(numbers(scales, n)))
		} else {
			op.In = op.In[:4]
		}
		out, err := g.Emit(graph.Standard(), op)
		if err != nil {
			t.Fatal(err)
		}
		g.Outputs = []graph.Output{{Name: "y", Operand: g.Whole(out[0])}}
		return g
	}
	m.compareGraphs(t, dev, dev.Lower, nil, build)
}

// widenedTo returns half floats that are rounded, where that does something, as floats.
func widenedTo(x *tensor.Tensor, round func(*tensor.Tensor) *tensor.Tensor) *tensor.Tensor {
	wide := &tensor.Tensor{DType: tensor.Float32, Layout: x.Layout}
	for _, f := range devicetest.Floats(x) {
		wide.Data = binary.LittleEndian.AppendUint32(wide.Data, math.Float32bits(float32(f)))
	}
	rounded := round(wide)
	if rounded == wide {
		return x
	}
	return rounded
}
