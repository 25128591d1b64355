package kernel

import (
	"encoding/binary"
	"math"
	"unsafe"
)

// CodeBlock is how many codes have a scale in common in [Set.DotCodes]. Sums of CodeLanes blocks that follow each other
// are kept apart: lane i has those of the blocks i, CodeLanes + i, ….
const CodeBlock, CodeLanes = 32, 4

// Codes are blocks of CodeBlock codes of 8 bits, each with a scale and with what is added: of a weight's block its
// minimum, of an input's its codes' sum times its scale.
type Codes struct {
	Codes         []int8
	Scales, Extra []float32
}

// codesFuncs are the kernels of a processor; nil ones are Go's. dot takes a multiple of CodeLanes blocks.
type codesFuncs struct {
	dot     func(blocks int, w *int8, ws, wm *float32, x *int8, xs, xt, sums *float32)
	nibbles func(groups, pieces int, src *byte, stride int, table *int8, dst *int8)
	// halves looks half bytes up and writes them as a panel's words.
	halves func(steps, pieces int, src *byte, stride, gap int, table, dst *byte, ahead uintptr)
	panel  func(blocks int, words *byte, scales *float32, x *int8, ldx int, factors, sums *float32)
	// round writes blocks of codes step bytes apart, and each one's scale and what it adds so many as apart says.
	round func(blocks int, x *float32, codes *int8, step int, scales, extra *float32, apart int)
	// lines multiply a row by blocks as they lie, by their kind; heads makes scales of blocks.
	lines [3]func(lines *CodeLines)
	heads func(kind, steps, each int, src *byte, stride, size, nothing int, scales *float32)
}

// DotCodes returns the product of a weight's blocks and an input's, whose codes are from −127 to 127:
//
//	for each block b, in order, with i = b mod CodeLanes:
//		lanes[i] += (w.Scales[b]·x.Scales[b]) · Σ w.Codes[32b+j]·x.Codes[32b+j], j from 0 to 31
//		rest[i] += w.Extra[b]·x.Extra[b]
//	((lanes[0] + lanes[2]) + (lanes[1] + lanes[3])) + ((rest[0] + rest[2]) + (rest[1] + rest[3]))
//
// Sums of codes are exact, and each other product and sum is rounded, so that every processor gives the same bits, and
// so does [Set.PanelCodes].
func (s *Set) DotCodes(blocks int, w, x *Codes) float32 {
	var sums [2 * CodeLanes]float32
	wc, xc := w.Codes[:blocks*CodeBlock], x.Codes[:blocks*CodeBlock]
	ws, wm, xs, xt := w.Scales[:blocks], w.Extra[:blocks], x.Scales[:blocks], x.Extra[:blocks]
	done := 0
	if s != nil && s.codes.dot != nil && blocks >= CodeLanes {
		done = blocks / CodeLanes * CodeLanes
		s.codes.dot(done, &wc[0], &ws[0], &wm[0], &xc[0], &xs[0], &xt[0], &sums[0])
	}
	for b := done; b < blocks; b++ {
		w, x := wc[b*CodeBlock:][:CodeBlock], xc[b*CodeBlock:][:CodeBlock]
		sum := int32(0)
		for j, c := range w {
			sum += int32(c) * int32(x[j])
		}
		scale := ws[b] * xs[b]
		sums[b%CodeLanes] += float32(scale * float32(sum))
		sums[CodeLanes+b%CodeLanes] += float32(wm[b] * xt[b])
	}
	return ((sums[0] + sums[2]) + (sums[1] + sums[3])) + ((sums[4] + sums[6]) + (sums[5] + sums[7]))
}

// RoundCodes rounds numbers to codes, as many blocks of them as there are scales, and reports whether there is a kernel for
// that. Its bits are those of package codes.
func (s *Set) RoundCodes(x []float32, to *Codes) bool {
	if s == nil || s.codes.round == nil {
		return false
	}
	if blocks := len(to.Scales); blocks > 0 {
		_, _, _ = x[blocks*CodeBlock-1], to.Codes[blocks*CodeBlock-1], to.Extra[blocks-1]
		s.codes.round(blocks, &x[0], &to.Codes[0], CodeBlock, &to.Scales[0], &to.Extra[0], 4)
	}
	return true
}

// A CodePanel is PanelColumns lines of a weight side by side: of each line four codes after the other, and of each
// block the scales of all lines; behind those of all blocks is what blocks add.
type CodePanel struct {
	Words  []byte    // 4·PanelColumns for each four codes
	Scales []float32 // PanelColumns for each block, twice
}

// PanelRows is how many rows of inputs [Set.PanelCodes] takes, PanelColumns how many lines of a weight.
const PanelRows, PanelColumns = 8, TurnedLines

// PanelFactors is how many factors a block of PanelRows rows has: see [PutFactors]. PanelSums is the room for sums.
const PanelFactors, PanelSums = 3 * PanelRows, 2 * CodeLanes * PanelRows * PanelColumns

// HasCodePanels reports whether there is a kernel for many rows of inputs.
func (s *Set) HasCodePanels() bool { return s != nil && s.codes.panel != nil }

// PutFactors writes the factors of one of the PanelRows rows that are multiplied together.
func PutFactors(factors []float32, row int, x *Codes) {
	for b, scale := range x.Scales {
		f, sum := factors[b*PanelFactors+row:], int32(0)
		for _, c := range x.Codes[b*CodeBlock:][:CodeBlock] {
			sum += int32(c)
		}
		// A kernel multiplies by codes of the weight with 128 added to each.
		f[0], f[PanelRows], f[2*PanelRows] = scale, x.Extra[b], math.Float32frombits(uint32(-128*sum))
	}
}

// PutScales writes the scales of one of a panel's lines, and what its blocks add.
func (p *CodePanel) PutScales(line int, w *Codes) {
	minima := len(p.Scales) / 2
	for b, scale := range w.Scales {
		at := b*PanelColumns + line
		p.Scales[at], p.Scales[minima+at] = scale, w.Extra[b]
	}
}

// PutCodes writes the codes of a panel's lines, which lie one after the other.
func (s *Set) PutCodes(p *CodePanel, lines []int8) {
	each := len(lines) / PanelColumns
	if s.word.words != nil && each > 0 {
		_ = p.Words[PanelColumns*each-1]
		s.word.words(1, each/16, (*byte)(unsafe.Pointer(&lines[0])), each, 0, &p.Words[0], 4*PanelColumns)
		return
	}
	for j := range PanelColumns {
		line := lines[j*each:][:each]
		for i := 0; i < each; i += 4 {
			word := uint32(uint8(line[i])) | uint32(uint8(line[i+1]))<<8 | uint32(uint8(line[i+2]))<<16 | uint32(uint8(line[i+3]))<<24
			binary.LittleEndian.PutUint32(p.Words[i*PanelColumns+4*j:], word)
		}
	}
}

// PanelBlocks are blocks of codes of PanelColumns lines, Stride bytes apart: in steps, each of Pieces of 16 bytes, Gap bytes
// between them. At is how many bytes of a line's are before Src: so it is known what of the next panel is fetched meanwhile.
type PanelBlocks struct {
	Steps, Pieces, Stride, Gap, At int
	Src                            []byte
}

// HasPanelBlocks reports whether there are kernels that make panels of blocks.
func (s *Set) HasPanelBlocks() bool {
	return s.HasCodePanels() && s.word.words != nil && s.codes.halves != nil && s.encoded.heads != nil &&
		(s.encoded.headsK != nil || s.encoded.scalesK != nil)
}

// check looks at the last byte that is read.
func (p *PanelBlocks) check() {
	_ = p.Src[(PanelColumns-1)*p.Stride+p.Steps*(16*p.Pieces+p.Gap)-p.Gap-1]
}

// PutBytes writes codes that are bytes as a panel's words.
func (s *Set) PutBytes(p *PanelBlocks, words []byte) {
	if p.Steps == 0 {
		return
	}
	p.check()
	_ = words[p.Steps*p.Pieces*16*PanelColumns-1]
	s.word.words(p.Steps, p.Pieces, &p.Src[0], p.Stride, p.Gap, &words[0], 4*PanelColumns)
}

// PutHalfBytes looks codes of half a byte up, as Nibbles does, and writes them as a panel's words.
func (s *Set) PutHalfBytes(p *PanelBlocks, table *[32]byte, words []byte) {
	if p.Steps == 0 {
		return
	}
	p.check()
	pieces := 2 * p.Steps * p.Pieces
	_ = words[pieces*16*PanelColumns-1]
	ahead := uintptr(unsafe.Pointer(&p.Src[0])) + uintptr(PanelColumns*p.Stride+(PanelColumns-1)*p.At)
	s.codes.halves(p.Steps, p.Pieces, &p.Src[0], p.Stride, p.Gap, &table[0], &words[0], ahead)
}

// PanelCodes multiplies a panel by PanelRows rows of codes, ldx codes apart. The first PanelRows·PanelColumns of sums,
// which is room for PanelSums, are the products, each with the bits that [Set.DotCodes] gives.
func (s *Set) PanelCodes(blocks int, p *CodePanel, x []int8, ldx int, factors, sums []float32) {
	_, _ = p.Words[blocks*CodeBlock*PanelColumns-1], p.Scales[blocks*2*PanelColumns-1]
	_, _, _ = x[(PanelRows-1)*ldx+blocks*CodeBlock-1], factors[blocks*PanelFactors-1], sums[PanelSums-1]
	s.codes.panel(blocks, &p.Words[0], &p.Scales[0], &x[0], ldx, &factors[0], &sums[0])
}

// Nibbles looks codes of half a byte up. A group has pieces of 16 bytes, the low halves of all its bytes before the
// high ones; groups lie stride bytes apart, and their codes one behind the other.
func (s *Set) Nibbles(groups, pieces int, src []byte, stride int, table *[16]int8, dst []int8) {
	if groups == 0 || pieces == 0 {
		return
	}
	half := 16 * pieces
	src, dst = src[:(groups-1)*stride+half], dst[:groups*2*half]
	if s != nil && s.codes.nibbles != nil {
		s.codes.nibbles(groups, pieces, &src[0], stride, &table[0], &dst[0])
		return
	}
	for g := range groups {
		low, high := dst[2*g*half:][:half], dst[(2*g+1)*half:][:half]
		for i, c := range src[g*stride:][:half] {
			low[i], high[i] = table[c&15], table[c>>4]
		}
	}
}

// TileRows is how many rows of inputs a tile of [Set.TileCodes] has; its lines are PanelColumns.
const TileRows = 16

// What a tile takes: codes and factors of each block, and room for sums.
const (
	TileCodes   = TileRows * CodeBlock
	TileFactors = 2 * TileRows
	TileSums    = CodeLanes * TileRows * PanelColumns
	// TileRoom is room that all tiles take together.
	TileRoom = 2 * TileRows * PanelColumns
)

// CodeTiles are rows of inputs, TileRows in a tile, that are multiplied by a panel. Of memory that begins at multiples of 64
// bytes they take less time.
type CodeTiles struct {
	// Blocks is how many blocks rows have.
	Blocks int
	// Codes are those of each tile, block by block, row by row. Factors are of each tile, block by block: the rows' scales, and
	// then what they add.
	Codes   []int8
	Factors []float32
}

// HasCodeTiles reports whether a matrix unit multiplies codes.
func (s *Set) HasCodeTiles() bool { return hasTileCodes() && s != nil && s.Unit() == UnitTiles }

// RoundTile rounds a row's numbers to codes, and puts them into its tile.
func (s *Set) RoundTile(t *CodeTiles, row int, x []float32) {
	if t.Blocks == 0 {
		return
	}
	at, r := row/TileRows*t.Blocks, row%TileRows
	last := at + t.Blocks - 1
	_, _, _ = x[t.Blocks*CodeBlock-1], t.Codes[(last+1)*TileCodes-1], t.Factors[(last+1)*TileFactors-1]
	factors := t.Factors[at*TileFactors+r:]
	s.codes.round(t.Blocks, &x[0], &t.Codes[at*TileCodes+r*CodeBlock], TileCodes, &factors[0], &factors[TileRows],
		4*TileFactors)
}

// A TileOut is where products of tiles go: so many rows of PanelColumns, Stride apart, with Bias added to each where it is not nil.
// Rows that lie one behind the other may go where the sums were.
type TileOut struct {
	Rows, Stride int
	Out, Bias    []float32
}

// tiles is how many tiles the rows are in.
func (o *TileOut) tiles() int { return (o.Rows + TileRows - 1) / TileRows }

// TileCodes multiplies rows, from the first of a tile on, by a panel, each product with the bits that [Set.DotCodes] gives. Sums is
// room for TileSums of each tile. Where there are no minima, no block of the panel adds something, and what inputs add is finite.
func (s *Set) TileCodes(t *CodeTiles, first int, p *CodePanel, minima bool, sums, room []float32, to TileOut) {
	if to.Rows == 0 || t.Blocks == 0 {
		t.multiply(p, to)
		return
	}
	tiles := to.tiles()
	x, factors := t.Codes[first*t.Blocks*TileCodes:], t.Factors[first*t.Blocks*TileFactors:]
	_, _ = x[tiles*t.Blocks*TileCodes-1], factors[tiles*t.Blocks*TileFactors-1]
	_, _ = p.Words[t.Blocks*CodeBlock*PanelColumns-1], p.Scales[t.Blocks*2*PanelColumns-1]
	_, _ = sums[tiles*TileSums-1], room[TileRoom-1]
	_ = to.Out[(to.Rows-1)*to.Stride+PanelColumns-1]
	if to.Bias != nil {
		_ = to.Bias[PanelColumns-1]
	}
	part := CodeTiles{Blocks: t.Blocks, Codes: x, Factors: factors}
	if !s.HasCodeTiles() {
		part.multiply(p, to)
		return
	}
	multiplyTileCodes(&part, p, minima, sums, room, to)
}

// multiply is what a matrix unit computes, for sets that have none.
func (t *CodeTiles) multiply(p *CodePanel, to TileOut) {
	blocks := t.Blocks
	for row := range to.Rows {
		first, r := row/TileRows*blocks, row%TileRows
		for j := range PanelColumns {
			var s [2 * CodeLanes]float32
			for b := range blocks {
				sum, x := int32(0), t.Codes[(first+b)*TileCodes+r*CodeBlock:]
				for i := range CodeBlock {
					w := int8(p.Words[(b*CodeBlock+i)/4*4*PanelColumns+4*j+i%4])
					sum += int32(w) * int32(x[i])
				}
				at, f := b*PanelColumns+j, t.Factors[(first+b)*TileFactors+r:]
				scale := p.Scales[at] * f[0]
				s[b%CodeLanes] += float32(scale * float32(sum))
				s[CodeLanes+b%CodeLanes] += float32(p.Scales[blocks*PanelColumns+at] * f[TileRows])
			}
			sum := ((s[0] + s[2]) + (s[1] + s[3])) + ((s[4] + s[6]) + (s[5] + s[7]))
			if to.Bias != nil {
				sum += to.Bias[j]
			}
			to.Out[row*to.Stride+j] = sum
		}
	}
}

// Finite reports whether what inputs add is.
func (t *CodeTiles) Finite() bool {
	for b := 0; b < len(t.Factors); b += TileFactors {
		for _, v := range t.Factors[b+TileRows:][:TileRows] {
			if math.Float32bits(v)&0x7f800000 == 0x7f800000 {
				return false
			}
		}
	}
	return true
}

// How the codes of CodeLanes blocks of a line lie.
const (
	// SixteenBytes are 16 bytes for each block: codes of half a byte, the low ones of all bytes first.
	SixteenBytes = iota
	// HalfBytes are twice 32 bytes: of each, or of both, the low halves of all bytes come first.
	HalfBytes
	// WholeBytes are 32 bytes for each block.
	WholeBytes
)

// CodeLines are blocks of PanelColumns lines as they lie, which [Set.MultiplyLines] multiplies a row by: in steps of CodeLanes
// blocks each. It reads codes without a sign, which are Less more than those that are meant.
type CodeLines struct {
	src *byte
	// Stride is the distance of lines. Apart is that of a step's blocks; of HalfBytes that of the two 32 bytes; of WholeBytes that
	// of the first two blocks and of the last two, and Half that from the first to the third.
	Stride, Apart, Half int
	steps               int
	// Step is the distance of steps, and Gap what each second one is further from the next.
	Step, Gap             int
	x                     *int8
	factors, scales, sums *float32
	// Table has what codes of SixteenBytes stand for, without a sign.
	Table *[16]byte
	order *[16]int32
	// Flip are the bits that WholeBytes have turned, in each of four.
	Flip int

	Kind, Less int
	// Both says that of HalfBytes the low halves of all 64 bytes come first.
	Both bool
}

// Orders of sums that half blocks become.
var (
	orderTurns = [16]int32{0, 2, 8, 10, 1, 3, 9, 11, 4, 6, 12, 14, 5, 7, 13, 15}
	orderRow   = [16]int32{0, 2, 8, 10, 4, 6, 12, 14, 1, 3, 9, 11, 5, 7, 13, 15}
)

// What lines take: LineFactors are those of a step of a row of inputs, LineSums of all lines' sums. LineScales is where minima
// begin, and so many scales there are at most for a call.
const (
	LineFactors = 3 * CodeLanes * 4
	LineSums    = 2 * CodeLanes * PanelColumns
	LineScales  = 32 * PanelColumns
)

// HasCodeLines reports whether there are kernels for a row of inputs by lines as they lie.
func (s *Set) HasCodeLines() bool { return s != nil && s.codes.heads != nil && s.HasPanelBlocks() }

// pieces are where 16 codes each of a step of inputs are, for them to meet those of the lines.
func (l *CodeLines) pieces() [8]int {
	switch {
	case l.Kind == SixteenBytes:
		return [8]int{0, 2, 4, 6, 1, 3, 5, 7}
	case l.Kind == HalfBytes && !l.Both:
		return [8]int{0, 1, 4, 5, 2, 3, 6, 7}
	}
	return [8]int{0, 1, 2, 3, 4, 5, 6, 7}
}

// PutRow writes the codes and the factors of a row of inputs, whose blocks are a multiple of CodeLanes, for MultiplyLines.
func (l *CodeLines) PutRow(x *Codes, codes []int8, factors []float32) {
	const step = CodeLanes * CodeBlock
	pieces := l.pieces()
	for b := 0; b < len(x.Scales); b += CodeLanes {
		from, to := x.Codes[b*CodeBlock:][:step], codes[b*CodeBlock:][:step]
		for i, piece := range pieces {
			*(*[16]int8)(to[16*i:]) = [16]int8(from[16*piece:])
		}
		f := factors[b/CodeLanes*LineFactors:][:LineFactors]
		for i := range CodeLanes {
			sum := int32(0)
			for _, c := range from[i*CodeBlock:][:CodeBlock] {
				sum += int32(c)
			}
			less := math.Float32frombits(uint32(-int32(l.Less) * sum))
			for j := 4 * i; j < 4*i+4; j++ {
				f[j], f[16+j], f[32+j] = x.Scales[b+i], x.Extra[b+i], less
			}
		}
	}
}

// MultiplyLines adds to the lanes of sums what the next steps of lines give with those of a row's codes and factors. Scales and,
// LineScales further, minima are those of each block, a line's behind the other's. With [AddLines] the sums have the bits of
// [Set.DotCodes].
func (s *Set) MultiplyLines(l *CodeLines, steps int, src []byte, x []int8, factors, scales, sums []float32) {
	if steps == 0 {
		return
	}
	last := [...]int{3*l.Apart + 16, l.Apart + 32, l.Half + l.Apart + 32}[l.Kind]
	_ = src[(PanelColumns-1)*l.Stride+(steps-1)*l.Step+(steps-1)/2*l.Gap+last-1]
	_, _ = x[steps*CodeLanes*CodeBlock-1], factors[steps*LineFactors-1]
	_, _ = scales[LineScales+steps*CodeLanes*PanelColumns-1], sums[LineSums-1]
	l.src, l.steps, l.x, l.factors, l.scales, l.sums = &src[0], steps, &x[0], &factors[0], &scales[0], &sums[0]
	if l.order = &orderRow; l.Kind == HalfBytes && !l.Both {
		l.order = &orderTurns
	}
	s.codes.lines[l.Kind](l)
	l.src, l.x, l.factors, l.scales, l.sums = nil, nil, nil, nil, nil
}

// AddLines writes what the lanes of the sums of each line are together.
func AddLines(sums []float32, to *[PanelColumns]float32) {
	for j := range to {
		s := sums[j/4*32+j%4:][:29]
		to[j] = ((s[0] + s[8]) + (s[4] + s[12])) + ((s[16] + s[24]) + (s[20] + s[28]))
	}
}

// What blocks begin with: a scale of a dtype that a byte follows, the code that stands for nothing; a scale of float32 alone; a byte
// for half of a power of two.
const (
	HeadBFloat16 = iota
	HeadFloat16
	HeadFloat32
	HeadScale
	HeadPower
)

// CodeHeads are what some blocks begin with, Stride bytes from line to line and Size from block to block, each of Each blocks of
// CodeBlock codes. Nothing is the code that stands for nothing where no byte says so; of HeadScale it has the bits of what scales are
// multiplied by.
type CodeHeads struct{ Kind, Blocks, Each, Stride, Size, Nothing int }

// HeadsOfCodes makes scales and minima, as MultiplyLines takes them, of what blocks of PanelColumns lines begin with.
func (s *Set) HeadsOfCodes(h CodeHeads, src []byte, scales []float32) {
	if h.Blocks == 0 {
		return
	}
	_ = src[(PanelColumns-1)*h.Stride+(h.Blocks-1)*h.Size+4]
	_ = scales[LineScales+h.Blocks*h.Each*PanelColumns-1]
	s.codes.heads(h.Kind, h.Blocks, h.Each, &src[0], h.Stride, h.Size, h.Nothing, &scales[0])
}
