package tokenizer

import (
	"strings"
	"unicode/utf8"

	"github.com/optimem/optimem/text/tokenizer/internal/chars"
	"github.com/optimem/optimem/text/tokenizer/internal/pattern"
)

// A normalizer changes a piece of text.
type normalizer interface {
	normalize(r *run, p *piece) error
}

type normalizers []normalizer

func (n normalizers) normalize(r *run, p *piece) error {
	for _, one := range n {
		if err := one.normalize(r, p); err != nil {
			return err
		}
	}
	return nil
}

// maxGrowth bounds how many times as long replacements can make a text: a small file would otherwise take any memory.
const maxGrowth = 1 << 12

// growth is how many times as long the replacements among normalizers may make a text.
func (n normalizers) growth() int {
	product := 1
	for _, one := range n {
		switch g := one.(type) {
		case *replace:
			product = min(product*g.growth(), maxGrowth+1)
		case normalizers:
			product = min(product*g.growth(), maxGrowth+1)
		}
	}
	return product
}

// growth is by how much a replacement may be longer than what it replaces.
func growth(p *pattern.Pattern, content string) int {
	if p.Literal() {
		return max(1, (len(content)+len(p.String())-1)/len(p.String()))
	}
	return min(1+len(content), maxGrowth+1) // a match may be empty
}

func growthOf(all []decoder) int {
	product := 1
	for _, d := range all {
		if r, ok := d.(*replaceDecoder); ok {
			product = min(product*growth(r.pattern, r.content), maxGrowth+1)
		}
	}
	return product
}

// filter keeps the characters that keep says, changed by change.
func (r *run) filter(p *piece, keep func(rune) bool) {
	all := true
	for _, c := range p.text {
		if !keep(c) {
			all = false
			break
		}
	}
	if all {
		return
	}
	out := r.changes[:0]
	first, gone := 0, int32(0)
	for _, c := range p.text {
		switch {
		case !keep(c):
			gone++
			if len(out) > 0 {
				out[len(out)-1].by--
			}
		default:
			if len(out) == 0 {
				first = int(gone)
			}
			out = append(out, change{c, 0})
		}
	}
	p.transform(out, first)
	r.changes = out
}

// replaceRunes changes single characters.
func (r *run) replaceRunes(p *piece, to func(rune) rune) {
	same := true
	for _, c := range p.text {
		if to(c) != c {
			same = false
			break
		}
	}
	if same {
		return
	}
	out := r.changes[:0]
	for _, c := range p.text {
		out = append(out, change{to(c), 0})
	}
	p.transform(out, 0)
	r.changes = out
}

type bertNormalizer struct{ clean, chinese, accents, lower bool }

func (n bertNormalizer) normalize(r *run, p *piece) error {
	if n.clean {
		r.filter(p, func(c rune) bool {
			return c >= ' ' && c < 0x7F || c == '\t' || c == '\n' || c == '\r' ||
				c != 0 && c != utf8.RuneError && !chars.Of(c).Is(chars.Control)
		})
		r.replaceRunes(p, func(c rune) rune {
			if c > ' ' && c < 0x7F || c != ' ' && !chars.Of(c).Is(chars.Space) {
				return c
			}
			return ' '
		})
	}
	if n.chinese {
		r.spaceChinese(p)
	}
	if n.accents {
		(&unicodeForm{}).normalize(r, p) //nolint:errcheck // It cannot fail.
		r.filter(p, func(c rune) bool { return c < 0x80 || !chars.Of(c).Is(chars.NonSpacing) })
	}
	if n.lower {
		return lowercase{}.normalize(r, p)
	}
	return nil
}

func chinese(c rune) bool {
	return c >= 0x3400 && (c <= 0x4DBF || c >= 0x4E00 && c <= 0x9FFF || c >= 0xF900 && c <= 0xFAFF ||
		c >= 0x20000 && c <= 0x2A6DF || c >= 0x2A700 && c <= 0x2B73F || c >= 0x2B740 && c <= 0x2B81F ||
		c >= 0x2B920 && c <= 0x2CEAF || c >= 0x2F800 && c <= 0x2FA1F)
}

func (r *run) spaceChinese(p *piece) {
	if strings.IndexFunc(p.text, chinese) < 0 {
		return
	}
	out := r.changes[:0]
	for _, c := range p.text {
		if chinese(c) {
			out = append(out, change{' ', 0}, change{c, 1}, change{' ', 1})
		} else {
			out = append(out, change{c, 0})
		}
	}
	p.transform(out, 0)
	r.changes = out
}

type lowercase struct{}

func (lowercase) normalize(r *run, p *piece) error {
	changed := false
	for _, c := range p.text {
		if l, second := chars.Lower(c); l != c || second != 0 {
			changed = true
			break
		}
	}
	if !changed {
		return nil
	}
	out := r.changes[:0]
	for _, c := range p.text {
		l, second := chars.Lower(c)
		out = append(out, change{l, 0})
		if second != 0 {
			out = append(out, change{second, 1})
		}
	}
	p.transform(out, 0)
	r.changes = out
	return nil
}

type strip struct{ left, right bool }

func (n strip) normalize(r *run, p *piece) error {
	space := func(c rune) bool { return chars.Of(c).Is(chars.Space) }
	inner := p.text
	if n.left {
		inner = strings.TrimLeftFunc(inner, space)
	}
	leading := utf8.RuneCountInString(p.text) - utf8.RuneCountInString(inner)
	if n.right {
		inner = strings.TrimRightFunc(p.text, space)
	}
	trailing := 0
	if n.right {
		trailing = utf8.RuneCountInString(p.text[len(inner):])
	}
	if leading == 0 && trailing == 0 {
		return nil
	}
	count := utf8.RuneCountInString(p.text)
	out := r.changes[:0]
	i := 0
	for _, c := range p.text {
		switch {
		case i < leading || i >= count-trailing:
		case i == len(p.text)-trailing-1: // bytes less characters, as the original has it
			out = append(out, change{c, int32(-trailing)})
		default:
			out = append(out, change{c, 0})
		}
		i++
	}
	p.transform(out, leading)
	r.changes = out
	return nil
}

type stripAccents struct{}

func (stripAccents) normalize(r *run, p *piece) error {
	r.filter(p, func(c rune) bool { return c < 0x80 || !chars.Of(c).Is(chars.Mark) })
	return nil
}

type nmt struct{}

func (nmt) normalize(r *run, p *piece) error {
	r.filter(p, func(c rune) bool {
		return !(c >= 1 && c <= 8 || c == 0xB || c >= 0xE && c <= 0x1F || c == 0x7F || c == 0x8F || c == 0x9F)
	})
	r.replaceRunes(p, func(c rune) rune {
		switch {
		case c == 9 || c == 0xA || c == 0xC || c == 0xD || c == 0x1680 || c >= 0x200B && c <= 0x200F || c == 0x2028,
			c == 0x2029 || c == 0x2581 || c == 0xFEFF || c == 0xFFFD:
			return ' '
		}
		return c
	})
	return nil
}

type prepend string

func (n prepend) normalize(_ *run, p *piece) error {
	p.prepend(string(n))
	return nil
}

type replace struct {
	pattern *pattern.Pattern
	content string
	byte    byte // the whole pattern, where it is one ASCII character; else 0
}

func (n *replace) growth() int { return min(growth(n.pattern, n.content), maxGrowth+1) }

func (n *replace) normalize(_ *run, p *piece) error {
	if n.byte != 0 {
		p.replaceByte(n.byte, n.content)
		return nil
	}
	if p.text == "" {
		return nil
	}
	var found []Span
	s := n.pattern.Find(p.text)
	for {
		from, to, ok := s.Next()
		if !ok {
			break
		}
		found = append(found, Span{from, to})
	}
	if s.Err != nil {
		return &TextError{s.Err.Error()}
	}
	p.replace(found, n.content)
	return nil
}

// byteLevelNormalizer writes each byte as the character that byte-level vocabularies have for it.
type byteLevelNormalizer struct{}

func (byteLevelNormalizer) normalize(r *run, p *piece) error {
	r.spellBytes(p)
	return nil
}

func (r *run) spellBytes(p *piece) {
	if p.text == "" {
		return
	}
	out := r.changes[:0]
	for i := range len(p.text) {
		by := int32(1)
		if utf8.RuneStart(p.text[i]) {
			by = 0
		}
		out = append(out, change{byteRunes[p.text[i]], by})
	}
	p.transform(out, 0)
	r.changes = out
}
