//go:build unix

package cpu

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu/ops"
	"github.com/optimem/optimem/tensor"
	"github.com/optimem/optimem/tensor/encoded"
)

// randomBlocks returns blocks of rows of n numbers, whose scales are finite: no half has all bits of its exponent.
func randomBlocks(rng *rand.Rand, e *encoded.Encoding, rows, n int) []byte {
	data := make([]byte, rows*n/int(e.Elements)*int(e.Bytes))
	for i := range data {
		data[i] = byte(rng.Uint32()) & 0xbf
	}
	return data
}

// TestEncodedLinear: a linear of blocks has the bits of the linear of their numbers, for every encoding, any number of rows, with
// the kernels of every processor.
func TestEncodedLinear(t *testing.T) {
	sizes := [][3]int{{1, 70, 7}, {1, 53, 1}, {2, 64, 2}, {20, 40, 5}, {3, 40, 3}, {9, 33, 1}, {4, 16, 2}, {40, 50, 2}}
	if testing.Short() {
		sizes = sizes[:5]
	}
	for name, pool := range poolsOfSets(t, 2) {
		for _, e := range slices.Concat(encoded.All(), encoded.Own()) {
			if !e.Readable() || e.Elements == 1 {
				continue
			}
			t.Run(fmt.Sprintf("%s %s", name, e.Name), func(t *testing.T) {
				for _, size := range sizes {
					rng := rand.New(rand.NewPCG(uint64(e.ID), uint64(size[0])))
					m, n, k := size[0], size[1], size[2]*max(int(e.Elements), 96)
					if k%int(e.Elements) != 0 {
						k = size[2] * int(e.Elements)
					}
					checkEncodedLinear(t, pool, rng, e, m, n, k)
				}
			})
		}
	}
}

func checkEncodedLinear(t *testing.T, pool *ops.Pool, rng *rand.Rand, e *encoded.Encoding, m, n, k int) {
	t.Helper()
	x := make([]float32, m*k)
	for i := range x {
		x[i] = rng.Float32() - 0.5
	}
	rowBytes, _ := e.BlockBytes(k)
	blocks := randomBlocks(rng, e, n+1, k)
	numbers := make([]float32, (n+1)*k)
	e.Decode(numbers, blocks)
	bias := make([]float32, n)
	for i := range bias {
		bias[i] = rng.Float32()
	}
	left, add := tensor.Of(x, m, k), tensor.Of(bias, n)
	weights, codes := tensor.Of(numbers, n+1, k), tensor.Of(blocks, n+1, rowBytes)
	weights.Layout = tensor.Layout{Shape: tensor.Shape{n, k}, Strides: []int{k, 1}, Offset: k}
	codes.Layout = tensor.Layout{Shape: tensor.Shape{n, rowBytes}, Strides: []int{rowBytes, 1}, Offset: rowBytes}
	for _, attrs := range []graph.Attrs{{}, {"act": "relu"}, {"precision": "bf16"}} {
		if attrs["precision"] != nil && (pool.Set == nil || !pool.Set.HasUnit()) {
			continue
		}
		want, err := Compute(t.Context(), pool, graph.Standard(), "linear", attrs, left, weights, add)
		if err != nil {
			t.Fatal(err)
		}
		attrs[graph.EncodingAttr] = e.Name
		got, err := Compute(t.Context(), pool, graph.Standard(), "linear", attrs, left, codes, add)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got[0].Data, want[0].Data) {
			t.Errorf("%d×%d·%d, %v: other bits", m, k, n, attrs)
		}
	}
}

// TestEncodedInfinite: a scale that is infinite makes the numbers of its block so, and no others.
func TestEncodedInfinite(t *testing.T) {
	const n, k, bad = 64, 1024, 37
	for name, pool := range poolsOfSets(t, 1) {
		e := encodingOf(t, "Q8_0")
		rowBytes, _ := e.BlockBytes(k)
		data := bytes.Repeat(append([]byte{0, 0x3c}, bytes.Repeat([]byte{1}, 32)...), n*k/32) // ones
		binary.LittleEndian.PutUint16(data[bad*rowBytes+17*34:], 0x7c00)
		x := make([]float32, k)
		for i := range x {
			x[i] = 0.5
		}
		attrs := graph.Attrs{graph.EncodingAttr: e.Name}
		got, err := Compute(t.Context(), pool, graph.Standard(), "linear", attrs, tensor.Of(x, 1, k), tensor.Of(data, n, rowBytes))
		if err != nil {
			t.Fatal(err)
		}
		for i := range n {
			want := float32(k / 2)
			if i == bad {
				want = float32(math.Inf(1))
			}
			if y := math.Float32frombits(binary.NativeEndian.Uint32(got[0].Data[4*i:])); y != want {
				t.Errorf("%s: column %d is %v, want %v", name, i, y, want)
			}
		}
	}
}

// TestEncodedRows: rows of a product of blocks have the bits that they have beside others, on any number of threads,
// with sums that are added to, and where blocks end with the memory; so do those of factors that are rounded.
func TestEncodedRows(t *testing.T) {
	const n, most = 83, 8
	for _, threads := range []int{1, 2, 3, 4} {
		for name, pool := range poolsOfSets(t, threads) {
			for _, e := range slices.Concat(encoded.All(), encoded.Own()) {
				if turns[e.Name] == nil || testing.Short() && threads%2 == 0 {
					continue
				}
				rng := rand.New(rand.NewPCG(uint64(e.ID), uint64(threads)))
				k := 9 * 32
				if e.Elements > 32 {
					k = 3 * int(e.Elements)
				}
				for _, precision := range []string{"", "bf16"} {
					if precision == "" || pool.Set != nil && pool.Set.HasUnit() {
						t.Run(fmt.Sprintf("%s %d %s %s", name, threads, e.Name, precision), func(t *testing.T) {
							checkEncodedRows(t, pool, rng, e, precision, most, n, k)
						})
					}
				}
			}
		}
	}
}

// checkEncodedRows compares few rows with most of them, and in a precision also with more than a block of them.
func checkEncodedRows(
	t *testing.T, pool *ops.Pool, rng *rand.Rand, e *encoded.Encoding, precision string, most, n, k int,
) {
	t.Helper()
	few := []int{1, 2, 3, 4, 5, 6, 7}
	if precision != "" {
		few, most = []int{1, 2, 4, 15, 16, 17, 32}, 35
	}
	rowBytes, _ := e.BlockBytes(k)
	x, residual := strided(rng, tensor.Float32, most, k), strided(rng, tensor.Float32, most, n)
	codes := tensor.Of(randomBlocks(rng, e, n, k), n, rowBytes)
	w := guardedView(t, ops.View{Data: codes.Data, DType: codes.DType, Layout: codes.Layout})
	bias := strided(rng, tensor.Float32, n)
	attrs := graph.Attrs{graph.EncodingAttr: e.Name, "precision": precision, graph.RowsAlone: true}
	for _, add := range []bool{false, true} {
		compute := func(rows int) []byte {
			in := []ops.View{firstRows(x, rows), w, bias}
			if add {
				in = append(in, firstRows(residual, rows))
			}
			return runKind(t, pool, "linear", attrs, emptyView(tensor.Float32, rows, n), in...).Data
		}
		want := compute(most)
		for _, rows := range few {
			if got := compute(rows); !bytes.Equal(got, want[:4*n*rows]) {
				t.Errorf("%d rows of %d have other bits", rows, most)
			}
		}
	}
}

// firstRows returns the first rows of a view.
func firstRows(v ops.View, rows int) ops.View {
	v.Layout.Shape = slices.Clone(v.Layout.Shape)
	v.Layout.Shape[0] = rows
	return v
}

// TestDecode: rows of blocks are their numbers, also where bytes lie apart.
func TestDecode(t *testing.T) {
	pool := ops.NewPool(2)
	defer pool.Close()
	for _, e := range encoded.All() {
		if !e.Readable() || e.Elements == 1 {
			continue
		}
		rng := rand.New(rand.NewPCG(uint64(e.ID), 5))
		n := 2 * int(e.Elements)
		rowBytes, _ := e.BlockBytes(n)
		blocks := randomBlocks(rng, e, 6, n)
		want := make([]float32, 6*n)
		e.Decode(want, blocks)
		apart := make([]byte, 2*len(blocks))
		for i, b := range blocks {
			apart[2*i] = b
		}
		whole, strided := tensor.Of(blocks, 2, 3, rowBytes), tensor.Of(apart, 2, 3, 2*rowBytes)
		strided.Layout = tensor.Layout{Shape: tensor.Shape{2, 3, rowBytes}, Strides: []int{6 * rowBytes, 2 * rowBytes, 2}}
		for _, in := range []*tensor.Tensor{whole, strided} {
			out, err := Compute(t.Context(), pool, graph.Standard(), "decode", graph.Attrs{graph.EncodingAttr: e.Name}, in)
			if err != nil {
				t.Fatal(err)
			}
			if !out[0].Layout.Shape.Equal(tensor.Shape{2, 3, n}) || !bytes.Equal(out[0].Data, tensor.Of(want, 6*n).Data) {
				t.Errorf("%s: other numbers", e.Name)
			}
		}
	}
}

// BenchmarkEncodedLinear is rows by 4096 columns of depth 2048, as graphs with caches have them; bytes are those of blocks. Beside
// means it gives the shortest run.
func BenchmarkEncodedLinear(b *testing.B) {
	pool := ops.NewPool(1)
	defer pool.Close()
	const n, k = 4096, 2048
	rng := rand.New(rand.NewPCG(1, 2))
	for _, name := range []string{
		"Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS", "INT4/128 float16",
	} {
		for _, precision := range []string{"", "bf16"} {
			for _, m := range []int{1, 4, 64} {
				b.Run(fmt.Sprintf("%s/%d", strings.TrimSpace(name+" "+precision), m), func(b *testing.B) {
					e := encodingOf(b, name)
					rowBytes, _ := e.BlockBytes(k)
					x := tensor.Of(make([]float32, m*k), m, k)
					w := tensor.Of(randomBlocks(rng, e, n, k), n, rowBytes)
					attrs := graph.Attrs{graph.EncodingAttr: name, "precision": precision, graph.RowsAlone: true}
					if precisionSupports([]graph.Spec{{DType: tensor.Float32}}, attrs) != nil {
						b.Skip("no such products here")
					}
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
}

func encodingOf(t testing.TB, name string) *encoded.Encoding {
	t.Helper()
	for _, e := range slices.Concat(encoded.All(), encoded.Own()) {
		if e.Name == name {
			return e
		}
	}
	t.Fatalf("no encoding %q", name)
	return nil
}
