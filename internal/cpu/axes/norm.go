package axes

import (
	"math"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu/ops"
	"github.com/optimem/optimem/internal/cpu/tasks"
	"github.com/optimem/optimem/tensor"
)

// normKernels compute statistics in float64 and round once.
var normKernels = map[graph.Kind]ops.Kernel{
	// (x − mean) ÷ √(var + eps) × w + b, torch.nn.functional.layer_norm; with each row's mean and variance.
	"layer_norm": {Run: func(c *ops.Call) error { return rowNorm(c, true) }, Work: parameterWork, InPlace: ops.OverFirst},
	// x ÷ √(mean of x² + eps) × w, torch.nn.functional.rms_norm.
	"rms_norm": {Run: func(c *ops.Call) error { return rowNorm(c, false) }, Work: parameterWork, InPlace: ops.OverFirst},
	// As layer_norm over the channels of a group and all positions; w and b for each channel, torch.native_group_norm.
	"group_norm": {Run: runGroupNorm, Work: parameterWork, InPlace: ops.OverFirst},
	// (x − mean) ÷ √(var + eps) × w + b with given means and variances of the channels, torch.batch_norm in evaluation.
	"batch_norm": {Run: runBatchNorm, Work: parameterWork, InPlace: ops.OverFirst},
}

// parameterWork is room for the parameters in float64.
func parameterWork(in, _ []graph.Spec, _ graph.Attrs) int64 {
	var n int64
	for _, s := range in[1:] {
		if s.DType != tensor.Invalid {
			n += int64(ops.Volume(s.Shape)) * 8
		}
	}
	return n
}

// parameter returns operand i in float64 from the scratch, nil where it is absent.
func parameter(c *ops.Call, s *ops.Scratch, i int) []float64 {
	if i >= len(c.In) || c.In[i].Absent() {
		return nil
	}
	p := ops.TakeReal[float64](s, c.In[i].Size())
	ops.LoadAll(p, c.In[i])
	return p
}

// rowNorm normalises over the last dimensions; centred by the mean, or not at all.
func rowNorm(c *ops.Call, centred bool) error {
	x, out, eps := c.In[0], c.Out[0], c.Attrs.Float("eps")
	s := ops.Scratch(c.Work)
	r := rowsOfCall(c, c.Attrs.Int("dims"))
	if r == nil && c.Pool.Set != nil && ops.IsSingle(x.DType) && x.Size() > 0 {
		// Rows whose elements lie apart are put in order first, where the result will be.
		ops.CopyView(c.Pool, out.Data, tensor.Layout{Offset: out.Layout.Offset}, x)
		c.In[0] = out
		x = out
		r = rowsOfCall(c, c.Attrs.Int("dims"))
	}
	if r != nil {
		r.do, r.eps, r.centred = normOf, eps, centred
		r.w, r.b = singleParameter(c, &s, 1), singleParameter(c, &s, 2)
		if pitch, even := ops.Evenly(r.at); even && pitch >= 0 && r.w != nil {
			r.many, r.pitch = normMany, pitch
		}
		r.run(c.Pool)
		return nil
	}
	w, b := parameter(c, &s, 1), parameter(c, &s, 2)
	at := len(x.Shape()) - c.Attrs.Int("dims")
	row := ops.WalkOf(tensor.Layout{Shape: x.Shape()[at:], Strides: x.Layout.Strides[at:]})
	if row.Size == 0 {
		return nil
	}
	first := tensor.Layout{Shape: x.Shape()[:at], Strides: x.Layout.Strides[:at], Offset: x.Layout.Offset}
	tasks.Do(c.Pool, ops.Volume(first.Shape), max(1, ops.Grain/row.Size), normedRows{
		x: x, out: out, first: first, row: row, w: w, b: b, eps: eps, centred: centred,
	})
	return nil
}

// normedRows is the task of rowNorm where rows are not computed with kernels: a part is some rows. first is where they
// begin.
type normedRows struct {
	x, out  ops.View
	first   tensor.Layout
	row     ops.Walk
	w, b    []float64
	eps     float64
	centred bool
}

// Run implements Task.
func (t *normedRows) Run(from, to int) {
	x, out, row := t.x, t.out, &t.row
	var room [ops.MostDims]int
	index, buffer := ops.IntsIn(room[:], row.Rank), ops.NewBlockBuffer()
	part := ops.BlockOf[float64](buffer)[:ops.Chunk]
	ops.LinesOf(t.first, from, to, func(at, first, stride, n int) {
		for i := range n {
			begin, end := (at+i)*row.Size, (at+i+1)*row.Size
			if x.DType == tensor.Float32 && row.Rank == 0 && row.Stride == 1 {
				src := ops.Elements[float32](x)[first+i*stride:][:row.Size]
				shift, scale := momentsOf(src, t.centred, t.eps)
				scaleRow(ops.Elements[float32](out)[begin:end], src, shift, scale, t.w, t.b)
				continue
			}
			shift, scale := moments(x, row, first+i*stride, index, part, t.centred, t.eps)
			to, k := begin, 0
			eachChunk(x, row, first+i*stride, index, part, func(part []float64) {
				for j := range part {
					part[j] = affine((part[j]-shift)*scale, t.w, t.b, k+j)
				}
				ops.StoreReal(out, to, part)
				to, k = to+len(part), k+len(part)
			})
		}
	})
	ops.BlockBuffers.Put(buffer)
}

// affine returns v × w[i] + b[i], without what is absent.
func affine(v float64, w, b []float64, i int) float64 {
	if w != nil {
		v *= w[i]
	}
	if b != nil {
		v += b[i]
	}
	return v
}

// scaleRow: out = (x − shift) × scale × w + b.
func scaleRow(out, x []float32, shift, scale float64, w, b []float64) {
	out = out[:len(x)]
	switch {
	case w != nil && b != nil:
		w, b = w[:len(x)], b[:len(x)]
		for i, v := range x {
			out[i] = float32((float64(v)-shift)*scale*w[i] + b[i])
		}
	case w != nil:
		w = w[:len(x)]
		for i, v := range x {
			out[i] = float32((float64(v) - shift) * scale * w[i])
		}
	default:
		for i, v := range x {
			out[i] = float32(affine((float64(v)-shift)*scale, nil, b, i))
		}
	}
}

// momentsOf returns what a row of float32 is shifted and scaled by: its mean, 0 where it is not centred, and
// 1 ÷ √(mean of squares + eps).
func momentsOf(x []float32, centred bool, eps float64) (shift, scale float64) {
	n := float64(len(x))
	if centred {
		shift = sumOf(x) / n
	}
	return shift, 1 / math.Sqrt(squaresOf(x, shift)/n+eps)
}

// sumOf: Σ x, in four interleaved sums.
func sumOf(x []float32) float64 {
	var a, b, c, d float64
	for len(x) >= 4 {
		a += float64(x[0])
		b += float64(x[1])
		c += float64(x[2])
		d += float64(x[3])
		x = x[4:]
	}
	for _, v := range x {
		a += float64(v)
	}
	return (a + b) + (c + d)
}

// squaresOf: Σ (x − shift)², in four interleaved sums.
func squaresOf(x []float32, shift float64) float64 {
	var a, b, c, d float64
	for len(x) >= 4 {
		p, q, r, s := float64(x[0])-shift, float64(x[1])-shift, float64(x[2])-shift, float64(x[3])-shift
		a += p * p
		b += q * q
		c += r * r
		d += s * s
		x = x[4:]
	}
	for _, v := range x {
		a += (float64(v) - shift) * (float64(v) - shift)
	}
	return (a + b) + (c + d)
}

// eachChunk gives body the elements that row walks from first, as many at a time as there is room for.
func eachChunk(x ops.View, row *ops.Walk, first int, index []int, room []float64, body func(part []float64)) {
	row.Lines(first, index, func(first int) {
		for k := 0; k < row.N; k += len(room) {
			part := room[:min(len(room), row.N-k)]
			ops.LoadReal(part, x, first+k*row.Stride, row.Stride)
			body(part)
		}
	})
}

// moments is momentsOf for any float dtype and strides.
func moments(
	x ops.View, row *ops.Walk, first int, index []int, room []float64, centred bool, eps float64,
) (shift, scale float64) {
	n := float64(row.Size)
	if centred {
		eachChunk(x, row, first, index, room, func(part []float64) { shift = sums.floats.fold(shift, part, 0) })
		shift /= n
	}
	var squares float64
	eachChunk(x, row, first, index, room, func(part []float64) { squares = deviations.fold(squares, part, shift) })
	return shift, 1 / math.Sqrt(squares/n+eps)
}

func runGroupNorm(c *ops.Call) error {
	x, out, eps, groups := c.In[0], c.Out[0], c.Attrs.Float("eps"), c.Attrs.Int("groups")
	s := ops.Scratch(c.Work)
	if r := groupRows(c, groups); r != nil {
		r.do, r.eps, r.centred = groupNormOf, eps, true
		r.channels, r.groups = x.Shape()[1], groups
		r.w, r.b = singleParameter(c, &s, 1), singleParameter(c, &s, 2)
		r.run(c.Pool)
		return nil
	}
	w, b := parameter(c, &s, 1), parameter(c, &s, 2)
	channels := x.Shape()[1] / groups
	plane := tensor.Layout{Shape: x.Shape()[2:], Strides: x.Layout.Strides[2:]}
	t := normedGroups{
		x: x, out: out, pixels: ops.WalkOf(plane), w: w, b: b, eps: eps, groups: groups, channels: channels,
	}
	var room [2][ops.MostDims]int
	t.group = ops.WalkOf(tensor.Layout{
		Shape:   append(append(room[0][:0], channels), plane.Shape...),
		Strides: append(append(room[1][:0], x.Layout.Strides[1]), plane.Strides...),
	})
	if t.group.Size == 0 {
		return nil
	}
	tasks.Do(c.Pool, x.Shape()[0]*groups, max(1, ops.Grain/t.group.Size), t)
	return nil
}

// normedGroups is the task of runGroupNorm where groups are not computed with kernels: a part is some groups.
type normedGroups struct {
	x, out           ops.View
	pixels, group    ops.Walk
	w, b             []float64
	eps              float64
	groups, channels int
}

// Run implements Task.
func (t *normedGroups) Run(from, to int) {
	x, group, groups, channels := t.x, &t.group, t.groups, t.channels
	var rooms [2][ops.MostDims]int
	index, inner := ops.IntsIn(rooms[0][:], group.Rank), ops.IntsIn(rooms[1][:], t.pixels.Rank)
	buffer := ops.NewBlockBuffer()
	part := ops.BlockOf[float64](buffer)[:ops.Chunk]
	for i := from; i < to; i++ {
		first := x.Layout.Offset + i/groups*x.Layout.Strides[0] + i%groups*channels*x.Layout.Strides[1]
		var shift, scale float64
		if x.DType == tensor.Float32 && group.Rank == 0 && group.Stride == 1 {
			shift, scale = momentsOf(ops.Elements[float32](x)[first:first+group.Size], true, t.eps)
		} else {
			shift, scale = moments(x, group, first, index, part, true, t.eps)
		}
		for ch := range channels {
			gain := affine(scale, t.w, nil, i%groups*channels+ch)
			add := affine(0, nil, t.b, i%groups*channels+ch)
			at, to := first+ch*x.Layout.Strides[1], (i*channels+ch)*t.pixels.Size
			scalePlane(x, t.out, &t.pixels, inner, part, at, to, shift, gain, add)
		}
	}
	ops.BlockBuffers.Put(buffer)
}

// scalePlane: out = (x − shift) × gain + add for the elements that pixels walks from first.
func scalePlane(
	x, out ops.View, pixels *ops.Walk, index []int, room []float64, first, to int, shift, gain, add float64,
) {
	if x.DType == tensor.Float32 && pixels.Rank == 0 && pixels.Stride == 1 {
		src := ops.Elements[float32](x)[first:][:pixels.Size]
		dst := ops.Elements[float32](out)[to:][:pixels.Size]
		for i, v := range src {
			dst[i] = float32((float64(v)-shift)*gain + add)
		}
		return
	}
	eachChunk(x, pixels, first, index, room, func(part []float64) {
		for i, v := range part {
			part[i] = (v-shift)*gain + add
		}
		ops.StoreReal(out, to, part)
		to += len(part)
	})
}

func runBatchNorm(c *ops.Call) error {
	x, out, eps := c.In[0], c.Out[0], c.Attrs.Float("eps")
	if x.Size() == 0 {
		return nil
	}
	s := ops.Scratch(c.Work)
	w, b, mean, gain := parameter(c, &s, 1), parameter(c, &s, 2), parameter(c, &s, 3), parameter(c, &s, 4)
	for i, v := range gain {
		gain[i] = affine(1/math.Sqrt(v+eps), w, nil, i)
	}
	channels := x.Shape()[1]
	if ops.Volume(x.Shape()[2:]) > 1 {
		if r := rowsOfCall(c, len(x.Shape())-2); r != nil {
			r.do, r.mean, r.gain, r.add, r.channels = batchNormOf, mean, gain, b, channels
			r.run(c.Pool)
			return nil
		}
	}
	pixels := ops.WalkOf(tensor.Layout{Shape: x.Shape()[2:], Strides: x.Layout.Strides[2:]})
	if pixels.Size == 1 {
		tasks.Do(c.Pool, x.Shape()[0], max(1, ops.Grain/channels), normedPixels{x: x, out: out, mean: mean, gain: gain, add: b})
		return nil
	}
	tasks.Do(c.Pool, x.Shape()[0]*channels, max(1, ops.Grain/pixels.Size), normedPlanes{
		x: x, out: out, pixels: pixels, mean: mean, gain: gain, add: b,
	})
	return nil
}

// normedPlanes is the task of runBatchNorm where channels are not computed with kernels: a part is some planes.
type normedPlanes struct {
	x, out          ops.View
	pixels          ops.Walk
	mean, gain, add []float64
}

// Run implements Task.
func (t *normedPlanes) Run(from, to int) {
	x, channels := t.x, len(t.mean)
	var rooms [ops.MostDims]int
	index, buffer := ops.IntsIn(rooms[:], t.pixels.Rank), ops.NewBlockBuffer()
	part := ops.BlockOf[float64](buffer)[:ops.Chunk]
	for i := from; i < to; i++ {
		n, ch := i/channels, i%channels
		first := x.Layout.Offset + n*x.Layout.Strides[0] + ch*x.Layout.Strides[1]
		add := affine(0, nil, t.add, ch)
		scalePlane(x, t.out, &t.pixels, index, part, first, i*t.pixels.Size, t.mean[ch], t.gain[ch], add)
	}
	ops.BlockBuffers.Put(buffer)
}

// normedPixels is the task of runBatchNorm where each channel has one element: a part is some of the batch.
type normedPixels struct {
	x, out          ops.View
	mean, gain, add []float64
}

// Run implements Task.
func (t *normedPixels) Run(from, to int) {
	x, channels, stride := t.x, len(t.mean), t.x.Layout.Strides[1]
	var buf [ops.Chunk]float64
	for n := from; n < to; n++ {
		for ch := 0; ch < channels; ch += ops.Chunk {
			part := buf[:min(ops.Chunk, channels-ch)]
			ops.LoadReal(part, x, x.Layout.Offset+n*x.Layout.Strides[0]+ch*stride, stride)
			for i, v := range part {
				part[i] = affine((v-t.mean[ch+i])*t.gain[ch+i], nil, t.add, ch+i)
			}
			ops.StoreReal(t.out, n*channels+ch, part)
		}
	}
}
