package blocked

import (
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/optimem/optimem/internal/cpu/kernel"
)

// blocksOf returns a plain value in blocks, and plainOf the other way.
func blocksOf(n, channels, height, width int, x []float32) []float32 {
	y := dirty(Elements(n, channels, height, width))
	pixels := height * width
	To(threadCount(2), Size{n, channels, height, width}, x, [4]int{channels * pixels, pixels, width, 1}, y)
	return y
}

func plainOf(n, channels, height, width int, x []float32) []float32 {
	y := dirty(n * channels * height * width)
	From(threadCount(2), Size{n, channels, height, width}, x, y)
	return y
}

func drawWindow(t *rapid.T) Window {
	draw := func(name string, low, high int) int { return rapid.IntRange(low, high).Draw(t, name) }
	w := Window{
		Batch: draw("batch", 1, 2), Channels: draw("channels", 1, 40), OutHeight: draw("outHeight", 1, 8),
		OutWidth: draw("outWidth", 1, 20),
	}
	if w.Adaptive = draw("adaptive", 0, 3) == 0; w.Adaptive {
		w.Height, w.Width = draw("height", 1, 20), draw("width", 1, 20)
		return w
	}
	w.KernelH, w.KernelW = draw("kernelH", 1, 7), draw("kernelW", 1, 7)
	w.StrideH, w.StrideW = draw("strideH", 1, 3), draw("strideW", 1, 3)
	w.DilationH, w.DilationW = draw("dilationH", 1, 2), draw("dilationW", 1, 2)
	w.PadTop, w.PadLeft = draw("padTop", 0, w.KernelH/2), draw("padLeft", 0, w.KernelW/2)
	size := func(out, kernel, stride, pad, dilation int) (size, padEnd int) {
		most := (out-1)*stride + (kernel-1)*dilation + 1 - pad
		short := draw("short", 0, kernel/2)
		return max(1, most-short), max(0, min(short, most-1))
	}
	w.Height, w.PadBottom = size(w.OutHeight, w.KernelH, w.StrideH, w.PadTop, w.DilationH)
	w.Width, w.PadRight = size(w.OutWidth, w.KernelW, w.StrideW, w.PadLeft, w.DilationW)
	w.IncludePad = draw("include", 0, 1) == 1
	w.Divisor = max(0, draw("divisor", -5, 5))
	return w
}

func TestPools(t *testing.T) {
	for _, set := range kernel.ConvSets() {
		t.Run(set.Name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) { checkPools(t, set) })
		})
	}
}

func checkPools(t *rapid.T, set *kernel.ConvSet) {
	w := drawWindow(t)
	rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
	x := random(rng, w.Batch*w.Channels*w.Height*w.Width)
	nan := -1
	if rapid.Bool().Draw(t, "nan") {
		nan = rng.IntN(len(x))
		x[nan] = float32(math.NaN())
	}
	in := blocksOf(w.Batch, w.Channels, w.Height, w.Width, x)
	largest := dirty(Elements(w.Batch, w.Channels, w.OutHeight, w.OutWidth))
	mean := dirty(len(largest))
	maxPool(threadCount(2), set, w, in, largest)
	avgPool(threadCount(2), set, w, in, mean)
	checkPadding(t, w.Channels, w.OutHeight*w.OutWidth, mean)
	checkPadding(t, w.Channels, w.OutHeight*w.OutWidth, largest)
	gotMax := plainOf(w.Batch, w.Channels, w.OutHeight, w.OutWidth, largest)
	gotMean := plainOf(w.Batch, w.Channels, w.OutHeight, w.OutWidth, mean)
	for i := range gotMax {
		plane, oy, ox := i/(w.OutHeight*w.OutWidth), i/w.OutWidth%w.OutHeight, i%w.OutWidth
		y0, y1, dy, rows := w.rows(oy)
		x0, x1, dx, columns := w.columns(ox)
		most, sum, count := math.Inf(-1), 0.0, 0
		for iy := y0; iy < y1; iy += dy {
			for ix := x0; ix < x1; ix += dx {
				v := float64(x[(plane*w.Height+iy)*w.Width+ix])
				most, sum, count = math.Max(most, v), sum+v, count+1
			}
		}
		if g := float64(gotMax[i]); g != most && !(math.IsNaN(g) && math.IsNaN(most)) {
			t.Fatalf("max %d is %v, want %v", i, g, most)
		}
		want := sum / float64(w.divisor(rows, columns, count))
		if g := float64(gotMean[i]); !(math.Abs(g-want) <= 4e-6*math.Max(1, math.Abs(want))) &&
			!(math.IsNaN(g) && math.IsNaN(want)) {
			t.Fatalf("mean %d is %v, want %v", i, g, want)
		}
	}
}

func TestElementwise(t *testing.T) {
	for _, set := range kernel.ConvSets() {
		t.Run(set.Name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				n, c := rapid.IntRange(1, 3).Draw(t, "n"), rapid.IntRange(1, 40).Draw(t, "channels")
				pixels := rapid.IntRange(1, 40).Draw(t, "pixels")
				rng := rand.New(rand.NewPCG(1, 2))
				x1, x2, scale := random(rng, n*c*pixels), random(rng, n*c*pixels), random(rng, n*c)
				act := Act(rapid.IntRange(0, int(numActs)-1).Draw(t, "act"))
				in1, in2 := blocksOf(n, c, 1, pixels, x1), blocksOf(n, c, 1, pixels, x2)
				sum, product := dirty(len(in1)), dirty(len(in1))
				add(threadCount(2), set, Sum{Channels: c, Pixels: pixels, X1: in1, X2: in2, Y: sum, Act: act, A: 0.1, B: 0.7})
				multiply(threadCount(2), set, pixels, in1, blocksOf(n, c, 1, 1, scale), product)
				checkPadding(t, c, pixels, sum)
				checkPadding(t, c, pixels, product)
				gotSum, gotProduct := plainOf(n, c, 1, pixels, sum), plainOf(n, c, 1, pixels, product)
				for i := range gotSum {
					want := act.of(x1[i]+x2[i], 0.1, 0.7)
					if d := math.Abs(float64(gotSum[i] - want)); !(d <= 1e-6) {
						t.Fatalf("%v: sum %d is %v, want %v", act, i, gotSum[i], want)
					}
					if want := x1[i] * scale[i/pixels]; gotProduct[i] != want {
						t.Fatalf("product %d is %v, want %v", i, gotProduct[i], want)
					}
				}
			})
		})
	}
}

// Values with any strides become blocks and come back.
func TestReorder(t *testing.T) {
	for _, set := range kernel.ConvSets() {
		t.Run(set.Name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				draw := func(name string, low, high int) int { return rapid.IntRange(low, high).Draw(t, name) }
				n, c, h, w := draw("n", 1, 3), draw("channels", 1, 50), draw("height", 1, 40), draw("width", 1, 70)
				// Dimensions in any order, with gaps.
				var strides [4]int
				size := 1
				for _, d := range rapid.Permutation([]int{0, 1, 2, 3}).Draw(t, "order") {
					strides[d] = size
					size *= [4]int{n, c, h, w}[d]
					size += draw("gap", 0, 3)
				}
				x := random(rand.New(rand.NewPCG(1, 2)), size)
				blocks, plain := dirty(Elements(n, c, h, w)), dirty(n*c*h*w)
				to(threadCount(2), set, Size{n, c, h, w}, x, strides, blocks)
				checkPadding(t, c, h*w, blocks)
				from(threadCount(2), set, Size{n, c, h, w}, blocks, plain)
				for i, v := range plain {
					image, channel, y, x0 := i/(c*h*w), i/(h*w)%c, i/w%h, i%w
					if want := x[image*strides[0]+channel*strides[1]+y*strides[2]+x0*strides[3]]; v != want {
						t.Fatalf("element %d is %v, want %v", i, v, want)
					}
					if v != blocks[(((image*Blocks(c)+channel/Lanes)*h+y)*w+x0)*Lanes+channel%Lanes] {
						t.Fatalf("element %d lies elsewhere", i)
					}
				}
			})
		})
	}
}

// Concatenation and slices are copies of blocks.
func TestCopyChannels(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	const n, pixels = 2, 5
	a, b := random(rng, n*32*pixels), random(rng, n*20*pixels)
	joined := dirty(Elements(n, 52, 1, pixels))
	pool := threadCount(2)
	CopyChannels(pool, n, pixels, 32, Channels{blocksOf(n, 32, 1, pixels, a), 32, 0}, Channels{joined, 52, 0})
	CopyChannels(pool, n, pixels, 20, Channels{blocksOf(n, 20, 1, pixels, b), 20, 0}, Channels{joined, 52, 32})
	for i, v := range plainOf(n, 52, 1, pixels, joined) {
		image, c, p := i/(52*pixels), i/pixels%52, i%pixels
		want := float32(0)
		if c < 32 {
			want = a[(image*32+c)*pixels+p]
		} else {
			want = b[(image*20+c-32)*pixels+p]
		}
		if v != want {
			t.Fatalf("element %d is %v, want %v", i, v, want)
		}
	}
	for _, c := range []struct {
		count, srcChannels, srcAt, dstChannels, dstAt int
		can                                           bool
	}{
		{32, 32, 0, 52, 0, true}, {20, 20, 0, 52, 32, true}, {20, 20, 0, 52, 16, false}, {16, 52, 8, 16, 0, false},
		{20, 52, 16, 20, 0, false},
	} {
		if got := CanCopy(c.count, c.srcChannels, c.srcAt, c.dstChannels, c.dstAt); got != c.can {
			t.Errorf("CanCopy%+v is %v", c, got)
		}
	}
}

// Windows that lie in padding altogether give −∞, and nothing in the lanes that no channel has.
func TestPoolsOfPaddingAlone(t *testing.T) {
	for _, set := range kernel.ConvSets() {
		for _, channels := range []int{3, 16, 20, 45} {
			w := Window{
				Batch: 2, Channels: channels, Height: 1, Width: 5, OutHeight: 2, OutWidth: 5,
				KernelH: 2, KernelW: 1, StrideH: 1, StrideW: 1, PadTop: 1, DilationH: 2, DilationW: 1,
			}
			y := dirty(Elements(w.Batch, channels, w.OutHeight, w.OutWidth))
			maxPool(threadCount(1), set, w, make([]float32, Elements(w.Batch, channels, w.Height, w.Width)), y)
			checkPadding(t, channels, w.OutHeight*w.OutWidth, y)
			for i, v := range plainOf(w.Batch, channels, w.OutHeight, w.OutWidth, y) {
				want := 0.0
				if i/w.OutWidth%w.OutHeight == 0 { // the taps are one row above the input and one below
					want = math.Inf(-1)
				}
				if float64(v) != want {
					t.Fatalf("%s, %d channels: element %d is %v, want %v", set.Name, channels, i, v, want)
				}
			}
		}
	}
}
