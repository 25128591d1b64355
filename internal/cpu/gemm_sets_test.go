package cpu

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/optimem/optimem/graph"
	simd "github.com/optimem/optimem/internal/cpu/kernel"
	"github.com/optimem/optimem/internal/cpu/ops"
	"github.com/optimem/optimem/tensor"
)

// poolsOfSets returns a pool for each set of vector kernels, and one for Go's.
func poolsOfSets(t *testing.T, threads int) map[string]*ops.Pool {
	t.Helper()
	pools := make(map[string]*ops.Pool)
	add := func(name string, s *simd.Set) {
		p := ops.NewPool(threads)
		p.Set = s
		t.Cleanup(p.Close)
		pools[name] = p
	}
	add("go", nil)
	for _, s := range simd.All() {
		add(s.Name, s)
		if s.HasUnit() {
			plain := *s
			plain.WithoutUnit = true
			add(s.Name+" without its unit", &plain)
		}
		if s.Unit() == simd.UnitTiles {
			dots := *s
			if dots.WithoutTiles = true; dots.HasUnit() {
				add(s.Name+" with vectors of pairs", &dots)
			}
		}
	}
	return pools
}

// strided returns a view of random numbers with the given shape whose dimensions lie in a random order with gaps.
func strided(rng *rand.Rand, d tensor.DType, shape ...int) ops.View {
	strides := make([]int, len(shape))
	size := 1
	order := rng.Perm(len(shape))
	if rng.IntN(2) == 0 { // often in order
		for i := range order {
			order[i] = len(shape) - 1 - i
		}
	}
	for _, i := range order {
		strides[i] = size
		size = size*max(shape[i], 1) + rng.IntN(2)*rng.IntN(7)
	}
	offset := rng.IntN(5)
	v := ops.View{
		Data: make([]byte, (offset+size)*d.Size()), DType: d,
		Layout: tensor.Layout{Shape: shape, Strides: strides, Offset: offset},
	}
	values := make([]float64, offset+size)
	for i := range values {
		values[i] = rng.Float64()*2 - 1
	}
	if d == tensor.Int8 {
		for i, x := range values {
			v.Data[i] = byte(int8(math.Round(127 * x)))
		}
		return v
	}
	ops.StoreReal(ops.View{Data: v.Data, DType: d}, 0, values)
	return v
}

func valueAt(v ops.View, index ...int) float64 {
	at := v.Layout.Offset
	for i, x := range index {
		at += x * v.Layout.Strides[i]
	}
	var x [1]float64
	ops.LoadReal(x[:], v, at, 1)
	return x[0]
}

func specOf(v ops.View) graph.Spec { return graph.Spec{DType: v.DType, Shape: v.Layout.Shape} }

// runKind computes an op over views, into a result like out.
func runKind(t *testing.T, p *ops.Pool, kind graph.Kind, a graph.Attrs, out ops.View, in ...ops.View) ops.View {
	t.Helper()
	out.Data = bytes.Repeat([]byte{0xa5}, len(out.Data))
	runInto(t, p, kind, a, out, in...)
	return out
}

// runInto computes an op over views.
func runInto(t *testing.T, p *ops.Pool, kind graph.Kind, a graph.Attrs, out ops.View, in ...ops.View) {
	t.Helper()
	specs := make([]graph.Spec, len(in))
	for i, v := range in {
		specs[i] = specOf(v)
	}
	k := kernels[kind]
	c := &ops.Call{Ctx: t.Context(), Attrs: a, In: in, Out: []ops.View{out}, Pool: p}
	c.Work = make([]byte, k.ThreadsWorkBytes(p.Threads(), specs, []graph.Spec{specOf(out)}, a))
	for i := range c.Work {
		c.Work[i] = 0xff // NaN: scratch that is read before it is written shows
	}
	if err := k.Run(c); err != nil {
		t.Fatal(err)
	}
}

// packedView returns operand 1 as the kernel packs it, raw where it does not.
func packedView(t *testing.T, p *ops.Pool, kind graph.Kind, a graph.Attrs, out ops.View, in ...ops.View) ops.View {
	t.Helper()
	specs := make([]graph.Spec, len(in))
	for i, v := range in {
		specs[i] = specOf(v)
	}
	k := kernels[kind]
	packs := k.Packs(specs, []graph.Spec{specOf(out)}, a)
	if len(packs) == 0 || p.Set == nil {
		return in[1]
	}
	v := in[1]
	v.Data, v.Packed = bytes.Repeat([]byte{0xff}, int(packs[0].Bytes)), true
	if err := k.Pack(p, a, packs[0], in[1], v.Data); err != nil {
		t.Fatal(err)
	}
	return v
}

// emptyView returns room for a result.
func emptyView(d tensor.DType, shape ...int) ops.View {
	l := tensor.Contiguous(shape...)
	n, _ := l.NumElements()
	return ops.View{Data: make([]byte, int(n)*d.Size()), DType: d, Layout: l}
}

var productDTypes = []tensor.DType{tensor.Float32, tensor.BFloat16, tensor.Float16}

// nearSum fails unless a result is what it should be but for rounding; size is the sum of the magnitudes of its terms.
func nearSum(t *testing.T, what string, d tensor.DType, got, want, size float64) {
	t.Helper()
	bound := 2e-6*size + 1e-6
	switch d {
	case tensor.BFloat16:
		bound += math.Abs(want) / 256
	case tensor.Float16:
		bound += math.Abs(want)/2048 + 1e-7
	}
	if !(math.Abs(got-want) <= bound) {
		t.Fatalf("%s is %v, want %v", what, got, want)
	}
}

// TestLinearOfAnyLayout compares products of random sizes and strides with plain sums, for every set of kernels, raw and
// packed, with several threads and with one.
func TestLinearOfAnyLayout(t *testing.T) {
	alone := poolsOfSets(t, 1)
	for name, pool := range poolsOfSets(t, 3) {
		t.Run(name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(11, 12))
			for range trials(80) {
				d := productDTypes[rng.IntN(3)]
				b, m, n, k := 1+rng.IntN(3), 1+rng.IntN(20), 1+rng.IntN(100), 1+rng.IntN(90)
				switch rng.IntN(6) {
				case 0:
					k += 240 + rng.IntN(300)
				case 1:
					m += rng.IntN(150)
				case 2:
					n += rng.IntN(300)
				case 3:
					if pool.Set == nil {
						break
					}
					m, n, k = 250+rng.IntN(100), 1+rng.IntN(300), 500+rng.IntN(700)
				}
				x, w, bias := strided(rng, d, b, m, k), strided(rng, d, n, k), strided(rng, d, n)
				if rng.IntN(4) == 0 {
					bias = ops.View{}
				}
				attrs, in := graph.Attrs{}, []ops.View{x, w, bias}
				if d == tensor.Float32 && rng.IntN(2) == 0 {
					attrs["act"] = "relu"
					in = append(in, strided(rng, d, b, m, n))
				}
				scales := ops.View{}
				if rng.IntN(3) == 0 { // a weight of int8
					w, scales = strided(rng, tensor.Int8, n, k), strided(rng, d, n)
					for len(in) < 4 {
						in = append(in, ops.View{})
					}
					in[1] = w
					in = append(in, scales)
				}
				what := fmt.Sprintf("%v [%d %d %d]·%v [%d %d] %v %v", d, b, m, k, w.DType, n, k, x.Layout.Strides, w.Layout.Strides)
				out := runKind(t, pool, "linear", attrs, emptyView(d, b, m, n), in...)
				again := runKind(t, alone[name], "linear", attrs, emptyView(d, b, m, n), in...)
				if !bytes.Equal(out.Data, again.Data) {
					t.Fatalf("%s: other bits with one thread", what)
				}
				in[1] = packedView(t, pool, "linear", nil, out, in...)
				again = runKind(t, pool, "linear", attrs, emptyView(d, b, m, n), in...)
				if !bytes.Equal(out.Data, again.Data) {
					t.Fatalf("%s: other bits with a packed weight", what)
				}
				for range 200 {
					bi, i, j := rng.IntN(b), rng.IntN(m), rng.IntN(n)
					want, size, scale := 0.0, 0.0, 1.0
					if !bias.Absent() {
						want = valueAt(bias, j)
					}
					if !scales.Absent() {
						scale = valueAt(scales, j)
					}
					for q := range k {
						p := valueAt(x, bi, i, q) * valueAt(w, j, q) * scale
						want += p
						size += math.Abs(p)
					}
					if len(in) > 3 && !in[3].Absent() {
						want = max(want, 0) + valueAt(in[3], bi, i, j)
					}
					nearSum(t, fmt.Sprintf("%s: [%d %d %d]", what, bi, i, j), d, valueAt(out, bi, i, j), want, size)
				}
			}
		})
	}
}

// TestMatmulOfAnyLayout does the same with batches, and factors whose rows or columns lie one behind the other.
func TestMatmulOfAnyLayout(t *testing.T) {
	alone := poolsOfSets(t, 1)
	for name, pool := range poolsOfSets(t, 3) {
		t.Run(name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(13, 14))
			for range trials(120) {
				d := productDTypes[rng.IntN(3)]
				b, m, n, k := 1+rng.IntN(4), 1+rng.IntN(60), 1+rng.IntN(80), 1+rng.IntN(300)
				x, y, z := strided(rng, d, b, m, k), strided(rng, d, b, k, n), strided(rng, d, b, m, n)
				attrs, in := graph.Attrs{"alpha": 1.0, "beta": 0.0}, []ops.View{x, y}
				alpha, beta := 1.0, 0.0
				if rng.IntN(2) == 0 {
					alpha, beta = 0.5, 2.0
					attrs, in = graph.Attrs{"alpha": alpha, "beta": beta}, append(in, z)
				}
				what := fmt.Sprintf("%v [%d %d %d]·[%d %d] %v %v", d, b, m, k, k, n, x.Layout.Strides, y.Layout.Strides)
				out := runKind(t, pool, "matmul", attrs, emptyView(d, b, m, n), in...)
				again := runKind(t, alone[name], "matmul", attrs, emptyView(d, b, m, n), in...)
				if !bytes.Equal(out.Data, again.Data) {
					t.Fatalf("%s: other bits with one thread", what)
				}
				in[1] = packedView(t, pool, "matmul", nil, out, in...)
				again = runKind(t, pool, "matmul", attrs, emptyView(d, b, m, n), in...)
				if !bytes.Equal(out.Data, again.Data) {
					t.Fatalf("%s: other bits with a packed factor", what)
				}
				for range 200 {
					bi, i, j := rng.IntN(b), rng.IntN(m), rng.IntN(n)
					want, size := 0.0, 0.0
					for q := range k {
						p := valueAt(x, bi, i, q) * valueAt(y, bi, q, j)
						want += p
						size += math.Abs(p)
					}
					want = alpha*want + beta*valueAt(z, bi, i, j)
					nearSum(t, fmt.Sprintf("%s: [%d %d %d]", what, bi, i, j), d, valueAt(out, bi, i, j), want, size)
				}
			}
		})
	}
}

// TestRowsDoNotDependOnTheirNumber computes rows of a linear alone, few and many at a time: each has the same bits.
func TestRowsDoNotDependOnTheirNumber(t *testing.T) {
	for name, pool := range poolsOfSets(t, 2) {
		for i, d := range productDTypes {
			if trials(2) == 1 && (i+len(name))%2 != 0 {
				continue
			}
			rng := rand.New(rand.NewPCG(15, 16))
			const m = 70
			x, w := strided(rng, d, m, 531), strided(rng, d, 75, 531)
			rowsDoNotDependOnTheirNumber(t, name, pool, x, w)
			// Few rows are computed with many columns, and with those that lie along the depth.
			x, w = strided(rng, d, m, 544), strided(rng, d, 201, 544)
			w.Layout = tensor.Layout{Shape: w.Shape(), Strides: []int{544, 1}}
			rowsDoNotDependOnTheirNumber(t, name, pool, x, w)
			w.Layout.Strides = []int{1, 201}
			rowsDoNotDependOnTheirNumber(t, name, pool, x, w)
			// Weights of int8, of a depth that is turned in registers; few rows of them too.
			for _, n := range []int{75, 201} {
				w = strided(rng, tensor.Int8, n, 576)
				x = strided(rng, d, m, 576)
				for _, strides := range [][]int{{576, 1}, {1, n}} {
					w.Layout = tensor.Layout{Shape: w.Shape(), Strides: strides}
					rowsDoNotDependOnTheirNumber(t, name, pool, x, w, ops.View{}, strided(rng, d, n))
				}
			}
		}
	}
}

func rowsDoNotDependOnTheirNumber(t *testing.T, name string, pool *ops.Pool, x, w ops.View, more ...ops.View) {
	t.Helper()
	d, m, n := x.DType, x.Shape()[0], w.Shape()[0]
	all := runKind(t, pool, "linear", nil, emptyView(d, m, n), append([]ops.View{x, w, {}}, more...)...)
	size := n * d.Size()
	counts := []int{1, 2, 3, 4, 5, 8, 9, 14, 16, 29, 57}
	if trials(2) == 1 {
		counts = []int{3, 29}
	}
	for _, some := range counts {
		if d == tensor.BFloat16 && w.DType == d && pool.Set != nil && pool.Set.HasUnit() && some < unitLeastRows {
			continue // a matrix unit adds in another order
		}
		for row := 0; row+some <= m; row += some {
			part := x
			part.Layout.Shape = tensor.Shape{some, x.Shape()[1]}
			part.Layout.Offset += row * x.Layout.Strides[0]
			for _, weight := range []ops.View{w, packedView(t, pool, "linear", nil, all, append([]ops.View{part, w, {}}, more...)...)} {
				got := runKind(t, pool, "linear", nil, emptyView(d, some, n), append([]ops.View{part, weight, {}}, more...)...)
				if !bytes.Equal(got.Data, all.Data[row*size:][:some*size]) {
					t.Fatalf("%s: %v: %d rows from %d on have other bits, packed %v", name, d, some, row, weight.Packed)
				}
			}
			if row > 5*some {
				break
			}
		}
	}
}

// TestRoundedRowsAlone: rows whose factors are rounded have the same bits however many there are, packed or not, where
// they are to, on any number of threads; those are the bits that many rows have otherwise.
func TestRoundedRowsAlone(t *testing.T) {
	alone, plain := graph.Attrs{"precision": "bf16", graph.RowsAlone: true}, graph.Attrs{"precision": "bf16"}
	threes := poolsOfSets(t, 3)
	for name, pool := range poolsOfSets(t, 1) {
		if pool.Set == nil || !pool.Set.HasUnit() {
			continue
		}
		rng := rand.New(rand.NewPCG(31, 32))
		for _, d := range productDTypes {
			for _, shape := range [][2]int{{5, 3}, {83, 200}, {64, 576}, {33, 1030}} {
				const m = 37
				n, k := shape[0], shape[1]
				x, w, residual := strided(rng, tensor.Float32, m, k), strided(rng, d, n, k), strided(rng, tensor.Float32, m, n)
				bias := strided(rng, tensor.Float32, n)
				compute := func(p *ops.Pool, a graph.Attrs, from, rows int, weight ops.View) []byte {
					in := []ops.View{x, weight, bias, residual}
					for _, i := range []int{0, 3} {
						in[i].Layout.Shape = tensor.Shape{rows, in[i].Shape()[1]}
						in[i].Layout.Offset += from * in[i].Layout.Strides[0]
					}
					return runKind(t, p, "linear", a, emptyView(tensor.Float32, rows, n), in...).Data
				}
				want := compute(pool, plain, 0, m, w)
				packed := packedView(t, pool, "linear", alone, emptyView(tensor.Float32, m, n), x, w, ops.View{})
				for _, weight := range []ops.View{w, packed} {
					for _, some := range []int{1, 2, 3, 4, 5, 16, 33, m} {
						for _, from := range []int{0, (m - some) / 2} {
							for _, p := range []*ops.Pool{pool, threes[name]} {
								if got := compute(p, alone, from, some, weight); !bytes.Equal(got, want[4*n*from:][:4*n*some]) {
									t.Fatalf("%s: %v %d×%d: %d rows from %d on have other bits, packed %v", name, d, n, k, some, from, weight.Packed)
								}
							}
						}
					}
				}
			}
		}
	}
}

// TestTallProducts: rows of products of which the left factor is packed for a part of the depth at a time have the bits that they have alone,
// with all that is done to a result.
func TestTallProducts(t *testing.T) {
	const m, n = 101, 96
	threes := poolsOfSets(t, 3)
	for name, pool := range poolsOfSets(t, 1) {
		if pool.Set == nil || !pool.Set.HasUnit() {
			continue
		}
		rng := rand.New(rand.NewPCG(33, 34))
		for _, rounded := range []bool{false, true} {
			parts, depths := simd.UnitParts, []int{2048, 5600}
			a := graph.Attrs{graph.RowsAlone: true, "act": "silu"}
			if rounded {
				a["precision"], parts, depths = "bf16", 1, []int{11_040}
			} else if pool.Set.Unit() != simd.UnitTiles {
				continue
			}
			for _, k := range depths {
				if cut := cutUnit(m, n, k, parts); cut.tall == 0 || cut.chunk >= cut.depth {
					t.Fatalf("the depth %d is one piece, %+v", k, cut)
				}
				x, w, residual := strided(rng, tensor.Float32, m, k), strided(rng, tensor.BFloat16, n, k), strided(rng, tensor.Float32, m, n)
				bias := strided(rng, tensor.Float32, n)
				compute := func(p *ops.Pool, from, rows int, weight ops.View) []byte {
					in := []ops.View{x, weight, bias, residual}
					for _, i := range []int{0, 3} {
						in[i].Layout.Shape = tensor.Shape{rows, in[i].Shape()[1]}
						in[i].Layout.Offset += from * in[i].Layout.Strides[0]
					}
					return runKind(t, p, "linear", a, emptyView(tensor.Float32, rows, n), in...).Data
				}
				packed := packedView(t, pool, "linear", a, emptyView(tensor.Float32, m, n), x, w, ops.View{})
				for _, weight := range []ops.View{w, packed} {
					all := compute(threes[name], 0, m, weight)
					for i := range m {
						if got := compute(pool, i, 1, weight); !bytes.Equal(got, all[4*n*i:][:4*n]) {
							t.Fatalf("%s: %d deep, rounded %v: row %d has other bits alone, packed %v", name, k, rounded, i, weight.Packed)
						}
					}
					if got := compute(pool, 7, 70, weight); !bytes.Equal(got, all[4*n*7:][:4*n*70]) {
						t.Fatalf("%s: %d deep, rounded %v: 70 rows have other bits, packed %v", name, k, rounded, weight.Packed)
					}
				}
			}
		}
	}
}

// TestLinearReadsHalves multiplies floats by half weights: the bits are those of the same weights widened before.
func TestLinearReadsHalves(t *testing.T) {
	for name, pool := range poolsOfSets(t, 2) {
		rng := rand.New(rand.NewPCG(25, 26))
		for range 40 {
			d := productDTypes[1+rng.IntN(2)]
			m, n, k := 1+rng.IntN(40), 1+rng.IntN(90), 1+rng.IntN(600)
			x, w, bias := strided(rng, tensor.Float32, m, k), strided(rng, d, n, k), strided(rng, d, n)
			wide := []ops.View{x, emptyView(tensor.Float32, n, k), emptyView(tensor.Float32, n)}
			runInto(t, pool, "cast", graph.Attrs{"dtype": tensor.Float32}, wide[1], w)
			runInto(t, pool, "cast", graph.Attrs{"dtype": tensor.Float32}, wide[2], bias)
			out := emptyView(tensor.Float32, m, n)
			want := runKind(t, pool, "linear", nil, out, wide...)
			for _, weight := range []ops.View{w, packedView(t, pool, "linear", nil, out, x, w)} {
				got := runKind(t, pool, "linear", nil, out, x, weight, bias)
				if !bytes.Equal(got.Data, want.Data) {
					t.Fatalf("%s: %v [%d %d %d]: other bits than widened, packed %v", name, d, m, n, k, weight.Packed)
				}
			}
		}
	}
}

// TestProductsOfSpecialNumbers lets NaN, infinities and denormals through.
func TestProductsOfSpecialNumbers(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	for name, pool := range poolsOfSets(t, 1) {
		for _, d := range productDTypes {
			for _, n := range []int{3, 64} {
				least := map[tensor.DType]float64{
					tensor.Float32: 1e-42, tensor.BFloat16: math.Ldexp(1, -130), tensor.Float16: math.Ldexp(3, -24),
				}[d]
				x, w := emptyView(d, 2, 5), emptyView(d, n, 5)
				ops.StoreReal(x, 0, []float64{1, 2, 0, 1, 0, 0, 0, 1, 0, 0})
				for j := range n {
					row := [][]float64{{1, inf, 0, 0, 0}, {inf, -inf, 0, 0, 0}, {nan, 0, least, 0, 0}}[j%3]
					ops.StoreReal(w, 5*j, row)
				}
				out := runKind(t, pool, "linear", nil, emptyView(d, 2, n), x, w, ops.View{})
				for j := range n {
					first, second := valueAt(out, 0, j), valueAt(out, 1, j)
					switch j % 3 {
					case 0:
						if !math.IsInf(first, 1) || second == second {
							t.Fatalf("%s: %v: %v and %v", name, d, first, second)
						}
					default:
						if first == first || second == second {
							t.Fatalf("%s: %v: %v and %v, not NaN", name, d, first, second)
						}
					}
				}
				ops.StoreReal(x, 0, []float64{0, 0, 1, 0, 0})
				ops.StoreReal(w, 0, []float64{0, 0, least, 0, 0})
				out = runKind(t, pool, "linear", nil, emptyView(d, 2, n), x, w, ops.View{})
				if got := valueAt(out, 0, 0); got != valueAt(w, 0, 2) || got == 0 {
					t.Fatalf("%s: %v: a denormal becomes %v", name, d, got)
				}
			}
		}
	}
}

// TestProductsInLowPrecision rounds factors to bfloat16, and nothing else: the result is within rounding of the sums of
// what they are then, whatever the threads, and packed the same. Each factor is off by at most 1/256 of itself, so a sum
// is by at most 1/127 of the sum of its terms' magnitudes.
func TestProductsInLowPrecision(t *testing.T) {
	threes := poolsOfSets(t, 3)
	for name, alone := range poolsOfSets(t, 1) {
		if pool := threes[name]; pool.Set != nil && pool.Set.HasUnit() {
			t.Run(name, func(t *testing.T) { productsInLowPrecision(t, pool, alone) })
		}
	}
}

func productsInLowPrecision(t *testing.T, pool, alone *ops.Pool) {
	t.Helper()
	rng := rand.New(rand.NewPCG(23, 24))
	round := func(x float64) float64 {
		return float64(tensor.BFloat16ToFloat32(tensor.BFloat16FromFloat32(float32(x))))
	}
	for i := range 40 {
		f32 := tensor.Float32
		b, m, n, k := 1+rng.IntN(3), 1+rng.IntN(80), 1+rng.IntN(150), 1+rng.IntN(700)
		kind, attrs := graph.Kind("linear"), graph.Attrs{"precision": "bf16"}
		in := []ops.View{strided(rng, f32, b, m, k), strided(rng, f32, n, k), strided(rng, f32, n)}
		if i%2 == 0 {
			kind, attrs["alpha"], attrs["beta"] = "matmul", 1.0, 1.0
			in = []ops.View{in[0], strided(rng, f32, b, k, n), strided(rng, f32, b, m, n)}
		}
		out := runKind(t, pool, kind, attrs, emptyView(f32, b, m, n), in...)
		again := runKind(t, alone, kind, attrs, emptyView(f32, b, m, n), in...)
		if !bytes.Equal(out.Data, again.Data) {
			t.Fatalf("%s: other bits with one thread", kind)
		}
		raw := in[1]
		in[1] = packedView(t, pool, kind, attrs, out, in...)
		again = runKind(t, pool, kind, attrs, emptyView(f32, b, m, n), in...)
		if !bytes.Equal(out.Data, again.Data) {
			t.Fatalf("%s: other bits with a packed weight", kind)
		}
		for range 50 {
			bi, i, j := rng.IntN(b), rng.IntN(m), rng.IntN(n)
			var want, exact, size float64
			if kind == "linear" {
				want = valueAt(in[2], j)
			} else {
				want = valueAt(in[2], bi, i, j)
			}
			exact = want
			for q := range k {
				x, y := valueAt(in[0], bi, i, q), 0.0
				if kind == "linear" {
					y = valueAt(raw, j, q)
				} else {
					y = valueAt(raw, bi, q, j)
				}
				want += round(x) * round(y)
				exact += x * y
				size += math.Abs(x * y)
			}
			got := valueAt(out, bi, i, j)
			nearSum(t, fmt.Sprintf("%s of [%d %d %d]: [%d %d %d]", kind, m, n, k, bi, i, j), f32, got, want, size)
			if math.Abs(got-exact) > size/127+1e-5 {
				t.Fatalf("%s: %v is too far from %v", kind, got, exact)
			}
		}
	}
}

// TestProductsAllocateNothing runs products again and again.
func TestProductsAllocateNothing(t *testing.T) {
	pool := ops.NewPool(2)
	defer pool.Close()
	rng := rand.New(rand.NewPCG(17, 18))
	for _, d := range productDTypes {
		for _, kind := range []graph.Kind{"linear", "matmul"} {
			for _, m := range []int{1, 4, 33} {
				in := []ops.View{strided(rng, d, 2, m, 300), strided(rng, d, 70, 300), strided(rng, d, 70)}
				attrs := graph.Attrs{"alpha": 0.5, "beta": 2.0}
				if kind == "matmul" {
					in = []ops.View{strided(rng, d, 3, m, 300), strided(rng, d, 3, 300, 70), strided(rng, d, 3, m, 70)}
				} else if d == tensor.Float32 {
					attrs = graph.Attrs{"act": "gelu"}
					in = append(in, strided(rng, d, 2, m, 70))
				}
				shape := append(tensor.Shape{}, in[0].Layout.Shape...)
				shape[2] = 70
				out := emptyView(d, shape...)
				specs := []graph.Spec{specOf(in[0]), specOf(in[1]), specOf(in[2])}
				k := kernels[kind]
				c := &ops.Call{Ctx: t.Context(), Attrs: attrs, In: in, Out: []ops.View{out}, Pool: pool}
				c.Work = make([]byte, k.ThreadsWorkBytes(pool.Threads(), specs, []graph.Spec{specOf(out)}, attrs))
				if n := testing.AllocsPerRun(100, func() {
					if err := k.Run(c); err != nil {
						t.Fatal(err)
					}
				}); n > 0 && !raceDetector {
					t.Errorf("%s of %v with %d rows allocates %v times", kind, d, m, n)
				}
			}
		}
	}
}
