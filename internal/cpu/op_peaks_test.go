package cpu_test

import (
	"bytes"
	"context"
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu"
	"github.com/optimem/optimem/tensor"
)

// waves returns n numbers that differ.
func waves[T float32 | float64](n int) []T {
	x := make([]T, n)
	for i := range x {
		x[i] = T(math.Sin(float64(i)*1.7) + float64(i%7)/9)
	}
	return x
}

// peaksOf interpolates whole maps and looks for the largest pixel of each.
func peaksOf[T float32 | float64](t *testing.T, pool *cpu.Pool, maps []T, shape tensor.Shape, sizes []int64) (places []int64, values []T) {
	t.Helper()
	each := shape[1] * shape[2] * shape[3]
	for n := range shape[0] {
		h, w := int(sizes[2*n]), int(sizes[2*n+1])
		out, err := cpu.Compute(t.Context(), pool, graph.Standard(), "interpolate",
			graph.Attrs{"mode": "cubic", "size": []int{h, w}}, tensor.Of(maps[n*each:][:each], 1, shape[1], shape[2], shape[3]))
		if err != nil {
			t.Fatal(err)
		}
		pixels, err := tensor.Slice[T](out[0])
		if err != nil {
			t.Fatal(err)
		}
		for k := range shape[1] {
			plane := pixels[k*h*w:][:h*w]
			best := slices.Index(plane, slices.Max(plane))
			places = append(places, int64(best/w), int64(best%w))
			values = append(values, plane[best])
		}
	}
	return places, values
}

func testPeaks[T float32 | float64](t *testing.T) {
	one, four := cpu.NewPool(1), cpu.NewPool(4)
	defer one.Close()
	defer four.Close()
	shape := tensor.Shape{4, 3, 5, 6}
	maps := waves[T](4 * 3 * 5 * 6)
	sizes := []int64{7, 9, 1, 1, 300, 3, 5, 6}
	wantPlaces, wantValues := peaksOf(t, one, maps, shape, sizes)
	var first []*tensor.Tensor
	for _, pool := range []*cpu.Pool{one, four} {
		out, err := cpu.Compute(t.Context(), pool, graph.Standard(), "heatmap_peaks", graph.Attrs{},
			tensor.Of(maps, shape...), tensor.Of(sizes, 4, 2))
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = out
		}
		if !bytes.Equal(out[0].Data, first[0].Data) || !bytes.Equal(out[1].Data, first[1].Data) {
			t.Error("other bits with other threads")
		}
	}
	places, _ := tensor.Slice[int64](first[0])
	values, _ := tensor.Slice[T](first[1])
	for i, v := range values {
		if !slices.Equal(places[2*i:2*i+2], wantPlaces[2*i:2*i+2]) || math.Abs(float64(v-wantValues[i])) > 1e-6 {
			t.Errorf("map %d: %v at %v, want %v at %v", i, v, places[2*i:2*i+2], wantValues[i], wantPlaces[2*i:2*i+2])
		}
	}
}

// TestHeatmapPeaks: the largest pixel of a map is where it is when all of the map is interpolated, whatever the threads.
func TestHeatmapPeaks(t *testing.T) {
	t.Run("float32", testPeaks[float32])
	t.Run("float64", testPeaks[float64])
}

// TestHeatmapPeaksOfAny: of equal pixels the first is the peak, NaN is larger than any number, what does not count is zeros whatever
// its size says, and what counts has a size that can be.
func TestHeatmapPeaksOfAny(t *testing.T) {
	pool := cpu.NewPool(1)
	defer pool.Close()
	run := func(ctx context.Context, maps []float32, count int64, sizes ...int64) ([]int64, []float32, error) {
		n := len(sizes) / 2
		out, err := cpu.Compute(ctx, pool, graph.Standard(), "heatmap_peaks", graph.Attrs{},
			tensor.Of(maps, n, 1, 2, len(maps)/n/2), tensor.Of(sizes, n, 2), tensor.Of([]int64{count}))
		if err != nil {
			return nil, nil, err
		}
		places, _ := tensor.Slice[int64](out[0])
		values, _ := tensor.Slice[float32](out[1])
		return places, values, nil
	}
	nan := float32(math.NaN())
	for _, c := range []struct {
		maps   []float32
		count  int64
		sizes  []int64
		places []int64
	}{
		{[]float32{1, 1, 1, 1, 1, 1}, 1, []int64{2, 3}, []int64{0, 0}},
		{[]float32{1, 5, 1, 1, 5, 1}, 1, []int64{2, 3}, []int64{0, 1}},
		{[]float32{1, nan, 1, 1, 5, 1}, 1, []int64{2, 3}, []int64{0, 0}}, // which reaches all of four by four
		{[]float32{1, 2, 3, 4, 1, 2, 3, 4}, 1, []int64{2, 2, -3, 1 << 40}, []int64{1, 1, 0, 0}},
		{[]float32{1, 2, 3, 4, 1, 2, 3, 4}, 0, []int64{0, 0, 0, 0}, []int64{0, 0, 0, 0}},
		{[]float32{1, 2, 3, 4, 1, 2, 3, 4}, 9, []int64{2, 2, 2, 2}, []int64{1, 1, 1, 1}},
	} {
		places, values, err := run(t.Context(), c.maps, c.count, c.sizes...)
		if err != nil || !slices.Equal(places, c.places) {
			t.Errorf("%v of %v: %v at %v, want %v, %v", c.maps, c.sizes, values, places, c.places, err)
		}
	}
	for _, size := range []int64{0, -1, 1 << 17, math.MaxInt64} {
		if _, _, err := run(t.Context(), []float32{1, 2, 3, 4}, 1, 2, size); err == nil {
			t.Errorf("a region %d wide is one", size)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := run(ctx, []float32{1, 2, 3, 4}, 1, 1<<16, 1<<16); !errors.Is(err, context.Canceled) {
		t.Errorf("a large region, cancelled: %v", err)
	}
}

// TestSuppressionWithinClasses: boxes of other classes drop nothing, as if each class was looked at by itself.
func TestSuppressionWithinClasses(t *testing.T) {
	pool := cpu.NewPool(1)
	defer pool.Close()
	const n, threshold = 60, 0.3
	var boxes, scores []float32
	classes := make([]int64, n)
	for i := range n {
		x, y := float32(i*7%13), float32(i*5%11)
		boxes = append(boxes, x, y, x+4+float32(i%3), y+5)
		scores = append(scores, float32(math.Sin(float64(i)*3.1)))
		classes[i] = int64(i * i % 4)
	}
	stays := func(in ...*tensor.Tensor) []int64 {
		out, err := cpu.Compute(t.Context(), pool, graph.Standard(), "nms", graph.Attrs{"threshold": threshold}, in...)
		if err != nil {
			t.Fatal(err)
		}
		list, _ := tensor.Slice[int64](out[0])
		count, _ := tensor.Slice[int64](out[1])
		return list[:count[0]]
	}
	for _, count := range []int64{n, 37} {
		var want []int64
		for class := range int64(4) {
			var b, s []float32
			var from []int64
			for i := range count {
				if classes[i] == class {
					b, s, from = append(b, boxes[4*i:][:4]...), append(s, scores[i]), append(from, i)
				}
			}
			for _, i := range stays(tensor.Of(b, len(s), 4), tensor.Of(s, len(s))) {
				want = append(want, from[i])
			}
		}
		slices.SortFunc(want, func(i, j int64) int { return int(math.Copysign(1, float64(scores[j]-scores[i]))) })
		got := stays(tensor.Of(boxes, n, 4), tensor.Of(scores, n), tensor.Of([]int64{count}), tensor.Of(classes, n))
		if !slices.Equal(got, want) || len(got) == int(count) {
			t.Errorf("of %d boxes %v stay, want %v", count, got, want)
		}
	}
}
