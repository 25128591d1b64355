package kernel

import (
	"math"
	"unsafe"
)

// A wordSet is the kernels of a set that multiply few rows by codes as words.
type wordSet struct {
	words func(steps, pieces int, src *byte, stride, gap int, dst *byte, ldd int)
	// wordsAhead, where it is not nil, is words that fetch fetchedEach bytes for each piece of the lines.
	wordsAhead    func(steps, pieces int, src *byte, stride, gap int, dst *byte, ldd int, ahead uintptr)
	expandNibbles func(lines, steps, pieces int, src *byte, stride, gap int, table, dst *byte)
	// bytes is for codes that are bytes; the others for half bytes: with minima, and with numbers that are rounded.
	bytes, nibbles, nibblesF16, nibblesBF16 []codesFunc
	// bytesF16 and bytesBF16 are for half bytes that are written as bytes first, with numbers that are rounded.
	bytesF16, bytesBF16 []codesFunc
	// The twice are for one row and two blocks, of lines or words: half bytes, bytes without minima, and bytes of which five
	// bits count.
	twiceNibblesLines, twiceBytesLines, twiceBytes, twiceFives twiceFunc
	// pairNibbles and pairBytes write the numbers of words as pairs of bfloat16, where there are such products.
	pairNibbles, pairBytes pairsFunc
	// few says that columns of numbers are made faster in other ways than by Turn.
	few bool
}

type twiceFunc = func(
	steps, pieces int, src *byte, stride, gap, block int, room *byte, scales, minima *float32,
	apart, minimaApart, other int, table *byte, a, c *float32, mode int, bias *float32, ahead uintptr, jump int,
) bool

type codesFunc = func(
	steps, words int, src *byte, scales, scales1, minima, minima1 *float32, other int, table *byte,
	a *float32, lda int, c *float32, ldc int, mode int, bias *float32, ahead uintptr, jump int,
)

type pairsFunc = func(
	steps, words int, src *byte, scales, minima *float32, other int, table, dst *byte, ahead uintptr, jump, ending int,
)

// WordBytes is room for the words of Columns columns of 256 codes. WordsAfter is how many bytes behind words are read.
const (
	WordBytes  = 256 * 32
	WordsAfter = 3
)

// fives are what codes of five bits stand for that have no sign.
var fives = func() (t [32]byte) {
	for i := range t {
		t[i] = byte(i)
	}
	return t
}()

// CodesMost is the most scales of a line that Codes takes.
const CodesMost = 16

// nothing are minima that change no number, nor the sign of a zero.
var nothing = func() (list [CodesMost * TurnedLines]float32) {
	for i := range list {
		list[i] = float32(math.Copysign(0, -1))
	}
	return list
}()

// HasCodes reports whether Codes takes codes that are numbers of so few rows, half bytes or bytes, rounded or not.
func (s *Set) HasCodes(rows int, round Element) bool {
	w := &s.word
	return w.words != nil && rows <= FewRows && (round == Float32 || len(w.nibblesF16) > 0 || len(w.bytesF16) > 0)
}

// CodesTurns is how many Turns the columns of Codes are: those of a Turn are TurnedLines.
func (s *Set) CodesTurns() int { return s.Columns / TurnedLines }

// Words writes the codes of a [Turn], instead of its numbers, as words for Codes: four bytes of each line side by side,
// those of each TurnedLines lines where they are among CodesTurns Turns. room is for bytes of codes, 256 for each line,
// where a set does not take half bytes; words says how the codes lie then.
func (s *Set) Words(t *Turn, nth int, dst, room []byte) {
	w := &s.word
	if t.Table != nil && len(w.nibbles) == 0 {
		step := 16*t.Pieces + t.Gap
		_ = t.Src[(TurnedLines-1)*t.Stride+(t.Steps-1)*step+16*t.Pieces-1]
		_, _ = room[TurnedLines*Expanded-1], room[t.Steps*t.Pieces*32-1]
		w.expandNibbles(TurnedLines, t.Steps, t.Pieces, &t.Src[0], t.Stride, t.Gap, &t.Table[0], &room[0])
		t.Steps *= 2
		if !t.Pairs {
			t.Steps, t.Pieces = t.Steps/2, t.Pieces*2
		}
		t.Src, t.Stride, t.Gap, t.Table, t.Pairs = room, Expanded, 0, nil, false
	}
	step := 16*t.Pieces + t.Gap
	_ = t.Src[(TurnedLines-1)*t.Stride+(t.Steps-1)*step+16*t.Pieces-1]
	ldd := 4 * TurnedLines * s.CodesTurns()
	dst = dst[4*TurnedLines*nth:]
	_ = dst[(t.Steps*t.Pieces*4-1)*ldd+4*TurnedLines-1]
	if w.wordsAhead != nil {
		w.wordsAhead(t.Steps, t.Pieces, &t.Src[0], t.Stride, t.Gap, &dst[0], ldd, t.Ahead)
		t.Ahead += uintptr(fetchedEach * t.Steps * t.Pieces)
		return
	}
	w.words(t.Steps, t.Pieces, &t.Src[0], t.Stride, t.Gap, &dst[0], ldd)
}

// fetchedEach is how many bytes are fetched for each 16 bytes of lines.
const fetchedEach = 128

// WordsQ6K is [Set.Words] where Src are blocks of Q6_K as they are, one of each line, and reports whether the set has that.
func (s *Set) WordsQ6K(t *Turn, nth int, dst []byte) bool {
	if s.encoded.wordsQ6K == nil {
		return false
	}
	ldd := 4 * TurnedLines * s.CodesTurns()
	dst = dst[4*TurnedLines*nth:]
	_, _ = t.Src[(TurnedLines-1)*t.Stride+191], dst[63*ldd+4*TurnedLines-1]
	s.encoded.wordsQ6K(&t.Src[0], t.Stride, &dst[0], ldd, t.Ahead)
	t.Ahead += 12 * fetchedEach
	return true
}

// Codes is Multiply for few rows and Columns columns of codes as words, which [Set.Words] wrote for each of turns.
// Those say what the numbers are; they differ in Scales and Minima alone. A scale times a code must be exact where
// there are minima. For each four of the depth memory from ahead on, jump bytes further each time, is fetched into the
// second cache. It gives the bits that Multiply does for the numbers that [Set.Turn] writes.
func (s *Set) Codes(
	rows int, turns []*Turn, words []byte, a []float32, lda int, c []float32, ldc int, mode Mode, bias []float32,
	ahead uintptr, jump int,
) {
	t := turns[0]
	each, other := TurnedLines, 0
	codes := 16
	if t.Table != nil {
		codes = 32
		if t.Pairs {
			each, other = 2*TurnedLines, 4*TurnedLines
		}
	}
	depth := t.Steps * t.Pieces * codes
	_, _ = a[(rows-1)*lda+depth-1], c[(rows-1)*ldc+s.Columns-1]
	_ = words[t.Steps*t.Pieces*16*s.Columns-1]
	var scales, minima [2]*float32
	for i := range scales {
		t, at := turns[min(i, len(turns)-1)], 0
		if len(turns) == 1 { // both halves of its lines
			at = i * TurnedLines / 2
		}
		_ = t.Scales[t.Steps*each-1]
		scales[i] = &t.Scales[at]
		least := t.Minima
		if least == nil {
			least = nothing[:]
		}
		_ = least[t.Steps*each-1]
		minima[i] = &least[at]
	}
	p := &c[0]
	switch mode {
	case RowBias:
		_, p = bias[rows-1], &bias[0]
	case ColumnBias:
		_, p = bias[s.Columns-1], &bias[0]
	}
	kernels, table := s.word.bytes, (*byte)(nil)
	switch {
	case t.Table == nil && t.Round == Float16:
		kernels = s.word.bytesF16
	case t.Table == nil && t.Round == BFloat16:
		kernels = s.word.bytesBF16
	case t.Table != nil:
		table = &t.Table[0]
		switch t.Round {
		case Float16:
			kernels = s.word.nibblesF16
		case BFloat16:
			kernels = s.word.nibblesBF16
		default:
			kernels = s.word.nibbles
		}
	}
	kernels[rows-1](
		t.Steps, 4*t.Pieces, &words[0], scales[0], scales[1], minima[0], minima[1], other, table,
		&a[0], 4*lda, &c[0], 4*ldc, int(mode), p, ahead, jump,
	)
}

// HasPairs reports whether the set has Pairs.
func (s *Set) HasPairs() bool { return s.word.pairBytes != nil && s.HasUnit() && hasDots() }

// Pairs writes the numbers of a [Turn] whose codes [Set.Words] wrote, rounded to bfloat16, as Pairs of which they are the
// columns from TurnedLines times nth on: those that [Set.PairUp] makes of what [Set.Turn] writes, but that numbers which are denormal as
// float32 become zero, for which a unit takes them anyway. For each four bytes of a line a cache line from the Turn's Ahead
// on, jump bytes further each time, is fetched into the second cache.
func (s *Set) Pairs(t *Turn, nth int, words, dst []byte, jump int) {
	each, other, rows, ending := TurnedLines, 0, 8*t.Steps*t.Pieces, 0
	pair, table := s.word.pairBytes, (*byte)(nil)
	if t.Table != nil {
		pair, table, rows = s.word.pairNibbles, &t.Table[0], 2*rows
		if t.Pairs {
			each, other = 2*TurnedLines, 4*TurnedLines
		}
	}
	switch {
	case t.Round == BFloat16:
		ending = 1
	case t.Round == Float16:
		ending = 2
	}
	minima := t.Minima
	if minima == nil {
		minima = nothing[:]
	}
	_, _ = t.Scales[t.Steps*each-1], minima[t.Steps*each-1]
	words, dst = words[4*TurnedLines*nth:], dst[4*TurnedLines*nth:]
	_, _ = words[(t.Steps*t.Pieces*4-1)*4*s.Columns+4*TurnedLines-1], dst[(rows-1)*4*s.Columns+4*TurnedLines-1]
	pair(t.Steps, 4*t.Pieces, &words[0], &t.Scales[0], &minima[0], other, table, &dst[0], t.Ahead, jump, ending)
}

// twice returns what multiplies the codes of a Turn, as lines or as words, as CodesTwice does; nil where nothing does.
func (s *Set) twice(t *Turn, lines bool) twiceFunc {
	w := &s.word
	switch {
	case t.Round != Float32:
	case t.Table != nil && lines:
		return w.twiceNibblesLines
	case t.Table != nil:
	case t.Five && !lines:
		return w.twiceFives
	case t.Minima == nil && lines:
		return w.twiceBytesLines
	case t.Minima == nil:
		return w.twiceBytes
	}
	return nil
}

// HasCodesTwice reports whether there is CodesTwice for numbers rounded so.
func (s *Set) HasCodesTwice(round Element) bool { return round == Float32 && s.word.twiceFives != nil }

// TakesLines reports whether CodesTwice takes the codes of a Turn as they lie, without words.
func (s *Set) TakesLines(t *Turn) bool { return s.twice(t, true) != nil }

// CodesTwice is Codes for one row and twice, with two blocks of 256 of the depth: turns are those of the first block and then of
// the second, which lie in an array together with their scales and minima. words are those of the first block, and
// WordBytes behind them of the second; or, where codes are lines, room for words, and lines of all columns and blocks have
// the same distances. It reports whether it did that, for which scales must be finite.
func (s *Set) CodesTwice(
	turns []*Turn, lines bool, words []byte, a, c []float32, mode Mode, bias []float32, ahead uintptr, jump int,
) bool {
	t := turns[0]
	multiply := s.twice(t, lines)
	if multiply == nil || len(turns) != 4 {
		return false
	}
	each, other, table := TurnedLines, 0, &fives[0]
	if t.Table != nil {
		table = &t.Table[0]
		if t.Pairs {
			each, other = 2*TurnedLines, 4*TurnedLines
		}
	}
	apart, block, ok := apartOf(turns, lines, each)
	if !ok {
		return false
	}
	minima, minimaApart, src := &nothing[0], 0, &words[0]
	if t.Minima != nil {
		minima, minimaApart = &t.Minima[0], apart
	}
	if lines {
		src = &t.Src[0]
	}
	_, _ = a[2*Expanded-1], words[2*WordBytes+WordsAfter-1]
	p := &c[:s.Columns][0]
	switch mode {
	case RowBias:
		p = &bias[0]
	case ColumnBias:
		p = &bias[:s.Columns][0]
	}
	return multiply(
		t.Steps, t.Pieces, src, t.Stride, t.Gap, block, &words[0], &t.Scales[0], minima, apart, minimaApart, other, table,
		&a[0], &c[0], int(mode), p, ahead, jump,
	)
}

// apartOf returns how far the scales of turns, which are each a step, and their blocks lie apart, and whether all do.
func apartOf(turns []*Turn, lines bool, each int) (apart, block int, ok bool) {
	t := turns[0]
	apart, ok = distance(&t.Scales[0], &turns[1].Scales[0]), true
	if lines {
		block = distance(&t.Src[0], &turns[2].Src[0])
	}
	step := 16*t.Pieces + t.Gap
	for v, x := range turns {
		_ = x.Scales[t.Steps*each-1]
		ok = ok && distance(&t.Scales[0], &x.Scales[0]) == v*apart
		if t.Minima != nil {
			_, ok = x.Minima[t.Steps*each-1], ok && distance(&t.Minima[0], &x.Minima[0]) == v*apart
		}
		if lines {
			_ = x.Src[(TurnedLines-1)*t.Stride+(t.Steps-1)*step+16*t.Pieces-1]
			ok = ok && distance(&t.Src[0], &x.Src[0]) == v/2*block+v%2*TurnedLines*t.Stride
		}
	}
	return apart, block, ok
}

// distance is how many bytes one element is behind another.
func distance[E any](from, to *E) int {
	return int(uintptr(unsafe.Pointer(to)) - uintptr(unsafe.Pointer(from)))
}
