package grammar

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// A patternParser reads the part of JavaScript's regular expressions that says what a whole string is.
type patternParser struct {
	src     string
	pos     int
	where   string
	nesting int
}

var (
	spaces = class{{'\t', '\r'}, {' ', ' '}, {0xa0, 0xa0}, {0x1680, 0x1680}, {0x2000, 0x200a}, {0x2028, 0x2029}, {
		0x202f, 0x202f,
	},
		{0x205f, 0x205f}, {0x3000, 0x3000}, {0xfeff, 0xfeff}}
	words   = class{{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}
	anyLine = class{{0, '\t'}, {0x0b, 0x0c}, {0x0e, 0x2027}, {0x202a, utf8.MaxRune}}
)

// parsePattern returns the strings in which a pattern is found, as JSON has them. Without ^ or $ anything may stand there.
// The characters of \d, \w and \s are those of ASCII, which every reading of a pattern agrees on.
func parsePattern(src, where string) (term, error) {
	p := &patternParser{src: src, where: where}
	t, err := p.alternatives(true)
	if err != nil {
		return nil, err
	}
	if p.pos < len(p.src) {
		return nil, p.fail(ErrSyntax, "unexpected %q", p.src[p.pos])
	}
	return t, nil
}

func (p *patternParser) fail(class error, format string, args ...any) error {
	return errorf(class, p.where, format, args...)
}

func (p *patternParser) peek() byte {
	if p.pos < len(p.src) {
		return p.src[p.pos]
	}
	return 0
}

// alternatives parses up to a bracket or the end. top: anchors may stand at the ends of each.
func (p *patternParser) alternatives(top bool) (term, error) {
	if p.nesting++; p.nesting > maxNesting {
		return nil, p.fail(ErrLimit, "more than %d levels of groups", maxNesting)
	}
	defer func() { p.nesting-- }()
	var all choice
	for {
		s, err := p.sequence(top)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
		if p.peek() != '|' {
			return all, nil
		}
		p.pos++
	}
}

func (p *patternParser) sequence(top bool) (term, error) {
	anything := repeat{written(anyChar), 0, -1}
	items := sequence{}
	if top {
		if p.peek() == '^' {
			p.pos++
		} else {
			items = append(items, anything)
		}
	}
	for p.pos < len(p.src) && p.peek() != '|' && p.peek() != ')' {
		if top && p.peek() == '$' && (p.pos+1 == len(p.src) || p.src[p.pos+1] == '|') {
			p.pos++
			return items, nil
		}
		t, err := p.atom()
		if err != nil {
			return nil, err
		}
		if t, err = p.quantified(t); err != nil {
			return nil, err
		}
		items = append(items, t)
	}
	if top {
		items = append(items, anything)
	}
	return items, nil
}

func (p *patternParser) atom() (term, error) {
	switch c := p.peek(); c {
	case '(':
		p.pos++
		if strings.HasPrefix(p.src[p.pos:], "?") {
			if !strings.HasPrefix(p.src[p.pos:], "?:") {
				return nil, p.fail(ErrUnsupported, "a group that begins with (?")
			}
			p.pos += 2
		}
		t, err := p.alternatives(false)
		if err != nil {
			return nil, err
		}
		if p.peek() != ')' {
			return nil, p.fail(ErrSyntax, "a group has no end")
		}
		p.pos++
		return t, nil
	case '[':
		c, err := p.class()
		return written(c), err
	case '.':
		p.pos++
		return written(anyLine), nil
	case '^', '$':
		return nil, p.fail(ErrUnsupported, "an anchor inside the pattern")
	case '*', '+', '?', '{', '}', ']':
		return nil, p.fail(ErrSyntax, "unexpected %q", c)
	case '\\':
		c, err := p.escape(false)
		return written(c), err
	}
	r, n := utf8.DecodeRuneInString(p.src[p.pos:])
	p.pos += n
	return written(class{{r, r}}), nil
}

func (p *patternParser) quantified(t term) (term, error) {
	r := repeat{of: t, max: -1}
	switch p.peek() {
	case '*':
	case '+':
		r.min = 1
	case '?':
		r.max = 1
	case '{':
		end := strings.IndexByte(p.src[p.pos:], '}')
		if end < 0 {
			return nil, p.fail(ErrSyntax, "a { has no end")
		}
		least, most, comma := strings.Cut(p.src[p.pos+1:p.pos+end], ",")
		number := func(s string) (int, error) {
			n, err := strconv.Atoi(s)
			if err != nil || n < 0 || s[0] == '+' {
				return 0, p.fail(ErrSyntax, "%q is no count", s)
			}
			if n > maxRepeats {
				return 0, p.fail(ErrLimit, "more than %d repetitions", maxRepeats)
			}
			return n, nil
		}
		var err error
		if r.min, err = number(least); err != nil {
			return nil, err
		}
		if !comma {
			r.max = r.min
		} else if most != "" {
			if r.max, err = number(most); err != nil {
				return nil, err
			}
			if r.max < r.min {
				return nil, p.fail(ErrSyntax, "from %d to %d times", r.min, r.max)
			}
		}
		p.pos += end
	default:
		return t, nil
	}
	p.pos++
	switch p.peek() {
	case '?': // lazy: the same strings
		p.pos++
	case '*', '+', '{':
		return nil, p.fail(ErrSyntax, "a quantifier after a quantifier")
	}
	return r, nil
}

// escape reads what follows a backslash.
func (p *patternParser) escape(inClass bool) (class, error) {
	p.pos++
	if p.pos >= len(p.src) {
		return nil, p.fail(ErrSyntax, "a backslash at the end")
	}
	r, n := utf8.DecodeRuneInString(p.src[p.pos:])
	p.pos += n
	one := func(r rune) (class, error) { return class{{r, r}}, nil }
	switch r {
	case 'd':
		return digit, nil
	case 'w':
		return words, nil
	case 's':
		return class{{'\t', '\r'}, {' ', ' '}}, nil
	case 'D':
		// A digit of another script is one by Python's reading: left to ASCII.
		return class{{0, 0x7f}}.without(digit), nil
	case 'W':
		return class{{0, 0x7f}}.without(words), nil
	case 'S':
		return class{{0, 0x1b}, {0x20, 0x84}, {0x86, utf8.MaxRune}}.without(spaces), nil
	case 'n':
		return one('\n')
	case 'r':
		return one('\r')
	case 't':
		return one('\t')
	case 'f':
		return one('\f')
	case 'v':
		return one('\v')
	case 'x', 'u':
		size := 2
		if r == 'u' {
			size = 4
		}
		if p.pos+size > len(p.src) {
			return nil, p.fail(ErrSyntax, "expected %d hexadecimal digits", size)
		}
		v, err := strconv.ParseUint(p.src[p.pos:p.pos+size], 16, 32)
		if err != nil {
			return nil, p.fail(ErrSyntax, "expected %d hexadecimal digits", size)
		}
		if v >= 0xd800 && v <= 0xdfff {
			return nil, p.fail(ErrUnsupported, "a surrogate")
		}
		p.pos += size
		return one(rune(v))
	}
	if r < 0x80 && (isWord(byte(r)) && r != '-' || r == '-' && !inClass) {
		return nil, p.fail(ErrUnsupported, "the escape \\%c", r)
	}
	return one(r)
}

func (p *patternParser) class() (class, error) {
	p.pos++
	negated := p.peek() == '^'
	if negated {
		p.pos++
	}
	var all class
	for p.peek() != ']' {
		if p.pos >= len(p.src) {
			return nil, p.fail(ErrSyntax, "a class has no end")
		}
		lo, err := p.member()
		if err != nil {
			return nil, err
		}
		single := len(lo) == 1 && lo[0].lo == lo[0].hi
		if p.peek() == '-' && p.pos+1 < len(p.src) && p.src[p.pos+1] != ']' {
			p.pos++
			hi, err := p.member()
			if err != nil {
				return nil, err
			}
			if !single || len(hi) != 1 || hi[0].lo != hi[0].hi || hi[0].lo < lo[0].lo {
				return nil, p.fail(ErrSyntax, "a range that is none")
			}
			lo = class{{lo[0].lo, hi[0].lo}}
		}
		all = append(all, lo...)
	}
	p.pos++
	all = all.tidy()
	if negated {
		all = all.not()
	}
	return all, nil
}

func (p *patternParser) member() (class, error) {
	if p.peek() == '\\' {
		from := p.pos
		c, err := p.escape(true)
		if err == nil && strings.IndexByte("DWS", p.src[from+1]) >= 0 {
			return nil, p.fail(ErrUnsupported, "a negated class inside a class")
		}
		return c, err
	}
	r, n := utf8.DecodeRuneInString(p.src[p.pos:])
	if n == 0 {
		return nil, p.fail(ErrSyntax, "a class has no end")
	}
	p.pos += n
	return class{{r, r}}, nil
}

// formats are the formats that a string can be held to.
var formats = map[string]term{
	"date": dateFormat, "time": timeFormat, "date-time": sequence{dateFormat, literal("T"), timeFormat},
	"uuid": sequence{
		times(hexDigit, 8), times(sequence{literal("-"), times(hexDigit, 4)}, 3), literal("-"), times(hexDigit, 12),
	},
	"ipv4": sequence{octet, times(sequence{literal("."), octet}, 3)},
}

var (
	octet = choice{
		digit, sequence{one9, digit}, sequence{literal("1"), digit, digit},
		sequence{literal("2"), oneOf("01234"), digit},
		sequence{literal("25"), oneOf("012345")},
	}

	// Years from 1000 to 9999, and February 29 in leap years.
	upTo28 = choice{
		sequence{literal("0"), one9}, sequence{literal("1"), digit}, sequence{literal("2"), oneOf("012345678")},
	}
	fourTen = choice{sequence{oneOf("2468"), oneOf("048")}, sequence{oneOf("13579"), oneOf("26")}} // 12, 16, 20 … 96
	byFour  = choice{sequence{literal("0"), oneOf("48")}, fourTen}

	dateFormat = choice{
		sequence{one9, times(digit, 3), literal("-"), choice{
			sequence{months(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12), upTo28},
			sequence{months(1, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12), choice{literal("29"), literal("30")}},
			sequence{months(1, 3, 5, 7, 8, 10, 12), literal("31")},
		}},
		sequence{choice{sequence{one9, digit, byFour}, sequence{fourTen, literal("00")}}, literal("-02-29")},
	}
	hour       = choice{sequence{oneOf("01"), digit}, sequence{literal("2"), oneOf("0123")}}
	colon60    = sequence{literal(":"), oneOf("012345"), digit}
	timeFormat = sequence{
		hour, colon60, colon60, repeat{sequence{literal("."), repeat{digit, 1, 9}}, 0, 1},
		choice{literal("Z"), sequence{oneOf("+-"), hour, colon60}},
	}
)

// oneOf is the class of these characters.
func oneOf(chars string) class {
	var c class
	for _, r := range chars {
		c = append(c, runeRange{r, r})
	}
	return c.tidy()
}

func months(numbers ...int) term {
	var all choice
	for _, n := range numbers {
		all = append(all, literal(strconv.Itoa(100 + n)[1:]+"-"))
	}
	return all
}
