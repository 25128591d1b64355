package blocked

import (
	"context"
	"fmt"
	"unsafe"

	"github.com/optimem/optimem/internal/cpu/kernel"
	"github.com/optimem/optimem/internal/cpu/tasks"
)

// winograd computes F(m×m, 3×3): the input is cut into tiles of (m+2)×(m+2) pixels that overlap by two, each becomes as
// many numbers for each channel, products of these with transformed weights are summed over channels, and what comes out
// becomes m×m pixels. The weights lie in panels of output channels, as those of direct do, each with the points of the
// transform one after another. Tiles that reach over the edge are computed in a buffer with zeros around.
//
// A chunk is a number of tiles, counted over all images. Where the weights are small and the chunks many, a part of the
// work is a chunk, whose transform stays in the second cache. Else one chunk after another is computed by all threads
// together, cut by input blocks, by points, and by output blocks.
//
// Of raw weights each thread packs panels for itself where it can; all tiles are one chunk then, which the third cache holds
// (whole). Else they are packed in batches, larger ones where there are many chunks, which each batch transforms anew.
//
// Transformed weights are up to four times as large as they were. Of large ones only the columns are transformed, which
// makes them twice as large; the rest is done late, by the thread that is about to multiply, for a row of points and a
// panel at a time. That takes about as long as reading the other half from memory would.
type winograd struct {
	*Conv
	m, points    int // points of the transform: (m+2)²
	down, across int // tiles of an image
	tiles        int
	chunk        int // tiles
	chunks       int
	alone        bool // a part of the work is a chunk
	late         bool // the rows of weights are transformed when they are used
	panels       int
	inBlocks     int
	offsets      []int
	// Distances in floats: of transforms' blocks, of points; of products' points for each panel and for all.
	inPlane, inPoint   int
	outPlane, outPoint int
	outPanel           int
	// whole is the same with all tiles in one chunk, for raw weights of which each thread packs some panels for itself. It is
	// nil where one chunk is what this has, and where that does not pay.
	whole *winograd
}

// Limits of winograd.
const (
	// chunkBytes is the most bytes of the transforms that stay in the second cache.
	chunkBytes = 1200 << 10
	// lateParts is into how many parts the panels of a row of points are cut whose weights are transformed late.
	lateParts = 8
	// sharedTiles is the most tiles of a chunk that threads share.
	sharedTiles = 128
	// repeatedRawBytes is rawBytes where each batch of raw weights has all chunks transformed anew.
	repeatedRawBytes = 32 << 20
)

func newWinograd(c *Conv, m int) *winograd {
	w := &winograd{
		Conv: c, m: m, points: (m + 2) * (m + 2), down: ceil(c.OutHeight, m), across: ceil(c.OutWidth, m),
		inBlocks: Blocks(c.In), panels: ceil(c.Out, c.set.Columns),
	}
	w.late = m == 4 && c.set.HasWinogradLine() && 4*w.points*w.inBlocks*Lanes*c.Out > c.cacheBytes*3/2
	w.tiles = c.Batch * w.down * w.across
	w.chunk = min(64, max(14, min(chunkBytes, c.cacheBytes*5/8)/(4*Lanes*w.points*w.inBlocks)))
	w.alone = !w.late && w.tiles >= parts/2*w.chunk
	if !w.alone {
		w.chunk = min(w.tiles, sharedTiles)
	}
	w.cutTiles()
	if w.chunks == 1 {
		return w
	}
	c.rawBytes = repeatedRawBytes
	if !w.late && 4*w.panels*w.pieceFloats() > c.cacheBytes {
		whole := *w
		whole.alone, whole.chunk, whole.offsets = false, w.tiles, nil
		whole.cutTiles()
		if 4*whole.inFloats() <= c.sharedBytes {
			w.whole = &whole
		}
	}
	return w
}

// cutTiles cuts all tiles into equal chunks, no larger than chunk is, and lays out what they are transformed to.
func (w *winograd) cutTiles() {
	w.chunks = max(1, ceil(w.tiles, w.chunk))
	w.chunk = max(1, ceil(w.tiles, w.chunks))
	// Odd numbers of cache lines between what is written together, so that it does not fall into one set of a cache.
	w.inPlane = w.chunk * Lanes
	w.inPoint = (w.inBlocks*w.chunk | 1) * Lanes
	w.outPlane = w.chunk * Lanes
	w.outPoint = (w.set.Columns/Lanes*w.chunk | 1) * Lanes
	w.outPanel = w.points * w.outPoint
	for b := range w.inBlocks {
		w.offsets = append(w.offsets, 4*b*w.inPlane)
	}
}

func (w *winograd) form() string {
	if w.late {
		return fmt.Sprintf("conv winograd %d of columns, panels of %d", w.m, w.set.Columns)
	}
	return fmt.Sprintf("conv winograd %d, panels of %d", w.m, w.set.Columns)
}

func (w *winograd) pieces() int { return w.panels }

func (w *winograd) pieceFloats() int {
	if w.late {
		return (w.m + 2) * w.lineFloats(w.set.Columns)
	}
	return w.points * w.inBlocks * Lanes * w.set.Columns
}

// lineFloats is the size of a row of points of weights whose columns are transformed.
func (w *winograd) lineFloats(columns int) int { return 3 * w.inBlocks * Lanes * columns }

// pack writes panels: G·g·Gᵀ of each pair of channels, as w[point][input channel][channel], or G·g as
// w[row][input channel][tap of the row][channel].
func (w *winograd) pack(_ Pool, raw Weight, from, to int, dst []float32) {
	for piece := from; piece < to; piece++ {
		dst := dst[(piece-from)*w.pieceFloats():][:w.pieceFloats()]
		first := piece * w.set.Columns
		outputs := min(w.set.Columns, raw.Layout.Shape[0]-first)
		columns := Blocks(outputs) * Lanes
		if columns < w.set.Columns {
			clear(dst)
		}
		s := newStaging(9, columns)
		for block := range w.inBlocks {
			s.load(w.Conv, raw, columns, first, outputs, block*Lanes, min(Lanes, w.In-block*Lanes))
			if w.late {
				w.packColumns(*s, columns, dst[3*block*Lanes*columns:])
			} else {
				w.packPoints(*s, columns, w.inBlocks*Lanes*columns, dst[block*Lanes*columns:])
			}
		}
		stagings.Put(s)
	}
}

// packPoints writes all points of a block of input channels; point is the distance of points. The vectors of an input
// channel follow each other: each row that is written is then in one place of the second cache at a time.
func (w *winograd) packPoints(taps []float32, columns, point int, dst []float32) {
	var scratch [36 * Lanes]float32
	t := kernel.WinogradTile{
		InRow: 4 * 3 * columns, InStep: 4 * columns, InNext: 4 * Lanes,
		OutRow: 4 * (w.m + 2) * point, OutStep: 4 * point, OutNext: 4 * Lanes, Count: columns / Lanes,
		Scratch: &scratch[0],
	}
	for i := range Lanes {
		t.In, t.Out = address(taps, 9*i*columns), address(dst, i*columns)
		w.set.WinogradWeights(w.m, &t)
	}
}

// packColumns writes the transformed columns of a block of input channels.
func (w *winograd) packColumns(taps []float32, columns int, dst []float32) {
	for at := 0; at < 3*columns; at += Lanes {
		w.set.WinogradLine(w.m, &kernel.WinogradTile{
			In: address(taps, at), InStep: 4 * 3 * columns, InNext: 4 * 9 * columns,
			Out: address(dst, at), OutStep: 4 * w.lineFloats(columns), OutNext: 4 * 3 * columns, Count: Lanes,
		})
	}
}

// scratchFloats is the memory for tiles at the edge: vectors of a transform, a tile of input, one of output, one of the
// residual.
const scratchFloats = (36 + 36 + 16 + 16) * Lanes

// Sizes of memory: a chunk's transforms, its products with a panel and with all.
func (w *winograd) inFloats() int { return w.points * w.inPoint }

func (w *winograd) slotFloats() int {
	switch {
	case w.alone:
		return scratchFloats + w.inFloats() + w.outPanel
	case w.late:
		return scratchFloats + (w.m+2)*w.inBlocks*Lanes*w.set.Columns
	}
	return scratchFloats
}

func (w *winograd) workFloats(threads int) int {
	n := threads * w.slotFloats()
	if !w.alone {
		n += w.inFloats() + w.panels*w.outPanel
	}
	return n
}

func (w *winograd) run(ctx context.Context, pool Pool, p somePieces) {
	scratch := newSlots(p.work, w.slotFloats(), pool.Threads())
	defer scratch.end()
	work := p.work[pool.Threads()*w.slotFloats():]
	step := winogradStep{
		winograd: w, ctx: ctx, a: p.a, f: p.f, scratch: scratch, from: p.from, to: p.to, packed: p.packed,
	}
	if w.alone {
		tasks.Do(pool, w.chunks, 1, winogradChunks{step})
		return
	}
	step.v, step.sums = work, work[w.inFloats():]
	for chunk := range w.chunks {
		step.first, step.end = share(w.tiles, w.chunks, chunk)
		if p.from == 0 || w.chunks > 1 { // else it is there since the first pieces of the weights
			tasks.Do(pool, w.inBlocks, 1, winogradIn{step})
		}
		if w.late {
			tasks.Do(pool, (w.m+2)*lateParts, 1, winogradRows{step})
		} else {
			tasks.Do(pool, w.points*2, 1, winogradPoints{step})
		}
		tasks.Do(pool, p.to-p.from, 1, winogradOut{step})
		if ctx.Err() != nil {
			return
		}
	}
}

// A winogradStep is what is computed of panels [from, to), whose weights begin at packed, and of tiles [first, end), which
// are transformed to v and multiplied to sums. Each of its tasks is one of the types that follow.
type winogradStep struct {
	*winograd
	ctx        context.Context
	a          *Args
	f          *finish
	scratch    *slots
	from, to   int
	packed     []float32
	first, end int
	v, sums    []float32
}

type (
	// winogradChunks is all steps for chunks, each by a thread.
	winogradChunks struct{ winogradStep }
	// winogradIn transforms input blocks.
	winogradIn struct{ winogradStep }
	// winogradRows multiplies rows of points, winogradPoints points.
	winogradRows   struct{ winogradStep }
	winogradPoints struct{ winogradStep }
	// winogradOut transforms panels of products.
	winogradOut struct{ winogradStep }
)

// weights returns the weights of a panel and those behind it.
func (t *winogradStep) weights(panel int) []float32 { return t.packed[(panel-t.from)*t.pieceFloats():] }

// Run implements tasks.Task.
func (t *winogradChunks) Run(i, j int) {
	w, slot := t.winograd, t.scratch.take()
	defer t.scratch.give(slot)
	v, m := slot[scratchFloats:], slot[scratchFloats+w.inFloats():]
	for ; i < j && t.ctx.Err() == nil; i++ {
		first, end := share(w.tiles, w.chunks, i)
		w.input(t.a, first, end, 0, w.inBlocks, v, slot)
		for panel := t.from; panel < t.to; panel++ {
			for point := range w.points {
				w.products(point, panel, end-first, t.weights(panel), v, m, false)
			}
			w.output(t.a, t.f, first, end, panel, m, slot)
		}
	}
}

// Run implements tasks.Task.
func (t *winogradIn) Run(i, j int) {
	slot := t.scratch.take()
	defer t.scratch.give(slot)
	t.input(t.a, t.first, t.end, i, j, t.v, slot)
}

// Run implements tasks.Task.
func (t *winogradRows) Run(i, j int) {
	w, slot := t.winograd, t.scratch.take()
	defer t.scratch.give(slot)
	for ; i < j; i++ {
		low, high := share(t.to-t.from, lateParts, i%lateParts)
		for panel := t.from + low; panel < t.from+high && t.ctx.Err() == nil; panel++ {
			w.row(
				i/lateParts, panel, t.end-t.first, t.weights(panel), t.v, t.sums[panel*w.outPanel:],
				slot[scratchFloats:],
			)
		}
	}
}

// Run implements tasks.Task.
func (t *winogradPoints) Run(i, j int) {
	w := t.winograd
	for ; i < j && t.ctx.Err() == nil; i++ {
		low, high := share(t.to-t.from, 2, i%2)
		for panel := t.from + low; panel < t.from+high; panel++ {
			w.products(i/2, panel, t.end-t.first, t.weights(panel), t.v, t.sums[panel*w.outPanel:], true)
		}
	}
}

// Run implements tasks.Task.
func (t *winogradOut) Run(i, j int) {
	w, slot := t.winograd, t.scratch.take()
	defer t.scratch.give(slot)
	for ; i < j; i++ {
		w.output(t.a, t.f, t.first, t.end, t.from+i, t.sums[(t.from+i)*w.outPanel:], slot)
	}
}

// place returns the image of a tile, and the row and column of its first output.
func (w *winograd) place(tile int) (image, y, x int) {
	image, tile = tile/(w.down*w.across), tile%(w.down*w.across)
	return image, tile / w.across * w.m, tile % w.across * w.m
}

// input transforms input blocks of tiles [first, end) to v[point][block][tile].
func (w *winograd) input(a *Args, first, end, fromBlock, toBlock int, v, slot []float32) {
	size := w.m + 2
	edge := slot[36*Lanes:][:36*Lanes]
	t := kernel.WinogradTile{
		InNext: 4 * w.m * Lanes, InStep: 4 * Lanes, OutRow: 4 * size * w.inPoint, OutStep: 4 * w.inPoint,
		OutNext: 4 * Lanes,
		Scratch: &slot[0],
	}
	for block := fromBlock; block < toBlock; block++ {
		for tile := first; tile < end; tile += t.Count {
			image, y, x := w.place(tile)
			y, x = y-w.PadTop, x-w.PadLeft
			t.Count = 1
			t.Out = address(v, block*w.inPlane+(tile-first)*Lanes)
			plane := (image*w.inBlocks + block) * w.Height * w.Width * Lanes
			if y < 0 || x < 0 || y+size > w.Height || x+size > w.Width {
				clear(edge[:size*size*Lanes])
				low, high := max(x, 0), min(x+size, w.Width)
				for r := max(y, 0); r < min(y+size, w.Height) && low < high; r++ {
					copy(edge[((r-y)*size+low-x)*Lanes:], a.X[plane+(r*w.Width+low)*Lanes:plane+(r*w.Width+high)*Lanes])
				}
				t.In, t.InRow = &edge[0], 4*size*Lanes
			} else {
				// As many as follow in this row.
				left := w.across - tile%w.across
				t.Count = min(left, end-tile, (w.Width-size-x)/w.m+1)
				t.In, t.InRow = address(a.X, plane+(y*w.Width+x)*Lanes), 4*w.Width*Lanes
			}
			w.set.WinogradIn(w.m, &t)
		}
	}
}

// columns is how many channels a panel has.
func (w *winograd) columns(panel int) int {
	return min(w.set.Columns, (Blocks(w.Out)-panel*w.set.Columns/Lanes)*Lanes)
}

// row multiplies a row of points of all tiles with a panel's weights, whose columns are transformed.
func (w *winograd) row(row, panel, tiles int, packed, v, m, weights []float32) {
	columns := w.columns(panel)
	size := w.inBlocks * Lanes * columns
	for lane := 0; lane < columns; lane += Lanes {
		w.set.WinogradLine(w.m, &kernel.WinogradTile{
			In: address(packed, row*w.lineFloats(columns)+lane), InStep: 4 * columns, InNext: 4 * 3 * columns,
			Out: address(weights, lane), OutStep: 4 * size, OutNext: 4 * columns, Count: w.inBlocks * Lanes,
		})
	}
	// Meanwhile the row of the next panel is fetched, a part with each point.
	next := uintptr(unsafe.Pointer(unsafe.SliceData(packed))) + uintptr(4*(w.pieceFloats()+row*w.lineFloats(columns)))
	for i := range w.m + 2 {
		ahead := next + uintptr(4*w.lineFloats(columns)/(w.m+2)*i)
		point := winogradPoint{row*(w.m+2) + i, panel, tiles, v, m}
		w.multiply(&point, weights[i*size:], ahead, false)
	}
}

// products multiplies a point of all tiles with a panel's weights. What follows is the next panel's point, or this one's
// next point.
func (w *winograd) products(point, panel, tiles int, packed, v, m []float32, panels bool) {
	size := w.inBlocks * Lanes * w.columns(panel)
	next := (point + 1) * size
	if panels {
		next = w.pieceFloats() + point*size
	}
	ahead := uintptr(unsafe.Pointer(unsafe.SliceData(packed))) + uintptr(4*next)
	w.multiply(&winogradPoint{point, panel, tiles, v, m}, packed[point*size:], ahead, true)
}

// A winogradPoint is one of the points of so many tiles, in v, which is multiplied with a panel's weights to sums in m.
type winogradPoint struct {
	point, panel, tiles int
	v, m                []float32
}

// multiply multiplies a point of all tiles with its weights of a panel. What lies ahead is fetched meanwhile: all the
// time, or in time, with what is to come of the weights before it.
func (w *winograd) multiply(p *winogradPoint, weights []float32, ahead uintptr, inTime bool) {
	columns := w.columns(p.panel)
	lines := aheadLines(columns, ceil(p.tiles, w.set.Pixels))
	for s := 0; s < w.inBlocks; s += partialBlocks {
		steps := min(partialBlocks, w.inBlocks-s)
		next := ahead
		if inTime && s+steps < w.inBlocks {
			next = uintptr(unsafe.Pointer(unsafe.SliceData(weights))) + uintptr(4*(s+steps)*Lanes*columns)
		}
		next = w.partial(p, s, steps, weights[s*Lanes*columns:], fetching{ahead: next, lines: lines})
		if !inTime {
			ahead = next
		}
	}
}

// partialBlocks is how many input blocks have sums of their own, which are added up one after another.
const partialBlocks = 256 / Lanes

// fetching is what is fetched while a point is multiplied: of what lies ahead so many lines with each four rows of
// weights, or where raw is not nil that, and the transforms of the next tile or point into the first cache.
type fetching struct {
	ahead uintptr
	lines int
	raw   *fetcher
}

// partial multiplies a point of all tiles with its weights of steps input blocks from block s on. It returns what lies
// behind what was fetched.
func (w *winograd) partial(p *winogradPoint, s, steps int, weights []float32, f fetching) uintptr {
	point, tiles := p.point, p.tiles
	t := kernel.ConvTile{
		Quads: 4, XPixel: 4 * Lanes, YPixel: 4 * Lanes, YBlock: 4 * w.outPlane, Steps: steps, Offsets: &w.offsets[s],
		X: address(p.v, point*w.inPoint), Y: address(p.m, point*w.outPoint), W: address(weights, 0),
		AheadW: f.ahead, AheadLines: f.lines,
	}
	if s > 0 {
		t.Flags = kernel.ConvAdd
	}
	narrow := w.columns(p.panel) < w.set.Columns
	count := ceil(tiles, w.set.Pixels)
	least, larger := tiles/count, tiles%count
	for i := range count {
		size := least
		if i < larger {
			size++
		}
		if f.raw != nil {
			t.AheadW, t.AheadLines = f.raw.next(fetchedBytes*steps), 1
			if t.AheadX = size * t.XPixel; i == count-1 {
				t.AheadX += 4*w.inPoint - tiles*t.XPixel
			}
		}
		w.set.Conv(size, narrow, &t)
		if i < count-1 {
			t.X, t.Y = move(t.X, size*t.XPixel), move(t.Y, size*t.YPixel)
		}
		t.AheadW += uintptr(fetchedBytes * t.AheadLines * t.Steps)
	}
	return t.AheadW
}

// ownPoint is the distance of points, in floats, of weights that a thread packs for itself: an odd number of cache lines,
// as those of transforms. ownPackedFloats is the size of these weights, of as many input blocks as have sums of their own.
func (w *winograd) ownPoint() int {
	return (min(w.inBlocks, partialBlocks)*w.set.Columns | 1) * Lanes
}

func (w *winograd) ownPackedFloats() int { return w.points * w.ownPoint() }

func (w *winograd) ownFloats(threads int) int {
	if w.whole != nil {
		return w.whole.ownFloats(threads)
	}
	if w.late || w.chunks > 1 || w.panels < 2*threads || 4*w.panels*w.pieceFloats() <= w.cacheBytes/2 ||
		4*w.ownPackedFloats() > min(w.cacheBytes*5/8, w.rawBytes/threads) {
		return 0
	}
	return w.inFloats() + threads*w.ownSlotFloats()
}

func (w *winograd) ownSlotFloats() int { return scratchFloats + w.ownPackedFloats() + w.outPanel }

func (w *winograd) runOwn(ctx context.Context, pool Pool, a *Args, f *finish, work []float32) {
	if w.whole != nil {
		w = w.whole
	}
	scratch := newSlots(work, w.ownSlotFloats(), pool.Threads())
	step := winogradStep{
		winograd: w, ctx: ctx, a: a, f: f, scratch: scratch, end: w.tiles, v: work[pool.Threads()*w.ownSlotFloats():],
	}
	tasks.Do(pool, w.inBlocks, 1, winogradIn{step})
	tasks.Do(pool, w.panels, 1, winogradOwn{step})
	scratch.end()
}

// winogradOwn computes panels, whose weights each part packs.
type winogradOwn struct{ winogradStep }

// Run implements tasks.Task.
func (t *winogradOwn) Run(i, j int) {
	w, v, slot := t.winograd, t.v, t.scratch.take()
	defer t.scratch.give(slot)
	// While a point is multiplied its successor's transforms are fetched, and with the last points the raw weights that follow.
	count := ceil(w.tiles, w.set.Pixels)
	lines := ceil(w.tiles, 4*count)
	weights, m := slot[scratchFloats:][:w.ownPackedFloats()], slot[scratchFloats+w.ownPackedFloats():]
	for ; i < j && t.ctx.Err() == nil; i++ {
		for s := 0; s < w.inBlocks; s += partialBlocks {
			steps := min(partialBlocks, w.inBlocks-s)
			w.packBlocks(t.a.Weight, i, s, s+steps, weights)
			raw := w.followBlocks(&t.a.Weight, i, s+steps)
			wait := w.points - ceil(raw.pieces(fetchedBytes*steps), count)
			for point := range w.points {
				of := weights[point*w.ownPoint():]
				p := winogradPoint{point, i, w.tiles, v, m}
				if point >= wait && raw.rows > 0 {
					w.partial(&p, s, steps, of, fetching{raw: &raw})
					continue
				}
				next := uintptr(unsafe.Pointer(unsafe.SliceData(v))) + uintptr(4*((point+1)*w.inPoint+s*w.inPlane))
				w.partial(&p, s, steps, of, fetching{ahead: next, lines: lines})
			}
		}
		w.output(t.a, t.f, 0, w.tiles, i, m, slot)
	}
}

// followBlocks returns the raw weights that are packed after the input blocks before block to of a panel.
func (w *winograd) followBlocks(raw *Weight, panel, to int) fetcher {
	if to >= w.inBlocks {
		panel, to = panel+1, 0
	}
	end := min((to+partialBlocks)*Lanes, w.In)
	return w.follow(raw, panel*w.set.Columns, w.set.Columns, to*Lanes, end)
}

// packBlocks writes all points of input blocks [from, to) of a panel.
func (w *winograd) packBlocks(raw Weight, panel, from, to int, dst []float32) {
	columns := w.columns(panel)
	first := panel * w.set.Columns
	s := newStaging(9, columns)
	for block := from; block < to; block++ {
		s.load(w.Conv, raw, columns, first, min(columns, w.Out-first), block*Lanes, min(Lanes, w.In-block*Lanes))
		w.packPoints(*s, columns, w.ownPoint(), dst[(block-from)*Lanes*columns:])
	}
	stagings.Put(s)
}

// output transforms a panel's products of tiles [first, end) and finishes them.
func (w *winograd) output(a *Args, f *finish, first, end, panel int, m, slot []float32) {
	edge, residual := slot[72*Lanes:][:16*Lanes], slot[88*Lanes:][:16*Lanes]
	for b := range min(w.set.Columns/Lanes, Blocks(w.Out)-panel*w.set.Columns/Lanes) {
		block := panel*w.set.Columns/Lanes + b
		t := kernel.WinogradTile{
			InRow: 4 * (w.m + 2) * w.outPoint, InStep: 4 * w.outPoint, InNext: 4 * Lanes, OutStep: 4 * Lanes,
			OutNext: 4 * w.m * Lanes, Scratch: &slot[0], Flags: f.flags, Low: f.low, High: f.high,
			Scale: address(f.scale, block*Lanes), Shift: address(f.shift, block*Lanes),
			Mask: (*uint32)(unsafe.Pointer(address(f.mask, block*Lanes))),
		}
		for tile := first; tile < end; tile += t.Count {
			image, y, x := w.place(tile)
			plane := (image*Blocks(w.Out) + block) * w.OutHeight * w.OutWidth * Lanes
			at := plane + (y*w.OutWidth+x)*Lanes
			t.In = address(m, b*w.outPlane+(tile-first)*Lanes)
			t.Count = 1
			rows, columns := min(w.m, w.OutHeight-y), min(w.m, w.OutWidth-x)
			if rows < w.m || columns < w.m {
				if f.residual != nil {
					for r := range rows {
						copy(residual[r*w.m*Lanes:][:columns*Lanes], f.residual[at+r*w.OutWidth*Lanes:])
					}
					t.Residual = &residual[0]
				}
				t.Out, t.OutRow = &edge[0], 4*w.m*Lanes
				w.set.WinogradOut(w.m, &t)
				for r := range rows {
					copy(a.Y[at+r*w.OutWidth*Lanes:][:columns*Lanes], edge[r*w.m*Lanes:])
				}
			} else {
				t.Count = min(w.across-tile%w.across, end-tile, (w.OutWidth-x)/w.m)
				t.Out, t.OutRow = address(a.Y, at), 4*w.OutWidth*Lanes
				if f.residual != nil {
					t.Residual = address(f.residual, at)
				}
				w.set.WinogradOut(w.m, &t)
				columns = t.Count * w.m
			}
			if f.after != None {
				for r := range rows {
					f.apply(a.Y[at+r*w.OutWidth*Lanes:][:columns*Lanes], block)
				}
			}
		}
	}
}
