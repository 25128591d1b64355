package codes

import (
	simd "github.com/optimem/optimem/internal/cpu/kernel"
	"github.com/optimem/optimem/internal/cpu/ops"
)

// A Product multiplies M rows of K inputs by N lines of a weight's blocks. Those who work side by side have a lane each:
// first all round inputs ([Product.Round]), then each multiplies by some lines ([Product.Multiply]).
//
// From panelRows rows on lines are multiplied side by side where a processor can; the bits are the same.
type Product struct {
	M, N, K int
	Set     *simd.Set
	Expand  Expansion
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
}

// A lane is the room of one of those who work side by side.
type lane struct {
	line simd.Codes
	// lines are those of a panel, one after the other.
	lines []int8
	panel simd.CodePanel
	sums  []float32
}

// panelRows is from how many rows on there are panels; fewer leave too much of one unused.
const panelRows = 5

// inPanels returns how many rows there are in panels, 0 where none are.
func inPanels(m int) int {
	if m < panelRows {
		return 0
	}
	return ops.RoundUp(m, simd.PanelRows)
}

// inputBytes is what the codes of m rows of k inputs take: also their scales, and their sums' products with them.
func inputBytes(m, k int) int64 {
	return ops.ScratchBytes(1, m*k) + ops.ScratchBytes(4, m*k/simd.CodeBlock, m*k/simd.CodeBlock)
}

// LaneBytes is what a lane takes: a line of the weight as codes, and with panels one's lines, itself and its sums.
func LaneBytes(m, k int) int64 {
	bytes := inputBytes(1, k)
	if inPanels(m) > 0 {
		bytes += ops.ScratchBytes(1, simd.PanelColumns*k, simd.PanelColumns*k) +
			ops.ScratchBytes(4, 2*simd.PanelColumns*k/simd.CodeBlock, simd.PanelSums)
	}
	return bytes
}

// SharedBytes is what all lanes take together.
func SharedBytes(m, k int) int64 {
	padded := inPanels(m)
	return inputBytes(max(m, padded), k) + ops.ScratchBytes(4, padded/simd.PanelRows*k/simd.CodeBlock*simd.PanelFactors)
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
	if p.padded = inPanels(p.M); !p.Set.HasCodePanels() || p.K == 0 {
		p.padded = 0
	}
	p.inputs = takeCodes(work, max(p.M, p.padded), p.K)
	if p.padded > 0 {
		p.factors = ops.TakeReal[float32](work, p.padded/simd.PanelRows*p.K/simd.CodeBlock*simd.PanelFactors)
		clear(p.factors) // also those of rows that there are not
		clear(p.inputs.Codes[p.M*p.K:])
	}
	for range lanes {
		l := lane{line: takeCodes(work, 1, p.K)}
		if p.padded > 0 {
			l.lines = takeSigned(work, simd.PanelColumns*p.K)
			l.panel.Words = takeBytes(work, simd.PanelColumns*p.K)
			l.panel.Scales = ops.TakeReal[float32](work, 2*simd.PanelColumns*p.K/simd.CodeBlock)
			l.sums = ops.TakeReal[float32](work, simd.PanelSums)
		}
		p.lanes = append(p.lanes, l)
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
	x := p.row(r)
	Round(p.Set, inputs, x)
	if p.padded > 0 {
		simd.PutFactors(p.factors[r/simd.PanelRows*simd.PanelFactors*len(x.Scales):], r%simd.PanelRows, x)
	}
}

// Multiply multiplies all rows by a lane's lines.
func (p *Product) Multiply(lane int) {
	l := &p.lanes[lane]
	if p.padded > 0 {
		first, end := p.Share(lane, (p.N+simd.PanelColumns-1)/simd.PanelColumns)
		for at := first; at < end; at++ {
			p.panel(l, at*simd.PanelColumns)
		}
		return
	}
	blocks := p.K / simd.CodeBlock
	first, end := p.Share(lane, p.N)
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

// panel multiplies all rows by the lines of the weight from one on.
func (p *Product) panel(l *lane, first int) {
	blocks := p.K / simd.CodeBlock
	columns := min(p.N-first, simd.PanelColumns)
	for j := range columns { // the others have what was there: nobody reads what is made of it
		line := simd.Codes{Codes: l.lines[j*p.K:][:p.K], Scales: l.line.Scales, Extra: l.line.Extra}
		p.Expand(p.Set, p.Blocks[(first+j)*p.Stride:][:p.Width], &line)
		l.panel.PutScales(j, &line)
	}
	p.Set.PutCodes(&l.panel, l.lines)
	for row := 0; row < p.M; row += simd.PanelRows {
		factors := p.factors[row/simd.PanelRows*blocks*simd.PanelFactors:]
		p.Set.PanelCodes(blocks, &l.panel, p.inputs.Codes[row*p.K:], p.K, factors, l.sums)
		for r := range min(p.M-row, simd.PanelRows) {
			out := p.Out[(row+r)*p.N+first:][:columns]
			copy(out, l.sums[r*simd.PanelColumns:])
			if p.Bias != nil {
				for j, b := range p.Bias[first:][:columns] {
					out[j] += b
				}
			}
		}
	}
}
