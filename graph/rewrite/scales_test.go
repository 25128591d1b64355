package rewrite_test

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/graph/rewrite"
	"github.com/optimem/optimem/internal/cpu"
	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
)

// scaledRows, scaledDepth are the sizes of the weights below.
const scaledRows, scaledDepth = 37, 70

// A scaledSketch is a program with weights of int8, in a dtype of floats.
type scaledSketch struct {
	*sketch
	d tensor.DType
}

// bytes adds a weight of int8.
func (s scaledSketch) bytes(shape ...int) graph.Operand {
	n, _ := tensor.Shape(shape).NumElements()
	w := tensor.Weight{Name: "w8", DType: tensor.Int8, Extent: storage.Extent{Bytes: n}}
	return graph.Operand{Value: s.AddWeight(w, graph.Weight), Layout: tensor.Contiguous(shape...)}
}

// vector adds a weight of one dimension.
func (s scaledSketch) vector(n int) graph.Operand {
	w := tensor.Weight{Name: "v", DType: s.d, Extent: storage.Extent{Bytes: int64(n * s.d.Size())}}
	return graph.Operand{Value: s.AddWeight(w, graph.Weight), Layout: tensor.Contiguous(n)}
}

func (s scaledSketch) x(shape ...int) graph.Operand {
	return s.Whole(s.AddInput("x", s.d, shape))
}

func (s scaledSketch) wide(o graph.Operand) graph.Operand {
	return s.op("cast", graph.Attrs{"dtype": s.d}, o)
}

// along repeats a vector along the dimension dim of a shape, which it has.
func along(v graph.Operand, dim int, shape ...int) graph.Operand {
	strides := make([]int, len(shape))
	strides[dim] = v.Layout.Strides[0]
	return view(v, v.Layout.Offset, shape, strides)
}

func transposed(o graph.Operand) graph.Operand {
	l := o.Layout
	return view(o, l.Offset, []int{l.Shape[1], l.Shape[0]}, []int{l.Strides[1], l.Strides[0]})
}

// scaledForms are ways to write a linear layer of int8 weights, and the ops that they become.
var scaledForms = map[string]struct {
	write func(s scaledSketch) graph.Operand
	kinds string
	half  bool // also of half floats
}{
	"sums": {func(s scaledSketch) graph.Operand {
		y := s.op("linear", nil, s.x(2, 3, scaledDepth), s.wide(s.bytes(scaledRows, scaledDepth)))
		return s.op("mul", nil, y, along(s.vector(scaledRows), 2, 2, 3, scaledRows))
	}, "linear", true},
	"sums with bias and activation": {func(s scaledSketch) graph.Operand {
		y := s.op("linear", nil, s.x(5, scaledDepth), s.wide(s.bytes(scaledRows, scaledDepth)))
		y = s.op("mul", nil, along(s.vector(scaledRows), 1, 5, scaledRows), y)
		y = s.op("add", nil, y, along(s.vector(scaledRows), 1, 5, scaledRows))
		return s.op("relu", nil, y)
	}, "linear", false},
	"weight": {func(s scaledSketch) graph.Operand {
		w := s.op("mul", nil, s.wide(s.bytes(scaledRows, scaledDepth)), along(s.vector(scaledRows), 0, scaledRows, scaledDepth))
		return s.op("linear", nil, s.x(3, scaledDepth), w, s.vector(scaledRows))
	}, "linear", true},
	"weight, two readers": {func(s scaledSketch) graph.Operand {
		w := s.op("mul", nil, s.wide(s.bytes(scaledDepth, scaledDepth)), along(s.vector(scaledDepth), 0, scaledDepth, scaledDepth))
		return s.op("linear", nil, s.op("linear", nil, s.x(3, scaledDepth), w), w)
	}, "linear linear", false},
	"product of a turned weight": {func(s scaledSketch) graph.Operand {
		w := s.op("mul", nil, along(s.vector(scaledRows), 0, scaledRows, scaledDepth), s.wide(s.bytes(scaledRows, scaledDepth)))
		return s.op("matmul", product, s.x(3, scaledDepth), transposed(w))
	}, "linear", true},
	"product of a weight k×n": {func(s scaledSketch) graph.Operand {
		w := s.op("mul", nil, s.wide(s.bytes(scaledDepth, scaledRows)), along(s.vector(scaledRows), 1, scaledDepth, scaledRows))
		return s.op("matmul", product, s.x(3, scaledDepth), w)
	}, "linear", true},
	"sums of a weight k×n": {func(s scaledSketch) graph.Operand {
		y := s.op("matmul", product, s.x(6, scaledDepth), s.wide(s.bytes(scaledDepth, scaledRows)))
		y = s.op("mul", nil, shaped(y, 2, 3, scaledRows), along(s.vector(scaledRows), 2, 2, 3, scaledRows))
		return y
	}, "linear", true},
	"a weight turned before it is widened": {func(s scaledSketch) graph.Operand {
		y := s.op("matmul", product, s.x(6, scaledDepth), s.wide(transposed(s.bytes(scaledRows, scaledDepth))))
		return s.op("mul", nil, y, along(s.vector(scaledRows), 1, 6, scaledRows))
	}, "linear", true},
	"a batch times one weight": {func(s scaledSketch) graph.Operand {
		w := s.wide(s.bytes(scaledRows, scaledDepth))
		w = view(w, 0, []int{2, scaledDepth, scaledRows}, []int{0, 1, scaledDepth})
		x := view(s.x(3, 2, scaledDepth), 0, []int{2, 3, scaledDepth}, []int{scaledDepth, 2 * scaledDepth, 1})
		return s.op("mul", nil, s.op("matmul", product, x, w), along(s.vector(scaledRows), 2, 2, 3, scaledRows))
	}, "linear", true},
	"one scale for all": {func(s scaledSketch) graph.Operand {
		y := s.op("linear", nil, s.x(6, scaledDepth), s.wide(s.bytes(scaledRows, scaledDepth)))
		return s.op("mul", nil, y, view(s.vector(3), 1, []int{6, scaledRows}, []int{0, 0}))
	}, "linear", true},
	// What is not one scale for each sum stays as it is.
	"a batch of weights": {func(s scaledSketch) graph.Operand {
		y := s.op("matmul", product, s.x(2, 3, scaledDepth), s.wide(s.bytes(2, scaledDepth, scaledRows)))
		return s.op("mul", nil, y, along(s.vector(scaledRows), 2, 2, 3, scaledRows))
	}, "cast matmul mul", true},
	"an input of int8": {func(s scaledSketch) graph.Operand {
		w := s.Whole(s.AddInput("bytes", tensor.Int8, tensor.Shape{scaledRows, scaledDepth}))
		y := s.op("linear", nil, s.x(5, scaledDepth), s.wide(w))
		return s.op("mul", nil, y, along(s.vector(scaledRows), 1, 5, scaledRows))
	}, "cast linear mul", true},
	"scales along the depth": {func(s scaledSketch) graph.Operand {
		w := s.op("mul", nil, s.wide(s.bytes(scaledRows, scaledDepth)), along(s.vector(scaledDepth), 1, scaledRows, scaledDepth))
		return s.op("linear", nil, s.x(3, scaledDepth), w)
	}, "cast mul linear", true},
	"bias before the scales": {func(s scaledSketch) graph.Operand {
		y := s.op("linear", nil, s.x(5, scaledDepth), s.wide(s.bytes(scaledRows, scaledDepth)), s.vector(scaledRows))
		return s.op("mul", nil, y, along(s.vector(scaledRows), 1, 5, scaledRows))
	}, "cast linear mul", true},
	"scales by row": {func(s scaledSketch) graph.Operand {
		y := s.op("linear", nil, s.x(scaledRows, scaledDepth), s.wide(s.bytes(scaledRows, scaledDepth)))
		return s.op("mul", nil, y, along(s.vector(scaledRows), 0, scaledRows, scaledRows))
	}, "cast linear mul", true},
	"sums that another op reads": {func(s scaledSketch) graph.Operand {
		y := s.op("linear", nil, s.x(5, scaledDepth), s.wide(s.bytes(scaledRows, scaledDepth)))
		s.output(y)
		return s.op("mul", nil, y, along(s.vector(scaledRows), 1, 5, scaledRows))
	}, "cast linear mul", true},
}

// realNumbers computes the first output of a graph in floats of 64 bits, with weights and inputs of the same numbers for
// every graph.
func realNumbers(t *testing.T, g *graph.Graph) []float64 {
	t.Helper()
	pool := cpu.NewPool(2)
	defer pool.Close()
	in := make(map[string]*tensor.Tensor)
	for _, id := range g.Inputs {
		v := g.Values[id]
		n, _ := v.Shape.NumElements()
		in[v.Name] = &tensor.Tensor{DType: v.DType, Layout: tensor.Contiguous(v.Shape...), Data: numbers(v.DType, int(n))}
	}
	last := g.Outputs[len(g.Outputs)-1]
	out, err := cpu.Interpret(t.Context(), pool, graph.Standard(), g, func(v graph.Value) ([]byte, error) {
		n, _ := v.Shape.NumElements()
		return numbers(v.DType, int(n)), nil
	}, in)
	if err != nil {
		t.Fatal(err)
	}
	result := out[last.Name]
	var all []float64
	for at := 0; at < len(result.Data); at += result.DType.Size() {
		switch data := result.Data[at:]; result.DType {
		case tensor.Float32:
			all = append(all, float64(math.Float32frombits(binary.LittleEndian.Uint32(data))))
		case tensor.BFloat16:
			all = append(all, float64(tensor.BFloat16ToFloat32(binary.LittleEndian.Uint16(data))))
		default:
			all = append(all, float64(tensor.Float16ToFloat32(binary.LittleEndian.Uint16(data))))
		}
	}
	return all
}

func TestScaleSums(t *testing.T) {
	for name, c := range scaledForms {
		for _, d := range []tensor.DType{tensor.Float32, tensor.BFloat16, tensor.Float16} {
			if d != tensor.Float32 && !c.half {
				continue
			}
			t.Run(name+" "+d.String(), func(t *testing.T) {
				s := scaledSketch{newSketch(t), d}
				s.output(c.write(s))
				const others = rewrite.FuseChains
				plain := rewrite.Optimise(s.Graph, graph.Standard(), others|rewrite.ScaleSums, evaluate)
				g := rewrite.Optimise(s.Graph, graph.Standard(), others, evaluate)
				if got := kindsOf(g); got != c.kinds {
					t.Errorf("it became %q, want %q", got, c.kinds)
				}
				want, got := realNumbers(t, plain), realNumbers(t, g)
				// Halves are rounded twice or more by the program, once here.
				bound := map[tensor.DType]float64{tensor.Float32: 2e-6, tensor.BFloat16: 1.2e-2, tensor.Float16: 2e-3}[d]
				largest := 0.0
				for _, x := range want {
					largest = max(largest, math.Abs(x))
				}
				for i := range want {
					if !(math.Abs(got[i]-want[i]) <= bound*largest) {
						t.Fatalf("element %d is %v, want %v (largest %v)", i, got[i], want[i], largest)
					}
				}
			})
		}
	}
}

// TestScalesOfTheSums: scales that are of float32 beside half floats stay apart, since the program rounds sums before it
// multiplies by them.
func TestScalesOfTheSums(t *testing.T) {
	s := scaledSketch{newSketch(t), tensor.BFloat16}
	y := s.op("linear", nil, s.x(5, scaledDepth), s.wide(s.bytes(scaledRows, scaledDepth)))
	s.output(s.op("mul", nil, y, along(s.weight(scaledRows), 1, 5, scaledRows)))
	g := rewrite.Optimise(s.Graph, graph.Standard(), 0, evaluate)
	if got := kindsOf(g); got != "cast linear mul" {
		t.Errorf("it became %q", got)
	}
	want, got := realNumbers(t, s.Graph), realNumbers(t, g)
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("element %d is %v, want %v", i, got[i], want[i])
		}
	}
}

// TestScaledParts: a scaled layer is computed part by part as any other.
func TestScaledParts(t *testing.T) {
	s := scaledSketch{newSketch(t), tensor.Float32}
	s.output(scaledForms["weight"].write(s))
	g := rewrite.Optimise(s.Graph, graph.Standard(), 0, evaluate)
	parts, _ := rewrite.SplitRows(g, 10*scaledDepth)
	if got := kindsOf(parts); got != "linear linear linear linear cat" {
		t.Errorf("it became %q", got)
	}
	want, got := realNumbers(t, g), realNumbers(t, parts)
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("element %d is %v, want %v", i, got[i], want[i])
		}
	}
}
