package tokenizer

import (
	"unicode/utf8"

	"github.com/optimem/optimem/text/tokenizer/internal/chars"
	"github.com/optimem/optimem/text/tokenizer/internal/pattern"
)

// A preTokenizer splits a piece, which is not empty, into words. stage is its place among the pre-tokenizers.
type preTokenizer interface {
	split(r *run, stage int, p piece, emit func(piece) error) error
}

// splitAt splits at the matches of a pattern.
func (r *run) splitAt(stage int, pat *pattern.Pattern, s *splitter) error {
	search := &r.searches[stage]
	text := s.p.text
	search.Reset(pat, text)
	last := 0
	for s.err == nil {
		from, to, ok := search.Next()
		if !ok {
			break
		}
		if last != from {
			s.part(last, from, false)
		}
		s.part(from, to, true)
		last = to
	}
	if search.Err != nil {
		return &TextError{search.Err.Error()}
	}
	if last != len(text) {
		s.part(last, len(text), false)
	}
	s.end()
	return s.err
}

// splitRunes splits at single characters.
func splitRunes(s *splitter, at func(rune) bool) error {
	text := s.p.text
	last := 0
	for i, c := range text {
		if !at(c) {
			continue
		}
		if last < i {
			s.part(last, i, false)
		}
		last = i + utf8.RuneLen(c)
		s.part(i, last, true)
		if s.err != nil {
			return s.err
		}
	}
	if last < len(text) {
		s.part(last, len(text), false)
	}
	s.end()
	return s.err
}

type splitPattern struct {
	pattern *pattern.Pattern
	how     behavior
	invert  bool
}

func (n *splitPattern) split(r *run, stage int, p piece, emit func(piece) error) error {
	return r.splitAt(stage, n.pattern, &splitter{p: &p, how: n.how, invert: n.invert, emit: emit})
}

// atRunes splits at characters of a sort.
type atRunes struct {
	at  func(rune) bool
	how behavior
}

func (n *atRunes) split(_ *run, _ int, p piece, emit func(piece) error) error {
	return splitRunes(&splitter{p: &p, how: n.how, emit: emit}, n.at)
}

func isSpace(c rune) bool { return chars.Of(c).Is(chars.Space) }

func isPunctuation(c rune) bool { return chars.Of(c).Is(chars.Punctuation) }

func isNumeric(c rune) bool { return chars.Of(c).Is(chars.Numeric) }

// whitespace makes words of letters and digits, and of what is neither nor space: \w+|[^\w\s]+.
type whitespace struct{}

func (whitespace) split(_ *run, _ int, p piece, emit func(piece) error) error {
	const space, word, other = 0, 1, 2
	last, kind := 0, space
	cut := func(to int) error {
		if kind == space {
			return nil
		}
		return emit(p.slice(last, to))
	}
	for i, c := range p.text {
		row := chars.Of(c)
		k := other
		switch {
		case row.Is(chars.RustWord):
			k = word
		case row.Is(chars.Space):
			k = space
		}
		if k == kind {
			continue
		}
		if err := cut(i); err != nil {
			return err
		}
		last, kind = i, k
	}
	return cut(len(p.text))
}

type metaspace struct {
	mark   rune
	text   string
	scheme string // first, always, never
	apart  bool   // split before each mark
}

func (n *metaspace) split(_ *run, _ int, p piece, emit func(piece) error) error {
	p.replaceByte(' ', n.text)
	c, _ := utf8.DecodeRuneInString(p.text)
	if c != n.mark && (n.scheme == "always" || n.scheme == "first" && p.start == 0) {
		p.prepend(n.text)
	}
	if !n.apart {
		return emit(p)
	}
	return splitRunes(&splitter{p: &p, how: mergedWithNext, emit: emit}, func(c rune) bool { return c == n.mark })
}

type fixedLength int

func (n fixedLength) split(_ *run, _ int, p piece, emit func(piece) error) error {
	last, count := 0, 0
	for i := range p.text {
		if count == int(n) {
			if err := emit(p.slice(last, i)); err != nil {
				return err
			}
			last, count = i, 0
		}
		count++
	}
	return emit(p.slice(last, len(p.text)))
}

type unicodeScripts struct{}

// split parts scripts. What comes before the first character with a script is lost, as in Hugging Face's tokenizers.
func (unicodeScripts) split(_ *run, _ int, p piece, emit func(piece) error) error {
	const none = -1
	last, from := none, none
	for i, c := range p.text {
		s := chars.Script(c)
		if s == 0 {
			continue
		}
		if last != s {
			if from != none {
				if err := emit(p.slice(from, i)); err != nil {
					return err
				}
			}
			from = i
		}
		last = s
	}
	if from == none {
		return nil
	}
	return emit(p.slice(from, len(p.text)))
}
