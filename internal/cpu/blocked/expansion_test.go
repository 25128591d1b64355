package blocked

import (
	"context"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/optimem/optimem/internal/cpu/kernel"
	"github.com/optimem/optimem/tensor"
)

// An expansion has the bits of its convolutions one after the other, however it is cut.
func TestExpansion(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string, low, high int) int { return rapid.IntRange(low, high).Draw(t, name) }
		second := Geometry{
			Batch: draw("batch", 1, 2), KernelH: draw("kernelH", 1, 5), KernelW: draw("kernelW", 1, 5),
			StrideH: draw("strideH", 1, 3), StrideW: draw("strideW", 1, 3), PadTop: draw("padTop", 0, 3),
			PadLeft: draw("padLeft", 0, 3), DilationH: draw("dilationH", 1, 2), DilationW: draw("dilationW", 1, 2),
			In: draw("channels", 2, 70), OutHeight: draw("outHeight", 1, 20), OutWidth: draw("outWidth", 1, 40),
		}
		second.Out, second.Groups = second.In, second.In
		size := func(name string, out, kernel, stride, pad, dilation int) int {
			return max(1, (out-1)*stride+(kernel-1)*dilation+1-pad+stride-1-draw(name, 0, stride+2))
		}
		second.Height = size("height", second.OutHeight, second.KernelH, second.StrideH, second.PadTop, second.DilationH)
		second.Width = size("width", second.OutWidth, second.KernelW, second.StrideW, second.PadLeft, second.DilationW)
		first := Geometry{
			Batch: second.Batch, In: draw("in", 1, 40), Out: second.In, Groups: 1, Height: second.Height, Width: second.Width,
			OutHeight: second.Height, OutWidth: second.Width, KernelH: 1, KernelW: 1, StrideH: 1, StrideW: 1, DilationH: 1,
			DilationW: 1,
		}
		if draw("many", 0, 5) == 0 { // sums of several parts
			first.In = draw("inputs", 257, 600)
		}
		if !CanExpand(first, second) {
			t.Fatalf("no expansion of %+v and %+v", first, second)
		}
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		x := random(rng, Elements(first.Batch, first.In, first.Height, first.Width))
		clearPadding(threadCount(1), first.In, first.Height*first.Width, x)
		w := [2][]float32{random(rng, first.Out*first.In), random(rng, second.Out*second.KernelH*second.KernelW)}
		weights := [2]Weight{
			{Data: bytesOf(w[0]), DType: tensor.Float32, Layout: tensor.Contiguous(first.Out, first.In, 1, 1)},
			{Data: bytesOf(w[1]), DType: tensor.Float32, Layout: tensor.Contiguous(second.Out, 1, second.KernelH, second.KernelW)},
		}
		var ends [2]Epilogue
		for i := range ends {
			ends[i].Act = Act(draw("act", 0, int(numActs)-1))
			ends[i].A, ends[i].B = 0.125, 0.75
			ends[i].Scale, ends[i].Shift = random(rng, first.Out), random(rng, first.Out)
		}
		results := Elements(second.Batch, second.Out, second.OutHeight, second.OutWidth)
		if rapid.Bool().Draw(t, "residual") {
			ends[1].Residual = random(rng, results)
			clearPadding(threadCount(1), second.Out, second.OutHeight*second.OutWidth, ends[1].Residual)
		}
		for _, set := range kernel.ConvSets() {
			between := dirty(Elements(first.Batch, first.Out, first.OutHeight, first.OutWidth))
			want := dirty(results)
			for i, c := range []*Conv{newConv(first, Pointwise, set), newConv(second, Depthwise, set)} {
				a := Args{Weight: weights[i], Epilogue: ends[i], Work: dirty(int(c.WorkBytes(1, false) / 4))}
				if a.X, a.Y = x, between; i == 1 {
					a.X, a.Y = between, want
				}
				if err := c.Run(context.Background(), threadCount(1), a); err != nil {
					t.Fatal(err)
				}
			}
			for _, cacheBytes := range []int{1 << 14, 1 << 20} {
				for threads := 1; threads <= 3; threads++ {
					e := newExpansion(cacheBytes, first, second, set)
					packed := threads == 2
					if e.first.rawBytes = rawBytes; threads == 3 {
						e.first.rawBytes = 1 // a piece at a time
					}
					args := [2]Args{{X: x, Weight: weights[0], Epilogue: ends[0]}, {Y: dirty(results), Weight: weights[1], Epilogue: ends[1]}}
					args[0].Work = dirty(int(e.WorkBytes(threads, packed) / 4))
					if packed {
						for i, c := range e.Convs() {
							args[i].Packed = dirty(int(c.PackedBytes() / 4))
							c.Pack(threadCount(1), weights[i], args[i].Packed)
						}
					}
					if err := e.Run(context.Background(), threadCount(threads), args[0], args[1]); err != nil {
						t.Fatal(err)
					}
					sameBits(t, set.Name, args[1].Y, want)
				}
			}
		}
	})
}
