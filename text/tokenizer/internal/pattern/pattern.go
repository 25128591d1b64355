// Package pattern matches the regular expressions of tokenizers: Oniguruma's syntax and semantics, which are Perl's
// (the first alternative that matches, not the longest), with look-around, atomic groups and possessive quantifiers.
// Patterns come from untrusted files, so matching is linear in the text: a search that backtracks too much restarts
// with memoisation. Groups do not capture. Patterns that cannot be matched this way, such as backreferences, are
// refused.
//
//	p, err := pattern.Compile(`\s+(?!\S)|\s+|\S+`)
//	for s, e := range p.All(text) { … }
package pattern

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Limits on a pattern, so that a small file does not make a large program.
const (
	maxLength  = 1 << 14 // bytes of a pattern
	maxProgram = 20000   // instructions
	maxClasses = 256     // different sets of characters
	maxDepth   = 100     // groups in groups
	maxFolds   = 1000    // sets whose other cases are looked for
)

// maxMemory bounds, in bytes, what one search remembers.
const maxMemory = 256 << 20

// An Error says what is wrong with a pattern.
type Error struct {
	Pattern string
	Offset  int // in bytes
	// Unsupported is true where Oniguruma would take the pattern, as far as is known.
	Unsupported bool
	Problem     string
}

func (e *Error) Error() string {
	return fmt.Sprintf("pattern %s, byte %d: %s", quote(e.Pattern), e.Offset, e.Problem)
}

func quote(s string) string {
	if len(s) > 200 {
		s = s[:200] + "…"
	}
	return fmt.Sprintf("%q", s)
}

// ErrMemory says that a search would remember more than maxMemory: the text is too long for how the pattern backtracks.
type ErrMemory struct{ Pattern string }

func (e *ErrMemory) Error() string {
	return fmt.Sprintf("pattern %s backtracks too much for a text of this length", quote(e.Pattern))
}

// A Pattern is a compiled regular expression. It may be used by many goroutines.
type Pattern struct {
	source  string
	literal string // the whole pattern, where it is plain text
	fast    *program
	safe    *program // the same with every repeat written out, so that all of its choices can be remembered
}

// Compile reads a regular expression.
func Compile(source string) (*Pattern, error) {
	if len(source) > maxLength {
		return nil, &Error{Pattern: source, Problem: "longer than 16 KiB", Unsupported: true}
	}
	p := &parser{src: source}
	n, err := p.parse()
	if err != nil {
		return nil, err
	}
	pat := &Pattern{source: source}
	if text, ok := plain(n); ok && text != "" {
		pat.literal = text
		return pat, nil
	}
	sets := &sets{}
	if pat.fast, err = assemble(source, n, sets, false); err != nil {
		return nil, err
	}
	pat.safe, err = assemble(source, n, sets, true)
	return pat, err
}

// Quote compiles plain text.
func Quote(text string) *Pattern {
	p := &Pattern{source: text, literal: text}
	if text == "" {
		p.fast = &program{code: []instr{{op: opMatch}}}
		p.fast.first = p.fast.firsts()
		p.safe = p.fast
	}
	return p
}

// String returns the pattern's source.
func (p *Pattern) String() string { return p.source }

// A Search goes through the matches in a text as Oniguruma's find_iter does: from left to right, not overlapping, with
// no empty match where one has just ended.
type Search struct {
	p         *Pattern
	text      string
	at        int
	last      int // where the last match ended, or -1
	m         machine
	Err       error
	exhausted bool
}

// Find begins a search. text must be valid UTF-8.
func (p *Pattern) Find(text string) *Search {
	s := &Search{}
	s.Reset(p, text)
	return s
}

// Reset begins another search with the memory of this one.
func (s *Search) Reset(p *Pattern, text string) {
	m := s.m
	*s = Search{p: p, text: text, last: -1}
	s.m = m
	s.m.begin(p, text)
}

// Next returns the next match. It returns false when there is none, or on an error, which is then in Err.
func (s *Search) Next() (start, end int, ok bool) {
	if s.p.literal != "" {
		i := strings.Index(s.text[s.at:], s.p.literal)
		if i < 0 {
			return 0, 0, false
		}
		start = s.at + i
		s.at = start + len(s.p.literal)
		return start, s.at, true
	}
	for !s.exhausted && s.at <= len(s.text) {
		start, end, err := s.m.search(s.at)
		if err != nil {
			s.Err = err
			s.exhausted = true
			return 0, 0, false
		}
		if start < 0 {
			s.exhausted = true
			return 0, 0, false
		}
		if start == end && end == s.last {
			_, size := utf8.DecodeRuneInString(s.text[s.at:])
			s.at += max(size, 1)
			continue
		}
		s.at, s.last = end, end
		return start, end, true
	}
	return 0, 0, false
}

// Literal reports whether the pattern is its source as plain text.
func (p *Pattern) Literal() bool { return p.literal != "" && p.literal == p.source }
