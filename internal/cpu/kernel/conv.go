package kernel

import (
	goruntime "runtime"
	"unsafe"
)

//go:generate sh -c "cd _generate && go run . -family conv -out ../conv_amd64.s -stubs ../gen_conv_amd64.go -pkg kernel"

// A ConvTile is a tile of a convolution over activations in blocks of sixteen channels: pixels of the output by the
// channels of one register pair. A kernel computes
//
//	y[p][o] = Σ_step Σ_k x[Offsets[step] + p·XPixel + k]·w[step][k][o]   for k < 4·Quads + Singles
//
// and then, as Flags say, adds what y holds and finishes: times Scale[o], plus Shift[o], plus the residual, limited to
// [Low, High], or hard swish of it where [ConvSet.HasHardSwish], cleared where Mask[o] is zero. Distances are in bytes. Every pointer is to
// memory that reaches as far as the sums do; the kernels check nothing.
type ConvTile struct {
	X       *float32
	W       *float32
	Y       *float32
	Offsets *int
	// Steps is at least 1. The weights of a step are 4·Quads + Singles rows of the tile's channels.
	Steps, Quads, Singles int
	XPixel, YPixel        int
	// YBlock is the distance of the second block of channels, for kernels whose registers hold sixteen.
	YBlock   int
	Flags    ConvFlags
	Scale    *float32
	Shift    *float32
	Mask     *uint32
	Residual *float32 // its distances are those of y
	Low      float32
	_        uint32
	High     float32
	_        uint32
	// AheadX is the distance of pixels that are wanted in the first cache next, 0 for none; AheadW points to weights that
	// are wanted in the second, or anywhere: AheadLines of 64 bytes with each of Quads.
	AheadX int
	AheadW uintptr
	// Tiles in a row and Rows are how many tiles Depthwise computes one behind the other, XRow and YRow the distances of
	// rows.
	Tiles, Rows, XRow, YRow int
	AheadLines              int
}

// ConvFlags say what becomes of the sums of a ConvTile.
type ConvFlags int

// The flags. All but ConvAdd want ConvFinish too.
const (
	ConvAdd ConvFlags = 1 << iota
	ConvFinish
	ConvResidual
	ConvLimit
	ConvClear
	ConvHardSwish
)

// A ConvSet is the kernels of an instruction set for convolutions in blocks. There is always one, in Go.
type ConvSet struct {
	// Name is "avx512", "avx2", "neon" or "go".
	Name string
	// Pixels and Columns are the size of the largest tile: 16 or 32 columns.
	Pixels, Columns int
	// Vectors are the other kernels of the same instruction set, nil for Go.
	Vectors *Set

	// wide has tiles of Columns channels by 1 to Pixels pixels, narrow tiles of 16.
	wide, narrow []convFunc
	// pairs has tiles of 16 channels in two halves with inputs of their own, of 1 to Pixels pixels, and pairHalves brings blocks
	// in the order that they read; nil where there are none.
	pairs      []convFunc
	pairHalves func(count int, x, y *float32)
	// depthwise has tiles of one channel by itself each, of 1 pixel to len(depthwise).
	depthwise []convFunc
	// largest and mean are the same for pools.
	largest, mean []convFunc
	sumWide       func(count int, x *float32, sums *float64)
	norm          convFunc
	// scales computes scaleLanes channels at a time; nil in Go.
	scales     func(count int, scale, shift, w, b, mean, variance *float32, eps float64)
	scaleLanes int
	// hardSwish says that wide, narrow and depthwise know ConvHardSwish.
	hardSwish bool
	// silu computes count vectors in place; nil in Go.
	silu func(count int, y *float32)
	// winogradIn and so on are for tiles of 2×2 and of 4×4 pixels.
	winogradIn, winogradOut, winogradWeights [2]convFunc
	// winogradLine is the transform of weights in one dimension; nil where there is none.
	winogradLine [2]convFunc
}

// A convFunc computes a tile. Its operand is a ConvTile, whose type the generator does not know.
type convFunc func(tile *byte)

// run calls a kernel.
func (f convFunc) run(tile unsafe.Pointer) {
	f(unseen((*byte)(tile)))
	goruntime.KeepAlive(tile)
}

// unseen returns p so that the compiler does not see where it goes: what kernels compute with can lie on the stack, for
// they keep nothing. It must be kept alive until they return.
func unseen[T any](p *T) *T {
	address := uintptr(unsafe.Pointer(p))
	return *(**T)(unsafe.Pointer(&address))
}

// Conv computes a tile of 1 to Pixels pixels and of Columns channels, or of 16 if it is narrow.
func (s *ConvSet) Conv(pixels int, narrow bool, t *ConvTile) {
	t.AheadLines = max(1, t.AheadLines)
	f := s.wide
	if narrow {
		f = s.narrow
	}
	f[pixels-1].run(unsafe.Pointer(t))
}

// HasPairs reports whether there are Pairs and PairHalves.
func (s *ConvSet) HasPairs() bool { return s.pairs != nil }

// Pairs computes a tile of 1 to Pixels pixels and of sixteen channels, of which each half has eight inputs of its own:
//
//	y[p][o] = Σ_step Σ_k x[Offsets[step] + p·XPixel + pair(k, o/8)]·w[step][k][pair(o%8, o/8)]   for k < 4·Quads + Singles
//
// where pair(k, half) = 2·k + half: halves lie in pairs of numbers (see PairHalves).
func (s *ConvSet) Pairs(pixels int, t *ConvTile) {
	t.AheadLines = max(1, t.AheadLines)
	s.pairs[pixels-1].run(unsafe.Pointer(t))
}

// PairHalves writes blocks of sixteen numbers so that halves lie in pairs: number 8·half + k becomes number 2·k + half.
func (s *ConvSet) PairHalves(dst, src []float32) {
	if len(src) == 0 {
		return
	}
	_ = dst[len(src)-1]
	s.pairHalves(len(src)/16, &src[0], &dst[0])
}

// HasHardSwish reports whether Conv and Depthwise know ConvHardSwish.
func (s *ConvSet) HasHardSwish() bool { return s.hardSwish }

// DepthwisePixels is the size of the largest tile of Depthwise.
func (s *ConvSet) DepthwisePixels() int { return len(s.depthwise) }

// Depthwise computes Rows of Tiles, each of given pixels by the sixteen channels of a block, of which each has its own
// sums: of x[Offsets[step] + p·XPixel + o]·w[step][o]. It does not look at Quads, Singles, YBlock and what is ahead.
func (s *ConvSet) Depthwise(pixels int, t *ConvTile) {
	s.depthwise[pixels-1].run(unsafe.Pointer(t))
}

// PoolPixels is the size of the largest tile of MaxPool and MeanPool.
func (s *ConvSet) PoolPixels() int { return len(s.largest) }

// MaxPool computes tiles as Depthwise does: the largest of Low and x[Offsets[step] + p·XPixel + o], NaN where one is.
func (s *ConvSet) MaxPool(pixels int, t *ConvTile) { s.largest[pixels-1].run(unsafe.Pointer(t)) }

// MeanPool computes tiles as Depthwise does: the sums of x[Offsets[step] + p·XPixel + o], divided by High.
func (s *ConvSet) MeanPool(pixels int, t *ConvTile) { s.mean[pixels-1].run(unsafe.Pointer(t)) }

// SumWide adds vectors of sixteen floats, which lie one behind the other in x, to sixteen sums in float64. A few at a time
// may be added up as floats before.
func (s *ConvSet) SumWide(x []float32, sums *[16]float64) {
	for n := len(x) / 16; n > 0; n = len(x) / 16 {
		n = min(n, 4096) // a call ends soon, so that the goroutine can be stopped
		s.sumWide(n, &x[0], unseen(&sums[0]))
		x = x[16*n:]
	}
	goruntime.KeepAlive(sums)
}

// SiLU replaces numbers, of which there are a multiple of sixteen, by x·sigmoid(x), with an error of 3e-7 of the greater of
// the result and 0.1; those below −87 are taken for that. It reports whether it has a kernel for that.
func (s *ConvSet) SiLU(y []float32) bool {
	if s.silu == nil {
		return false
	}
	for len(y) > 0 {
		n := min(len(y), 1<<15) // a call ends soon, so that the goroutine can be stopped
		s.silu(n/s.Vectors.Lanes, &y[0])
		y = y[n:]
	}
	return true
}

// ConvSets returns the sets that the processor can run, the fastest first.
func ConvSets() []*ConvSet { return append(fastConvSets(), convGo) }
