//go:build unix

package cpu

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu/codes"
	simd "github.com/optimem/optimem/internal/cpu/kernel"
	"github.com/optimem/optimem/internal/cpu/ops"
	"github.com/optimem/optimem/tensor"
	"github.com/optimem/optimem/tensor/encoded"
)

// codesCase is a linear by codes.
type codesCase struct {
	x, numbers, bias, residual []float32
	codes                      *tensor.Tensor
	m, n, k                    int
}

func newCodesCase(rng *rand.Rand, e *encoded.Encoding, m, n, k int) *codesCase {
	c := &codesCase{m: m, n: n, k: k}
	fill := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = (rng.Float32() - 0.5) * float32(1+i%7)
		}
		return x
	}
	c.x, c.bias, c.residual = fill(m*k), fill(n), fill(m*n)
	rowBytes, _ := e.BlockBytes(k)
	blocks := randomBlocks(rng, e, n, k)
	c.numbers = make([]float32, n*k)
	e.Decode(c.numbers, blocks)
	c.codes = tensor.Of(blocks, n, rowBytes)
	return c
}

// run computes rows from first on of the linear.
func (c *codesCase) run(t *testing.T, pool *ops.Pool, e *encoded.Encoding, attrs graph.Attrs, first, rows int) []byte {
	t.Helper()
	all := graph.Attrs{"precision": "int8", graph.EncodingAttr: e.Name}
	in := []*tensor.Tensor{tensor.Of(c.x[first*c.k:(first+rows)*c.k], rows, c.k), c.codes, tensor.Of(c.bias, c.n)}
	for name, a := range attrs {
		all[name] = a
		in = append(in, tensor.Of(c.residual[first*c.n:(first+rows)*c.n], rows, c.n))
	}
	out, err := Compute(t.Context(), pool, graph.Standard(), "linear", all, in...)
	if err != nil {
		t.Fatal(err)
	}
	return out[0].Data
}

// TestLinearByCodes: a linear in the precision int8 is off by no more than what its inputs' codes and its weight's
// roundings are; it has the same bits with every processor's kernels, on any number of threads, and for a row alone.
func TestLinearByCodes(t *testing.T) {
	pools, one := poolsOfSets(t, 3), ops.NewPool(1)
	defer one.Close()
	pools["one thread"] = one
	tested := 0
	for _, e := range slices.Concat(encoded.All(), encoded.Own()) {
		if !MultipliesCodes(e.Name) {
			continue
		}
		tested++
		for _, size := range [][2]int{{1, 5}, {3, 37}, {9, 37}, {17, 2}} {
			rng := rand.New(rand.NewPCG(uint64(e.ID), uint64(size[0])))
			c := newCodesCase(rng, e, size[0], size[1], 2*max(int(e.Elements), 96)/int(e.Elements)*int(e.Elements))
			want := c.run(t, pools["go"], e, nil, 0, c.m)
			c.check(t, e, want)
			for name, pool := range pools {
				if got := c.run(t, pool, e, nil, 0, c.m); !bytes.Equal(got, want) {
					t.Errorf("%s, %s: other bits", e.Name, name)
				}
				act := c.run(t, pool, e, graph.Attrs{"act": "relu"}, 0, c.m)
				c.checkEnding(t, want, act)
				for r := range c.m {
					if got := c.run(t, pool, e, nil, r, 1); !bytes.Equal(got, want[r*4*c.n:(r+1)*4*c.n]) {
						t.Errorf("%s, %s: row %d has other bits alone", e.Name, name, r)
					}
				}
			}
		}
	}
	if tested != 6+4*9 {
		t.Errorf("%d encodings", tested)
	}
}

// TestLinearByCodesOfManyBlocks: lines of more blocks than are made side by side at a time, and rows in more tiles than are
// multiplied at a time, have the bits of Go's.
func TestLinearByCodesOfManyBlocks(t *testing.T) {
	pools := poolsOfSets(t, 2)
	for _, name := range []string{"Q4_0", "Q4_1", "IQ4_NL", "Q8_0", "Q4_K"} {
		e, _ := encoded.ByName(name)
		rng := rand.New(rand.NewPCG(uint64(e.ID), 4))
		c := newCodesCase(rng, e, 145, 33, max(21*32, 3*int(e.Elements)))
		want := c.run(t, pools["go"], e, nil, 0, c.m)
		for set, pool := range pools {
			for _, rows := range []int{c.m, 17, 5} {
				if got := c.run(t, pool, e, nil, c.m-rows, rows); !bytes.Equal(got, want[4*(c.m-rows)*c.n:]) {
					t.Errorf("%s, %s: %d rows have other bits", name, set, rows)
				}
			}
		}
	}
}

// TestLinearByLines: few rows by lines that are multiplied as they lie, more than are at a time, also of blocks whose scales are
// nothing, the least, the largest, or no numbers, have the bits of Go's.
func TestLinearByLines(t *testing.T) {
	pools := poolsOfSets(t, 3)
	for _, e := range slices.Concat(encoded.All(), encoded.Own()) {
		if !MultipliesCodes(e.Name) {
			continue
		}
		rng := rand.New(rand.NewPCG(uint64(e.ID), 5))
		c := newCodesCase(rng, e, 9, 69, 1024+max(128, int(e.Elements)))
		for _, odd := range []bool{false, true} {
			if odd { // any bits
				for i := range c.codes.Data {
					if rng.IntN(8) == 0 {
						c.codes.Data[i] = byte(rng.Uint32())
					}
				}
			}
			want := c.run(t, pools["go"], e, nil, 0, c.m)
			if !odd {
				c.check(t, e, want)
			}
			for set, pool := range pools {
				for rows := 1; rows <= c.m; rows++ {
					got := c.run(t, pool, e, nil, c.m-rows, rows)
					if at := differs(got, want[4*(c.m-rows)*c.n:]); at >= 0 {
						t.Errorf("%s, %s: of %d rows number %d differs", e.Name, set, rows, at)
					}
				}
			}
		}
	}
}

// differs returns the first float32 whose bits differ, −1 where none do; what is no number is the same as another.
func differs(a, b []byte) int {
	y := ops.Elements[float32](ops.View{Data: b})
	for i, x := range ops.Elements[float32](ops.View{Data: a}) {
		if math.Float32bits(x) != math.Float32bits(y[i]) && (x == x || y[i] == y[i]) {
			return i
		}
	}
	return -1
}

// check compares results with those of numbers that are not rounded.
func (c *codesCase) check(t *testing.T, e *encoded.Encoding, out []byte) {
	t.Helper()
	got := ops.Elements[float32](ops.View{Data: out})
	for r := range c.m {
		for j := range c.n {
			sum, off := float64(c.bias[j]), 1e-6
			for b := 0; b < c.k; b += 32 {
				most, weights := 0.0, 0.0
				for k := b; k < b+32; k++ {
					x, w := float64(c.x[r*c.k+k]), float64(c.numbers[j*c.k+k])
					sum += x * w
					most, weights = max(most, math.Abs(x)), weights+math.Abs(w)
				}
				off += most * weights * (0.5001/127 + 1.0/256)
			}
			if d := math.Abs(float64(got[r*c.n+j]) - sum); !(d <= off) {
				t.Fatalf("%s: row %d, column %d is %v, off by %v, at most %v", e.Name, r, j, got[r*c.n+j], d, off)
			}
		}
	}
}

// checkEnding compares a linear with a residual and an activation with one without.
func (c *codesCase) checkEnding(t *testing.T, plain, ended []byte) {
	t.Helper()
	p, got := ops.Elements[float32](ops.View{Data: plain}), ops.Elements[float32](ops.View{Data: ended})
	for i := range p {
		if want := c.residual[i] + max(p[i], 0); got[i] != want {
			t.Fatalf("with a residual and relu number %d is %v, want %v", i, got[i], want)
		}
	}
}

// TestRoundCodes: codes are the nearest ones, of two the even one; nothing, what is next to nothing, and what is no
// number.
func TestRoundCodes(t *testing.T) {
	e, _ := encoded.ByName("Q8_0")
	x := make([]float32, 5*32)
	copy(x, []float32{127, -127, 0.5, 1.5, 2.5, -0.5, 63.4, -63.6})
	x[64] = 1e-45
	x[96], x[128+31] = float32(math.Inf(1)), float32(math.NaN())
	got := newCodesCase(rand.New(rand.NewPCG(1, 1)), e, 1, 1, 160)
	to := &simd.Codes{Codes: make([]int8, 160), Scales: make([]float32, 5), Extra: make([]float32, 5)}
	codes.Round(nil, x, to)
	if want := []int8{127, -127, 0, 2, 2, 0, 63, -64, 0}; !slices.Equal(to.Codes[:9], want) || to.Scales[0] != 1 || to.Extra[0] != 3 {
		t.Errorf("%v, scale %v, sum %v, want %v", to.Codes[:9], to.Scales[0], to.Extra[0], want)
	}
	for b := 1; b <= 2; b++ {
		if to.Scales[b] != 0 || to.Extra[b] != 0 || slices.ContainsFunc(to.Codes[32*b:32*b+32], func(c int8) bool { return c != 0 }) {
			t.Errorf("block %d: %v", b, to.Scales[b])
		}
	}
	for b := 3; b <= 4; b++ {
		if to.Scales[b] == to.Scales[b] {
			t.Errorf("block %d of no numbers has the scale %v", b, to.Scales[b])
		}
	}
	copy(got.x, x)
	pool := ops.NewPool(1)
	defer pool.Close()
	if y := ops.Elements[float32](ops.View{Data: got.run(t, pool, e, nil, 0, 1)}); y[0] == y[0] {
		t.Errorf("a row with infinity and NaN gives %v", y[0])
	}
}

// TestRoundCodesOfSets: every processor's codes, scales and sums have the bits of Go's, also of denormal numbers, of those that
// are no numbers, and of the largest.
func TestRoundCodesOfSets(t *testing.T) {
	const blocks = 600
	rng := rand.New(rand.NewPCG(7, 8))
	x := make([]float32, 32*blocks)
	for i := range x {
		x[i] = (rng.Float32() - 0.5) * float32(math.Ldexp(1, (i/32)%300-150))
		switch {
		case i/32%50 == 7 && i%32 == i/32%32:
			x[i] = []float32{float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN())}[i/32%3]
		case i/32%50 == 8: // codes halfway between two
			x[i] = float32(i%32) - 15.5
			if i%32 == 0 {
				x[i] = -127
			}
		case i/32%50 == 9:
			x[i] = math.MaxFloat32 * float32(1-2*(i%2))
		case i/32%50 == 10:
			x[i] = float32(math.Copysign(0, -1))
		}
	}
	made := func(set *simd.Set) *simd.Codes {
		to := &simd.Codes{Codes: make([]int8, 32*blocks), Scales: make([]float32, blocks), Extra: make([]float32, blocks)}
		for i := range to.Codes {
			to.Codes[i] = 99
		}
		codes.Round(set, x, to)
		return to
	}
	want := made(nil)
	same := func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) || a != a && b != b }
	for _, set := range simd.All() {
		got := made(set)
		for b := range blocks {
			if !slices.Equal(got.Codes[32*b:][:32], want.Codes[32*b:][:32]) ||
				!same(got.Scales[b], want.Scales[b]) || !same(got.Extra[b], want.Extra[b]) {
				t.Fatalf("%s, block %d: %v, scale %v, sum %v, want %v, %v, %v", set.Name, b, got.Codes[32*b:][:32],
					got.Scales[b], got.Extra[b], want.Codes[32*b:][:32], want.Scales[b], want.Extra[b])
			}
		}
	}
	if set := simd.Best(); set != nil {
		set.RoundCodes(nil, &simd.Codes{})
	}
}

// TestCodesRefused: what has no integers as codes has no such products.
func TestCodesRefused(t *testing.T) {
	pool := ops.NewPool(1)
	defer pool.Close()
	x, w := tensor.Of(make([]float32, 64), 1, 64), tensor.Of(make([]float32, 64*2), 2, 64)
	if _, err := Compute(t.Context(), pool, graph.Standard(), "linear", graph.Attrs{"precision": "int8"}, x, w); err == nil {
		t.Error("a weight of numbers is taken")
	}
	e, _ := encoded.ByName("NF4/64 float16")
	size, _ := e.BlockBytes(64)
	blocks := tensor.Of(make([]byte, 2*size), 2, size)
	if _, err := Compute(t.Context(), pool, graph.Standard(), "linear", graph.Attrs{"precision": "int8", graph.EncodingAttr: e.Name}, x, blocks); err == nil {
		t.Error("a weight of a table's numbers is taken")
	}
	if _, err := Compute(t.Context(), pool, graph.Standard(), "matmul", graph.Attrs{"precision": "int8", "alpha": 1.0}, x, tensor.Of(make([]float32, 64), 64, 1)); err == nil {
		t.Error("a product of two inputs is taken")
	}
}

// BenchmarkLinearByCodes is some rows by 4096×2048 blocks; bytes are those of blocks.
func BenchmarkLinearByCodes(b *testing.B) {
	pool := ops.NewPool(1)
	defer pool.Close()
	const n, k = 4096, 2048
	rng := rand.New(rand.NewPCG(1, 2))
	for _, name := range []string{"Q4_0", "Q4_K", "Q8_0", "INT4/32 bfloat16", "INT4/128 bfloat16", "INT8/128 bfloat16"} {
		for _, m := range []int{1, 2, 4, 8, 64, 120} {
			b.Run(fmt.Sprintf("%s/%d", name, m), func(b *testing.B) {
				e, _ := encoded.ByName(name)
				rowBytes, _ := e.BlockBytes(k)
				x, w := tensor.Of(make([]float32, m*k), m, k), tensor.Of(randomBlocks(rng, e, n, k), n, rowBytes)
				attrs := graph.Attrs{graph.EncodingAttr: name, "precision": "int8"}
				b.SetBytes(int64(n * rowBytes))
				least := time.Hour
				for b.Loop() {
					start := time.Now()
					if _, err := Compute(b.Context(), pool, graph.Standard(), "linear", attrs, x, w); err != nil {
						b.Fatal(err)
					}
					least = min(least, time.Since(start))
				}
				b.ReportMetric(1e3*float64(least)/(n*k), "ps/weight")
			})
		}
	}
}
