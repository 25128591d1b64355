//go:build unix

package cpu

import (
	"github.com/optimem/optimem/internal/cpu/ops"
	"math/rand/v2"
	"syscall"
	"testing"
)

// guardedView returns a copy of a view whose memory ends at any byte address before a page that may not be read.
func guardedView(t *testing.T, v ops.View) ops.View {
	t.Helper()
	page := syscall.Getpagesize()
	size := (len(v.Data) + page - 1) / page * page
	all, err := syscall.Mmap(-1, 0, size+page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Munmap(all) })
	if err := syscall.Mprotect(all[size:], syscall.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	data := all[size-len(v.Data) : size : size]
	copy(data, v.Data)
	v.Data = data
	return v
}

// TestProductsStayInTheirMemory computes with factors and results at the end of the memory.
func TestProductsStayInTheirMemory(t *testing.T) {
	for _, pool := range poolsOfSets(t, 2) {
		rng := rand.New(rand.NewPCG(19, 20))
		for range 60 {
			d := productDTypes[rng.IntN(3)]
			m, n, k := 1+rng.IntN(40), 1+rng.IntN(100), 1+rng.IntN(300)
			if rng.IntN(3) == 0 { // few rows, read in whole vectors
				m, n, k = 1+rng.IntN(4), 100+rng.IntN(100), 32*(1+rng.IntN(10))
			}
			x, w := guardedView(t, strided(rng, d, 1, m, k)), guardedView(t, strided(rng, d, n, k))
			bias := guardedView(t, strided(rng, d, n))
			out := guardedView(t, emptyView(d, 1, m, n))
			specs := emptyView(d, 1, m, n)
			got := runKind(t, pool, "linear", nil, specs, x, w, bias)
			packed := guardedView(t, packedView(t, pool, "linear", nil, out, x, w))
			runInto(t, pool, "linear", nil, out, x, w, bias)
			runInto(t, pool, "linear", nil, out, x, packed, bias)
			if string(out.Data) != string(got.Data) {
				t.Fatalf("%v %d×%d×%d: other bits at the end of the memory", d, m, n, k)
			}
			y := guardedView(t, strided(rng, d, 1, k, n))
			runInto(t, pool, "matmul", map[string]any{"alpha": 1.0}, out, x, y)
		}
	}
}
