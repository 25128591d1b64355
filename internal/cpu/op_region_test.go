package cpu_test

import (
	"errors"
	"math"
	"testing"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu"
	"github.com/optimem/optimem/tensor"
)

// TestRegionsFromAnywhere: regions are data. Those that no image has are an error or samples of nothing, whatever their numbers
// are, and take no more time than those of the size of an image.
func TestRegionsFromAnywhere(t *testing.T) {
	pool := cpu.NewPool(2)
	defer pool.Close()
	x := tensor.Of([]float32{1, 2, 3, 4}, 1, 1, 2, 2)
	inf, nan, huge := float32(math.Inf(1)), float32(math.NaN()), float32(math.MaxFloat32)
	run := func(kind graph.Kind, a graph.Attrs, x *tensor.Tensor, region ...float32) (*tensor.Tensor, error) {
		out, err := cpu.Compute(t.Context(), pool, graph.Standard(), kind, a, x, tensor.Of(region, 1, 5))
		if err != nil {
			return nil, err
		}
		return out[0], nil
	}
	for _, kind := range []graph.Kind{"roi_align", "roi_pool"} {
		for _, positional := range []bool{false, true} {
			a := graph.Attrs{"size": []int{1, 1}, "scale": 1.0, "positional": positional}
			for _, box := range [][]float32{
				{-inf, -inf, inf, inf}, {nan, nan, nan, nan}, {-huge, -huge, huge, huge}, {huge, huge, -huge, -huge}, {0, 0, inf, 1},
			} {
				if _, err := run(kind, a, x, append([]float32{0}, box...)...); err != nil {
					t.Errorf("%s of %v: %v", kind, box, err)
				}
			}
			for _, image := range []float32{1, -1, nan, inf, 1e30} {
				_, err := run(kind, a, x, image, 0, 0, 1, 1)
				var index *graph.IndexError
				if !errors.As(err, &index) || index.Size != 1 {
					t.Errorf("%s in image %v: %v", kind, image, err)
				}
			}
			out, err := run(kind, a, tensor.Of([]float32{}, 1, 1, 0, 2), 0, 0, 0, 1, 1)
			if err != nil {
				t.Errorf("%s of an image without pixels: %v", kind, err)
			} else if v := tensor.Of([]float32{0}, 1, 1, 1, 1); string(out.Data) != string(v.Data) {
				t.Errorf("%s of an image without pixels is % x", kind, out.Data)
			}
		}
	}
}

// TestRegionsAreBounded: what an attribute may ask for has a limit, and shapes that do not fit are errors.
func TestRegionsAreBounded(t *testing.T) {
	spec := func(shape ...int) graph.Spec { return graph.Spec{DType: tensor.Float32, Shape: shape} }
	window := func(extra graph.Attrs) graph.Attrs {
		a := graph.Attrs{"kernel": []int{3, 3}, "stride": []int{1, 1}, "padding": []int{0, 0}, "dilation": []int{1, 1}, "groups": 1}
		for k, v := range extra {
			a[k] = v
		}
		return a
	}
	x, boxes := spec(1, 4, 5, 5), spec(3, 5)
	for name, c := range map[string]struct {
		kind  graph.Kind
		attrs graph.Attrs
		in    []graph.Spec
	}{
		"bins":            {"roi_align", graph.Attrs{"size": []int{1 << 40, 1}}, []graph.Spec{x, boxes}},
		"no bins":         {"roi_pool", graph.Attrs{"size": []int{0, 1}}, []graph.Spec{x, boxes}},
		"samples":         {"roi_align", graph.Attrs{"size": []int{1, 1}, "sampling": 1 << 30}, []graph.Spec{x, boxes}},
		"channels":        {"roi_pool", graph.Attrs{"size": []int{3, 1}, "positional": true}, []graph.Spec{x, boxes}},
		"columns of rois": {"roi_pool", graph.Attrs{"size": []int{1, 1}}, []graph.Spec{x, spec(3, 4)}},
		"offsets":         {"deform_columns", window(nil), []graph.Spec{x, spec(1, 18, 3, 2)}},
		"mask":            {"deform_columns", window(nil), []graph.Spec{x, spec(1, 18, 3, 3), spec(1, 18, 3, 3)}},
		"groups":          {"deform_columns", window(graph.Attrs{"groups": 3}), []graph.Spec{x, spec(1, 54, 3, 3)}},
		"kernel":          {"deform_columns", window(graph.Attrs{"kernel": []int{7, 7}}), []graph.Spec{x, spec(1, 98, 1, 1)}},
	} {
		def, _ := graph.Standard().Lookup(c.kind)
		if out, err := def.Shape(c.in, c.attrs); err == nil {
			t.Errorf("%s: %v", name, out)
		}
	}
	def, _ := graph.Standard().Lookup("deform_columns")
	if _, err := def.Shape([]graph.Spec{x, spec(1, 18, 3, 3), spec(1, 9, 3, 3)}, window(nil)); err != nil {
		t.Error(err)
	}
}
