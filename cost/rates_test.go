package cost

import (
	"math"
	"testing"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
)

func specs(shapes ...tensor.Shape) []graph.Spec {
	var list []graph.Spec
	for _, s := range shapes {
		list = append(list, graph.Spec{DType: tensor.Float32, Shape: s})
	}
	return list
}

func TestProductOf(t *testing.T) {
	groups := func(n int) graph.Attrs { return graph.Attrs{"groups": n} }
	for _, c := range []struct {
		kind    graph.Kind
		in, out []graph.Spec
		attrs   graph.Attrs
		want    graph.Product
	}{
		{"linear", specs(tensor.Shape{2, 5, 7}, tensor.Shape{3, 7}), specs(tensor.Shape{2, 5, 3}), nil, product("linear", 10, 3, 7)},
		{"matmul", specs(tensor.Shape{2, 5, 7}, tensor.Shape{2, 7, 3}), specs(tensor.Shape{2, 5, 3}), nil,
			product("matmul", 5, 3, 7)},
		{"scaled_dot_product_attention", specs(tensor.Shape{2, 5, 7}, tensor.Shape{2, 9, 7}, tensor.Shape{2, 9, 8}),
			specs(tensor.Shape{2, 5, 8}), nil, product("attention", 5, 9, 7)},
		{"conv", specs(tensor.Shape{2, 4, 8, 8}, tensor.Shape{6, 4, 3, 3}), specs(tensor.Shape{2, 6, 4, 4}), groups(1),
			product("conv", 6, 32, 36)},
		{"conv", specs(tensor.Shape{1, 4, 8, 8}, tensor.Shape{6, 4, 1, 1}), specs(tensor.Shape{1, 6, 8, 8}), groups(1),
			product("conv 1", 6, 64, 4)},
		{"conv", specs(tensor.Shape{1, 4, 8, 8}, tensor.Shape{4, 1, 3, 3}), specs(tensor.Shape{1, 4, 8, 8}), groups(4),
			product("conv depthwise", 4, 64, 9)},
		{"conv", specs(tensor.Shape{1, 4, 8}, tensor.Shape{6, 2, 3}), specs(tensor.Shape{1, 6, 8}), groups(2),
			product("conv grouped", 3, 8, 6)},
	} {
		got, ok := ProductOf(graph.Product{}, c.kind, c.in, c.out, c.attrs)
		if !ok || got != c.want {
			t.Errorf("%s of %v: %v, %v, want %v", c.kind, c.in, got, ok, c.want)
		}
	}
	want := product("own", 60, 60, 450)
	if got, ok := ProductOf(want, "test::own", nil, nil, nil); !ok || got != want {
		t.Errorf("of a device's own kind: %v, %v, want %v", got, ok, want)
	}
	if p, ok := ProductOf(graph.Product{}, "relu", specs(tensor.Shape{1}), specs(tensor.Shape{1}), nil); ok {
		t.Errorf("relu: %v", p)
	}
}

// A product of a measured size takes what was measured; one between two sizes is between them; without measurements of
// the class the kind counts, and without the kind all products.
func TestRatesOfProducts(t *testing.T) {
	r := Rates{
		FLOPs: 1e9, KindFLOPs: map[graph.Kind]float64{"conv": 2e9, "gelu": 1e6}, MemoryBytes: 1e15, OpSeconds: 1e-9,
		Points: map[string][]Point{"linear": {{1, 1024, 1024, 4e9}, {256, 1024, 1024, 64e9}}},
	}
	linear := func(rows int, attrs graph.Attrs) float64 {
		in, out := specs(tensor.Shape{rows, 1024}, tensor.Shape{1024, 1024}), specs(tensor.Shape{rows, 1024})
		flops := float64(2 * rows * 1024 * 1024)
		return flops / r.Seconds(graph.Standard(), &graph.Op{Kind: "linear", Attrs: attrs}, in, out) / 1e9
	}
	near := func(got, want float64) bool { return math.Abs(got-want) <= 0.02*want }
	if got := linear(1, nil); !near(got, 4) {
		t.Errorf("as measured: %.3g GFLOP/s", got)
	}
	if got := linear(16, nil); !near(got, 16) {
		t.Errorf("half way: %.3g GFLOP/s", got)
	}
	if got := linear(100_000, nil); !near(got, 50) && (got < 32 || got > 64) {
		t.Errorf("beyond: %.3g GFLOP/s", got)
	}
	// 256 × 1024 elements of gelu at 1e6 a second take 262 ms, the product 8 ms.
	if got := linear(256, graph.Attrs{"act": "gelu"}); !near(got, 2*1024*256*1024/1e9/0.270) {
		t.Errorf("with an activation: %.3g GFLOP/s", got)
	}
	conv := &graph.Op{Kind: "conv", Attrs: graph.Attrs{"groups": 1}}
	in, out := specs(tensor.Shape{1, 64, 8, 8}, tensor.Shape{64, 64, 3, 3}), specs(tensor.Shape{1, 64, 8, 8})
	flops := float64(2 * 64 * 64 * 9 * 64)
	if got := flops / r.Seconds(graph.Standard(), conv, in, out) / 1e9; !near(got, 2) {
		t.Errorf("by kind: %.3g GFLOP/s", got)
	}
	r.KindFLOPs = nil
	if got := flops / r.Seconds(graph.Standard(), conv, in, out) / 1e9; !near(got, 1) {
		t.Errorf("by all: %.3g GFLOP/s", got)
	}
}

func TestRatesCached(t *testing.T) {
	r := Rates{DiskBytes: 1e9, CachedBytes: 4e9}
	for share, want := range map[float64]float64{0: 1e9, 0.5: 1.6e9, 1: 4e9} {
		if got := r.Cached(share).DiskBytes; math.Abs(got-want) > 1 {
			t.Errorf("%v of it is cached: %v bytes a second, want %v", share, got, want)
		}
	}
	r.ReadSeconds, r.Disks = 101e-6, map[storage.Disk]Disk{1: {2e9, 51e-6}, 2: {Bytes: 2e9}}
	got := r.Cached(0.5)
	for _, s := range []struct{ got, want float64 }{
		{got.ReadSeconds, 51e-6}, {got.On(1).ReadSeconds, 26e-6}, {got.On(2).ReadSeconds, 51e-6},
		{r.Cached(1).ReadSeconds, CachedReadSeconds}, {r.Cached(0).ReadSeconds, 101e-6},
		{(Rates{CachedBytes: 1, ReadSeconds: 1e-7}).Cached(1).ReadSeconds, 1e-7},
	} {
		if math.Abs(s.got-s.want) > 1e-9 {
			t.Errorf("a read takes %v, want %v", s.got, s.want)
		}
	}
	if got := (Rates{DiskBytes: 1e9}).Cached(1).DiskBytes; got != 1e9 {
		t.Errorf("where it is not known: %v", got)
	}
	if got, want := (Rates{CachedBytes: guesses.DiskBytes}).Cached(0.5).DiskBytes, guesses.DiskBytes; math.Abs(got-want) > 1 {
		t.Errorf("of a guess: %v, want %v", got, want)
	}
}

// What an emulated device's clock counts is what was measured of the step's kernel, also where the step says its cost.
func TestStepSecondsOfKernel(t *testing.T) {
	r := Rates{
		FLOPs: 1e9, MemoryBytes: 1e15, OpSeconds: 1e-9,
		Points: map[string][]Point{"own direct": {{32, 64, 288, 8e9}}},
	}
	op := &graph.Op{Kind: "test::own"}
	in := specs(tensor.Shape{1, 2, 8, 8, 16}, tensor.Shape{32, 32, 3, 3})
	out := specs(tensor.Shape{1, 2, 8, 8, 16})
	step := &graph.Step{Product: product("own direct", 32, 64, 288), Cost: graph.Cost{FLOPs: 2 * 32 * 64 * 288}}
	if got, want := r.StepSeconds(graph.Standard(), step, op, in, out), 2*32*64*288/8e9; math.Abs(got-want) > 0.02*want {
		t.Errorf("%.3g s, want %.3g", got, want)
	}
}

// Turning a weight takes as long whatever number of rows is multiplied with it, as it took where it was measured: what many
// rows say of that is little beside what they vary. Few rows are multiplied with a weight as it lies.
func TestRatesOfRawWeights(t *testing.T) {
	const turning, packed = 0.4e-9, 200e9
	raw := func(rows int64) float64 { return 1 / (1/packed + turning/(2*float64(rows))) }
	r := Rates{Points: map[string][]Point{
		"own": {
			{256, 49, 4608, raw(49)}, {256, 196, 2304, raw(196)}, {64, 12544, 2304, packed * 1.02}, {256, 1, 2304, 3e9},
			{512, 49, 512, 1e9}, // not measured both ways
		},
		"own packed": {
			{256, 49, 4608, packed}, {256, 196, 2304, packed}, {64, 12544, 2304, packed}, {256, 1, 2304, 3e9},
		},
		"linear":        {{64, 1024, 1024, raw(64)}, {1, 1024, 1024, 5e9}},
		"linear packed": {{64, 1024, 1024, packed}},
		"alone":         {{64, 1024, 1024, 7e9}},
		"low":           {{256, 64, 512, packed * 1.1}},
		"low packed":    {{256, 64, 512, packed}},
	}}
	for _, c := range []struct {
		what  string
		class string
		m, n  int64
		want  float64
	}{
		{"as measured", "own", 256, 49, raw(49)},
		{"with eight times the pixels", "own", 256, 392, raw(392)},
		{"with many pixels", "own", 256, 50176, raw(50176)},
		{"with one", "own", 256, 1, 3e9},
		{"rows of a matrix", "linear", 512, 1024, raw(512)},
		{"one row", "linear", 1, 1024, 5e9},
		{"not packed anywhere", "alone", 512, 1024, 7e9},
		{"packed slower", "low", 256, 512, packed},
	} {
		k := int64(2304)
		if c.class != "own" {
			k = 1024
		}
		p := product(c.class, c.m, c.n, k)
		op := &graph.Op{Kind: "test::own"}
		flops := 2 * c.m * c.n * k
		r.FLOPs, r.MemoryBytes = 1, math.Inf(1)
		got := float64(flops) / r.LaunchSeconds(p, op, nil, nil, graph.Cost{FLOPs: flops}, false)
		if math.Abs(got-c.want) > 0.02*c.want {
			t.Errorf("%s: %.4g FLOP/s, want %.4g", c.what, got, c.want)
		}
	}
}
