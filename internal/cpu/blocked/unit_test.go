package blocked

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/optimem/optimem/internal/cpu/kernel"
	"github.com/optimem/optimem/tensor"
)

// rounded rounds floats to bfloat16.
func rounded(x []float32) []float32 {
	for i, v := range x {
		x[i] = tensor.BFloat16ToFloat32(tensor.BFloat16FromFloat32(v))
	}
	return x
}

// narrowed returns a value in plain layout in blocks of 32 of a pool's choice.
func narrowed(set *kernel.UnitSet, n, channels, pixels int, x []float32) []uint16 {
	wide := make([]float32, Elements(n, channels, pixels, 1))
	To(threadCount(1), Size{n, channels, pixels, 1}, x, [4]int{channels * pixels, pixels, 1, 1}, wide)
	y := make([]uint16, n*UnitBlocks(channels)*pixels*UnitLanes)
	for i := range y {
		y[i] = 0x7fc1
	}
	ToUnit(threadCount(2), set, n, channels, pixels, wide, y)
	return y
}

// widened returns a value in blocks of 32 in plain layout. Lanes beyond the channels must be zero.
func widened(t failer, set *kernel.UnitSet, n, channels, pixels int, x []uint16) []float32 {
	t.Helper()
	for i, h := range x {
		block := i / UnitLanes / pixels % UnitBlocks(channels)
		if block*UnitLanes+i%UnitLanes >= channels && h != 0 {
			t.Fatalf("lane %d of block %d of %d channels is %#x", i%UnitLanes, block, channels, h)
		}
	}
	wide := dirty(Elements(n, channels, pixels, 1))
	FromUnit(threadCount(2), set, n, channels, pixels, x, wide)
	y := make([]float32, n*channels*pixels)
	From(threadCount(1), Size{n, channels, pixels, 1}, wide, y)
	return y
}

// unitArgs returns the problem's operands as a unit's convolution takes them.
func (p *problem) unitArgs(u *UnitConv) UnitArgs {
	g := p.Geometry
	a := UnitArgs{
		Planes: p.x, Scale: p.scale, Shift: p.shift, Act: p.act, A: p.a, B: p.b,
		Weight: Weight{
			Data: bytesOf(p.w), DType: tensor.Float32, Layout: tensor.Contiguous(g.Out, g.In, g.KernelH, g.KernelW),
		},
	}
	pixels := g.OutHeight * g.OutWidth
	if !g.Planar {
		a.X = narrowed(u.set, g.Batch, g.In, g.Height*g.Width, p.x)
	} else {
		a.XStrides = [4]int{g.In * g.Height * g.Width, g.Height * g.Width, g.Width, 1}
	}
	a.Y = make([]uint16, g.Batch*UnitBlocks(g.Out)*pixels*UnitLanes)
	for i := range a.Y {
		a.Y[i] = 0x7fc1
	}
	if p.residual != nil {
		a.Residual = narrowed(u.set, g.Batch, g.Out, pixels, p.residual)
	}
	return a
}

// runUnit computes the problem and returns the output in plain layout.
func (p *problem) runUnit(t failer, u *UnitConv, pool Pool, packed bool) []float32 {
	t.Helper()
	a := p.unitArgs(u)
	a.Work = dirty(int(u.WorkBytes(pool.Threads(), packed) / 4))
	if packed {
		a.Packed = dirty(int(u.PackedBytes() / 4))
		u.Pack(pool, a.Weight, a.Packed)
	}
	if err := u.Run(context.Background(), pool, a); err != nil {
		t.Fatal(err)
	}
	return widened(t, u.set, p.Batch, p.Out, p.OutHeight*p.OutWidth, a.Y)
}

// Operands are bfloat16, so that sums differ from exact ones by float32's rounding of each addition, and results by half of
// bfloat16's last place besides.
func TestUnitConv(t *testing.T) {
	if testing.Short() {
		t.Skip("slow where units are emulated; the sizes of unitEdges go the same ways")
	}
	rapid.Check(t, func(t *rapid.T) {
		p := drawProblem(t)
		if UnitSupports(p.Geometry) != nil {
			p.Groups = 1
			p.w = random(rand.New(rand.NewPCG(3, 4)), p.Out*p.In*p.KernelH*p.KernelW)
			if p.Planar && p.In > planarLanes {
				t.Skip()
			}
		}
		for _, x := range [][]float32{p.x, p.w, p.residual} {
			rounded(x)
		}
		want, bound := p.want()
		for _, set := range kernel.UnitSets() {
			u := NewUnit(p.Geometry, set)
			got := p.runUnit(t, u, threadCount(1), true)
			for i := range got {
				d := math.Abs(float64(got[i]) - want[i])
				if limit := 2e-6*(bound[i]+1) + math.Abs(want[i])/256; !(d <= limit) {
					t.Fatalf("%s: element %d is %v, want %v", set.Name, i, got[i], want[i])
				}
			}
			u.rawBytes = 1 // a panel at a time
			sameBits(t, set.Name+": raw weights in pieces", p.runUnit(t, u, threadCount(2), false), got)
			if set.Name != "go" {
				sameBits(t, set.Name+": five threads", p.runUnit(t, u, threadCount(5), true), got)
			}
		}
	})
}

// unitEdges are small convolutions with sizes that leave tails everywhere.
var unitEdges = []Geometry{
	square(20, 37, 9, 1, 1),
	square(530, 40, 6, 1, 1),
	square(64, 33, 15, 1, 2),
	square(300, 20, 4, 3, 1),
	square(17, 70, 11, 3, 2),
	square(33, 16, 49, 3, 1),
	planar(square(3, 40, 31, 7, 2)),
	planar(square(1, 16, 12, 11, 1)),
	batch(square(48, 32, 7, 3, 1), 2),
	batch(planar(square(3, 20, 25, 3, 1)), 3),
}

// Without rounding in the way, each set gives the sums that the comment of kernel.UnitTile says, to the bit: operands are
// small whole numbers, and so are results.
func TestUnitConvIsExactOfWholeNumbers(t *testing.T) {
	whole := func(rng *rand.Rand, n, most int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(rng.IntN(2*most+1) - most)
		}
		return x
	}
	for _, g := range unitEdges {
		rng := rand.New(rand.NewPCG(5, 6))
		p := newProblem(rng, g)
		p.x = whole(rng, len(p.x), 1)
		for i := range p.w { // few, so that sums are below 256
			if p.w[i] = 0; rng.IntN(40) == 0 {
				p.w[i] = float32(1 - 2*rng.IntN(2))
			}
		}
		p.residual, p.act = whole(rng, g.Batch*g.Out*g.OutHeight*g.OutWidth, 3), HardTanh
		p.a, p.b = -9, 100
		want, _ := p.want()
		for _, set := range kernel.UnitSets() {
			for i, v := range p.runUnit(t, NewUnit(g, set), threadCount(2), true) {
				if float64(v) != want[i] {
					t.Fatalf("%s: %+v: element %d is %v, want %v", set.Name, g, i, v, want[i])
				}
			}
		}
	}
}

// NaN and infinities reach the results whose windows have them, and no others, and denormals count as zero.
func TestUnitConvOfSpecialNumbers(t *testing.T) {
	for _, set := range kernel.UnitSets() {
		for _, special := range []float32{float32(math.NaN()), float32(math.Inf(1)), 1e-40} {
			g := square(40, 24, 21, 3, 1)
			p := newProblem(rand.New(rand.NewPCG(1, 2)), g)
			rounded(p.x)
			rounded(p.w)
			p.act = ReLU6
			at := (5*g.Height + 7) * g.Width // channel 5, row 7, column 0
			p.x[at] = 0
			clean := p.runUnit(t, NewUnit(g, set), threadCount(1), true)
			p.x[at] = special
			for i, v := range p.runUnit(t, NewUnit(g, set), threadCount(1), true) {
				y, x := i/g.OutWidth%g.OutHeight, i%g.OutWidth
				reached := y >= 6 && y <= 8 && x <= 1 && special != 1e-40
				w := p.w[((i/(g.OutWidth*g.OutHeight))*g.In+5)*9+(7-y+1)*3%9:]
				switch {
				case !reached && v != clean[i]:
					t.Fatalf("%s: %v changes row %d, column %d", set.Name, special, y, x)
				case reached && special != special && v == v:
					t.Fatalf("%s: NaN makes %v of row %d, column %d", set.Name, v, y, x)
				case reached && special == special && v != 0 && v != 6:
					t.Fatalf("%s: infinity times %v makes %v", set.Name, w[0], v)
				}
			}
		}
	}
}

func TestUnitMax(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string, low, high int) int { return rapid.IntRange(low, high).Draw(t, name) }
		w := Window{
			Batch: draw("batch", 1, 2), Channels: draw("channels", 1, 70), KernelH: draw("kernelH", 1, 3), KernelW: draw("kernelW", 1, 3),
			StrideH: draw("strideH", 1, 3), StrideW: draw("strideW", 1, 3), DilationH: draw("dilationH", 1, 2),
			DilationW: draw("dilationW", 1, 2), OutHeight: draw("outHeight", 1, 9), OutWidth: draw("outWidth", 1, 40),
		}
		w.PadTop, w.PadLeft = draw("padTop", 0, w.KernelH/2), draw("padLeft", 0, w.KernelW/2)
		w.Height = max(1, (w.OutHeight-1)*w.StrideH+(w.KernelH-1)*w.DilationH+1-w.PadTop-draw("less", 0, 1))
		w.Width = max(1, (w.OutWidth-1)*w.StrideW+(w.KernelW-1)*w.DilationW+1-w.PadLeft-draw("less", 0, 1))
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		x := rounded(random(rng, w.Batch*w.Channels*w.Height*w.Width))
		for i := range x {
			switch rng.IntN(50) {
			case 0:
				x[i] = float32(math.NaN())
			case 1:
				x[i] = float32(math.Inf(1 - 2*rng.IntN(2)))
			}
		}
		for _, set := range kernel.UnitSets() {
			y := make([]uint16, w.Batch*UnitBlocks(w.Channels)*w.OutHeight*w.OutWidth*UnitLanes)
			UnitMax(threadCount(2), set, w, narrowed(set, w.Batch, w.Channels, w.Height*w.Width, x), y)
			got := widened(t, set, w.Batch, w.Channels, w.OutHeight*w.OutWidth, y)
			for i := range got {
				plane, oy, ox := i/(w.OutHeight*w.OutWidth), i/w.OutWidth%w.OutHeight, i%w.OutWidth
				want := float32(math.Inf(-1))
				for ky := range w.KernelH {
					for kx := range w.KernelW {
						iy, ix := oy*w.StrideH-w.PadTop+ky*w.DilationH, ox*w.StrideW-w.PadLeft+kx*w.DilationW
						if iy < 0 || iy >= w.Height || ix < 0 || ix >= w.Width {
							continue
						}
						if v := x[(plane*w.Height+iy)*w.Width+ix]; v > want || v != v {
							want = v
						}
					}
				}
				if got[i] != want && (got[i] == got[i] || want == want) {
					t.Fatalf("%s: element %d is %v, want %v", set.Name, i, got[i], want)
				}
			}
		}
	})
}

// A cancelled convolution says so.
func TestUnitConvStops(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	set := kernel.UnitSets()[0]
	u := NewUnit(square(64, 64, 16, 1, 1), set)
	p := newProblem(rand.New(rand.NewPCG(1, 2)), u.Geometry)
	a := p.unitArgs(u)
	a.Work = make([]float32, u.WorkBytes(1, false)/4)
	if err := u.Run(ctx, threadCount(1), a); err != context.Canceled {
		t.Fatalf("error %v", err)
	}
}

func BenchmarkUnit(b *testing.B) {
	set := kernel.UnitSets()[0]
	if set.Name == "go" {
		b.Skip("no matrix unit")
	}
	for _, l := range layers {
		if UnitSupports(l.Geometry) != nil {
			continue
		}
		for _, threads := range []int{1, 2} {
			b.Run(fmt.Sprintf("%s/%d", l.name, threads), func(b *testing.B) {
				pool := newSpinning(threads)
				defer pool.close()
				u := NewUnit(l.Geometry, set)
				p := newProblem(rand.New(rand.NewPCG(1, 2)), l.Geometry)
				p.act = ReLU
				a := p.unitArgs(u)
				a.Work = make([]float32, u.WorkBytes(threads, true)/4)
				a.Packed = make([]float32, u.PackedBytes()/4)
				u.Pack(pool, a.Weight, a.Packed)
				for b.Loop() {
					if err := u.Run(b.Context(), pool, a); err != nil {
						b.Fatal(err)
					}
				}
				flops := 2 * float64(l.Batch*l.Out*l.OutHeight*l.OutWidth) * float64(l.In*l.KernelH*l.KernelW)
				b.ReportMetric(flops/float64(b.Elapsed().Nanoseconds())*float64(b.N), "GF/s")
			})
		}
	}
}
