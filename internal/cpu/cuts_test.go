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

// The tests of this file compute what is large enough to be cut in all the ways that kernels cut work, beside plain loops.

// productsApart fails unless a product y[i][j] = act(Σ_k x[i][k]·w[j][k] + bias[j]) is near what float64 gives.
func productsApart(t *testing.T, name string, y, x, w, bias ops.View, act func(float64) float64) {
	t.Helper()
	m, n, k := x.Shape()[0], w.Shape()[0], x.Shape()[1]
	xs, ws, bs := make([]float64, m*k), make([]float64, n*k), make([]float64, n)
	ops.LoadAll(xs, x)
	ops.LoadAll(ws, w)
	ops.LoadAll(bs, bias)
	for i := range m {
		for j := range n {
			sum := bs[j]
			for d := range k {
				sum += xs[i*k+d] * ws[j*k+d]
			}
			if got := valueAt(y, i, j); !(math.Abs(got-act(sum)) <= 1e-5*math.Sqrt(float64(k))) {
				t.Fatalf("%s: %d×%d×%d: element %d, %d is %v, want %v", name, m, n, k, i, j, got, act(sum))
			}
		}
	}
}

// TestDeepProducts computes products whose left factor is packed in several pieces of the depth: an activation comes when
// all of them are added up, and the bias once.
func TestDeepProducts(t *testing.T) {
	silu := func(x float64) float64 { return x / (1 + math.Exp(-x)) }
	for name, p := range poolsOfSets(t, 2) {
		rng := rand.New(rand.NewPCG(61, 62))
		x, w, bias := strided(rng, tensor.Float32, 1100, 1030), strided(rng, tensor.Float32, 35, 1030), strided(rng, tensor.Float32, 35)
		if cut := cutGemm(1100, 35, 1030, 4, false); cut.depth >= 1030 {
			t.Fatalf("the depth is one piece, %+v", cut)
		}
		out := emptyView(tensor.Float32, 1100, 35)
		productsApart(t, name, runKind(t, p, "linear", graph.Attrs{"act": "silu"}, out, x, w, bias), x, w, bias, silu)
	}
}

// TestWideProductsOfFewRows computes products of few rows by rows of the weight, whose sums do not all fit the scratch memory
// at once.
func TestWideProductsOfFewRows(t *testing.T) {
	for name, p := range poolsOfSets(t, 2) {
		rng := rand.New(rand.NewPCG(63, 64))
		const m, n, k = 4, 8200, 600
		if cut := cutRows(m, n, k, false); cut.blocks*blockK >= k {
			t.Fatalf("all blocks of the depth are computed at once, %+v", cut)
		}
		x, bias := strided(rng, tensor.Float32, m, k), strided(rng, tensor.Float32, n)
		w := strided(rng, tensor.Float32, k, n)
		w.Layout = tensor.Layout{Shape: tensor.Shape{n, k}, Strides: []int{1, n}}
		out := runKind(t, p, "linear", nil, emptyView(tensor.Float32, m, n), x, w, bias)
		productsApart(t, name, out, x, w, bias, func(x float64) float64 { return x })
	}
}

// TestResidualsOfUnevenRows adds residuals whose rows lie in no order that a stride says.
func TestResidualsOfUnevenRows(t *testing.T) {
	for name, p := range poolsOfSets(t, 2) {
		rng := rand.New(rand.NewPCG(65, 66))
		x, w, bias := strided(rng, tensor.Float32, 3, 5, 40), strided(rng, tensor.Float32, 70, 40), strided(rng, tensor.Float32, 70)
		residual := strided(rng, tensor.Float32, 2200)
		residual.Layout = tensor.Layout{Shape: tensor.Shape{3, 5, 70}, Strides: []int{400, 75, 1}, Offset: 3}
		out := emptyView(tensor.Float32, 3, 5, 70)
		plain := runKind(t, p, "linear", nil, out, x, w, bias)
		got := runKind(t, p, "linear", nil, out, x, w, bias, residual)
		for i := range 3 {
			for j := range 5 {
				for k := range 70 {
					want := valueAt(plain, i, j, k) + valueAt(residual, i, j, k)
					if v := valueAt(got, i, j, k); math.Abs(v-want) > 1e-6 {
						t.Fatalf("%s: element %d, %d, %d is %v, want %v", name, i, j, k, v, want)
					}
				}
			}
		}
	}
}

// TestLargeConvolutions compares convolutions with so many pixels, or channels, that the products are cut, with the plain loop
// over integers.
func TestLargeConvolutions(t *testing.T) {
	r := rand.New(rand.NewPCG(67, 68))
	for name, c := range map[string]struct {
		x, w       []int
		transposed bool
		dtype      tensor.DType
	}{
		"pixels of halves":          {[]int{1, 2, 70, 71}, []int{3, 2, 3, 3}, false, tensor.BFloat16},
		"pixels of float16":         {[]int{1, 2, 1, 9001}, []int{2, 2, 1, 3}, false, tensor.Float16},
		"many transposed":           {[]int{1, 2, 11, 12}, []int{2, 600, 4, 7}, true, tensor.Float32},
		"many transposed of halves": {[]int{1, 2, 11, 12}, []int{2, 600, 4, 7}, true, tensor.BFloat16},
	} {
		attrs := graph.Attrs{
			"stride": []int{1, 1}, "padding": []int{0, 1}, "dilation": []int{1, 1}, "groups": 1, "transposed": c.transposed,
			"output_padding": []int{0, 0},
		}
		whole := func(shape []int) (*tensor.Tensor, *tensor.Tensor) {
			n := ops.Volume(shape)
			f := &tensor.Tensor{DType: c.dtype, Layout: tensor.Contiguous(shape...), Data: make([]byte, n*c.dtype.Size())}
			i := make([]int32, n)
			for k := range i {
				i[k] = int32(r.IntN(3) - 1)
				ops.StoreFloat(ops.View{Data: f.Data, DType: c.dtype}, k, float64(i[k]))
			}
			return f, tensor.Of(i, shape...)
		}
		fx, ix := whole(c.x)
		fw, iw := whole(c.w)
		want := single(t, "conv", attrs, ix, iw, nil)
		got := widened(single(t, "conv", attrs, fx, fw, nil))
		a, b := ops.Elements[float64](ops.View{Data: got.Data}), ops.Elements[int32](ops.View{Data: want.Data})
		for k := range b {
			if a[k] != float64(b[k]) {
				t.Fatalf("%s: element %d is %v, want %v", name, k, a[k], b[k])
			}
		}
	}
}

// TestManyResultsSideBySide reduces columns, more of them than are accumulated together.
func TestManyResultsSideBySide(t *testing.T) {
	r := rand.New(rand.NewPCG(69, 70))
	const rows, columns = 7, 2*ops.Chunk + 37
	x := noise(r, rows, columns)
	values := numbersOf(x)
	column := func(j int) []float64 {
		list := make([]float64, rows)
		for i := range list {
			list[i] = float64(values[i*columns+j])
		}
		return list
	}
	mean := func(x []float64) float64 {
		sum := 0.0
		for _, v := range x {
			sum += v
		}
		return sum / rows
	}
	for kind, f := range map[graph.Kind]func(x []float64) float64{
		"sum":  func(x []float64) float64 { return rows * mean(x) },
		"mean": mean,
		"amax": slices.Max[[]float64],
		"var": func(x []float64) float64 {
			m, sum := mean(x), 0.0
			for _, v := range x {
				sum += (v - m) * (v - m)
			}
			return sum / (rows - 1)
		},
		"prod": func(x []float64) float64 {
			p := 1.0
			for _, v := range x {
				p *= v
			}
			return p
		},
	} {
		a := graph.Attrs{"dims": []int{0}, "dtype": tensor.Float32, "correction": 1.0}
		for j, got := range numbersOf(single(t, kind, a, x)) {
			if want := f(column(j)); !(math.Abs(float64(got)-want) <= 1e-6*math.Max(1, math.Abs(want))) {
				t.Fatalf("%s: result %d is %v, want %v", kind, j, got, want)
			}
		}
	}
}

// TestManyDimensions: views of more dimensions than kernels have room for are read and written like others.
func TestManyDimensions(t *testing.T) {
	r := rand.New(rand.NewPCG(71, 72))
	shape := tensor.Shape{2, 3, 2, 2, 3, 2, 2, 2, 3, 2}
	x := noise(r, shape...)
	// No two dimensions that follow each other lie in order.
	order := []int{8, 3, 6, 0, 9, 4, 1, 7, 2, 5}
	l := tensor.Layout{Shape: make(tensor.Shape, len(shape)), Strides: make([]int, len(shape))}
	for d, from := range order {
		l.Shape[d], l.Strides[d] = shape[from], x.Layout.Strides[from]
	}
	turned := &tensor.Tensor{DType: x.DType, Layout: l, Data: x.Data}
	n := ops.Volume(shape)
	want := make([]float32, n)
	for i := range want {
		want[i] = numbersOf(x)[l.OffsetOf(i)]
	}
	if got := numbersOf(single(t, "copy", nil, turned)); !slices.Equal(got, want) {
		t.Error("a copy differs")
	}
	both := numbersOf(single(t, "cat", graph.Attrs{"dim": 0}, turned, turned))
	if !slices.Equal(both[:n], want) || !slices.Equal(both[n:], want) {
		t.Error("two behind each other differ")
	}
	for kept := range len(l.Shape) {
		var dims []int
		for d := range l.Shape {
			if d != kept {
				dims = append(dims, d)
			}
		}
		sums := make([]float64, l.Shape[kept])
		for i, v := range want {
			sums[i/ops.Volume(l.Shape[kept+1:])%l.Shape[kept]] += float64(v)
		}
		for i, got := range numbersOf(single(t, "sum", graph.Attrs{"dims": dims, "dtype": tensor.Float32}, turned)) {
			if !(math.Abs(float64(got)-sums[i]) <= 1e-4) {
				t.Errorf("sum %d of all but dimension %d is %v, want %v", i, kept, got, sums[i])
			}
		}
	}
	all, sum := graph.Attrs{"dims": []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, "dtype": tensor.Float32}, 0.0
	for _, v := range want {
		sum += float64(v)
	}
	if got := numbersOf(single(t, "sum", all, turned))[0]; !(math.Abs(float64(got)-sum) <= 1e-4) {
		t.Errorf("the sum of all is %v, want %v", got, sum)
	}
	picked := numbersOf(single(t, "index", graph.Attrs{"dim": 0}, turned, tensor.Of([]int64{1, 0, 1}, 3)))
	each := n / l.Shape[0]
	for i, v := range picked {
		if at := []int{1, 0, 1}[i/each]; v != want[at*each+i%each] {
			t.Fatalf("element %d of what an index picks is %v", i, v)
		}
	}
}

// TestTurnedMatricesOfAnySize copies matrices with rows and columns exchanged, whose last columns fill no group.
func TestTurnedMatricesOfAnySize(t *testing.T) {
	r := rand.New(rand.NewPCG(73, 74))
	for _, p := range append(poolsOf(t), poolInGo(t)) {
		for _, rows := range []int{8, 13, 70} {
			for columns := 8; columns < 76; columns++ {
				x := noise(r, columns, rows)
				l := tensor.Layout{Shape: tensor.Shape{rows, columns}, Strides: []int{1, rows}}
				got := make([]float32, rows*columns)
				ops.Gather(p, ops.MemoryOf(got), ops.View{Data: x.Data, DType: x.DType, Layout: l})
				for i, v := range got {
					if want := numbersOf(x)[i%columns*rows+i/columns]; v != want {
						t.Fatalf("%d×%d: element %d is %v, want %v", rows, columns, i, v, want)
					}
				}
			}
		}
	}
}

// recurrentOperands returns the operands of a recurrence over some steps, of one direction.
func recurrentOperands(r *rand.Rand, kind graph.Kind, d tensor.DType, steps, batch, input, hidden int) []*tensor.Tensor {
	gates := map[graph.Kind]int{"lstm": 4, "gru": 3, "rnn": 1}[kind]
	in := []*tensor.Tensor{
		noise(r, steps, batch, input), nil, noise(r, 1, batch, hidden), nil,
		noise(r, gates*hidden, input), noise(r, gates*hidden, hidden), noise(r, gates*hidden), noise(r, gates*hidden), nil,
	}
	if kind == "lstm" {
		in[3] = noise(r, 1, batch, hidden)
	}
	for i, x := range in {
		if x == nil {
			continue
		}
		y := &tensor.Tensor{DType: d, Layout: x.Layout, Data: make([]byte, ops.Volume(x.Layout.Shape)*d.Size())}
		for k, v := range numbersOf(x) {
			ops.StoreFloat(ops.View{Data: y.Data, DType: d}, k, float64(v)/3)
		}
		in[i] = y
	}
	return in
}

// stepsOf returns some steps of a sequence.
func stepsOf(x *tensor.Tensor, from, to int) *tensor.Tensor {
	l := x.Layout
	l.Shape = append(tensor.Shape{to - from}, l.Shape[1:]...)
	l.Offset += from * l.Strides[0]
	return &tensor.Tensor{DType: x.DType, Layout: l, Data: x.Data}
}

// TestLongSequences: a recurrence goes on where another ended, to the bit, and what walks a sequence from its end gives what
// walks the flipped one, however many steps there are.
func TestLongSequences(t *testing.T) {
	r := rand.New(rand.NewPCG(75, 76))
	run := func(kind graph.Kind, a graph.Attrs, in []*tensor.Tensor) []*tensor.Tensor {
		t.Helper()
		out, err := Compute(t.Context(), oneThread, graph.Standard(), kind, a, in...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	for _, kind := range []graph.Kind{"lstm", "gru", "rnn"} {
		for _, d := range []tensor.DType{tensor.Float32, tensor.BFloat16, tensor.Float16} {
			for _, size := range [][2]int{{600, 1}, {90, 7}, {5, 300}} {
				steps, batch := size[0], size[1]
				in := recurrentOperands(r, kind, d, steps, batch, 5, 6)
				whole := run(kind, nil, in)
				first, rest := slices.Clone(in), slices.Clone(in)
				cut := 1 + r.IntN(steps-1)
				first[0], rest[0] = stepsOf(in[0], 0, cut), stepsOf(in[0], cut, steps)
				a := run(kind, nil, first)
				rest[2] = a[1]
				if kind == "lstm" {
					rest[3] = a[2]
				}
				b := run(kind, nil, rest)
				if !bytes.Equal(whole[0].Data, append(slices.Clone(a[0].Data), b[0].Data...)) || !bytes.Equal(whole[1].Data, b[1].Data) {
					t.Errorf("%s of %v: %d steps of %d sequences in two differ from all", kind, d, steps, batch)
				}
				reversed := run(kind, graph.Attrs{"reverse": true}, in)
				flip := graph.Attrs{"dims": []int{0}}
				in[0] = single(t, "flip", flip, in[0])
				flipped := run(kind, nil, in)
				if !bytes.Equal(single(t, "flip", flip, flipped[0]).Data, reversed[0].Data) || !bytes.Equal(flipped[1].Data, reversed[1].Data) {
					t.Errorf("%s of %v: %d steps of %d sequences from the end differ", kind, d, steps, batch)
				}
			}
		}
	}
}

// TestSequencesThatComeBack: in a packed sequence no more run at a step than at the one before.
func TestSequencesThatComeBack(t *testing.T) {
	r := rand.New(rand.NewPCG(77, 78))
	for counts, good := range map[[3]int64]bool{
		{3, 2, 1}: true, {3, 3, 0}: true, {2, 1, 3}: false, {3, 1, 2}: false, {4, 1, 1}: false, {3, -1, 4}: false, {3, 2, 0}: false,
	} {
		in := recurrentOperands(r, "gru", tensor.Float32, 6, 1, 5, 6)
		in[0].Layout = tensor.Contiguous(6, 5)
		in[1] = tensor.Of(counts[:], 3)
		in[2] = noise(r, 1, 3, 6)
		if _, err := Compute(t.Context(), oneThread, graph.Standard(), "gru", nil, in...); (err == nil) != good {
			t.Errorf("%v sequences run: %v", counts, err)
		}
	}
}
