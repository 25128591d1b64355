package cpu

import (
	"bytes"
	"fmt"
	"math"
	"testing"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu/ops"
	"github.com/optimem/optimem/tensor"
)

// TestRotary: the bits are those of the products and sums that it is made of, whether lines lie in order or not.
func TestRotary(t *testing.T) {
	for _, set := range []bool{true, false} {
		p := ops.NewPool(2)
		defer p.Close()
		if !set {
			p.Set = nil
		}
		for _, c := range []struct{ half, step int }{{4, 1}, {3, 1}, {64, 1}, {1100, 1}, {5, 2}, {1, 1}, {0, 1}} {
			t.Run(fmt.Sprint(set, c), func(t *testing.T) {
				line := 2 * c.half * c.step
				x := make([]float32, 2*3*line)
				angles := make([]float32, 2*3*line)
				for i := range x {
					x[i] = float32(i*7919%997)/50 - 9
					angles[i] = float32(math.Cos(float64(i)))
				}
				if c.half > 3 {
					x[3], x[5] = float32(math.Inf(1)), float32(math.Copysign(0, -1))
				}
				view := func(list []float32, lines int) *tensor.Tensor {
					v := tensor.Of(list, len(list))
					v.Layout = tensor.Layout{Shape: tensor.Shape{2, 3, 2 * c.half}, Strides: []int{3 * lines, lines, c.step}}
					return v
				}
				in := []*tensor.Tensor{view(x, line), view(angles, 0), view(angles[:line], 0)}
				got, err := Compute(t.Context(), p, graph.Standard(), "rotary", nil, in...)
				if err != nil {
					t.Fatal(err)
				}
				want := make([]float32, 0, len(x))
				for row := range 6 {
					at := func(k int) float32 { return x[row*line+k*c.step] }
					for k := range 2 * c.half {
						turned := -at((k + c.half) % (2 * c.half))
						if k >= c.half {
							turned = -turned
						}
						want = append(want, float32(at(k)*angles[k*c.step])+float32(turned*angles[k*c.step]))
					}
				}
				if data := tensor.Of(want, 2, 3, 2*c.half).Data; !bytes.Equal(got[0].Data, data) {
					t.Errorf("%v, want %v", got[0].Data[:min(40, len(data))], data[:min(40, len(data))])
				}
			})
		}
	}
}

// TestRotaryOfHalves: the bits are those of the ops that it is made of, each of which rounds.
func TestRotaryOfHalves(t *testing.T) {
	p := ops.NewPool(2)
	defer p.Close()
	for _, d := range []tensor.DType{tensor.Float16, tensor.BFloat16} {
		for _, c := range []struct{ half, step int }{{4, 1}, {3, 1}, {300, 1}, {5, 2}, {0, 1}} {
			t.Run(fmt.Sprint(d, c), func(t *testing.T) {
				line := 2 * c.half * c.step
				data := make([]byte, 2*2*3*line)
				for i := range len(data) / 2 {
					x := float32(i*7919%997)/50 - 9
					bits := tensor.Float16FromFloat32(x)
					if d == tensor.BFloat16 {
						bits = tensor.BFloat16FromFloat32(x)
					}
					data[2*i], data[2*i+1] = byte(bits), byte(bits>>8)
				}
				view := func(first, n, lines int) *tensor.Tensor {
					v := tensor.Layout{Shape: tensor.Shape{2, 3, n}, Strides: []int{3 * lines, lines, c.step}, Offset: first * c.step}
					return &tensor.Tensor{DType: d, Data: data, Layout: v}
				}
				do := func(kind graph.Kind, a graph.Attrs, in ...*tensor.Tensor) *tensor.Tensor {
					t.Helper()
					out, err := Compute(t.Context(), p, graph.Standard(), kind, a, in...)
					if err != nil {
						t.Fatal(err)
					}
					return out[0]
				}
				x, cos, sin := view(0, 2*c.half, line), view(0, 2*c.half, 0), view(c.half%2, 2*c.half, 0)
				turned := do("cat", graph.Attrs{"dim": 2}, do("neg", nil, view(c.half, c.half, line)), view(0, c.half, line))
				want := do("add", nil, do("mul", nil, x, cos), do("mul", nil, turned, sin))
				if got := do("rotary", nil, x, cos, sin); got.DType != d || !bytes.Equal(got.Data, want.Data) {
					t.Error("other bits")
				}
			})
		}
	}
}
