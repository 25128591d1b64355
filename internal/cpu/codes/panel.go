package codes

import simd "github.com/optimem/optimem/internal/cpu/kernel"

// A Paneling makes a panel of the blocks of PanelColumns lines, stride bytes apart, at once: what PutCodes and PutScales make of
// the lines that an Expansion writes. Room is for what it needs meanwhile.
type Paneling func(set *simd.Set, src []byte, stride int, to *simd.CodePanel, room *panelRoom)

// panelBlocks is how many blocks of CodeBlock codes are made side by side at a time.
const panelBlocks = simd.Expanded / simd.CodeBlock

// A panelRoom has bytes that scales of panelBlocks are made of.
type panelRoom struct {
	small [panelBlocks * simd.HeadsRoom]byte
}

var (
	tableOwn   = simd.TableOf(codesOwn)
	tableLess8 = simd.TableOf(codesLess8)
	tableIQ4   = simd.TableOf(codesIQ4)
)

var panelings = map[string]Paneling{
	"Q4_0":   halfBytes{size: 18, head: 2, table: tableLess8}.panel,
	"Q4_1":   halfBytes{size: 20, head: 4, table: tableOwn}.panel,
	"IQ4_NL": halfBytes{size: 18, head: 2, table: tableIQ4}.panel,
	"Q8_0":   panelQ80,
	"Q4_K":   panelQ4K,
}

// PanelingOf returns that of an encoding's blocks, nil where it or the processor has none.
func PanelingOf(set *simd.Set, encoding string) Paneling {
	if !set.HasPanelBlocks() {
		return nil
	}
	return panelings[encoding]
}

// heads makes the scales of blocks of size bytes, which begin with them, and of minima that may follow them.
func (r *panelRoom) heads(set *simd.Set, src []byte, stride, size int, to *simd.CodePanel, minima bool) {
	all := len(to.Scales) / 2
	blocks := all / simd.PanelColumns
	for b := 0; b < blocks; b += panelBlocks {
		some := min(panelBlocks, blocks-b)
		set.Heads(some, src[b*size:], stride, size, r.small[:], to.Scales[b*simd.PanelColumns:], all)
	}
	if !minima {
		clear(to.Scales[all:])
	}
}

// halfBytes are blocks of a head, a scale and a minimum if there is room, and 16 bytes.
type halfBytes struct {
	size, head int
	table      *[32]byte
}

func (h halfBytes) panel(set *simd.Set, src []byte, stride int, to *simd.CodePanel, room *panelRoom) {
	room.heads(set, src, stride, h.size, to, h.head > 2)
	blocks := len(to.Scales) / (2 * simd.PanelColumns)
	n := simd.PanelBlocks{Pieces: 1, Stride: stride, Gap: h.head}
	for b := 0; b < blocks; b += panelBlocks {
		n.Steps, n.Src, n.At = min(panelBlocks, blocks-b), src[b*h.size+h.head:], b*h.size
		set.PutHalfBytes(&n, h.table, to.Words[b*simd.CodeBlock*simd.PanelColumns:])
	}
}

func panelQ80(set *simd.Set, src []byte, stride int, to *simd.CodePanel, room *panelRoom) {
	const size, head = 34, 2
	room.heads(set, src, stride, size, to, false)
	blocks := len(to.Scales) / (2 * simd.PanelColumns)
	set.PutBytes(&simd.PanelBlocks{Steps: blocks, Pieces: 2, Src: src[head:], Stride: stride, Gap: head}, to.Words)
}

func panelQ4K(set *simd.Set, src []byte, stride int, to *simd.CodePanel, room *panelRoom) {
	const size, head = 144, 16
	all := len(to.Scales) / 2
	scales, minima := to.Scales[:all], to.Scales[all:]
	blocks := all / simd.PanelColumns
	n := simd.PanelBlocks{Steps: 4, Pieces: 2, Stride: stride}
	for b := 0; b < blocks; b += panelBlocks {
		n.At = b / panelBlocks * size
		block := src[n.At:]
		set.ScalesK(block, stride, room.small[:], scales[b*simd.PanelColumns:], minima[b*simd.PanelColumns:])
		n.Src = block[head:]
		set.PutHalfBytes(&n, tableOwn, to.Words[b*simd.CodeBlock*simd.PanelColumns:])
	}
}
