//go:build unix

package blocked

import (
	"context"
	"math/rand/v2"
	"syscall"
	"testing"
	"unsafe"

	"github.com/optimem/optimem/internal/cpu/kernel"
	"github.com/optimem/optimem/tensor"
)

// guarded returns a copy of floats that ends, or begins, where memory must not be touched.
func guarded(t *testing.T, x []float32, atEnd bool) []float32 {
	page := syscall.Getpagesize()
	size := (4*len(x) + page - 1) / page * page
	mem, err := syscall.Mmap(-1, 0, size+2*page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Munmap(mem) })
	for _, guard := range [][]byte{mem[:page], mem[size+page:]} {
		if err := syscall.Mprotect(guard, syscall.PROT_NONE); err != nil {
			t.Fatal(err)
		}
	}
	at := page
	if atEnd {
		at = page + size - 4*len(x)
	}
	if len(x) == 0 {
		return nil
	}
	y := unsafe.Slice((*float32)(unsafe.Pointer(&mem[at])), len(x))
	copy(y, x)
	return y
}

// No algorithm reads or writes beyond its operands and its scratch memory.
func TestGuardPages(t *testing.T) {
	everyAlgorithm(t, func(t *testing.T, c *Conv) {
		rng := rand.New(rand.NewPCG(7, 8))
		for _, atEnd := range []bool{true, false} {
			for _, packed := range []bool{true, false} {
				l := lay(rng, c, 2)
				l.Scale, l.Residual = guarded(t, random(rng, c.Out), atEnd), guarded(t, random(rng, len(l.Y)), atEnd)
				l.X, l.Y, l.Shift = guarded(t, l.X, atEnd), guarded(t, l.Y, atEnd), guarded(t, l.Shift, atEnd)
				l.Work = guarded(t, make([]float32, c.WorkBytes(2, packed)/4), atEnd)
				weights := random(rng, c.Out*c.In/c.Groups*c.KernelH*c.KernelW)
				l.Weight = Weight{
					Data: bytesOf(guarded(t, weights, atEnd)), DType: tensor.Float32,
					Layout: tensor.Contiguous(c.Out, c.In/c.Groups, c.KernelH, c.KernelW),
				}
				l.Packed = guarded(t, l.Packed, atEnd)
				c.Pack(threadCount(2), l.Weight, l.Packed)
				if !packed {
					l.Packed = nil
				}
				if err := l.Run(context.Background(), threadCount(2), l.Args); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}

func TestGuardPagesOfPools(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	w := Window{
		Batch: 2, Channels: 20, Height: 13, Width: 15, OutHeight: 7, OutWidth: 8, KernelH: 3, KernelW: 3, StrideH: 2, StrideW: 2,
		PadTop: 1, PadLeft: 1, DilationH: 1, DilationW: 1,
	}
	for _, atEnd := range []bool{true, false} {
		x := guarded(t, random(rng, Elements(w.Batch, w.Channels, w.Height, w.Width)), atEnd)
		y := guarded(t, make([]float32, Elements(w.Batch, w.Channels, w.OutHeight, w.OutWidth)), atEnd)
		MaxPool(threadCount(2), w, x, y)
		AvgPool(threadCount(2), w, x, y)
		global := w
		global.Adaptive, global.OutHeight, global.OutWidth = true, 1, 1
		means := guarded(t, make([]float32, Elements(w.Batch, w.Channels, 1, 1)), atEnd)
		AvgPool(threadCount(2), global, x, means)
		z := guarded(t, make([]float32, len(x)), atEnd)
		Add(threadCount(2), Sum{Channels: w.Channels, Pixels: w.Height * w.Width, X1: x, X2: x, Y: z, Act: SiLU})
		Multiply(threadCount(2), w.Height*w.Width, x, means, z)
		plain := guarded(t, make([]float32, w.Batch*w.Channels*w.Height*w.Width), atEnd)
		From(threadCount(2), Size{w.Batch, w.Channels, w.Height, w.Width}, x, plain)
		pixels := w.Height * w.Width
		size := Size{w.Batch, w.Channels, w.Height, w.Width}
		To(threadCount(2), size, plain, [4]int{w.Channels * pixels, pixels, w.Width, 1}, z)
	}
}

// Norms read and write no more than their operands.
func TestGuardPagesNorm(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for _, set := range kernel.ConvSets() {
		for _, atEnd := range []bool{true, false} {
			for pixels := range 9 {
				x := guarded(t, random(rng, 3*(pixels+1)*Lanes), atEnd)
				y := guarded(t, make([]float32, len(x)), atEnd)
				w := guarded(t, random(rng, 3*Lanes), atEnd)
				norm(threadCount(1), set, Normed{1, 3 * Lanes, pixels + 1, x, y, w, w, 1e-5})
			}
		}
	}
}

// Neither do products of rows.
func TestGuardPagesOfUnitRows(t *testing.T) {
	for _, g := range rowSizes {
		for _, set := range kernel.UnitSets() {
			for _, atEnd := range []bool{true, false} {
				rng := rand.New(rand.NewPCG(7, 8))
				u := NewUnit(g, set)
				plain := guarded(t, random(rng, g.Width*g.In), atEnd)
				x := guarded(t, make([]float32, UnitBlocks(g.In)*g.Width*UnitLanes/2), atEnd)
				copy(halvesOf(x), toRows(set, g.Width, g.In, plain))
				a := UnitArgs{
					X: halvesOf(x), Rows: guarded(t, random(rng, g.Width*g.Out), atEnd), RowPitch: g.Out,
					RowResidual: guarded(t, random(rng, g.Width*g.Out), atEnd),
					Weight: Weight{
						Data: bytesOf(guarded(t, random(rng, g.Out*g.In), atEnd)), DType: tensor.Float32,
						Layout: tensor.Contiguous(g.Out, g.In, 1, 1),
					},
					Work: guarded(t, make([]float32, u.WorkBytes(2, false)/4), atEnd),
				}
				if err := u.Run(context.Background(), threadCount(2), a); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}
