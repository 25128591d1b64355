package cpu

import (
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu/blocked"
	"github.com/optimem/optimem/internal/cpu/ops"
	"github.com/optimem/optimem/internal/cpu/tasks"
	"github.com/optimem/optimem/tensor"
)

// blockedKernels are ops over values in blocks, which only package arrange makes. Attribute "channels" is how many
// channels there are without the padding, "conv" the convolution.
var blockedKernels = map[graph.Kind]ops.Kernel{
	// conv over In[0] in blocks, or [N, C, H, W] where "planar" is set; In[7] in blocks. Of a linear over the channels of
	// each pixel the weight has two dimensions. Where "scaled" is set, In[3] multiplies sums and bias.
	"conv16": {
		Run: runConv16, WorkOn: convWorkBlocked, Packs: convPacksBlocked, Pack: packConvBlocked,
		Cost: conv16Cost, Label: conv16Label, Product: conv16Product, InPlace: conv16InPlace,
		Supports: func(in, _ []graph.Spec, a graph.Attrs) error { return precisionSupports(in, a) },
	},
	// A pointwise conv16 with attributes "first", and a depthwise one over its result with attributes "second":
	// [ConvOperands] of each, of which the second's first is absent.
	"expand16": {
		Run: runExpand16, WorkOn: expandWork, Packs: expandPacks, Pack: packExpand, Cost: expandCost,
	},
	// The pool that "pool" names.
	"pool16": {Run: runPool16, Cost: pool16Cost},
	// batch_norm, then an activation.
	"norm16": {Run: runNorm16, Work: norm16Work, Cost: blockedCost(2), InPlace: ops.OverFirst},
	// layer_norm of each pixel over its channels, a multiple of sixteen.
	"layer16": {Run: runLayer16, Work: layer16Work, Cost: blockedCost(7), InPlace: ops.OverFirst},
	"act16":   {Run: runAct16, Cost: blockedCost(1), InPlace: ops.OverFirst},
	// In[0] times a number for each channel of each image.
	"mul16": {Run: runMul16, Cost: blockedCost(1), InPlace: ops.OverFirst},
	// Channels of the operands behind each other; "counts" are theirs.
	"cat16": {Run: runCat16, Cost: blockedCost(0)},
	// "count" channels from "channel" on.
	"slice16": {Run: runSlice16, Cost: blockedCost(0)},
	// From [N, C, H, W] of any strides, and to it or, with "pixel_rows", to [N, H, W, C].
	"to16":   {Run: runTo16, Cost: blockedCost(0)},
	"from16": {Run: runFrom16, Cost: blockedCost(0)},
}

// floats16 returns the elements of a view from its first on. The view's memory is aligned for float32.
func floats16(v ops.View) []float32 {
	if v.Absent() {
		return nil
	}
	return ops.Elements[float32](v)[v.Layout.Offset:]
}

// blockedSizes returns the images, blocks, rows and columns of a value in blocks.
func blockedSizes(s tensor.Shape) (n, blocks, height, width int) { return s[0], s[1], s[2], s[3] }

// blockedCost returns the cost of ops that do so many operations for each element.
// Tables call it, and without its copies they compile faster.
//
//go:noinline
func blockedCost(flops int64) func(in, out []graph.Spec, a graph.Attrs) graph.Cost {
	return func(in, out []graph.Spec, _ graph.Attrs) graph.Cost {
		c := graph.Cost{FLOPs: flops * int64(ops.Volume(out[0].Shape))}
		for _, list := range [][]graph.Spec{in, out} {
			for _, s := range list {
				if s.DType != tensor.Invalid {
					c.Bytes += int64(ops.Volume(s.Shape)) * int64(s.DType.Size())
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
func scaleBytes(weight tensor.Shape) int64 { return int64(ops.RoundUp(8*weight[0], 64)) }

func convWorkBlocked(threads int, in, _ []graph.Spec, a graph.Attrs) int64 {
	return scaleBytes(in[1].Shape) + packedConvOf(a).WorkBytes(threads, false)
}

func conv16Cost(in, out []graph.Spec, a graph.Attrs) graph.Cost {
	c := blockedCost(0)(in, out, a)
	conv := conv16Of(a)
	c.FLOPs = 2 * int64(conv.Batch*conv.Out*conv.OutHeight*conv.OutWidth) * int64(ops.Volume(in[1].Shape[1:]))
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
func packConvBlocked(pool *ops.Pool, a graph.Attrs, _ graph.Pack, raw ops.View, dst []byte) error {
	packedConvOf(a).Pack(pool, weight16(raw, new(ops.WeightRoom)), ops.Elements[float32](ops.View{Data: dst}))
	return nil
}

// weight16 returns a weight as convolutions in blocks read it, with dimensions in room where it has fewer than four.
func weight16(v ops.View, room *ops.WeightRoom) blocked.Weight {
	l := v.Layout
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
	return blocked.Weight{Data: v.Data, DType: v.DType, Layout: l}
}

// args16 returns what a convolution over values in blocks is given but for its input and output. Its scales lie at the
// beginning of the work, and the rest is the convolution's.
func args16(c *ops.Call, conv *blocked.Conv, work []float32, room *ops.WeightRoom) (a blocked.Args) {
	if w := c.In[1]; w.Packed {
		a.Packed = floats16(ops.View{Data: w.Data, DType: tensor.Float32})
	} else {
		a.Weight = weight16(w, room)
	}
	a.Scale, a.Shift = channelScales(c, conv.Out, work)
	a.Residual = floats16(c.Operand(7))
	a.Act, a.A, a.B = actOf(c.Attrs)
	a.Work = work[int(scaleBytes(c.In[1].Shape()))/4:]
	return a
}

// runConv16 is runConv over values in blocks.
func runConv16(c *ops.Call) error {
	conv := conv16Of(c.Attrs)
	a := args16(c, conv, ops.Elements[float32](ops.View{Data: c.Work}), &c.Weights[0])
	a.X, a.Y = floats16(c.In[0]), floats16(c.Out[0])
	if conv.Planar {
		a.XStrides = planarStrides(c.In[0])
	}
	return conv.Run(c.Ctx, c.Pool, a)
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
		c.FLOPs += 2 * int64(conv.Batch*conv.Out*conv.OutHeight*conv.OutWidth) * int64(ops.Volume(w[1:]))
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
func packExpand(pool *ops.Pool, a graph.Attrs, p graph.Pack, raw ops.View, dst []byte) error {
	expansionOf(a).Convs()[p.In/ConvOperands].Pack(pool, weight16(raw, new(ops.WeightRoom)), ops.Elements[float32](ops.View{Data: dst}))
	return nil
}

// runExpand16 runs both convolutions.
func runExpand16(c *ops.Call) error {
	e := expansionOf(c.Attrs)
	work := ops.Elements[float32](ops.View{Data: c.Work})
	var args [2]blocked.Args
	for i, attrs := range expandAttrs(c.Attrs) {
		one := ops.Call{Attrs: attrs, In: c.In[i*ConvOperands : (i+1)*ConvOperands]}
		args[i] = args16(&one, e.Convs()[i], work, &c.Weights[i])
		work = args[i].Work
	}
	args[0].X, args[1].Y, args[0].Work = floats16(c.In[0]), floats16(c.Out[0]), work
	return e.Run(c.Ctx, c.Pool, args[0], args[1])
}

// planarStrides returns the strides of a value with images, channels, rows and columns, or one of lines.
func planarStrides(v ops.View) [4]int {
	s := v.Layout.Strides
	if len(s) == 4 {
		return [4]int{s[0], s[1], s[2], s[3]}
	}
	return [4]int{s[0], s[1], 0, s[2]}
}

// channelScales returns the scale and the shift of each output channel of a convolution with a bias and a batch norm, nil
// where they are one and zero; work has room for both.
func channelScales(c *ops.Call, n int, work []float32) (scale, shift []float32) {
	scale, shift = work[:n], work[n:2*n]
	bias := c.Operand(2)
	switch w := c.Operand(3); {
	case !w.Absent() && !c.Attrs.Bool("scaled"):
		normScales(scale, shift, w, c.In[4], c.In[5], c.In[6], c.Attrs.Float("eps"))
		for i := range shift {
			if !bias.Absent() {
				shift[i] += scale[i] * ops.Elements[float32](bias)[bias.Layout.Offset+i*bias.Layout.Strides[0]]
			}
		}
		return scale, shift
	case c.Attrs.Bool("scaled"):
		ops.LoadReal(scale, w, w.Layout.Offset, w.Layout.Strides[0])
		clear(shift)
		for i := range shift {
			if !bias.Absent() {
				shift[i] = scale[i] * ops.Elements[float32](bias)[bias.Layout.Offset+i*bias.Layout.Strides[0]]
			}
		}
		return scale, shift
	case !bias.Absent():
		ops.LoadReal(shift, bias, bias.Layout.Offset, bias.Layout.Strides[0])
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
		c.FLOPs = int64(ops.Volume(in[0].Shape))
	}
	return c
}

// runPool16 is runMaxPool and runAvgPool over values in blocks.
func runPool16(c *ops.Call) error {
	w := window16(c.In[0].Shape(), c.Out[0].Shape(), c.Attrs)
	x, y := floats16(c.In[0]), floats16(c.Out[0])
	switch c.Attrs.String("pool") {
	case "max_pool", "adaptive_max_pool":
		blocked.MaxPool(c.Pool, w, x, y)
	default:
		blocked.AvgPool(c.Pool, w, x, y)
	}
	return nil
}

func norm16Work(in, _ []graph.Spec, _ graph.Attrs) int64 {
	return int64(8 * in[0].Shape[1] * blocked.Lanes)
}

// runNorm16 is runBatchNorm over values in blocks, and the activation after it.
func runNorm16(c *ops.Call) error {
	channels := c.Attrs.Int("channels")
	work := ops.Elements[float32](ops.View{Data: c.Work})
	padded := c.In[0].Shape()[1] * blocked.Lanes
	scale, shift := work[:padded], work[padded:2*padded]
	clear(work[:2*padded])
	normScales(scale[:channels], shift[:channels], c.Operand(1), c.Operand(2), c.In[3], c.In[4], c.Attrs.Float("eps"))
	x, y := floats16(c.In[0]), floats16(c.Out[0])
	n, blocks, height, width := blockedSizes(c.Out[0].Shape())
	pixels := height * width
	act := activationLoop(c.Attrs)
	parts := (pixels + normPart - 1) / normPart
	tasks.Do(c.Pool, n*blocks*parts, max(1, ops.Grain/(normPart*blocked.Lanes)), norm16{
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
func runLayer16(c *ops.Call) error {
	n, blocks, height, width := blockedSizes(c.Out[0].Shape())
	channels := blocks * blocked.Lanes
	work := ops.Elements[float32](ops.View{Data: c.Work})
	w, b := work[:channels], work[channels:2*channels]
	for i := range w {
		w[i], b[i] = 1, 0
	}
	if v := c.Operand(1); !v.Absent() {
		ops.LoadReal(w, v, v.Layout.Offset, v.Layout.Strides[0])
	}
	if v := c.Operand(2); !v.Absent() {
		ops.LoadReal(b, v, v.Layout.Offset, v.Layout.Strides[0])
	}
	blocked.Norm(c.Pool, blocked.Normed{
		N: n, Channels: channels, Pixels: height * width, X: floats16(c.In[0]), Y: floats16(c.Out[0]), W: w, B: b,
		Eps: float32(c.Attrs.Float("eps")),
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
func runAct16(c *ops.Call) error {
	_, _, height, width := blockedSizes(c.Out[0].Shape())
	act, p, q := actOf(c.Attrs)
	x, y := floats16(c.In[0])[:c.In[0].Size()], floats16(c.Out[0])[:c.Out[0].Size()]
	blocked.Add(c.Pool, blocked.Sum{
		Channels: c.Attrs.Int("channels"), Pixels: height * width, X1: x, Y: y, Act: act, A: p, B: q,
	})
	return nil
}

func runMul16(c *ops.Call) error {
	_, _, height, width := blockedSizes(c.Out[0].Shape())
	n := c.Out[0].Size()
	blocked.Multiply(c.Pool, height*width, floats16(c.In[0])[:n], floats16(c.In[1]), floats16(c.Out[0])[:n])
	return nil
}

func runCat16(c *ops.Call) error {
	n, _, height, width := blockedSizes(c.Out[0].Shape())
	at, channels := 0, c.Attrs.Int("channels")
	for k, count := range c.Attrs.Ints("counts") {
		from := blocked.Channels{Data: floats16(c.In[k]), Of: count}
		to := blocked.Channels{Data: floats16(c.Out[0]), Of: channels, At: at}
		blocked.CopyChannels(c.Pool, n, height*width, count, from, to)
		at += count
	}
	return nil
}

func runSlice16(c *ops.Call) error {
	n, _, height, width := blockedSizes(c.Out[0].Shape())
	a := c.Attrs
	from := blocked.Channels{Data: floats16(c.In[0]), Of: a.Int("channels"), At: a.Int("channel")}
	to := blocked.Channels{Data: floats16(c.Out[0]), Of: a.Int("count")}
	blocked.CopyChannels(c.Pool, n, height*width, a.Int("count"), from, to)
	return nil
}

func runTo16(c *ops.Call) error {
	l := c.In[0].Layout
	s := l.Strides
	strides := [4]int{s[0], s[1], 0, s[len(s)-1]}
	if len(s) == 4 {
		strides[2] = s[2]
	}
	n, _, height, width := blockedSizes(c.Out[0].Shape())
	size := blocked.Size{N: n, Channels: c.Attrs.Int("channels"), Height: height, Width: width}
	if strides[1] == 1 {
		pixelBlocks(c.Pool, size, floats16(c.In[0]), strides, floats16(c.Out[0]))
		return nil
	}
	blocked.To(c.Pool, size, floats16(c.In[0]), strides, floats16(c.Out[0]))
	return nil
}

func runFrom16(c *ops.Call) error {
	n, blocks, height, width := blockedSizes(c.In[0].Shape())
	if c.Attrs.Bool("pixel_rows") {
		pixelRows(c.Pool, n, blocks, height*width, c.Attrs.Int("channels"), floats16(c.In[0]), floats16(c.Out[0]))
		return nil
	}
	size := blocked.Size{N: n, Channels: c.Attrs.Int("channels"), Height: height, Width: width}
	blocked.From(c.Pool, size, floats16(c.In[0]), floats16(c.Out[0]))
	return nil
}

// pixelRows writes the channels of a pixel side by side: [N, H, W, C] of a value in blocks.
func pixelRows(pool *ops.Pool, n, blocks, pixels, channels int, src, dst []float32) {
	parts := (pixels + rowsPart - 1) / rowsPart
	tasks.Do(pool, n*parts, max(1, ops.Grain/(rowsPart*channels)), pixelsOut{
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
func pixelBlocks(pool *ops.Pool, size blocked.Size, src []float32, strides [4]int, dst []float32) {
	tasks.Do(pool, size.N*size.Height, max(1, ops.Grain/(size.Width*size.Channels)), pixelsIn{
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
