package blocked

import (
	"unsafe"

	"github.com/optimem/optimem/internal/cpu/kernel"
)

// hasDepthwise reports whether each output channel has one input channel, its own.
func hasDepthwise(g Geometry) bool { return !g.Planar && g.Groups == g.In && g.In == g.Out }

// A stretch is outputs [from, to) along a dimension whose windows reach into padding alike: of their taps only those of
// [low, high) do not.
type stretch struct {
	from, to, low, high int
	// offsets are in bytes, of the taps of such columns from the first; nil where all are read.
	offsets []int
}

// stretches cuts a dimension; it returns nil where a window lies in padding altogether.
func stretches(outputs, size, taps, stride, pad, dilation int) []stretch {
	var list []stretch
	for o := range outputs {
		first := o*stride - pad
		s := stretch{from: o, to: o + 1, low: ceil(max(0, -first), dilation),
			high: min(taps, ceil(size-first, dilation))}
		if s.low >= s.high {
			return nil
		}
		if last := len(list) - 1; last >= 0 && list[last].low == s.low && list[last].high == s.high {
			list[last].to++
			continue
		}
		list = append(list, s)
	}
	return list
}

// wideEnough is the width from which on columns at the edge are computed by themselves. Smaller pictures are copied with
// zeros around: there would be too many columns at the edge.
const wideEnough = 20

// cutEdges cuts a depthwise convolution into parts whose windows reach into padding alike, if that pays.
func (d *direct) cutEdges() {
	if !d.depthwise || !d.copied || d.OutWidth < wideEnough*d.KernelW/3 {
		return
	}
	rows := stretches(d.OutHeight, d.Height, d.KernelH, d.StrideH, d.PadTop, d.DilationH)
	columns := stretches(d.OutWidth, d.Width, d.KernelW, d.StrideW, d.PadLeft, d.DilationW)
	if rows == nil || columns == nil {
		return
	}
	d.copied, d.edgeRows, d.edgeColumns = false, rows, columns
	for i := range columns {
		s := &columns[i]
		if s.high-s.low == d.KernelW {
			continue
		}
		for ky := range d.KernelH {
			for kx := range s.high - s.low {
				s.offsets = append(s.offsets, 4*(ky*d.DilationH*d.rowFloats()+kx*d.DilationW*Lanes))
			}
		}
	}
}

// depthwisePanel computes the band for a block of channels. slot has room for the weights of columns at the edge.
func (j *directJob) depthwisePanel(p panel, w, slot []float32) {
	d := j.direct
	plane := (j.image*Blocks(d.Out) + p.block) * d.OutHeight * d.OutWidth * Lanes
	t := kernel.ConvTile{
		Offsets: &d.offsets[0], Flags: j.f.flags,
		Scale: address(j.f.scale, p.block*Lanes), Shift: address(j.f.shift, p.block*Lanes),
		Mask: (*uint32)(unsafe.Pointer(address(j.f.mask, p.block*Lanes))), Low: j.f.low, High: j.f.high,
	}
	if d.edgeRows == nil {
		t.W, t.Steps = &w[0], d.steps
		start := j.start() + (p.from-j.inputs)*d.plane
		j.depthwiseTiles(&t, start, plane, j.rows, j.cols)
	} else {
		for _, columns := range d.edgeColumns {
			weights := w
			if columns.offsets != nil {
				weights, slot = slot, slot[len(columns.offsets)*Lanes:]
				for tap := range columns.offsets {
					each := columns.high - columns.low
					from := tap/each*d.KernelW + columns.low + tap%each
					copy(weights[tap*Lanes:(tap+1)*Lanes], w[from*Lanes:])
				}
			}
			for _, rows := range d.edgeRows {
				rows.from, rows.to = max(rows.from, j.rows[0]), min(rows.to, j.rows[1])
				if rows.from < rows.to {
					j.depthwiseEdge(t, p, rows, columns, plane, weights)
				}
			}
		}
	}
	first, end := (j.rows[0]*d.width+j.cols[0])*Lanes, ((j.rows[1]-1)*d.width+j.cols[1])*Lanes
	j.f.apply(j.a.Y[plane+first:plane+end], p.block)
}

// depthwiseEdge computes the outputs of some rows and columns of an image, whose windows reach into padding alike.
func (j *directJob) depthwiseEdge(t kernel.ConvTile, p panel, rows, columns stretch, plane int, w []float32) {
	d := j.direct
	each := columns.high - columns.low
	t.W, t.Steps = address(w, rows.low*each*Lanes), (rows.high-rows.low)*each
	y, x := rows.from*d.StrideH-d.PadTop+rows.low*d.DilationH, columns.from*d.StrideW-d.PadLeft+columns.low*d.DilationW
	start := (((j.image*Blocks(d.In)+p.from)*d.Height+y)*d.Width + x) * Lanes
	if columns.offsets == nil {
		j.depthwiseTiles(&t, start, plane, [2]int{rows.from, rows.to}, [2]int{columns.from, columns.to})
		return
	}
	// Columns are computed downwards.
	t.Offsets = &columns.offsets[0]
	t.XPixel, t.YPixel, t.Rows = 4*d.rowFloats()*d.StrideH, 4*d.width*Lanes, columns.to-columns.from
	t.XRow, t.YRow = 4*Lanes*d.StrideW, 4*Lanes
	j.tiles(&t, rows.to-rows.from, start, plane+(rows.from*d.width+columns.from)*Lanes)
}

// depthwiseTiles computes some rows and columns of a plane of the output.
func (j *directJob) depthwiseTiles(t *kernel.ConvTile, start, plane int, rows, columns [2]int) {
	d := j.direct
	t.XPixel, t.YPixel, t.Rows = 4*Lanes*d.StrideW, 4*Lanes, rows[1]-rows[0]
	t.XRow, t.YRow = 4*d.rowFloats()*d.StrideH, 4*d.width*Lanes
	j.tiles(t, columns[1]-columns[0], start, plane+(rows[0]*d.width+columns[0])*Lanes)
}

// tiles computes lines of count outputs in tiles of two sizes that differ by one: the larger ones first.
func (j *directJob) tiles(t *kernel.ConvTile, count, start, out int) {
	tiles := ceil(count, j.set.DepthwisePixels())
	size, larger := count/tiles, count%tiles
	at := 0
	for _, run := range [2][2]int{{larger, size + 1}, {tiles - larger, size}} {
		if run[0] == 0 {
			continue
		}
		t.Tiles = run[0]
		x, y := start+at*t.XPixel/4, out+at*t.YPixel/4
		t.X, t.Y = address(j.x, x), address(j.a.Y, y)
		if j.f.residual != nil {
			t.Residual = address(j.f.residual, y)
		}
		j.set.Depthwise(run[1], t)
		at += run[0] * run[1]
	}
}
