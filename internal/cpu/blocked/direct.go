package blocked

import (
	"context"
	"fmt"
	"unsafe"

	"github.com/optimem/optimem/internal/cpu/kernel"
	"github.com/optimem/optimem/internal/cpu/tasks"
)

// direct computes sums of products as they stand. The weights lie in panels, one for each 32 output channels (or 16): for
// each step, which is an input block and a tap, 16 input channels times the panel's channels. Where windows reach into
// padding, or the input is planar, the rows that a part of the work reads are copied to scratch memory with zeros around
// them, which are then read from the second cache. So are pixels of kernels of one pixel that lie apart, or whose blocks
// lie where they would fall into few sets of a cache.
//
// Sums are of parts of at most 256 products or so, added up one after another: that is more exact than one long sum, and
// the weights of a part stay in the first cache while all pixels pass.
type direct struct {
	*Conv
	// depthwise says that each channel has sums of its own. A step is a tap then, and has one product.
	depthwise bool
	// paired says that groups have eight channels in and out, two in a block. Pixels are copied with their halves in pairs,
	// and a step has eight products instead of sixteen of which half are with zeros.
	paired bool
	// flat says that rows follow each other without gaps, so that an image is one row. gathered ones do where they are
	// copied to.
	flat, gathered bool
	height, width  int // of the output, in which flat has a meaning
	panels         []panel
	depth          int   // products in a step
	steps          int   // of the largest panel
	partial        int   // steps whose sums are added up by themselves
	offsets        []int // in bytes, of each step from a panel's first input block
	// copied says that rows are copied. Then a copy has rows of copyWidth pixels.
	copied    bool
	copyWidth int
	// shared says that all rows are copied before anything is computed, for all groups of panels, instead of a band's by
	// each part of the work.
	shared bool
	// plane is the distance of input blocks, or planes, in what the kernels read, in floats.
	plane int
	// edgeRows and edgeColumns cut the outputs of a depthwise convolution that reads its input where it lies.
	edgeRows, edgeColumns []stretch
	// bands cuts the rows of the output (of a flat one its pixels), at most bandRows in each.
	bands, bandRows int
	// group is how many panels a part of the work has.
	group int
	// bandsFirst says that a band's groups follow each other, so that a thread has pixels of its own, as other convolutions
	// gave it, and reads all weights; else a group's bands do.
	bandsFirst bool
}

// A panel is the output channels that a tile computes.
type panel struct {
	block, blocks int // of the output
	from, to      int // input blocks; planes of a planar input
}

// parts is how many parts work is cut into at least, if they are not too small.
const parts = 16

// stayBytes is how much of the pixels, and how much of the weights, should stay in the second cache. Of a large cache
// more than 512 KiB does not pay.
func (c *Conv) stayBytes() int { return min(512<<10, c.cacheBytes/4) }

// Blocks of a multiple of gatherPixels pixels lie a multiple of 16 KiB apart, so equal places in them compete for the same
// few lines of the cache. With fewer than gatherBlocks blocks that costs nothing.
const (
	gatherPixels = 256
	gatherBlocks = 16
)

// Rows are copied for all groups of panels at once where there are at least sharedGroups (of pixels that lie apart
// sharedGathers, since parts find those that they copied in the second cache), and copies take no more than sharedBytes.
const (
	sharedGroups  = 2
	sharedGathers = 4
	sharedBytes   = 16 << 20
)

// packInputs is how many input channels of kernels of one pixel are packed at a time: lines of raw weights are then read
// as far as processors fetch them ahead by themselves, and what is written stays in the first cache until its lines are
// full.
const packInputs = 8 * Lanes

func newDirect(c *Conv) *direct {
	d := &direct{Conv: c, height: c.OutHeight, width: c.OutWidth}
	taps := c.KernelH * c.KernelW
	d.depth = Lanes
	d.depthwise = c.algorithm == Depthwise
	if d.depthwise {
		d.depth = 1
	}
	if c.Planar {
		d.depth = 1
		if c.DilationW == 1 {
			d.depth = c.KernelW
		}
	}
	if d.paired = c.Groups > 1 && c.In == Lanes/2*c.Groups && c.Out == c.In && c.set.HasPairs(); d.paired {
		d.depth = Lanes / 2
	}
	d.cutPanels()
	d.copied = c.Planar || d.paired || c.PadTop > 0 || c.PadLeft > 0 ||
		(c.OutHeight-1)*c.StrideH+(c.KernelH-1)*c.DilationH >= c.Height ||
		(c.OutWidth-1)*c.StrideW+(c.KernelW-1)*c.DilationW >= c.Width
	d.cutEdges()
	if !d.copied && taps == 1 && c.Groups == 1 {
		d.flat = c.StrideH == 1 && c.StrideW == 1 && c.OutWidth == c.Width
		d.gathered = !d.flat || c.Height*c.Width%gatherPixels == 0 && Blocks(c.In) >= gatherBlocks
		d.flat, d.copied = d.flat || d.gathered, d.gathered
	}
	if d.flat {
		d.height, d.width = 1, c.OutHeight*c.OutWidth
	}
	d.copyWidth = (c.OutWidth-1)*c.StrideW + (c.KernelW-1)*c.DilationW + 1
	d.partial = max(1, 256/d.depth)
	if taps <= 9 && !c.Planar {
		d.partial = (16 + taps/2) / taps * taps
	}
	d.cut()
	least := sharedGroups
	if d.gathered {
		least = sharedGathers
	}
	d.shared = d.copied && !c.Planar && !d.depthwise && c.Groups == 1 && ceil(len(d.panels), d.group) >= least
	d.shared = d.shared && 4*d.sharedFloats() <= c.sharedBytes
	d.setOffsets()
	return d
}

// cutPanels gives each panel the input blocks that the groups of its channels read.
func (d *direct) cutPanels() {
	c := d.Conv
	wide := d.set.Columns / Lanes
	groupIn, groupOut := c.In/c.Groups, c.Out/c.Groups
	if c.Groups > 1 && groupOut%d.set.Columns != 0 {
		wide = 1
	}
	for b := 0; b < Blocks(c.Out); b += wide {
		p := panel{block: b, blocks: min(wide, Blocks(c.Out)-b), to: Blocks(c.In)}
		if c.Planar {
			p.to = c.In
		} else if c.Groups > 1 {
			last := min((b+p.blocks)*Lanes, c.Out) - 1
			p.from = b * Lanes / groupOut * groupIn / Lanes
			p.to = Blocks((last/groupOut + 1) * groupIn)
		}
		steps := (p.to - p.from) * d.stepsOfBlock()
		d.steps = max(d.steps, steps)
		d.panels = append(d.panels, p)
	}
}

// stepsOfBlock is the number of steps for an input block or plane.
func (d *direct) stepsOfBlock() int {
	if d.Planar {
		return d.KernelH * d.KernelW / d.depth
	}
	return d.KernelH * d.KernelW
}

// rowFloats is the size of a row of what the kernels read, and rows how many of them follow each other in a block for a
// band of given rows of the output.
func (d *direct) rowFloats() int {
	switch {
	case d.gathered:
		return Lanes
	case d.Planar:
		return d.copyWidth
	case d.copied:
		return d.copyWidth * Lanes
	}
	return d.Width * Lanes
}

func (d *direct) inRows(rows int) int {
	if !d.copied {
		return d.Height
	}
	if d.shared {
		rows = d.height
	}
	return (rows-1)*d.StrideH + (d.KernelH-1)*d.DilationH + 1
}

// cut decides how the work is cut: into bands of rows and groups of panels.
func (d *direct) cut() {
	unit := d.height
	if d.flat {
		unit = d.width
	}
	inputs := 0 // blocks or planes that a panel reads
	for _, p := range d.panels {
		inputs = max(inputs, p.to-p.from)
	}
	line := d.rowFloats() * d.StrideH
	if d.flat {
		line = Lanes
	}
	if d.gathered {
		d.cutGathered(inputs)
		return
	}
	d.group = min(len(d.panels), max(1, d.stayBytes()/4/d.pieceFloats()))
	if d.Groups > 1 { // other panels read other blocks
		d.group = min(d.group, max(1, 4/max(1, inputs)))
		inputs *= d.group
	}
	d.bandRows = min(unit, max(1, d.stayBytes()/4/(inputs*line)))
	least := 1
	if d.flat {
		least = 16 * d.set.Pixels
	} else {
		least = min(unit, ceil(4*d.set.Pixels, d.width))
	}
	if d.edgeRows != nil || d.depthwise && unit >= 12 || d.flat && len(d.panels)*d.pieceFloats()*4 <= d.stayBytes() {
		d.bandsFirst, least = true, min(least, 4*d.set.Pixels)
		if d.edgeRows != nil {
			d.group = 1
		} else if d.depthwise {
			least = unit
		}
		if d.Batch%2 > 0 { // an even number, for both halves of the threads
			d.bandRows = min(d.bandRows, ceil(unit, 2))
		}
	}
	count := func() int { return d.Batch * ceil(unit, d.bandRows) * ceil(len(d.panels), d.group) }
	for count() < parts && d.bandRows >= 2*least {
		d.bandRows = ceil(d.bandRows, 2)
	}
	for count() < parts && d.group > 1 {
		d.group = ceil(d.group, 2)
	}
	if n := count(); d.flat && n%2 > 0 && n < parts && unit > d.set.Pixels { // a few are for both halves of the threads
		d.bandRows = ceil(unit, 2*ceil(unit, d.bandRows))
	}
	d.bands = ceil(unit, d.bandRows)
	d.bandRows = ceil(unit, d.bands)
}

// cutGathered cuts pixels that are copied: a part computes them with as many weights as half of the second cache holds.
func (d *direct) cutGathered(inputs int) {
	d.group = min(len(d.panels), max(1, d.cacheBytes/2/4/d.pieceFloats()))
	d.group = ceil(len(d.panels), ceil(len(d.panels), d.group))
	d.bandsFirst = d.group == len(d.panels)
	d.bandRows = min(d.width, max(4*d.set.Pixels, d.stayBytes()/2/4/(inputs*Lanes)))
	d.bands = ceil(d.width, d.bandRows)
	if groups := ceil(len(d.panels), d.group); d.Batch%2 > 0 && groups%2 > 0 && d.bands%2 > 0 {
		d.bands++ // for both halves of the threads
	}
	d.bandRows = ceil(d.width, d.bands)
}

// planeFloats is the distance of input blocks, or planes, in what the kernels read.
func (d *direct) planeFloats() int {
	switch {
	case d.gathered && d.shared:
		return (d.width | 1) * Lanes
	case d.gathered:
		return (d.bandRows | 1) * Lanes
	}
	return d.inRows(min(d.bandRows, d.height)) * d.rowFloats()
}

// setOffsets lists where the steps of a panel read.
func (d *direct) setOffsets() {
	row := d.rowFloats()
	d.plane = d.planeFloats()
	pixel, columns := Lanes, d.KernelW
	if d.Planar {
		pixel, columns = 1, d.KernelW/d.depth
	}
	for block := range d.steps / d.stepsOfBlock() {
		for ky := range d.KernelH {
			for kx := range columns {
				d.offsets = append(d.offsets, 4*(block*d.plane+ky*d.DilationH*row+kx*d.DilationW*pixel))
			}
		}
	}
}

func (d *direct) form() string {
	if d.depthwise {
		return "conv depthwise"
	}
	layout := "blocks"
	switch {
	case d.Planar:
		layout = "planes"
	case d.paired:
		layout = "pairs"
	}
	return fmt.Sprintf("conv %s of %d, %d groups, panels of %d", layout, d.depth, d.Groups, d.set.Columns)
}

func (d *direct) pieces() int      { return len(d.panels) }
func (d *direct) pieceFloats() int { return d.steps * d.depth * d.panels[0].blocks * Lanes }

// pack writes panels: w[step][k][channel].
func (d *direct) pack(_ Pool, w Weight, from, to int, dst []float32) {
	for i := from; i < to; i++ {
		d.packPanel(w, d.panels[i], dst[(i-from)*d.pieceFloats():][:d.pieceFloats()])
	}
}

func (d *direct) packPanel(w Weight, p panel, dst []float32) {
	l := w.Layout
	taps := d.KernelH * d.KernelW
	// A view of some panels' channels begins at the first panel and may end in the last.
	first := p.block * Lanes
	columns := min(p.blocks, Blocks(l.Shape[0]-first)) * Lanes
	outputs := min(columns, l.Shape[0]-first)
	switch {
	case d.depthwise:
		staging(dst).load(d.Conv, w, columns, first, outputs, 0, 1)
	case d.Groups > 1:
		clear(dst)
		groupIn, groupOut := d.In/d.Groups, d.Out/d.Groups
		for lane := range outputs {
			for k := range groupIn * taps {
				i, tap := k/taps, k%taps
				c := (first+lane)/groupOut*groupIn + i - p.from*Lanes
				at := l.Offset + (first+lane)*l.Strides[0] + i*l.Strides[1] + tap/d.KernelW*l.Strides[2] +
					tap%d.KernelW*l.Strides[3]
				if d.paired {
					dst[(tap*d.depth+i)*Lanes+lane%8*2+lane/8] = w.at(at)
					continue
				}
				dst[((c/Lanes*taps+tap)*Lanes+c%Lanes)*columns+lane] = w.at(at)
			}
		}
	default:
		if used := d.steps * d.depth * columns; used < len(dst) {
			clear(dst[used:])
		}
		if taps == 1 && !d.Planar { // the form is a staging's
			for from := 0; from < d.In; from += packInputs {
				inputs := min(packInputs, d.In-from)
				to := staging(dst[from*columns:][:Blocks(inputs)*Lanes*columns])
				to.load(d.Conv, w, columns, first, outputs, from, inputs)
			}
			return
		}
		s := newStaging(taps, columns)
		defer stagings.Put(s)
		for from := 0; from < d.In; from += Lanes {
			inputs := min(Lanes, d.In-from)
			s.load(d.Conv, w, columns, first, outputs, from, inputs)
			if d.Planar { // planes follow each other as they are
				copy(dst[from*taps*columns:], (*s)[:inputs*taps*columns])
				continue
			}
			to := dst[from*taps*columns:]
			for tap := range taps {
				for i := range Lanes {
					copy(to[(tap*Lanes+i)*columns:(tap*Lanes+i+1)*columns], (*s)[(i*taps+tap)*columns:])
				}
			}
		}
	}
}

// slotFloats is the scratch memory of a part.
func (d *direct) slotFloats() int {
	if d.shared {
		return 0
	}
	if !d.copied {
		n := 0
		for _, s := range d.edgeColumns {
			n += len(s.offsets) * Lanes
		}
		return n
	}
	if d.depthwise { // one block after another
		return (d.inRows(d.bandRows)*d.rowFloats() + 15) / 16 * 16
	}
	most := 0
	for i := 0; i < len(d.panels); i += d.group {
		from, to := d.span(i, min(i+d.group, len(d.panels)))
		most = max(most, to-from)
	}
	return (most*d.plane + 15) / 16 * 16
}

// span returns the input blocks that panels read.
func (d *direct) span(first, end int) (from, to int) {
	from, to = d.panels[first].from, d.panels[first].to
	for _, p := range d.panels[first:end] {
		from, to = min(from, p.from), max(to, p.to)
	}
	return from, to
}

// sharedFloats is the size of the rows that are copied for all.
func (d *direct) sharedFloats() int {
	if !d.shared {
		return 0
	}
	return d.Batch * Blocks(d.In) * d.planeFloats()
}

func (d *direct) workFloats(threads int) int { return d.sharedFloats() + threads*d.slotFloats() }

// copyShared copies the rows that all parts read, if there are such, and returns them and the rest of the scratch memory.
func (d *direct) copyShared(pool Pool, a *Args, work []float32) (copies, rest []float32) {
	n := d.sharedFloats()
	if n > 0 {
		tasks.Do(pool, d.Batch*Blocks(d.In), 1, sharedCopies{direct: d, a: a, to: work[:n]})
	}
	return work[:n], work[n:]
}

// sharedCopies copies blocks of images.
type sharedCopies struct {
	*direct
	a  *Args
	to []float32
}

// Run implements tasks.Task.
func (t *sharedCopies) Run(from, to int) {
	d, blocks := t.direct, Blocks(t.In)
	for i := from; i < to; i++ {
		job := directJob{direct: d, a: t.a, image: i / blocks, cols: [2]int{0, d.width}}
		block, dst := i%blocks, t.to[i*d.plane:][:d.plane]
		if d.gathered {
			job.gather(block, block+1, dst)
		} else {
			job.copyRows(block, block+1, dst, true)
		}
	}
}

func (d *direct) run(ctx context.Context, pool Pool, p somePieces) {
	copies, work := d.copyShared(pool, p.a, p.work)
	scratch := newSlots(work, d.slotFloats(), pool.Threads())
	groups := ceil(p.to-p.from, d.group)
	tasks.Do(pool, groups*d.Batch*d.bands, 1, directParts{
		direct: d, ctx: ctx, a: p.a, f: p.f, copies: copies, scratch: scratch, groups: groups, from: p.from, to: p.to,
		packed: p.packed,
	})
	scratch.end()
}

// directParts computes panels [from, to), whose weights begin at packed.
type directParts struct {
	*direct
	ctx              context.Context
	a                *Args
	f                *finish
	copies           []float32
	scratch          *slots
	groups, from, to int
	packed           []float32
}

// Run implements tasks.Task.
func (t *directParts) Run(i, j int) {
	d, images := t.direct, t.Batch*t.bands
	slot := t.scratch.take()
	defer t.scratch.give(slot)
	for ; i < j && t.ctx.Err() == nil; i++ {
		group, image, band := i/images, i%images/d.bands, i%d.bands
		if d.bandsFirst {
			group, image, band = i%t.groups, i/t.groups/d.bands, i/t.groups%d.bands
		}
		first := t.from + group*d.group
		job := directJob{
			direct: d, a: t.a, f: t.f, image: image, copies: t.copies, packed: t.packed[group*d.group*d.pieceFloats():],
		}
		job.run(first, min(first+d.group, t.to), band, slot)
	}
}

// ownGroup is how many panels a thread packs for itself, 0 where it does not.
func (d *direct) ownGroup(threads int) int {
	size := 4 * d.pieceFloats()
	if d.depthwise || d.Groups > 1 || d.bandsFirst || len(d.panels) < threads || len(d.panels)*size <= d.cacheBytes/2 {
		return 0
	}
	group := min(d.group, len(d.panels)/threads)
	if most := min(d.cacheBytes*5/8, d.rawBytes/threads) / size; most < group {
		return most
	}
	return group
}

func (d *direct) ownFloats(threads int) int {
	if group := d.ownGroup(threads); group > 0 {
		return d.sharedFloats() + threads*(d.slotFloats()+group*d.pieceFloats())
	}
	return 0
}

func (d *direct) runOwn(ctx context.Context, pool Pool, a *Args, f *finish, work []float32) {
	group := d.ownGroup(pool.Threads())
	groups := ceil(len(d.panels), group)
	size := group * d.pieceFloats()
	copies, work := d.copyShared(pool, a, work)
	scratch := newOwnSlots(work, size+d.slotFloats(), pool.Threads())
	tasks.Do(pool, groups*d.Batch*d.bands, 1, directOwn{
		direct: d, ctx: ctx, pool: pool, a: a, f: f, copies: copies, scratch: scratch, group: group, size: size,
	})
	scratch.end()
}

// directOwn computes with raw weights, of which a part packs a group of panels, of size floats, unless it finds them.
type directOwn struct {
	*direct
	ctx         context.Context
	pool        Pool
	a           *Args
	f           *finish
	copies      []float32
	scratch     *ownSlots
	group, size int
}

// Run implements tasks.Task.
func (t *directOwn) Run(i, j int) {
	d, images := t.direct, t.Batch*t.bands
	for ; i < j && t.ctx.Err() == nil; i++ {
		first := i / images * t.group
		end := min(first+t.group, len(d.panels))
		slot := t.scratch.take(first)
		if slot.holds != first {
			d.pack(t.pool, t.a.Weight, first, end, slot.memory)
		}
		job := directJob{
			direct: d, a: t.a, f: t.f, image: i % images / d.bands, copies: t.copies, packed: slot.memory[:t.size],
			raw: d.follow(&t.a.Weight, end*d.set.Columns, t.group*d.set.Columns, 0, d.In).part(i%images, images),
		}
		job.run(first, end, i%d.bands, slot.memory[t.size:])
		t.scratch.give(slot.memory, first)
	}
}

// A directJob is a part of the work: a band of rows of an image for a group of panels.
type directJob struct {
	*direct
	a      *Args
	f      *finish
	image  int
	packed []float32
	// copies are the rows of all images, where they are shared.
	copies []float32
	// x is what the kernels read, of which the first block is inputs; rows and columns of the output from on.
	x          []float32
	inputs     int
	rows, cols [2]int
	// raw is what is packed next that this part should fetch.
	raw fetcher
}

func (j *directJob) run(first, end, band int, slot []float32) {
	d := j.direct
	if d.flat {
		j.rows, j.cols[1] = [2]int{0, 1}, d.width
		j.cols[0], j.cols[1] = share(d.width, d.bands, band)
	} else {
		j.rows[0], j.rows[1] = share(d.height, d.bands, band)
		j.cols[1] = d.width
	}
	from, to := d.span(first, end)
	j.x, j.inputs = j.a.X, from
	switch {
	case d.shared:
		j.x = j.copies[(j.image*Blocks(d.In)+from)*d.plane:]
	case d.copied:
		j.x = slot
	}
	if d.depthwise {
		for i := first; i < end; i++ {
			p := d.panels[i]
			if d.copied {
				j.copyRows(p.from, p.to, slot, i == first)
				j.inputs = p.from
			}
			j.depthwisePanel(p, j.packed[(i-first)*d.pieceFloats():], slot)
		}
		return
	}
	switch {
	case d.shared:
	case d.gathered:
		j.gather(from, to, slot)
	case d.copied:
		j.copyRows(from, to, slot, true)
	}
	for i := first; i < end; i++ {
		// The first panel finds the pixels where another thread wrote them, the others in the second cache.
		j.panel(d.panels[i], j.packed[(i-first)*d.pieceFloats():], i == first && (d.shared || !d.copied))
	}
}

// start returns where in x the first input block's first pixel of the band lies.
func (j *directJob) start() int {
	if j.direct.shared {
		return j.rows[0]*j.StrideH*j.rowFloats() + j.cols[0]*Lanes
	}
	if j.copied {
		return 0
	}
	at := (j.image*Blocks(j.In) + j.inputs) * j.Height * j.Width
	return (at + j.rows[0]*j.StrideH*j.Width + j.cols[0]*j.StrideW) * Lanes
}

// pixelFloats returns how far apart the pixels lie that neighbours of the result read.
func (d *direct) pixelFloats() int {
	switch {
	case d.gathered:
		return Lanes
	case d.Planar:
		return d.StrideW
	}
	return Lanes * d.StrideW
}

// panel computes the band for a panel of output channels. fetch says to fetch the pixels of the next tile in time.
func (j *directJob) panel(p panel, w []float32, fetch bool) {
	d := j.direct
	set := d.set
	pixel := d.pixelFloats()
	rowStep := d.rowFloats() * d.StrideH
	start := j.start()
	if !d.Planar {
		start += (p.from - j.inputs) * d.plane
	}
	outPixels := d.OutHeight * d.OutWidth
	out := (j.image*Blocks(d.Out) + p.block) * outPixels * Lanes
	out += (j.rows[0]*d.width + j.cols[0]) * Lanes
	count := j.cols[1] - j.cols[0]
	tiles := ceil(count, set.Pixels)
	size, larger := count/tiles, count%tiles // of tiles, and how many have one pixel more
	columns := p.blocks * Lanes
	narrow := columns < set.Columns
	steps := (p.to - p.from) * d.stepsOfBlock()
	stepFloats := d.depth * columns
	t := kernel.ConvTile{
		Quads: d.depth / 4, Singles: d.depth % 4, XPixel: 4 * pixel, YPixel: 4 * Lanes, YBlock: 4 * outPixels * Lanes,
		Scale: address(j.f.scale, p.block*Lanes), Shift: address(j.f.shift, p.block*Lanes),
		Mask: (*uint32)(unsafe.Pointer(address(j.f.mask, p.block*Lanes))), Low: j.f.low, High: j.f.high,
	}
	rows := j.rows[1] - j.rows[0]
	lines := aheadLines(columns, rows*tiles)
	for s := 0; s < steps; s += d.partial {
		t.Steps = min(d.partial, steps-s)
		t.W, t.Offsets = address(w, s*stepFloats), &d.offsets[s]
		t.Flags = 0
		if s > 0 {
			t.Flags = kernel.ConvAdd
		}
		if s+t.Steps == steps {
			t.Flags |= j.f.flags
		}
		// The weights of the next sum, or panel, are fetched a little with each tile, or raw ones instead.
		packed := uintptr(unsafe.Pointer(unsafe.SliceData(w))) + uintptr(4*(s+t.Steps)*stepFloats)
		for row := range rows {
			x, y := start+row*rowStep, out+row*d.width*Lanes
			t.X, t.Y = address(j.x, x), address(j.a.Y, y)
			if j.f.residual != nil {
				t.Residual = address(j.f.residual, y)
			}
			for i := range tiles {
				pixels := size
				if i < larger {
					pixels++
				}
				if fetch {
					if t.AheadX = 4 * pixels * pixel; i == tiles-1 {
						t.AheadX = 4 * (rowStep - (count-pixels)*pixel)
					}
				}
				if j.raw.rows > 0 {
					t.AheadW, t.AheadLines = j.raw.next(fetchedBytes*t.Steps), 1
				} else {
					t.AheadW, t.AheadLines = packed, lines
					packed += uintptr(fetchedBytes * t.Steps * lines)
				}
				if d.paired {
					set.Pairs(pixels, &t)
				} else {
					set.Conv(pixels, narrow, &t)
				}
				if i < tiles-1 {
					t.X = move(t.X, pixels*t.XPixel)
					t.Y = move(t.Y, pixels*t.YPixel)
					if t.Residual != nil {
						t.Residual = move(t.Residual, pixels*t.YPixel)
					}
				}
			}
		}
	}
	for b := range p.blocks {
		from := out + b*outPixels*Lanes
		j.f.apply(j.a.Y[from:][:((j.rows[1]-j.rows[0]-1)*d.width+count)*Lanes], p.block+b)
	}
}

// aheadLines returns how many lines of weights each tile should fetch with each four rows of its own, so that as many
// tiles fetch all that as many tiles of the next sum read.
func aheadLines(columns, tiles int) int { return ceil(columns/4, tiles) }

// gather copies the pixels of input blocks [from, to) that a band reads, one behind the other.
func (j *directJob) gather(from, to int, dst []float32) {
	d := j.direct
	for b := from; b < to; b++ {
		x := j.a.X[(j.image*Blocks(d.In)+b)*d.Height*d.Width*Lanes:][:d.Height*d.Width*Lanes]
		line := dst[(b-from)*d.plane:]
		if d.StrideH == 1 && d.StrideW == 1 && d.OutWidth == d.Width {
			copy(line, x[j.cols[0]*Lanes:j.cols[1]*Lanes])
			continue
		}
		for p := j.cols[0]; p < j.cols[1]; p++ {
			at := (p/d.OutWidth*d.StrideH*d.Width + p%d.OutWidth*d.StrideW) * Lanes
			*(*[Lanes]float32)(line[(p-j.cols[0])*Lanes:]) = *(*[Lanes]float32)(x[at:])
		}
	}
}

// copyRows copies the rows that a band reads, of input blocks [from, to), with zeros for padding; these are there
// already unless fresh says that they are not.
func (j *directJob) copyRows(from, to int, dst []float32, fresh bool) {
	d := j.direct
	rows := d.inRows(d.bandRows)
	size := d.rowFloats()
	lead := min(d.PadLeft, d.copyWidth) // columns of padding before the first
	n := max(0, min(d.copyWidth-lead, d.Width))
	for b := from; b < to; b++ {
		for r := range rows {
			line := dst[((b-from)*rows+r)*size:][:size]
			y := j.rows[0]*d.StrideH - d.PadTop + r
			switch {
			case y < 0 || y >= d.Height || d.PadLeft > lead:
				if fresh {
					clear(line)
				}
			case d.Planar:
				s := j.a.XStrides
				at := j.image*s[0] + b*s[1] + y*s[2]
				clear(line[:lead])
				clear(line[lead+n:])
				if s[3] == 1 {
					copy(line[lead:lead+n], j.a.X[at:])
					break
				}
				for x := range n {
					line[lead+x] = j.a.X[at+x*s[3]]
				}
			default:
				at := ((j.image*Blocks(d.In)+b)*d.Height + y) * d.Width * Lanes
				if d.paired {
					d.set.PairHalves(line[lead*Lanes:(lead+n)*Lanes], j.a.X[at:at+n*Lanes])
				} else {
					copy(line[lead*Lanes:(lead+n)*Lanes], j.a.X[at:])
				}
				if fresh {
					clear(line[:lead*Lanes])
					clear(line[(lead+n)*Lanes:])
				}
			}
		}
	}
}
