package blocked

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"unsafe"

	"pgregory.net/rapid"

	"github.com/optimem/optimem/internal/cpu/kernel"
	"github.com/optimem/optimem/internal/cpu/tasks"
	"github.com/optimem/optimem/tensor"
)

// threadCount is a pool that starts its goroutines anew for every call.
type threadCount int

func (p threadCount) Threads() int { return int(p) }

func (p threadCount) Do(n, grain int, task tasks.Task) {
	grain = max(1, grain)
	parts := make(chan int, (n+grain-1)/grain)
	for i := 0; i < n; i += grain {
		parts <- i
	}
	close(parts)
	var wait sync.WaitGroup
	for range p {
		wait.Go(func() {
			for i := range parts {
				task.Run(i, min(i+grain, n))
			}
		})
	}
	wait.Wait()
}

func random(rng *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = rng.Float32()*2 - 1
	}
	return x
}

// bytesOf returns the memory of floats.
func bytesOf(x []float32) []byte {
	if len(x) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&x[0])), 4*len(x))
}

// dirty returns floats that hold what no result has.
func dirty(n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(math.NaN())
	}
	return x
}

// A problem is the operands of a convolution in plain layouts.
type problem struct {
	Geometry
	x, w, scale, shift, residual []float32
	act                          Act
	a, b                         float32
}

func newProblem(rng *rand.Rand, g Geometry) *problem {
	p := &problem{Geometry: g}
	p.x = random(rng, g.Batch*g.In*g.Height*g.Width)
	p.w = random(rng, g.Out*g.In/g.Groups*g.KernelH*g.KernelW)
	return p
}

// want computes the convolution in float64; bound is the sum of what was added up, without signs.
func (p *problem) want() (out, bound []float64) {
	groupIn, groupOut := p.In/p.Groups, p.Out/p.Groups
	for n := range p.Batch {
		for o := range p.Out {
			for oy := range p.OutHeight {
				for ox := range p.OutWidth {
					sum, size := 0.0, 0.0
					for i := range groupIn {
						for ky := range p.KernelH {
							for kx := range p.KernelW {
								y, x := oy*p.StrideH-p.PadTop+ky*p.DilationH, ox*p.StrideW-p.PadLeft+kx*p.DilationW
								if y < 0 || y >= p.Height || x < 0 || x >= p.Width {
									continue
								}
								c := o/groupOut*groupIn + i
								v := float64(p.x[((n*p.In+c)*p.Height+y)*p.Width+x]) *
									float64(p.w[((o*groupIn+i)*p.KernelH+ky)*p.KernelW+kx])
								sum, size = sum+v, size+math.Abs(v)
							}
						}
					}
					if p.scale != nil {
						sum, size = sum*float64(p.scale[o]), size*math.Abs(float64(p.scale[o]))
					}
					if p.shift != nil {
						sum, size = sum+float64(p.shift[o]), size+math.Abs(float64(p.shift[o]))
					}
					if p.residual != nil {
						sum += float64(p.residual[len(out)])
						size += math.Abs(float64(p.residual[len(out)]))
					}
					out = append(out, float64(p.act.of(float32(sum), p.a, p.b)))
					bound = append(bound, size)
				}
			}
		}
	}
	return out, bound
}

// run computes the problem by conv and returns the output in plain layout. Lanes beyond the channels must be zero.
func (p *problem) run(t failer, conv *Conv, pool Pool, packed bool) []float32 {
	g := p.Geometry
	weight := Weight{
		Data: bytesOf(p.w), DType: tensor.Float32, Layout: tensor.Contiguous(g.Out, g.In/g.Groups, g.KernelH, g.KernelW),
	}
	a := Args{X: p.x, Y: dirty(Elements(g.Batch, g.Out, g.OutHeight, g.OutWidth)), Weight: weight}
	a.Epilogue = Epilogue{Scale: p.scale, Shift: p.shift, Act: p.act, A: p.a, B: p.b}
	if !g.Planar {
		a.X = dirty(Elements(g.Batch, g.In, g.Height, g.Width))
		pixels := g.Height * g.Width
		To(pool, Size{g.Batch, g.In, g.Height, g.Width}, p.x, [4]int{g.In * pixels, pixels, g.Width, 1}, a.X)
	}
	if p.residual != nil {
		pixels := g.OutHeight * g.OutWidth
		a.Residual = make([]float32, len(a.Y))
		size := Size{g.Batch, g.Out, g.OutHeight, g.OutWidth}
		To(pool, size, p.residual, [4]int{g.Out * pixels, pixels, g.OutWidth, 1}, a.Residual)
	}
	a.Work = dirty(int(conv.WorkBytes(pool.Threads(), packed) / 4))
	if either := conv.WorkBytes(pool.Threads(), false) / 4; int(either) < len(a.Work) {
		t.Fatalf("packed weights need %d floats of scratch memory, more than either kind, %d", len(a.Work), either)
	}
	if packed {
		a.Packed = dirty(int(conv.PackedBytes() / 4))
		conv.Pack(pool, weight, a.Packed)
	}
	if err := conv.Run(context.Background(), pool, a); err != nil {
		t.Fatal(err)
	}
	checkPadding(t, g.Out, g.OutHeight*g.OutWidth, a.Y)
	out := make([]float32, g.Batch*g.Out*g.OutHeight*g.OutWidth)
	From(pool, Size{g.Batch, g.Out, g.OutHeight, g.OutWidth}, a.Y, out)
	return out
}

// checkPadding fails where a lane beyond the channels is not zero.
func checkPadding(t failer, channels, pixels int, y []float32) {
	t.Helper()
	if channels%Lanes == 0 {
		return
	}
	block := pixels * Lanes
	for i, v := range y {
		if i/block%Blocks(channels) == Blocks(channels)-1 && i%Lanes >= channels%Lanes && v != 0 {
			t.Fatalf("lane %d of the last block of %d channels is %v", i%Lanes, channels, v)
		}
	}
}

// within fails unless got is near want: within relative of the most that was added up anywhere, and of slack.
func within(t failer, what string, got []float32, want, bound []float64, slack, relative float64) {
	t.Helper()
	most := slices.Max(bound)
	for i := range got {
		if d := math.Abs(float64(got[i]) - want[i]); !(d <= relative*(most+slack)) {
			t.Fatalf("%v: element %d is %v, want %v: off by %.2g of %.3g", what, i, got[i], want[i], d/most, most)
		}
	}
}

// sameBits fails unless both hold the same bits.
func sameBits(t failer, what string, got, want []float32) {
	t.Helper()
	for i := range got {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			t.Fatalf("%s: element %d is %v, not %v", what, i, got[i], want[i])
		}
	}
}

// drawGeometry returns a convolution of at most a few million products.
func drawGeometry(t *rapid.T) Geometry {
	draw := func(name string, low, high int) int { return rapid.IntRange(low, high).Draw(t, name) }
	g := Geometry{
		Batch: draw("batch", 1, 3), Groups: 1,
		KernelH: draw("kernelH", 1, 4), KernelW: draw("kernelW", 1, 4),
		StrideH: draw("strideH", 1, 3), StrideW: draw("strideW", 1, 3),
		DilationH: draw("dilationH", 1, 2), DilationW: draw("dilationW", 1, 2),
		PadTop: draw("padTop", 0, 3), PadLeft: draw("padLeft", 0, 3),
		OutHeight: draw("outHeight", 1, 9), OutWidth: draw("outWidth", 1, 30),
	}
	switch draw("kind", 0, 5) {
	case 0:
		g.In, g.Out = draw("in", 1, 70), draw("out", 1, 70)
	case 1:
		g.In, g.Out, g.Planar = draw("in", 1, 5), draw("out", 1, 70), true
	case 2:
		g.In = draw("channels", 1, 70)
		g.Out, g.Groups = g.In, g.In
	case 3:
		g.Groups = draw("groups", 2, 5)
		g.In, g.Out = g.Groups*draw("groupIn", 1, 33), g.Groups*draw("groupOut", 1, 33)
	case 5: // halves of blocks; one group is a convolution of few channels
		g.Groups = draw("halves", 1, 11)
		g.In, g.Out = 8*g.Groups, 8*g.Groups
	case 4:
		g.In, g.Out = 16*draw("blocksIn", 1, 20), 16*draw("blocksOut", 1, 6)
		g.KernelH, g.KernelW, g.DilationH, g.DilationW = 3, 3, 1, 1
		if draw("strided", 0, 3) > 0 {
			g.StrideH, g.StrideW = 1, 1
		}
		if draw("pointwise", 0, 1) == 1 {
			g.KernelH, g.KernelW = 1, 1
		}
	}
	size := func(name string, out, kernel, stride, pad, dilation int) int {
		// The last window ends within the input or in the padding behind it.
		most := (out-1)*stride + (kernel-1)*dilation + 1 - pad + stride - 1
		return max(1, most-draw(name, 0, stride+1))
	}
	g.Height = size("height", g.OutHeight, g.KernelH, g.StrideH, g.PadTop, g.DilationH)
	g.Width = size("width", g.OutWidth, g.KernelW, g.StrideW, g.PadLeft, g.DilationW)
	return g
}

func drawProblem(t *rapid.T) *problem {
	g := drawGeometry(t)
	rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
	p := newProblem(rng, g)
	if rapid.Bool().Draw(t, "scale") {
		p.scale = random(rng, g.Out)
	}
	if rapid.Bool().Draw(t, "shift") {
		p.shift = random(rng, g.Out)
	}
	if rapid.Bool().Draw(t, "residual") {
		p.residual = random(rng, g.Batch*g.Out*g.OutHeight*g.OutWidth)
	}
	p.act = Act(rapid.IntRange(0, int(numActs)-1).Draw(t, "act"))
	p.a, p.b = 0.125, 0.75
	return p
}

// algorithmsFor returns the algorithms that can compute a geometry.
func algorithmsFor(g Geometry) []Algorithm {
	all := []Algorithm{Direct}
	if hasDepthwise(g) {
		all = append(all, Depthwise)
	}
	if hasWinograd(g) {
		all = append(all, Winograd2, Winograd4)
	}
	return all
}

// tolerance is the largest error of each algorithm, as a part of the sum of the sizes of what is added up.
var tolerance = [numAlgorithms]float64{1e-6, 1e-6, 1e-6, 1e-6, 2e-6, 5e-6}

func TestConv(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawProblem(t)
		want, bound := p.want()
		for _, set := range kernel.ConvSets() {
			for _, algorithm := range algorithmsFor(p.Geometry) {
				what := set.Name + " " + algorithm.String()
				conv := newConv(p.Geometry, algorithm, set)
				got := p.run(t, conv, threadCount(1), true)
				slack := 1.0
				if algorithm == Winograd2 || algorithm == Winograd4 { // errors are parts of what all of a tile reads
					slack = float64(9 * p.In)
				}
				within(t, what, got, want, bound, slack, tolerance[algorithm])
				conv.rawBytes = 1 // a piece at a time
				sameBits(t, what+": raw weights in pieces", p.run(t, conv, threadCount(2), false), got)
				small := newConvIn(1<<14, p.Geometry, algorithm, set)
				sameBits(t, what+": a small cache", p.run(t, small, threadCount(2), true), got)
				sameBits(t, what+": raw weights and a small cache", p.run(t, small, threadCount(2), false), got)
				if small.sharedBytes = 0; algorithm != Winograd2 && algorithm != Winograd4 {
					small.how = newDirect(small)
				}
				sameBits(t, what+": nothing shared", p.run(t, small, threadCount(2), true), got)
				if set.Name == "avx512" {
					sameBits(t, what+": five threads", p.run(t, conv, threadCount(5), true), got)
				}
			}
		}
	})
}

// Pixels are copied where blocks lie a multiple of 16 KiB apart, and where a stride leaves pixels out.
func TestGather(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, g := range []Geometry{
		batch(square(256, 72, 16, 1, 1), 2), square(250, 40, 16, 1, 1), square(40, 72, 17, 1, 2), square(300, 100, 9, 1, 3),
	} {
		p := newProblem(rng, g)
		p.shift, p.act = random(rng, g.Out), ReLU
		p.residual = random(rng, g.Batch*g.Out*g.OutHeight*g.OutWidth)
		want, bound := p.want()
		for _, set := range kernel.ConvSets() {
			conv := newConv(g, Pointwise, set)
			if !conv.how.(*direct).gathered {
				t.Fatalf("%+v is not gathered", g)
			}
			got := p.run(t, conv, threadCount(1), true)
			within(t, set.Name, got, want, bound, 1, tolerance[Pointwise])
			sameBits(t, set.Name+": a small cache", p.run(t, newConvIn(1<<14, g, Pointwise, set), threadCount(2), true), got)
			conv.rawBytes = 1
			sameBits(t, set.Name+": raw weights in pieces", p.run(t, conv, threadCount(3), false), got)
		}
	}
}

// Padded rows, and pixels that lie apart, are copied once where many panels read them, unless these are too many.
func TestShared(t *testing.T) {
	set := kernel.ConvSets()[0]
	for _, c := range []struct {
		Geometry
		shared bool
	}{
		{square(128, 128, 56, 3, 2), true},
		{square(128, 128, 56, 1, 2), false}, // few panels: their pixels stay in the second cache
		{square(512, 2048, 28, 1, 2), true},
		{square(64, 512, 1024, 3, 2), false},
	} {
		d := newConvIn(1<<20, c.Geometry, Direct, set).how.(*direct)
		if d.shared != c.shared {
			t.Errorf("%+v: rows shared is %v", c.Geometry, d.shared)
		}
		if floats := d.sharedFloats(); c.shared != (floats > 0) || 4*floats > sharedBytes {
			t.Errorf("%+v: %d floats are shared", c.Geometry, floats)
		}
	}
}

// Threads that pack raw weights for themselves compute the bits of packed ones.
func TestOwnWeights(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for _, c := range []struct {
		Geometry
		algorithm  Algorithm
		cacheBytes int
	}{
		{batch(square(120, 250, 7, 1, 1), 3), Pointwise, 128 << 10},
		{batch(square(256, 160, 16, 1, 1), 2), Pointwise, 128 << 10},
		{batch(square(60, 125, 14, 3, 2), 2), Direct, 256 << 10},
		{batch(square(300, 150, 7, 3, 1), 2), Winograd2, 1 << 20},
		{batch(square(100, 150, 9, 3, 1), 2), Winograd4, 2 << 20},
		// In chunks otherwise, of a thread each or of all threads.
		{batch(square(150, 160, 14, 3, 1), 8), Winograd2, 576 << 10},
		{batch(square(150, 160, 14, 3, 1), 8), Winograd2, 1 << 20},
	} {
		p := newProblem(rng, c.Geometry)
		p.shift, p.act = random(rng, c.Out), ReLU
		p.residual = random(rng, c.Batch*c.Out*c.OutHeight*c.OutWidth)
		for _, set := range kernel.ConvSets() {
			conv := newConvIn(c.cacheBytes, c.Geometry, c.algorithm, set)
			if late, ok := conv.how.(*winograd); conv.how.ownFloats(2) == 0 && !(ok && late.late) {
				t.Fatalf("%s: threads do not pack weights of %+v for themselves", set.Name, c.Geometry)
			}
			want := p.run(t, conv, threadCount(1), true)
			for _, conv.fetches = range []bool{false, true} {
				for _, threads := range []int{1, 2, 3} {
					sameBits(t, set.Name+" "+c.algorithm.String(), p.run(t, conv, threadCount(threads), false), want)
				}
			}
		}
	}
}

// Raw weights are packed all at once where each batch of them would have the tiles transformed anew, else as much as the
// caches may hold.
func TestRawBatches(t *testing.T) {
	for _, set := range kernel.ConvSets() {
		for _, images := range []int{1, 8} {
			conv := newConvIn(1<<20, batch(square(256, 512, 28, 3, 1), images), Winograd4, set)
			step, all := conv.rawPieces(), conv.how.pieces()
			if chunks := conv.how.(*winograd).chunks; (chunks > 1) != (images > 1) || (step == all) != (chunks > 1) {
				t.Errorf("%s: %d of %d pieces at once of %d images in %d chunks", set.Name, step, all, images, chunks)
			}
		}
	}
}

// A failer is a test, or a check of rapid.
type failer interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
}

// TestAccuracy logs the error of each algorithm against float64: the root of the mean square and the largest, as a part
// of the largest result. With AVX-512, 3×3 kernels and inputs between −1 and 1 it says
//
//	           64 channels             512 channels
//	direct     rms 8e-8, largest 5e-7  rms 8e-8, largest 3e-7
//	winograd2  rms 7e-8, largest 3e-7  rms 1e-7, largest 6e-7
//	winograd4  rms 2e-7, largest 1e-6  rms 4e-7, largest 3e-6
func TestAccuracy(t *testing.T) {
	limits := map[Algorithm]float64{Direct: 1e-6, Winograd2: 1e-6, Winograd4: 5e-6}
	for _, set := range kernel.ConvSets() {
		for _, channels := range []int{64, 512} {
			if testing.Short() && channels > 64 {
				continue
			}
			g := square(channels, 32, 12, 3, 1)
			p := newProblem(rand.New(rand.NewPCG(11, 12)), g)
			want, _ := p.want()
			for _, a := range algorithmsFor(g) {
				got := p.run(t, newConv(g, a, set), threadCount(2), true)
				var squares, largest, most float64
				for i, v := range got {
					d := math.Abs(float64(v) - want[i])
					squares, largest, most = squares+d*d, max(largest, d), max(most, math.Abs(want[i]))
				}
				rms := math.Sqrt(squares / float64(len(got)))
				t.Logf("%s, %d channels, %v: rms %.1e, largest %.1e", set.Name, channels, a, rms/most, largest/most)
				if largest/most > limits[a] {
					t.Errorf("%v is off by %.1e", a, largest/most)
				}
			}
		}
	}
}

// Stretches hold every output once, with the taps that read the input, and none where a window lies in padding.
func TestStretches(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size, taps := rapid.IntRange(1, 40).Draw(t, "size"), rapid.IntRange(1, 9).Draw(t, "taps")
		stride, dilation := rapid.IntRange(1, 4).Draw(t, "stride"), rapid.IntRange(1, 3).Draw(t, "dilation")
		pad, outputs := rapid.IntRange(0, 12).Draw(t, "pad"), rapid.IntRange(1, 50).Draw(t, "outputs")
		list := stretches(outputs, size, taps, stride, pad, dilation)
		at := 0
		for o := range outputs {
			var read []int
			for k := range taps {
				if i := o*stride - pad + k*dilation; i >= 0 && i < size {
					read = append(read, k)
				}
			}
			if list == nil {
				if len(read) == 0 {
					return
				}
				continue
			}
			if list[at].to == o {
				at++
			}
			s := list[at]
			if o < s.from || o >= s.to || len(read) == 0 || s.low != read[0] || s.high != read[len(read)-1]+1 {
				t.Fatalf("output %d reads %v, but is in %+v", o, read, s)
			}
		}
		if list == nil || list[len(list)-1].to != outputs {
			t.Fatalf("%d outputs in %+v", outputs, list)
		}
	})
}
