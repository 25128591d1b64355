package blocked

import (
	"context"
	"fmt"
	"unsafe"

	"github.com/optimem/optimem/tensor"
)

// A Geometry is the shapes of a two-dimensional convolution. One over a line is one with Height, OutHeight and KernelH 1.
type Geometry struct {
	// Batch is the number of images, In and Out are channels, Groups how many groups these form.
	Batch, In, Out, Groups int
	// Height and Width are the input's, OutHeight and OutWidth the output's. The padding behind the last row and column is
	// what these imply.
	Height, Width, OutHeight, OutWidth    int
	KernelH, KernelW                      int
	StrideH, StrideW                      int
	PadTop, PadLeft, DilationH, DilationW int
	// Planar says that the input is [N, C, H, W], as a model's first convolution reads it, and not in blocks.
	Planar bool
	// Exact allows only algorithms whose rounding is that of sums of products: no Winograd.
	Exact bool
}

// An Algorithm is how a convolution is computed.
type Algorithm uint8

// The algorithms.
const (
	// Direct sums over blocks of input channels, rows and columns of the kernel. Groups of any size are dense products
	// with zeros between them.
	Direct Algorithm = iota
	// Pointwise is Direct for kernels of one pixel, stride 1.
	Pointwise
	// Stem reads planes of pixels.
	Stem
	// Depthwise has one input channel for each output channel.
	Depthwise
	// Winograd2 and Winograd4 compute F(2×2, 3×3) and F(4×4, 3×3): tiles of 2×2 or 4×4 pixels with 2.25 and 4 times fewer
	// multiplications (Lavin and Gray, Fast Algorithms for Convolutional Neural Networks).
	Winograd2
	Winograd4
	numAlgorithms
)

var algorithms = [numAlgorithms]string{"direct", "pointwise", "stem", "depthwise", "winograd2", "winograd4"}

// String returns the name that reports use.
func (a Algorithm) String() string { return algorithms[a] }

// A Weight is a view of weights as a checkpoint has them: four dimensions, [Out, In/Groups, KernelH, KernelW], float32,
// float16 or bfloat16, at any address.
type Weight struct {
	Data   []byte
	DType  tensor.DType
	Layout tensor.Layout
}

// at returns the element at an index of the memory.
func (w Weight) at(i int) float32 {
	p := unsafe.Add(unsafe.Pointer(unsafe.SliceData(w.Data)), i*w.DType.Size())
	switch w.DType {
	case tensor.Float16:
		return tensor.Float16ToFloat32(*(*uint16)(p))
	case tensor.BFloat16:
		return tensor.BFloat16ToFloat32(*(*uint16)(p))
	}
	return *(*float32)(p)
}

// Args are the operands of a convolution.
type Args struct {
	// X is the input, Y the output, which is always in blocks. They do not overlap.
	X, Y []float32
	// XStrides are the strides of a planar input's four dimensions; all zero is contiguous.
	XStrides [4]int
	// Packed is the weight as Pack writes it. Where it is nil, Weight is used: the same bits come out, later.
	Packed []float32
	Weight Weight
	Epilogue
	// Work is scratch memory of WorkBytes.
	Work []float32
}

// A Conv is a convolution of one geometry. It is immutable: any number of goroutines may use it.
type Conv struct {
	Geometry
	algorithm Algorithm
}

// New returns the convolution of a geometry, with the fastest algorithm and the fastest instructions of the processor.
// It panics if the geometry cannot be: see [Supports].
func New(g Geometry) *Conv {
	if err := Supports(g); err != nil {
		panic("BUG: blocked: " + err.Error())
	}
	return &Conv{Geometry: g, algorithm: Direct}
}

// Supports returns why a convolution cannot be computed here.
func Supports(g Geometry) error {
	for _, n := range []int{
		g.In, g.Out, g.Groups, g.Height, g.Width, g.OutHeight, g.OutWidth, g.KernelH, g.KernelW, g.StrideH, g.StrideW,
		g.DilationH, g.DilationW,
	} {
		if n < 1 {
			return fmt.Errorf("geometry %+v", g)
		}
	}
	switch {
	case g.Batch < 0 || g.PadTop < 0 || g.PadLeft < 0 || g.In%g.Groups != 0 || g.Out%g.Groups != 0:
		return fmt.Errorf("geometry %+v", g)
	case g.Planar && g.Groups != 1:
		return fmt.Errorf("%d groups of a planar input", g.Groups)
	}
	return nil
}

// Algorithm returns how the convolution is computed. It depends on the geometry alone.
func (c *Conv) Algorithm() Algorithm { return c.algorithm }

// PackedBytes is the size of the packed weights.
func (c *Conv) PackedBytes() int64 {
	return 4 * int64(c.Out) * int64(c.In/c.Groups) * int64(c.KernelH) * int64(c.KernelW)
}

// Form names the form of the packed weights: those of equal forms are equal for equal weights.
func (c *Conv) Form() string { return "oihw" }

// PackStep returns how many output channels a piece of the packed weights holds, 0 where the weights are no pieces of
// equal size, of which each can be packed by itself (see layers.Pack).
func (c *Conv) PackStep() int { return 0 }

// WorkBytes is the scratch memory that Run needs on a pool of the given number of threads, with packed weights or raw.
func (c *Conv) WorkBytes(threads int, packed bool) int64 {
	if packed {
		return 0
	}
	return c.PackedBytes()
}

// Pack writes weights in the form that Run reads fastest.
func (c *Conv) Pack(_ Pool, w Weight, packed []float32) {
	l, i := w.Layout, 0
	for o := range l.Shape[0] {
		for n := range l.Shape[1] {
			for y := range l.Shape[2] {
				for x := range l.Shape[3] {
					packed[i] = w.at(l.Offset + o*l.Strides[0] + n*l.Strides[1] + y*l.Strides[2] + x*l.Strides[3])
					i++
				}
			}
		}
	}
}

// Run computes the convolution. It returns early, with the context's error, when that is cancelled.
func (c *Conv) Run(ctx context.Context, pool Pool, a Args) error {
	if a.Packed == nil {
		a.Packed = a.Work[:c.PackedBytes()/4]
		c.Pack(pool, a.Weight, a.Packed)
	}
	pool.For(c.Batch*Blocks(c.Out), 1, func(from, to int) {
		for i := from; i < to && ctx.Err() == nil; i++ {
			c.plain(a, i/Blocks(c.Out), i%Blocks(c.Out))
		}
	})
	return ctx.Err()
}

// plain computes a block of output channels of an image, one output after another.
func (c *Conv) plain(a Args, n, block int) {
	strides := a.XStrides
	if strides == ([4]int{}) {
		strides = [4]int{c.In * c.Height * c.Width, c.Height * c.Width, c.Width, 1}
	}
	groupIn, groupOut := c.In/c.Groups, c.Out/c.Groups
	read := func(ch, y, x int) float32 {
		if c.Planar {
			return a.X[n*strides[0]+ch*strides[1]+y*strides[2]+x*strides[3]]
		}
		return a.X[(((n*Blocks(c.In)+ch/Lanes)*c.Height+y)*c.Width+x)*Lanes+ch%Lanes]
	}
	for p := range c.OutHeight * c.OutWidth {
		oy, ox := p/c.OutWidth, p%c.OutWidth
		out := ((n*Blocks(c.Out)+block)*c.OutHeight*c.OutWidth + p) * Lanes
		for lane := range Lanes {
			o := block*Lanes + lane
			if o >= c.Out {
				a.Y[out+lane] = 0
				continue
			}
			sum := 0.0
			for i := range groupIn {
				for ky := range c.KernelH {
					y := oy*c.StrideH - c.PadTop + ky*c.DilationH
					if y < 0 || y >= c.Height {
						continue
					}
					for kx := range c.KernelW {
						x := ox*c.StrideW - c.PadLeft + kx*c.DilationW
						if x < 0 || x >= c.Width {
							continue
						}
						w := a.Packed[((o*groupIn+i)*c.KernelH+ky)*c.KernelW+kx]
						sum += float64(w) * float64(read(o/groupOut*groupIn+i, y, x))
					}
				}
			}
			v := float32(sum)
			if a.Scale != nil {
				v *= a.Scale[o]
			}
			if a.Shift != nil {
				v += a.Shift[o]
			}
			if a.Residual != nil {
				v += a.Residual[out+lane]
			}
			a.Y[out+lane] = a.Act.of(v, a.A, a.B)
		}
	}
}
