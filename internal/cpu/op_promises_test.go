package cpu

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu/ops"
	"github.com/optimem/optimem/tensor"
)

// Floats that no small integer holds become the low bits of what they are as int32, as on x86 and so in PyTorch.
func TestFloatsThatNoIntegerHolds(t *testing.T) {
	x := tensor.Of([]float64{3e9, -3e9, 1e20, math.Inf(1), math.NaN(), 300, -129, 2147483904, 4294967552, 70000, -0.9}, 11)
	to := func(x *tensor.Tensor, d tensor.DType) *tensor.Tensor {
		return single(t, "cast", graph.Attrs{"dtype": d}, x)
	}
	for _, from := range []*tensor.Tensor{x, to(x, tensor.Float32)} {
		for _, d := range []tensor.DType{tensor.Int8, tensor.Int16} {
			if got, want := to(from, d), to(to(from, tensor.Int32), d); !bytes.Equal(got.Data, want.Data) {
				t.Errorf("%v to %v gives %v, by int32 %v", from.DType, d, got.Data, want.Data)
			}
		}
	}
}

// What shifts all bits out leaves the sign to the right and nothing to the left, and so does a negative count.
func TestShiftsOfAllBits(t *testing.T) {
	x := tensor.Of([]int32{-8, 7, -1, math.MinInt32, math.MaxInt32, 0}, 6)
	by := func(n int32) *tensor.Tensor { return tensor.Of(slices.Repeat([]int32{n}, 6), 6) }
	signs := single(t, "shift_right", nil, x, by(31))
	for _, n := range []int32{32, 33, 100, math.MaxInt32, -1, math.MinInt32} {
		if got := single(t, "shift_right", nil, x, by(n)); !bytes.Equal(got.Data, signs.Data) {
			t.Errorf("right by %d: %v, want %v", n, got.Data, signs.Data)
		}
		if got := single(t, "shift_left", nil, x, by(n)); !bytes.Equal(got.Data, make([]byte, 24)) {
			t.Errorf("left by %d: %v", n, got.Data)
		}
	}
}

// TestNextHalves walks over all numbers of half precision, up and down: each is next to its neighbours.
func TestNextHalves(t *testing.T) {
	for d, value := range map[tensor.DType]func(uint16) float32{
		tensor.Float16: tensor.Float16ToFloat32, tensor.BFloat16: tensor.BFloat16ToFloat32,
	} {
		var all []uint16
		for h := range 1 << 16 {
			if v := value(uint16(h)); v == v && h != 1<<15 { // one zero
				all = append(all, uint16(h))
			}
		}
		slices.SortFunc(all, func(a, b uint16) int {
			if value(a) < value(b) {
				return -1
			}
			return 1
		})
		halves := func(x []uint16) *tensor.Tensor {
			return &tensor.Tensor{DType: d, Layout: tensor.Contiguous(len(x)), Data: bytesOfHalves(x)}
		}
		low, high := halves(all[:len(all)-1]), halves(all[1:])
		far := func(x uint16) *tensor.Tensor { return halves(slices.Repeat([]uint16{x}, len(all)-1)) }
		for _, c := range []struct{ got, want *tensor.Tensor }{
			{single(t, "nextafter", nil, low, far(all[len(all)-1])), high},
			{single(t, "nextafter", nil, high, far(all[0])), low},
			{single(t, "nextafter", nil, low, high), high},
		} {
			got, want := ops.Elements[uint16](ops.View{Data: c.got.Data}), ops.Elements[uint16](ops.View{Data: c.want.Data})
			for i := range want {
				if value(got[i]) != value(want[i]) {
					t.Fatalf("%v: number %d is %v, want %v", d, i, value(got[i]), value(want[i]))
				}
			}
		}
	}
}

// bytesOfHalves returns the memory of a copy.
func bytesOfHalves(x []uint16) []byte {
	data := make([]byte, 2*len(x))
	copy(ops.Elements[uint16](ops.View{Data: data}), x)
	return data
}

// A softmax along any dimension is right for small results too, as far as float32 goes.
func TestSoftmaxOfSmallResults(t *testing.T) {
	const rows, columns = 6, 20
	x := make([]float32, rows*columns)
	for i := range x {
		x[i] = -float32(i/columns*13) + float32(i%columns)/16
	}
	for _, p := range []*ops.Pool{oneThread, poolInGo(t)} {
		out, err := Compute(t.Context(), p, graph.Standard(), "softmax", graph.Attrs{"dim": 0}, tensor.Of(x, rows, columns))
		if err != nil {
			t.Fatal(err)
		}
		for j := range columns {
			sum := 0.0
			for i := range rows {
				sum += math.Exp(float64(x[i*columns+j]) - float64(x[j]))
			}
			for i := range rows {
				want := math.Exp(float64(x[i*columns+j])-float64(x[j])) / sum
				if got := float64(numbersOf(out[0])[i*columns+j]); !(math.Abs(got-want) <= 1e-6*want) {
					t.Fatalf("element %d, %d is %v, want %v", i, j, got, want)
				}
			}
		}
	}
}

// Statistics of numbers that differ little do not cancel: the variance of 2²⁶, 2²⁶+8, 2²⁶+16, … is that of 0, 8, 16.
func TestStatisticsDoNotCancel(t *testing.T) {
	const n, variance = 9696, 128.0 / 3
	x := make([]float32, 2*n)
	for i := range x {
		x[i] = 1<<26 + 8*float32(i%3)
	}
	rows := tensor.Of(x, 2, n)
	one := tensor.Of(slices.Repeat([]float32{1}, n), n)
	for name, p := range poolsOfSets(t, 1) {
		compute := func(kind graph.Kind, a graph.Attrs, in ...*tensor.Tensor) []float32 {
			t.Helper()
			out, err := Compute(t.Context(), p, graph.Standard(), kind, a, in...)
			if err != nil {
				t.Fatal(err)
			}
			return numbersOf(out[0])
		}
		dims := graph.Attrs{"dims": []int{1}, "correction": 0.0}
		if got := compute("var", dims, rows)[0]; math.Abs(float64(got)-variance) > 1e-5 {
			t.Errorf("%s: the variance is %v, want %v", name, got, variance)
		}
		if got := compute("std", dims, rows)[1]; math.Abs(float64(got)-math.Sqrt(variance)) > 1e-6 {
			t.Errorf("%s: the deviation is %v, want %v", name, got, math.Sqrt(variance))
		}
		eps := graph.Attrs{"dims": 1, "eps": 0.0, "groups": 1}
		for _, got := range [][]float32{
			compute("layer_norm", eps, rows, nil, nil), compute("layer_norm", eps, rows, one, nil),
			compute("group_norm", eps, tensor.Of(x, 2, 4, n/4), nil, nil),
		} {
			for i, v := range got {
				want := (8*float64(i%3) - 8) / math.Sqrt(variance)
				if math.Abs(float64(v)-want) > 1e-5 {
					t.Fatalf("%s: element %d of a norm is %v, want %v", name, i, v, want)
				}
			}
		}
	}
}

// A query that sees no key gives zeros, or NaN where that is asked for; the logarithm of its sum is 0.
func TestQueriesThatSeeNothing(t *testing.T) {
	r := rand.New(rand.NewPCG(79, 80))
	const keys, width = 50, 16
	for _, p := range append(poolsOf(t), oneThread) {
		for round := range 4 {
			queries := []int{3, 40}[round%2]
			in := []*tensor.Tensor{noise(r, 1, queries, width), noise(r, 1, keys, width), noise(r, 1, keys, width)}
			if round >= 2 { // in float64 no kernel of a processor computes it
				for i, x := range in {
					in[i] = widened(x)
				}
			}
			mask := &tensor.Tensor{DType: tensor.Bool, Layout: tensor.Contiguous(1, queries, keys), Data: make([]byte, queries*keys)}
			for i := range mask.Data {
				if i/keys != 1 {
					mask.Data[i] = 1
				}
			}
			for _, nan := range []bool{false, true} {
				a := graph.Attrs{"scale": 0.25, "is_causal": false, "unseen_nan": nan, "also": "logsumexp"}
				out, err := Compute(t.Context(), p, graph.Standard(), "scaled_dot_product_attention", a, append(in, mask)...)
				if err != nil {
					t.Fatal(err)
				}
				for i, x := range ops.Elements[float64](ops.View{Data: widened(out[0]).Data}) {
					if blind := i/width == 1; blind && (nan && x == x || !nan && x != 0) || !blind && (x != x || x == 0) {
						t.Fatalf("element %d of %d queries of %v is %v, NaN is wanted: %t", i, queries, in[0].DType, x, nan)
					}
				}
				if sum := ops.Elements[float64](ops.View{Data: widened(out[1]).Data})[1]; sum != 0 {
					t.Errorf("the logarithm of a sum of nothing is %v", sum)
				}
			}
		}
	}
}

// The weights of keys that a causal query does not see are zero, for all keys that there are.
func TestCausalWeightsAreZeroAfterTheQuery(t *testing.T) {
	r := rand.New(rand.NewPCG(81, 82))
	const queries, keys, width = 150, 170, 8
	for _, p := range poolsOfSets(t, 1) {
		a := graph.Attrs{"scale": 0.5, "is_causal": true, "also": "weights"}
		out, err := Compute(t.Context(), p, graph.Standard(), "scaled_dot_product_attention", a,
			noise(r, 1, queries, width), noise(r, 1, keys, width), noise(r, 1, keys, width))
		if err != nil {
			t.Fatal(err)
		}
		for i, w := range numbersOf(out[1]) {
			if seen := i%keys <= i/keys; seen && !(w > 0) || !seen && w != 0 {
				t.Fatalf("query %d has a weight of %v for key %d", i/keys, w, i%keys)
			}
		}
	}
}

// Rows that belong to no group are zero.
func TestRowsOfNoGroup(t *testing.T) {
	r := rand.New(rand.NewPCG(83, 84))
	x, w := noise(r, 9, 6), noise(r, 2, 6, 5)
	for i, v := range numbersOf(single(t, "grouped_matmul", nil, x, w, tensor.Of([]int32{3, 7}, 2))) {
		if (i/5 < 7) != (v != 0) {
			t.Errorf("element %d of row %d is %v", i%5, i/5, v)
		}
	}
}

// A part of an embedding has the rows of its own indices, and leaves the others to the next part.
func TestEmbeddingOfRowsOfOnePart(t *testing.T) {
	table := tensor.Of([]float32{1, 2, 3, 4, 5, 6, 7, 8}, 4, 2) // rows 10 to 12 of 20, and a row that is somebody else's
	table.Layout.Shape = tensor.Shape{3, 2}
	ids := tensor.Of([]int64{9, 10, 11, 12, 13, 0, 19}, 7)
	before := tensor.Of(slices.Repeat([]float32{-1}, 14), 7, 2)
	for _, rest := range []*tensor.Tensor{nil, before} {
		other := float32(0)
		if rest != nil {
			other = -1
		}
		got := numbersOf(single(t, "embedding_rows", graph.Attrs{"low": 10, "size": 20}, table, ids, rest))
		want := []float32{other, other, 1, 2, 3, 4, 5, 6, other, other, other, other, other, other}
		if !slices.Equal(got, want) {
			t.Errorf("it gave %v, want %v", got, want)
		}
	}
}

// A convolution that gives its channels last gives the numbers of one that does not.
func TestConvolutionsWithChannelsLast(t *testing.T) {
	r := rand.New(rand.NewPCG(85, 86))
	x, w, b := noise(r, 2, 3, 9, 11), noise(r, 5, 3, 3, 3), noise(r, 5)
	a := graph.Attrs{"stride": []int{2, 1}, "padding": []int{1, 0}, "dilation": []int{1, 1}, "groups": 1}
	plain := single(t, "conv", a, x, w, b)
	a["channels_last"] = true
	last := single(t, "conv", a, x, w, b)
	shape := plain.Layout.Shape
	pixels := shape[2] * shape[3]
	for i, v := range numbersOf(last) {
		image, pixel, channel := i/(pixels*shape[1]), i/shape[1]%pixels, i%shape[1]
		if want := numbersOf(plain)[(image*shape[1]+channel)*pixels+pixel]; v != want {
			t.Fatalf("element %d is %v, want %v", i, v, want)
		}
	}
}

// Means of integers are rounded down, as PyTorch divides them.
func TestMeansOfNegativeIntegers(t *testing.T) {
	a := graph.Attrs{"dim": 0, "reduce": "mean", "include_self": false}
	got := single(t, "scatter", a, tensor.Of(make([]int64, 3), 3), tensor.Of([]int64{0, 0, 1, 1, 2, 2}, 6),
		tensor.Of([]int64{-1, -2, 1, 2, -2, -2}, 6))
	if want := []int64{-2, 1, -2}; !slices.Equal(ops.Elements[int64](ops.View{Data: got.Data}), want) {
		t.Errorf("it gave %v, want %v", ops.Elements[int64](ops.View{Data: got.Data}), want)
	}
}
