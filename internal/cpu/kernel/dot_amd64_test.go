//go:build !noasm

package kernel

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestDotTile: rows that are computed together have the bits of those computed alone, however many there are, and nothing
// behind them is touched.
func TestDotTile(t *testing.T) {
	if !hasDots() {
		t.Skip("the processor has no AVX512-BF16")
	}
	rng := rand.New(rand.NewPCG(51, 52))
	const steps = 3
	halves := func(n int) []uint16 {
		x := make([]uint16, n)
		for i := range x {
			x[i] = uint16(0x3f00 | rng.IntN(256) | rng.IntN(2)<<15) // sizes of about 1
		}
		return x
	}
	x, w := halves(UnitRows*steps*UnitDepth*2), halves(steps*2*UnitDepth*UnitColumns)
	pixel := 2 * 2 * UnitDepth * steps // bytes
	offsets := []int{0, 4 * UnitDepth, 8 * UnitDepth}
	row := func(rows, from int, c []float32) {
		dotTile(rows, steps, &x[from*pixel/2], pixel, &offsets[0], &w[0], &dotZeros[0], 0, &c[0], 4*UnitColumns)
	}
	alone := make([]float32, UnitRows*UnitColumns)
	for r := range UnitRows {
		row(1, r, alone[r*UnitColumns:])
	}
	for rows := range UnitRows + 1 {
		together := make([]float32, (UnitRows+1)*UnitColumns)
		row(rows, 0, together)
		if !slices.Equal(together[:rows*UnitColumns], alone[:rows*UnitColumns]) {
			t.Errorf("%d rows have other sums than each by itself", rows)
		}
		if i := slices.IndexFunc(together[rows*UnitColumns:], func(v float32) bool { return v != 0 }); i >= 0 {
			t.Errorf("%d rows: element %d behind them was written", rows, i)
		}
	}
}
