package cpu

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu/ops"
	"github.com/optimem/optimem/tensor"
)

// noise returns numbers of about one, in a shape.
func noise(r *rand.Rand, shape ...int) *tensor.Tensor {
	x := make([]float32, ops.Volume(shape))
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	return tensor.Of(x, shape...)
}

// turned returns a tensor of the same shape whose last dimension does not lie in order.
func turned(r *rand.Rand, shape ...int) *tensor.Tensor {
	t := noise(r, append([]int{shape[len(shape)-1]}, shape[:len(shape)-1]...)...)
	l := tensor.Layout{Shape: shape, Strides: append([]int(nil), t.Layout.Strides[1:]...)}
	l.Strides = append(l.Strides, t.Layout.Strides[0])
	t.Layout = l
	return t
}

// numbersOf returns the elements of a tensor in the order of its memory.
func numbersOf(t *tensor.Tensor) []float32 { return ops.Elements[float32](ops.View{Data: t.Data}) }

// single computes an op with one result on one thread.
func single(t *testing.T, kind graph.Kind, a graph.Attrs, in ...*tensor.Tensor) *tensor.Tensor {
	t.Helper()
	out, err := Compute(t.Context(), oneThread, graph.Standard(), kind, a, in...)
	if err != nil {
		t.Fatalf("%s: %v", kind, err)
	}
	return out[0]
}

var acts = []graph.Attrs{
	{}, {"act": "relu"}, {"act": "relu6"}, {"act": "hardtanh", "act_a": -0.5, "act_b": 0.25}, {"act": "silu"},
	{"act": "hardswish"}, {"act": "hardsigmoid"}, {"act": "sigmoid"}, {"act": "tanh"}, {"act": "gelu"}, {"act": "gelu_tanh"},
	{"act": "leaky_relu", "act_a": 0.1}, {"act": "elu", "act_a": 0.7},
}

// TestConvEpilogue compares convolutions that end in an epilogue with the ops one by one.
func TestConvEpilogue(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for i := range 200 {
		groups := []int{1, 1, 3, 6}[r.IntN(4)]
		transposed := r.IntN(4) == 0
		a := graph.Attrs{
			"stride": []int{1 + r.IntN(2), 1}, "padding": []int{1, r.IntN(2)}, "dilation": []int{1, 1}, "groups": groups,
			"transposed": transposed, "output_padding": []int{0, 0},
		}
		x := noise(r, 1+r.IntN(3), 6, 5+r.IntN(40), 3+r.IntN(30))
		outputs := groups * (1 + r.IntN(4))
		w := noise(r, outputs, 6/groups, 1+r.IntN(3), 1+r.IntN(3))
		if transposed {
			w = noise(r, 6, outputs/groups, 1+r.IntN(3), 1+r.IntN(3))
		}
		b := noise(r, outputs)
		want := single(t, "conv", a, x, w, b)
		in := []*tensor.Tensor{x, w, b, nil, nil, nil, nil, nil}
		fused := graph.Attrs{}
		for k, v := range a {
			fused[k] = v
		}
		if r.IntN(2) == 0 {
			variance := noise(r, outputs)
			v := numbersOf(variance)
			for k := range v {
				v[k] = v[k]*v[k] + 0.1
			}
			in[3], in[4], in[5], in[6] = noise(r, outputs), noise(r, outputs), noise(r, outputs), variance
			fused["eps"] = 1e-3
			want = single(t, "batch_norm", graph.Attrs{"eps": 1e-3}, want, in[3], in[4], in[5], in[6])
		}
		if r.IntN(2) == 0 {
			in[7] = turned(r, want.Layout.Shape...)
			want = single(t, "add", nil, want, in[7])
		} else if in[3] == nil {
			in = in[:3+r.IntN(5)]
		}
		act := acts[i%len(acts)]
		for k, v := range act {
			fused[k] = v
		}
		if kind, attrs := graph.Activation(act); kind != "" {
			want = single(t, kind, attrs, want)
		}
		near(t, single(t, "conv", fused, in...), want, 1e-6)
	}
}

// near fails unless elements differ by at most a share of the largest.
func near(t *testing.T, got, want *tensor.Tensor, bound float64) {
	t.Helper()
	most := 0.0
	for _, x := range numbersOf(want) {
		most = max(most, math.Abs(float64(x)))
	}
	for i, x := range numbersOf(want) {
		if y := numbersOf(got)[i]; !(math.Abs(float64(x)-float64(y)) <= bound*most) {
			t.Fatalf("element %d is %v, not %v; the largest is %v", i, y, x, most)
		}
	}
}

// TestLinearEpilogue compares linear layers that end in an epilogue with the ops one by one, to the bit.
func TestLinearEpilogue(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	for i := range 200 {
		rows, n, k := 1+r.IntN(40), 1+r.IntN(70), 1+r.IntN(90)
		if r.IntN(3) == 0 { // few rows of a depth that is turned in registers
			rows, k = 1+r.IntN(4), 16*(1+r.IntN(20))
		}
		x, w, b := turned(r, 2, rows, k), noise(r, n, k), noise(r, n)
		if r.IntN(3) == 0 {
			b = nil
		}
		want := single(t, "linear", nil, x, w, b)
		act := acts[i%len(acts)]
		if kind, attrs := graph.Activation(act); kind != "" {
			want = single(t, kind, attrs, want)
		}
		in := []*tensor.Tensor{x, w, b}
		if r.IntN(2) == 0 {
			in = append(in, turned(r, 2, rows, n))
			want = single(t, "add", nil, want, in[3])
		}
		if got := single(t, "linear", act, in...); !bytes.Equal(got.Data, want.Data) {
			t.Fatalf("%v: other bits", act)
		}
	}
}

// TestChain compares chains with their ops one by one, to the bit.
func TestChain(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	kinds := []graph.Kind{
		"add", "mul", "sub", "div", "maximum", "where", "addcmul", "lerp", "relu", "silu", "sigmoid", "tanh", "gelu", "square",
		"clamp", "abs", "neg", "leaky_relu",
	}
	attrs := map[graph.Kind]graph.Attrs{
		"add": {"alpha": 0.5}, "clamp": {"min": -1.0, "max": 0.5}, "leaky_relu": {"slope": 0.1}, "addcmul": {"value": 2.0},
	}
	args := map[graph.Kind]int{"add": 2, "mul": 2, "sub": 2, "div": 2, "maximum": 2, "where": 3, "addcmul": 3, "lerp": 3}
	for range 100 {
		shape := []int{1 + r.IntN(7), 1 + r.IntN(50), 1 + r.IntN(90)}
		column := noise(r, shape[1])
		column.Layout = tensor.Layout{Shape: shape, Strides: []int{0, 1, 0}}
		scalar := noise(r)
		scalar.Layout = tensor.Layout{Shape: shape, Strides: []int{0, 0, 0}}
		condition := &tensor.Tensor{DType: tensor.Bool, Layout: tensor.Contiguous(shape...), Data: make([]byte, ops.Volume(shape))}
		for i := range condition.Data {
			condition.Data[i] = byte(r.IntN(2))
		}
		in := []*tensor.Tensor{noise(r, shape...), turned(r, shape...), column, scalar, condition}
		values := append([]*tensor.Tensor(nil), in...)
		var program graph.Program
		for range 1 + r.IntN(12) {
			q := graph.Instruction{Kind: kinds[r.IntN(len(kinds))]}
			q.Attrs = attrs[q.Kind]
			var operands []*tensor.Tensor
			for k := range max(args[q.Kind], 1) {
				arg := r.IntN(len(values))
				for arg == len(in)-1 {
					arg = r.IntN(len(values))
				}
				if q.Kind == "where" && k == 0 {
					arg = len(in) - 1
				}
				q.Args, operands = append(q.Args, arg), append(operands, values[arg])
			}
			program = append(program, q)
			values = append(values, single(t, q.Kind, q.Attrs, operands...))
		}
		got := single(t, "chain", graph.Attrs{"program": program}, in...)
		if !bytes.Equal(got.Data, values[len(values)-1].Data) {
			t.Fatalf("%v: other bits", program)
		}
	}
}

// Activations of one name differ by both of their parameters, within one process too.
func TestActivationsKeepTheirParameters(t *testing.T) {
	x := tensor.Of([]float32{-3, -1, -0.4, 0.1, 0.3, 0.9, 4}, 7, 1)
	one := tensor.Of([]float32{1}, 1, 1)
	for _, limits := range [][2]float64{{-0.5, 0.25}, {-0.5, 0.5}, {-2, 0.5}, {-2, 3}} {
		act := graph.Attrs{"act": "hardtanh", "act_a": limits[0], "act_b": limits[1]}
		got := numbersOf(single(t, "linear", act, x, one, nil))
		for i, v := range numbersOf(x) {
			if want := min(max(v, float32(limits[0])), float32(limits[1])); got[i] != want {
				t.Errorf("%v limited to %v is %v, want %v", v, limits, got[i], want)
			}
		}
	}
}

// A residual is added where it belongs, in pictures of many pixels too.
func TestResidualsOfLargePictures(t *testing.T) {
	r := rand.New(rand.NewPCG(45, 46))
	for _, groups := range []int{1, 4} {
		a := graph.Attrs{"stride": []int{1, 1}, "padding": []int{1, 1}, "dilation": []int{1, 1}, "groups": groups}
		x, w := noise(r, 2, 4, 50, 47), noise(r, 4, 4/groups, 3, 3)
		residual := noise(r, 2, 4, 50, 47)
		want := single(t, "add", nil, single(t, "conv", a, x, w, nil), residual)
		near(t, single(t, "conv", a, x, w, nil, nil, nil, nil, nil, residual), want, 1e-6)
	}
}

// Results of a chain that live at the same time have memory of their own, also behind an instruction that reads one twice.
func TestChainThatReadsAResultTwice(t *testing.T) {
	r := rand.New(rand.NewPCG(87, 88))
	x := noise(r, 300)
	program := graph.Program{
		{Kind: "relu", Args: []int{0}}, {Kind: "mul", Args: []int{1, 1}}, {Kind: "neg", Args: []int{0}},
		{Kind: "square", Args: []int{0}}, {Kind: "add", Args: []int{3, 4}}, {Kind: "add", Args: []int{5, 2}},
	}
	positive := single(t, "relu", nil, x)
	want := single(t, "add", nil, single(t, "neg", nil, x), single(t, "square", nil, x))
	want = single(t, "add", nil, want, single(t, "mul", nil, positive, positive))
	for _, p := range append(poolsOf(t), poolInGo(t)) {
		out, err := Compute(t.Context(), p, graph.Standard(), "chain", graph.Attrs{"program": program}, x)
		if err != nil {
			t.Fatal(err)
		}
		near(t, out[0], want, 1e-6)
	}
}
