package codes

import (
	"sync"
	"unsafe"

	simd "github.com/optimem/optimem/internal/cpu/kernel"
	"github.com/optimem/optimem/internal/cpu/ops"
)

// A Product multiplies M rows of K inputs by N lines of a weight's blocks. Those who work side by side have a lane each:
// first all round inputs ([Product.Round]), then each multiplies by some lines ([Product.Multiply]).
//
// Few rows are multiplied by lines as they lie where a processor can (lined), others by lines side by side, by a matrix unit where
// there is one for integers, unless that takes longer (sideBySide); the bits are the same.
type Product struct {
	M, N, K int
	Set     *simd.Set
	Expand  Expansion
	// Panel is nil where panels are made of lines that are expanded.
	Panel Paneling
	// Lining is nil where lines are not multiplied as they lie.
	Lining *Lining
	// Minima says that blocks may add something to each number; see Minima.
	Minima bool
	// Blocks has lines of Width bytes, Stride bytes apart.
	Blocks        []byte
	Width, Stride int
	// Bias is added to each row, where it is not nil. Out has a row after the other.
	Bias, Out []float32

	inputs simd.Codes
	lanes  []lane
	// padded is how many rows panels have, 0 where there are none; factors are what each PanelRows of them take beside
	// their codes.
	padded  int
	factors []float32
	// tiles are the rows instead where a matrix unit multiplies: none where it does not.
	tiles simd.CodeTiles
	// arranged are the codes of rows for lines as they lie, whose factors they have then: none where there are no such lines.
	arranged []int8
}

// A lane is the room of one of those who work side by side.
type lane struct {
	line simd.Codes
	// lines are those of a panel, one after the other.
	lines []int8
	panel simd.CodePanel
	sums  []float32
	room  []float32
}

// panelRows is from how many rows on lines that were expanded one by one become panels; fewer leave too much of one unused.
const panelRows = 5

// sideBySide reports whether lines are multiplied side by side where the processor can. Where blocks become a panel at once, one
// row takes less time so than line by line, too.
func (p *Product) sideBySide() bool {
	return p.M > 0 && p.K > 0 && (p.M >= panelRows || p.Panel != nil)
}

// lined reports whether lines are multiplied as they lie.
func (p *Product) lined() bool {
	most := mostLineRows
	if p.Panel != nil {
		most = panelLineRows
	}
	return p.Lining != nil && p.M <= most && p.M > 0 && p.K > 0 && p.K%(simd.CodeBlock*simd.CodeLanes) == 0
}

// inPanels returns how many rows there are in panels.
func inPanels(m int) int { return ops.RoundUp(m, simd.PanelRows) }

// mostTiles is how many tiles are multiplied by a panel at a time: their sums stay in the second cache.
const mostTiles = 8

// inTiles returns how many tiles there are of the rows that are in panels.
func inTiles(m int) int { return (inPanels(m) + simd.TileRows - 1) / simd.TileRows }

// inputBytes is what the codes of m rows of k inputs take: also their scales, and their sums' products with them.
func inputBytes(m, k int) int64 {
	return ops.ScratchBytes(1, m*k) + ops.ScratchBytes(4, m*k/simd.CodeBlock, m*k/simd.CodeBlock)
}

// LaneBytes is what a lane takes: a line of the weight as codes, and with panels one's lines, itself and its sums.
func LaneBytes(m, k int) int64 {
	bytes := inputBytes(1, k)
	if tiles := inTiles(m); tiles > 0 {
		bytes += ops.ScratchBytes(1, simd.PanelColumns*k, simd.PanelColumns*k) + ops.ScratchBytes(
			4, 2*simd.PanelColumns*k/simd.CodeBlock, min(tiles, mostTiles)*simd.TileSums+simd.TileRoom,
		) + 2*line
	}
	return bytes
}

// SharedBytes is what all lanes take together.
func SharedBytes(m, k int) int64 {
	padded := inPanels(m)
	panels := inputBytes(max(m, padded), k) + ops.ScratchBytes(4,
		padded/simd.PanelRows*k/simd.CodeBlock*simd.PanelFactors)
	blocks := inTiles(m) * k / simd.CodeBlock
	if m <= mostLineRows {
		steps := m * k / simd.CodeBlock / simd.CodeLanes
		panels = max(panels, inputBytes(m, k)+ops.ScratchBytes(1, m*k)+ops.ScratchBytes(4, steps*simd.LineFactors)+2*line)
	}
	return max(panels, ops.ScratchBytes(1, blocks*simd.TileCodes)+ops.ScratchBytes(4, blocks*simd.TileFactors)+2*line)
}

// line is how many bytes of memory are in the cache together.
const line = 64

// align leaves out what is before the next line.
func align(work *ops.Scratch) {
	at := uintptr(unsafe.Pointer(unsafe.SliceData(*work)))
	*work = (*work)[-at&(line-1):]
}

func takeSigned(work *ops.Scratch, n int) []int8 {
	return ops.Elements[int8](ops.View{Data: takeBytes(work, n)})
}

func takeBytes(work *ops.Scratch, n int) []byte {
	bytes := ops.RoundUp(n, 8)
	piece := (*work)[:bytes]
	*work = (*work)[bytes:]
	return piece[:n]
}

func takeCodes(work *ops.Scratch, m, k int) simd.Codes {
	c := simd.Codes{Codes: takeSigned(work, m*k)}
	c.Scales, c.Extra = ops.TakeReal[float32](work, m*k/simd.CodeBlock), ops.TakeReal[float32](work, m*k/simd.CodeBlock)
	return c
}

// Take takes what all lanes need of the scratch, and then what each does, for so many.
func (p *Product) Take(lanes int, work *ops.Scratch) {
	lined := p.lined()
	tiled := !lined && p.Set.HasCodeTiles() && p.sideBySide()
	if p.padded = inPanels(p.M); tiled || lined || !p.Set.HasCodePanels() || !p.sideBySide() {
		p.padded = 0
	}
	switch {
	case lined:
		p.inputs = takeCodes(work, p.M, p.K)
		align(work)
		p.arranged = takeSigned(work, p.M*p.K)
		align(work)
		p.factors = ops.TakeReal[float32](work, p.M*p.K/simd.CodeBlock/simd.CodeLanes*simd.LineFactors)
	case tiled:
		p.takeTiles(work)
	case p.padded > 0:
		p.inputs = takeCodes(work, max(p.M, p.padded), p.K)
		p.factors = ops.TakeReal[float32](work, p.padded/simd.PanelRows*p.K/simd.CodeBlock*simd.PanelFactors)
		clear(p.factors) // also those of rows that there are not
		clear(p.inputs.Codes[p.M*p.K:])
	default:
		p.inputs = takeCodes(work, p.M, p.K)
	}
	for range lanes {
		l := lane{line: takeCodes(work, 1, p.K)}
		if p.padded > 0 || tiled {
			l.lines = takeSigned(work, simd.PanelColumns*p.K)
			align(work)
			l.panel.Words = takeBytes(work, simd.PanelColumns*p.K)
			l.panel.Scales = ops.TakeReal[float32](work, 2*simd.PanelColumns*p.K/simd.CodeBlock)
		}
		if tiled {
			align(work)
			l.room = ops.TakeReal[float32](work, simd.TileRoom)
			l.sums = ops.TakeReal[float32](work, min(inTiles(p.M), mostTiles)*simd.TileSums)
		} else if p.padded > 0 {
			l.sums = ops.TakeReal[float32](work, simd.PanelSums)
		}
		p.lanes = append(p.lanes, l)
	}
}

// takeTiles takes the inputs of a matrix unit. Rows that there are not are nothing.
func (p *Product) takeTiles(work *ops.Scratch) {
	p.tiles.Blocks = p.K / simd.CodeBlock
	blocks := inTiles(p.M) * p.tiles.Blocks
	align(work)
	p.tiles.Codes = takeSigned(work, blocks*simd.TileCodes)
	align(work)
	p.tiles.Factors = ops.TakeReal[float32](work, blocks*simd.TileFactors)
	if p.M%simd.TileRows > 0 {
		clear(p.tiles.Codes[p.M/simd.TileRows*p.tiles.Blocks*simd.TileCodes:])
		clear(p.tiles.Factors[p.M/simd.TileRows*p.tiles.Blocks*simd.TileFactors:])
	}
}

// Reset forgets everything but room.
func (p *Product) Reset() { *p = Product{lanes: p.lanes[:0]} }

// Lanes is how many lanes there are.
func (p *Product) Lanes() int { return len(p.lanes) }

// Share returns the part of n that is a lane's.
func (p *Product) Share(lane, n int) (from, to int) {
	return lane * n / len(p.lanes), (lane + 1) * n / len(p.lanes)
}

// row are the codes of a row of inputs.
func (p *Product) row(r int) *simd.Codes {
	blocks := p.K / simd.CodeBlock
	return &simd.Codes{
		Codes: p.inputs.Codes[r*p.K:][:p.K], Scales: p.inputs.Scales[r*blocks:][:blocks],
		Extra: p.inputs.Extra[r*blocks:][:blocks],
	}
}

// Round rounds the inputs of a row.
func (p *Product) Round(r int, inputs []float32) {
	if p.tiles.Blocks > 0 {
		p.Set.RoundTile(&p.tiles, r, inputs)
		return
	}
	x := p.row(r)
	Round(p.Set, inputs, x)
	if p.arranged != nil {
		steps := len(x.Scales) / simd.CodeLanes
		p.Lining.lines.PutRow(x, p.arranged[r*p.K:][:p.K], p.factors[r*steps*simd.LineFactors:])
	}
	if p.padded > 0 {
		simd.PutFactors(p.factors[r/simd.PanelRows*simd.PanelFactors*len(x.Scales):], r%simd.PanelRows, x)
	}
}

// Multiply multiplies all rows by a lane's lines.
func (p *Product) Multiply(lane int) {
	l := &p.lanes[lane]
	if p.padded > 0 || p.tiles.Blocks > 0 {
		first, end := p.Share(lane, (p.N+simd.PanelColumns-1)/simd.PanelColumns)
		minima := p.Minima || p.tiles.Blocks > 0 && !p.tiles.Finite()
		for at := first; at < end; at++ {
			p.expand(l, at*simd.PanelColumns)
			if p.padded > 0 {
				p.panel(l, at*simd.PanelColumns)
			} else {
				p.byTiles(l, at*simd.PanelColumns, minima)
			}
		}
		return
	}
	if p.arranged != nil {
		first, end := p.Share(lane, (p.N+simd.PanelColumns-1)/simd.PanelColumns)
		whole := min(end, p.N/simd.PanelColumns)
		if first < whole {
			p.byLines(first*simd.PanelColumns, whole*simd.PanelColumns)
		}
		p.lineByLine(l, max(first, whole)*simd.PanelColumns, min(p.N, end*simd.PanelColumns))
		return
	}
	first, end := p.Share(lane, p.N)
	p.lineByLine(l, first, end)
}

// lineByLine multiplies all rows by lines one by one.
func (p *Product) lineByLine(l *lane, first, end int) {
	blocks := p.K / simd.CodeBlock
	for j := first; j < end; j++ {
		p.Expand(p.Set, p.Blocks[j*p.Stride:][:p.Width], &l.line)
		for r := range p.M {
			sum := p.Set.DotCodes(blocks, &l.line, p.row(r))
			if p.Bias != nil {
				sum += p.Bias[j]
			}
			p.Out[r*p.N+j] = sum
		}
	}
}

var lineRooms = sync.Pool{New: func() any { return new(lineRoom) }}

// byLines multiplies all rows by lines as they lie, PanelColumns of them at a time.
func (p *Product) byLines(first, end int) {
	room := lineRooms.Get().(*lineRoom)
	room.lines = p.Lining.lines
	room.lines.Stride = p.Stride
	blocks := p.K / simd.CodeBlock
	steps := blocks / simd.CodeLanes
	for j := first; j < end; j += simd.PanelColumns {
		src := p.Blocks[j*p.Stride:]
		for b := 0; b < blocks; b += lineBlocks {
			some := min(lineBlocks, blocks-b)
			from := src[b/p.Lining.codes*p.Lining.size:]
			p.Lining.scales(p.Lining, p.Set, some, from, room)
			for r := range p.M {
				if b == 0 {
					room.sums[r] = [simd.LineSums]float32{}
				}
				p.Set.MultiplyLines(&room.lines, some/simd.CodeLanes, from[p.Lining.head:], p.arranged[r*p.K+b*simd.CodeBlock:],
					p.factors[(r*steps+b/simd.CodeLanes)*simd.LineFactors:], room.scales[:], room.sums[r][:])
			}
		}
		for r := range p.M {
			var sums [simd.PanelColumns]float32
			simd.AddLines(room.sums[r][:], &sums)
			p.put(r, j, sums[:])
		}
	}
	lineRooms.Put(room)
}

var rooms = sync.Pool{New: func() any { return new(panelRoom) }}

// expand makes a panel of the lines of the weight from one on.
func (p *Product) expand(l *lane, first int) {
	if p.Panel != nil && p.N-first >= simd.PanelColumns {
		room := rooms.Get().(*panelRoom)
		p.Panel(p.Set, p.Blocks[first*p.Stride:], p.Stride, &l.panel, room)
		rooms.Put(room)
		return
	}
	for j := range min(p.N-first, simd.PanelColumns) { // the others have what was there: nobody reads what is made of it
		line := simd.Codes{Codes: l.lines[j*p.K:][:p.K], Scales: l.line.Scales, Extra: l.line.Extra}
		p.Expand(p.Set, p.Blocks[(first+j)*p.Stride:][:p.Width], &line)
		l.panel.PutScales(j, &line)
	}
	p.Set.PutCodes(&l.panel, l.lines)
}

// panel multiplies all rows by a panel, whose first line is one of the weight.
func (p *Product) panel(l *lane, first int) {
	blocks := p.K / simd.CodeBlock
	for row := 0; row < p.M; row += simd.PanelRows {
		factors := p.factors[row/simd.PanelRows*blocks*simd.PanelFactors:]
		p.Set.PanelCodes(blocks, &l.panel, p.inputs.Codes[row*p.K:], p.K, factors, l.sums)
		for r := range min(p.M-row, simd.PanelRows) {
			p.put(row+r, first, l.sums[r*simd.PanelColumns:])
		}
	}
}

// byTiles is panel with a matrix unit.
func (p *Product) byTiles(l *lane, first int, minima bool) {
	all := inTiles(p.M)
	for tile := 0; tile < all; tile += mostTiles {
		some := min(mostTiles, all-tile)
		row := tile * simd.TileRows
		to := simd.TileOut{Rows: min(p.M-row, some*simd.TileRows), Stride: p.N}
		if p.N-first >= simd.PanelColumns {
			to.Out = p.Out[row*p.N+first:]
			if p.Bias != nil {
				to.Bias = p.Bias[first:]
			}
			p.Set.TileCodes(&p.tiles, tile, &l.panel, minima, l.sums, l.room, to)
			continue
		}
		to.Out, to.Stride = l.sums, simd.PanelColumns
		p.Set.TileCodes(&p.tiles, tile, &l.panel, minima, l.sums, l.room, to)
		for r := range to.Rows {
			p.put(row+r, first, to.Out[r*simd.PanelColumns:])
		}
	}
}

// put writes sums of a row, from a column on.
func (p *Product) put(row, first int, sums []float32) {
	columns := min(p.N-first, simd.PanelColumns)
	out := p.Out[row*p.N+first:][:columns]
	copy(out, sums)
	if p.Bias != nil {
		for j, b := range p.Bias[first:][:columns] {
			out[j] += b
		}
	}
}
