//go:build linux && (amd64 || arm64) && !nocuda

package cuda_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"github.com/optimem/optimem/cuda"
	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/device/devicetest"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/graph/rewrite"
	"github.com/optimem/optimem/tensor"
)

// A written graph is one that a test writes down; its constants are numbers between −2 and 2.
type written struct {
	*graph.Graph
	t testing.TB
}

func (w *written) constant(positive bool, shape ...int) graph.Operand {
	n, _ := tensor.Shape(shape).NumElements()
	c := &tensor.Tensor{DType: tensor.Float32, Layout: tensor.Contiguous(shape...)}
	for i := range n {
		x := float32(int64(uint32(i+13*int64(len(w.Values)))*2654435761)%4001)/1000 - 2
		if positive {
			x = float32(math.Abs(float64(x))) + 0.25
		}
		c.Data = binary.LittleEndian.AppendUint32(c.Data, math.Float32bits(x))
	}
	return w.Whole(w.AddConst(c))
}

func (w *written) op(kind graph.Kind, a graph.Attrs, in ...graph.Operand) graph.Operand {
	w.t.Helper()
	out, err := w.Emit(graph.Standard(), graph.Op{Kind: kind, Attrs: a, In: in})
	if err != nil {
		w.t.Fatalf("%s: %v", kind, err)
	}
	return w.Whole(out[0])
}

// result runs a graph with one output on a device.
func (w *written) result(dev device.Device, g *graph.Graph) *tensor.Tensor {
	w.t.Helper()
	l, err := cuda.Lower(g)
	if err != nil {
		w.t.Fatal(err)
	}
	out, err := interpret(w.t.Context(), dev, l, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	return out["y"]
}

// TestFused: what [rewrite.Optimise] makes of a graph gives the same as the graph, chains to the bit.
func TestFused(t *testing.T) {
	dev, _ := open(t, "order=lazy:2 memory=64M")
	compareFused(t, dev)
}

func compareFused(t *testing.T, dev device.Device) {
	type writes func(w *written) graph.Operand
	window := graph.Attrs{"stride": []int{1, 1}, "padding": []int{1, 1}, "dilation": []int{1, 1}, "groups": 1}
	conv := func(w *written, channels int) graph.Operand {
		y := w.op("conv", window, w.constant(false, 2, 3, 6, 5), w.constant(false, channels, 3, 3, 3), w.constant(false, channels))
		return w.op("batch_norm", graph.Attrs{"eps": 1e-3}, y, w.constant(false, channels), w.constant(false, channels),
			w.constant(false, channels), w.constant(true, channels))
	}
	cases := map[string]writes{
		"linear, sum": func(w *written) graph.Operand {
			y := w.op("linear", nil, w.constant(false, 5, 7), w.constant(false, 9, 7), w.constant(false, 9))
			return w.op("add", nil, y, w.op("neg", nil, w.constant(false, 5, 9)))
		},
		"conv, norm, sum": func(w *written) graph.Operand {
			return w.op("add", nil, conv(w, 20), w.op("neg", nil, w.constant(false, 2, 20, 6, 5)))
		},
	}
	activations := map[string]graph.Attrs{
		"relu": nil, "silu": nil, "hardswish": nil, "hardsigmoid": nil, "sigmoid": nil, "tanh": nil,
		"gelu": {"approximate": "none"}, "leaky_relu": {"slope": 0.2},
		"elu": {"alpha": 0.7, "scale": 1.0, "input_scale": 1.0}, "clamp": {"min": -0.5, "max": 0.75},
	}
	for kind, a := range activations {
		cases["linear, "+kind] = func(w *written) graph.Operand {
			y := w.op("linear", nil, w.constant(false, 5, 7), w.constant(false, 9, 7), w.constant(false, 9))
			return w.op(graph.Kind(kind), a, y)
		}
		for _, channels := range []int{4, 20} { // without tiles and with them
			cases[fmt.Sprint("conv, ", channels, ", ", kind)] = func(w *written) graph.Operand {
				return w.op(graph.Kind(kind), a, conv(w, channels))
			}
		}
	}
	cases["linear, gelu of tanh"] = func(w *written) graph.Operand {
		y := w.op("linear", nil, w.constant(false, 5, 7), w.constant(false, 9, 7), w.constant(false, 9))
		return w.op("gelu", graph.Attrs{"approximate": "tanh"}, y)
	}
	cases["conv, relu6"] = func(w *written) graph.Operand {
		return w.op("clamp", graph.Attrs{"min": 0.0, "max": 6.0}, conv(w, 20))
	}
	chained := map[string]graph.Attrs{
		"mish": nil, "softplus": {"beta": 2.0, "threshold": 3.0}, "hardshrink": {"lambda": 0.5}, "softshrink": {"lambda": 0.5},
		"log_sigmoid": nil, "exp": nil, "erf": nil, "square": nil, "rsqrt": nil, "sin": nil, "trunc": nil, "sign": nil,
	}
	for _, all := range []map[string]graph.Attrs{activations, chained} {
		for kind, a := range all {
			cases["chain, "+kind] = func(w *written) graph.Operand {
				x := w.op("add", graph.Attrs{"alpha": 0.5}, w.constant(true, 3, 50), w.constant(true, 3, 50))
				return w.op("sub", nil, w.op(graph.Kind(kind), a, x), w.constant(false, 3, 50))
			}
		}
	}
	for _, kind := range []string{"mul", "div", "maximum", "minimum", "pow", "prelu", "glu"} {
		cases["chain, "+kind] = func(w *written) graph.Operand {
			return w.op("neg", nil, w.op(graph.Kind(kind), nil, w.constant(true, 3, 50), w.constant(false, 3, 50)))
		}
	}
	for kind, a := range map[string]graph.Attrs{"addcmul": {"value": 0.3}, "addcdiv": {"value": 0.3}, "lerp": nil} {
		cases["chain, "+kind] = func(w *written) graph.Operand {
			y := w.op(graph.Kind(kind), a, w.constant(false, 3, 50), w.constant(false, 3, 50), w.constant(true, 3, 50))
			return w.op("abs", nil, y)
		}
	}
	cases["chain, where"] = func(w *written) graph.Operand {
		x, y := w.constant(false, 3, 50), w.constant(false, 3, 50)
		return w.op("neg", nil, w.op("where", nil, w.op("lt", nil, x, y), w.op("exp", nil, x), y))
	}
	for name, c := range map[string]struct {
		half int
		view func(w *written) graph.Operand // [2 3 5 2·half]
	}{
		"lines":      {8, func(w *written) graph.Operand { return w.constant(false, 2, 3, 5, 16) }},
		"heads":      {8, func(w *written) graph.Operand { return seenAs(w.constant(false, 2, 5, 3, 16), 0, 240, 16, 48, 1) }},
		"odd halves": {3, func(w *written) graph.Operand { return seenAs(w.constant(false, 2, 5, 3, 6), 0, 90, 6, 18, 1) }},
		"not aligned": {4, func(w *written) graph.Operand {
			return seenAs(w.constant(false, 2, 5, 3, 8), 1, 120, 8, 24, 1)
		}},
		"apart": {4, func(w *written) graph.Operand { return seenAs(w.constant(false, 2, 3, 8, 5), 0, 120, 40, 1, 5) }},
	} {
		cases["chain, rotary of "+name] = func(w *written) graph.Operand { return rotated(w, c.view(w), c.half) }
		for _, d := range []tensor.DType{tensor.Float16, tensor.BFloat16} {
			cases["chain, rotary of "+name+" of "+d.String()] = func(w *written) graph.Operand {
				x := c.view(w)
				v := &w.Values[x.Value]
				to := numbers(d, v.Shape...)
				v.DType, v.Const = d, to.Data
				return rotated(w, x, c.half)
			}
		}
	}
	for name, write := range cases {
		t.Run(name, func(t *testing.T) {
			w := &written{&graph.Graph{Modules: make(map[string]graph.Operand)}, t}
			w.Outputs = []graph.Output{{Name: "y", Operand: write(w)}}
			fused := rewrite.Optimise(w.Graph, graph.Standard(), 0, nil)
			if len(fused.Ops) >= len(w.Ops) {
				t.Errorf("%d ops became %d", len(w.Ops), len(fused.Ops))
			}
			got, want := w.result(dev, fused), w.result(dev, w.Graph)
			if name[:5] == "chain" && !bytes.Equal(got.Data, want.Data) {
				t.Error("other bits")
			}
			if err := devicetest.Compare(got, want, 1e-6); err != nil {
				t.Error(err)
			}
		})
	}
}

// seenAs is a view of [2 3 5 …] of all of an operand from an element on; what would lie behind it is left out.
func seenAs(o graph.Operand, offset int, strides ...int) graph.Operand {
	d := len(o.Layout.Shape) - 1
	n := o.Layout.Shape[d]
	if strides[3] != 1 {
		n = o.Layout.Shape[d-1]
	}
	shape := tensor.Shape{2, 3, 5, n}
	if offset > 0 {
		shape[0] = 1
	}
	o.Layout = tensor.Layout{Shape: shape, Strides: strides, Offset: offset}
	return o
}

// rotated is a rotary embedding of [… 3 5 2·half] as models write it; the angles are those of five positions.
func rotated(w *written, x graph.Operand, half int) graph.Operand {
	shape := x.Layout.Shape
	part := func(from int) graph.Operand {
		l := x.Layout
		l.Shape = append(append(tensor.Shape{}, shape[:3]...), half)
		l.Offset += from * l.Strides[3]
		return graph.Operand{Value: x.Value, Layout: l}
	}
	angles := func() graph.Operand {
		o := w.Whole(w.AddConst(numbers(w.Values[x.Value].DType, 1, 5, 2*half)))
		o.Layout = tensor.Layout{Shape: shape, Strides: []int{0, 0, 2 * half, 1}}
		return o
	}
	turned := w.op("cat", graph.Attrs{"dim": 3}, w.op("neg", nil, part(half)), part(0))
	return w.op("add", nil, w.op("mul", nil, x, angles()), w.op("mul", nil, turned, angles()))
}
