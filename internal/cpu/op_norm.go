package cpu

import (
	"math"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu/tasks"
	"github.com/optimem/optimem/tensor"
)

// normKernels compute statistics in float64 and round once.
var normKernels = map[graph.Kind]kernel{
	// (x − mean) ÷ √(var + eps) × w + b, torch.nn.functional.layer_norm; with each row's mean and variance.
	"layer_norm": {run: func(c *call) error { return rowNorm(c, true) }, work: parameterWork, inPlace: overFirst},
	// x ÷ √(mean of x² + eps) × w, torch.nn.functional.rms_norm.
	"rms_norm": {run: func(c *call) error { return rowNorm(c, false) }, work: parameterWork, inPlace: overFirst},
	// As layer_norm over the channels of a group and all positions; w and b for each channel, torch.native_group_norm.
	"group_norm": {run: runGroupNorm, work: parameterWork, inPlace: overFirst},
	// (x − mean) ÷ √(var + eps) × w + b with given means and variances of the channels, torch.batch_norm in evaluation.
	"batch_norm": {run: runBatchNorm, work: parameterWork, inPlace: overFirst},
}

// parameterWork is room for the parameters in float64.
func parameterWork(in, _ []graph.Spec, _ graph.Attrs) int64 {
	var n int64
	for _, s := range in[1:] {
		if s.DType != tensor.Invalid {
			n += int64(volume(s.Shape)) * 8
		}
	}
	return n
}

// parameter returns operand i in float64 from the scratch, nil where it is absent.
func (c *call) parameter(s *scratch, i int) []float64 {
	if i >= len(c.in) || c.in[i].absent() {
		return nil
	}
	p := takeReal[float64](s, c.in[i].size())
	loadAll(p, c.in[i])
	return p
}

// rowNorm normalises over the last dimensions; centred by the mean, or not at all.
func rowNorm(c *call, centred bool) error {
	x, out, eps := c.in[0], c.out[0], c.attrs.Float("eps")
	s := scratch(c.work)
	r := rowsOfCall(c, c.attrs.Int("dims"))
	if r == nil && c.pool.set != nil && isSingle(x.dtype) && x.size() > 0 {
		// Rows whose elements lie apart are put in order first, where the result will be.
		copyView(c.pool, out.data, tensor.Layout{Offset: out.layout.Offset}, x)
		c.in[0] = out
		x = out
		r = rowsOfCall(c, c.attrs.Int("dims"))
	}
	if r != nil {
		r.do, r.eps, r.centred = normOf, eps, centred
		r.w, r.b = c.singleParameter(&s, 1), c.singleParameter(&s, 2)
		if pitch, even := evenly(r.at); even && pitch >= 0 && r.w != nil {
			r.many, r.pitch = normMany, pitch
		}
		r.run(c.pool)
		return nil
	}
	w, b := c.parameter(&s, 1), c.parameter(&s, 2)
	at := len(x.shape()) - c.attrs.Int("dims")
	row := walkOf(tensor.Layout{Shape: x.shape()[at:], Strides: x.layout.Strides[at:]})
	if row.size == 0 {
		return nil
	}
	first := tensor.Layout{Shape: x.shape()[:at], Strides: x.layout.Strides[:at], Offset: x.layout.Offset}
	tasks.Do(c.pool, volume(first.Shape), max(1, grain/row.size), normedRows{
		x: x, out: out, first: first, row: row, w: w, b: b, eps: eps, centred: centred,
	})
	return nil
}

// normedRows is the task of rowNorm where rows are not computed with kernels: a part is some rows. first is where they
// begin.
type normedRows struct {
	x, out  view
	first   tensor.Layout
	row     walk
	w, b    []float64
	eps     float64
	centred bool
}

// Run implements Task.
func (t *normedRows) Run(from, to int) {
	x, out, row := t.x, t.out, &t.row
	var room [mostDims]int
	index, buffer := intsIn(room[:], row.rank), newBlockBuffer()
	part := blockOf[float64](buffer)[:chunk]
	linesOf(t.first, from, to, func(at, first, stride, n int) {
		for i := range n {
			begin, end := (at+i)*row.size, (at+i+1)*row.size
			if x.dtype == tensor.Float32 && row.rank == 0 && row.stride == 1 {
				src := elements[float32](x)[first+i*stride:][:row.size]
				shift, scale := momentsOf(src, t.centred, t.eps)
				scaleRow(elements[float32](out)[begin:end], src, shift, scale, t.w, t.b)
				continue
			}
			shift, scale := moments(x, row, first+i*stride, index, part, t.centred, t.eps)
			to, k := begin, 0
			eachChunk(x, row, first+i*stride, index, part, func(part []float64) {
				for j := range part {
					part[j] = affine((part[j]-shift)*scale, t.w, t.b, k+j)
				}
				storeReal(out, to, part)
				to, k = to+len(part), k+len(part)
			})
		}
	})
	blockBuffers.Put(buffer)
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
func eachChunk(x view, row *walk, first int, index []int, room []float64, body func(part []float64)) {
	row.lines(first, index, func(first int) {
		for k := 0; k < row.n; k += len(room) {
			part := room[:min(len(room), row.n-k)]
			loadReal(part, x, first+k*row.stride, row.stride)
			body(part)
		}
	})
}

// moments is momentsOf for any float dtype and strides.
func moments(
	x view, row *walk, first int, index []int, room []float64, centred bool, eps float64,
) (shift, scale float64) {
	n := float64(row.size)
	if centred {
		eachChunk(x, row, first, index, room, func(part []float64) { shift = sums.floats.fold(shift, part, 0) })
		shift /= n
	}
	var squares float64
	eachChunk(x, row, first, index, room, func(part []float64) { squares = deviations.fold(squares, part, shift) })
	return shift, 1 / math.Sqrt(squares/n+eps)
}

func runGroupNorm(c *call) error {
	x, out, eps, groups := c.in[0], c.out[0], c.attrs.Float("eps"), c.attrs.Int("groups")
	s := scratch(c.work)
	if r := groupRows(c, groups); r != nil {
		r.do, r.eps, r.centred = groupNormOf, eps, true
		r.channels, r.groups = x.shape()[1], groups
		r.w, r.b = c.singleParameter(&s, 1), c.singleParameter(&s, 2)
		r.run(c.pool)
		return nil
	}
	w, b := c.parameter(&s, 1), c.parameter(&s, 2)
	channels := x.shape()[1] / groups
	plane := tensor.Layout{Shape: x.shape()[2:], Strides: x.layout.Strides[2:]}
	t := normedGroups{
		x: x, out: out, pixels: walkOf(plane), w: w, b: b, eps: eps, groups: groups, channels: channels,
	}
	var room [2][mostDims]int
	t.group = walkOf(tensor.Layout{
		Shape:   append(append(room[0][:0], channels), plane.Shape...),
		Strides: append(append(room[1][:0], x.layout.Strides[1]), plane.Strides...),
	})
	if t.group.size == 0 {
		return nil
	}
	tasks.Do(c.pool, x.shape()[0]*groups, max(1, grain/t.group.size), t)
	return nil
}

// normedGroups is the task of runGroupNorm where groups are not computed with kernels: a part is some groups.
type normedGroups struct {
	x, out           view
	pixels, group    walk
	w, b             []float64
	eps              float64
	groups, channels int
}

// Run implements Task.
func (t *normedGroups) Run(from, to int) {
	x, group, groups, channels := t.x, &t.group, t.groups, t.channels
	var rooms [2][mostDims]int
	index, inner := intsIn(rooms[0][:], group.rank), intsIn(rooms[1][:], t.pixels.rank)
	buffer := newBlockBuffer()
	part := blockOf[float64](buffer)[:chunk]
	for i := from; i < to; i++ {
		first := x.layout.Offset + i/groups*x.layout.Strides[0] + i%groups*channels*x.layout.Strides[1]
		var shift, scale float64
		if x.dtype == tensor.Float32 && group.rank == 0 && group.stride == 1 {
			shift, scale = momentsOf(elements[float32](x)[first:first+group.size], true, t.eps)
		} else {
			shift, scale = moments(x, group, first, index, part, true, t.eps)
		}
		for ch := range channels {
			gain := affine(scale, t.w, nil, i%groups*channels+ch)
			add := affine(0, nil, t.b, i%groups*channels+ch)
			at, to := first+ch*x.layout.Strides[1], (i*channels+ch)*t.pixels.size
			scalePlane(x, t.out, &t.pixels, inner, part, at, to, shift, gain, add)
		}
	}
	blockBuffers.Put(buffer)
}

// scalePlane: out = (x − shift) × gain + add for the elements that pixels walks from first.
func scalePlane(
	x, out view, pixels *walk, index []int, room []float64, first, to int, shift, gain, add float64,
) {
	if x.dtype == tensor.Float32 && pixels.rank == 0 && pixels.stride == 1 {
		src := elements[float32](x)[first:][:pixels.size]
		dst := elements[float32](out)[to:][:pixels.size]
		for i, v := range src {
			dst[i] = float32((float64(v)-shift)*gain + add)
		}
		return
	}
	eachChunk(x, pixels, first, index, room, func(part []float64) {
		for i, v := range part {
			part[i] = (v-shift)*gain + add
		}
		storeReal(out, to, part)
		to += len(part)
	})
}

func runBatchNorm(c *call) error {
	x, out, eps := c.in[0], c.out[0], c.attrs.Float("eps")
	if x.size() == 0 {
		return nil
	}
	s := scratch(c.work)
	w, b, mean, gain := c.parameter(&s, 1), c.parameter(&s, 2), c.parameter(&s, 3), c.parameter(&s, 4)
	for i, v := range gain {
		gain[i] = affine(1/math.Sqrt(v+eps), w, nil, i)
	}
	channels := x.shape()[1]
	if volume(x.shape()[2:]) > 1 {
		if r := rowsOfCall(c, len(x.shape())-2); r != nil {
			r.do, r.mean, r.gain, r.add, r.channels = batchNormOf, mean, gain, b, channels
			r.run(c.pool)
			return nil
		}
	}
	pixels := walkOf(tensor.Layout{Shape: x.shape()[2:], Strides: x.layout.Strides[2:]})
	if pixels.size == 1 {
		tasks.Do(c.pool, x.shape()[0], max(1, grain/channels), normedPixels{x: x, out: out, mean: mean, gain: gain, add: b})
		return nil
	}
	tasks.Do(c.pool, x.shape()[0]*channels, max(1, grain/pixels.size), normedPlanes{
		x: x, out: out, pixels: pixels, mean: mean, gain: gain, add: b,
	})
	return nil
}

// normedPlanes is the task of runBatchNorm where channels are not computed with kernels: a part is some planes.
type normedPlanes struct {
	x, out          view
	pixels          walk
	mean, gain, add []float64
}

// Run implements Task.
func (t *normedPlanes) Run(from, to int) {
	x, channels := t.x, len(t.mean)
	var rooms [mostDims]int
	index, buffer := intsIn(rooms[:], t.pixels.rank), newBlockBuffer()
	part := blockOf[float64](buffer)[:chunk]
	for i := from; i < to; i++ {
		n, ch := i/channels, i%channels
		first := x.layout.Offset + n*x.layout.Strides[0] + ch*x.layout.Strides[1]
		add := affine(0, nil, t.add, ch)
		scalePlane(x, t.out, &t.pixels, index, part, first, i*t.pixels.size, t.mean[ch], t.gain[ch], add)
	}
	blockBuffers.Put(buffer)
}

// normedPixels is the task of runBatchNorm where each channel has one element: a part is some of the batch.
type normedPixels struct {
	x, out          view
	mean, gain, add []float64
}

// Run implements Task.
func (t *normedPixels) Run(from, to int) {
	x, channels, stride := t.x, len(t.mean), t.x.layout.Strides[1]
	var buf [chunk]float64
	for n := from; n < to; n++ {
		for ch := 0; ch < channels; ch += chunk {
			part := buf[:min(chunk, channels-ch)]
			loadReal(part, x, x.layout.Offset+n*x.layout.Strides[0]+ch*stride, stride)
			for i, v := range part {
				part[i] = affine((v-t.mean[ch+i])*t.gain[ch+i], nil, t.add, ch+i)
			}
			storeReal(t.out, n*channels+ch, part)
		}
	}
}
