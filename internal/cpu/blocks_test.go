package cpu

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu/elementwise"
	simd "github.com/optimem/optimem/internal/cpu/kernel"
	"github.com/optimem/optimem/internal/cpu/ops"
	"github.com/optimem/optimem/tensor"
)

// poolsOf returns a pool of two threads for every set of kernels that the processor can run.
func poolsOf(t testing.TB) []*ops.Pool {
	var pools []*ops.Pool
	for _, s := range simd.All() {
		p := ops.NewPool(2)
		p.Set = s
		t.Cleanup(p.Close)
		pools = append(pools, p)
	}
	return pools
}

// poolInGo returns a pool without kernels.
func poolInGo(t testing.TB) *ops.Pool {
	p := ops.NewPool(1)
	p.Set = nil
	t.Cleanup(p.Close)
	return p
}

// randomView returns a tensor of a shape over memory of its own, with dimensions repeated, exchanged or apart.
func randomView(rng *rand.Rand, d tensor.DType, shape tensor.Shape) *tensor.Tensor {
	order := rng.Perm(len(shape))
	if rng.IntN(2) == 0 {
		slices.Sort(order)
	}
	l := tensor.Layout{Shape: shape, Strides: make([]int, len(shape)), Offset: rng.IntN(3)}
	repeat := rng.IntN(4) == 0
	step := 1
	if rng.IntN(4) == 0 {
		step = 2
	}
	for i := len(order) - 1; i >= 0; i-- {
		if repeat && rng.IntN(2) == 0 {
			continue
		}
		l.Strides[order[i]] = step
		step *= shape[order[i]]
	}
	n := step + l.Offset + 1
	data := make([]byte, n*d.Size())
	v := ops.View{Data: data, DType: d}
	for i := range n {
		switch x := rng.NormFloat64() * 3; d {
		case tensor.Bool:
			data[i] = byte(rng.IntN(2))
		case tensor.Float64:
			ops.Elements[float64](v)[i] = x
		default:
			ops.StoreFloat(v, i, x)
		}
	}
	return &tensor.Tensor{DType: d, Layout: l, Data: data}
}

func randomShape(rng *rand.Rand) tensor.Shape {
	shape := make(tensor.Shape, 1+rng.IntN(4))
	for i := range shape {
		shape[i] = 1 + rng.IntN([]int{3, 9, 40, 150}[rng.IntN(4)])
		if ops.Volume(shape[:i+1]) > 60000 {
			shape[i] = 1
		}
	}
	return shape
}

// agreeWith runs an op with two pools and fails unless the results agree.
func agreeWith(t *testing.T, a, b *ops.Pool, kind graph.Kind, attrs graph.Attrs, bound float64, in ...*tensor.Tensor) {
	t.Helper()
	got, err := Compute(t.Context(), a, graph.Standard(), kind, attrs, in...)
	if err != nil {
		t.Fatalf("%s: %v", kind, err)
	}
	want, err := Compute(t.Context(), b, graph.Standard(), kind, attrs, in...)
	if err != nil {
		t.Fatalf("%s: %v", kind, err)
	}
	for i := range got {
		n := ops.Volume(got[i].Layout.Shape)
		x, y := make([]float64, n), make([]float64, n)
		largest := 0.0
		if ops.IsReal(got[i].DType) {
			ops.LoadAll(x, ops.View{Data: got[i].Data, DType: got[i].DType, Layout: got[i].Layout})
			ops.LoadAll(y, ops.View{Data: want[i].Data, DType: want[i].DType, Layout: want[i].Layout})
		} else {
			for k := range got[i].Data {
				if got[i].Data[k] != want[i].Data[k] {
					t.Fatalf("%s: byte %d of result %d differs", kind, k, i)
				}
			}
			continue
		}
		switch got[i].DType {
		case tensor.Float16:
			bound = max(bound, 1e-3)
		case tensor.BFloat16:
			bound = max(bound, 8e-3)
		}
		for _, v := range y {
			if v == v && !math.IsInf(v, 0) {
				largest = max(largest, math.Abs(v))
			}
		}
		for k := range x {
			if math.IsNaN(x[k]) && math.IsNaN(y[k]) || x[k] == y[k] {
				continue
			}
			if !(math.Abs(x[k]-y[k]) <= bound*largest) {
				t.Fatalf("%s with %s: element %d of %v is %v, want %v", kind, a.Set.Name, k, got[i].Layout.Shape, x[k], y[k])
			}
		}
	}
}

var attrsOf = map[graph.Kind]graph.Attrs{
	"gelu":       {"approximate": "tanh"},
	"elu":        {"alpha": 0.7, "scale": 1.25, "input_scale": 0.5},
	"leaky_relu": {"slope": 0.1},
	"clamp":      {"min": -1.0, "max": 2.0},
	"add":        {"alpha": 0.3},
	"sub":        {"alpha": 1.5},
	"addcmul":    {"value": -0.5},
}

// operandsOf returns how many operands a kind takes.
func operandsOf(kind graph.Kind) int {
	switch kind {
	case "add", "sub", "mul", "div", "maximum", "minimum", "prelu", "glu":
		return 2
	case "addcmul", "where":
		return 3
	}
	return 1
}

// TestVectorOps compares the kernels with the loops in Go, over random shapes and strides.
func TestVectorOps(t *testing.T) {
	inGo := poolInGo(t)
	for _, p := range poolsOf(t) {
		for kind := range elementwise.VectorOps {
			rng := rand.New(rand.NewPCG(1, uint64(len(kind))))
			for round := range 12 {
				d := []tensor.DType{tensor.Float32, tensor.Float32, tensor.Float16, tensor.BFloat16}[round%4]
				shape := randomShape(rng)
				in := make([]*tensor.Tensor, operandsOf(kind))
				for i := range in {
					in[i] = randomView(rng, d, shape)
				}
				if kind == "where" {
					in[0] = randomView(rng, tensor.Bool, shape)
				}
				attrs := attrsOf[kind]
				if kind == "gelu" && round%2 == 0 {
					attrs = nil
				}
				agreeWith(t, p, inGo, kind, attrs, 4e-7, in...)
			}
		}
	}
}

// someProgram is a chain with every sort of instruction: of kernels, of loops in Go, of values read twice.
var someProgram = graph.Program{
	{Kind: "mul", Args: []int{0, 1}},                                             // 4
	{Kind: "where", Args: []int{3, 4, 2}},                                        // 5
	{Kind: "sin", Args: []int{5}},                                                // 6
	{Kind: "silu", Args: []int{4}},                                               // 7
	{Kind: "add", Args: []int{7, 6}},                                             // 8
	{Kind: "clamp", Args: []int{8}, Attrs: graph.Attrs{"min": -2.0, "max": 2.0}}, // 9
	{Kind: "mul", Args: []int{9, 9}},                                             // 10
	{Kind: "sub", Args: []int{10, 5}},                                            // 11
	{Kind: "addcmul", Args: []int{11, 4, 8}, Attrs: graph.Attrs{"value": 0.5}},   // 12
}

// TestChains: a chain gives the bits of its ops one by one, with every set of kernels.
func TestChains(t *testing.T) {
	pools := poolsOf(t)
	if len(pools) == 0 {
		pools = append(pools, poolInGo(t))
	}
	for _, p := range pools {
		rng := rand.New(rand.NewPCG(3, 4))
		for range 40 {
			shape := randomShape(rng)
			values := []*tensor.Tensor{
				randomView(rng, tensor.Float32, shape), randomView(rng, tensor.Float32, shape),
				randomView(rng, tensor.Float32, shape), randomView(rng, tensor.Bool, shape),
			}
			got, err := Compute(t.Context(), p, graph.Standard(), "chain", graph.Attrs{"program": someProgram}, values...)
			if err != nil {
				t.Fatal(err)
			}
			for _, q := range someProgram {
				var in []*tensor.Tensor
				for _, arg := range q.Args {
					in = append(in, values[arg])
				}
				out, err := Compute(t.Context(), p, graph.Standard(), q.Kind, q.Attrs, in...)
				if err != nil {
					t.Fatal(err)
				}
				values = append(values, out[0])
			}
			if want := values[len(values)-1]; !slices.Equal(got[0].Data, want.Data) {
				t.Fatalf("a chain over %v does not give the bits of its ops", shape)
			}
		}
	}
}

// allocates returns the objects that a run of a kernel allocates.
func allocates(t *testing.T, p *ops.Pool, kind graph.Kind, attrs graph.Attrs, in ...*tensor.Tensor) float64 {
	t.Helper()
	k, err := lookup(graph.Standard(), kind)
	if err != nil {
		t.Fatal(err)
	}
	def, _ := graph.Standard().Lookup(kind)
	c := &ops.Call{Ctx: context.Background(), Attrs: attrs, Pool: p}
	var specs []graph.Spec
	for _, x := range in {
		if x == nil {
			specs, c.In = append(specs, graph.Spec{}), append(c.In, ops.View{})
			continue
		}
		specs = append(specs, graph.Spec{DType: x.DType, Shape: x.Layout.Shape})
		c.In = append(c.In, ops.View{Data: x.Data, DType: x.DType, Layout: x.Layout})
	}
	outs, err := def.Shape(specs, attrs)
	if err != nil {
		t.Fatalf("%s: %v", kind, err)
	}
	for _, s := range outs {
		c.Out = append(c.Out, ops.View{
			Data: make([]byte, ops.Volume(s.Shape)*s.DType.Size()), DType: s.DType, Layout: tensor.Contiguous(s.Shape...),
		})
	}
	c.Work = make([]byte, k.ThreadsWorkBytes(p.Threads(), specs, outs, attrs))
	n := testing.AllocsPerRun(20, func() {
		if err := k.Run(c); err != nil {
			t.Fatal(err)
		}
	})
	if raceDetector {
		return 0
	}
	return n
}

// TestCasts compares conversions between floats with those in Go.
func TestCasts(t *testing.T) {
	inGo := poolInGo(t)
	kinds := []tensor.DType{tensor.Float32, tensor.Float16, tensor.BFloat16}
	for _, p := range poolsOf(t) {
		rng := rand.New(rand.NewPCG(51, 52))
		for range 10 {
			for _, from := range kinds {
				for _, to := range kinds {
					x := randomView(rng, from, randomShape(rng))
					agreeWith(t, p, inGo, "cast", graph.Attrs{"dtype": to}, 0, x)
				}
			}
		}
		x := randomView(rng, tensor.BFloat16, tensor.Shape{200, 300})
		if n := allocates(t, p, "cast", graph.Attrs{"dtype": tensor.Float32}, x); n != 0 {
			t.Errorf("a cast allocates %v objects", n)
		}
	}
}

// TestBlocksAllocate: elementwise ops and chains of them allocate nothing.
func TestBlocksAllocate(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for _, p := range poolsOf(t) {
		for kind := range elementwise.VectorOps {
			shape := tensor.Shape{30, 40, 50}
			in := make([]*tensor.Tensor, operandsOf(kind))
			for i := range in {
				in[i] = randomView(rng, tensor.Float32, shape)
			}
			if kind == "where" {
				in[0] = randomView(rng, tensor.Bool, shape)
			}
			if n := allocates(t, p, kind, attrsOf[kind], in...); n != 0 {
				t.Errorf("%s allocates %v objects", kind, n)
			}
		}
		program := graph.Program{{Kind: "mul", Args: []int{0, 1}}, {Kind: "gelu", Args: []int{2}}, {Kind: "add", Args: []int{3, 0}}}
		x := randomView(rng, tensor.Float32, tensor.Shape{300, 200})
		y := randomView(rng, tensor.Float32, tensor.Shape{300, 200})
		if n := allocates(t, p, "chain", graph.Attrs{"program": program}, x, y); n != 0 {
			t.Errorf("a chain allocates %v objects", n)
		}
	}
}
