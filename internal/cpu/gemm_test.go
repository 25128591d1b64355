package cpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/optimem/optimem/internal/cpu/ops"
	"github.com/optimem/optimem/tensor"
)

func randoms[T ops.Real](seed uint64, n int) []T {
	r := rand.New(rand.NewPCG(seed, 1))
	out := make([]T, n)
	for i := range out {
		out[i] = T(r.NormFloat64())
	}
	return out
}

func asBytes[T any](s []T) []byte {
	var zero T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(zero)))
}

func TestGemmIsTheSumOfProducts(t *testing.T) {
	pool := ops.NewPool(3)
	defer pool.Close()
	for _, s := range [][3]int{
		{1, 1, 1}, {1, 9, 3}, {3, 4, 257}, {2, 5, 600}, {5, 3, 2}, {33, 131, 259}, {7, 1100, 5}, {2100, 6, 11}, {4, 4, 4},
		{65, 67, 33}, {0, 3, 4}, {3, 4, 0},
	} {
		m, n, k := s[0], s[1], s[2]
		x, y := randoms[float32](1, m*k+5), randoms[float32](2, n*k+7)
		bias := randoms[float32](3, max(m, n))
		for _, lay := range []struct{ aLine, aStep, bLine, bStep int }{
			{k, 1, 1, n}, {k, 1, k, 1}, {1, m, k, 1}, {1, m, 1, n}, {k, 1, 0, 1},
		} {
			a := &matrix[float32]{data: asBytes(x), dtype: tensor.Float32, offset: 5, line: lay.aLine, step: lay.aStep}
			b := &matrix[float32]{data: asBytes(y), dtype: tensor.Float32, offset: 7, line: lay.bLine, step: lay.bStep}
			for name, o := range map[string]gemmOptions[float32]{
				"plain": {}, "row": {rowBias: bias}, "column": {columnBias: bias}, "add": {add: true},
			} {
				ldc := n + 3
				before := randoms[float32](4, m*ldc)
				got := append([]float32(nil), before...)
				gemm(pool, m, n, k, a, b, got, ldc, o, make([]byte, gemmWork(m, n, k, 4)))
				alone := append([]float32(nil), before...)
				gemm(nil, m, n, k, a, b, alone, ldc, o, make([]byte, gemmWork(m, n, k, 4)))
				for i := range m {
					for j := range ldc {
						want, size := float64(before[i*ldc+j]), 1.0
						if j < n {
							switch name {
							case "plain":
								want = 0
							case "row":
								want = float64(bias[i])
							case "column":
								want = float64(bias[j])
							}
							for q := range k {
								p := float64(x[5+i*lay.aLine+q*lay.aStep]) * float64(y[7+j*lay.bLine+q*lay.bStep])
								want += p
								size += math.Abs(p)
							}
						}
						if math.Abs(want-float64(got[i*ldc+j])) > 1e-6*size {
							t.Fatalf("%v %v %s: [%d %d] is %v, want %v", s, lay, name, i, j, got[i*ldc+j], want)
						}
						if got[i*ldc+j] != alone[i*ldc+j] {
							t.Fatalf("%v %v %s: [%d %d] depends on the pool", s, lay, name, i, j)
						}
					}
				}
			}
		}
	}
}

func TestGemmRowsDoNotDependOnTheirPlace(t *testing.T) {
	const m, n, k = 37, 45, 700
	x, y := randoms[float32](1, m*k), randoms[float32](2, n*k)
	b := &matrix[float32]{data: asBytes(y), dtype: tensor.Float32, line: k, step: 1}
	product := func(m, row int) []float32 {
		a := &matrix[float32]{data: asBytes(x), dtype: tensor.Float32, offset: row * k, line: k, step: 1}
		c := make([]float32, m*n)
		gemm(nil, m, n, k, a, b, c, n, gemmOptions[float32]{}, make([]byte, gemmWork(m, n, k, 4)))
		return c
	}
	all := product(m, 0)
	for _, some := range []int{5, 14, 23} { // fewer go another way, which may round otherwise
		for row := range m - some {
			for j, v := range product(some, row) {
				if v != all[row*n+j] {
					t.Fatalf("of %d rows from %d on, element %d is %v, in %d rows %v", some, row, j, v, m, all[row*n+j])
				}
			}
		}
	}
}

func TestGemmOfHalvesAndDoubles(t *testing.T) {
	const m, n, k = 5, 7, 300
	x, y := randoms[float32](1, m*k), randoms[float32](2, n*k)
	for _, d := range []tensor.DType{tensor.Float16, tensor.BFloat16} {
		narrow, widen := tensor.Float16FromFloat32, tensor.Float16ToFloat32
		if d == tensor.BFloat16 {
			narrow, widen = tensor.BFloat16FromFloat32, tensor.BFloat16ToFloat32
		}
		hx, hy := make([]uint16, m*k), make([]uint16, n*k)
		rx, ry := make([]float32, m*k), make([]float32, n*k)
		for i, v := range x {
			hx[i] = narrow(v)
			rx[i] = widen(hx[i])
		}
		for i, v := range y {
			hy[i] = narrow(v)
			ry[i] = widen(hy[i])
		}
		got, want := make([]float32, m*n), make([]float32, m*n)
		work := make([]byte, gemmWork(m, n, k, 4))
		gemm(nil, m, n, k, &matrix[float32]{data: asBytes(hx), dtype: d, line: k, step: 1},
			&matrix[float32]{data: asBytes(hy), dtype: d, line: k, step: 1}, got, n, gemmOptions[float32]{}, work)
		gemm(nil, m, n, k, &matrix[float32]{data: asBytes(rx), dtype: tensor.Float32, line: k, step: 1},
			&matrix[float32]{data: asBytes(ry), dtype: tensor.Float32, line: k, step: 1}, want, n,
			gemmOptions[float32]{}, work)
		for i := range want {
			if got[i] != want[i] {
				t.Fatalf("%v: element %d is %v, want %v", d, i, got[i], want[i])
			}
		}
	}
	dx, dy := randoms[float64](1, m*k), randoms[float64](2, n*k)
	got := make([]float64, m*n)
	gemm(nil, m, n, k, &matrix[float64]{data: asBytes(dx), dtype: tensor.Float64, line: k, step: 1},
		&matrix[float64]{data: asBytes(dy), dtype: tensor.Float64, line: 1, step: n}, got, n,
		gemmOptions[float64]{}, make([]byte, gemmWork(m, n, k, 8)))
	for i := range m {
		for j := range n {
			var want float64
			for q := range k {
				want += dx[i*k+q] * dy[j+q*n]
			}
			if math.Abs(got[i*n+j]-want) > 1e-12 {
				t.Fatalf("[%d %d] is %v, want %v", i, j, got[i*n+j], want)
			}
		}
	}
}

func BenchmarkGemm(b *testing.B) {
	pool := ops.NewPool(0)
	defer pool.Close()
	for _, s := range [][3]int{{512, 512, 512}, {64, 4096, 576}, {1, 4096, 4096}, {16, 1024, 1024}, {2048, 256, 512}} {
		m, n, k := s[0], s[1], s[2]
		b.Run(fmt.Sprintf("%dx%dx%d", m, n, k), func(b *testing.B) {
			x, y, c := make([]float32, m*k), make([]float32, n*k), make([]float32, m*n)
			work := make([]byte, gemmWork(m, n, k, 4))
			for b.Loop() {
				gemm(pool, m, n, k, &matrix[float32]{data: asBytes(x), dtype: tensor.Float32, line: k, step: 1},
					&matrix[float32]{data: asBytes(y), dtype: tensor.Float32, line: k, step: 1}, c, n,
					gemmOptions[float32]{}, work)
			}
			b.ReportMetric(2*float64(m)*float64(n)*float64(k)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
		})
	}
}
