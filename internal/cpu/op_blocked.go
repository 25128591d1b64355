package cpu

import (
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu/blocked"
	"github.com/optimem/optimem/internal/cpu/tasks"
	"github.com/optimem/optimem/tensor"
)

// blockedKernels are ops over values in blocks, which only package arrange makes. Attribute "channels" is how many
// channels there are without the padding, "conv" the convolution.
var blockedKernels = map[graph.Kind]kernel{
	// conv over In[0] in blocks, or [N, C, H, W] where "planar" is set; In[7] in blocks. Of a linear over the channels of
	// each pixel the weight has two dimensions. Where "scaled" is set, In[3] multiplies sums and bias.
	"conv16": {
		run: runConv16, workOn: convWorkBlocked, packs: convPacksBlocked, pack: packConvBlocked,
		cost: conv16Cost, label: conv16Label, product: conv16Product, inPlace: conv16InPlace,
		supports: func(in, _ []graph.Spec, a graph.Attrs) error { return precisionSupports(in, a) },
	},
	// A pointwise conv16 with attributes "first", and a depthwise one over its result with attributes "second":
	// [ConvOperands] of each, of which the second's first is absent.
	"expand16": {
		run: runExpand16, workOn: expandWork, packs: expandPacks, pack: packExpand, cost: expandCost,
	},
	// The pool that "pool" names.
	"pool16": {run: runPool16, cost: pool16Cost},
	// batch_norm, then an activation.
	"norm16": {run: runNorm16, work: norm16Work, cost: blockedCost(2), inPlace: overFirst},
	// layer_norm of each pixel over its channels, a multiple of sixteen.
	"layer16": {run: runLayer16, work: layer16Work, cost: blockedCost(7), inPlace: overFirst},
	"act16":   {run: runAct16, cost: blockedCost(1), inPlace: overFirst},
	// In[0] times a number for each channel of each image.
	"mul16": {run: runMul16, cost: blockedCost(1), inPlace: overFirst},
	// Channels of the operands behind each other; "counts" are theirs.
	"cat16": {run: runCat16, cost: blockedCost(0)},
	// "count" channels from "channel" on.
	"slice16": {run: runSlice16, cost: blockedCost(0)},
	// From [N, C, H, W] of any strides, and to it or, with "pixel_rows", to [N, H, W, C].
	"to16":   {run: runTo16, cost: blockedCost(0)},
	"from16": {run: runFrom16, cost: blockedCost(0)},
}

// floats16 returns the elements of a view from its first on. The view's memory is aligned for float32.
func floats16(v view) []float32 {
	if v.absent() {
		return nil
	}
	return elements[float32](v)[v.layout.Offset:]
}

// blockedSizes returns the images, blocks, rows and columns of a value in blocks.
func blockedSizes(s tensor.Shape) (n, blocks, height, width int) { return s[0], s[1], s[2], s[3] }

// blockedCost returns the cost of ops that do so many operations for each element.
// Tables call it, and without its copies they compile faster.
//
//go:noinline
func blockedCost(flops int64) func(in, out []graph.Spec, a graph.Attrs) graph.Cost {
	return func(in, out []graph.Spec, _ graph.Attrs) graph.Cost {
		c := graph.Cost{FLOPs: flops * int64(volume(out[0].Shape))}
		for _, list := range [][]graph.Spec{in, out} {
			for _, s := range list {
				if s.DType != tensor.Invalid {
					c.Bytes += int64(volume(s.Shape)) * int64(s.DType.Size())
				}
			}
		}
		return c
	}
}

// conv16Of returns the convolution that attributes hold.
func conv16Of(a graph.Attrs) *blocked.Conv { return a["conv"].(*blocked.Conv) }

// conv16InPlace lets the result lie over the residual where the convolution does.
func conv16InPlace(in, _ []graph.Spec, a graph.Attrs) []int {
	if len(in) > 7 && in[7].DType != tensor.Invalid && conv16Of(a).ResidualInPlace() {
		return []int{7}
	}
	return nil
}

// A packedConv is a convolution that attributes hold, of either width of blocks, as far as its memory goes.
type packedConv interface {
	WorkBytes(threads int, packed bool) int64
	PackedBytes() int64
	Form() string
	PackStep() int
	Pack(pool blocked.Pool, w blocked.Weight, packed []float32)
}

func packedConvOf(a graph.Attrs) packedConv { return a["conv"].(packedConv) }

func conv16Label(a graph.Attrs) string { return "conv16_" + conv16Of(a).Algorithm().String() }

// conv16Product is of a class of its own for each algorithm. A result's channels are two dimensions of it, and with their
// padding not as many as the weight has.
func conv16Product(in, out []graph.Spec, a graph.Attrs) graph.Product {
	n, _, height, width := blockedSizes(out[0].Shape)
	return graph.ConvProduct(conv16Label(a), in[1].Shape, int64(n)*int64(height)*int64(width), a)
}

// scaleBytes is the scratch for a scale and a shift of each output channel of a weight.
func scaleBytes(weight tensor.Shape) int64 { return int64(roundUp(8*weight[0], 64)) }

func convWorkBlocked(threads int, in, _ []graph.Spec, a graph.Attrs) int64 {
	return scaleBytes(in[1].Shape) + packedConvOf(a).WorkBytes(threads, false)
}

func conv16Cost(in, out []graph.Spec, a graph.Attrs) graph.Cost {
	c := blockedCost(0)(in, out, a)
	conv := conv16Of(a)
	c.FLOPs = 2 * int64(conv.Batch*conv.Out*conv.OutHeight*conv.OutWidth) * int64(volume(in[1].Shape[1:]))
	switch conv.Algorithm() { // multiplications that are not made, less the transforms
	case blocked.Winograd4:
		c.FLOPs = c.FLOPs * 2 / 5
	case blocked.Winograd2:
		c.FLOPs = c.FLOPs * 3 / 5
	}
	return c
}

func convPacksBlocked(in, _ []graph.Spec, a graph.Attrs) []graph.Pack {
	conv := packedConvOf(a)
	_, rounds := conv.(*blocked.UnitConv)
	return []graph.Pack{{
		In: 1, Bytes: conv.PackedBytes(), Form: conv.Form(), Step: conv.PackStep(),
		Copy: rounds && in[1].DType == tensor.Float32,
	}}
}

// packConvBlocked writes the weights, or a few output channels of them, as the form says.
func packConvBlocked(pool *Pool, a graph.Attrs, _ graph.Pack, raw view, dst []byte) error {
	packedConvOf(a).Pack(pool, weight16(raw, new(weightRoom)), elements[float32](view{data: dst}))
	return nil
}

// A weightRoom is memory for the dimensions of a weight.
type weightRoom [2][4]int

// weight16 returns a weight as convolutions in blocks read it, with dimensions in room where it has fewer than four.
func weight16(v view, room *weightRoom) blocked.Weight {
	l := v.layout
	switch len(l.Shape) {
	case 2:
		room[0] = [4]int{l.Shape[0], l.Shape[1], 1, 1}
		room[1] = [4]int{l.Strides[0], l.Strides[1], 1, 1}
		l.Shape, l.Strides = room[0][:], room[1][:]
	case 3:
		room[0] = [4]int{l.Shape[0], l.Shape[1], 1, l.Shape[2]}
		room[1] = [4]int{l.Strides[0], l.Strides[1], 0, l.Strides[2]}
		l.Shape, l.Strides = room[0][:], room[1][:]
	}
	return blocked.Weight{Data: v.data, DType: v.dtype, Layout: l}
}

// args16 returns what a convolution over values in blocks is given but for its input and output. Its scales lie at the
// beginning of the work, and the rest is the convolution's.
func (c *call) args16(conv *blocked.Conv, work []float32, room *weightRoom) (a blocked.Args) {
	if w := c.in[1]; w.packed {
		a.Packed = floats16(view{data: w.data, dtype: tensor.Float32})
	} else {
		a.Weight = weight16(w, room)
	}
	a.Scale, a.Shift = c.channelScales(conv.Out, work)
	a.Residual = floats16(c.operand(7))
	a.Act, a.A, a.B = actOf(c.attrs)
	a.Work = work[int(scaleBytes(c.in[1].shape()))/4:]
	return a
}

// runConv16 is runConv over values in blocks.
func runConv16(c *call) error {
	conv := conv16Of(c.attrs)
	a := c.args16(conv, elements[float32](view{data: c.work}), &c.weights[0])
	a.X, a.Y = floats16(c.in[0]), floats16(c.out[0])
	if conv.Planar {
		a.XStrides = planarStrides(c.in[0])
	}
	return conv.Run(c.ctx, c.pool, a)
}

// ConvOperands is how many operands each convolution of an "expand16" has: as many as a conv can have.
const ConvOperands = 8

func expansionOf(a graph.Attrs) *blocked.Expansion { return a["expansion"].(*blocked.Expansion) }

// expandAttrs returns the attributes of an expansion's convolutions.
func expandAttrs(a graph.Attrs) [2]graph.Attrs {
	return [2]graph.Attrs{a["first"].(graph.Attrs), a["second"].(graph.Attrs)}
}

func expandWork(threads int, in, _ []graph.Spec, a graph.Attrs) int64 {
	return scaleBytes(in[1].Shape) + scaleBytes(in[ConvOperands+1].Shape) + expansionOf(a).WorkBytes(threads, false)
}

func expandCost(in, out []graph.Spec, a graph.Attrs) graph.Cost {
	c := blockedCost(0)(in, out, a)
	for i, conv := range expansionOf(a).Convs() {
		w := in[i*ConvOperands+1].Shape
		c.FLOPs += 2 * int64(conv.Batch*conv.Out*conv.OutHeight*conv.OutWidth) * int64(volume(w[1:]))
	}
	return c
}

func expandPacks(in, _ []graph.Spec, a graph.Attrs) []graph.Pack {
	var packs []graph.Pack
	for i, conv := range expansionOf(a).Convs() {
		packs = append(packs, graph.Pack{
			In: i*ConvOperands + 1, Bytes: conv.PackedBytes(), Form: conv.Form(), Step: conv.PackStep(),
		})
	}
	return packs
}

// packExpand writes the weights of one of the convolutions.
func packExpand(pool *Pool, a graph.Attrs, p graph.Pack, raw view, dst []byte) error {
	expansionOf(a).Convs()[p.In/ConvOperands].Pack(pool, weight16(raw, new(weightRoom)), elements[float32](view{data: dst}))
	return nil
}

// runExpand16 runs both convolutions.
func runExpand16(c *call) error {
	e := expansionOf(c.attrs)
	work := elements[float32](view{data: c.work})
	var args [2]blocked.Args
	for i, attrs := range expandAttrs(c.attrs) {
		one := call{attrs: attrs, in: c.in[i*ConvOperands : (i+1)*ConvOperands]}
		args[i] = one.args16(e.Convs()[i], work, &c.weights[i])
		work = args[i].Work
	}
	args[0].X, args[1].Y, args[0].Work = floats16(c.in[0]), floats16(c.out[0]), work
	return e.Run(c.ctx, c.pool, args[0], args[1])
}

// planarStrides returns the strides of a value with images, channels, rows and columns, or one of lines.
func planarStrides(v view) [4]int {
	s := v.layout.Strides
	if len(s) == 4 {
		return [4]int{s[0], s[1], s[2], s[3]}
	}
	return [4]int{s[0], s[1], 0, s[2]}
}

// channelScales returns the scale and the shift of each output channel of a convolution with a bias and a batch norm, nil
// where they are one and zero; work has room for both.
func (c *call) channelScales(n int, work []float32) (scale, shift []float32) {
	scale, shift = work[:n], work[n:2*n]
	bias := c.operand(2)
	switch w := c.operand(3); {
	case !w.absent() && !c.attrs.Bool("scaled"):
		normScales(scale, shift, w, c.in[4], c.in[5], c.in[6], c.attrs.Float("eps"))
		for i := range shift {
			if !bias.absent() {
				shift[i] += scale[i] * elements[float32](bias)[bias.layout.Offset+i*bias.layout.Strides[0]]
			}
		}
		return scale, shift
	case c.attrs.Bool("scaled"):
		loadReal(scale, w, w.layout.Offset, w.layout.Strides[0])
		clear(shift)
		for i := range shift {
			if !bias.absent() {
				shift[i] = scale[i] * elements[float32](bias)[bias.layout.Offset+i*bias.layout.Strides[0]]
			}
		}
		return scale, shift
	case !bias.absent():
		loadReal(shift, bias, bias.layout.Offset, bias.layout.Strides[0])
		return nil, shift
	}
	return nil, nil
}

// actOf returns the activation that attributes name.
func actOf(a graph.Attrs) (act blocked.Act, p, q float32) {
	act, ok := blocked.ActOf(a.String("act"))
	if !ok {
		panic("BUG: activation " + a.String("act"))
	}
	return act, float32(a.Float("act_a")), float32(a.Float("act_b"))
}

// window16 returns the geometry of a pool.
func window16(in, out tensor.Shape, a graph.Attrs) blocked.Window {
	n, _, height, width := blockedSizes(in)
	_, _, outHeight, outWidth := blockedSizes(out)
	two := func(name string, fill int) (int, int) {
		switch v := a.Ints(name); len(v) {
		case 1:
			return fill, v[0]
		case 2:
			return v[0], v[1]
		}
		return fill, fill
	}
	w := blocked.Window{
		Batch: n, Channels: a.Int("channels"), Height: height, Width: width, OutHeight: outHeight, OutWidth: outWidth,
		IncludePad: a.Bool("count_include_pad"), Divisor: a.Int("divisor"), Adaptive: a.Ints("kernel") == nil,
	}
	w.KernelH, w.KernelW = two("kernel", 1)
	w.StrideH, w.StrideW = two("stride", 1)
	w.PadTop, w.PadLeft = two("padding", 0)
	w.DilationH, w.DilationW = two("dilation", 1)
	w.PadBottom, w.PadRight = w.PadTop, w.PadLeft
	return w
}

func pool16Cost(in, out []graph.Spec, a graph.Attrs) graph.Cost {
	w := window16(in[0].Shape, out[0].Shape, a)
	c := blockedCost(int64(w.KernelH*w.KernelW))(in, out, a)
	if w.Adaptive {
		c.FLOPs = int64(volume(in[0].Shape))
	}
	return c
}

// runPool16 is runMaxPool and runAvgPool over values in blocks.
func runPool16(c *call) error {
	w := window16(c.in[0].shape(), c.out[0].shape(), c.attrs)
	x, y := floats16(c.in[0]), floats16(c.out[0])
	switch c.attrs.String("pool") {
	case "max_pool", "adaptive_max_pool":
		blocked.MaxPool(c.pool, w, x, y)
	default:
		blocked.AvgPool(c.pool, w, x, y)
	}
	return nil
}

func norm16Work(in, _ []graph.Spec, _ graph.Attrs) int64 {
	return int64(8 * in[0].Shape[1] * blocked.Lanes)
}

// runNorm16 is runBatchNorm over values in blocks, and the activation after it.
func runNorm16(c *call) error {
	channels := c.attrs.Int("channels")
	work := elements[float32](view{data: c.work})
	padded := c.in[0].shape()[1] * blocked.Lanes
	scale, shift := work[:padded], work[padded:2*padded]
	clear(work[:2*padded])
	normScales(scale[:channels], shift[:channels], c.operand(1), c.operand(2), c.in[3], c.in[4], c.attrs.Float("eps"))
	x, y := floats16(c.in[0]), floats16(c.out[0])
	n, blocks, height, width := blockedSizes(c.out[0].shape())
	pixels := height * width
	act := activationLoop(c.attrs)
	parts := (pixels + normPart - 1) / normPart
	tasks.Do(c.pool, n*blocks*parts, max(1, grain/(normPart*blocked.Lanes)), norm16{
		x: x, y: y, scale: scale, shift: shift, blocks: blocks, pixels: pixels, parts: parts, act: act,
	})
	if act != nil {
		zeroPadding(channels, n, blocks, pixels, y)
	}
	return nil
}

// normPart is how many pixels a norm16 computes at a time, which stay in the cache.
const normPart = 64

// norm16 is the task of runNorm16: a part is some pixels of a plane.
type norm16 struct {
	x, y, scale, shift    []float32
	blocks, pixels, parts int
	act                   func(dst []float32, in [][]float32)
}

// Run implements Task.
func (t *norm16) Run(from, to int) {
	x, y := t.x, t.y
	operands := tasks.Take[[1][]float32]()
	for i := from; i < to; i++ {
		plane, first := i/t.parts, i%t.parts*normPart
		at, end := (plane*t.pixels+first)*blocked.Lanes, (plane*t.pixels+min(first+normPart, t.pixels))*blocked.Lanes
		scale := (*[blocked.Lanes]float32)(t.scale[plane%t.blocks*blocked.Lanes:])
		shift := (*[blocked.Lanes]float32)(t.shift[plane%t.blocks*blocked.Lanes:])
		done := y[at:end]
		for ; at < end; at += blocked.Lanes {
			in, out := (*[blocked.Lanes]float32)(x[at:]), (*[blocked.Lanes]float32)(y[at:])
			for l := range out {
				out[l] = float32(in[l]*scale[l]) + shift[l]
			}
		}
		if t.act != nil {
			operands[0] = done
			t.act(done, operands[:])
		}
	}
	operands[0] = nil
	tasks.Give(operands)
}

func layer16Work(in, _ []graph.Spec, _ graph.Attrs) int64 {
	return int64(8 * in[0].Shape[1] * blocked.Lanes)
}

// runLayer16 is a layer_norm over the channels of each pixel.
func runLayer16(c *call) error {
	n, blocks, height, width := blockedSizes(c.out[0].shape())
	channels := blocks * blocked.Lanes
	work := elements[float32](view{data: c.work})
	w, b := work[:channels], work[channels:2*channels]
	for i := range w {
		w[i], b[i] = 1, 0
	}
	if v := c.operand(1); !v.absent() {
		loadReal(w, v, v.layout.Offset, v.layout.Strides[0])
	}
	if v := c.operand(2); !v.absent() {
		loadReal(b, v, v.layout.Offset, v.layout.Strides[0])
	}
	blocked.Norm(c.pool, blocked.Normed{
		N: n, Channels: channels, Pixels: height * width, X: floats16(c.in[0]), Y: floats16(c.out[0]), W: w, B: b,
		Eps: float32(c.attrs.Float("eps")),
	})
	return nil
}

// zeroPadding makes the lanes beyond the channels zero.
func zeroPadding(channels, n, blocks, pixels int, y []float32) {
	used := channels % blocked.Lanes
	if used == 0 {
		return
	}
	for image := range n {
		last := y[(image*blocks+blocks-1)*pixels*blocked.Lanes:][:pixels*blocked.Lanes]
		for at := 0; at < len(last); at += blocked.Lanes {
			clear(last[at+used : at+blocked.Lanes])
		}
	}
}

// runAct16 is an activation of values whose padding it would change.
func runAct16(c *call) error {
	_, _, height, width := blockedSizes(c.out[0].shape())
	act, p, q := actOf(c.attrs)
	x, y := floats16(c.in[0])[:c.in[0].size()], floats16(c.out[0])[:c.out[0].size()]
	blocked.Add(c.pool, blocked.Sum{
		Channels: c.attrs.Int("channels"), Pixels: height * width, X1: x, Y: y, Act: act, A: p, B: q,
	})
	return nil
}

func runMul16(c *call) error {
	_, _, height, width := blockedSizes(c.out[0].shape())
	n := c.out[0].size()
	blocked.Multiply(c.pool, height*width, floats16(c.in[0])[:n], floats16(c.in[1]), floats16(c.out[0])[:n])
	return nil
}

func runCat16(c *call) error {
	n, _, height, width := blockedSizes(c.out[0].shape())
	at, channels := 0, c.attrs.Int("channels")
	for k, count := range c.attrs.Ints("counts") {
		from := blocked.Channels{Data: floats16(c.in[k]), Of: count}
		to := blocked.Channels{Data: floats16(c.out[0]), Of: channels, At: at}
		blocked.CopyChannels(c.pool, n, height*width, count, from, to)
		at += count
	}
	return nil
}

func runSlice16(c *call) error {
	n, _, height, width := blockedSizes(c.out[0].shape())
	a := c.attrs
	from := blocked.Channels{Data: floats16(c.in[0]), Of: a.Int("channels"), At: a.Int("channel")}
	to := blocked.Channels{Data: floats16(c.out[0]), Of: a.Int("count")}
	blocked.CopyChannels(c.pool, n, height*width, a.Int("count"), from, to)
	return nil
}

func runTo16(c *call) error {
	l := c.in[0].layout
	s := l.Strides
	strides := [4]int{s[0], s[1], 0, s[len(s)-1]}
	if len(s) == 4 {
		strides[2] = s[2]
	}
	n, _, height, width := blockedSizes(c.out[0].shape())
	size := blocked.Size{N: n, Channels: c.attrs.Int("channels"), Height: height, Width: width}
	if strides[1] == 1 {
		pixelBlocks(c.pool, size, floats16(c.in[0]), strides, floats16(c.out[0]))
		return nil
	}
	blocked.To(c.pool, size, floats16(c.in[0]), strides, floats16(c.out[0]))
	return nil
}

func runFrom16(c *call) error {
	n, blocks, height, width := blockedSizes(c.in[0].shape())
	if c.attrs.Bool("pixel_rows") {
		pixelRows(c.pool, n, blocks, height*width, c.attrs.Int("channels"), floats16(c.in[0]), floats16(c.out[0]))
		return nil
	}
	size := blocked.Size{N: n, Channels: c.attrs.Int("channels"), Height: height, Width: width}
	blocked.From(c.pool, size, floats16(c.in[0]), floats16(c.out[0]))
	return nil
}

// pixelRows writes the channels of a pixel side by side: [N, H, W, C] of a value in blocks.
func pixelRows(pool *Pool, n, blocks, pixels, channels int, src, dst []float32) {
	parts := (pixels + rowsPart - 1) / rowsPart
	tasks.Do(pool, n*parts, max(1, grain/(rowsPart*channels)), pixelsOut{
		blocks: blocks, pixels: pixels, channels: channels, parts: parts, src: src, dst: dst,
	})
}

// rowsPart is how many pixels are written side by side at a time.
const rowsPart = 32

// pixelsOut is the task of pixelRows: a part is some pixels.
type pixelsOut struct {
	blocks, pixels, channels, parts int
	src, dst                        []float32
}

// Run implements Task.
func (t *pixelsOut) Run(from, to int) {
	pixels, channels := t.pixels, t.channels
	for i := from; i < to; i++ {
		image, first := i/t.parts, i%t.parts*rowsPart
		end := min(first+rowsPart, pixels)
		for b := range t.blocks {
			in := t.src[(image*t.blocks+b)*pixels*blocked.Lanes:][:pixels*blocked.Lanes]
			used := min(blocked.Lanes, channels-b*blocked.Lanes)
			out := t.dst[image*pixels*channels+b*blocked.Lanes:]
			for p := first; p < end; p++ {
				copy(out[p*channels:][:used], in[p*blocked.Lanes:])
			}
		}
	}
}

// pixelBlocks writes a value in blocks that it reads by strides, where the channels of a pixel lie side by side.
func pixelBlocks(pool *Pool, size blocked.Size, src []float32, strides [4]int, dst []float32) {
	tasks.Do(pool, size.N*size.Height, max(1, grain/(size.Width*size.Channels)), pixelsIn{
		blocks: blocked.Blocks(size.Channels), height: size.Height, width: size.Width, channels: size.Channels,
		strides: strides, src: src, dst: dst,
	})
}

// pixelsIn is the task of pixelBlocks: a part is some rows.
type pixelsIn struct {
	blocks, height, width, channels int
	strides                         [4]int
	src, dst                        []float32
}

// Run implements Task.
func (t *pixelsIn) Run(from, to int) {
	for i := from; i < to; i++ {
		image, y := i/t.height, i%t.height
		for b := range t.blocks {
			used := min(blocked.Lanes, t.channels-b*blocked.Lanes)
			at := image*t.strides[0] + y*t.strides[2] + b*blocked.Lanes
			out := t.dst[((image*t.blocks+b)*t.height+y)*t.width*blocked.Lanes:][:t.width*blocked.Lanes]
			for x := range t.width {
				pixel := out[x*blocked.Lanes:][:blocked.Lanes]
				copy(pixel[:used], t.src[at+x*t.strides[3]:])
				clear(pixel[used:])
			}
		}
	}
}
