package cpu

import (
	"errors"
	"fmt"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu/tasks"
	"github.com/optimem/optimem/tensor"
)

// convKernels are the convolutions. Floats are products of matrices: the weight by the input's windows, which are
// written side by side block by block while they are packed. Convolutions of single channels and of integers are loops.
var convKernels = map[graph.Kind]kernel{
	"conv": {run: runConv, work: convWork, supports: convSupports},
}

// convSupports refuses convolutions whose scratch memory or time no machine has. Shapes can be that large when operands
// are expanded.
func convSupports(in, out []graph.Spec, a graph.Attrs) error {
	if err := onlyNumbers(in, out, a); err != nil {
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

// threes returns the last entries of a list that has up to three, after ones: fill.
func threes(list []int, fill int) (out [3]int) {
	for i := range out {
		out[i] = fill
		if k := i - (3 - len(list)); k >= 0 {
			out[i] = list[k]
		}
	}
	return out
}

func convolutionOf(x, w, out tensor.Shape, d tensor.DType, a graph.Attrs) *convolution {
	g := new(convolution)
	g.set(x, w, out, d, a)
	return g
}

func (g *convolution) set(x, w, out tensor.Shape, d tensor.DType, a graph.Attrs) {
	*g = convolution{
		batch: x[0], groups: a.Int("groups"), in: threes(x[2:], 1), out: threes(out[2:], 1), kernel: threes(w[2:], 1),
		stride: threes(a.Ints("stride"), 1), padding: threes(a.Ints("padding"), 0),
		dilation: threes(a.Ints("dilation"), 1), transposed: a.Bool("transposed"), dtype: d,
	}
	g.inputs, g.outputs = x[1]/g.groups, out[1]/g.groups
}

// taps returns the number of elements of a kernel for one channel.
func (g *convolution) taps() int { return volume(g.kernel[:]) }

// pixels returns the number of elements of a channel of the result.
func (g *convolution) pixels() int { return volume(g.out[:]) }

// depthwise reports whether each output reads one channel, which a loop computes faster than a product does.
func (g *convolution) depthwise() bool {
	return g.inputs == 1 && g.groups > 1 && !g.transposed && !isHalf(g.dtype)
}

// product returns the sizes of the product of matrices for one group of one image.
func (g *convolution) product() (m, n, k int) {
	if g.transposed {
		return g.outputs * g.taps(), volume(g.in[:]), g.inputs
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
	case isHalf(g.dtype):
		return min(n, halfColumns)
	}
	return n
}

// work returns the scratch memory for one group of one image.
func (g *convolution) work() int64 {
	m, _, k := g.product()
	n, size := g.columns(), realBytes(g.dtype)
	bytes := int64(roundUp(int(gemmWork(m, n, k, size)), 8)) + scratchBytes(size, g.outputs) // the bias
	if g.transposed {
		bytes += scratchBytes(size, m*n)
		if isHalf(g.dtype) {
			bytes += scratchBytes(size, g.outputs*g.pixels())
		}
	} else if isHalf(g.dtype) {
		bytes += scratchBytes(size, m*n)
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

func planarBytes(d tensor.DType, s tensor.Shape) int64 { return int64(roundUp(volume(s)*d.Size(), 64)) }

// A planarCall is the call of a convolution as if its channels were not the last. room has the dimensions of the result in
// scratch memory, and where its elements go.
type planarCall struct {
	call
	result [1]view
	room   [3][mostDims]int
}

// runConvLast computes a convolution with its channels last: in scratch memory first.
func runConvLast(c *call) error {
	p, out, l := tasks.Take[planarCall](), c.out[0], c.out[0].layout
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
	p.call = *c
	p.result[0] = view{
		data: c.work[:volume(shape)*out.dtype.Size()], dtype: out.dtype, layout: tensor.Layout{Shape: shape, Strides: strides},
	}
	p.call.out, p.call.work = p.result[:], c.work[planarBytes(out.dtype, shape):]
	err := runPlanarConv(&p.call)
	if err == nil {
		copyView(c.pool, out.data, tensor.Layout{Shape: shape, Strides: to, Offset: l.Offset}, p.result[0])
	}
	*p = planarCall{}
	tasks.Give(p)
	return err
}

func planarConvWork(in, out []graph.Spec, a graph.Attrs) int64 {
	g := convolutionOf(in[0].Shape, in[1].Shape, out[0].Shape, in[0].DType, a)
	if !isReal(g.dtype) || volume(out[0].Shape) == 0 {
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
func runConv(c *call) error {
	if c.attrs.Bool("channels_last") {
		return runConvLast(c)
	}
	return runPlanarConv(c)
}

func runPlanarConv(c *call) error {
	if c.out[0].size() == 0 {
		return nil
	}
	g := tasks.Take[convolution]()
	g.set(c.in[0].shape(), c.in[1].shape(), c.out[0].shape(), c.in[0].dtype, c.attrs)
	err := g.run(c)
	tasks.Give(g)
	return err
}

func (g *convolution) run(c *call) error {
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

func convReal[T real](c *call, g *convolution) {
	work := scratch(c.work)
	last, ends := convEpilogue(c, &work)
	if g.depthwise() {
		convDepthwise[T](c, g, last, ends)
		return
	}
	items, slots := g.batch*g.groups, g.slots()
	t := convItems[T]{c: c, g: g, last: last, ends: ends, items: items, slots: slots, work: work, size: g.work()}
	if slots > 1 {
		tasks.Do(c.pool, slots, 1, t)
		return
	}
	for item := range items {
		if c.ctx.Err() != nil {
			return
		}
		t.item(item, c.pool, work)
	}
}

// convItems is the task of convReal where groups of images are computed side by side: a part is every so many of them.
type convItems[T real] struct {
	c            *call
	g            *convolution
	last         epilogue
	ends         bool
	items, slots int
	work         scratch
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
func (t *convItems[T]) item(item int, p *Pool, work scratch) {
	g, image, group := t.g, item/t.g.groups, item%t.g.groups
	if g.transposed {
		convTransposedItem[T](t.c, g, image, group, p, work)
	} else {
		convItem[T](t.c, g, image, group, p, work)
	}
	if t.ends {
		t.last.planes(p, t.c.out[0], image, group*g.outputs, g.outputs, g.pixels())
	}
}

// convFactors are the factors of a convolution's product, kept from one to the next.
type convFactors[T real] struct {
	weight, pixels        matrix[T]
	weightGrid, pixelGrid grid[T]
	windows               windows[T]
}

func (f *convFactors[T]) release() {
	*f = convFactors[T]{}
	tasks.Give(f)
}

// convItem computes one group of one image as weight · windows.
func convItem[T real](c *call, g *convolution, image, group int, p *Pool, work scratch) {
	m, n, k := g.product()
	x, out := c.in[0], c.out[0]
	first := x.layout.Offset + image*x.layout.Strides[0] + group*g.inputs*x.layout.Strides[1]
	f := tasks.Take[convFactors[T]]()
	defer f.release()
	weight := convWeight(f, g, c.in[1], group)
	bias := convBias[T](g, c.in[2], group, &work)
	at := (image*g.groups + group) * m * n
	if !isHalf(g.dtype) {
		result := elements[T](out)[out.layout.Offset+at:][:m*n]
		gemm(p, m, n, k, weight, convWindows(f, g, x, first, 0), result, n, gemmOptions[T]{rowBias: bias}, work)
		return
	}
	step := g.columns()
	sums := takeReal[T](&work, m*step)
	for from := 0; from < n; from += step {
		some := min(step, n-from)
		gemm(p, m, some, k, weight, convWindows(f, g, x, first, from), sums, some, gemmOptions[T]{rowBias: bias}, work)
		tasks.Do(orAlone(p), m, 1, roundedRows[T]{
			out: out, at: out.layout.Offset + at + from, pitch: n, sums: sums, n: some,
		})
	}
}

// alone is a pool of the caller's goroutine, for tasks within tasks.
type alone struct{}

// Do implements tasks.Pool.
func (alone) Do(n, _ int, task Task) { task.Run(0, n) }

// orAlone returns a pool, that of the caller alone for none.
func orAlone(p *Pool) tasks.Pool {
	if p == nil {
		return alone{}
	}
	return p
}

// roundedRows is the task of storing sums as halves: a part is a row of n, which begin pitch apart from at on.
type roundedRows[T real] struct {
	out          view
	at, pitch, n int
	sums         []T
}

// Run implements Task.
func (t *roundedRows[T]) Run(from, to int) {
	for i := from; i < to; i++ {
		storeReal(t.out, t.at+i*t.pitch, t.sums[i*t.n:(i+1)*t.n])
	}
}

// convTransposedItem computes weightᵀ · input for some input pixels at a time and adds the columns to where they
// belong.
func convTransposedItem[T real](c *call, g *convolution, image, group int, p *Pool, work scratch) {
	m, n, k := g.product()
	x, out := c.in[0], c.out[0]
	first := x.layout.Offset + image*x.layout.Strides[0] + group*g.inputs*x.layout.Strides[1]
	f := tasks.Take[convFactors[T]]()
	defer f.release()
	weight := convWeight(f, g, c.in[1], group)
	bias := convBias[T](g, c.in[2], group, &work)
	pixels := g.pixels()
	at := out.layout.Offset + (image*g.groups+group)*g.outputs*pixels
	var sums []T
	if isHalf(g.dtype) {
		sums = takeReal[T](&work, g.outputs*pixels)
	} else {
		sums = elements[T](out)[at:][:g.outputs*pixels]
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
	columns := takeReal[T](&work, m*step)
	for from := 0; from < n; from += step {
		some := min(step, n-from)
		gemm(p, m, some, k, weight, convPixels(f, g, x, first, from), columns, some, gemmOptions[T]{}, work)
		tasks.Do(orAlone(p), g.outputs, 1, addedTaps[T]{g: g, sums: sums, columns: columns, from: from, n: some})
	}
	if isHalf(g.dtype) {
		storeReal(out, at, sums)
	}
}

// addedTaps is the task of adding n columns of products, of input pixels from pixel from on: a part is a plane of sums.
type addedTaps[T real] struct {
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
func addTap[T real](g *convolution, plane, line []T, t, from int) {
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
			lo, hi := inside(ox, g.stride[2], n, g.out[2])
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

// inside returns the range of i in [0, n) for which first + i·step lies in [0, size).
func inside(first, step, n, size int) (lo, hi int) {
	if first < 0 {
		lo = (-first + step - 1) / step
	}
	if first >= size {
		return 0, 0
	}
	hi = n
	if last := first + (n-1)*step; last >= size {
		hi = (size-first-1)/step + 1
	}
	if lo >= hi {
		return 0, 0
	}
	return lo, hi
}
