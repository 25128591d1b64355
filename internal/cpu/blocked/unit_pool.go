package blocked

import (
	"github.com/optimem/optimem/internal/cpu/kernel"
	"github.com/optimem/optimem/internal/cpu/tasks"
)

// UnitMax computes the largest elements of windows over values of bfloat16 in blocks of 32. Windows have no adaptive size.
func UnitMax(pool Pool, set *kernel.UnitSet, w Window, x, y []uint16) {
	rows := w.Batch * UnitBlocks(w.Channels) * w.OutHeight
	tasks.Do(pool, rows, max(1, 4096/(w.OutWidth*w.KernelH*w.KernelW)), unitMax{Window: w, set: set, x: x, y: y})
}

// unitMax is the task of [UnitMax]: a part is rows of the output.
type unitMax struct {
	Window
	set  *kernel.UnitSet
	x, y []uint16
}

// Run implements tasks.Task.
func (t *unitMax) Run(from, to int) {
	w := &t.Window
	blocks := UnitBlocks(w.Channels)
	offsets := takeOffsets(w.KernelH * w.KernelW)
	for i := from; i < to; i++ {
		plane, oy := i/w.OutHeight, i%w.OutHeight
		in := t.x[plane*w.Height*w.Width*UnitLanes:][:w.Height*w.Width*UnitLanes]
		out := t.y[i*w.OutWidth*UnitLanes:][:w.OutWidth*UnitLanes]
		row := unitRow{Window: *w, set: t.set, x: in, y: out, offsets: *offsets}
		row.ky0, row.ky1 = inside(oy*w.StrideH-w.PadTop, w.KernelH, w.DilationH, w.Height)
		row.top, row.channels = oy*w.StrideH-w.PadTop, w.Channels-plane%blocks*UnitLanes
		row.run()
	}
	tasks.Give(offsets)
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

// unitPart is how many pixels are rounded or widened at a time.
const unitPart = 64

// ToUnit rounds a value in blocks of sixteen to blocks of 32.
func ToUnit(pool Pool, set *kernel.UnitSet, n, channels, pixels int, x []float32, y []uint16) {
	tasks.Do(pool, n*UnitBlocks(channels)*ceil(pixels, unitPart), 16, toUnit{
		set: set, channels: channels, pixels: pixels, x: x, y: y,
	})
}

// toUnit is the task of [ToUnit].
type toUnit struct {
	set              *kernel.UnitSet
	channels, pixels int
	x                []float32
	y                []uint16
}

// Run implements tasks.Task.
func (t *toUnit) Run(from, to int) {
	blocks, lines := UnitBlocks(t.channels), ceil(t.pixels, unitPart)
	for i := from; i < to; i++ {
		image, block, first := i/lines/blocks, i/lines%blocks, i%lines*unitPart
		count := min(unitPart, t.pixels-first)
		plane := image*Blocks(t.channels) + 2*block
		low := t.x[(plane*t.pixels+first)*Lanes:][:count*Lanes]
		high := low
		if 2*block+1 < Blocks(t.channels) {
			high = t.x[((plane+1)*t.pixels+first)*Lanes:][:count*Lanes]
		}
		out := t.y[((image*blocks+block)*t.pixels+first)*UnitLanes:][:count*UnitLanes]
		t.set.Narrow(low, high, out, unitMask(t.channels-block*UnitLanes))
	}
}

// FromUnit widens a value in blocks of 32 to blocks of sixteen.
func FromUnit(pool Pool, set *kernel.UnitSet, n, channels, pixels int, x []uint16, y []float32) {
	tasks.Do(pool, n*Blocks(channels)*ceil(pixels, unitPart), 16, fromUnit{
		set: set, channels: channels, pixels: pixels, x: x, y: y,
	})
}

// fromUnit is the task of [FromUnit].
type fromUnit struct {
	set              *kernel.UnitSet
	channels, pixels int
	x                []uint16
	y                []float32
}

// Run implements tasks.Task.
func (t *fromUnit) Run(from, to int) {
	blocks, lines := Blocks(t.channels), ceil(t.pixels, unitPart)
	for i := from; i < to; i++ {
		image, block, first := i/lines/blocks, i/lines%blocks, i%lines*unitPart
		count := min(unitPart, t.pixels-first)
		in := t.x[((image*UnitBlocks(t.channels)+block/2)*t.pixels+first)*UnitLanes:][:count*UnitLanes]
		t.set.Widen(in, block%2 == 1, t.y[((image*blocks+block)*t.pixels+first)*Lanes:][:count*Lanes])
	}
}
