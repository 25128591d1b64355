package tokenizer

import (
	"unicode/utf8"
)

// A span32 is a range of bytes of the text that is encoded.
type span32 struct{ start, end int32 }

// A piece is a part of a text, maybe changed, with where each of its bytes comes from.
type piece struct {
	text  string
	align []span32 // for each byte of text; nil where text is the original text from start to end
	// The part of the original text that the piece was cut out as. Changes leave it as it is.
	start, end int
	// Bytes: text stands for the characters that byte-level tokenizers have for its bytes.
	bytes bool
}

func (p *piece) empty() bool { return len(p.text) == 0 }

// repaired is a text with U+FFFD for each byte that is not valid.
func repaired(text string) piece {
	p := piece{end: len(text)}
	buf := make([]byte, 0, len(text)+16)
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		from := len(buf)
		buf = utf8.AppendRune(buf, r)
		for range len(buf) - from {
			p.align = append(p.align, span32{int32(i), int32(i + size)})
		}
		i += size
	}
	p.text = string(buf)
	return p
}

// original says where bytes from..to of a piece come from. Beyond the piece it says what Hugging Face's tokenizers does.
func (p *piece) original(from, to int) Span {
	switch {
	case from == to:
		return Span{p.start + from, p.start + to}
	case to > len(p.text):
		return Span{from, to}
	case p.align != nil:
		return Span{int(p.align[from].start), int(p.align[to-1].end)}
	}
	for from > 0 && !utf8.RuneStart(p.text[from]) {
		from--
	}
	for to < len(p.text) && !utf8.RuneStart(p.text[to]) {
		to++
	}
	return Span{p.start + from, p.start + to}
}

// slice cuts out bytes from..to.
func (p *piece) slice(from, to int) piece {
	if p.align == nil {
		return piece{text: p.text[from:to], start: p.start + from, end: p.start + to, bytes: p.bytes}
	}
	at := p.original(from, to)
	return piece{text: p.text[from:to], align: p.align[from:to], start: at.Start, end: at.End, bytes: p.bytes}
}

// aligned returns the piece's alignments, made if need be.
func (p *piece) aligned() []span32 {
	if p.align != nil {
		return p.align
	}
	align := make([]span32, len(p.text))
	for i := 0; i < len(p.text); {
		_, size := utf8.DecodeRuneInString(p.text[i:])
		s := span32{int32(p.start + i), int32(p.start + i + size)}
		for range size {
			align[i] = s
			i++
		}
	}
	return align
}

// A change is a character of a new text: by is 1 if it is inserted, 0 if it replaces one, and −n if it replaces one and
// n more are removed after it.
type change struct {
	r  rune
	by int32
}

// transform gives a piece a new text. removed is how many characters fell away before the first. What happens to
// characters that come from nowhere is odd, and as Hugging Face's tokenizers has it.
func (p *piece) transform(changes []change, removed int) {
	align := p.aligned()
	lo := 0
	switch {
	case p.start == p.end:
		// Nothing of the original text: nothing is replaced.
	case len(align) == 0:
		return
	default:
		for lo < len(align) && align[lo].start == align[lo].end {
			lo++
		}
	}
	hi := len(p.text)
	if p.start == p.end {
		hi = 0
	}
	rest := p.text[lo:hi]
	skip := func(n int) (bytes int) {
		for ; n > 0 && rest != ""; n-- {
			_, size := utf8.DecodeRuneInString(rest)
			rest = rest[size:]
			bytes += size
		}
		return bytes
	}
	at := lo + skip(removed)
	buf := make([]byte, lo, len(p.text)+len(p.text)/8+8)
	copy(buf, p.text[:lo])
	out := make([]span32, lo, cap(buf))
	copy(out, align)
	for _, c := range changes {
		var s span32
		switch {
		case c.by > 0 && at < 1:
			s = span32{int32(p.start), int32(p.start)}
		case c.by > 0:
			s = align[min(at, len(align))-1]
		case at < len(align):
			s = align[at]
		case len(align) > 0:
			s = align[len(align)-1]
		}
		if c.by <= 0 {
			at += skip(1)
		}
		if c.by < 0 {
			at += skip(int(-c.by))
		}
		from := len(buf)
		buf = utf8.AppendRune(buf, c.r)
		for range len(buf) - from {
			out = append(out, s)
		}
	}
	buf = append(buf, p.text[hi:]...)
	out = append(out, align[hi:]...)
	p.text, p.align = string(buf), out
}

// prepend puts a text before a piece that is not empty. It comes from where the first character comes from.
func (p *piece) prepend(s string) {
	if p.text == "" {
		return
	}
	align := p.aligned()
	_, size := utf8.DecodeRuneInString(p.text)
	first := align[0]
	out := make([]span32, 0, len(s)+len(align))
	for range len(s) {
		out = append(out, first)
	}
	if s == "" { // then the first character counts as inserted
		first = span32{int32(p.start), int32(p.start)}
	}
	for range size {
		out = append(out, first)
	}
	p.align = append(out, align[size:]...)
	p.text = s + p.text
}

// replaceByte puts a text in place of each byte b, which is ASCII.
func (p *piece) replaceByte(b byte, s string) {
	n := 0
	for i := range len(p.text) {
		if p.text[i] == b {
			n++
		}
	}
	if n == 0 {
		return
	}
	size := len(p.text) + n*(len(s)-1)
	buf := make([]byte, 0, size)
	out := make([]span32, 0, size)
	if p.align != nil {
		for i := range len(p.text) {
			if p.text[i] != b {
				buf = append(buf, p.text[i])
				out = append(out, p.align[i])
				continue
			}
			buf = append(buf, s...)
			for range len(s) {
				out = append(out, p.align[i])
			}
		}
	} else {
		for i := 0; i < len(p.text); {
			_, width := utf8.DecodeRuneInString(p.text[i:])
			from := span32{int32(p.start + i), int32(p.start + i + width)}
			text := p.text[i : i+width]
			if p.text[i] == b {
				text = s
			}
			buf = append(buf, text...)
			for range len(text) {
				out = append(out, from)
			}
			i += width
		}
	}
	p.text, p.align = string(buf), out
}

// replace puts a text in place of ranges, which are in order.
func (p *piece) replace(ranges []Span, s string) {
	if len(ranges) == 0 {
		return
	}
	align := p.aligned()
	buf := make([]byte, 0, len(p.text))
	out := make([]span32, 0, len(p.text))
	last := 0
	for _, m := range ranges {
		buf = append(buf, p.text[last:m.Start]...)
		out = append(out, align[last:m.Start]...)
		from := span32{int32(p.start), int32(p.start)}
		if m.End > 0 {
			from = align[m.End-1]
		}
		buf = append(buf, s...)
		for range len(s) {
			out = append(out, from)
		}
		last = m.End
	}
	buf = append(buf, p.text[last:]...)
	out = append(out, align[last:]...)
	p.text, p.align = string(buf), out
}
