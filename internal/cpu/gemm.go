package cpu

import (
	"sync"
	"sync/atomic"
	"unsafe"

	simd "github.com/optimem/optimem/internal/cpu/kernel"
	"github.com/optimem/optimem/internal/cpu/ops"
	"github.com/optimem/optimem/internal/cpu/tasks"
	"github.com/optimem/optimem/tensor"
)

// Sums over k run in order within a block of blockK and the blocks' sums are added in order, so results depend on nothing
// else: not on the threads, on where in the matrix a row or column stands, or on how a factor lies in memory.
const (
	blockK = 256
	// unroll is what depths of packed groups are rounded up to.
	unroll = 4
	// stripColumns is the number of columns that are computed with together, a multiple of every tile's.
	stripColumns = 32
	// groupStrips strips of a right factor are packed together where there are many rows.
	groupStrips = 4
)

// A panelSource gives one factor of a product in the order that gemm reads it. A line is a row of the left factor or a
// column of the right one.
type panelSource[T ops.Real] interface {
	// pack writes the elements [k0, k1) of the lines [from, to) to dst, in groups of width lines: element k of line l
	// goes to dst[(l-from)/width·depth·width + (k-k0)·width + (l-from)%width], where depth is k1-k0 rounded up to a
	// multiple of unroll. All other elements of the groups are set to zero. from is a multiple of width, and there are at
	// most stripColumns lines.
	pack(dst []T, width, from, to, k0, k1 int)
}

// gemmOptions are what gemm does besides a product. At most one of the first three is set.
type gemmOptions[T ops.Real] struct {
	// rowBias and columnBias are added to the rows' or columns' elements.
	rowBias, columnBias []T
	// add adds to what c holds instead of replacing it.
	add bool
	// ending is what is done to complete sums.
	ending ending[T]
	// half is where the result goes, rounded, row by row from element halfAt on; absent where it goes to c.
	half   ops.View
	halfAt int
}

// gemm computes c = a·b, m×n with rows that lie ldc elements apart, for factors of depth k. T is float32, also for half
// floats, or float64.
//
//	a := &matrix[float32]{data: x.data, dtype: x.dtype, offset: x.layout.Offset, line: k, step: 1}
//	w := &matrix[float32]{data: y.data, dtype: y.dtype, offset: y.layout.Offset, line: k, step: 1}
//	gemm(c.pool, m, n, k, a, w, out, n, gemmOptions[float32]{columnBias: bias}, c.work[:gemmWork(m, n, k, 4)])
//
// work has the size that gemmWork gives and a multiple of 8 as address. With a nil pool the work is done by the
// caller's goroutine alone, with the same results.
func gemm[T ops.Real](p *ops.Pool, m, n, k int, a, b panelSource[T], c []T, ldc int, o gemmOptions[T], work []byte) {
	if m == 0 || n == 0 {
		return
	}
	g := takeGemm[T]()
	g.a, g.b = a, b
	if x, ok := a.(*matrix[T]); ok {
		g.left = *x
		g.a = &g.left
	}
	if w, ok := b.(*matrix[T]); ok {
		g.right = *w
		g.b = &g.right
	}
	g.m, g.n, g.k, g.c, g.ldc, g.o, g.work, g.set = m, n, k, c, ldc, o, work, setOf(p)
	g.run(p)
	g.release()
}

// gemmWork returns the bytes of scratch memory for a product of elements of the given size.
func gemmWork(m, n, k, size int) int64 { return cutGemm(m, n, k, size, false).workBytes() }

// gemmWorkOn is gemmWork for a number of threads; half is for a product that is rounded to a half float.
func gemmWorkOn(threads, m, n, k, size int, half bool) int64 {
	g := cutGemm(m, n, k, size, half)
	g.lanes = min(g.lanes, threads)
	return g.workBytes()
}

// A gemmCut is how a product is cut, by its sizes alone.
type gemmCut struct {
	// A block is some rows and a chunk of the depth, which the left factor is packed for.
	rows, depth int
	// A part of parallel work is some strips of columns of some rows of a block.
	strips, partRows int
	// pitch is the number of elements from a packed row of blockK to the next.
	pitch int
	// lanes is how many parts are computed at the same time.
	lanes                int
	leftBytes, laneBytes int
	// rowsBytes is the scratch of a product of few rows over rows of the right factor; 0 where there are many.
	rowsBytes int64
	// Of a lane: the packed panels, and the sums of results that are rounded.
	panels, sums int
}

// mostLanes bounds the threads that work at one product.
const mostLanes = 64

// edgeElements is the size of a tile, where tiles are computed that are cut off.
const edgeElements = 14 * stripColumns

func cutGemm(m, n, k, size int, half bool) gemmCut {
	const (
		leftMost, lanesMost = 4 << 20, 4 << 20 // bytes
		blockRows           = 2048
		halfRows            = 256
		manyParts           = 32
		leastPart           = 1 << 19 // of cost
		leastRows           = 224
	)
	m, n, k = max(m, 1), max(n, 1), max(k, 1)
	var g gemmCut
	// The pitch is odd in cache lines: rows of a tile do not compete for the same places.
	g.pitch = ops.RoundUp(min(k, blockK), 16) + 16
	blocks := max(1, (k+blockK-1)/blockK)
	if half { // sums stay with their part, which takes all of the depth
		g.rows = min(m, max(1, min(halfRows, leftMost/(blocks*g.pitch*size))))
		g.depth = k
	} else {
		g.rows = min(m, blockRows)
		g.depth = max(1, leftMost/(g.rows*g.pitch*size)) * blockK
		g.depth = min(g.depth, k)
	}
	g.leftBytes = ops.RoundUp(g.rows*((g.depth+blockK-1)/blockK)*g.pitch*size, 64)

	strips := (n + stripColumns - 1) / stripColumns
	g.strips = min(groupStrips, strips)
	least := 1
	if g.leftBytes > 1<<20 {
		least = 2 // the left factor comes from afar, once for each part
	}
	if m <= simd.FewRows {
		least = groupStrips // several streams
	}
	for g.strips > least && strips/g.strips < manyParts {
		g.strips = (g.strips + 1) / 2
	}
	const memory = 24 // what reading the right factor costs, in rows computed
	for g.strips < strips && (g.rows+memory)*g.strips*stripColumns*g.depth < leastPart {
		g.strips *= 2
	}
	parts := (strips + g.strips - 1) / g.strips
	g.partRows = g.rows
	if parts < manyParts {
		each := min(g.rows, max(leastRows, (g.rows+manyParts/parts-1)/(manyParts/parts)))
		down := max((g.rows+each/2)/each, 1) // no part of a few rows, which would pack as much as others
		g.partRows = (g.rows + down - 1) / down
	}
	parts *= (g.rows + g.partRows - 1) / g.partRows

	packed := min(groupStrips, g.strips)
	if g.rows <= 16 {
		packed = 1
	}
	g.panels = packed * stripColumns * ops.RoundUp(min(k, blockK), unroll)
	if half {
		g.sums = g.partRows * min(groupStrips, g.strips) * stripColumns
	}
	g.laneBytes = ops.RoundUp((edgeElements+g.panels+g.sums)*size, 64)
	g.lanes = max(1, min(parts, mostLanes, lanesMost/g.laneBytes))
	if m <= simd.FewRows && size == 4 {
		g.rowsBytes = cutRows(m, n, k, half).workBytes()
	}
	return g
}

func (g gemmCut) workBytes() int64 {
	return max(int64(64+g.leftBytes+g.lanes*g.laneBytes), g.rowsBytes)
}

// A gemmCall is a product being computed. It is a task whose parts are lanes.
type gemmCall[T ops.Real] struct {
	m, n, k     int
	a, b        panelSource[T]
	left, right matrix[T] // what a and b are, where they are matrices
	c           []T
	ldc         int
	o           gemmOptions[T]
	work        []byte

	gemmCut
	set *simd.Set
	// columns and tileRows are the size of a tile.
	columns, tileRows int
	// direct says that the left factor is read where it lies.
	direct bool
	// element is what the right factor holds where tiles can read it as it is.
	element simd.Element
	source  rightSource
	// fewColumns is how many columns are computed with together where rows are few, else 0.
	fewColumns int
	// Of the block that is computed: the first row and the number of them, the depth, the packed left factor.
	i0, rows, k0, k1 int
	leftPack         []T
	parts            int
	// next is the next part of each lane's that nobody took.
	next [mostLanes]atomic.Int64
	// round says that factors may be rounded to bfloat16.
	round bool
	unit  unitCut
	// operands are what activations are given, by lane.
	operands [mostLanes][1][]float32
}

// A rightSource is where tiles find the right factor.
type rightSource int

const (
	// rightPacked is packed for each part as it is needed.
	rightPacked rightSource = iota
	// rightPanels was packed before, rightRows lies with its columns one behind the other.
	rightPanels
	rightRows
)

// Calls are kept for later ones, so that products allocate nothing.
var gemmCalls32, gemmCalls64 sync.Pool

func gemmCalls[T ops.Real]() *sync.Pool {
	if ops.RealDType[T]() == tensor.Float64 {
		return &gemmCalls64
	}
	return &gemmCalls32
}

func takeGemm[T ops.Real]() *gemmCall[T] {
	if g, ok := gemmCalls[T]().Get().(*gemmCall[T]); ok {
		return g
	}
	return new(gemmCall[T])
}

// release gives a call back, without what it refers to.
func (g *gemmCall[T]) release() {
	*g = gemmCall[T]{}
	gemmCalls[T]().Put(g)
}

// setOf returns the vector kernels that a pool computes with.
func setOf(p *ops.Pool) *simd.Set {
	if p == nil {
		return simd.Best()
	}
	return p.Set
}

// run computes the product, whose sizes, factors, options, scratch and set are given.
func (g *gemmCall[T]) run(p *ops.Pool) {
	if ops.RealDType[T]() == tensor.Float64 {
		g.set = nil
	}
	if g.k == 0 {
		g.empty()
		return
	}
	half := !g.o.half.Absent()
	g.gemmCut = cutGemm(g.m, g.n, g.k, int(unsafe.Sizeof(*new(T))), half)
	if have := len(g.work) - 64 - g.leftBytes; have < g.lanes*g.laneBytes {
		g.lanes = have / g.laneBytes
	}
	g.alignWork()
	g.columns = goColumns
	if g.set != nil {
		g.columns = g.set.Columns
	}
	g.left.set, g.right.set = g.set, g.set
	if g.set == nil && !half && !g.o.ending.any() && g.skinny(p) {
		return
	}
	most := goRows
	if g.set != nil {
		most = g.set.Rows
	}
	part := min(g.partRows, g.gemmCut.rows)
	tiles := (part + most - 1) / most
	g.tileRows = (part + tiles - 1) / tiles
	g.source, g.element = rightPacked, simd.Float32
	if g.b == panelSource[T](&g.right) {
		g.source, g.element = g.right.source(tiles)
	}
	if g.byRows() {
		g.runRows(p)
		return
	}
	g.fewColumns = g.fewWidth()
	if g.right.encoding != nil && g.fewColumns > 0 {
		g.strips = g.codesStrips()
	}
	g.direct = g.a == panelSource[T](&g.left) && g.left.inPlace(g.m, g.n)
	down := (g.gemmCut.rows + g.partRows - 1) / g.partRows
	across := ((g.n+stripColumns-1)/stripColumns + g.strips - 1) / g.strips
	for g.i0 = 0; g.i0 < g.m; g.i0 += g.gemmCut.rows {
		g.rows = min(g.gemmCut.rows, g.m-g.i0)
		for g.k0 = 0; g.k0 < g.k; g.k0 += g.gemmCut.depth {
			g.k1 = min(g.k0+g.gemmCut.depth, g.k)
			if !g.direct {
				g.packLeft(p)
			}
			g.parts = down * across
			for lane := range g.lanes {
				g.next[lane].Store(int64(g.firstPart(lane)))
			}
			if p == nil || g.lanes == 1 {
				g.Run(0, 1)
			} else {
				p.Do(g.lanes, 1, g)
			}
		}
	}
}

// alignWork makes the scratch begin with a cache line, which vectors should not cross.
func (g *gemmCall[T]) alignWork() {
	g.work = g.work[-int(uintptr(unsafe.Pointer(unsafe.SliceData(g.work))))&63:]
}

// empty is the product of depth 0.
func (g *gemmCall[T]) empty() {
	room := tasks.Take[[ops.Chunk]T]()
	for i := range g.m {
		for j := 0; j < g.n; j += ops.Chunk {
			line := room[:min(ops.Chunk, g.n-j)]
			if g.o.half.Absent() {
				line = g.c[i*g.ldc+j:][:len(line)]
			}
			for k := range line {
				line[k] = g.o.first(line[k], i, j+k)
			}
			g.finish(0, completeSums[T]{row: i, rows: 1, j: j, width: len(line), c: line, ldc: len(line)}, nil)
			if !g.o.half.Absent() {
				ops.StoreReal(g.o.half, g.o.halfAt+i*g.n+j, line)
			}
		}
	}
	tasks.Give(room)
}

// first returns what the product is added to, where c holds old.
func (o *gemmOptions[T]) first(old T, i, j int) T {
	switch {
	case o.add:
		return old
	case o.rowBias != nil:
		return o.rowBias[i]
	case o.columnBias != nil:
		return o.columnBias[j]
	}
	return 0
}

// A leftPacker is a call as the task of packing rows of its left factor.
type leftPacker[T ops.Real] gemmCall[T]

func (g *gemmCall[T]) packLeft(p *ops.Pool) {
	const each = 1 << 15 // elements
	g.leftPack = ops.Elements[T](ops.View{Data: g.work[:g.leftBytes]})
	if p == nil {
		(*leftPacker[T])(g).Run(0, g.rows)
		return
	}
	p.Do(g.rows, ops.RoundUp(max(1, each/(g.k1-g.k0)), 8), (*leftPacker[T])(g))
}

// Run packs rows.
func (l *leftPacker[T]) Run(from, to int) {
	g := (*gemmCall[T])(l)
	for k0 := g.k0; k0 < g.k1; k0 += blockK {
		k1 := min(k0+blockK, g.k1)
		dst := g.leftPack[(k0-g.k0)/blockK*g.gemmCut.rows*g.pitch:]
		if g.a == panelSource[T](&g.left) {
			g.left.packRows(dst[from*g.pitch:], g.pitch, g.i0+from, g.i0+to, k0, k1)
			continue
		}
		for i := from; i < to; i++ {
			g.a.pack(dst[i*g.pitch:], 1, g.i0+i, g.i0+i+1, k0, k1)
		}
	}
}

// firstPart returns the first part of a lane: each has parts that lie side by side, so that one fetches what the next
// reads, and then takes what others have left.
func (g *gemmCall[T]) firstPart(lane int) int { return lane * g.parts / g.lanes }

// Run computes parts until none is left.
func (g *gemmCall[T]) Run(lane, _ int) {
	down := (g.gemmCut.rows + g.partRows - 1) / g.partRows
	for i := range g.lanes {
		owner := (lane + i) % g.lanes
		end := g.firstPart(owner + 1)
		for n := int(g.next[owner].Add(1)) - 1; n < end; n = int(g.next[owner].Add(1)) - 1 {
			i0 := n % down * g.partRows
			i1 := min(i0+g.partRows, g.rows)
			j0 := n / down * g.strips * stripColumns
			if i0 < i1 {
				g.part(lane, i0, i1, j0, min(j0+g.strips*stripColumns, g.n))
			}
		}
	}
}
