package blocked

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/optimem/optimem/internal/cpu/kernel"
	"github.com/optimem/optimem/internal/cpu/tasks"
	"github.com/optimem/optimem/tensor"
)

// A spinning pool has goroutines that wait for work, as the CPU device's does.
type spinning struct {
	n     int
	tasks []chan func()
}

func newSpinning(n int) *spinning {
	p := &spinning{n: n}
	for range n - 1 {
		c := make(chan func())
		p.tasks = append(p.tasks, c)
		go func() {
			for f := range c {
				f()
			}
		}()
	}
	return p
}

func (p *spinning) Threads() int { return p.n }

func (p *spinning) Do(n, grain int, task tasks.Task) {
	var mu sync.Mutex
	next := 0
	work := func() {
		for {
			mu.Lock()
			i := next
			next += grain
			mu.Unlock()
			if i >= n {
				return
			}
			task.Run(i, min(i+grain, n))
		}
	}
	var wait sync.WaitGroup
	for _, c := range p.tasks {
		wait.Add(1)
		c <- func() { work(); wait.Done() }
	}
	work()
	wait.Wait()
}

func (p *spinning) close() {
	for _, c := range p.tasks {
		close(c)
	}
}

// square returns a convolution over square images with a square kernel and the usual padding.
func square(in, out, size, kernel, stride int) Geometry {
	pad := kernel / 2
	o := (size+2*pad-kernel)/stride + 1
	return Geometry{
		Batch: 1, In: in, Out: out, Groups: 1, Height: size, Width: size, OutHeight: o, OutWidth: o,
		KernelH: kernel, KernelW: kernel, StrideH: stride, StrideW: stride, PadTop: pad, PadLeft: pad,
		DilationH: 1, DilationW: 1,
	}
}

func planar(g Geometry) Geometry         { g.Planar = true; return g }
func grouped(g Geometry, n int) Geometry { g.Groups = n; return g }
func batch(g Geometry, n int) Geometry   { g.Batch = n; return g }

// layers are convolutions of well-known models.
var layers = []struct {
	name string
	Geometry
}{
	{"resnet101@512/stem", planar(square(3, 64, 512, 7, 2))},
	{"resnet101@512/1.reduce", square(256, 64, 128, 1, 1)},
	{"resnet101@512/1.3x3", square(64, 64, 128, 3, 1)},
	{"resnet101@512/1.expand", square(64, 256, 128, 1, 1)},
	{"resnet101@512/2.stride", square(128, 128, 128, 3, 2)},
	{"resnet101@512/2.down", square(256, 512, 128, 1, 2)},
	{"resnet101@512/2.reduce", square(512, 128, 64, 1, 1)},
	{"resnet101@512/2.3x3", square(128, 128, 64, 3, 1)},
	{"resnet101@512/2.expand", square(128, 512, 64, 1, 1)},
	{"resnet101@512/3.reduce", square(1024, 256, 32, 1, 1)},
	{"resnet101@512/3.3x3", square(256, 256, 32, 3, 1)},
	{"resnet101@512/3.expand", square(256, 1024, 32, 1, 1)},
	{"resnet101@512/4.reduce", square(2048, 512, 16, 1, 1)},
	{"resnet101@512/4.3x3", square(512, 512, 16, 3, 1)},
	{"resnet101@512/4.expand", square(512, 2048, 16, 1, 1)},
	{"resnet50@224/3.3x3", square(256, 256, 14, 3, 1)},
	{"resnet50@224/3.expand", square(256, 1024, 14, 1, 1)},
	{"resnet50@224/4.3x3", square(512, 512, 7, 3, 1)},
	{"resnet50@224/4.reduce", square(2048, 512, 7, 1, 1)},
	{"vgg16/1.1", planar(square(3, 64, 224, 3, 1))},
	{"vgg16/1.2", square(64, 64, 224, 3, 1)},
	{"vgg16/3.2", square(256, 256, 56, 3, 1)},
	{"vgg16/5.2", square(512, 512, 14, 3, 1)},
	{"mobilenetv3/stem", planar(square(3, 16, 224, 3, 2))},
	{"mobilenetv3/expand", square(24, 72, 56, 1, 1)},
	{"mobilenetv3/depthwise", grouped(square(72, 72, 56, 3, 1), 72)},
	{"mobilenetv3/depthwise5", grouped(square(120, 120, 28, 5, 1), 120)},
	{"mobilenetv3/project", square(480, 112, 14, 1, 1)},
	{"mobilenetv3/last", square(160, 960, 7, 1, 1)},
	{"efficientnet/depthwise", grouped(square(96, 96, 112, 3, 2), 96)},
	{"efficientnet/depthwise5", grouped(square(1152, 1152, 7, 5, 1), 1152)},
	{"efficientnet/expand", square(16, 96, 112, 1, 1)},
	{"convnext/depthwise7", grouped(square(96, 96, 56, 7, 1), 96)},
	{"regnet/grouped", grouped(square(208, 208, 14, 3, 1), 208/16)},
	{"regnet/grouped24", grouped(square(152, 152, 28, 3, 1), 152/8)},
	{"resnext/grouped4", grouped(square(128, 128, 56, 3, 1), 32)},
}

// A laid is a convolution and its operands in memory.
type laid struct {
	*Conv
	Args
}

func lay(rng *rand.Rand, c *Conv, threads int) laid {
	g := c.Geometry
	w := random(rng, g.Out*g.In/g.Groups*g.KernelH*g.KernelW)
	x := Elements(g.Batch, g.In, g.Height, g.Width)
	if g.Planar {
		x = g.Batch * g.In * g.Height * g.Width
	}
	l := laid{Conv: c, Args: Args{
		X: random(rng, x), Y: make([]float32, Elements(g.Batch, g.Out, g.OutHeight, g.OutWidth)),
		Packed: make([]float32, c.PackedBytes()/4), Work: make([]float32, c.WorkBytes(threads, true)/4),
		Weight: Weight{
			Data: bytesOf(w), DType: tensor.Float32, Layout: tensor.Contiguous(g.Out, g.In/g.Groups, g.KernelH, g.KernelW),
		},
	}}
	l.Shift, l.Act = random(rng, g.Out), ReLU
	c.Pack(threadCount(1), l.Weight, l.Packed)
	return l
}

func BenchmarkConv(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, layer := range layers {
		for _, threads := range []int{1, 2} {
			for _, set := range kernel.ConvSets() {
				if set.Name == "go" {
					continue
				}
				for _, algorithm := range algorithmsFor(layer.Geometry) {
					b.Run(fmt.Sprintf("%s/%d/%s/%v", layer.name, threads, set.Name, algorithm), func(b *testing.B) {
						pool := newSpinning(threads)
						defer pool.close()
						l := lay(rng, newConv(layer.Geometry, algorithm, set), threads)
						start := processorTime()
						for b.Loop() {
							if err := l.Run(context.Background(), pool, l.Args); err != nil {
								b.Fatal(err)
							}
						}
						g := layer.Geometry
						flops := 2 * float64(g.Batch*g.Out*g.OutHeight*g.OutWidth) * float64(g.In/g.Groups*g.KernelH*g.KernelW)
						b.ReportMetric(flops*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
						b.ReportMetric(flops*float64(b.N)/(processorTime()-start).Seconds()/1e9, "GFLOP/s-cpu")
					})
				}
			}
		}
	}
}
