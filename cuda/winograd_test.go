//go:build linux && (amd64 || arm64) && !nocuda

package cuda_test

import (
	"testing"

	"github.com/optimem/optimem/cuda"
	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/device/devicetest"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu"
	"github.com/optimem/optimem/tensor"
)

func convOf3x3() graph.Attrs {
	return graph.Attrs{
		"stride": []int{1, 1}, "padding": []int{1, 1}, "dilation": []int{1, 1}, "groups": 1, "winograd": true, "eps": 1e-3,
	}
}

// TestWinograd compares convolutions by Winograd's algorithm with sums of products.
func TestWinograd(t *testing.T) {
	dev, _ := open(t, "order=lazy:9 memory=256M")
	compareWinograd(t, dev)
	t.Run("a chunk of two tiles behind one of many", func(t *testing.T) { // so many channels that the first has 128
		in := []*tensor.Tensor{numbers(tensor.Float32, 1, 1, 40, 52), numbers(tensor.Float32, 1000, 1, 3, 3), nil}
		sameAsSums(t, dev, convOf3x3(), func(w *written) []graph.Operand { return operandsOf(w, in) }, 2e-5)
	})
	t.Run("two chunks of tiles", func(t *testing.T) {
		if testing.Short() {
			t.Skip("a large picture")
		}
		in := []*tensor.Tensor{numbers(tensor.Float32, 1, 2, 476, 500), numbers(tensor.Float32, 16, 2, 3, 3), nil}
		sameAsSums(t, dev, convOf3x3(), func(w *written) []graph.Operand { return operandsOf(w, in) }, 2e-5)
	})
}

func operandsOf(w *written, in []*tensor.Tensor) []graph.Operand {
	var list []graph.Operand
	for _, x := range in {
		if x == nil {
			list = append(list, graph.Absent)
			continue
		}
		list = append(list, w.Whole(w.AddConst(x)))
	}
	return list
}

// sameAsSums runs a convolution on a device, and without its attribute on the CPU.
func sameAsSums(t *testing.T, dev device.Device, a graph.Attrs, in func(w *written) []graph.Operand, bound float64) {
	t.Helper()
	pool := cpu.NewPool(1)
	defer pool.Close()
	w := &written{&graph.Graph{Modules: make(map[string]graph.Operand)}, t}
	w.Outputs = []graph.Output{{Name: "y", Operand: w.op("conv", a, in(w)...)}}
	got := w.result(dev, w.Graph)
	want, err := cpu.Interpret(t.Context(), pool, graph.Standard(), w.Graph, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := devicetest.Compare(got, want["y"], bound); err != nil {
		t.Error(err)
	}
}

func compareWinograd(t *testing.T, dev device.Device) {
	const f32 = tensor.Float32
	for name, c := range map[string]struct {
		x, w    tensor.Shape
		padding []int
		ends    bool
		last    bool // the channels of the input lie behind each other
	}{
		"whole tiles":              {tensor.Shape{2, 5, 8, 12}, tensor.Shape{20, 5, 3, 3}, []int{1, 1}, false, false},
		"parts of tiles":           {tensor.Shape{3, 3, 7, 5}, tensor.Shape{7, 3, 3, 3}, []int{1, 1}, false, false},
		"no padding":               {tensor.Shape{1, 4, 9, 6}, tensor.Shape{6, 4, 3, 3}, []int{0, 0}, false, false},
		"much padding":             {tensor.Shape{1, 4, 3, 6}, tensor.Shape{6, 4, 3, 3}, []int{2, 0}, false, false},
		"one pixel":                {tensor.Shape{1, 2, 1, 1}, tensor.Shape{3, 2, 3, 3}, []int{1, 1}, false, false},
		"ends":                     {tensor.Shape{2, 5, 6, 8}, tensor.Shape{9, 5, 3, 3}, []int{1, 1}, true, false},
		"ends, not in fours":       {tensor.Shape{2, 5, 6, 7}, tensor.Shape{9, 5, 3, 3}, []int{1, 1}, true, false},
		"channels last":            {tensor.Shape{2, 5, 6, 7}, tensor.Shape{9, 5, 3, 3}, []int{1, 1}, false, true},
		"many channels, few tiles": {tensor.Shape{1, 512, 6, 6}, tensor.Shape{16, 512, 3, 3}, []int{1, 1}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			a := convOf3x3()
			a["padding"] = c.padding
			sameAsSums(t, dev, a, func(w *written) []graph.Operand {
				k := c.w[0]
				in := operandsOf(w, []*tensor.Tensor{numbers(f32, c.x...), numbers(f32, c.w...), numbers(f32, k)})
				if c.last {
					s := c.x
					in[0].Layout.Strides = []int{s[1] * s[2] * s[3], 1, s[3] * s[1], s[1]}
				}
				if c.ends {
					out := tensor.Shape{c.x[0], k, c.x[2] + 2*c.padding[0] - 2, c.x[3] + 2*c.padding[1] - 2}
					in = append(in, operandsOf(w, []*tensor.Tensor{numbers(f32, k), numbers(f32, k), numbers(f32, k)})...)
					in = append(in, w.constant(true, k), w.Whole(w.AddConst(numbers(f32, out...))))
					a["act"], a["act_a"] = "leaky_relu", 0.25
				}
				return in
			}, 3e-5)
		})
	}
}

// TestWinogradNaN: what is no number or has no bound comes to those results whose tiles read it, to all of them that the
// window covers.
func TestWinogradNaN(t *testing.T) {
	dev, _ := open(t, "order=lazy:9 memory=64M")
	x := tensor.Of(make([]float32, 12*12), 1, 1, 12, 12)
	copy(x.Data[4*(5*12+5):], []byte{0, 0, 0xc0, 0x7f})
	w := &written{&graph.Graph{Modules: make(map[string]graph.Operand)}, t}
	in := operandsOf(w, []*tensor.Tensor{x, numbers(tensor.Float32, 1, 1, 3, 3), nil})
	w.Outputs = []graph.Output{{Name: "y", Operand: w.op("conv", convOf3x3(), in...)}}
	y := w.result(dev, w.Graph)
	for i := range 12 {
		for j := range 12 {
			v := y.Data[4*(i*12+j):][:4]
			isNaN := v[3]&0x7f == 0x7f && v[2]&0x80 != 0
			window, tile := max(abs(i-5), abs(j-5)) <= 1, i/4 == 1 && j/4 == 1 || window4(i) && window4(j)
			if window && !isNaN || !tile && isNaN {
				t.Errorf("%d, %d: % x", i, j, v)
			}
		}
	}
}

func abs(i int) int { return max(i, -i) }

// window4 reports whether the tile of a row or a column reads the sixth.
func window4(i int) bool { first := i/4*4 - 1; return first <= 5 && 5 < first+6 }

// TestWinogradPays: large convolutions of many channels are taken, others are not.
func TestWinogradPays(t *testing.T) {
	for name, c := range map[string]struct {
		x, w  tensor.Shape
		more  graph.Attrs
		dtype tensor.DType
		want  bool
	}{
		"many channels":          {tensor.Shape{1, 256, 128, 128}, tensor.Shape{256, 256, 3, 3}, nil, tensor.Float32, true},
		"many pictures":          {tensor.Shape{16, 256, 32, 32}, tensor.Shape{256, 256, 3, 3}, nil, tensor.Float32, true},
		"few tiles":              {tensor.Shape{1, 512, 16, 16}, tensor.Shape{512, 512, 3, 3}, nil, tensor.Float32, false},
		"few channels":           {tensor.Shape{16, 64, 128, 128}, tensor.Shape{64, 64, 3, 3}, nil, tensor.Float32, false},
		"too many channels":      {tensor.Shape{16, 1024, 64, 64}, tensor.Shape{1024, 1024, 3, 3}, nil, tensor.Float32, false},
		"other windows":          {tensor.Shape{1, 256, 128, 128}, tensor.Shape{256, 256, 3, 5}, nil, tensor.Float32, false},
		"steps":                  {tensor.Shape{1, 256, 128, 128}, tensor.Shape{256, 256, 3, 3}, graph.Attrs{"stride": []int{1, 2}}, tensor.Float32, false},
		"holes":                  {tensor.Shape{1, 256, 128, 128}, tensor.Shape{256, 256, 3, 3}, graph.Attrs{"dilation": []int{2, 2}}, tensor.Float32, false},
		"groups":                 {tensor.Shape{1, 512, 128, 128}, tensor.Shape{512, 256, 3, 3}, graph.Attrs{"groups": 2}, tensor.Float32, false},
		"another precision":      {tensor.Shape{1, 256, 128, 128}, tensor.Shape{256, 256, 3, 3}, graph.Attrs{"precision": "tf32"}, tensor.Float32, false},
		"halves":                 {tensor.Shape{1, 256, 128, 128}, tensor.Shape{256, 256, 3, 3}, nil, tensor.Float16, false},
		"transposed":             {tensor.Shape{1, 256, 128, 128}, tensor.Shape{256, 256, 3, 3}, graph.Attrs{"transposed": true, "output_padding": []int{0, 0}}, tensor.Float32, false},
		"three dimensions":       {tensor.Shape{1, 256, 8, 64, 64}, tensor.Shape{256, 256, 1, 3, 3}, graph.Attrs{"stride": []int{1, 1, 1}, "padding": []int{0, 1, 1}, "dilation": []int{1, 1, 1}}, tensor.Float32, false},
		"none, of no pictures":   {tensor.Shape{0, 256, 128, 128}, tensor.Shape{256, 256, 3, 3}, nil, tensor.Float32, false},
		"many channels, unequal": {tensor.Shape{8, 192, 64, 64}, tensor.Shape{512, 192, 3, 3}, nil, tensor.Float32, true},
	} {
		t.Run(name, func(t *testing.T) {
			a := convOf3x3()
			delete(a, "winograd")
			for k, v := range c.more {
				a[k] = v
			}
			g := &graph.Graph{}
			in := []graph.Operand{g.Whole(g.AddInput("x", c.dtype, c.x)), g.Whole(g.AddInput("w", c.dtype, c.w)), graph.Absent}
			if _, err := g.Emit(graph.Standard(), graph.Op{Kind: "conv", Attrs: a, In: in}); err != nil {
				t.Fatal(err)
			}
			chosen := cuda.Winograd(g)
			if got := chosen.Ops[0].Attrs.Bool("winograd"); got != c.want {
				t.Errorf("by Winograd's algorithm: %v", got)
			}
			if g.Ops[0].Attrs.Bool("winograd") {
				t.Error("the graph changed")
			}
			l, err := cuda.Lower(chosen)
			if err != nil {
				t.Fatal(err)
			}
			if most := int64(160 << 20); l.Steps[0].WorkBytes > most {
				t.Errorf("%d bytes of scratch memory", l.Steps[0].WorkBytes)
			}
			if c.want && l.Steps[0].Kernel != "conv_winograd" {
				t.Errorf("the plan says %s", l.Steps[0].Kernel)
			}
		})
	}
}
