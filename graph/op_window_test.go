package graph

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/optimem/optimem/tensor"
)

// TestWindowRulesTakeAnything gives the rules of ops with windows shapes and attributes of every size: they must refuse
// what cannot be, and what they take must cost something countable.
func TestWindowRulesTakeAnything(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	sizes := []int{0, 1, 1, 2, 2, 3, 3, 4, 7, 8, 100, 1 << 16, 1 << 31, 1 << 40, 1 << 61, 1 << 62, math.MaxInt}
	amounts := append([]int{-1, math.MinInt}, sizes...)
	list := func(from []int, n int) []int {
		if r.IntN(20) == 0 {
			n = r.IntN(6)
		}
		if r.IntN(2) == 0 { // the smaller ones are those that can be
			from = from[:11]
		}
		out := make([]int, n)
		for i := range out {
			out[i] = from[r.IntN(len(from))]
		}
		return out
	}
	modes := []string{"constant", "reflect", "replicate", "circular", "nearest", "linear", "cubic", "lanczos", "zeros"}
	taken := make(map[Kind]int)
	for _, def := range slices.Concat(convOps, poolOps, resampleOps, padOps) {
		for range 5000 {
			rank := 1 + r.IntN(3)
			shape := func() Spec { return Spec{DType: tensor.Float32, Shape: list(sizes, rank+2)} }
			in := []Spec{shape(), shape(), {}}[:1+r.IntN(3)]
			if def.Kind == "pad" {
				in = []Spec{shape(), {}}
			}
			a := Attrs{"groups": amounts[r.IntN(len(amounts))]}
			for _, name := range []string{"stride", "padding", "padding_end", "dilation", "output_padding", "kernel"} {
				a[name] = list(amounts, rank)
			}
			a["size"] = list(amounts, rank+r.IntN(2)*2)
			a["before"], a["after"] = list(amounts, rank+2), list(amounts, rank+2)
			a["mode"], a["padding_mode"] = modes[r.IntN(len(modes))], modes[r.IntN(len(modes))]
			for _, name := range []string{"transposed", "ceil_mode", "indices", "antialias", "align_corners"} {
				a[name] = r.IntN(2) == 0
			}
			a["scale0"], a["scale1"], a["scale2"] = r.Float64(), 1e-300, math.Inf(1)
			out, err := def.Shape(in, a)
			if err != nil {
				continue
			}
			taken[def.Kind]++
			for _, s := range out {
				for _, d := range s.Shape {
					if d < 0 {
						t.Fatalf("%s%v of %v gives %v", def.Kind, a, in, s.Shape)
					}
				}
			}
			def.Cost(in, out, a)
		}
	}
	for _, kind := range []Kind{"max_pool", "avg_pool", "pad", "interpolate", "adaptive_avg_pool"} {
		if taken[kind] < 10 {
			t.Errorf("%s took %d of the calls: the test looks at nothing", kind, taken[kind])
		}
	}
}

func TestConvolutionShapes(t *testing.T) {
	conv := func(x, w tensor.Shape, stride, padding, end, dilation, groups int, extra int) ([]Spec, error) {
		n := len(x) - 2
		all := func(v int) []int { return slices.Repeat([]int{v}, n) }
		a := Attrs{
			"stride": all(stride), "padding": all(padding), "padding_end": all(end), "dilation": all(dilation), "groups": groups,
		}
		if extra >= 0 {
			a["transposed"], a["output_padding"] = true, all(extra)
		}
		return convShape([]Spec{{tensor.Float32, x}, {tensor.Float32, w}, {}}, a)
	}
	for _, c := range []struct {
		x, w                                          tensor.Shape
		stride, padding, end, dilation, groups, extra int
		want                                          tensor.Shape
	}{
		{tensor.Shape{2, 3, 224, 224}, tensor.Shape{64, 3, 7, 7}, 2, 3, 3, 1, 1, -1, tensor.Shape{2, 64, 112, 112}},
		{tensor.Shape{2, 4, 9}, tensor.Shape{6, 2, 4}, 1, 1, 2, 1, 2, -1, tensor.Shape{2, 6, 9}},
		{tensor.Shape{1, 4, 5, 5, 5}, tensor.Shape{4, 3, 3, 3, 3}, 2, 1, 1, 1, 2, 1, tensor.Shape{1, 6, 10, 10, 10}},
		{tensor.Shape{1, 3, 5}, tensor.Shape{6, 2, 3}, 1, 0, 0, 1, 1, -1, nil},            // channels
		{tensor.Shape{1, 3, 5}, tensor.Shape{6, 3, 3}, 1, 0, 0, 3, 1, -1, nil},            // larger than the input
		{tensor.Shape{1, 4, 5}, tensor.Shape{5, 2, 3}, 1, 0, 0, 1, 2, -1, nil},            // groups
		{tensor.Shape{1, 3, 5, 5}, tensor.Shape{6, 3, 3}, 1, 0, 0, 1, 1, -1, nil},         // ranks
		{tensor.Shape{1, 3, 5}, tensor.Shape{6, 3, 3}, 0, 0, 0, 1, 1, -1, nil},            // stride
		{tensor.Shape{1, 3, 5}, tensor.Shape{3, 6, 3}, 2, 0, 0, 1, 1, 2, nil},             // output padding
		{tensor.Shape{1, 0, 5}, tensor.Shape{0, 4, 3}, 1, 0, 0, 1, 1 << 62, -1, nil},      // a product that overflows
		{tensor.Shape{1, 3, 1 << 61}, tensor.Shape{3, 1, 3}, 1 << 30, 0, 0, 1, 1, 0, nil}, // a size that overflows
	} {
		out, err := conv(c.x, c.w, c.stride, c.padding, c.end, c.dilation, c.groups, c.extra)
		switch {
		case c.want == nil && err == nil:
			t.Errorf("%v by %v gives %v", c.x, c.w, out)
		case c.want != nil && (err != nil || !out[0].Shape.Equal(c.want)):
			t.Errorf("%v by %v gives %v, %v, want %v", c.x, c.w, out, err, c.want)
		}
	}
}
