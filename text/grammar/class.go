package grammar

import (
	"slices"
	"unicode/utf8"
)

// tidy sorts ranges and joins those that touch.
func (c class) tidy() class {
	sorted := slices.Clone(c)
	slices.SortFunc(sorted, func(a, b runeRange) int { return int(a.lo) - int(b.lo) })
	var out class
	for _, r := range sorted {
		if n := len(out); n > 0 && r.lo <= out[n-1].hi+1 {
			out[n-1].hi = max(out[n-1].hi, r.hi)
			continue
		}
		out = append(out, r)
	}
	return out
}

// not returns all other characters of a tidy class.
func (c class) not() class {
	var out class
	next := rune(0)
	for _, r := range c {
		if r.lo > next {
			out = append(out, runeRange{next, r.lo - 1})
		}
		next = r.hi + 1
	}
	if next <= utf8.MaxRune {
		out = append(out, runeRange{next, utf8.MaxRune})
	}
	return out
}

// without returns the characters that are not in another class.
func (c class) without(d class) class { return append(c.not(), d...).tidy().not() }

// surrogates are no characters.
var surrogates = class{{0xd800, 0xdfff}}

// wide reports whether a tidy class has all characters outside of ASCII.
func (c class) wide() bool {
	low, high := false, false
	for _, r := range c {
		low = low || r.lo <= utf8.RuneSelf && r.hi >= 0xd7ff
		high = high || r.lo <= 0xe000 && r.hi == utf8.MaxRune
	}
	return low && high
}

func (c class) has(r rune) bool {
	return slices.ContainsFunc(c, func(a runeRange) bool { return a.lo <= r && r <= a.hi })
}

// A byteRange is a run of bytes at one place of an encoded character.
type byteRange struct{ lo, hi byte }

// encoded calls f for each sequence of byte ranges that together are the UTF-8 of the class: no surrogates.
func (c class) encoded(f func([]byteRange) error) error {
	for _, r := range c.without(surrogates) {
		for _, step := range []runeRange{{0, 0x7f}, {0x80, 0x7ff}, {0x800, 0xffff}, {0x10000, utf8.MaxRune}} {
			if lo, hi := max(r.lo, step.lo), min(r.hi, step.hi); lo <= hi {
				if err := encodeRange(lo, hi, f); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// encodeRange splits characters of one encoded length into sequences whose bytes vary independently.
func encodeRange(lo, hi rune, f func([]byteRange) error) error {
	n := utf8.RuneLen(lo)
	for i := 1; i < n; i++ {
		mask := rune(1)<<(6*i) - 1 // what i bytes at the end hold
		if lo&^mask == hi&^mask {
			continue
		}
		if lo&mask != 0 {
			if err := encodeRange(lo, lo|mask, f); err != nil {
				return err
			}
			return encodeRange(lo|mask+1, hi, f)
		}
		if hi&mask != mask {
			if err := encodeRange(lo, hi&^mask-1, f); err != nil {
				return err
			}
			return encodeRange(hi&^mask, hi, f)
		}
	}
	var a, b [utf8.UTFMax]byte
	utf8.EncodeRune(a[:], lo)
	utf8.EncodeRune(b[:], hi)
	seq := make([]byteRange, n)
	for i := range seq {
		seq[i] = byteRange{a[i], b[i]}
	}
	return f(seq)
}
