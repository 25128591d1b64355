//go:build arm64 && !noasm

package kernel

import (
	"encoding/binary"
	"unsafe"
)

// What makes columns of codes, but for words and the codes of Q6_K, is Go: it is for scales, of which there are few.
// Panels of numbers are made otherwise ([wordSet.few]).

func init() {
	neon.encoded = encodedSet{
		bytes: func(steps, pieces int, src *byte, stride, gap int, scales, dst *float32, ldd int) {
			(&plainTurn{steps: steps, pieces: pieces, stride: stride, gap: gap, ldd: ldd / 4}).run(src, scales, nil,
				dst)
		},
		bytesMin: func(steps, pieces int, src *byte, stride, gap int, scales, minima, dst *float32, ldd int) {
			(&plainTurn{steps: steps, pieces: pieces, stride: stride, gap: gap, ldd: ldd / 4}).run(src, scales,
				minima, dst)
		},
		nibbles: func(steps, pieces int, src *byte, stride, gap int, scales *float32, other int, table *byte,
			dst *float32, ldd, apart int) {
			turnNibblesOf(nil)(steps, pieces, src, stride, gap, scales, other, table, nil, dst, ldd, apart)
		},
		nibblesMin: turnNibblesOf(nil), nibblesF16: turnNibblesOf(roundedToF16),
		nibblesBF16: turnNibblesOf(roundedToBF16),
		heads:       turnHeads, scalesK: turnScalesK,
		expandQ5K: expandQ5K, expandQ6K: expandQ6K128, expandQ50: expandQ50,
	}
	neon.word = wordSet{
		words: turnWords128, expandNibbles: expandNibbles128,
		bytes:     []codesFunc{codes128minx1, codes128minx2, codes128minx3, codes128minx4},
		bytesF16:  []codesFunc{codes128f16x1, codes128f16x2, codes128f16x3, codes128f16x4},
		bytesBF16: []codesFunc{codes128bf16x1, codes128bf16x2, codes128bf16x3, codes128bf16x4},
		few:       true,
	}
}

// roundedToF16 and roundedToBF16 round a column's numbers.
func roundedToF16(x *[TurnedLines]float32) {
	var halves [TurnedLines]uint16
	panelNarrow128f16(2, &x[0], &halves[0])
	panelWiden128f16(1, (*byte)(unsafe.Pointer(&halves[0])), 2*TurnedLines, &x[0])
}

func roundedToBF16(x *[TurnedLines]float32) {
	var halves [TurnedLines]uint16
	panelNarrow128bf16(2, &x[0], &halves[0])
	panelWiden128bf16(1, (*byte)(unsafe.Pointer(&halves[0])), 2*TurnedLines, &x[0])
}

// A plainTurn is a [Turn] in Go.
type plainTurn struct {
	steps, pieces, stride, gap int
	// ldd is how far columns are apart, other and apart how far scales, and columns, of high half bytes are from those of
	// low ones.
	ldd, other, apart int
	// table is what half bytes stand for, nil where codes are bytes.
	table []byte
	round func(x *[TurnedLines]float32)
}

func (t *plainTurn) run(src *byte, scales, minima, dst *float32) {
	step, each, codes := 16*t.pieces+t.gap, TurnedLines+t.other, 1
	if t.table != nil {
		codes = 2
	}
	from := unsafe.Slice(src, (TurnedLines-1)*t.stride+t.steps*step-t.gap)
	factors, to := unsafe.Slice(scales, t.steps*each),
		unsafe.Slice(dst, (t.steps*t.pieces*16*codes-1)*t.ldd+TurnedLines)
	var least []float32
	if minima != nil {
		least = unsafe.Slice(minima, t.steps*each)
	}
	for s := range t.steps {
		for i := range 16 * t.pieces {
			for half := range codes {
				var x [TurnedLines]float32
				for line := range x {
					code := from[line*t.stride+s*step+i]
					if t.table != nil {
						code = t.table[code>>(4*half)&15]
					}
					x[line] = float32(int8(code))
				}
				t.scale(&x, factors, least, s*each+half*t.other)
				copy(to[(s*16*codes*t.pieces+i)*t.ldd+half*t.apart:], x[:])
			}
		}
	}
}

// scale makes numbers of a column's codes, whose scales begin at a place.
func (t *plainTurn) scale(x *[TurnedLines]float32, factors, least []float32, at int) {
	for line, code := range x {
		switch {
		case t.round != nil:
			x[line] = float32(code-least[at+line]) * factors[at+line]
		case least != nil:
			x[line] = float32(code*factors[at+line]) + least[at+line]
		default:
			x[line] = code * factors[at+line]
		}
	}
	if t.round != nil {
		t.round(x)
	}
}

type nibblesFunc = func(
	steps, pieces int, src *byte, stride, gap int, scales *float32, other int, table *byte, minima, dst *float32,
	ldd, apart int,
)

func turnNibblesOf(round func(x *[TurnedLines]float32)) nibblesFunc {
	return func(
		steps, pieces int, src *byte, stride, gap int, scales *float32, other int, table *byte, minima,
		dst *float32, ldd, apart int,
	) {
		t := plainTurn{
			steps: steps, pieces: pieces, stride: stride, gap: gap, ldd: ldd / 4, other: other / 4, apart: apart / 4,
			table: unsafe.Slice(table, 16), round: round,
		}
		t.run(src, scales, minima, dst)
	}
}

// turnHeads gathers halves of lines, and widens them.
func turnHeads(steps int, src *byte, stride, step int, _ *byte, dst *float32, apart int) {
	from := unsafe.Slice(src, (TurnedLines-1)*stride+(steps-1)*step+4)
	to := unsafe.Slice(dst, apart/4+steps*TurnedLines)
	for s := range steps {
		var halves [2][TurnedLines]uint16
		for line := range TurnedLines {
			b := from[line*stride+s*step:][:4]
			halves[0][line], halves[1][line] = binary.LittleEndian.Uint16(b), binary.LittleEndian.Uint16(b[2:])
		}
		for i := range halves {
			panelWiden128f16(1, (*byte)(unsafe.Pointer(&halves[i])), 2*TurnedLines, &to[i*apart/4+s*TurnedLines])
		}
	}
}

// turnScalesK takes words of 16 lines: two halves, and three of twelve bytes.
func turnScalesK(words *byte, scales, minima *float32) {
	from := unsafe.Slice(words, 4*HeadsRoom)
	s, m := unsafe.Slice(scales, GroupsK*TurnedLines), unsafe.Slice(minima, GroupsK*TurnedLines)
	var heads [2 * TurnedLines]float32
	turnHeads(1, words, 4, 0, nil, &heads[0], 4*TurnedLines)
	for line := range TurnedLines {
		var q [12]byte
		for i := range 3 {
			copy(q[4*i:], from[(i+1)*HeadsRoom+4*line:][:4])
		}
		d, least := heads[line], heads[TurnedLines+line]
		for g := range GroupsK {
			scale, minimum := q[g%4]&63, q[g%4+4]&63
			if g >= 4 {
				scale, minimum = q[g+4]&15|q[g-4]>>6<<4, q[g+4]>>4|q[g]>>6<<4
			}
			s[g*TurnedLines+line], m[g*TurnedLines+line] = d*float32(scale), -least*float32(minimum)
		}
	}
}

func expandQ5K(lines int, src *byte, stride int, dst *byte) {
	from, to := unsafe.Slice(src, (lines-1)*stride+176), unsafe.Slice(dst, lines*Expanded)
	for line := range lines {
		block, codes := from[line*stride:][:176], to[line*Expanded:][:Expanded]
		upper, halves := block[16:48], block[48:]
		for i, u := range upper {
			for g := range 4 {
				c := halves[32*g+i]
				codes[64*g+i], codes[64*g+32+i] = c&15|u>>(2*g)&1<<4, c>>4|u>>(2*g+1)&1<<4
			}
		}
	}
}

func expandQ50(lines, blocks int, src *byte, stride, size, zero int, dst *byte) {
	from := unsafe.Slice(src, (lines-1)*stride+(blocks-1)*size+20)
	to := unsafe.Slice(dst, (lines-1)*Expanded+32*blocks)
	for line := range lines {
		for b := range blocks {
			block, codes := from[line*stride+b*size:][:20], to[line*Expanded+32*b:][:32]
			upper := binary.LittleEndian.Uint32(block)
			for i, c := range block[4:] {
				codes[i] = (c&15 | byte(upper>>i&1)<<4) - byte(zero)
				codes[16+i] = (c>>4 | byte(upper>>(16+i)&1)<<4) - byte(zero)
			}
		}
	}
}
