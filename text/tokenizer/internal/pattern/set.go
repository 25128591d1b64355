package pattern

import (
	"slices"
	"unicode"
	"unicode/utf8"
)

// A set of characters is sorted ranges of code points, first and last of each, that do not touch.
type set []rune

func (s set) normal() set {
	type span struct{ lo, hi rune }
	spans := make([]span, 0, len(s)/2)
	for i := 0; i+1 < len(s); i += 2 {
		spans = append(spans, span{s[i], s[i+1]})
	}
	slices.SortFunc(spans, func(a, b span) int { return int(a.lo - b.lo) })
	var out set
	for _, p := range spans {
		if n := len(out); n > 0 && p.lo <= out[n-1]+1 {
			out[n-1] = max(out[n-1], p.hi)
		} else {
			out = append(out, p.lo, p.hi)
		}
	}
	return out
}

func (s set) not() set {
	var out set
	next := rune(0)
	for i := 0; i+1 < len(s); i += 2 {
		if s[i] > next {
			out = append(out, next, s[i]-1)
		}
		next = s[i+1] + 1
	}
	if next <= unicode.MaxRune {
		out = append(out, next, unicode.MaxRune)
	}
	return out
}

func (s set) or(t set) set { return append(slices.Clone(s), t...).normal() }

func (s set) and(t set) set { return s.not().or(t.not()).not() }

// folded adds the other cases of every character.
func (s set) folded() set {
	out := slices.Clone(s)
	for i := 0; i+1 < len(s); i += 2 {
		// Only few characters have another case, and they lie in ranges that are not long.
		for _, span := range cased() {
			for r := max(span[0], s[i]); r <= min(span[1], s[i+1]); r++ {
				for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
					out = append(out, f, f)
				}
			}
		}
	}
	return out.normal()
}

// cased returns ranges outside which no character has another case.
func cased() [][2]rune {
	return [][2]rune{{'A', 'z'}, {0xB5, 0x587}, {0x10A0, 0x1CBF}, {0x1D79, 0x2188}, {0x24B6, 0x2D2D}, {0xA640, 0xABBF},
		{0xFB00, 0xFF5A}, {0x10400, 0x10FFF}, {0x118A0, 0x118DF}, {0x16E40, 0x16E7F}, {0x1E900, 0x1E943}}
}

// A class is a set made ready for matching.
type class struct {
	ascii [2]uint64
	page  []uint16 // of 256 code points each, in bits
	bits  [][4]uint64
	from  set
}

func newClass(s set) *class {
	c := &class{from: s, page: make([]uint16, 0, (unicode.MaxRune+1)/256)}
	at := make(map[[4]uint64]uint16)
	var cell, before [4]uint64
	full := [4]uint64{^uint64(0), ^uint64(0), ^uint64(0), ^uint64(0)}
	const size = 256
	i := 0
	for page := rune(0); page <= unicode.MaxRune; page += size {
		for i+1 < len(s) && s[i+1] < page {
			i += 2
		}
		cell = [4]uint64{}
		for j := i; j+1 < len(s) && s[j] < page+size; j += 2 {
			if s[j] <= page && s[j+1] >= page+size-1 {
				cell = full
				break
			}
			for r := max(s[j], page); r <= min(s[j+1], page+size-1); r++ {
				cell[(r-page)>>6] |= 1 << uint((r-page)&63)
			}
		}
		if page > 0 && cell == before { // as most are
			c.page = append(c.page, c.page[len(c.page)-1])
			continue
		}
		before = cell
		n, ok := at[cell]
		if !ok {
			n = uint16(len(c.bits))
			at[cell] = n
			c.bits = append(c.bits, cell)
		}
		c.page = append(c.page, n)
	}
	c.ascii = [2]uint64{c.bits[c.page[0]][0], c.bits[c.page[0]][1]}
	return c
}

func (c *class) has(r rune) bool {
	return c.bits[c.page[r>>8]][(r&255)>>6]>>uint(r&63)&1 != 0
}

// match returns how many bytes the character at the beginning of text has if it is in the class, and 0 if not.
func (c *class) match(text string, at int) int {
	if at >= len(text) {
		return 0
	}
	if b := text[at]; b < utf8.RuneSelf {
		return int(c.ascii[b>>6] >> (b & 63) & 1)
	}
	r, size := utf8.DecodeRuneInString(text[at:])
	if !c.has(r) {
		return 0
	}
	return size
}

// sets makes each class once.
type sets struct{ classes []*class }

func (l *sets) class(s set) (*class, bool) {
	for _, c := range l.classes {
		if slices.Equal(c.from, s) {
			return c, true
		}
	}
	if len(l.classes) == maxClasses {
		return nil, false
	}
	c := newClass(s)
	l.classes = append(l.classes, c)
	return c, true
}
