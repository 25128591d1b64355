package blocked

import (
	"context"
	"fmt"
	"math"
	"sync"
	"unsafe"

	"github.com/optimem/optimem/internal/cpu/kernel"
	"github.com/optimem/optimem/internal/cpu/tasks"
)

// UnitLanes is the number of channels in a block of values that matrix units read: [N, ⌈C/32⌉, H, W, 32] of bfloat16. A
// block's pixel is a cache line, and a row of a unit's tile. Lanes beyond C are zero, as those of float32 are.
const UnitLanes = kernel.UnitColumns

// UnitBlocks returns the number of blocks of 32 that channels take.
func UnitBlocks(channels int) int { return ceil(channels, UnitLanes) }

// A UnitConv is a convolution of one geometry by a matrix unit: of values and weights of bfloat16, with sums in float32,
// whose result is rounded to bfloat16 after the epilogue. It is immutable: any number of goroutines may use it.
//
// The weights lie in panels of 32 output channels: for each step, which is a block of input channels and a tap, pairs of
// input channels side by side. A planar input is copied to rows of pixels with four channels each, and a step is eight
// pixels of a row then. Where windows reach into padding, rows are copied to scratch memory with zeros around them. So are
// pixels of many blocks, whose distance is often one that few lines of a cache are for, and those that a stride leaves out.
type UnitConv struct {
	Geometry
	set *kernel.UnitSet
	// flat says that rows follow each other without gaps, so that an image is one row.
	flat          bool
	height, width int // of the output, in which flat has a meaning
	// gathered says that windows are pixels, which are copied: the image is one row then.
	gathered bool
	// copied says that rows are copied. Then a copy has rows of copyWidth pixels, of pixelBytes each.
	copied                bool
	copyWidth, pixelBytes int
	// chunk is how many taps of a row a step has, chunks how many steps that makes.
	chunk, chunks int
	panels, steps int
	offsets       []int // in bytes, of each step
	// bands cuts the rows of the output (of a flat one its pixels), at most bandRows in each; group is how many panels a
	// part of the work has.
	bands, bandRows, group int
	// rawBytes bounds what is packed at a time of raw weights.
	rawBytes int
}

const (
	// planarLanes is the channels of a pixel of a copied planar input.
	planarLanes = 4
	// unitInputBytes is how much of the input a part of the work reads, unitPanelBytes how much of the weights, so that it
	// stays in the second cache; unitParts is how many parts the work is cut into at least, if they are not too small.
	unitInputBytes = 768 << 10
	unitPanelBytes = 512 << 10
	unitParts      = 16
	// unitCallSteps is how many steps a call of a kernel has at most, so that it ends soon.
	unitCallSteps = 1024
	// unitKept is how many blocks' sums are kept for activations that kernels leave out.
	unitKept = 8
)

// UnitSupports returns why a convolution cannot be computed by a UnitConv.
func UnitSupports(g Geometry) error {
	switch err := Supports(g); {
	case err != nil:
		return err
	case g.Groups != 1:
		return fmt.Errorf("%d groups", g.Groups)
	case g.Planar && g.In > planarLanes:
		return fmt.Errorf("%d planes", g.In)
	}
	return nil
}

// NewUnit returns the convolution of a geometry by a set of kernels. It panics if the geometry cannot be: see
// [UnitSupports].
func NewUnit(g Geometry, set *kernel.UnitSet) *UnitConv {
	if err := UnitSupports(g); err != nil {
		panic("BUG: blocked: " + err.Error())
	}
	u := &UnitConv{
		Geometry: g, set: set, height: g.OutHeight, width: g.OutWidth, pixelBytes: 2 * UnitLanes, chunk: 1,
		chunks: g.KernelW,
		panels: UnitBlocks(g.Out), rawBytes: rawBytes,
	}
	taps := g.KernelH * g.KernelW
	u.steps = UnitBlocks(g.In) * taps
	reach := (g.KernelW - 1) * g.DilationW // pixels that a window reaches beyond its first
	if g.Planar {
		u.pixelBytes = 2 * planarLanes
		if g.DilationW == 1 {
			u.chunk = UnitLanes / planarLanes
			u.chunks = ceil(g.KernelW, u.chunk)
		}
		u.steps = g.KernelH * u.chunks
		reach = (u.chunks-1)*u.chunk*g.DilationW + UnitLanes/planarLanes - 1
	}
	u.copied = g.Planar || g.PadTop > 0 || g.PadLeft > 0 ||
		(g.OutHeight-1)*g.StrideH+(g.KernelH-1)*g.DilationH >= g.Height || (g.OutWidth-1)*g.StrideW+reach >= g.Width
	u.flat = !u.copied && taps == 1 && g.StrideH == 1 && g.StrideW == 1 && g.OutWidth == g.Width
	const many = 16 // blocks
	u.gathered = !u.copied && taps == 1 && u.panels > 1 && (g.StrideW > 1 || g.StrideH > 1 || u.inputs() >= many)
	inPlace := u.flat
	if u.flat = u.flat || u.gathered; u.flat {
		u.height, u.width = 1, g.OutHeight*g.OutWidth
	}
	u.copied = u.copied || u.gathered
	u.copyWidth = (g.OutWidth-1)*g.StrideW + reach + 1
	u.cut()
	if inPlace && u.bands == 1 { // copies would lie as far apart
		u.gathered, u.copied = false, false
	}
	u.setOffsets()
	return u
}

// rowBytes is the size of a row of what the kernels read, and inRows how many of them follow each other in a block for a
// band of given rows of the output.
func (u *UnitConv) rowBytes() int {
	if u.copied {
		return u.copyWidth * u.pixelBytes
	}
	return u.Width * u.pixelBytes
}

func (u *UnitConv) inRows(rows int) int {
	if !u.copied {
		return u.Height
	}
	return (rows-1)*u.StrideH + (u.KernelH-1)*u.DilationH + 1
}

// planeBytes is the distance of the blocks that a band reads.
func (u *UnitConv) planeBytes() int {
	if u.gathered {
		return u.bandRows * u.pixelBytes
	}
	return u.inRows(min(u.bandRows, u.height)) * u.rowBytes()
}

// inputs is the number of blocks of the input.
func (u *UnitConv) inputs() int {
	if u.Planar {
		return 1
	}
	return UnitBlocks(u.In)
}

// cut decides how the work is cut: into bands of rows and groups of panels.
func (u *UnitConv) cut() {
	unit, line := u.height, u.rowBytes()*u.StrideH
	if u.flat {
		unit, line = u.width, u.pixelBytes
	}
	u.bandRows = min(unit, max(1, unitInputBytes/(u.inputs()*line)))
	u.group = u.panels
	least := min(unit, ceil(8*2*kernel.UnitPixels, u.width))
	if u.flat {
		least = 8 * 2 * kernel.UnitPixels
	}
	count := func() int { return u.Batch * ceil(unit, u.bandRows) * ceil(u.panels, u.group) }
	for count() < unitParts && u.bandRows >= 2*least {
		u.bandRows = ceil(u.bandRows, 2)
	}
	for count() < unitParts && u.group > 1 {
		u.group = ceil(u.group, 2)
	}
	u.bands = ceil(unit, u.bandRows)
	u.bandRows = ceil(unit, u.bands)
	if u.flat { // whole blocks of tiles
		u.bandRows = min(unit, roundUp(u.bandRows, 2*kernel.UnitPixels))
		u.bands = ceil(unit, u.bandRows)
	}
}

// roundUp returns the multiple of m from n on.
func roundUp(n, m int) int { return (n + m - 1) / m * m }

// setOffsets lists where the steps read.
func (u *UnitConv) setOffsets() {
	row := u.rowBytes()
	plane := u.planeBytes()
	for block := range u.inputs() {
		for ky := range u.KernelH {
			for kx := range u.chunks {
				u.offsets = append(u.offsets, block*plane+ky*u.DilationH*row+kx*u.chunk*u.DilationW*u.pixelBytes)
			}
		}
	}
}

// PackedBytes is the size of the packed weights.
func (u *UnitConv) PackedBytes() int64 { return 4 * int64(u.panels) * int64(u.pieceFloats()) }

// PackStep returns how many output channels a piece of the packed weights holds.
func (u *UnitConv) PackStep() int { return UnitLanes }

// pieceFloats is the memory of a panel, in floats.
func (u *UnitConv) pieceFloats() int { return u.steps * UnitLanes * UnitLanes / 2 }

// Form names the form of the packed weights: those of equal forms are equal for equal weights.
func (u *UnitConv) Form() string {
	if u.Planar {
		return fmt.Sprintf("conv unit planes, %d taps in a step", u.chunk)
	}
	return "conv unit blocks"
}

// WorkBytes is the scratch memory that Run needs on a pool of the given number of threads, with packed weights or raw.
func (u *UnitConv) WorkBytes(threads int, packed bool) int64 {
	n := 16 + 2*u.channels() + threads*u.slotFloats()
	if !packed {
		n += u.rawPieces() * u.pieceFloats()
	}
	return 4 * int64(n)
}

// channels are the output's with those of the padding.
func (u *UnitConv) channels() int { return u.panels * UnitLanes }

func (u *UnitConv) rawPieces() int { return min(u.panels, max(1, u.rawBytes/4/u.pieceFloats())) }

// slotFloats is the scratch memory of a part: sums, then copied rows.
func (u *UnitConv) slotFloats() int {
	n := unitKept * kernel.UnitSums
	if u.copied {
		n += roundUp(u.inputs()*u.planeBytes(), 64) / 4
	}
	return n
}

// UnitArgs are the operands of a UnitConv.
type UnitArgs struct {
	// X is the input in blocks of 32, Planes a planar one, with the strides of its four dimensions. Y is the output. They
	// do not overlap. Where Rows is not nil, the output goes there as float32, of a convolution of pixels by themselves: the
	// channels of a pixel side by side, those of the next RowPitch floats on. RowResidual lies like it; it is added to what
	// has no activation.
	X, Y        []uint16
	Rows        []float32
	RowPitch    int
	RowResidual []float32
	Planes      []float32
	XStrides    [4]int
	// Packed is the weight as Pack writes it. Where it is nil, Weight is used: the same bits come out, later.
	Packed []float32
	Weight Weight
	// Scale and Shift have an entry for each output channel; nil is one and zero. Residual is added where it is not nil. It
	// has the layout of the output, of which it may be the memory.
	Scale, Shift []float32
	Residual     []uint16
	Act          Act
	A, B         float32
	// Work is scratch memory of WorkBytes.
	Work []float32
}

// Run computes the convolution. It returns early, with the context's error, when that is cancelled.
func (u *UnitConv) Run(ctx context.Context, pool Pool, a UnitArgs) error {
	if u.Batch == 0 {
		return ctx.Err()
	}
	u.check(&a)
	r := tasks.Take[unitRun]()
	slots := r.slots[:0]
	*r = unitRun{UnitConv: u, ctx: ctx, a: a, slots: slots}
	r.compute(pool)
	clear(r.slots)
	*r = unitRun{slots: r.slots[:0]}
	tasks.Give(r)
	return ctx.Err()
}

func (r *unitRun) compute(pool Pool) {
	u, a := r.UnitConv, &r.a
	work := a.Work[-int(uintptr(unsafe.Pointer(unsafe.SliceData(a.Work))))&63/4:]
	r.scale, r.shift, r.yPixel = work[:u.channels()], work[u.channels():2*u.channels()], 2*UnitLanes
	if a.Rows != nil {
		r.yPixel = 4 * a.RowPitch
	}
	r.finish()
	work = work[2*u.channels():]
	for i := range pool.Threads() {
		r.slots = append(r.slots, unitSlot{memory: work[i*u.slotFloats() : (i+1)*u.slotFloats()], band: -1})
	}
	if a.Packed != nil {
		r.run(pool, 0, u.panels, a.Packed)
		return
	}
	size, step := u.pieceFloats(), u.rawPieces()
	packed := work[pool.Threads()*u.slotFloats():][:step*size]
	for from := 0; from < u.panels && r.ctx.Err() == nil; from += step {
		to := min(from+step, u.panels)
		tasks.Do(pool, to-from, 1, packUnit{u: u, w: a.Weight, first: from, packed: packed})
		r.run(pool, from, to, packed)
	}
}

// check panics unless the operands are as large as the geometry says: the kernels do not look.
func (u *UnitConv) check(a *UnitArgs) {
	x, have := u.Batch*UnitBlocks(u.In)*u.Height*u.Width*UnitLanes, len(a.X)
	if u.Planar {
		s := a.XStrides
		x = (u.Batch-1)*s[0] + (u.In-1)*s[1] + (u.Height-1)*s[2] + (u.Width-1)*s[3] + 1
		have = len(a.Planes)
	}
	y := u.Batch * u.panels * u.OutHeight * u.OutWidth * UnitLanes
	rows := (u.Batch*u.OutHeight*u.OutWidth-1)*a.RowPitch + u.Out
	switch {
	case a.Rows != nil && (!u.flat || u.Batch != 1 || len(a.Rows) < rows || a.Residual != nil):
		panic("BUG: blocked: rows of another geometry")
	case a.RowResidual != nil && (a.Rows == nil || len(a.RowResidual) < rows || a.Act != None):
		panic("BUG: blocked: a residual of another geometry")
	case have < x || a.Rows == nil && len(a.Y) < y || a.Residual != nil && len(a.Residual) < y:
		panic("BUG: blocked: an operand is smaller than its geometry")
	case a.Packed != nil && 4*int64(len(a.Packed)) < u.PackedBytes():
		panic("BUG: blocked: packed weights are of another form")
	}
}

// A unitRun is a convolution being computed. It is a task whose parts are bands of images for groups of panels.
type unitRun struct {
	*UnitConv
	ctx          context.Context
	a            UnitArgs
	scale, shift []float32
	low, high    float32
	// yPixel is the distance of pixels of the output.
	yPixel int
	// after is the activation that is computed behind the kernels; clear says that lanes beyond the channels are to be
	// cleared then.
	after Act
	mu    sync.Mutex
	slots []unitSlot
	// first is the first panel of packed, end the one behind the last.
	first, end int
	packed     []float32
}

// finish makes the operands of the epilogue as kernels take them.
func (r *unitRun) finish() {
	for i := range r.scale {
		r.scale[i], r.shift[i] = 1, 0
	}
	if r.a.Scale != nil {
		copy(r.scale, r.a.Scale[:r.Out])
	}
	if r.a.Shift != nil {
		copy(r.shift, r.a.Shift[:r.Out])
	}
	var limits bool
	if r.low, r.high, limits = r.a.Act.limits(r.a.A, r.a.B); !limits {
		r.low, r.high, r.after = float32(math.Inf(-1)), float32(math.Inf(1)), r.a.Act
	}
}

// run computes panels [from, to), whose weights begin at packed.
func (r *unitRun) run(pool Pool, from, to int, packed []float32) {
	r.first, r.end, r.packed = from, to, packed
	pool.Do(r.groups()*r.Batch*r.bands, 1, r)
}

// groups is how many groups of panels are computed.
func (r *unitRun) groups() int { return ceil(r.end-r.first, r.group) }

// Run implements tasks.Task. A thread takes parts that follow each other: those of a band, whose pixels it has in its cache
// then.
func (r *unitRun) Run(i, j int) {
	groups := r.groups()
	for ; i < j && r.ctx.Err() == nil; i++ {
		slot := r.take(i / groups)
		first := r.first + i%groups*r.group
		r.part(first, min(first+r.group, r.end), slot)
		r.give(slot)
	}
}

// A unitSlot is the scratch memory of a part.
type unitSlot struct {
	memory []float32
	// band is what was last copied there, −1 for nothing; has says that it is what was asked for.
	band      int
	used, has bool
}

// take returns scratch memory for a band of an image: that which has it already, if it is free.
func (r *unitRun) take(band int) *unitSlot {
	r.mu.Lock()
	defer r.mu.Unlock()
	var slot *unitSlot
	for i := range r.slots {
		if s := &r.slots[i]; !s.used && (slot == nil || s.band == band) {
			slot = s
		}
	}
	slot.used, slot.has = true, slot.band == band
	slot.band = band
	return slot
}

func (r *unitRun) give(s *unitSlot) {
	r.mu.Lock()
	s.used = false
	r.mu.Unlock()
}
