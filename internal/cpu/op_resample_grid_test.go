package cpu_test

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu"
	"github.com/optimem/optimem/tensor"
)

// TestGridOfNoNumbers: a point that is NaN shows NaN where it is interpolated, and nothing of the image where the nearest
// pixel is taken, as in PyTorch on x86.
func TestGridOfNoNumbers(t *testing.T) {
	pool := cpu.NewPool(1)
	defer pool.Close()
	image := tensor.Of([]float32{1, 2, 3, 4}, 1, 1, 2, 2)
	nan := float32(math.NaN())
	grid := tensor.Of([]float32{nan, 0, 0, nan, nan, nan}, 1, 1, 3, 2)
	for mode, want := range map[string]float32{"linear": nan, "nearest": 0} {
		attrs := graph.Attrs{"mode": mode, "padding_mode": "zeros", "align_corners": false}
		out, err := cpu.Compute(t.Context(), pool, graph.Standard(), "grid_sample", attrs, image, grid)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			x := math.Float32frombits(binary.NativeEndian.Uint32(out[0].Data[4*i:]))
			if x != want && !(x != x && want != want) {
				t.Errorf("%s: point %d shows %v, PyTorch %v", mode, i, x, want)
			}
		}
	}
}
