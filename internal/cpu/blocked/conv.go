package blocked

import (
	"context"
	"fmt"
	"unsafe"

	"github.com/optimem/optimem/internal/cpu/kernel"
	"github.com/optimem/optimem/internal/cpu/tasks"
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
	set       *kernel.ConvSet
	how       method
	// rawBytes bounds what is packed at a time of raw weights, and sharedBytes what is copied at once of pixels.
	rawBytes, sharedBytes int
	// cacheBytes is the size of a core's second cache. How work is cut depends on it, and no result does.
	cacheBytes int
	// fetches says that raw weights are fetched into the second cache while those before them are multiplied.
	fetches bool
}

// A method is an algorithm for one geometry.
type method interface {
	// form names the packed weights, pieces says of how many equal pieces they consist, and pieceFloats how large one is.
	form() string
	pieces() int
	pieceFloats() int
	// pack writes pieces [from, to) to dst, where the first of them begins.
	pack(pool Pool, w Weight, from, to int, dst []float32)
	// workFloats is the scratch memory that run needs.
	workFloats(threads int) int
	// run computes with some of the weights.
	run(ctx context.Context, pool Pool, p somePieces)
	// ownFloats is the scratch memory that runOwn needs, 0 where raw weights are packed by all threads together before
	// they compute: few, because they stay in the caches, and many for which a second cache has no room.
	ownFloats(threads int) int
	// runOwn computes with raw weights. Each thread packs those of some output channels and computes these: what it packed
	// it finds in its second cache, and memory is not written to. The bits are those of run.
	runOwn(ctx context.Context, pool Pool, a *Args, f *finish, work []float32)
}

// New returns the convolution of a geometry, with the fastest algorithm and the fastest instructions of the processor.
// It panics if the geometry cannot be: see [Supports].
func New(g Geometry) *Conv { return newConv(g, choose(g), kernel.ConvSets()[0]) }

// newConv returns a convolution by a given algorithm and instruction set.
func newConv(g Geometry, algorithm Algorithm, set *kernel.ConvSet) *Conv {
	return newConvIn(kernel.SecondCache(), g, algorithm, set)
}

// newConvIn is newConv for a second cache of given size.
func newConvIn(cacheBytes int, g Geometry, algorithm Algorithm, set *kernel.ConvSet) *Conv {
	if err := Supports(g); err != nil {
		panic("BUG: blocked: " + err.Error())
	}
	c := &Conv{
		Geometry: g, algorithm: algorithm, set: set, rawBytes: rawBytes, sharedBytes: sharedBytes,
		cacheBytes: cacheBytes,
		fetches:    kernel.FetchingPays(),
	}
	switch algorithm {
	case Winograd2, Winograd4:
		c.how = newWinograd(c, 2+2*int(algorithm-Winograd2))
	default:
		c.how = newDirect(c)
	}
	return c
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

// ResidualInPlace reports whether the residual may lie in the output's memory: each number of the output is written once,
// after its residual was read. Sums of many products are added up in the output, over what would be there.
func (c *Conv) ResidualInPlace() bool {
	d, ok := c.how.(*direct)
	return !ok || d.depthwise || d.steps <= d.partial
}

// PackedBytes is the size of the packed weights.
func (c *Conv) PackedBytes() int64 { return 4 * int64(c.how.pieces()) * int64(c.how.pieceFloats()) }

// Form names the form of the packed weights: those of equal forms are equal for equal weights.
func (c *Conv) Form() string { return c.how.form() }

// PackStep returns how many output channels a piece of the packed weights holds, 0 where a piece cannot be packed
// without knowing which it is (see graph.Pack).
func (c *Conv) PackStep() int {
	if c.Groups != 1 {
		return 0
	}
	return c.set.Columns
}

// WorkBytes is the scratch memory that Run needs on a pool of the given number of threads: with packed weights, or whether
// they are packed or raw.
func (c *Conv) WorkBytes(threads int, packed bool) int64 {
	n := c.how.workFloats(threads)
	if !packed {
		if own := c.how.ownFloats(threads); own > 0 {
			n = max(n, own)
		} else {
			n += c.rawPieces() * c.how.pieceFloats()
		}
	}
	return 4 * int64(finishFloats(c.Out)+n)
}

// rawBytes is the most that is packed at a time of raw weights.
const rawBytes = 8 << 20

// rawPieces is how many pieces of raw weights are packed at a time.
func (c *Conv) rawPieces() int {
	return min(c.how.pieces(), max(1, c.rawBytes/4/c.how.pieceFloats()))
}

// Pack writes weights in the form that Run reads fastest. Weights of a whole number of pieces are packed as these.
func (c *Conv) Pack(pool Pool, w Weight, packed []float32) {
	size := c.how.pieceFloats()
	pieces := len(packed) / size
	tasks.Do(pool, pieces, 1, packPieces{how: c.how, pool: pool, w: w, packed: packed})
}

// packPieces is packing pieces of weights from one on.
type packPieces struct {
	how    method
	pool   Pool
	w      Weight
	first  int
	packed []float32
}

// Run implements tasks.Task.
func (t *packPieces) Run(from, to int) {
	size := t.how.pieceFloats()
	t.how.pack(t.pool, t.w, t.first+from, t.first+to, t.packed[from*size:to*size])
}

// A convRun is the operands of a convolution being computed.
type convRun struct {
	args   Args
	finish finish
}

// Run computes the convolution. It returns early, with the context's error, when that is cancelled.
func (c *Conv) Run(ctx context.Context, pool Pool, a Args) error {
	if c.Batch == 0 {
		return ctx.Err()
	}
	if a.XStrides == ([4]int{}) {
		a.XStrides = [4]int{c.In * c.Height * c.Width, c.Height * c.Width, c.Width, 1}
	}
	c.check(&a)
	r := tasks.Take[convRun]()
	r.args = a
	c.compute(ctx, pool, r)
	*r = convRun{}
	tasks.Give(r)
	return ctx.Err()
}

// somePieces are pieces [from, to) of a convolution's weights, which begin at packed, and what is computed with them.
type somePieces struct {
	a            *Args
	f            *finish
	from, to     int
	packed, work []float32
}

func (c *Conv) compute(ctx context.Context, pool Pool, r *convRun) {
	a, f := &r.args, &r.finish
	f.of(c, a, a.Work[:finishFloats(c.Out)])
	work := a.Work[finishFloats(c.Out):]
	pieces, size := c.how.pieces(), c.how.pieceFloats()
	if a.Packed != nil {
		c.how.run(ctx, pool, somePieces{a: a, f: f, to: pieces, packed: a.Packed, work: work})
		return
	}
	if c.how.ownFloats(pool.Threads()) > 0 {
		c.how.runOwn(ctx, pool, a, f, work)
		return
	}
	step := c.rawPieces()
	packed := work[:step*size]
	work = work[step*size:]
	for from := 0; from < pieces && ctx.Err() == nil; from += step {
		to := min(from+step, pieces)
		tasks.Do(pool, to-from, 1, packPieces{how: c.how, pool: pool, w: a.Weight, first: from, packed: packed})
		c.how.run(ctx, pool, somePieces{a: a, f: f, from: from, to: to, packed: packed, work: work})
	}
}

// check panics unless the operands are as large as the geometry says: the kernels do not look.
func (c *Conv) check(a *Args) {
	x := Elements(c.Batch, c.In, c.Height, c.Width)
	if c.Planar {
		s := a.XStrides
		x = (c.Batch-1)*s[0] + (c.In-1)*s[1] + (c.Height-1)*s[2] + (c.Width-1)*s[3] + 1
	}
	y := Elements(c.Batch, c.Out, c.OutHeight, c.OutWidth)
	switch {
	case len(a.X) < x || len(a.Y) < y || a.Residual != nil && len(a.Residual) < y:
		panic("BUG: blocked: an operand is smaller than its geometry")
	case a.Packed != nil && 4*int64(len(a.Packed)) < c.PackedBytes():
		panic("BUG: blocked: packed weights are of another form")
	}
}
