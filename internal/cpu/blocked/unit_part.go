package blocked

import (
	"math/bits"
	"unsafe"

	"github.com/optimem/optimem/internal/cpu/kernel"
)

// halfAddress returns a pointer a number of bytes behind the beginning of a slice, for kernels; the slice may end
// there.
func halfAddress(x []uint16, bytes int) *uint16 {
	return (*uint16)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(x)), bytes))
}

// halvesOf returns the memory of floats.
func halvesOf(x []float32) []uint16 {
	return unsafe.Slice((*uint16)(unsafe.Pointer(unsafe.SliceData(x))), 2*len(x))
}

// part computes the band of a slot for panels [first, end).
func (r *unitRun) part(first, end int, slot *unitSlot) {
	image, from := slot.band/r.bands, slot.band%r.bands*r.bandRows
	unit := r.height
	if r.flat {
		unit = r.width
	}
	count := min(r.bandRows, unit-from) // of rows, or of a flat image's pixels
	sums := slot.memory[:unitKept*kernel.UnitSums]
	row, x := r.rowBytes(), halvesOf(slot.memory[len(sums):])
	start := 0
	switch {
	case !r.copied:
		x, start = r.a.X, image*UnitBlocks(r.In)*r.Height*row
		if r.flat {
			start += from * r.pixelBytes
		} else {
			start += from * r.StrideH * row
		}
	case slot.has:
	case r.gathered:
		r.gather(image, from, count, x)
	case r.Planar:
		r.copyPlanes(image, from, x)
	default:
		r.copyRows(image, from, x)
	}
	out := image*r.panels*r.OutHeight*r.OutWidth + from*r.width // pixels
	rows, width, pixel := count, r.width, r.pixelBytes*r.StrideW
	if r.flat {
		out, rows, width, pixel = image*r.panels*r.OutHeight*r.OutWidth+from, 1, count, r.pixelBytes
	}
	for p := first; p < end; p++ {
		t := kernel.UnitTile{
			XPixel: pixel, Offsets: &r.offsets[0], Steps: r.steps,
			W: halfAddress(halvesOf(r.packed), 4*(p-r.first)*r.pieceFloats()), Sums: &sums[0],
			Scale: &r.scale[p*UnitLanes], Shift: &r.shift[p*UnitLanes], Mask: unitMask(r.Out - p*UnitLanes), Low: r.low,
			High: r.high,
		}
		t.Ahead = uintptr(unsafe.Pointer(t.W)) + uintptr(4*r.pieceFloats())
		t.AheadLines = min(8, ceil(8, ceil(rows*width, 2*kernel.UnitPixels)))
		at := r.yPixel * (out + p*r.OutHeight*r.OutWidth)
		if r.a.Rows != nil {
			t.Wide, t.YPixel, at = 1, r.yPixel, r.yPixel*out+4*UnitLanes*p
		}
		r.rows(&t, x, start, at, rows, width)
	}
}

// unitMask has a bit for each of the channels that a block has.
func unitMask(channels int) uint32 {
	if channels >= UnitLanes {
		return 1<<UnitLanes - 1
	}
	return 1<<channels - 1
}

// rows computes rows of the output, which begin at a byte of x and of the output: a row of more than two tiles is cut
// into blocks of nearly the same size; others are blocks, two of one tile each.
func (r *unitRun) rows(t *kernel.UnitTile, x []uint16, start, out, rows, width int) {
	const most = kernel.UnitPixels
	xRow, yRow := r.rowBytes()*r.StrideH, r.yPixel*r.width
	switch {
	case width <= most && rows > 1:
		t.XSecond, t.YSecond = xRow, yRow
		r.blocks(t, x, unitBlocks{start, out, rows / 2, 2 * xRow, 2 * yRow}, width, width)
		if rows%2 == 1 {
			last := unitBlocks{start: start + (rows-1)*xRow, out: out + (rows-1)*yRow, count: 1}
			r.blocks(t, x, last, width, 0)
		}
	case width <= most:
		r.blocks(t, x, unitBlocks{start: start, out: out, count: 1}, width, 0)
	case width <= 2*most:
		r.block(t, x, unitBlocks{start, out, rows, xRow, yRow}, width)
	default:
		n := ceil(width, 2*most)
		size, larger := width/n, width%n
		for row := range rows {
			x0, y0 := start+row*xRow, out+row*yRow
			if larger > 0 {
				r.block(t, x, unitBlocks{x0, y0, larger, (size + 1) * t.XPixel, r.yPixel * (size + 1)}, size+1)
			}
			x0, y0 = x0+larger*(size+1)*t.XPixel, y0+larger*(size+1)*r.yPixel
			r.block(t, x, unitBlocks{x0, y0, n - larger, size * t.XPixel, r.yPixel * size}, size)
		}
	}
}

// unitBlocks are so many blocks of pixels, the first of which reads from byte start of the input on and goes to byte
// out of the output, and each other one xBlock and yBlock bytes behind.
type unitBlocks struct{ start, out, count, xBlock, yBlock int }

// block computes blocks of pixels that follow each other in a row.
func (r *unitRun) block(t *kernel.UnitTile, x []uint16, b unitBlocks, pixels int) {
	first := ceil(pixels, 2)
	t.XSecond, t.YSecond = first*t.XPixel, r.yPixel*first
	r.blocks(t, x, b, first, pixels-first)
}

// blocks computes blocks of two tiles of given pixels, a few with each call.
func (r *unitRun) blocks(t *kernel.UnitTile, x []uint16, of unitBlocks, first, second int) {
	t.SetRows(first, second)
	t.XBlock, t.YBlock = of.xBlock, of.yBlock
	most := max(1, unitCallSteps/r.steps)
	if r.after != None {
		t.Keep, most = 1, min(most, unitKept)
	}
	for from := 0; from < of.count; from += most {
		t.Blocks = min(most, of.count-from)
		at := of.out + from*of.yBlock
		t.X = halfAddress(x, of.start+from*of.xBlock)
		if r.a.Rows != nil {
			t.Y = halfAddress(halvesOf(r.a.Rows), at)
			if r.a.RowResidual != nil {
				t.Residual = halfAddress(halvesOf(r.a.RowResidual), at)
			}
		} else {
			t.Y = halfAddress(r.a.Y, at)
			if r.a.Residual != nil {
				t.Residual = halfAddress(r.a.Residual, at)
			}
		}
		r.set.Conv(t)
		t.Ahead += uintptr(256 * t.AheadLines * t.Blocks * t.Steps)
		if r.after == None {
			continue
		}
		for b := range t.Blocks {
			r.activate(t, b, 0, at+b*of.yBlock, first)
			if second > 0 {
				r.activate(t, b, kernel.UnitPixels, at+b*of.yBlock+t.YSecond, second)
			}
		}
	}
}

// activate computes the activation of the kept sums of a tile, whose result begins at a byte of the output.
func (r *unitRun) activate(t *kernel.UnitTile, block, pixel, out, pixels int) {
	sums := unsafe.Slice(t.Sums, unitKept*kernel.UnitSums)[block*kernel.UnitSums+pixel*UnitLanes:][:pixels*UnitLanes]
	r.after.over(r.set.Vectors, sums, r.a.A, r.a.B)
	if r.a.Rows == nil {
		r.set.NarrowRows(sums, UnitLanes, bits.OnesCount32(t.Mask), r.a.Y[out/2:][:pixels*UnitLanes])
		return
	}
	for p := range pixels {
		copy(r.a.Rows[out/4+p*r.a.RowPitch:][:bits.OnesCount32(t.Mask)], sums[p*UnitLanes:])
	}
}

// gather copies the pixels that a band of a row of pixels reads.
func (r *unitRun) gather(image, from, count int, dst []uint16) {
	u := r.UnitConv
	for b := range u.inputs() {
		plane := r.a.X[(image*u.inputs()+b)*u.Height*u.Width*UnitLanes:][:u.Height*u.Width*UnitLanes]
		to := dst[b*u.planeBytes()/2:][:count*UnitLanes]
		for at := from; at < from+count; {
			y, x := at/u.OutWidth, at%u.OutWidth
			n := min(u.OutWidth-x, from+count-at)
			if u.StrideW == 1 && u.StrideH == 1 && u.OutWidth == u.Width {
				n = from + count - at
			}
			line := plane[(y*u.StrideH*u.Width+x*u.StrideW)*UnitLanes:]
			if u.StrideW == 1 {
				copy(to[:n*UnitLanes], line)
			} else {
				r.set.Gather(line, 2*UnitLanes*u.StrideW, to[:n*UnitLanes])
			}
			to, at = to[n*UnitLanes:], at+n
		}
	}
}

// copyRows copies the rows that a band reads, with zeros for padding.
func (r *unitRun) copyRows(image, from int, dst []uint16) {
	u := r.UnitConv
	rows, size := u.inRows(u.bandRows), u.rowBytes()/2
	lead := min(u.PadLeft, u.copyWidth) * UnitLanes // padding before the first column
	n := max(0, min(u.copyWidth-lead/UnitLanes, u.Width)) * UnitLanes
	for b := range u.inputs() {
		for row := range rows {
			line := dst[(b*rows+row)*size:][:size]
			y := from*u.StrideH - u.PadTop + row
			if y < 0 || y >= u.Height || u.PadLeft > u.copyWidth {
				clear(line)
				continue
			}
			clear(line[:lead])
			copy(line[lead:lead+n], r.a.X[((image*u.inputs()+b)*u.Height+y)*u.Width*UnitLanes:])
			clear(line[lead+n:])
		}
	}
}

// copyPlanes copies the rows of a planar input that a band reads to pixels of four channels, with zeros for padding.
func (r *unitRun) copyPlanes(image, from int, dst []uint16) {
	u := r.UnitConv
	rows, size := u.inRows(u.bandRows), u.rowBytes()/2
	lead := min(u.PadLeft, u.copyWidth)
	n := max(0, min(u.copyWidth-lead, u.Width))
	s := r.a.XStrides
	var planes [planarLanes * UnitLanes]float32
	var pairs [2][UnitLanes]uint32
	for row := range rows {
		line := dst[row*size:][:size]
		y := from*u.StrideH - u.PadTop + row
		clear(line)
		if y < 0 || y >= u.Height || u.PadLeft > u.copyWidth {
			continue
		}
		for x := 0; x < n; x += UnitLanes {
			pixels := min(UnitLanes, n-x)
			for c := range u.In {
				plane, at := planes[c*UnitLanes:][:pixels], image*s[0]+c*s[1]+y*s[2]+x*s[3]
				if s[3] == 1 {
					copy(plane, r.a.Planes[at:])
					continue
				}
				for i := range plane {
					plane[i] = r.a.Planes[at+i*s[3]]
				}
			}
			pairUp(r.set, planes[:2*UnitLanes], pairs[0][:])
			pairUp(r.set, planes[2*UnitLanes:], pairs[1][:])
			to := line[(lead+x)*planarLanes:][:pixels*planarLanes]
			for i := range pixels {
				a, b := pairs[0][i], pairs[1][i]
				pixel := to[i*planarLanes:][:planarLanes]
				pixel[0], pixel[1], pixel[2], pixel[3] = uint16(a), uint16(a>>16), uint16(b), uint16(b>>16)
			}
		}
	}
}
