package grammar

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// ParseGBNF compiles a grammar in llama.cpp's notation, whose start is the rule root. Literals and classes are of characters,
// as there; elements that are tokens (<think>, <[1000]>) are not supported, nor is left recursion.
func ParseGBNF(source string) (*Grammar, error) {
	if len(source) > maxSourceBytes {
		return nil, errorf(ErrLimit, "", "a grammar of %d bytes", len(source))
	}
	if !utf8.ValidString(source) {
		return nil, errorf(ErrSyntax, "", "the grammar is no UTF-8")
	}
	p := &gbnfParser{src: source, numbers: make(map[string]int)}
	p.space(true)
	for p.pos < len(p.src) {
		if err := p.rule(); err != nil {
			return nil, err
		}
	}
	for i, r := range p.set.rules {
		if r == nil {
			return nil, errorf(ErrSyntax, "", "the rule %q is not defined", p.set.names[i])
		}
	}
	root, ok := p.numbers["root"]
	if !ok {
		return nil, errorf(ErrSyntax, "", "there is no rule root")
	}
	p.set.root = root
	return compile(&p.set)
}

type gbnfParser struct {
	src     string
	pos     int
	nesting int
	numbers map[string]int
	set     ruleSet
}

func (p *gbnfParser) fail(format string, args ...any) error {
	return p.failAs(ErrSyntax, format, args...)
}

func (p *gbnfParser) failAs(class error, format string, args ...any) error {
	line := 1 + strings.Count(p.src[:min(p.pos, len(p.src))], "\n")
	return errorf(class, fmt.Sprintf("line %d", line), format, args...)
}

func (p *gbnfParser) peek() byte {
	if p.pos < len(p.src) {
		return p.src[p.pos]
	}
	return 0
}

func (p *gbnfParser) space(newlines bool) {
	for p.pos < len(p.src) {
		switch c := p.src[p.pos]; {
		case c == ' ' || c == '\t' || newlines && (c == '\r' || c == '\n'):
			p.pos++
		case c == '#':
			n := strings.IndexAny(p.src[p.pos:], "\r\n")
			if n < 0 {
				n = len(p.src) - p.pos
			}
			p.pos += n
		default:
			return
		}
	}
}

func isWord(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '-' || c >= '0' && c <= '9'
}

func (p *gbnfParser) name() (int, error) {
	from := p.pos
	for isWord(p.peek()) {
		p.pos++
	}
	if p.pos == from {
		return 0, p.fail("expected a name")
	}
	name := p.src[from:p.pos]
	n, ok := p.numbers[name]
	if !ok {
		n = len(p.set.rules)
		if n >= maxRules {
			return 0, p.failAs(ErrLimit, "more than %d rules", maxRules)
		}
		p.numbers[name] = n
		p.set.names, p.set.rules = append(p.set.names, name), append(p.set.rules, nil)
	}
	return n, nil
}

func (p *gbnfParser) rule() error {
	n, err := p.name()
	if err != nil {
		return err
	}
	p.space(false)
	if !strings.HasPrefix(p.src[p.pos:], "::=") {
		return p.fail("expected ::=")
	}
	p.pos += 3
	p.space(true)
	t, err := p.alternatives(false)
	if err != nil {
		return err
	}
	// As in llama.cpp, a rule that is given twice is what was given last.
	p.set.rules[n] = t
	if c := p.peek(); p.pos < len(p.src) && c != '\n' && c != '\r' {
		return p.fail("expected the end of the line, got %q", p.src[p.pos])
	}
	p.space(true)
	return nil
}

func (p *gbnfParser) alternatives(nested bool) (term, error) {
	if p.nesting++; p.nesting > maxNesting {
		return nil, p.failAs(ErrLimit, "more than %d levels of groups", maxNesting)
	}
	defer func() { p.nesting-- }()
	var all choice
	for {
		s, err := p.sequence(nested)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
		if p.peek() != '|' {
			return all, nil
		}
		p.pos++
		p.space(true)
	}
}

func (p *gbnfParser) sequence(nested bool) (term, error) {
	items := sequence{}
	for {
		var t term
		var err error
		switch c := p.peek(); {
		case c == '"':
			t, err = p.literal()
		case c == '[':
			t, err = p.class()
		case c == '.':
			p.pos++
			t = anyChar
		case c == '<' || c == '!':
			return nil, p.failAs(ErrUnsupported, "elements that are tokens")
		case isWord(c):
			var n int
			n, err = p.name()
			t = reference(n)
		case c == '(':
			p.pos++
			p.space(true)
			if t, err = p.alternatives(true); err == nil && p.peek() != ')' {
				err = p.fail("expected )")
			}
			p.pos++
		case c == '*' || c == '+' || c == '?' || c == '{':
			if len(items) == 0 {
				return nil, p.fail("nothing before %q to repeat", c)
			}
			r := repeat{of: items[len(items)-1]}
			if err := p.times(&r, nested); err != nil {
				return nil, err
			}
			items[len(items)-1] = r
			p.space(nested)
			continue
		default:
			return items, nil
		}
		if err != nil {
			return nil, err
		}
		items = append(items, t)
		p.space(nested)
	}
}

func (p *gbnfParser) times(r *repeat, nested bool) error {
	c := p.peek()
	p.pos++
	switch c {
	case '*':
		r.max = -1
		return nil
	case '+':
		r.min, r.max = 1, -1
		return nil
	case '?':
		r.max = 1
		return nil
	}
	number := func() (int, error) {
		p.space(nested)
		n := len(p.src[p.pos:]) - len(strings.TrimLeft(p.src[p.pos:], "0123456789"))
		v, err := strconv.Atoi(p.src[p.pos : p.pos+n])
		p.pos += n
		p.space(nested)
		switch {
		case n == 0:
			return 0, p.fail("expected a number")
		case err != nil || v > maxRepeats:
			return 0, p.failAs(ErrLimit, "more than %d repetitions", maxRepeats)
		}
		return v, nil
	}
	var err error
	if r.min, err = number(); err != nil {
		return err
	}
	r.max = r.min
	if p.peek() == ',' {
		p.pos++
		p.space(nested)
		r.max = -1
		if p.peek() != '}' {
			if r.max, err = number(); err != nil {
				return err
			}
			if r.max < r.min {
				return p.fail("from %d to %d times", r.min, r.max)
			}
		}
	}
	if p.peek() != '}' {
		return p.fail("expected }")
	}
	p.pos++
	return nil
}

// char reads a character of a literal or a class.
func (p *gbnfParser) char() (rune, error) {
	rest := p.src[p.pos:]
	if rest == "" {
		return 0, p.fail("the grammar ends inside a literal or a class")
	}
	if rest[0] != '\\' {
		r, n := utf8.DecodeRuneInString(rest)
		p.pos += n
		return r, nil
	}
	if len(rest) < 2 {
		return 0, p.fail("the grammar ends inside an escape")
	}
	p.pos += 2
	switch c := rest[1]; c {
	case 't':
		return '\t', nil
	case 'r':
		return '\r', nil
	case 'n':
		return '\n', nil
	case '\\', '"', '[', ']', '-':
		return rune(c), nil
	case 'x', 'u', 'U':
		n := map[byte]int{'x': 2, 'u': 4, 'U': 8}[c]
		if len(rest) < 2+n {
			return 0, p.fail("expected %d hexadecimal digits", n)
		}
		v, err := strconv.ParseUint(rest[2:2+n], 16, 32)
		if err != nil || v > utf8.MaxRune || !utf8.ValidRune(rune(v)) {
			return 0, p.fail("%s is no character", rest[:2+n])
		}
		p.pos += n
		return rune(v), nil
	}
	return 0, p.fail("unknown escape %s", rest[:2])
}

func (p *gbnfParser) literal() (term, error) {
	p.pos++
	var b strings.Builder
	for p.peek() != '"' || p.pos >= len(p.src) {
		r, err := p.char()
		if err != nil {
			return nil, err
		}
		b.WriteRune(r)
	}
	p.pos++
	return literal(b.String()), nil
}

func (p *gbnfParser) class() (term, error) {
	p.pos++
	negated := p.peek() == '^'
	if negated {
		p.pos++
	}
	var c class
	for p.peek() != ']' {
		lo, err := p.char()
		if err != nil {
			return nil, err
		}
		hi := lo
		if p.peek() == '-' && p.pos+1 < len(p.src) && p.src[p.pos+1] != ']' {
			p.pos++
			if hi, err = p.char(); err != nil {
				return nil, err
			}
		}
		if lo <= hi {
			c = append(c, runeRange{lo, hi})
		}
	}
	p.pos++
	c = c.tidy()
	if negated {
		c = c.not()
	}
	return c, nil
}
