package blocked

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/optimem/optimem/internal/cpu/kernel"
	"github.com/optimem/optimem/tensor"
)

// edges are small convolutions of every algorithm, with sizes that leave tails everywhere.
var edges = []Geometry{
	square(20, 37, 9, 1, 1),
	square(64, 33, 15, 1, 2),
	square(300, 20, 4, 3, 1),
	square(17, 70, 11, 3, 2),
	square(33, 16, 19, 5, 1),
	planar(square(3, 40, 31, 7, 2)),
	planar(square(1, 16, 12, 3, 1)),
	grouped(square(40, 40, 13, 3, 1), 40),
	grouped(square(24, 24, 17, 5, 2), 24),
	grouped(square(48, 96, 7, 3, 1), 3),
	grouped(square(48, 48, 8, 3, 1), 2),
	grouped(square(40, 20, 8, 3, 2), 5),
	batch(square(20, 33, 14, 3, 1), 3),
	batch(square(48, 32, 7, 3, 1), 2),
}

// everyAlgorithm runs a test for each of the edges, each algorithm and each instruction set.
func everyAlgorithm(t *testing.T, test func(t *testing.T, c *Conv)) {
	for _, set := range kernel.ConvSets() {
		for _, g := range edges {
			for _, a := range algorithmsFor(g) {
				t.Run(set.Name+"/"+a.String(), func(t *testing.T) { test(t, newConv(g, a, set)) })
			}
		}
	}
}

// NaN reaches every output whose window has it, and with algorithms that sum up as it is written, infinities do as they
// do there. Groups that share a block of channels share their NaNs.
func TestNotFinite(t *testing.T) {
	for _, g := range edges {
		rng := rand.New(rand.NewPCG(1, 2))
		for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
			if testing.Short() && v < 0 {
				continue
			}
			p := newProblem(rng, g)
			if math.IsNaN(v) { // what an activation makes of infinities that differ in sign is not the question here
				p.act = ReLU
			}
			p.x[rng.IntN(len(p.x))] = float32(v)
			want, _ := p.want()
			for _, set := range kernel.ConvSets() {
				for _, a := range algorithmsFor(g) {
					t.Run(set.Name+"/"+a.String(), func(t *testing.T) {
						checkNotFinite(t, a, g, p.run(t, newConv(g, a, set), threadCount(2), true), want)
					})
				}
			}
		}
	}
}

func checkNotFinite(t *testing.T, a Algorithm, g Geometry, got []float32, want []float64) {
	for i := range got {
		finite := !math.IsNaN(want[i]) && !math.IsInf(want[i], 0)
		switch {
		case a == Winograd2 || a == Winograd4:
			if !finite && !math.IsNaN(float64(got[i])) && !math.IsInf(float64(got[i]), 0) {
				t.Fatalf("element %d is %v, want %v", i, got[i], want[i])
			}
		case g.Groups > 1 && g.Groups < g.In:
		case !finite && float64(got[i]) != want[i] && !(math.IsNaN(float64(got[i])) && math.IsNaN(want[i])):
			t.Fatalf("element %d is %v, want %v", i, got[i], want[i])
		case finite && math.Abs(float64(got[i])-want[i]) > 1e-4:
			t.Fatalf("element %d is %v, want %v", i, got[i], want[i])
		}
	}
}

// Weights of other dtypes and in other orders are packed as the same floats, and pieces as what they are part of.
func TestPack(t *testing.T) {
	everyAlgorithm(t, func(t *testing.T, c *Conv) {
		g := c.Geometry
		rng := rand.New(rand.NewPCG(3, 4))
		shape := tensor.Contiguous(g.Out, g.In/g.Groups, g.KernelH, g.KernelW)
		n := g.Out * g.In / g.Groups * g.KernelH * g.KernelW
		plain := make([]float32, n)
		half, brain := make([]byte, 2*n), make([]byte, 2*n)
		strided := make([]float32, 3+2*n)
		for i := range plain {
			plain[i] = float32(rng.IntN(255)-127) / 64 // exact in every dtype
			h, b := tensor.Float16FromFloat32(plain[i]), tensor.BFloat16FromFloat32(plain[i])
			half[2*i], half[2*i+1] = byte(h), byte(h>>8)
			brain[2*i], brain[2*i+1] = byte(b), byte(b>>8)
			strided[3+2*i] = plain[i]
		}
		unaligned := make([]byte, 4*n+4)[1 : 4*n+1]
		copy(unaligned, bytesOf(plain))
		every := shape
		every.Strides = make([]int, 4)
		for d, s := range shape.Strides {
			every.Strides[d] = 2 * s
		}
		every.Offset = 3
		pack := func(w Weight, pieces int) []float32 {
			to := dirty(int(c.PackedBytes()/4) / c.how.pieces() * pieces)
			c.Pack(threadCount(2), w, to)
			return to
		}
		want := pack(Weight{Data: bytesOf(plain), DType: tensor.Float32, Layout: shape}, c.how.pieces())
		for what, w := range map[string]Weight{
			"float16":   {Data: half, DType: tensor.Float16, Layout: shape},
			"bfloat16":  {Data: brain, DType: tensor.BFloat16, Layout: shape},
			"strided":   {Data: bytesOf(strided), DType: tensor.Float32, Layout: every},
			"unaligned": {Data: unaligned, DType: tensor.Float32, Layout: shape},
		} {
			sameBits(t, what, pack(w, c.how.pieces()), want)
		}
		if step := c.PackStep(); step > 0 {
			size := len(want) / c.how.pieces()
			for i := range c.how.pieces() {
				piece := Weight{Data: bytesOf(plain), DType: tensor.Float32, Layout: shape}
				piece.Layout.Shape = tensor.Shape{min(step, g.Out-i*step), g.In / g.Groups, g.KernelH, g.KernelW}
				piece.Layout.Offset = i * step * shape.Strides[0]
				sameBits(t, "a piece", pack(piece, 1), want[i*size:(i+1)*size])
			}
		} else if g.Groups == 1 {
			t.Error("weights without groups are no pieces")
		}
	})
}

func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	everyAlgorithm(t, func(t *testing.T, c *Conv) {
		l := lay(rand.New(rand.NewPCG(5, 6)), c, 2)
		if err := l.Run(ctx, threadCount(2), l.Args); !errors.Is(err, context.Canceled) {
			t.Errorf("Run returns %v", err)
		}
	})
}

// The choice is by geometry alone, and exact ones are sums of products.
func TestChoose(t *testing.T) {
	exact := func(g Geometry) Geometry { g.Exact = true; return g }
	for _, c := range []struct {
		g    Geometry
		want Algorithm
	}{
		{square(256, 64, 128, 1, 1), Pointwise},
		{square(256, 512, 128, 1, 2), Direct},
		{square(64, 64, 128, 3, 1), Winograd4},
		{exact(square(64, 64, 128, 3, 1)), Direct},
		{square(512, 512, 7, 3, 1), Winograd2},
		{batch(square(512, 512, 7, 3, 1), 8), Winograd2},
		{square(256, 256, 14, 3, 1), Winograd2},
		{square(512, 512, 16, 3, 1), Winograd4},
		{square(64, 64, 3, 3, 1), Direct},
		{square(128, 128, 128, 3, 2), Direct},
		{planar(square(3, 64, 224, 3, 1)), Stem},
		{grouped(square(72, 72, 56, 3, 1), 72), Depthwise},
		{grouped(square(208, 208, 14, 3, 1), 13), Direct},
	} {
		if got := New(c.g).Algorithm(); got != c.want {
			t.Errorf("%+v: %v, want %v", c.g, got, c.want)
		}
	}
}

// Kernels do not look at sizes: operands that are too small are found before.
func TestSmallOperandsAreFound(t *testing.T) {
	g := square(20, 40, 9, 3, 1)
	conv := New(g)
	size := Elements(1, 40, 9, 9)
	for name, change := range map[string]func(a *Args){
		"input":    func(a *Args) { a.X = a.X[1:] },
		"output":   func(a *Args) { a.Y = a.Y[1:] },
		"residual": func(a *Args) { a.Residual = a.Residual[1:] },
		"weights":  func(a *Args) { a.Packed = a.Packed[1:] },
		"none":     func(*Args) {},
	} {
		a := Args{
			X: make([]float32, Elements(1, 20, 9, 9)), Y: make([]float32, size),
			Packed: make([]float32, conv.PackedBytes()/4), Work: make([]float32, conv.WorkBytes(1, true)/4),
		}
		a.Residual = make([]float32, size)
		change(&a)
		func() {
			defer func() {
				if v := recover(); (v != nil) != (name != "none") {
					t.Errorf("%s: it ended with %v", name, v)
				}
			}()
			if err := conv.Run(t.Context(), threadCount(1), a); err != nil {
				t.Error(err)
			}
		}()
	}
}

// Raw weights in batches give the bits of packed ones where all threads share chunks of tiles, each of which a batch
// transforms anew.
func TestRawBatchesOfChunks(t *testing.T) {
	rng := rand.New(rand.NewPCG(47, 48))
	g := batch(square(20, 70, 24, 3, 1), 2)
	p := newProblem(rng, g)
	for _, set := range kernel.ConvSets() {
		conv := newConvIn(4<<20, g, Winograd2, set)
		w := conv.how.(*winograd)
		if w.alone || w.chunks < 2 || conv.how.ownFloats(2) > 0 {
			t.Fatalf("%s: %d chunks, alone is %t", set.Name, w.chunks, w.alone)
		}
		want := p.run(t, conv, threadCount(1), true)
		conv.rawBytes = 1
		sameBits(t, set.Name, p.run(t, conv, threadCount(2), false), want)
	}
}

// A depthwise convolution adds the residual of its own row, in every row.
func TestDepthwiseResiduals(t *testing.T) {
	rng := rand.New(rand.NewPCG(49, 50))
	for _, size := range []int{7, 40} {
		g := square(24, 24, size, 3, 1)
		g.Groups = 24
		p := newProblem(rng, g)
		p.residual = random(rng, 24*size*size)
		want, bound := p.want()
		for _, set := range kernel.ConvSets() {
			got := p.run(t, newConv(g, Depthwise, set), threadCount(2), true)
			within(t, set.Name, got, want, bound, 1, tolerance[Depthwise])
		}
	}
}

// A unit's thread that goes from band to band computes each with its own pixels: images are those of a batch of one.
func TestUnitBandsHaveTheirPixels(t *testing.T) {
	rng := rand.New(rand.NewPCG(51, 52))
	for _, g := range []Geometry{square(40, 33, 12, 3, 1), square(64, 70, 14, 1, 2), planar(square(3, 20, 19, 3, 1))} {
		all := newProblem(rng, batch(g, 3))
		for _, set := range kernel.UnitSets() {
			got := all.runUnit(t, NewUnit(all.Geometry, set), threadCount(1), true)
			each := len(all.x) / 3
			for i := range 3 {
				one := &problem{Geometry: g, x: all.x[i*each:][:each], w: all.w}
				want := one.runUnit(t, NewUnit(g, set), threadCount(1), true)
				sameBits(t, set.Name, got[i*len(want):][:len(want)], want)
			}
		}
	}
}
