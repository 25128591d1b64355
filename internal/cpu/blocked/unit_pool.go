package blocked

import "github.com/optimem/optimem/internal/cpu/kernel"

// UnitMax computes the largest elements of windows over values of bfloat16 in blocks of 32. Windows have no adaptive size.
func UnitMax(pool Pool, set *kernel.UnitSet, w Window, x, y []uint16) {
	blocks := UnitBlocks(w.Channels)
	pool.For(w.Batch*blocks*w.OutHeight, max(1, 4096/(w.OutWidth*w.KernelH*w.KernelW)), func(from, to int) {
		offsets := make([]int, 0, w.KernelH*w.KernelW)
		for i := from; i < to; i++ {
			plane, oy := i/w.OutHeight, i%w.OutHeight
			in := x[plane*w.Height*w.Width*UnitLanes:][:w.Height*w.Width*UnitLanes]
			out := y[i*w.OutWidth*UnitLanes:][:w.OutWidth*UnitLanes]
			row := unitRow{Window: w, set: set, x: in, y: out, offsets: offsets}
			row.ky0, row.ky1 = inside(oy*w.StrideH-w.PadTop, w.KernelH, w.DilationH, w.Height)
			row.top, row.channels = oy*w.StrideH-w.PadTop, w.Channels-plane%blocks*UnitLanes
			row.run()
		}
	})
}

// A unitRow is a row of a pool's output.
type unitRow struct {
	Window
	set           *kernel.UnitSet
	x, y          []uint16
	top, ky0, ky1 int
	channels      int // of the plane
	offsets       []int
}

// inside returns the taps [from, to) of a window that begins at a row, or column, which lie within the input.
func inside(start, taps, dilation, size int) (from, to int) {
	for from < taps && start+from*dilation < 0 {
		from++
	}
	to = taps
	for to > from && start+(to-1)*dilation >= size {
		to--
	}
	return from, to
}

// run computes the row: pixels whose windows have all columns at once, others by themselves.
func (r *unitRow) run() {
	for ox := 0; ox < r.OutWidth; {
		left := ox*r.StrideW - r.PadLeft
		from, to := inside(left, r.KernelW, r.DilationW, r.Width)
		count := 1
		if from == 0 && to == r.KernelW {
			for ox+count < r.OutWidth && (ox+count)*r.StrideW-r.PadLeft+(r.KernelW-1)*r.DilationW < r.Width {
				count++
			}
		}
		r.offsets = r.offsets[:0]
		for ky := r.ky0; ky < r.ky1; ky++ {
			for kx := from; kx < to; kx++ {
				pixel := (r.top+ky*r.DilationH)*r.Width + left + kx*r.DilationW
				r.offsets = append(r.offsets, 2*UnitLanes*pixel)
			}
		}
		if len(r.offsets) == 0 { // a window of padding alone
			pixel := r.y[ox*UnitLanes:][:UnitLanes]
			clear(pixel)
			for lane := range min(UnitLanes, r.channels) {
				pixel[lane] = 0xff80
			}
			ox++
			continue
		}
		r.set.Max(&kernel.UnitRow{
			X: halfAddress(r.x, 0), XPixel: 2 * UnitLanes * r.StrideW, Offsets: &r.offsets[0], Taps: len(r.offsets),
			Y: halfAddress(r.y, 2*UnitLanes*ox), Pixels: count,
		})
		ox += count
	}
}

// ToUnit rounds a value in blocks of sixteen to blocks of 32.
func ToUnit(pool Pool, set *kernel.UnitSet, n, channels, pixels int, x []float32, y []uint16) {
	const part = 64
	blocks, lines := UnitBlocks(channels), ceil(pixels, part)
	pool.For(n*blocks*lines, 16, func(from, to int) {
		for i := from; i < to; i++ {
			image, block, first := i/lines/blocks, i/lines%blocks, i%lines*part
			count := min(part, pixels-first)
			plane := image*Blocks(channels) + 2*block
			low := x[(plane*pixels+first)*Lanes:][:count*Lanes]
			high := low
			if 2*block+1 < Blocks(channels) {
				high = x[((plane+1)*pixels+first)*Lanes:][:count*Lanes]
			}
			out := y[((image*blocks+block)*pixels+first)*UnitLanes:][:count*UnitLanes]
			set.Narrow(low, high, out, unitMask(channels-block*UnitLanes))
		}
	})
}

// FromUnit widens a value in blocks of 32 to blocks of sixteen.
func FromUnit(pool Pool, set *kernel.UnitSet, n, channels, pixels int, x []uint16, y []float32) {
	const part = 64
	blocks, lines := Blocks(channels), ceil(pixels, part)
	pool.For(n*blocks*lines, 16, func(from, to int) {
		for i := from; i < to; i++ {
			image, block, first := i/lines/blocks, i/lines%blocks, i%lines*part
			count := min(part, pixels-first)
			in := x[((image*UnitBlocks(channels)+block/2)*pixels+first)*UnitLanes:][:count*UnitLanes]
			set.Widen(in, block%2 == 1, y[((image*blocks+block)*pixels+first)*Lanes:][:count*Lanes])
		}
	})
}
