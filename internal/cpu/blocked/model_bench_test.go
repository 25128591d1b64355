package blocked

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/optimem/optimem/internal/cpu/kernel"
	"github.com/optimem/optimem/tensor"
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
	c := &chainBuilder{batch: batch, at: 1}
	x, size := c.stem(size)
	in := 64
	eachBlock(blocks, func(out, stride int, first bool) {
		shortcut := x
		if first {
			shortcut = c.conv(square(in, 4*out, size, 1, stride), x, -1, None)
		}
		y := c.conv(square(in, out, size, 1, 1), x, -1, ReLU)
		y = c.conv(square(out, out, size, 3, stride), y, -1, ReLU)
		size /= stride
		x = c.conv(square(out, 4*out, size, 1, 1), y, shortcut, ReLU)
		in = 4 * out
	})
	return c.chain
}

// basic returns the chain of a ResNet without bottlenecks.
func basic(size, batch int, blocks [4]int) []stage {
	c := &chainBuilder{batch: batch, at: 1}
	x, size := c.stem(size)
	in := 64
	eachBlock(blocks, func(out, stride int, _ bool) {
		shortcut := x
		if in != out {
			shortcut = c.conv(square(in, out, size, 1, stride), x, -1, None)
		}
		y := c.conv(square(in, out, size, 3, stride), x, -1, ReLU)
		size /= stride
		x = c.conv(square(out, out, size, 3, 1), y, shortcut, ReLU)
		in = out
	})
	return c.chain
}

// eachBlock calls block for the blocks of a ResNet: with its channels, its stride, and whether it is the first of its layer.
func eachBlock(blocks [4]int, block func(out, stride int, first bool)) {
	for i, n := range blocks {
		for b := range n {
			stride := 1
			if b == 0 && i > 0 {
				stride = 2
			}
			block(64<<i, stride, b == 0)
		}
	}
}

// A chainBuilder appends stages, each with a buffer of its own for a while.
type chainBuilder struct {
	chain []stage
	batch int
	at    int
}

func (c *chainBuilder) conv(g Geometry, in, residual int, act Act) int {
	g.Batch = c.batch
	return c.add(stage{Geometry: g, in: in, residual: residual, act: act})
}

func (c *chainBuilder) add(s stage) int {
	s.out = c.at
	c.chain = append(c.chain, s)
	c.at = c.at%5 + 1
	return s.out
}

// pool appends a max pool that halves rows and columns.
func (c *chainBuilder) pool(channels, size, kernel, pad, in int) int {
	return c.add(stage{in: in, residual: -1, window: &Window{
		Batch: c.batch, Channels: channels, Height: size, Width: size, OutHeight: size / 2, OutWidth: size / 2,
		KernelH: kernel, KernelW: kernel, StrideH: 2, StrideW: 2, PadTop: pad, PadLeft: pad, DilationH: 1, DilationW: 1,
	}})
}

// stem appends the beginning of a ResNet.
func (c *chainBuilder) stem(size int) (x, left int) {
	x = c.conv(planar(square(3, 64, size, 7, 2)), 0, -1, ReLU)
	return c.pool(64, size/2, 3, 1, x), size / 4
}

// vgg returns the chain of a VGG's convolutions.
func vgg(size, batch int, blocks []int) []stage {
	c := &chainBuilder{batch: batch, at: 1}
	x, in := 0, 3
	for i, n := range blocks {
		out := min(64<<i, 512)
		for range n {
			g := square(in, out, size, 3, 1)
			if in == 3 {
				g = planar(g)
			}
			x, in = c.conv(g, x, -1, ReLU), out
		}
		x = c.pool(out, size, 2, 0, x)
		size /= 2
	}
	return c.chain
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

// A chainRun is a chain with its memory: the arguments of its convolutions, whose weights are packed, raw or both.
type chainRun struct {
	chain       []stage
	convs       []*Conv
	buffers     [6][]float32
	packed, raw []Args
}

// newChain makes a chain ready on a number of threads. raw says that there are raw weights, too.
func newChain(chain []stage, exact bool, threads int, set *kernel.ConvSet, raw bool) *chainRun {
	rng := rand.New(rand.NewPCG(1, 2))
	c := &chainRun{chain: chain, convs: make([]*Conv, len(chain)), packed: make([]Args, len(chain)), raw: make([]Args, len(chain))}
	var sizes [6]int
	var work int64
	for i, s := range chain {
		if s.window != nil {
			continue
		}
		g := s.Geometry
		g.Exact = exact
		c.convs[i] = newConv(g, choose(g), set)
		work = max(work, c.convs[i].WorkBytes(threads, !raw))
		sizes[s.in] = max(sizes[s.in], Elements(g.Batch, g.In, g.Height, g.Width))
		sizes[s.out] = max(sizes[s.out], Elements(g.Batch, g.Out, g.OutHeight, g.OutWidth))
	}
	for i := range c.buffers {
		c.buffers[i] = random(rng, sizes[i])
	}
	scratch := make([]float32, work/4)
	for i, s := range chain {
		if s.window != nil {
			continue
		}
		a := Args{X: c.buffers[s.in], Y: c.buffers[s.out], Work: scratch}
		a.Act, a.Shift = s.act, random(rng, s.Out)
		if s.residual >= 0 {
			a.Residual = c.buffers[s.residual]
		}
		c.packed[i], c.raw[i] = a, a
		c.packed[i].Packed = make([]float32, c.convs[i].PackedBytes()/4)
		for k := range c.packed[i].Packed {
			c.packed[i].Packed[k] = (rng.Float32() - 0.5) / 64
		}
		if raw {
			values := random(rng, s.Out*s.In*s.KernelH*s.KernelW)
			for k := range values {
				values[k] /= 64
			}
			c.raw[i].Weight = Weight{
				Data: bytesOf(values), DType: tensor.Float32, Layout: tensor.Contiguous(s.Out, s.In, s.KernelH, s.KernelW),
			}
		}
	}
	return c
}

// pass computes the chain once, with packed weights or with raw ones, and tells what each stage took.
func (c *chainRun) pass(b *testing.B, pool Pool, args []Args, took func(i int, d time.Duration)) {
	for i, s := range c.chain {
		at := time.Now()
		if s.window != nil {
			MaxPool(pool, *s.window, c.buffers[s.in], c.buffers[s.out])
		} else if err := c.convs[i].Run(context.Background(), pool, args[i]); err != nil {
			b.Fatal(err)
		}
		took(i, time.Since(at))
	}
}

// kind names what is alike in a chain.
func (c *chainRun) kind(i int) string {
	s := c.chain[i]
	if c.convs[i] == nil {
		return "pool"
	}
	return fmt.Sprintf("%v%dx%d/%d %d-%d", c.convs[i].Algorithm(), s.KernelH, s.Height, s.StrideH, s.In, s.Out)
}

func benchmarkChain(b *testing.B, chain []stage, exact bool, threads int, set *kernel.ConvSet) {
	pool := newSpinning(threads)
	defer pool.close()
	c := newChain(chain, exact, threads, set, false)
	times := make([]time.Duration, len(chain))
	start := processorTime()
	for b.Loop() {
		c.pass(b, pool, c.packed, func(i int, d time.Duration) {
			if d < times[i] || times[i] == 0 {
				times[i] = d
			}
		})
	}
	b.ReportMetric((processorTime()-start).Seconds()*1e3/float64(b.N), "cpu-ms/op")
	var least time.Duration
	kinds := map[string]time.Duration{}
	for i, d := range times {
		least += d
		kinds[c.kind(i)] += d
	}
	b.ReportMetric(least.Seconds()*1e3, "least-ms/op")
	if testing.Verbose() {
		for kind, d := range kinds {
			b.Logf("%s: %v", kind, d)
		}
	}
}

// BenchmarkRaw runs the convolutions of whole models at batch 8 with raw weights and with packed ones, in turns: what page mode
// takes longer than resident weights if bringing these cost nothing.
func BenchmarkRaw(b *testing.B) {
	models := []struct {
		name  string
		chain []stage
	}{
		{"resnet18", basic(224, 8, [4]int{2, 2, 2, 2})},
		{"resnet50", resnet(224, 8, [4]int{3, 4, 6, 3})},
		{"vgg16", vgg(224, 8, []int{2, 2, 3, 3, 3})},
	}
	for _, model := range models {
		for _, threads := range []int{1, 2} {
			b.Run(fmt.Sprintf("%s/%d", model.name, threads), func(b *testing.B) {
				pool := newSpinning(threads)
				defer pool.close()
				c := newChain(model.chain, false, threads, kernel.ConvSets()[0], true)
				var times [2][][]time.Duration
				for k := range times {
					times[k] = make([][]time.Duration, len(c.chain)+1) // the last is all of it
				}
				for b.Loop() {
					for k, args := range [][]Args{c.packed, c.raw} {
						at := time.Now()
						c.pass(b, pool, args, func(i int, d time.Duration) { times[k][i] = append(times[k][i], d) })
						times[k][len(c.chain)] = append(times[k][len(c.chain)], time.Since(at))
					}
				}
				median := func(k, i int) float64 {
					slices.Sort(times[k][i])
					return times[k][i][len(times[k][i])/2].Seconds() * 1e3
				}
				packed, raw := median(0, len(c.chain)), median(1, len(c.chain))
				b.ReportMetric(packed, "packed-ms")
				b.ReportMetric(raw/packed, "raw/packed")
				if testing.Verbose() {
					kinds, longer := []string{}, map[string]float64{}
					for i := range c.chain {
						kinds = append(kinds, c.kind(i))
						longer[c.kind(i)] += median(1, i) - median(0, i)
					}
					slices.Sort(kinds)
					for _, kind := range slices.Compact(kinds) {
						b.Logf("%s: %+.3f ms", kind, longer[kind])
					}
				}
			})
		}
	}
}
