package kernel

// TurnedLines is how many lines of codes a [Turn] makes columns of.
const TurnedLines = 16

// A Turn makes columns of float32 of lines of codes: TurnedLines lines, Stride bytes apart, in Steps of Pieces of 16 bytes each,
// with Gap bytes between the last piece of a step and the first of the next. A step has a scale for each line, at
// Scales[step·TurnedLines + line], and perhaps a minimum at the same place of Minima:
//
//	number = scale · code + minimum, each rounded
//
// A code is a byte, signed, and number k of a line goes to Dst[k·Ldd + line]. Where there is a Table it is two half bytes instead:
// the low ones of a step come first, then the high ones, and a code is what the table has for it. Scales and minima of the low ones
// and of the high ones may then differ ([Turn.Pairs]): those of a step lie one behind the other. With a table, numbers may also be
// rounded to halves, and Minima are what is taken off a code first:
//
//	number = rounded((code − minimum) · scale)
type Turn struct {
	Steps, Pieces  int
	Src            []byte
	Stride, Gap    int
	Scales, Minima []float32
	Table          *[32]byte
	Pairs          bool
	// Five says that codes which are bytes are below 32. Scales of other bytes without minima have 22 bits.
	Five bool
	// Round is Float16 or BFloat16 where numbers are rounded.
	Round Element
	Dst   []float32
	Ldd   int
	// Ahead is memory that is read later: [Set.Words] fetches some of it into the second cache, and moves Ahead on.
	Ahead uintptr
}

// TableOf returns a table of the numbers that sixteen codes stand for.
func TableOf(numbers [16]int8) *[32]byte {
	t := new([32]byte)
	for i, n := range numbers {
		t[i], t[16+i] = byte(n), 0x0f
	}
	return t
}

// An encodedSet is the kernels of a set that make panels of blocks of codes.
type encodedSet struct {
	bytes    func(steps, pieces int, src *byte, stride, gap int, scales, dst *float32, ldd int)
	bytesMin func(steps, pieces int, src *byte, stride, gap int, scales, minima, dst *float32, ldd int)
	nibbles  func(steps, pieces int, src *byte, stride, gap int, scales *float32, other int, table *byte,
		dst *float32, ldd, apart int)
	nibblesMin func(
		steps, pieces int, src *byte, stride, gap int, scales *float32, other int, table *byte, minima, dst *float32,
		ldd, apart int,
	)
	nibblesF16, nibblesBF16 func(
		steps, pieces int, src *byte, stride, gap int, scales *float32, other int, table *byte, minima, dst *float32,
		ldd, apart int,
	)
	heads func(steps int, src *byte, stride, step int, room *byte, dst *float32, apart int)
	// headsK reads lines themselves, where it is not nil, scalesK their words.
	headsK               func(src *byte, stride int, scales, minima *float32)
	scalesK              func(words *byte, scales, minima *float32)
	wordsQ6K             func(src *byte, stride int, dst *byte, ldd int, ahead uintptr)
	expandQ5K, expandQ6K func(lines int, src *byte, stride int, dst *byte)
	expandQ50            func(lines, blocks int, src *byte, stride, size, zero int, dst *byte)
}

// Turns reports whether there are kernels that make panels of blocks of codes.
func (s *Set) Turns() bool { return s.encoded.bytes != nil && !s.word.few }

// Turn makes columns of lines of codes.
func (s *Set) Turn(t *Turn) {
	if t.Steps == 0 || t.Pieces == 0 {
		return
	}
	codes, scales := 16, TurnedLines
	if t.Table != nil {
		codes = 32
		if t.Pairs {
			scales *= 2
		}
	}
	// The last element that is read or written of each is looked at, so that memory is never left.
	step := 16*t.Pieces + t.Gap
	_ = t.Src[(TurnedLines-1)*t.Stride+(t.Steps-1)*step+16*t.Pieces-1]
	_, _ = t.Scales[t.Steps*scales-1], t.Dst[(t.Steps*t.Pieces*codes-1)*t.Ldd+TurnedLines-1]
	var minima *float32
	if t.Minima != nil {
		_, minima = t.Minima[t.Steps*scales-1], &t.Minima[0]
	}
	e, src, dst, ldd := &s.encoded, &t.Src[0], &t.Dst[0], 4*t.Ldd
	other, apart := 4*(scales-TurnedLines), 16*t.Pieces*ldd
	switch {
	case t.Table != nil && t.Round == Float16 && minima != nil:
		e.nibblesF16(t.Steps, t.Pieces, src, t.Stride, t.Gap, &t.Scales[0], other, &t.Table[0], minima, dst, ldd, apart)
	case t.Table != nil && t.Round == BFloat16 && minima != nil:
		e.nibblesBF16(
			t.Steps, t.Pieces, src, t.Stride, t.Gap, &t.Scales[0], other, &t.Table[0], minima, dst, ldd, apart,
		)
	case t.Table != nil && minima != nil:
		e.nibblesMin(t.Steps, t.Pieces, src, t.Stride, t.Gap, &t.Scales[0], other, &t.Table[0], minima, dst, ldd, apart)
	case t.Table != nil:
		e.nibbles(t.Steps, t.Pieces, src, t.Stride, t.Gap, &t.Scales[0], other, &t.Table[0], dst, ldd, apart)
	case minima != nil:
		e.bytesMin(t.Steps, t.Pieces, src, t.Stride, t.Gap, &t.Scales[0], minima, dst, ldd)
	default:
		e.bytes(t.Steps, t.Pieces, src, t.Stride, t.Gap, &t.Scales[0], dst, ldd)
	}
}

// HeadsRoom is room for the heads of a step.
const HeadsRoom = 4 * TurnedLines

// Heads writes two halves, which lie side by side in each of TurnedLines lines, as float32: dst[step·TurnedLines +
// line] and, apart elements further, the second ones, step bytes from one to the next. room is HeadsRoom bytes for each
// step.
func (s *Set) Heads(steps int, src []byte, stride, step int, room []byte, dst []float32, apart int) {
	if steps == 0 {
		return
	}
	_, _ = src[(TurnedLines-1)*stride+(steps-1)*step+3], room[steps*HeadsRoom-1]
	_ = dst[apart+steps*TurnedLines-1]
	s.encoded.heads(steps, &src[0], stride, step, &room[0], &dst[0], 4*apart)
}

// GroupsK is how many groups a block of Q4_K or Q5_K has.
const GroupsK = 8

// ScalesK writes the scales of the groups of one block of Q4_K or Q5_K of each of TurnedLines lines,
// scales[group·TurnedLines + line], and what their minima add. room is for HeadsRoom bytes four times.
func (s *Set) ScalesK(src []byte, stride int, room []byte, scales, minima []float32) {
	_, _ = src[(TurnedLines-1)*stride+15], room[4*HeadsRoom-1]
	_, _ = scales[GroupsK*TurnedLines-1], minima[GroupsK*TurnedLines-1]
	if s.encoded.headsK != nil {
		s.encoded.headsK(&src[0], stride, &scales[0], &minima[0])
		return
	}
	s.word.words(1, 1, &src[0], stride, 0, &room[0], 4*TurnedLines)
	s.encoded.scalesK(&room[0], &scales[0], &minima[0])
}

// Expanded is how many codes a block of Q5_K or Q6_K has.
const Expanded = 256

// ExpandQ5K writes the codes of one block of Q5_K of each of some lines, without their scales and minima, lines one behind the
// other. A block has 176 bytes.
func (s *Set) ExpandQ5K(lines int, src []byte, stride int, dst []byte) {
	_, _ = src[(lines-1)*stride+175], dst[lines*Expanded-1]
	s.encoded.expandQ5K(lines, &src[0], stride, &dst[0])
}

// ExpandQ6K writes the codes of one block of Q6_K of each of some lines, less 32, lines one behind the other. A block has 210 bytes.
func (s *Set) ExpandQ6K(lines int, src []byte, stride int, dst []byte) {
	_, _ = src[(lines-1)*stride+209], dst[lines*Expanded-1]
	s.encoded.expandQ6K(lines, &src[0], stride, &dst[0])
}

// ExpandQ50 writes the codes of blocks of Q5_0 or Q5_1 of each of some lines, less zero, lines Expanded codes apart.
// Blocks are size bytes apart; src begins with the fifth bits of the first one, which its half bytes follow.
func (s *Set) ExpandQ50(lines, blocks int, src []byte, stride, size, zero int, dst []byte) {
	_, _ = src[(lines-1)*stride+(blocks-1)*size+19], dst[(lines-1)*Expanded+32*blocks-1]
	s.encoded.expandQ50(lines, blocks, &src[0], stride, size, zero, &dst[0])
}
