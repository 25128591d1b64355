package blocked

import (
	"context"
	"unsafe"

	"github.com/optimem/optimem/internal/cpu/kernel"
	"github.com/optimem/optimem/internal/cpu/tasks"
)

// An Expansion is a pointwise convolution and a depthwise one over what it gives, computed together: a few channels of a
// band of rows at a time, which stay in the second cache between the two. Rows where bands meet are computed for both.
type Expansion struct {
	first, second *Conv
	wide, deep    *direct
}

// CanExpand reports whether two convolutions can be an expansion: the first pointwise, the second depthwise over all that
// it gives.
func CanExpand(first, second Geometry) bool {
	return choose(first) == Pointwise && choose(second) == Depthwise && first.PadTop == 0 && first.PadLeft == 0 &&
		first.Batch == second.Batch && first.Out == second.In && first.OutHeight == second.Height &&
		first.OutWidth == second.Width &&
		first.Height == first.OutHeight && first.Width == first.OutWidth
}

// NewExpansion returns the expansion of two convolutions for which CanExpand holds.
func NewExpansion(first, second Geometry) *Expansion {
	return newExpansion(kernel.SecondCache(), first, second, kernel.ConvSets()[0])
}

func newExpansion(cacheBytes int, first, second Geometry, set *kernel.ConvSet) *Expansion {
	e := &Expansion{
		first: newConvIn(cacheBytes, first, Pointwise, set), second: newConvIn(cacheBytes, second, Depthwise, set),
	}
	e.wide, e.deep = e.first.how.(*direct), e.second.how.(*direct)
	// The first writes what lies between with zeros around.
	d := e.deep
	d.copied, d.edgeRows, d.edgeColumns, d.offsets = true, nil, nil, nil
	blocks := set.Columns / Lanes
	rows := max(1, e.first.stayBytes()/4/(blocks*d.rowFloats()))
	d.bandRows = max(1, (rows-(d.KernelH-1)*d.DilationH-1)/d.StrideH+1)
	d.bands = ceil(d.OutHeight, min(d.bandRows, d.OutHeight))
	if len(e.wide.panels) < parts && d.OutHeight >= 8 { // both halves of the threads have something to do
		d.bands = min((d.bands+1)/2*2, d.OutHeight)
	}
	d.bandRows = ceil(d.OutHeight, d.bands)
	d.setOffsets()
	// Pixels are read where they lie, row by row.
	w := e.wide
	w.gathered, w.shared, w.offsets, w.plane = false, false, nil, w.Height*w.Width*Lanes
	for block := range w.steps {
		w.offsets = append(w.offsets, 4*block*w.plane)
	}
	return e
}

// Convs returns the two convolutions, for their packed weights.
func (e *Expansion) Convs() [2]*Conv { return [2]*Conv{e.first, e.second} }

// slotFloats is the scratch memory of a part.
func (e *Expansion) slotFloats() int { return (e.wide.set.Columns/Lanes*e.deep.plane + 15) / 16 * 16 }

// WorkBytes is the scratch memory that Run needs on a pool of the given number of threads, with packed weights or raw.
func (e *Expansion) WorkBytes(threads int, packed bool) int64 {
	n := finishFloats(e.first.Out) + finishFloats(e.second.Out) + threads*e.slotFloats()
	if !packed {
		n += e.first.rawPieces()*e.wide.pieceFloats() + e.deep.pieces()*e.deep.pieceFloats()
	}
	return 4 * int64(n)
}

// Run computes both: X, the weights and the epilogue of the first, and Y, the weights and the epilogue of the second. Work
// is the first's. No residual is added in the first.
func (e *Expansion) Run(ctx context.Context, pool Pool, a, b Args) error {
	r := tasks.Take[expansionRun]()
	r.Expansion, r.ctx, r.a, r.b = e, ctx, a, b
	r.run(pool)
	*r = expansionRun{}
	tasks.Give(r)
	return ctx.Err()
}

// An expansionRun is an expansion being computed. It is a task whose parts are bands of images for panels [from, to), whose
// weights begin at packed.
type expansionRun struct {
	*Expansion
	ctx      context.Context
	a, b     Args
	f, g     finish
	scratch  *slots
	from, to int
	packed   []float32
	work     []float32
}

// take returns memory of the work that is left.
func (r *expansionRun) take(n int) []float32 {
	taken := r.work[:n:n]
	r.work = r.work[n:]
	return taken
}

func (r *expansionRun) run(pool Pool) {
	e, a, b := r.Expansion, &r.a, &r.b
	r.work = a.Work
	r.f.of(e.first, a, r.take(finishFloats(e.first.Out)))
	r.g.of(e.second, b, r.take(finishFloats(e.second.Out)))
	r.scratch = newSlots(r.take(pool.Threads()*e.slotFloats()), e.slotFloats(), pool.Threads())
	size := e.wide.pieceFloats()
	if b.Packed == nil {
		b.Packed = r.take(e.deep.pieces() * e.deep.pieceFloats())
		e.second.Pack(pool, b.Weight, b.Packed)
	}
	pieces := e.wide.pieces()
	step := pieces
	var room []float32
	if a.Packed == nil {
		step = e.first.rawPieces()
		room = r.take(step * size)
	}
	for from := 0; from < pieces && r.ctx.Err() == nil; from += step {
		r.from, r.to, r.packed = from, min(from+step, pieces), room
		if a.Packed != nil {
			r.packed = a.Packed[from*size:]
		} else {
			tasks.Do(pool, r.to-from, 1, packPieces{how: e.wide, pool: pool, w: a.Weight, first: from, packed: room})
		}
		pool.Do((r.to-from)*e.first.Batch*e.deep.bands, 1, r)
	}
	r.scratch.end()
}

// Run implements tasks.Task.
func (r *expansionRun) Run(i, j int) {
	e, count := r.Expansion, r.to-r.from
	slot := r.scratch.take()
	defer r.scratch.give(slot)
	for ; i < j && r.ctx.Err() == nil; i++ {
		// A thread has the bands of its pixels, for all weights.
		panel, image, band := i%count, i/count/e.deep.bands, i/count%e.deep.bands
		job := directJob{direct: e.deep, a: &r.b, f: &r.g, image: image, x: slot}
		job.rows[0], job.rows[1] = share(e.deep.height, e.deep.bands, band)
		job.cols[1] = e.deep.width
		p := e.wide.panels[r.from+panel]
		e.expand(&r.a, &r.f, image, p, r.packed[panel*e.wide.pieceFloats():], slot, job.rows)
		for k := range p.blocks {
			q := e.deep.panels[p.block+k]
			job.inputs = p.block
			job.depthwisePanel(q, r.b.Packed[q.block*e.deep.pieceFloats():], nil)
		}
	}
}

// expand computes the rows that a band of the second's output reads, for a panel, with zeros for padding around.
func (e *Expansion) expand(a *Args, f *finish, image int, p panel, w, slot []float32, rows [2]int) {
	c, d := e.wide, e.deep
	set := c.set
	line := d.rowFloats()
	top := rows[0]*d.StrideH - d.PadTop
	n := (rows[1]-rows[0]-1)*d.StrideH + (d.KernelH-1)*d.DilationH + 1
	lead := min(d.PadLeft, d.copyWidth)
	count := max(0, min(d.copyWidth-lead, c.Width))
	if d.PadLeft > lead {
		count = 0
	}
	low, high := min(max(0, -top), n), max(min(n, c.Height-top), 0)
	for k := range p.blocks {
		block := slot[k*d.plane:][:n*line]
		clear(block[:low*line])
		clear(block[max(low, high)*line:])
		for r := low; r < high; r++ {
			row := block[r*line:][:line]
			clear(row[:lead*Lanes])
			clear(row[(lead+count)*Lanes:])
		}
	}
	if count == 0 || low >= high {
		return
	}
	columns := p.blocks * Lanes
	narrow := columns < set.Columns
	steps := p.to - p.from
	stepFloats := c.depth * columns
	tiles := ceil(count, set.Pixels)
	size, larger := count/tiles, count%tiles
	t := kernel.ConvTile{
		Quads: c.depth / 4, XPixel: 4 * Lanes, YPixel: 4 * Lanes, YBlock: 4 * d.plane,
		Scale: address(f.scale, p.block*Lanes), Shift: address(f.shift, p.block*Lanes),
		Mask: (*uint32)(unsafe.Pointer(address(f.mask, p.block*Lanes))), Low: f.low, High: f.high,
		AheadLines: aheadLines(columns, (high-low)*tiles),
	}
	for s := 0; s < steps; s += c.partial {
		t.Steps = min(c.partial, steps-s)
		t.W, t.Offsets, t.Flags = address(w, s*stepFloats), &c.offsets[s], 0
		if s > 0 {
			t.Flags = kernel.ConvAdd
		}
		if s+t.Steps == steps {
			t.Flags |= f.flags
		}
		t.AheadW = uintptr(unsafe.Pointer(unsafe.SliceData(w))) + uintptr(4*(s+t.Steps)*stepFloats)
		for r := low; r < high; r++ {
			x := ((image*Blocks(c.In)+p.from)*c.Height + top + r) * c.Width * Lanes
			y := r*line + lead*Lanes
			for i, at := 0, 0; i < tiles; i++ {
				pixels := size
				if i < larger {
					pixels++
				}
				t.X, t.Y = address(a.X, x+at*Lanes), address(slot, y+at*Lanes)
				set.Conv(pixels, narrow, &t)
				t.AheadW += uintptr(256 * t.AheadLines * t.Steps)
				at += pixels
			}
		}
	}
	if f.after != None {
		for k := range p.blocks {
			for r := low; r < high; r++ {
				f.apply(slot[k*d.plane+r*line+lead*Lanes:][:count*Lanes], p.block+k)
			}
		}
	}
}
