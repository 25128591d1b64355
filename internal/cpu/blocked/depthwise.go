package blocked

import (
	"unsafe"

	"github.com/optimem/optimem/internal/cpu/kernel"
)

// hasDepthwise reports whether each output channel has one input channel, its own.
func hasDepthwise(g Geometry) bool { return !g.Planar && g.Groups == g.In && g.In == g.Out }

// depthwisePanel computes the band for a block of channels.
func (j *directJob) depthwisePanel(p panel, w []float32) {
	d := j.direct
	start := j.start() + (p.from-j.inputs)*d.inRows(min(d.bandRows, d.height))*d.rowFloats()
	outPixels := d.OutHeight * d.OutWidth
	out := ((j.image*Blocks(d.Out)+p.block)*outPixels + j.rows[0]*d.width + j.cols[0]) * Lanes
	count := j.cols[1] - j.cols[0]
	rows := j.rows[1] - j.rows[0]
	t := kernel.ConvTile{
		W: &w[0], Offsets: &d.offsets[0], Steps: d.steps, XPixel: 4 * Lanes * d.StrideW, YPixel: 4 * Lanes, Flags: j.f.flags,
		Scale: address(j.f.scale, p.block*Lanes), Shift: address(j.f.shift, p.block*Lanes),
		Mask: (*uint32)(unsafe.Pointer(address(j.f.mask, p.block*Lanes))), Low: j.f.low, High: j.f.high,
		Rows: rows, XRow: 4 * d.rowFloats() * d.StrideH, YRow: 4 * d.width * Lanes,
	}
	// Tiles of two sizes that differ by one: the larger ones first.
	tiles := ceil(count, d.set.DepthwisePixels())
	size, larger := count/tiles, count%tiles
	at := 0
	for _, run := range [2][2]int{{larger, size + 1}, {tiles - larger, size}} {
		if run[0] == 0 {
			continue
		}
		t.Tiles = run[0]
		t.X, t.Y = address(j.x, start+at*Lanes*d.StrideW), address(j.a.Y, out+at*Lanes)
		if j.f.residual != nil {
			t.Residual = address(j.f.residual, out+at*Lanes)
		}
		d.set.Depthwise(run[1], &t)
		at += run[0] * run[1]
	}
	j.f.apply(j.a.Y[out:][:((rows-1)*d.width+count)*Lanes], p.block)
}
