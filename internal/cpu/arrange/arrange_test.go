package arrange

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu"
	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
)

// A picture is a graph of convolutions being written down for a test.
type picture struct {
	*graph.Graph
	t       *testing.T
	threads int
}

func newPicture(t *testing.T) *picture { return &picture{&graph.Graph{}, t, 2} }

func (p *picture) input(shape ...int) graph.Operand {
	return p.Whole(p.AddInput(fmt.Sprint("x", len(p.Inputs)), tensor.Float32, shape))
}

func (p *picture) weight(shape ...int) graph.Operand {
	w := tensor.Weight{Name: fmt.Sprint(len(p.Values)), DType: tensor.Float32, Extent: storage.Extent{Bytes: int64(4 * volume(shape))}}
	return graph.Operand{Value: p.AddWeight(w, graph.Weight), Layout: tensor.Contiguous(shape...)}
}

func (p *picture) op(kind graph.Kind, a graph.Attrs, in ...graph.Operand) graph.Operand {
	p.t.Helper()
	out, err := p.Emit(graph.Standard(), graph.Op{Kind: kind, Attrs: a, In: in})
	if err != nil {
		p.t.Fatal(err)
	}
	return p.Whole(out[0])
}

func (p *picture) output(o graph.Operand) {
	p.Outputs = append(p.Outputs, graph.Output{Name: fmt.Sprint("y", len(p.Outputs)), Operand: o})
}

// conv adds a convolution with a window of k×k, with a bias and an activation.
func (p *picture) conv(x graph.Operand, outputs, k, stride, groups int, act string, residual ...graph.Operand) graph.Operand {
	a := graph.Attrs{
		"stride": []int{stride, stride}, "padding": []int{k / 2, k / 2}, "dilation": []int{1, 1}, "groups": groups,
	}
	if act != "" {
		a["act"] = act
	}
	in := []graph.Operand{x, p.weight(outputs, x.Layout.Shape[1]/groups, k, k), p.weight(outputs)}
	if len(residual) > 0 {
		in = append(in, graph.Absent, graph.Absent, graph.Absent, graph.Absent, residual[0])
	}
	return p.op("conv", a, in...)
}

// results computes a graph over inputs and weights that are the same for graphs with the same names.
func (p *picture) results(g *graph.Graph) [][]byte { return p.resultsOf(g, func([]byte) {}) }

// resultsOf is results of inputs and weights that were changed.
func (p *picture) resultsOf(g *graph.Graph, change func([]byte)) [][]byte {
	p.t.Helper()
	fill := func(name string, n int) []byte {
		var seed [32]byte
		copy(seed[:], name)
		r := rand.New(rand.NewChaCha8(seed))
		data := make([]byte, 4*n)
		for i := range n {
			binary.LittleEndian.PutUint32(data[4*i:], math.Float32bits(float32(r.Float64()-0.35)/4))
		}
		change(data)
		return data
	}
	in := make(map[string]*tensor.Tensor)
	for _, id := range g.Inputs {
		v := g.Values[id]
		in[v.Name] = &tensor.Tensor{
			DType: v.DType, Layout: tensor.Contiguous(v.Shape...), Data: fill(v.Name, volume(v.Shape)),
		}
	}
	pool := cpu.NewPool(p.threads)
	defer pool.Close()
	out, err := cpu.Interpret(p.t.Context(), pool, graph.Standard(), g, func(v graph.Value) ([]byte, error) {
		return fill(v.Name, volume(v.Shape)), nil
	}, in)
	if err != nil {
		p.t.Fatal(err)
	}
	var list [][]byte
	for _, o := range g.Outputs {
		list = append(list, out[o.Name].Data)
	}
	return list
}

// turn returns the dimensions of an operand in another order.
func turn(o graph.Operand, dims ...int) graph.Operand {
	l := tensor.Layout{Offset: o.Layout.Offset}
	for _, d := range dims {
		l.Shape, l.Strides = append(l.Shape, o.Layout.Shape[d]), append(l.Strides, o.Layout.Strides[d])
	}
	return graph.Operand{Value: o.Value, Layout: l}
}

// channels returns channels [from, to) of an operand.
func channels(o graph.Operand, from, to int) graph.Operand {
	l := o.Layout
	shape := append(tensor.Shape(nil), l.Shape...)
	shape[1] = to - from
	return graph.Operand{Value: o.Value, Layout: tensor.Layout{
		Shape: shape, Strides: l.Strides, Offset: l.Offset + from*l.Strides[1],
	}}
}

// perChannel returns an operand [N, C, 1, 1] for all pixels.
func perChannel(o graph.Operand, height, width int) graph.Operand {
	l := o.Layout
	return graph.Operand{Value: o.Value, Layout: tensor.Layout{
		Shape: tensor.Shape{l.Shape[0], l.Shape[1], height, width}, Strides: []int{l.Strides[0], l.Strides[1], 0, 0},
	}}
}

// TestArrange: what becomes of convolutional networks, and that they compute the same.
func TestArrange(t *testing.T) {
	maxPool := graph.Attrs{
		"kernel": []int{3, 3}, "stride": []int{2, 2}, "padding": []int{1, 1}, "dilation": []int{1, 1}, "ceil_mode": false,
	}
	avgPool := graph.Attrs{
		"kernel": []int{3, 3}, "stride": []int{2, 2}, "padding": []int{1, 1}, "ceil_mode": true, "count_include_pad": true,
		"divisor": 0,
	}
	one := graph.Attrs{"size": []int{1, 1}}
	for name, c := range map[string]struct {
		build func(p *picture)
		want  string
	}{
		"a residual network": {func(p *picture) {
			x := p.conv(p.input(2, 3, 56, 48), 64, 7, 2, 1, "relu")
			x = p.op("max_pool", maxPool, x)
			y := p.conv(p.conv(x, 64, 1, 1, 1, "relu"), 64, 3, 1, 1, "relu")
			x = p.conv(y, 64, 1, 1, 1, "relu", x)
			pooled := p.op("adaptive_avg_pool", one, x)
			flat := graph.Operand{Value: pooled.Value, Layout: tensor.Contiguous(2, 64)}
			p.output(p.op("linear", nil, flat, p.weight(10, 64), p.weight(10)))
		}, "conv16 pool16 conv16 conv16 conv16 pool16 from16 linear"},
		"odd channels, squeezed and excited": {func(p *picture) {
			x := p.conv(p.input(2, 3, 40, 40), 20, 3, 2, 1, "hardswish")
			x = p.conv(x, 72, 1, 1, 1, "relu")
			x = p.conv(x, 72, 5, 1, 72, "silu")
			s := p.conv(p.op("adaptive_avg_pool", one, x), 24, 1, 1, 1, "relu")
			s = p.conv(s, 72, 1, 1, 1, "sigmoid")
			x = p.op("mul", nil, perChannel(s, 20, 20), x)
			x = p.op("sigmoid", nil, p.conv(x, 20, 1, 1, 1, ""))
			p.output(p.conv(p.op("add", nil, x, x), 30, 3, 1, 2, ""))
		}, "conv16 expand16 pool16 conv16 conv16 mul16 conv16 act16 add conv16 from16"},
		"expanded, and read twice or once": {func(p *picture) {
			x := p.conv(p.input(2, 3, 40, 40), 20, 3, 2, 1, "hardswish")
			y := p.conv(x, 72, 1, 1, 1, "silu")
			x = p.conv(p.op("add", nil, y, p.conv(y, 72, 3, 1, 72, "relu")), 20, 1, 1, 1, "relu", x)
			p.output(p.conv(p.conv(x, 50, 1, 1, 1, ""), 50, 3, 2, 50, "gelu"))
		}, "conv16 conv16 conv16 add conv16 expand16 from16"},
		"norm before": {func(p *picture) {
			x := p.conv(p.input(1, 3, 40, 40), 32, 3, 1, 1, "")
			a := graph.Attrs{"eps": 1.5}
			y := p.op("batch_norm", a, x, p.weight(32), p.weight(32), p.weight(32), p.weight(32))
			y = p.conv(p.op("relu", nil, y), 48, 3, 1, 1, "")
			y = p.op("cat", graph.Attrs{"dim": 1}, x, y)
			y = p.op("batch_norm", a, y, p.weight(80), graph.Absent, p.weight(80), p.weight(80))
			p.output(p.conv(p.op("avg_pool", avgPool, y), 64, 1, 1, 1, ""))
		}, "conv16 norm16 conv16 cat16 norm16 pool16 conv16 from16"},
		"parts of channels": {func(p *picture) {
			x := p.conv(p.input(2, 3, 40, 40), 64, 3, 1, 1, "relu")
			a := p.conv(channels(x, 0, 32), 32, 3, 1, 1, "")
			b := p.conv(channels(x, 32, 64), 24, 3, 1, 1, "")
			p.output(p.conv(p.op("cat", graph.Attrs{"dim": 1}, a, b), 32, 1, 1, 1, ""))
		}, "conv16 slice16 conv16 slice16 conv16 cat16 conv16 from16"},
		"channels that begin within a block": {func(p *picture) {
			x := p.conv(p.conv(p.input(1, 3, 40, 40), 64, 3, 1, 1, "relu"), 40, 3, 1, 1, "relu")
			p.output(p.conv(channels(x, 20, 40), 64, 3, 1, 1, ""))
		}, "conv16 conv16 from16 to16 conv16 from16"},
		"numbers and rows": {func(p *picture) {
			x := p.conv(p.input(2, 3, 40, 40), 32, 3, 1, 1, "")
			half := p.AddConst(tensor.Of([]float32{0.5}))
			number := graph.Operand{Value: half, Layout: tensor.Layout{Shape: x.Layout.Shape, Strides: []int{0, 0, 0, 0}}}
			row := p.weight(32)
			row.Layout = tensor.Layout{Shape: x.Layout.Shape, Strides: []int{0, 1, 0, 0}}
			x = p.op("add", nil, p.op("mul", nil, x, row), number)
			p.output(p.conv(x, 32, 3, 1, 1, ""))
		}, "conv16 mul add conv16 from16"},
		"channels side by side": {func(p *picture) {
			x := p.conv(p.input(2, 3, 40, 40), 48, 4, 4, 1, "")
			n := p.op("layer_norm", graph.Attrs{"dims": 1, "eps": 1e-5}, turn(x, 0, 2, 3, 1), p.weight(48), p.weight(48))
			x = turn(n, 0, 3, 1, 2)
			y := p.conv(x, 48, 7, 1, 48, "")
			n = p.op("layer_norm", graph.Attrs{"dims": 1, "eps": 1e-5}, turn(y, 0, 2, 3, 1), p.weight(48), p.weight(48))
			n = p.op("linear", nil, n, p.weight(48, 48), p.weight(48))
			scale := p.weight(48)
			scale.Layout = tensor.Layout{Shape: x.Layout.Shape, Strides: []int{0, 1, 0, 0}}
			chain := graph.Attrs{"program": graph.Program{{Kind: "mul", Args: []int{0, 1}}, {Kind: "add", Args: []int{2, 3}}}}
			x = p.op("chain", chain, turn(n, 0, 3, 1, 2), scale, x)
			x = p.conv(x, 64, 3, 1, 1, "")
			flat := graph.Operand{Value: x.Value, Layout: tensor.Layout{
				Shape: tensor.Shape{2, 121, 64}, Strides: []int{64 * 121, 1, 121},
			}}
			p.output(p.op("linear", nil, flat, p.weight(10, 64), graph.Absent))
		}, "conv16 layer16 conv16 layer16 conv16 conv16 from16 linear"},
		"side by side, read in several ways": {func(p *picture) {
			x := p.conv(p.input(2, 3, 80, 80), 80, 4, 4, 1, "")
			x = p.conv(p.conv(x, 80, 5, 1, 1, ""), 80, 5, 1, 1, "")
			norm := graph.Attrs{"dims": 1, "eps": 1e-5}
			n := p.op("layer_norm", norm, turn(x, 0, 2, 3, 1), p.weight(80), graph.Absent)
			y := p.op("linear", graph.Attrs{"act": "sigmoid"}, n, p.weight(40, 80), p.weight(40))
			z := p.op("linear", nil, y, p.weight(80, 40), graph.Absent, n)
			p.output(p.op("cumsum", graph.Attrs{"dim": 3}, z))
			p.output(p.op("layer_norm", norm, y, p.weight(40), p.weight(40))) // no whole blocks
			p.output(p.op("linear", graph.Attrs{"act": "relu"}, z, p.weight(80, 80), graph.Absent, n))
			scale := p.weight(80)
			scale.Layout = tensor.Layout{Shape: x.Layout.Shape, Strides: []int{0, 1, 0, 0}}
			chain := graph.Attrs{"program": graph.Program{{Kind: "mul", Args: []int{1, 0}}, {Kind: "add", Args: []int{2, 3}}}}
			x = p.op("chain", chain, turn(z, 0, 3, 1, 2), scale, x) // z has other readers
			p.output(p.conv(x, 32, 3, 1, 1, ""))
		}, "conv16 conv16 conv16 layer16 conv16 conv16 from16 cumsum from16 layer_norm from16 linear chain conv16 from16"},
		"side by side, as wide as deep": {func(p *picture) {
			x := p.conv(p.conv(p.input(1, 3, 192, 192), 48, 5, 4, 1, ""), 48, 5, 1, 1, "")
			norm := graph.Attrs{"dims": 1, "eps": 1e-5}
			n := p.op("layer_norm", norm, x, p.weight(48), p.weight(48)) // over a row of the picture
			m := p.op("layer_norm", norm, turn(x, 0, 2, 3, 1), p.weight(48), p.weight(48))
			p.output(p.op("add", nil, n, m))
			p.output(p.conv(m, 48, 3, 1, 1, "")) // a pixel's channels as rows
		}, "conv16 conv16 from16 layer_norm layer16 from16 add to16 conv16 from16"},
		"a mean of all pixels": {func(p *picture) {
			x := p.conv(p.input(2, 3, 40, 40), 32, 3, 1, 1, "")
			a := graph.Attrs{"dims": []int{2, 3}, "keepdim": false, "dtype": tensor.Float32}
			p.output(p.op("linear", nil, p.op("mean", a, x), p.weight(10, 32), graph.Absent))
		}, "conv16 pool16 from16 linear"},
		"one convolution of few channels": {func(p *picture) {
			p.output(p.conv(p.op("relu", nil, p.input(2, 8, 40, 40)), 8, 1, 1, 1, ""))
		}, "relu conv"},
		"what is no picture": {func(p *picture) {
			a := graph.Attrs{"stride": []int{1, 1, 1}, "padding": []int{1, 1, 1}, "dilation": []int{1, 1, 1}, "groups": 1}
			p.output(p.op("conv", a, p.input(1, 32, 10, 10, 10), p.weight(32, 32, 3, 3, 3), graph.Absent))
		}, "conv"},
		"lines": {func(p *picture) {
			a := graph.Attrs{"stride": []int{2}, "padding": []int{1}, "dilation": []int{1}, "groups": 1, "act": "gelu"}
			x := p.op("conv", a, p.input(2, 1, 4000), p.weight(64, 1, 7), graph.Absent)
			x = p.op("conv", a, x, p.weight(64, 64, 3), p.weight(64))
			p.output(x)
		}, "conv16 conv16 from16"},
		"read as it is, too": {func(p *picture) {
			x := p.conv(p.input(2, 3, 40, 40), 32, 3, 1, 1, "")
			p.output(p.op("cumsum", graph.Attrs{"dim": 2}, x))
			p.output(p.conv(x, 32, 3, 1, 1, ""))
			p.output(x)
		}, "conv16 from16 cumsum conv16 from16"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPicture(t)
			c.build(p)
			before := len(p.Ops)
			g := Graph(p.Graph, false)
			var kinds []string
			for _, op := range g.Ops {
				kinds = append(kinds, string(op.Kind))
			}
			if got := strings.Join(kinds, " "); got != c.want {
				t.Errorf("it became %q, want %q", got, c.want)
			}
			if len(p.Ops) != before {
				t.Error("the graph changed")
			}
			want := p.results(p.Graph)
			for exact, bound := range map[bool]float64{false: 1e-4, true: 1e-5} {
				for k, got := range p.results(Graph(p.Graph, exact)) {
					near(t, got, want[k], bound)
				}
			}
		})
	}
}

// Lowered convolutions in blocks say what product they are: the channels of weights, not the padded ones of results.
func TestBlockedProducts(t *testing.T) {
	p := newPicture(t)
	x := p.conv(p.input(2, 3, 56, 48), 50, 7, 2, 1, "relu")
	p.output(p.conv(p.conv(x, 60, 3, 1, 1, "relu"), 40, 1, 1, 1, "relu"))
	l, err := lowered(t, Graph(p.Graph, false))
	if err != nil {
		t.Fatal(err)
	}
	const pixels = 2 * 28 * 24
	want := []graph.Product{{M: 50, N: pixels, K: 3 * 7 * 7}, {M: 60, N: pixels, K: 50 * 3 * 3}, {M: 40, N: pixels, K: 60}}
	suffixes := []string{"", "", " 1"}
	var got []graph.Product
	for i, op := range l.Graph.Ops {
		if op.Kind != "conv16" {
			continue
		}
		if k := len(got); k < len(want) {
			want[k].Class = l.Steps[i].Kernel + suffixes[k]
		}
		got = append(got, l.Steps[i].Product)
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// floats returns the numbers that bytes are.
func floats(b []byte) []float32 {
	x := make([]float32, len(b)/4)
	for i := range x {
		x[i] = math.Float32frombits(binary.NativeEndian.Uint32(b[4*i:]))
	}
	return x
}

// near fails unless numbers differ by at most a share of the largest.
func near(t *testing.T, got, want []byte, bound float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d bytes, want %d", len(got), len(want))
	}
	most, numbers := 0.0, floats(got)
	for _, x := range floats(want) {
		most = max(most, math.Abs(float64(x)))
	}
	for i, x := range floats(want) {
		if y := numbers[i]; !(math.Abs(float64(x)-float64(y)) <= bound*most) {
			t.Fatalf("element %d is %v, not %v; the largest is %v", i, y, x, most)
		}
	}
}

// TestArrangeGuards: borders run when what they convert was computed, whoever reads it first.
func TestArrangeGuards(t *testing.T) {
	for _, yes := range []byte{0, 1} {
		p := newPicture(t)
		x := p.conv(p.input(1, 3, 40, 40), 32, 3, 1, 1, "")
		is := p.Whole(p.AddConst(&tensor.Tensor{DType: tensor.Bool, Layout: tensor.Contiguous(), Data: []byte{yes}}))
		first := len(p.Ops)
		a := p.op("cumsum", graph.Attrs{"dim": 2}, x)
		for i := first; i < len(p.Ops); i++ {
			p.Ops[i].Guard = []graph.Guard{{Predicate: is, Want: true}}
		}
		first = len(p.Ops)
		b := p.op("cumsum", graph.Attrs{"dim": 3}, x)
		for i := first; i < len(p.Ops); i++ {
			p.Ops[i].Guard = []graph.Guard{{Predicate: is, Want: false}}
		}
		p.output(p.op("choose", nil, is, a, b))
		got := p.results(Graph(p.Graph, false))
		near(t, got[0], p.results(p.Graph)[0], 1e-4)
	}
}

// lowered has the CPU say how it computes a graph.
func lowered(t *testing.T, g *graph.Graph) (*graph.Lowered, error) {
	t.Helper()
	dev := cpu.New(1, graph.Standard())
	t.Cleanup(func() {
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	})
	return dev.Lower(g)
}
