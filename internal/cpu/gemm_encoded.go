package cpu

import (
	"encoding/binary"
	"math"
	"strings"

	simd "github.com/optimem/optimem/internal/cpu/kernel"
	"github.com/optimem/optimem/internal/cpu/tasks"
	"github.com/optimem/optimem/tensor"
	"github.com/optimem/optimem/tensor/encoded"
)

// A right factor whose lines are blocks of codes is decoded where other factors are packed: a panel at a time, of blockK of
// the depth, which stays in the cache for the tiles that read it. So sums have the order that they have over numbers, and
// products their bits.

// blocksAt returns where in a line of blocks number k begins, which a block begins with.
func blocksAt(e *encoded.Encoding, k int) int { return k / int(e.Elements) * int(e.Bytes) }

// decodedLines is how many lines are decoded before they are turned.
const decodedLines = 8

// decode writes the numbers [k0, k1) of lines to a group, as pack does. A block begins at k0 and ends at k1: depths are cut
// at multiples of blockK, which no block is larger than.
func (m *matrix[T]) decode(group []float32, width, l, lines, k0, k1 int) {
	r := 0
	if turn := turns[m.encoding.Name]; turn != nil && m.set != nil && m.set.Turns() && lines >= simd.TurnedLines {
		room := tasks.Take[fewCodesRoom]()
		x := &room.turning[0]
		x.turningRoom, x.set, x.stride, x.width, x.blocks = &room.turningRoom, m.set, m.line, width,
			(k1-k0)/int(m.encoding.Elements)
		for ; r+simd.TurnedLines <= lines; r += simd.TurnedLines {
			x.src, x.dst = m.data[m.lineAt(l+r)+blocksAt(m.encoding, k0):], group[r:]
			turn(x)
		}
		x.dst = nil
		room.give()
	}
	if r == lines {
		return
	}
	n, from, end := k1-k0, blocksAt(m.encoding, k0), blocksAt(m.encoding, k1)
	room := tasks.Take[[decodedLines * blockK]float32]()
	for ; r < lines; r += decodedLines {
		some := min(decodedLines, lines-r)
		for i := range some {
			at := m.lineAt(l + r + i)
			m.encoding.Decode(room[i*blockK:][:n], m.data[at+from:at+end])
		}
		k := 0
		if some == decodedLines && m.set != nil {
			k = n &^ 7
			m.set.Transpose(n/8, room[:], blockK, group[r:], width)
		}
		for ; k < n; k++ {
			for i := range some {
				group[k*width+r+i] = room[i*blockK+k]
			}
		}
	}
	tasks.Give(room)
}

// turns has the encodings whose blocks the kernels of a processor decode and turn at once. The others are decoded in Go.
var turns = map[string]func(x *turning){
	"Q4_0":             func(x *turning) { x.plain(2, 1, &tableQ4) },
	"INT4/128 float16": func(x *turning) { x.int4(128, simd.Float16) }, "INT4/128 bfloat16": func(x *turning) { x.int4(128, simd.BFloat16) },
	"INT4/64 float16": func(x *turning) { x.int4(64, simd.Float16) }, "INT4/64 bfloat16": func(x *turning) { x.int4(64, simd.BFloat16) },
	"INT4/32 float16": func(x *turning) { x.int4(32, simd.Float16) }, "INT4/32 bfloat16": func(x *turning) { x.int4(32, simd.BFloat16) },
	"IQ4_NL": func(x *turning) { x.plain(2, 1, &tableIQ4) },
	"Q4_1":   func(x *turning) { x.plain(4, 1, &tableOwn) },
	"Q5_0":   func(x *turning) { x.q50(16) },
	"Q5_1":   func(x *turning) { x.q50(0) },
	"Q8_0":   func(x *turning) { x.plain(2, 2, nil) },
	"Q4_K":   (*turning).q4k,
	"Q5_K":   (*turning).q5k,
	"Q6_K":   (*turning).q6k,
	"IQ4_XS": (*turning).iq4xs,
	"MXFP4":  (*turning).mxfp4,
}

// Numbers of codes of half a byte.
var (
	tableQ4  = *simd.TableOf([16]int8{-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7})
	tableIQ4 = *simd.TableOf([16]int8{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113})
	tableMX  = *simd.TableOf([16]int8{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}) // twice the numbers
	tableOwn = *simd.TableOf([16]int8{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15})
)

// A turning makes columns of a panel, width apart, of blocks of simd.TurnedLines lines, stride bytes apart, from src on.
type turning struct {
	set                   *simd.Set
	src                   []byte
	stride, blocks, width int
	dst                   []float32

	// turn is that of codes, scales that of the scales of Q6_K.
	turn, scales simd.Turn
	// words is where codes go as words, as those of some of the lines that are computed with, instead of numbers to dst.
	words []byte
	nth   int
	// twice says that two blocks are multiplied at once, lines that their codes stay as they lie.
	twice, lines bool
	// kept says that turn is that of codes at the same places of other blocks.
	kept bool
	// ahead is the Ahead of turn.
	ahead uintptr
	// d has scales of blocks, then minima; groups those of groups within a block.
	d      [2 * 8 * simd.TurnedLines]float32
	groups [2 * simd.TurnedLines * simd.TurnedLines]float32

	*turningRoom
}

// A turningRoom is room for bytes that are made of a block, until its codes are where they go: scales, and codes.
type turningRoom struct {
	small [32 * simd.TurnedLines]byte
	codes [simd.Expanded * simd.TurnedLines]byte
}

// run turns codes; what it is given names neither lines nor columns.
func (x *turning) run(t simd.Turn) {
	t.Dst, t.Ldd = x.dst, x.width
	inPlace := t.Stride == 0
	if inPlace {
		t.Stride = x.stride
	}
	t.Ahead = x.ahead
	x.turn = t
	x.lines = x.twice && inPlace && x.set.TakesLines(&t)
	if x.lines {
		x.kept = true
		return
	}
	if x.words != nil {
		x.set.Words(&x.turn, x.nth, x.words, x.codes[:])
		x.kept = x.turn.Table == t.Table // else they became bytes first
		return
	}
	x.set.Turn(&x.turn)
	x.turn = simd.Turn{}
}

// again is run for codes at the places of those before, from src on, and reports whether there were any.
func (x *turning) again(src []byte) bool {
	if x.kept {
		x.turn.Src, x.turn.Ahead = src, x.ahead
		if !x.lines {
			x.set.Words(&x.turn, x.nth, x.words, nil)
		}
	}
	return x.kept
}

// minima is where scales of blocks end and minima begin.
const minima = 8 * simd.TurnedLines

// heads makes scales of the first halves of blocks, and minima of the second ones, size bytes apart.
func (x *turning) heads(blocks int, src []byte, size int) {
	x.set.Heads(blocks, src, x.stride, size, x.small[:], x.d[:], minima)
}

// plain is for blocks of a half, the scale, perhaps another, the minimum, and pieces of 16 bytes.
func (x *turning) plain(head, pieces int, table *[32]byte) {
	x.heads(x.blocks, x.src, head+16*pieces)
	if x.again(x.src[head:]) {
		return
	}
	t := simd.Turn{Steps: x.blocks, Pieces: pieces, Src: x.src[head:], Gap: head, Scales: x.d[:], Table: table}
	if head == 4 {
		t.Minima = x.d[minima:]
	}
	x.run(t)
}

// mxfp4 is for blocks of an exponent and 16 bytes.
func (x *turning) mxfp4() {
	const size = 17
	for b := range x.blocks {
		for i := range simd.TurnedLines {
			x.d[b*simd.TurnedLines+i] = float32(math.Ldexp(1, int(x.src[i*x.stride+b*size])-128))
		}
	}
	x.run(simd.Turn{Steps: x.blocks, Pieces: 1, Src: x.src[1:], Gap: 1, Scales: x.d[:], Table: &tableMX})
}

// int4 is for blocks of n numbers: a half that is the scale, the code that stands for nothing, and codes of half a byte.
func (x *turning) int4(n int, round simd.Element) {
	size := 3 + n/2
	if round == simd.Float16 {
		x.heads(x.blocks, x.src, size)
	}
	for b := range x.blocks {
		for i := range simd.TurnedLines {
			head := x.src[i*x.stride+b*size:][:3]
			x.d[minima+b*simd.TurnedLines+i] = float32(head[2])
			if round == simd.BFloat16 {
				x.d[b*simd.TurnedLines+i] = tensor.BFloat16ToFloat32(uint16(head[0]) | uint16(head[1])<<8)
			}
		}
	}
	x.run(simd.Turn{
		Steps: x.blocks, Pieces: n / 32, Src: x.src[3:], Gap: 3, Scales: x.d[:], Minima: x.d[minima:], Table: &tableOwn, Round: round,
	})
}

// q50 is for blocks of 32 codes whose fifth bits are together: of Q5_0, or of Q5_1, which have a minimum.
func (x *turning) q50(zero int) {
	t := simd.Turn{Steps: x.blocks, Pieces: 2, Src: x.codes[:], Stride: simd.Expanded, Scales: x.d[:]}
	head := 2
	if zero == 0 {
		t.Minima, t.Five, head = x.d[minima:], true, 4
	}
	x.heads(x.blocks, x.src, head+20)
	x.set.ExpandQ50(simd.TurnedLines, x.blocks, x.src[head:], x.stride, head+20, zero, x.codes[:])
	x.run(t)
}

// minimaK is where the minima of groups begin.
const minimaK = simd.TurnedLines * simd.TurnedLines

func (x *turning) q4k() {
	x.set.ScalesK(x.src, x.stride, x.small[:], x.groups[:], x.groups[minimaK:])
	if x.again(x.src[16:]) {
		return
	}
	x.run(simd.Turn{
		Steps: 4, Pieces: 2, Src: x.src[16:], Scales: x.groups[:], Minima: x.groups[minimaK:], Table: &tableOwn, Pairs: true,
	})
}

func (x *turning) q5k() {
	x.set.ScalesK(x.src, x.stride, x.small[:], x.groups[:], x.groups[minimaK:])
	x.set.ExpandQ5K(simd.TurnedLines, x.src, x.stride, x.codes[:])
	x.run(simd.Turn{
		Steps: 8, Pieces: 2, Src: x.codes[:], Stride: simd.Expanded, Scales: x.groups[:], Minima: x.groups[minimaK:],
		Five: true,
	})
}

func (x *turning) q6k() {
	x.heads(1, x.src[206:], 0) // the last scales, then that of the block
	if x.scales.Steps == 0 {
		x.scales = simd.Turn{
			Steps: 1, Pieces: 1, Stride: x.stride, Scales: x.d[minima:], Dst: x.groups[:], Ldd: simd.TurnedLines,
		}
	}
	x.scales.Src = x.src[192:]
	x.set.Turn(&x.scales)
	if x.words != nil {
		if !x.kept {
			x.turn = simd.Turn{Steps: 16, Pieces: 1, Stride: x.stride, Scales: x.groups[:]}
		}
		x.turn.Src, x.turn.Ahead = x.src, x.ahead
		if x.kept = x.set.WordsQ6K(&x.turn, x.nth, x.words); x.kept {
			return
		}
	}
	x.set.ExpandQ6K(simd.TurnedLines, x.src, x.stride, x.codes[:])
	x.run(simd.Turn{Steps: 16, Pieces: 1, Src: x.codes[:], Stride: simd.Expanded, Scales: x.groups[:]})
}

func (x *turning) iq4xs() {
	x.heads(1, x.src, 0)
	for i := range simd.TurnedLines {
		b, to := x.src[i*x.stride:][:8], x.small[16*i:][:8]
		high := binary.LittleEndian.Uint16(b[2:])
		for g := range to {
			to[g] = (b[4+g/2]>>(g%2*4)&15 | uint8(high>>(2*g)&3)<<4) - 32
		}
	}
	x.turn = simd.Turn{
		Steps: 1, Pieces: 1, Src: x.small[:], Stride: 16, Scales: x.d[:], Dst: x.groups[:], Ldd: simd.TurnedLines,
	}
	x.set.Turn(&x.turn)
	x.run(simd.Turn{Steps: 8, Pieces: 1, Src: x.src[8:], Scales: x.groups[:], Table: &tableIQ4})
}

// roundOf returns what numbers of an encoding that turns has are rounded to.
func roundOf(e *encoded.Encoding) simd.Element {
	switch {
	case strings.HasSuffix(e.Name, " float16"):
		return simd.Float16
	case strings.HasSuffix(e.Name, " bfloat16"):
		return simd.BFloat16
	}
	return simd.Float32
}
