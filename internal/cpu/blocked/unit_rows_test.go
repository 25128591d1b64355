package blocked

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/optimem/optimem/internal/cpu/kernel"
	"github.com/optimem/optimem/tensor"
)

// pixelRows is the geometry of a product of rows.
func pixelRows(rows, in, out int) Geometry {
	return Geometry{
		Batch: 1, In: in, Out: out, Groups: 1, Height: 1, Width: rows, OutHeight: 1, OutWidth: rows,
		KernelH: 1, KernelW: 1, StrideH: 1, StrideW: 1, DilationH: 1, DilationW: 1,
	}
}

// rowSizes leave tails everywhere; the last is cut into bands.
var rowSizes = []Geometry{
	pixelRows(128, 96, 64), pixelRows(1, 20, 33), pixelRows(17, 40, 70), pixelRows(33, 600, 31), pixelRows(197, 64, 40),
	pixelRows(900, 1000, 33),
}

// toRows rounds rows of floats as a unit reads them.
func toRows(set *kernel.UnitSet, rows, channels int, x []float32) []uint16 {
	y := make([]uint16, UnitBlocks(channels)*rows*UnitLanes)
	for i := range y {
		y[i] = 0x7fc1
	}
	for b := range UnitBlocks(channels) {
		set.NarrowRows(x[b*UnitLanes:], channels, channels-b*UnitLanes, y[b*rows*UnitLanes:(b+1)*rows*UnitLanes])
	}
	return y
}

// turned returns a matrix of some rows and columns, column by column.
func turned(x []float32, rows, columns int) []float32 {
	y := make([]float32, len(x))
	for i, v := range x {
		y[i%columns*rows+i/columns] = v
	}
	return y
}

// Results may be float32, in rows, with a residual of float32: sums of small whole numbers are exact, in every set, for any
// number of threads, with packed weights and raw ones.
func TestUnitRows(t *testing.T) {
	for _, g := range rowSizes {
		for _, act := range []Act{None, ReLU, LeakyReLU} {
			if testing.Short() && act != None && g.OutWidth > 100 {
				continue
			}
			rng := rand.New(rand.NewPCG(3, 4))
			numbers := func(n int) []float32 {
				x := make([]float32, n)
				for i := range x {
					x[i] = float32(rng.IntN(9) - 4)
				}
				return x
			}
			rows := g.OutWidth
			x, w, bias, residual := numbers(rows*g.In), numbers(g.Out*g.In), numbers(g.Out), numbers(rows*g.Out)
			if act != None {
				residual = nil
			}
			want := make([]float32, rows*g.Out)
			for r := range rows {
				for o := range g.Out {
					sum := bias[o]
					for k, v := range x[r*g.In : (r+1)*g.In] {
						sum += v * w[o*g.In+k]
					}
					if sum = act.of(sum, 0.5, 0); residual != nil {
						sum += residual[r*g.Out+o]
					}
					want[r*g.Out+o] = sum
				}
			}
			for _, set := range kernel.UnitSets() {
				u := NewUnit(g, set)
				u.rawBytes = 1
				a := UnitArgs{
					X: toRows(set, rows, g.In, x), Shift: bias, Act: act, A: 0.5, RowPitch: g.Out, RowResidual: residual,
					Weight: Weight{Data: bytesOf(w), DType: tensor.Float32, Layout: tensor.Contiguous(g.Out, g.In, 1, 1)},
				}
				packed := make([]float32, u.PackedBytes()/4)
				u.Pack(threadCount(1), a.Weight, packed)
				for _, threads := range []int{1, 3} {
					a.Rows, a.Packed = dirty(rows*g.Out), packed
					if threads > 1 { // raw, and the other way around
						a.Packed = nil
						a.Weight.Data = bytesOf(turned(w, g.Out, g.In))
						a.Weight.Layout.Strides = []int{1, g.Out, 1, 1}
					}
					a.Work = dirty(int(u.WorkBytes(threads, false) / 4))
					if err := u.Run(context.Background(), threadCount(threads), a); err != nil {
						t.Fatal(err)
					}
					for i, v := range a.Rows {
						if v != want[i] {
							t.Fatalf("%s: %+v, %v: element %d is %v, want %v", set.Name, g, act, i, v, want[i])
						}
					}
				}
			}
		}
	}
}

// NaN and infinities reach the results of their row.
func TestUnitRowsOfSpecialNumbers(t *testing.T) {
	g := pixelRows(40, 70, 40)
	for _, set := range kernel.UnitSets() {
		for _, act := range []Act{None, ReLU} {
			rng := rand.New(rand.NewPCG(3, 4))
			x, w := random(rng, g.Width*g.In), random(rng, g.Out*g.In)
			x[35*g.In+69] = float32(math.NaN())
			u := NewUnit(g, set)
			a := UnitArgs{
				X: toRows(set, g.Width, g.In, x), Act: act, Rows: dirty(g.Width * g.Out), RowPitch: g.Out,
				Weight: Weight{Data: bytesOf(w), DType: tensor.Float32, Layout: tensor.Contiguous(g.Out, g.In, 1, 1)},
				Work:   dirty(int(u.WorkBytes(1, false) / 4)),
			}
			if err := u.Run(context.Background(), threadCount(1), a); err != nil {
				t.Fatal(err)
			}
			for i, v := range a.Rows {
				if (v != v) != (i/g.Out == 35) {
					t.Fatalf("%s: element %d is %v", set.Name, i, v)
				}
			}
		}
	}
}

// BenchmarkUnitRows is the linears of BERT-base for 128 tokens, one with each weight of twelve layers.
func BenchmarkUnitRows(b *testing.B) {
	set := kernel.UnitSets()[0]
	if set.Name == "go" {
		b.Skip("no matrix unit")
	}
	for _, g := range []Geometry{pixelRows(128, 768, 768), pixelRows(128, 768, 3072), pixelRows(128, 3072, 768)} {
		for _, threads := range []int{1, 2} {
			b.Run(fmt.Sprintf("%dx%d/%d", g.In, g.Out, threads), func(b *testing.B) {
				pool := newSpinning(threads)
				defer pool.close()
				u := NewUnit(g, set)
				rng := rand.New(rand.NewPCG(3, 4))
				w := random(rng, g.Out*g.In)
				a := UnitArgs{
					X:      toRows(set, g.Width, g.In, random(rng, g.Width*g.In)),
					Y:      make([]uint16, UnitBlocks(g.Out)*g.Width*UnitLanes),
					Weight: Weight{Data: bytesOf(w), DType: tensor.Float32, Layout: tensor.Contiguous(g.Out, g.In, 1, 1)},
					Work:   make([]float32, u.WorkBytes(threads, false)/4),
				}
				var packed [12][]float32
				for i := range packed {
					packed[i] = make([]float32, u.PackedBytes()/4)
					u.Pack(pool, a.Weight, packed[i])
				}
				for b.Loop() {
					for i := range packed {
						a.Packed = packed[i]
						if err := u.Run(b.Context(), pool, a); err != nil {
							b.Fatal(err)
						}
					}
				}
				flops := 2 * float64(len(packed)*g.Width*g.In*g.Out)
				b.ReportMetric(flops/float64(b.Elapsed().Nanoseconds())*float64(b.N), "GF/s")
				b.ReportMetric(float64(12*u.PackedBytes())/float64(b.Elapsed().Nanoseconds())*float64(b.N), "GB/s")
			})
		}
	}
}
