package codes

import (
	"math"
	"strings"

	simd "github.com/optimem/optimem/internal/cpu/kernel"
	"github.com/optimem/optimem/tensor"
	"github.com/optimem/optimem/tensor/encoded"
)

// A Lining says how lines of an encoding's blocks are multiplied as they lie, and makes the scales and minima of some blocks of
// CodeBlock codes.
type Lining struct {
	lines simd.CodeLines
	// head is how many bytes a block has before its codes, size how many in all, and codes how many blocks of CodeBlock codes are
	// in it. Scales makes scales and minima, where heads are of a kind by that and by nothing: see [simd.CodeHeads].
	head, size, codes int
	scales            func(l *Lining, set *simd.Set, blocks int, src []byte, room *lineRoom)
	kind, nothing     int
}

// lineBlocks is how many blocks of CodeBlock codes of each line are multiplied at a time.
const lineBlocks = simd.LineScales / simd.PanelColumns

// Of so few rows of inputs lines are multiplied as they lie, where they become a panel at once and where they do not; more take less
// time with panels.
const panelLineRows, mostLineRows = 4, 8

// A lineRoom has the scales of lineBlocks and their minima, bytes that they are made of, and the sums of each row.
type lineRoom struct {
	lines  simd.CodeLines
	scales [2 * simd.LineScales]float32
	small  [lineBlocks * simd.HeadsRoom]byte
	sums   [mostLineRows][simd.LineSums]float32
}

// linings has the encodings whose lines are multiplied as they lie.
var linings = makeLinings()

// without are the numbers of codes of half a byte with 128 added to each.
func without(table [16]int8) *[16]byte {
	t := new([16]byte)
	for i, n := range table {
		t[i] = byte(n) ^ 0x80
	}
	return t
}

// flipped are bits that make bytes with a sign those without one.
const flipped = 0x80808080

func makeLinings() map[string]*Lining {
	sixteen := func(head int, table [16]int8) Lining {
		size := head + 16
		return Lining{lines: simd.CodeLines{Kind: simd.SixteenBytes, Apart: size, Step: 4 * size, Table: without(table), Less: 128},
			head: head, size: size, codes: 1, scales: halfScales}
	}
	q40, q41, iq4, mx := sixteen(2, codesLess8), sixteen(4, codesOwn), sixteen(2, codesIQ4), sixteen(1, codesMXFP4)
	mx.scales, mx.kind = headScales, simd.HeadPower
	all := map[string]*Lining{"Q4_0": &q40, "Q4_1": &q41, "IQ4_NL": &iq4, "MXFP4": &mx,
		"Q8_0": {lines: simd.CodeLines{Kind: simd.WholeBytes, Apart: 34, Half: 68, Step: 136, Flip: flipped, Less: 128},
			head: 2, size: 34, codes: 1, scales: halfScales},
		"Q4_K": {lines: simd.CodeLines{Kind: simd.HalfBytes, Apart: 32, Step: 64, Gap: 16},
			head: 16, size: 144, codes: 8, scales: scalesK},
	}
	for _, e := range encoded.Own() {
		if l := ownLining(e); l != nil {
			all[e.Name] = l
		}
	}
	return all
}

// ownLining returns that of blocks of an own make.
func ownLining(e *encoded.Encoding) *Lining {
	kind, rest, _ := strings.Cut(e.Name, "/")
	_, name, _ := strings.Cut(rest, " ")
	dtype, ok := tensor.ParseDType(name)
	if !ok || Of(e.Name) == nil {
		return nil
	}
	size, codes := int(e.Bytes), int(e.Elements)/simd.CodeBlock
	l := &Lining{head: dtype.Size() + 1, size: size, codes: codes, scales: headScales}
	switch dtype {
	case tensor.BFloat16:
		l.kind = simd.HeadBFloat16
	case tensor.Float16:
		l.kind = simd.HeadFloat16
	default:
		l.kind = simd.HeadFloat32
	}
	half := map[int]int{1: 2 * size, 2: size, 4: 64}[codes]
	apart := map[int]int{1: size, 2: 32, 4: 32}[codes]
	step := simd.CodeLanes / codes * size
	l.lines = simd.CodeLines{Kind: simd.WholeBytes, Apart: apart, Half: half, Step: step, Less: 128}
	switch kind {
	case "INT4":
		l.nothing = 8
		switch codes {
		case 1:
			l.lines = simd.CodeLines{Kind: simd.SixteenBytes, Apart: size, Step: step, Table: without(codesLess8), Less: 128}
		case 2:
			l.lines = simd.CodeLines{Kind: simd.HalfBytes, Apart: size, Step: step, Less: 8}
		case 4:
			l.lines = simd.CodeLines{Kind: simd.HalfBytes, Apart: 32, Step: step, Both: true, Less: 8}
		}
	case "INT8":
		l.nothing = 128
	default: // SINT8 and LLMINT8
		l.head, l.kind, l.lines.Flip = 4, simd.HeadScale, flipped
		factor := float32(1)
		if kind == "LLMINT8" {
			factor = 1. / 127
		}
		l.nothing = int(math.Float32bits(factor))
	}
	return l
}

// LiningOf returns that of an encoding's blocks, nil where it or the processor has none.
func LiningOf(set *simd.Set, encoding string) *Lining {
	if !set.HasCodeLines() {
		return nil
	}
	return linings[encoding]
}

func halfScales(l *Lining, set *simd.Set, blocks int, src []byte, room *lineRoom) {
	set.Heads(blocks, src, room.lines.Stride, l.size, room.small[:], room.scales[:], simd.LineScales)
	if l.head == 2 {
		clear(room.scales[simd.LineScales:][:blocks*simd.PanelColumns])
	}
}

func headScales(l *Lining, set *simd.Set, blocks int, src []byte, room *lineRoom) {
	set.HeadsOfCodes(simd.CodeHeads{Kind: l.kind, Blocks: blocks / l.codes, Each: l.codes, Stride: room.lines.Stride, Size: l.size,
		Nothing: l.nothing}, src, room.scales[:])
}

func scalesK(l *Lining, set *simd.Set, blocks int, src []byte, room *lineRoom) {
	for b := 0; b < blocks; b += l.codes {
		at := b * simd.PanelColumns
		set.ScalesK(src[b/l.codes*l.size:], room.lines.Stride, room.small[:], room.scales[at:],
			room.scales[simd.LineScales+at:])
	}
}
