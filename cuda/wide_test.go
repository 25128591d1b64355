package cuda

import (
	"math/rand/v2"
	"testing"

	"github.com/optimem/optimem/tensor"
)

// TestQuotients computes quotients as om_quotient of om.h does.
func TestQuotients(t *testing.T) {
	check := func(i, by uint32) {
		factor, shift := quotients(by)
		got := (uint32(uint64(i)*uint64(factor)>>32) + i) >> shift
		if got != i/by {
			t.Fatalf("%d / %d is not %d", i, by, got)
		}
	}
	const most = leastFar - 1
	draw := rand.New(rand.NewPCG(1, 2))
	bys := []uint32{1, 2, 3, 4, 5, 6, 7, 9, 10, 641, 1<<16 - 1, 1 << 16, 1<<16 + 1, 1<<30 - 1, 1 << 30, 1<<30 + 1, most - 1, most}
	for range 500 {
		bys = append(bys, 1+draw.Uint32N(most)>>draw.UintN(31))
	}
	for _, by := range bys {
		for _, i := range []uint32{0, 1, by - 1, by, min(by, most/2) * 2, most / by * by, most/by*by - 1, most - 1, most} {
			check(min(i, most), by)
		}
		for range 50 {
			check(draw.Uint32N(leastFar)>>draw.UintN(31), by)
		}
	}
	for _, c := range []struct{ by, most int64 }{{0, 5}, {7, leastFar}, {leastFar, 5}} {
		if list := (&stream{d: &Device{far: leastFar}}).divisorInts(c.by, c.most); list[0] != int(c.by) || list[1]>>32 != noDivisor {
			t.Errorf("%d of up to %d: %x", c.by, c.most, list)
		}
	}
}

// TestWider takes elements together as far as every operand allows it.
func TestWider(t *testing.T) {
	view := func(offset int, shape tensor.Shape, strides ...int) tensor.Layout {
		return tensor.Layout{Shape: shape, Strides: strides, Offset: offset}
	}
	for name, c := range map[string]struct {
		dtype    tensor.DType
		address  uint64
		layout   tensor.Layout
		together int
	}{
		"floats":                        {tensor.Float32, 256, view(4, tensor.Shape{3, 8}, 12, 1), 4},
		"bytes":                         {tensor.Int8, 256, view(0, tensor.Shape{3, 16}, 16, 1), 16},
		"pairs":                         {tensor.Float32, 256, view(0, tensor.Shape{3, 6}, 6, 1), 2},
		"an odd length":                 {tensor.Float32, 256, view(0, tensor.Shape{3, 7}, 8, 1), 1},
		"an odd line":                   {tensor.Float32, 256, view(0, tensor.Shape{3, 8}, 9, 1), 1},
		"an odd line of one":            {tensor.Float32, 256, view(0, tensor.Shape{1, 8}, 9, 1), 4},
		"an odd begin":                  {tensor.Float32, 256, view(1, tensor.Shape{3, 8}, 8, 1), 1},
		"an odd address":                {tensor.Float32, 260, view(0, tensor.Shape{3, 8}, 8, 1), 1},
		"an address between two":        {tensor.Float32, 264, view(0, tensor.Shape{3, 8}, 8, 1), 2},
		"apart":                         {tensor.Float32, 256, view(0, tensor.Shape{8}, 4), 1},
		"complex numbers":               {tensor.Complex128, 256, view(0, tensor.Shape{8}, 1), 1},
		"the same for all":              {tensor.Float32, 256, view(0, tensor.Shape{8}, 0), 1},
		"lines that are the same":       {tensor.Float32, 256, view(0, tensor.Shape{3, 8}, 0, 1), 4},
		"lines in the other direction":  {tensor.Float32, 256, view(16, tensor.Shape{3, 8}, -8, 1), 4},
		"nothing":                       {tensor.Float32, 256, view(0, tensor.Shape{0}, 1), 4},
		"no dimension":                  {tensor.Float32, 256, tensor.Layout{}, 1},
		"halves, as long as they allow": {tensor.Float16, 256, view(0, tensor.Shape{2, 12}, 12, 1), 4},
	} {
		t.Run(name, func(t *testing.T) {
			o := operand{span: span{c.address, 1 << 10}, dtype: c.dtype, layout: c.layout}
			wide := wider(o, operand{})
			if n := wide[0].dtype.Size() / c.dtype.Size(); n != c.together {
				t.Fatalf("%d together, want %d", n, c.together)
			}
			if !wide[1].absent() {
				t.Error("what was absent is there")
			}
			if c.together == 1 {
				return
			}
			n := c.together
			if wide[0].size()*int64(n) != o.size() || wide[0].layout.Offset*n != c.layout.Offset {
				t.Errorf("%+v of %+v", wide[0].layout, c.layout)
			}
			for d, s := range wide[0].layout.Strides[:len(c.layout.Strides)-1] {
				if c.layout.Shape[d] != 1 && s*n != c.layout.Strides[d] {
					t.Errorf("dimension %d: %d elements apart, of %d", d, s, c.layout.Strides[d])
				}
			}
			odd := o
			odd.address += uint64(c.dtype.Size())
			if wide := wider(o, odd); wide[0].dtype != c.dtype || wide[1].dtype != c.dtype {
				t.Errorf("together with an odd one: %v, %v", wide[0].dtype, wide[1].dtype)
			}
		})
	}
}
