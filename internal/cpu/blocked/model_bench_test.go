package blocked

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/optimem/optimem/internal/cpu/kernel"
)

// A stage is a step of a model that is run as a chain: a convolution, or a pool where window is set. Values are
// numbered buffers.
type stage struct {
	Geometry
	window            *Window
	in, out, residual int // buffers; residual −1 for none
	act               Act
}

// resnet returns the chain of a ResNet with bottlenecks; buffer 0 is the input.
func resnet(size, batch int, blocks [4]int) []stage {
	var chain []stage
	at := 1
	add := func(g Geometry, in, residual int, act Act) int {
		g.Batch = batch
		chain = append(chain, stage{Geometry: g, in: in, out: at, residual: residual, act: act})
		at = at%5 + 1
		return chain[len(chain)-1].out
	}
	x := add(planar(square(3, 64, size, 7, 2)), 0, -1, ReLU)
	size /= 2
	w := Window{
		Batch: batch, Channels: 64, Height: size, Width: size, OutHeight: size / 2, OutWidth: size / 2, KernelH: 3, KernelW: 3,
		StrideH: 2, StrideW: 2, PadTop: 1, PadLeft: 1, DilationH: 1, DilationW: 1,
	}
	chain = append(chain, stage{window: &w, in: x, out: at, residual: -1})
	x, at = at, at%5+1
	size /= 2
	in := 64
	for i, n := range blocks {
		c := 64 << i
		for b := range n {
			stride := 1
			if b == 0 && i > 0 {
				stride = 2
			}
			shortcut := x
			if b == 0 {
				shortcut = add(square(in, 4*c, size, 1, stride), x, -1, None)
			}
			y := add(square(in, c, size, 1, 1), x, -1, ReLU)
			y = add(square(c, c, size, 3, stride), y, -1, ReLU)
			size /= stride
			x = add(square(c, 4*c, size, 1, 1), y, shortcut, ReLU)
			in = 4 * c
		}
	}
	return chain
}

// BenchmarkModel runs the convolutions of whole models as chains, with weights of their own each.
func BenchmarkModel(b *testing.B) {
	models := []struct {
		name  string
		chain func() []stage
	}{
		{"resnet101@512", func() []stage { return resnet(512, 1, [4]int{3, 4, 23, 3}) }},
		{"resnet50@224", func() []stage { return resnet(224, 1, [4]int{3, 4, 6, 3}) }},
		{"resnet50@224x8", func() []stage { return resnet(224, 8, [4]int{3, 4, 6, 3}) }},
	}
	for _, model := range models {
		for _, exact := range []bool{false, true} {
			for _, threads := range []int{1, 2} {
				for _, set := range kernel.ConvSets()[:len(kernel.ConvSets())-1] {
					b.Run(fmt.Sprintf("%s/exact=%v/%d/%s", model.name, exact, threads, set.Name), func(b *testing.B) {
						benchmarkChain(b, model.chain(), exact, threads, set)
					})
				}
			}
		}
	}
}

func benchmarkChain(b *testing.B, chain []stage, exact bool, threads int, set *kernel.ConvSet) {
	rng := rand.New(rand.NewPCG(1, 2))
	pool := newSpinning(threads)
	defer pool.close()
	var sizes [6]int
	var work int64
	convs := make([]*Conv, len(chain))
	args := make([]Args, len(chain))
	for i, s := range chain {
		if s.window != nil {
			continue
		}
		g := s.Geometry
		g.Exact = exact
		convs[i] = newConv(g, choose(g), set)
		work = max(work, convs[i].WorkBytes(threads, true))
		sizes[s.in] = max(sizes[s.in], Elements(g.Batch, g.In, g.Height, g.Width))
		sizes[s.out] = max(sizes[s.out], Elements(g.Batch, g.Out, g.OutHeight, g.OutWidth))
	}
	var buffers [6][]float32
	for i := range buffers {
		buffers[i] = random(rng, sizes[i])
	}
	scratch := make([]float32, work/4)
	for i, s := range chain {
		if s.window != nil {
			continue
		}
		packed := make([]float32, convs[i].PackedBytes()/4)
		for k := range packed {
			packed[k] = (rng.Float32() - 0.5) / 64
		}
		args[i] = Args{X: buffers[s.in], Y: buffers[s.out], Packed: packed, Work: scratch}
		args[i].Act, args[i].Shift = s.act, random(rng, s.Out)
		if s.residual >= 0 {
			args[i].Residual = buffers[s.residual]
		}
	}
	times := make([]time.Duration, len(chain))
	start := processorTime()
	for b.Loop() {
		for i, s := range chain {
			at := time.Now()
			if s.window != nil {
				MaxPool(pool, *s.window, buffers[s.in], buffers[s.out])
			} else if err := convs[i].Run(context.Background(), pool, args[i]); err != nil {
				b.Fatal(err)
			}
			if d := time.Since(at); times[i] == 0 || d < times[i] {
				times[i] = d
			}
		}
	}
	b.ReportMetric((processorTime()-start).Seconds()*1e3/float64(b.N), "cpu-ms/op")
	var least time.Duration
	kinds := map[string]time.Duration{}
	for i, d := range times {
		least += d
		kind := "pool"
		if convs[i] != nil {
			kind = fmt.Sprintf("%v%dx%d/%d", convs[i].Algorithm(), chain[i].KernelH, chain[i].Height, chain[i].StrideH)
		}
		kinds[kind] += d
	}
	b.ReportMetric(least.Seconds()*1e3, "least-ms/op")
	if testing.Verbose() {
		for kind, d := range kinds {
			b.Logf("%s: %v", kind, d)
		}
	}
}
