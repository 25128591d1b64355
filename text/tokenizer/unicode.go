package tokenizer

import (
	"slices"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/optimem/optimem/text/tokenizer/internal/chars"
)

// A unicodeForm normalizes as Unicode says: NFD, or NFKD, NFC, NFKC. Characters and marks that came to Unicode after
// version 9 are neither taken apart nor moved, since Hugging Face's tokenizers knows no later version.
type unicodeForm struct{ compat, compose bool }

func (n *unicodeForm) normalize(r *run, p *piece) error {
	var form norm.Form
	switch {
	case n.compat && n.compose:
		form = norm.NFKC
	case n.compat:
		form = norm.NFKD
	case n.compose:
		form = norm.NFC
	default:
		form = norm.NFD
	}
	if form.QuickSpanString(p.text) == len(p.text) {
		return nil
	}
	out := n.decompose(p.text, r.changes[:0])
	if n.compose {
		out = composed(out)
	}
	p.transform(out, 0)
	r.changes = out
	return nil
}

// class is the canonical combining class of a character.
func class(c rune) uint8 {
	if c < 0x300 || !chars.Of(c).Is(chars.Mark) {
		return 0
	}
	var b [utf8.UTFMax]byte
	return norm.NFD.Properties(b[:utf8.EncodeRune(b[:], c)]).CCC()
}

// decompose takes characters apart and puts marks in order.
func (n *unicodeForm) decompose(text string, out []change) []change {
	form := norm.NFD
	if n.compat {
		form = norm.NFKD
	}
	sorted := 0 // where marks begin that are still to be put in order
	marks := false
	push := func(c rune, by int32) {
		if class(c) == 0 {
			if marks {
				sortMarks(out[sorted:])
			}
			marks = false
			sorted = len(out) + 1
		} else {
			marks = true
		}
		out = append(out, change{c, by})
	}
	for i, c := range text {
		if c < 0x80 || !chars.Of(c).Is(chars.Decomposes) {
			push(c, 0)
			continue
		}
		by := int32(0)
		parts := form.PropertiesString(text[i:]).Decomposition()
		if parts == nil {
			push(c, 0)
			continue
		}
		for len(parts) > 0 {
			d, size := utf8.DecodeRune(parts)
			parts = parts[size:]
			push(d, by)
			by = 1
		}
	}
	if marks {
		sortMarks(out[min(sorted, len(out)):])
	}
	return out
}

func sortMarks(marks []change) {
	slices.SortStableFunc(marks, func(a, b change) int { return int(class(a.r)) - int(class(b.r)) })
}

// composed puts together what Unicode composes.
func composed(in []change) []change {
	out := make([]change, 0, len(in))
	starter := -1   // in out
	lastClass := -1 // of what follows the starter
	for _, c := range in {
		k := int(class(c.r))
		if starter < 0 {
			if k == 0 {
				starter = len(out)
			}
			out = append(out, c)
			continue
		}
		if lastClass < 0 || lastClass < k {
			if whole, ok := pair(out[starter].r, c.r); ok {
				out[starter].r = whole
				out[starter].by += c.by - 1
				continue
			}
		}
		if k == 0 {
			starter, lastClass = len(out), -1
		} else {
			lastClass = k
		}
		out = append(out, c)
	}
	return out
}

// pair is the character that two compose to.
func pair(a, b rune) (rune, bool) {
	if b < 0x300 || !chars.Of(b).Is(chars.Mark) && (b < 0x1161 || b > 0x11C2) { // what follows is a mark, or a jamo
		return 0, false
	}
	var buf, dst [3 * utf8.UTFMax]byte
	n := utf8.EncodeRune(buf[:], a)
	n += utf8.EncodeRune(buf[n:], b)
	s := norm.NFC.Append(dst[:0], buf[:n]...)
	c, size := utf8.DecodeRune(s)
	if size != len(s) || !chars.Of(c).Is(chars.Decomposes) {
		return 0, false
	}
	return c, true
}
