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
	// Round is Float16 or BFloat16 where numbers are rounded.
	Round Element
	Dst   []float32
	Ldd   int
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
	bytes      func(steps, pieces int, src *byte, stride, gap int, scales, dst *float32, ldd int)
	bytesMin   func(steps, pieces int, src *byte, stride, gap int, scales, minima, dst *float32, ldd int)
	nibbles    func(steps, pieces int, src *byte, stride, gap int, scales *float32, other int, table *byte, dst *float32, ldd, apart int)
	nibblesMin func(
		steps, pieces int, src *byte, stride, gap int, scales *float32, other int, table *byte, minima, dst *float32, ldd, apart int,
	)
	nibblesF16, nibblesBF16 func(
		steps, pieces int, src *byte, stride, gap int, scales *float32, other int, table *byte, minima, dst *float32, ldd, apart int,
	)
	halves               func(steps int, src *byte, stride, step int, dst *float32)
	expandQ5K, expandQ6K func(lines int, src *byte, stride int, dst *byte)
}

// Turns reports whether there are kernels that make panels of blocks of codes.
func (s *Set) Turns() bool { return s.encoded.bytes != nil }

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

// Halves writes a half of each of TurnedLines lines as float32, dst[step·TurnedLines + line], step bytes from one to the next.
func (s *Set) Halves(steps int, src []byte, stride, step int, dst []float32) {
	if steps == 0 {
		return
	}
	_, _ = src[(TurnedLines-1)*stride+(steps-1)*step+1], dst[steps*TurnedLines-1]
	s.encoded.halves(steps, &src[0], stride, step, &dst[0])
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
