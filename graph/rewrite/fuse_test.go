package rewrite_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/graph/rewrite"
	"github.com/optimem/optimem/internal/cpu"
	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
)

// A sketch is a graph being written down for a test.
type sketch struct {
	*graph.Graph
	t     testing.TB
	guard []graph.Guard
	path  string
}

func newSketch(t testing.TB) *sketch {
	return &sketch{Graph: &graph.Graph{Modules: make(map[string]graph.Operand)}, t: t}
}

func (s *sketch) input(shape ...int) graph.Operand {
	return s.Whole(s.AddInput("x"+strconv.Itoa(len(s.Inputs)), tensor.Float32, shape))
}

// weight adds a weight of the given shape.
func (s *sketch) weight(shape ...int) graph.Operand {
	n, _ := tensor.Shape(shape).NumElements()
	w := tensor.Weight{DType: tensor.Float32, Extent: storage.Extent{Bytes: 4 * n}}
	return graph.Operand{Value: s.AddWeight(w, graph.Weight), Layout: tensor.Contiguous(shape...)}
}

// number returns a constant, everywhere in a shape.
func (s *sketch) number(x float32, shape ...int) graph.Operand {
	id := s.AddConst(tensor.Of([]float32{x}))
	return graph.Operand{Value: id, Layout: tensor.Layout{Shape: shape, Strides: make([]int, len(shape))}}
}

func (s *sketch) op(kind graph.Kind, a graph.Attrs, in ...graph.Operand) graph.Operand {
	s.t.Helper()
	out, err := s.Emit(graph.Standard(), graph.Op{Kind: kind, Attrs: a, In: in, Guard: s.guard, Path: s.path})
	if err != nil {
		s.t.Fatal(err)
	}
	return s.Whole(out[0])
}

func (s *sketch) output(list ...graph.Operand) {
	for _, o := range list {
		s.Outputs = append(s.Outputs, graph.Output{Name: strconv.Itoa(len(s.Outputs)), Operand: o})
	}
}

// rotated is a rotary embedding of heads [2 3 5 8] out of rows, whose turned halves are so many elements further than they ought
// to be; with swapped all operands are the other way round.
func (s *sketch) rotated(x graph.Operand, further int, swapped bool) graph.Operand {
	line := x.Layout.Shape[2] * 8
	head := func(from, n int) graph.Operand {
		return view(x, from, []int{2, 3, 5, n}, []int{5 * line, 8, line, 1})
	}
	angle := func() graph.Operand {
		o := s.input(5, 8)
		if d := s.Values[x.Value].DType; d != tensor.Float32 {
			o = s.op("cast", graph.Attrs{"dtype": d}, o)
		}
		return view(o, 0, []int{2, 3, 5, 8}, []int{0, 0, 8, 1})
	}
	pair := func(kind graph.Kind, a, b graph.Operand) graph.Operand {
		if swapped {
			a, b = b, a
		}
		return s.op(kind, nil, a, b)
	}
	second := s.op("neg", nil, head(further+4, 4))
	turned := s.op("cat", graph.Attrs{"dim": 3}, second, head(further, 4))
	straight := pair("mul", head(0, 8), angle())
	crossed := pair("mul", turned, angle())
	return pair("add", straight, crossed)
}

// view returns an operand with other dimensions.
func view(o graph.Operand, offset int, shape, strides []int) graph.Operand {
	return graph.Operand{Value: o.Value, Layout: tensor.Layout{Shape: shape, Strides: strides, Offset: offset}}
}

// shaped returns all of a value in another shape.
func shaped(o graph.Operand, shape ...int) graph.Operand {
	return graph.Operand{Value: o.Value, Layout: tensor.Contiguous(shape...)}
}

func kindsOf(g *graph.Graph) string {
	var kinds []string
	for _, op := range g.Ops {
		kinds = append(kinds, string(op.Kind))
	}
	return strings.Join(kinds, " ")
}

// values computes the outputs of a graph over inputs and weights of the same numbers for every graph.
func values(t *testing.T, g *graph.Graph) [][]byte {
	t.Helper()
	pool := cpu.NewPool(1)
	defer pool.Close()
	in := make(map[string]*tensor.Tensor)
	for _, id := range g.Inputs {
		v := g.Values[id]
		n, _ := v.Shape.NumElements()
		in[v.Name] = &tensor.Tensor{DType: v.DType, Layout: tensor.Contiguous(v.Shape...), Data: make([]byte, 4*n)}
		for i := range n {
			x := float32(int32(uint32(i+7*int64(len(v.Name)))*2654435761)%2003)/501/2 + 0.1
			binary.LittleEndian.PutUint32(in[v.Name].Data[4*i:], math.Float32bits(x))
		}
	}
	out, err := cpu.Interpret(t.Context(), pool, graph.Standard(), g, func(v graph.Value) ([]byte, error) {
		data := numbers(tensor.Float32, int(v.Bytes()/4))
		for i := 0; i < len(data); i += 4 { // positive, for variances
			data[i+3] &= 0x7f
		}
		return data, nil
	}, in)
	if err != nil {
		t.Fatal(err)
	}
	results := make([][]byte, len(g.Outputs))
	for i, o := range g.Outputs {
		results[i] = out[o.Name].Data
	}
	return results
}

// evaluate is how tests fold constants.
func evaluate(g *graph.Graph) ([][]byte, error) {
	pool := cpu.NewPool(1)
	defer pool.Close()
	out, err := cpu.Interpret(context.Background(), pool, graph.Standard(), g, nil, nil)
	if err != nil {
		return nil, err
	}
	var results [][]byte
	for _, o := range g.Outputs {
		results = append(results, out[o.Name].Data)
	}
	return results, nil
}

// sameNumbers fails unless results differ by no more than a share of the largest.
func sameNumbers(t *testing.T, got, want [][]byte, bound float64) {
	t.Helper()
	for k := range want {
		if bound == 0 {
			if !bytes.Equal(got[k], want[k]) {
				t.Errorf("output %d has other bits", k)
			}
			continue
		}
		at := func(b []byte, i int) float64 {
			return float64(math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:])))
		}
		most := 1e-3
		for i := range len(want[k]) / 4 {
			if x := math.Abs(at(want[k], i)); x > most {
				most = x
			}
		}
		for i := range len(want[k]) / 4 {
			x, y := at(got[k], i), at(want[k], i)
			if !(math.Abs(x-y) <= bound*most) && !(math.IsNaN(x) && math.IsNaN(y)) {
				t.Errorf("output %d: element %d is %v, not %v", k, i, x, y)
				return
			}
		}
	}
}

var pool3 = graph.Attrs{"stride": []int{1, 1}, "padding": []int{1, 1}, "dilation": []int{1, 1}, "groups": 1}

// conv adds a convolution of 3×3 with its batch norm.
func (s *sketch) conv(x graph.Operand, outputs int, norm bool) graph.Operand {
	channels := x.Layout.Shape[1]
	y := s.op("conv", pool3, x, s.weight(outputs, channels, 3, 3), s.weight(outputs))
	if norm {
		y = s.op("batch_norm", graph.Attrs{"eps": 1e-3}, y, s.weight(outputs), s.weight(outputs), s.weight(outputs),
			s.weight(outputs))
	}
	return y
}

var (
	scalarKinds = graph.Attrs{"alpha": 1.0}
	product     = graph.Attrs{"alpha": 1.0, "beta": 1.0}
	softmax     = func(dim int) graph.Attrs { return graph.Attrs{"dim": dim, "safe": false} }
)

// TestFuse: which ops become one, and that they compute the same.
func TestFuse(t *testing.T) {
	for name, c := range map[string]struct {
		build func(s *sketch)
		want  string
	}{
		"norm, residual, activation": {func(s *sketch) {
			x := s.input(2, 4, 6, 5)
			y := s.op("add", scalarKinds, s.conv(x, 4, true), x)
			s.output(s.op("relu", nil, y))
		}, "conv"},
		"two convs are added": {func(s *sketch) {
			x := s.input(2, 4, 6, 5)
			a := s.conv(x, 8, true)
			s.output(s.op("relu", nil, s.op("add", nil, a, s.conv(x, 8, true))))
		}, "conv conv"},
		"activation before the sum": {func(s *sketch) {
			x := s.input(2, 4, 6, 5)
			s.output(s.op("add", nil, s.op("silu", nil, s.conv(x, 4, false)), x))
		}, "conv add"},
		"read twice": {func(s *sketch) {
			x := s.conv(s.input(2, 4, 6, 5), 4, false)
			s.output(s.op("add", nil, s.op("tanh", nil, x), x))
		}, "conv chain"},
		"is an output": {func(s *sketch) {
			x := s.conv(s.input(2, 4, 6, 5), 4, true)
			s.output(s.op("relu", nil, x), x)
		}, "conv relu"},
		"becomes a state": {func(s *sketch) {
			x := s.conv(s.input(2, 4, 6, 5), 4, true)
			state := s.weight(2 * 4 * 6 * 5)
			s.Values[state.Value].Role = graph.State
			s.Updates = append(s.Updates, graph.StateUpdate{State: state.Value, Operand: x})
			s.output(s.op("relu", nil, x))
		}, "conv relu"},
		"only the first image is read": {func(s *sketch) {
			x := s.conv(s.input(2, 4, 6, 5), 4, false)
			s.output(s.op("relu", nil, shaped(x, 1, 4, 6, 5)))
		}, "conv relu"},
		"alpha is not one": {func(s *sketch) {
			x := s.input(2, 4, 6, 5)
			s.output(s.op("add", graph.Attrs{"alpha": 2.0}, s.conv(x, 4, true), x))
		}, "conv add"},
		"norm after the activation": {func(s *sketch) {
			x := s.op("relu", nil, s.conv(s.input(2, 4, 6, 5), 4, false))
			s.output(s.op("batch_norm", graph.Attrs{"eps": 0.1}, x, s.weight(4), s.weight(4), s.weight(4), s.weight(4)))
		}, "conv batch_norm"},
		"norm without a weight": {func(s *sketch) {
			x := s.conv(s.input(2, 4, 6, 5), 4, false)
			s.output(s.op("batch_norm", graph.Attrs{"eps": 0.1}, x, graph.Absent, graph.Absent, s.weight(4), s.weight(4)))
		}, "conv batch_norm"},
		"limits": {func(s *sketch) {
			x := s.conv(s.input(2, 4, 6, 5), 4, false)
			s.output(s.op("clamp", graph.Attrs{"min": 0.0, "max": math.Inf(1)}, x))
		}, "conv"},
		"only a part is read": {func(s *sketch) {
			x := s.conv(s.input(2, 4, 6, 5), 4, false)
			s.output(s.op("relu", nil, view(x, 0, []int{2, 2, 6, 5}, []int{120, 30, 5, 1})))
		}, "conv relu"},
		"linear, in another shape": {func(s *sketch) {
			x := s.input(2, 3, 8)
			y := s.op("linear", nil, shaped(x, 6, 8), s.weight(8, 8), s.weight(8))
			y = s.op("gelu", graph.Attrs{"approximate": "none"}, shaped(y, 2, 3, 8))
			s.output(s.op("add", nil, x, y))
		}, "linear"},
		"linear: activation after the sum": {func(s *sketch) {
			x := s.input(6, 8)
			y := s.op("add", nil, x, s.op("linear", nil, x, s.weight(8, 8), s.weight(8)))
			s.output(s.op("relu", nil, y))
		}, "linear relu"},
		"linear and a row": {func(s *sketch) {
			x := s.input(6, 8)
			y := s.op("linear", nil, x, s.weight(8, 8), graph.Absent)
			s.output(s.op("add", nil, y, view(s.input(8), 0, []int{6, 8}, []int{0, 1})))
		}, "linear add"},
		"gelu by tanh": {func(s *sketch) {
			x := s.op("linear", nil, s.input(6, 8), s.weight(10, 8), s.weight(10))
			n := func(v float32) graph.Operand { return s.number(v, 6, 10) }
			cube := s.op("mul", nil, s.op("pow", nil, x, n(3)), n(0.044715))
			inner := s.op("mul", nil, s.op("add", scalarKinds, x, cube), n(0.7978845608))
			s.output(s.op("mul", nil, s.op("mul", nil, x, n(0.5)), s.op("add", nil, s.op("tanh", nil, inner), n(1))))
		}, "linear"},
		"gelu by tanh, otherwise": {func(s *sketch) {
			x := s.input(6, 10)
			n := func(v float32) graph.Operand { return s.number(v, 6, 10) }
			inner := s.op("add", nil, n(1), s.op("mul", nil, s.op("mul", nil, x, n(0.044715)), x))
			inner = s.op("mul", nil, s.op("mul", nil, x, n(0.7978845608)), inner)
			s.output(s.op("mul", nil, s.op("add", nil, n(1), s.op("tanh", nil, inner)), s.op("mul", nil, n(0.5), x)))
		}, "gelu"},
		"gelu by erf of a sum": {func(s *sketch) {
			x := s.op("add", nil, s.input(6, 10), s.input(6, 10))
			n := func(v float32) graph.Operand { return s.number(v, 6, 10) }
			e := s.op("erf", nil, s.op("div", nil, x, n(math.Sqrt2)))
			s.output(s.op("mul", nil, s.op("mul", nil, x, n(0.5)), s.op("add", nil, e, n(1))))
		}, "chain"},
		"silu": {func(s *sketch) {
			x := s.input(6, 10)
			s.output(s.op("mul", nil, x, s.op("sigmoid", nil, x)))
		}, "silu"},
		"hardswish": {func(s *sketch) {
			x := s.input(6, 10)
			limited := s.op("clamp", graph.Attrs{"min": 0.0, "max": 6.0}, s.op("add", nil, x, s.number(3, 6, 10)))
			s.output(s.op("div", nil, s.op("mul", nil, x, limited), s.number(6, 6, 10)))
		}, "hardswish"},
		"silu whose sigmoid others read": {func(s *sketch) {
			x := s.input(6, 10)
			y := s.op("sigmoid", nil, x)
			s.output(s.op("mul", nil, x, y), s.op("cumsum", graph.Attrs{"dim": 0}, y))
		}, "sigmoid mul cumsum"},
		"constants with the same bytes": {func(s *sketch) {
			float := s.number(0.5, 6, 10)
			bits := s.AddConst(&tensor.Tensor{DType: tensor.Int32, Layout: tensor.Contiguous(), Data: []byte{0, 0, 0, 0x3f}})
			wide := func(o graph.Operand) graph.Operand {
				return s.op("cast", graph.Attrs{"dtype": tensor.Float32}, view(o, 0, []int{6, 10}, []int{0, 0}))
			}
			y := s.op("sub", nil, wide(graph.Operand{Value: bits}), wide(float))
			s.output(s.op("cumsum", graph.Attrs{"dim": 0}, s.op("mul", nil, s.input(6, 10), y)))
		}, "mul cumsum"},
		"hardswish without its lower limit": {func(s *sketch) {
			x := s.input(6, 10)
			limited := s.op("clamp", graph.Attrs{"min": math.Inf(-1), "max": 6.0}, s.op("add", nil, x, s.number(3, 6, 10)))
			s.output(s.op("div", nil, s.op("mul", nil, x, limited), s.number(6, 6, 10)))
		}, "chain"},
		"nearly silu": {func(s *sketch) {
			x := s.input(6, 10)
			s.output(s.op("mul", nil, x, s.op("sigmoid", nil, s.op("mul", nil, x, s.number(1.702, 6, 10)))))
		}, "chain"},
		"rms norm": {func(s *sketch) {
			x, w := s.input(2, 5, 8), s.weight(8)
			mean := s.op("mean", graph.Attrs{"dims": []int{2}, "keepdim": true, "dtype": tensor.Float32}, s.op("square", nil, x))
			root := s.op("rsqrt", nil, s.op("add", nil, mean, s.number(1e-5, 2, 5, 1)))
			y := s.op("mul", nil, x, view(root, 0, []int{2, 5, 8}, []int{5, 1, 0}))
			s.output(s.op("mul", nil, view(w, 0, []int{2, 5, 8}, []int{0, 0, 1}), y))
		}, "rms_norm"},
		"rms norm of another": {func(s *sketch) {
			x, z := s.input(2, 5, 8), s.input(2, 5, 8)
			mean := s.op("mean", graph.Attrs{"dims": []int{2}, "keepdim": true, "dtype": tensor.Float32}, s.op("square", nil, x))
			root := s.op("rsqrt", nil, s.op("add", nil, mean, s.number(1e-5, 2, 5, 1)))
			s.output(s.op("mul", nil, z, view(root, 0, []int{2, 5, 8}, []int{5, 1, 0})))
		}, "square mean chain mul"},
		"a mean of other rows": {func(s *sketch) {
			x := s.input(2, 8, 8)
			mean := s.op("mean", graph.Attrs{"dims": []int{1}, "keepdim": true, "dtype": tensor.Float32}, s.op("square", nil, x))
			root := s.op("rsqrt", nil, s.op("add", nil, mean, s.number(1e-5, 2, 1, 8)))
			s.output(s.op("mul", nil, x, view(root, 0, []int{2, 8, 8}, []int{8, 0, 1})))
		}, "square mean chain mul"},
		"attention": {func(s *sketch) {
			qkv := s.input(2, 5, 3, 4, 6) // [B L 3 H E]
			head := func(n int) graph.Operand {
				return view(qkv, 24*n, []int{2, 4, 5, 6}, []int{360, 6, 72, 1})
			}
			k := view(qkv, 24, []int{2, 4, 6, 5}, []int{360, 6, 1, 72})
			scores := s.op("mul", nil, s.op("matmul", product, head(0), k), s.number(0.4, 2, 4, 5, 5))
			scores = s.op("add", nil, scores, view(s.input(2, 5, 5), 0, []int{2, 4, 5, 5}, []int{25, 0, 5, 1}))
			s.output(s.op("matmul", product, s.op("softmax", softmax(3), scores), head(2)))
		}, "scaled_dot_product_attention"},
		"attention with two masks, windows": {func(s *sketch) {
			q := s.op("mul", nil, s.input(6, 2, 5, 4), s.number(0.5, 6, 2, 5, 4))
			k, v := s.input(6, 2, 5, 4), s.input(6, 2, 5, 4)
			scores := s.op("matmul", product, q, view(k, 0, []int{6, 2, 4, 5}, []int{40, 20, 1, 4}))
			scores = s.op("add", nil, scores, view(s.input(2, 5, 5), 0, []int{6, 2, 5, 5}, []int{0, 25, 5, 1}))
			scores = s.op("add", nil, shaped(scores, 2, 3, 2, 5, 5),
				view(s.input(3, 5, 5), 0, []int{2, 3, 2, 5, 5}, []int{0, 25, 0, 5, 1}))
			weights := s.op("softmax", softmax(3), shaped(scores, 6, 2, 5, 5))
			s.output(s.op("matmul", product, weights, v))
		}, "add scaled_dot_product_attention"},
		"no attention: weights are an output": {func(s *sketch) {
			q, k, v := s.input(2, 5, 4), s.input(2, 5, 4), s.input(2, 5, 4)
			scores := s.op("matmul", product, q, view(k, 0, []int{2, 4, 5}, []int{20, 1, 4}))
			weights := s.op("softmax", softmax(2), scores)
			s.output(s.op("matmul", product, weights, v), weights)
		}, "matmul softmax matmul"},
		"no attention: along the queries": {func(s *sketch) {
			q, k, v := s.input(2, 5, 4), s.input(2, 5, 4), s.input(2, 5, 4)
			scores := s.op("matmul", product, q, view(k, 0, []int{2, 4, 5}, []int{20, 1, 4}))
			s.output(s.op("matmul", product, s.op("softmax", softmax(1), scores), v))
		}, "matmul softmax matmul"},
		"repeated keys": {func(s *sketch) {
			q, k, v := s.input(2, 6, 5, 4), s.input(2, 2, 5, 4), s.input(2, 2, 5, 4)
			repeat := func(o graph.Operand) graph.Operand {
				return shaped(s.op("copy", nil, view(o, 0, []int{2, 2, 3, 5, 4}, []int{40, 20, 0, 4, 1})), 2, 6, 5, 4)
			}
			a := graph.Attrs{"scale": 0.5, "is_causal": false, "also": ""}
			mask := view(s.input(2, 5, 5), 0, []int{2, 6, 5, 5}, []int{25, 0, 5, 1})
			s.output(s.op("scaled_dot_product_attention", a, q, repeat(k), repeat(v), mask))
		}, "scaled_dot_product_attention"},
		"rotary embedding": {func(s *sketch) {
			s.output(s.rotated(s.input(2, 5, 3, 8), 0, false))
		}, "rotary"},
		"rotary embedding, the other way round": {func(s *sketch) {
			s.output(s.rotated(s.input(2, 5, 3, 8), 0, true))
		}, "rotary"},
		"rotary embedding of half floats": {func(s *sketch) {
			x := s.op("cast", graph.Attrs{"dtype": tensor.Float16}, s.input(2, 5, 3, 8))
			s.output(s.op("cast", graph.Attrs{"dtype": tensor.Float32}, s.rotated(x, 0, false)))
		}, "cast cast cast rotary cast"},
		"no rotary embedding: the halves of another part": {func(s *sketch) {
			s.output(s.rotated(s.input(2, 5, 4, 8), 8, false))
		}, "neg cat chain"},
		"no rotary embedding: what is turned is an output": {func(s *sketch) {
			y := s.rotated(s.input(2, 5, 3, 8), 0, false)
			turned := s.Ops[len(s.Ops)-2].In[0] // of the second product
			s.output(y, turned)
		}, "neg cat chain"},
		"chain with a row and a choice": {func(s *sketch) {
			x, row := s.input(6, 10), view(s.input(10), 0, []int{6, 10}, []int{0, 1})
			less := s.op("lt", nil, x, s.number(0.5, 6, 10))
			y := s.op("mul", nil, s.op("exp", nil, x), row)
			s.output(s.op("where", nil, less, y, s.op("neg", nil, shaped(x, 6, 10))))
		}, "lt chain"},
		"no chain past two readers": {func(s *sketch) {
			x := s.op("exp", nil, s.input(6, 10))
			s.output(s.op("neg", nil, x), s.op("abs", nil, x))
		}, "exp neg abs"},
		"no chain of a repeated part": {func(s *sketch) {
			x := s.op("exp", nil, s.input(10))
			s.output(s.op("neg", nil, view(x, 0, []int{6, 10}, []int{0, 1})))
		}, "exp neg"},
		"computed twice": {func(s *sketch) {
			x := s.input(6, 10)
			s.output(s.op("sub", nil, s.op("exp", nil, x), s.op("cumsum", graph.Attrs{"dim": 0}, s.op("exp", nil, x))))
		}, "exp cumsum sub"},
		"of other numbers": {func(s *sketch) {
			x := s.input(6, 10)
			a, b := s.op("cumsum", graph.Attrs{"dim": 0}, x), s.op("cumsum", graph.Attrs{"dim": 1}, x)
			s.output(s.op("sub", nil, a, b))
		}, "cumsum cumsum sub"},
		"constants": {func(s *sketch) {
			position := s.op("arange", graph.Attrs{"size": 10, "start": 0, "step": 1, "dtype": tensor.Int64})
			x := s.op("cast", graph.Attrs{"dtype": tensor.Float32}, position)
			x = s.op("mul", nil, x, s.number(0.25, 10))
			s.output(s.op("add", nil, s.input(6, 10), view(x, 0, []int{6, 10}, []int{0, 1})), s.op("neg", nil, x))
		}, "add"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSketch(t)
			c.build(s)
			want := values(t, s.Graph)
			before := len(s.Graph.Ops)
			g := rewrite.Optimise(rewrite.Prune(s.Graph), graph.Standard(), 0, evaluate)
			if got := kindsOf(g); got != c.want {
				t.Errorf("it became %q, want %q", got, c.want)
			}
			sameNumbers(t, values(t, g), want, 2e-6)
			if len(s.Graph.Ops) != before {
				t.Error("the graph changed")
			}
			// Every pass can be left out.
			all := rewrite.ShareEqual | rewrite.FoldConstants | rewrite.FindWhole | rewrite.FuseEpilogues | rewrite.FuseChains |
				rewrite.ScaleSums
			plain := rewrite.Optimise(rewrite.Prune(s.Graph), graph.Standard(), all, evaluate)
			if got, want := kindsOf(plain), kindsOf(rewrite.Prune(s.Graph)); got != want {
				t.Errorf("without passes it became %q, want %q", got, want)
			}
			exact := rewrite.Optimise(rewrite.Prune(s.Graph), graph.Standard(), rewrite.FindWhole|rewrite.FuseEpilogues, evaluate)
			sameNumbers(t, values(t, exact), want, 0)
		})
	}
}

// TestFusedPath: what was fused belongs to the module of the first op.
func TestFusedPath(t *testing.T) {
	s := newSketch(t)
	x := s.input(2, 4, 6, 5)
	s.path = "conv1"
	y := s.conv(x, 4, false)
	s.path = "act"
	s.output(s.op("relu", nil, y))
	g := rewrite.Optimise(s.Graph, graph.Standard(), 0, nil)
	if g.Ops[0].Path != "conv1" || g.Ops[0].Attrs.String("act") != "relu" {
		t.Errorf("%v", g.Ops[0])
	}
	if _, ok := pool3["act"]; ok {
		t.Error("the attributes of the op before changed")
	}
}

// TestUnseen: a query that sees no key is NaN where the program's own softmax makes it that.
func TestUnseen(t *testing.T) {
	s := newSketch(t)
	q, k, v := s.input(1, 3, 4), s.input(1, 2, 4), s.input(1, 2, 4)
	scores := s.op("matmul", product, q, view(k, 0, []int{1, 4, 2}, []int{8, 1, 4}))
	low := float32(math.Inf(-1))
	mask := s.Whole(s.AddConst(tensor.Of([]float32{0, low, low, low, 0, 0}, 1, 3, 2)))
	s.output(s.op("matmul", product, s.op("softmax", softmax(2), s.op("add", nil, scores, mask)), v))
	want := values(t, s.Graph)
	g := rewrite.Optimise(s.Graph, graph.Standard(), 0, nil)
	if kindsOf(g) != "scaled_dot_product_attention" || !math.IsNaN(float64(math.Float32frombits(
		binary.LittleEndian.Uint32(want[0][16:])))) {
		t.Fatalf("%s gives %v", kindsOf(g), want)
	}
	sameNumbers(t, values(t, g), want, 1e-6)
}

// TestGuardsApart: ops under different guards do not become one.
func TestGuardsApart(t *testing.T) {
	s := newSketch(t)
	x := s.input(6, 10)
	yes := s.Whole(s.AddConst(&tensor.Tensor{DType: tensor.Bool, Layout: tensor.Contiguous(), Data: []byte{1}}))
	y := s.op("linear", nil, x, s.weight(10, 10), graph.Absent)
	s.guard = []graph.Guard{{Predicate: yes, Want: true}}
	a := s.op("relu", nil, y)
	b := s.op("exp", nil, a)
	s.guard = nil
	s.output(s.op("choose", nil, yes, b, x))
	want := values(t, s.Graph)
	g := rewrite.Optimise(s.Graph, graph.Standard(), 0, evaluate)
	if got := kindsOf(g); got != "linear chain choose" {
		t.Errorf("it became %s", got)
	}
	sameNumbers(t, values(t, g), want, 0)
}

// TestFoldingFails: a graph whose constants cannot be computed stays as it is, and so do large ones.
func TestFoldingFails(t *testing.T) {
	for _, c := range []struct {
		size    int
		compute func(*graph.Graph) ([][]byte, error)
	}{
		{10, func(*graph.Graph) ([][]byte, error) { return nil, errors.New("no") }},
		{1 << 20, evaluate},
	} {
		s := newSketch(t)
		x := s.op("arange", graph.Attrs{"size": c.size, "start": 0, "step": 1, "dtype": tensor.Float32})
		s.output(s.op("cumsum", graph.Attrs{"dim": 0}, x))
		if got := kindsOf(rewrite.Optimise(s.Graph, graph.Standard(), 0, c.compute)); got != "arange cumsum" {
			t.Errorf("it became %q", got)
		}
	}
}

// TestRandomChains: whatever elementwise ops are put together, the bits stay.
func TestRandomChains(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 60 {
		s := newSketch(t)
		shape := []int{2, 3, 50}
		list := []graph.Operand{s.input(shape...), s.number(0.5, shape...), view(s.input(3, 1), 0, shape, []int{0, 1, 0})}
		for range 5 + r.IntN(40) {
			pick := func() graph.Operand { return list[max(r.IntN(len(list)), r.IntN(len(list)))] }
			switch k := r.IntN(9); k {
			case 0:
				list = append(list, s.op("where", nil, s.op("lt", nil, pick(), pick()), pick(), pick()))
			case 1:
				list = append(list, s.op("softmax", softmax(2), pick()))
			case 2:
				o := pick()
				if slices.Equal(o.Layout.Strides, []int{150, 50, 1}) {
					o = shaped(s.op("sigmoid", nil, shaped(o, 6, 50)), shape...)
				}
				list = append(list, o)
			default:
				kind := []graph.Kind{"add", "mul", "maximum", "sub", "add", "mul"}[k-3]
				list = append(list, s.op(kind, nil, pick(), pick()))
			}
		}
		s.output(list[len(list)-1], list[len(list)/2])
		want := values(t, s.Graph)
		g := rewrite.Optimise(s.Graph, graph.Standard(), rewrite.FindWhole, evaluate)
		sameNumbers(t, values(t, g), want, 0)
		if len(g.Ops) > len(rewrite.Prune(s.Graph).Ops) {
			t.Error("more ops")
		}
	}
}

// BenchmarkOptimise is what the passes cost a graph of a thousand ops.
func BenchmarkOptimise(b *testing.B) {
	s := newSketch(b)
	x := s.input(1, 64, 56, 56)
	for len(s.Ops) < 1000 {
		y := s.op("relu", nil, s.conv(x, 64, true))
		x = s.op("relu", nil, s.op("add", nil, s.conv(y, 64, true), x))
	}
	s.output(x)
	for b.Loop() {
		rewrite.Optimise(s.Graph, graph.Standard(), 0, evaluate)
	}
}
