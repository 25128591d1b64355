package cpu

import (
	"errors"
	"fmt"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu/ops"
	"github.com/optimem/optimem/internal/cpu/tasks"
	"github.com/optimem/optimem/tensor"
)

// convKernels are the convolutions. Floats are products of matrices: the weight by the input's windows, which are
// written side by side block by block while they are packed. Convolutions of single channels and of integers are loops.
var convKernels = map[graph.Kind]ops.Kernel{
	"conv": {Run: runConv, Work: convWork, Supports: convSupports},
}

// convSupports refuses convolutions whose scratch memory or time no machine has. Shapes can be that large when operands
// are expanded.
func convSupports(in, out []graph.Spec, a graph.Attrs) error {
	if err := ops.OnlyNumbers(in, out, a); err != nil {
		return err
	}
	if a.Bool("channels_last") {
		if len(in) > 3 || a.String("act") != "" {
			return errors.New("nothing ends convolutions with their channels last")
		}
		out = []graph.Spec{{DType: out[0].DType, Shape: planarShape(out[0].Shape)}}
	}
	if err := epilogueSupports(in, out, a); err != nil {
		return err
	}
	if err := precisionSupports(in, a); err != nil {
		return err
	}
	g := convolutionOf(in[0].Shape, in[1].Shape, out[0].Shape, in[0].DType, a)
	size := 1.0
	for _, n := range slices.Concat([]int{g.outputs, max(g.inputs, 1)}, g.kernel[:]) {
		size *= float64(n)
	}
	pixels := g.out
	if g.transposed {
		pixels = g.in
	}
	for _, n := range pixels {
		size *= float64(n)
	}
	if size > 1<<53 {
		return fmt.Errorf("%.3g multiplications for input %v and weight %v", size, in[0].Shape, in[1].Shape)
	}
	return nil
}

// A convolution is the geometry of a conv, over three dimensions of which the first may have size one.
type convolution struct {
	batch, groups int
	// inputs and outputs are the channels of one group.
	inputs, outputs int
	in, out, kernel [3]int
	stride, padding [3]int
	dilation        [3]int
	transposed      bool
	dtype           tensor.DType
}

func convolutionOf(x, w, out tensor.Shape, d tensor.DType, a graph.Attrs) *convolution {
	g := new(convolution)
	g.set(x, w, out, d, a)
	return g
}

func (g *convolution) set(x, w, out tensor.Shape, d tensor.DType, a graph.Attrs) {
	*g = convolution{
		batch: x[0], groups: a.Int("groups"), in: ops.Threes(x[2:], 1), out: ops.Threes(out[2:], 1), kernel: ops.Threes(w[2:], 1),
		stride: ops.Threes(a.Ints("stride"), 1), padding: ops.Threes(a.Ints("padding"), 0),
		dilation: ops.Threes(a.Ints("dilation"), 1), transposed: a.Bool("transposed"), dtype: d,
	}
	g.inputs, g.outputs = x[1]/g.groups, out[1]/g.groups
}

// taps returns the number of elements of a kernel for one channel.
func (g *convolution) taps() int { return ops.Volume(g.kernel[:]) }

// pixels returns the number of elements of a channel of the result.
func (g *convolution) pixels() int { return ops.Volume(g.out[:]) }

// depthwise reports whether each output reads one channel, which a loop computes faster than a product does.
func (g *convolution) depthwise() bool {
	return g.inputs == 1 && g.groups > 1 && !g.transposed && !ops.IsHalf(g.dtype)
}

// product returns the sizes of the product of matrices for one group of one image.
func (g *convolution) product() (m, n, k int) {
	if g.transposed {
		return g.outputs * g.taps(), ops.Volume(g.in[:]), g.inputs
	}
	return g.outputs, g.pixels(), g.inputs * g.taps()
}

// column bounds: how many columns of a product that is not written to the result at once are computed together.
const (
	halfColumns        = 4096
	transposedElements = 1 << 20
)

// columns returns how many columns of the product are computed at a time.
func (g *convolution) columns() int {
	m, n, _ := g.product()
	switch {
	case g.transposed:
		return min(n, max(64, transposedElements/m))
	case ops.IsHalf(g.dtype):
		return min(n, halfColumns)
	}
	return n
}

// work returns the scratch memory for one group of one image.
func (g *convolution) work() int64 {
	m, _, k := g.product()
	n, size := g.columns(), ops.RealBytes(g.dtype)
	bytes := int64(ops.RoundUp(int(gemmWork(m, n, k, size)), 8)) + ops.ScratchBytes(size, g.outputs) // the bias
	if g.transposed {
		bytes += ops.ScratchBytes(size, m*n)
		if ops.IsHalf(g.dtype) {
			bytes += ops.ScratchBytes(size, g.outputs*g.pixels())
		}
	} else if ops.IsHalf(g.dtype) {
		bytes += ops.ScratchBytes(size, m*n)
	}
	return bytes
}

// slots returns how many groups and images are computed side by side, each by one thread; 1 is one after the other,
// each by all threads.
func (g *convolution) slots() int {
	const small, most = 1 << 22, 16
	m, n, k := g.product()
	items := g.batch * g.groups
	if items < 4 || float64(m)*float64(n)*float64(k) > small {
		return 1
	}
	return min(items, most)
}

func convWork(in, out []graph.Spec, a graph.Attrs) int64 {
	if a.Bool("channels_last") {
		planar := graph.Spec{DType: out[0].DType, Shape: planarShape(out[0].Shape)}
		return planarBytes(planar.DType, planar.Shape) + planarConvWork(in, []graph.Spec{planar}, a)
	}
	return planarConvWork(in, out, a)
}

// planarShape is the shape N×C×space of one that is N×space×C, planarBytes the scratch memory for its elements.
func planarShape(s tensor.Shape) tensor.Shape {
	last := len(s) - 1
	return append(tensor.Shape{s[0], s[last]}, s[1:last]...)
}

func planarBytes(d tensor.DType, s tensor.Shape) int64 {
	return int64(ops.RoundUp(ops.Volume(s)*d.Size(), 64))
}

// A planarCall is the call of a convolution as if its channels were not the last. room has the dimensions of the result in
// scratch memory, and where its elements go.
type planarCall struct {
	ops.Call
	result [1]ops.View
	room   [3][ops.MostDims]int
}

// runConvLast computes a convolution with its channels last: in scratch memory first.
func runConvLast(c *ops.Call) error {
	p, out, l := tasks.Take[planarCall](), c.Out[0], c.Out[0].Layout
	rank := len(l.Shape)
	shape, strides, to := p.room[0][:rank], p.room[1][:rank], p.room[2][:rank]
	for d := range shape {
		from := d - 1
		switch d {
		case 0:
			from = 0
		case 1:
			from = rank - 1
		}
		shape[d], to[d] = l.Shape[from], l.Strides[from]
	}
	for d, n := rank-1, 1; d >= 0; d-- {
		strides[d] = n
		n *= shape[d]
	}
	p.Call = *c
	p.result[0] = ops.View{
		Data: c.Work[:ops.Volume(shape)*out.DType.Size()], DType: out.DType, Layout: tensor.Layout{Shape: shape, Strides: strides},
	}
	p.Call.Out, p.Call.Work = p.result[:], c.Work[planarBytes(out.DType, shape):]
	err := runPlanarConv(&p.Call)
	if err == nil {
		ops.CopyView(c.Pool, out.Data, tensor.Layout{Shape: shape, Strides: to, Offset: l.Offset}, p.result[0])
	}
	*p = planarCall{}
	tasks.Give(p)
	return err
}

func planarConvWork(in, out []graph.Spec, a graph.Attrs) int64 {
	g := convolutionOf(in[0].Shape, in[1].Shape, out[0].Shape, in[0].DType, a)
	if !ops.IsReal(g.dtype) || ops.Volume(out[0].Shape) == 0 {
		return 0
	}
	bytes := convEpilogueBytes(in, out)
	if !g.depthwise() {
		bytes += g.work() * int64(g.slots())
	}
	return bytes
}

// runConv: out[n,o,p] = bias[o] + Σ in[n, c, p·stride − padding + t·dilation] · weight[o,c,t] over the channels c of
// o's group and the taps t, with zeros outside of the input; transposed, in[n,c,q] · weight[c,o,t] is added at q·stride
// − padding + t·dilation. PyTorch's conv1d to conv3d, conv_transpose1d to conv_transpose3d.
func runConv(c *ops.Call) error {
	if c.Attrs.Bool("channels_last") {
		return runConvLast(c)
	}
	return runPlanarConv(c)
}

func runPlanarConv(c *ops.Call) error {
	if c.Out[0].Size() == 0 {
		return nil
	}
	g := tasks.Take[convolution]()
	g.set(c.In[0].Shape(), c.In[1].Shape(), c.Out[0].Shape(), c.In[0].DType, c.Attrs)
	err := g.run(c)
	tasks.Give(g)
	return err
}

func (g *convolution) run(c *ops.Call) error {
	switch g.dtype {
	case tensor.Int8:
		convIntegers[int8](c, g)
	case tensor.UInt8:
		convIntegers[uint8](c, g)
	case tensor.Int16:
		convIntegers[int16](c, g)
	case tensor.Int32:
		convIntegers[int32](c, g)
	case tensor.Int64:
		convIntegers[int64](c, g)
	case tensor.Float64:
		convReal[float64](c, g)
	case tensor.Float32, tensor.Float16, tensor.BFloat16:
		convReal[float32](c, g)
	default:
		return fmt.Errorf("a convolution of %v", g.dtype)
	}
	return nil
}

func convReal[T ops.Real](c *ops.Call, g *convolution) {
	work := ops.Scratch(c.Work)
	last, ends := convEpilogue(c, &work)
	if g.depthwise() {
		convDepthwise[T](c, g, last, ends)
		return
	}
	items, slots := g.batch*g.groups, g.slots()
	t := convItems[T]{c: c, g: g, last: last, ends: ends, items: items, slots: slots, work: work, size: g.work()}
	if slots > 1 {
		tasks.Do(c.Pool, slots, 1, t)
		return
	}
	for item := range items {
		if c.Ctx.Err() != nil {
			return
		}
		t.item(item, c.Pool, work)
	}
}

// convItems is the task of convReal where groups of images are computed side by side: a part is every so many of them.
type convItems[T ops.Real] struct {
	c            *ops.Call
	g            *convolution
	last         epilogue
	ends         bool
	items, slots int
	work         ops.Scratch
	size         int64
}

// Run implements Task.
func (t *convItems[T]) Run(from, to int) {
	for slot := from; slot < to; slot++ {
		part := t.work[int64(slot)*t.size:][:t.size]
		for item := slot; item < t.items; item += t.slots {
			t.item(item, nil, part)
		}
	}
}

// item computes a group of an image, by all threads where there is a pool.
func (t *convItems[T]) item(item int, p *ops.Pool, work ops.Scratch) {
	g, image, group := t.g, item/t.g.groups, item%t.g.groups
	if g.transposed {
		convTransposedItem[T](t.c, g, image, group, p, work)
	} else {
		convItem[T](t.c, g, image, group, p, work)
	}
	if t.ends {
		t.last.planes(p, t.c.Out[0], image, group*g.outputs, g.outputs, g.pixels())
	}
}

// convFactors are the factors of a convolution's product, kept from one to the next.
type convFactors[T ops.Real] struct {
	weight, pixels        matrix[T]
	weightGrid, pixelGrid grid[T]
	windows               windows[T]
}

func (f *convFactors[T]) release() {
	*f = convFactors[T]{}
	tasks.Give(f)
}

// convItem computes one group of one image as weight · windows.
func convItem[T ops.Real](c *ops.Call, g *convolution, image, group int, p *ops.Pool, work ops.Scratch) {
	m, n, k := g.product()
	x, out := c.In[0], c.Out[0]
	first := x.Layout.Offset + image*x.Layout.Strides[0] + group*g.inputs*x.Layout.Strides[1]
	f := tasks.Take[convFactors[T]]()
	defer f.release()
	weight := convWeight(f, g, c.In[1], group)
	bias := convBias[T](g, c.In[2], group, &work)
	at := (image*g.groups + group) * m * n
	if !ops.IsHalf(g.dtype) {
		result := ops.Elements[T](out)[out.Layout.Offset+at:][:m*n]
		gemm(p, m, n, k, weight, convWindows(f, g, x, first, 0), result, n, gemmOptions[T]{rowBias: bias}, work)
		return
	}
	step := g.columns()
	sums := ops.TakeReal[T](&work, m*step)
	for from := 0; from < n; from += step {
		some := min(step, n-from)
		gemm(p, m, some, k, weight, convWindows(f, g, x, first, from), sums, some, gemmOptions[T]{rowBias: bias}, work)
		tasks.Do(orAlone(p), m, 1, roundedRows[T]{
			out: out, at: out.Layout.Offset + at + from, pitch: n, sums: sums, n: some,
		})
	}
}

// alone is a pool of the caller's goroutine, for tasks within tasks.
type alone struct{}

// Do implements tasks.Pool.
func (alone) Do(n, _ int, task ops.Task) { task.Run(0, n) }

// orAlone returns a pool, that of the caller alone for none.
func orAlone(p *ops.Pool) tasks.Pool {
	if p == nil {
		return alone{}
	}
	return p
}

// roundedRows is the task of storing sums as halves: a part is a row of n, which begin pitch apart from at on.
type roundedRows[T ops.Real] struct {
	out          ops.View
	at, pitch, n int
	sums         []T
}

// Run implements Task.
func (t *roundedRows[T]) Run(from, to int) {
	for i := from; i < to; i++ {
		ops.StoreReal(t.out, t.at+i*t.pitch, t.sums[i*t.n:(i+1)*t.n])
	}
}

// convTransposedItem computes weightᵀ · input for some input pixels at a time and adds the columns to where they
// belong.
func convTransposedItem[T ops.Real](c *ops.Call, g *convolution, image, group int, p *ops.Pool, work ops.Scratch) {
	m, n, k := g.product()
	x, out := c.In[0], c.Out[0]
	first := x.Layout.Offset + image*x.Layout.Strides[0] + group*g.inputs*x.Layout.Strides[1]
	f := tasks.Take[convFactors[T]]()
	defer f.release()
	weight := convWeight(f, g, c.In[1], group)
	bias := convBias[T](g, c.In[2], group, &work)
	pixels := g.pixels()
	at := out.Layout.Offset + (image*g.groups+group)*g.outputs*pixels
	var sums []T
	if ops.IsHalf(g.dtype) {
		sums = ops.TakeReal[T](&work, g.outputs*pixels)
	} else {
		sums = ops.Elements[T](out)[at:][:g.outputs*pixels]
	}
	for o := range g.outputs {
		plane := sums[o*pixels:][:pixels]
		var b T
		if bias != nil {
			b = bias[o]
		}
		for i := range plane {
			plane[i] = b
		}
	}
	step := g.columns()
	columns := ops.TakeReal[T](&work, m*step)
	for from := 0; from < n; from += step {
		some := min(step, n-from)
		gemm(p, m, some, k, weight, convPixels(f, g, x, first, from), columns, some, gemmOptions[T]{}, work)
		tasks.Do(orAlone(p), g.outputs, 1, addedTaps[T]{g: g, sums: sums, columns: columns, from: from, n: some})
	}
	if ops.IsHalf(g.dtype) {
		ops.StoreReal(out, at, sums)
	}
}

// addedTaps is the task of adding n columns of products, of input pixels from pixel from on: a part is a plane of sums.
type addedTaps[T ops.Real] struct {
	g             *convolution
	sums, columns []T
	from, n       int
}

// Run implements Task.
func (t *addedTaps[T]) Run(from, to int) {
	pixels, taps := t.g.pixels(), t.g.taps()
	for o := from; o < to; o++ {
		for tap := range taps {
			addTap(t.g, t.sums[o*pixels:][:pixels], t.columns[(o*taps+tap)*t.n:][:t.n], tap, t.from)
		}
	}
}

// addTap adds a line of products, those of tap t with the input pixels from pixel from on, to a plane of the result.
func addTap[T ops.Real](g *convolution, plane, line []T, t, from int) {
	kx, ky, kz := t%g.kernel[2], t/g.kernel[2]%g.kernel[1], t/g.kernel[2]/g.kernel[1]
	width := g.in[2]
	for i := 0; i < len(line); {
		ix := (from + i) % width
		row := (from + i) / width
		n := min(width-ix, len(line)-i)
		oz := row/g.in[1]*g.stride[0] - g.padding[0] + kz*g.dilation[0]
		oy := row%g.in[1]*g.stride[1] - g.padding[1] + ky*g.dilation[1]
		if oz >= 0 && oz < g.out[0] && oy >= 0 && oy < g.out[1] {
			ox := ix*g.stride[2] - g.padding[2] + kx*g.dilation[2]
			lo, hi := ops.Inside(ox, g.stride[2], n, g.out[2])
			dst := plane[(oz*g.out[1]+oy)*g.out[2]:][:g.out[2]]
			at := ox + lo*g.stride[2]
			for _, v := range line[i+lo : i+hi] {
				dst[at] += v
				at += g.stride[2]
			}
		}
		i += n
	}
}
