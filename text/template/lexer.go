package template

import (
	"math/big"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/optimem/optimem/text/template/internal/python"
)

type tokenKind uint8

const (
	tokenEOF tokenKind = iota
	tokenData
	tokenVariableBegin
	tokenVariableEnd
	tokenBlockBegin
	tokenBlockEnd
	tokenName
	tokenString
	tokenNumber
	tokenOperator
)

type token struct {
	kind  tokenKind
	line  int
	text  string // a name, an operator, data, a string's value
	value any    // of a number
}

// String says what the token is, for messages.
func (t token) String() string {
	switch t.kind {
	case tokenEOF:
		return "the end of the template"
	case tokenData:
		return "text"
	case tokenVariableBegin:
		return "'{{'"
	case tokenVariableEnd:
		return "'}}'"
	case tokenBlockBegin:
		return "'{%'"
	case tokenBlockEnd:
		return "'%}'"
	case tokenString:
		return "a string"
	case tokenNumber:
		return "a number"
	}
	return "'" + t.text + "'"
}

// A scanner does what jinja2's Lexer does with trim_blocks and lstrip_blocks.
type scanner struct {
	src    string
	pos    int
	line   int
	tokens []token
	// lineStarting says that what was scanned last ended a line: lstrip_blocks applies without a newline in the text.
	lineStarting bool
}

func scan(source string) ([]token, error) {
	source = strings.ToValidUTF8(source, "\ufffd")
	source = strings.ReplaceAll(source, "\r\n", "\n")
	source = strings.ReplaceAll(source, "\r", "\n")
	source = strings.TrimSuffix(source, "\n")
	s := &scanner{src: source, line: 1, lineStarting: true}
	for s.pos < len(s.src) {
		if err := s.root(); err != nil {
			return nil, err
		}
	}
	s.tokens = append(s.tokens, token{kind: tokenEOF, line: s.line})
	return s.tokens, nil
}

func (s *scanner) fail(format string, args ...any) error {
	return at(s.line, errorf(ErrSyntax, format, args...))
}

// advance consumes n bytes and counts their lines.
func (s *scanner) advance(n int) string {
	text := s.src[s.pos : s.pos+n]
	s.line += strings.Count(text, "\n")
	s.pos += n
	if n > 0 {
		s.lineStarting = text[n-1] == '\n'
	}
	return text
}

func skipSpace(s string) int {
	return len(s) - len(strings.TrimLeftFunc(s, python.IsSpace))
}

// rawBegin returns the length of a {% raw %} at the head of a string and its sign, or 0.
func rawBegin(s string) (int, byte) {
	sign, n := signAt(s[2:])
	n += 2
	n += skipSpace(s[n:])
	if !strings.HasPrefix(s[n:], "raw") {
		return 0, 0
	}
	n += 3
	n += skipSpace(s[n:])
	switch {
	case strings.HasPrefix(s[n:], "-%}"):
		n += 3
		return n + skipSpace(s[n:]), sign
	case strings.HasPrefix(s[n:], "%}"):
		return n + 2, sign
	}
	return 0, 0
}

func signAt(s string) (byte, int) {
	if s != "" && (s[0] == '-' || s[0] == '+') {
		return s[0], 1
	}
	return 0, 0
}

// data adds the text before a tag, with what the tag strips of it. starting is whether the text begins a line.
func (s *scanner) data(text string, line int, sign byte, strips, starting bool) {
	switch {
	case sign == '-':
		text = strings.TrimRightFunc(text, python.IsSpace)
	case sign != '+' && strips:
		from := strings.LastIndexByte(text, '\n') + 1
		if (from > 0 || starting) && skipSpace(text[from:]) == len(text)-from {
			text = text[:from]
		}
	}
	if text != "" {
		s.tokens = append(s.tokens, token{kind: tokenData, line: line, text: text})
	}
}

// root scans text up to a tag, and the tag.
func (s *scanner) root() error {
	rest := s.src[s.pos:]
	open, from := -1, 0
	for open < 0 {
		i := strings.IndexByte(rest[from:], '{')
		if i < 0 || from+i+1 >= len(rest) {
			break
		}
		from += i
		if c := rest[from+1]; c == '%' || c == '{' || c == '#' {
			open = from
		}
		from++
	}
	line, starting := s.line, s.lineStarting
	if open < 0 {
		s.data(s.advance(len(rest)), line, '+', false, false)
		return nil
	}
	text := s.advance(open)
	tag := rest[open:]
	if tag[1] == '%' {
		if n, sign := rawBegin(tag); n > 0 {
			s.data(text, line, sign, true, starting)
			s.advance(n)
			return s.raw()
		}
	}
	sign, n := signAt(tag[2:])
	s.data(text, line, sign, tag[1] != '{', starting)
	s.advance(2 + n)
	switch tag[1] {
	case '#':
		return s.comment()
	case '{':
		s.tokens = append(s.tokens, token{kind: tokenVariableBegin, line: s.line})
		return s.tag("}}", tokenVariableEnd)
	}
	s.tokens = append(s.tokens, token{kind: tokenBlockBegin, line: s.line})
	return s.tag("%}", tokenBlockEnd)
}

// tagEnd returns the length of an end of a tag at the head of a string, with the white space that goes with it; 0 is none.
func tagEnd(s, end string, block bool) int {
	if strings.HasPrefix(s, "-"+end) {
		n := 1 + len(end)
		return n + skipSpace(s[n:])
	}
	if block && strings.HasPrefix(s, "+"+end) {
		return 1 + len(end)
	}
	if strings.HasPrefix(s, end) {
		n := len(end)
		if block && strings.HasPrefix(s[n:], "\n") {
			n++
		}
		return n
	}
	return 0
}

func (s *scanner) comment() error {
	rest := s.src[s.pos:]
	i := strings.Index(rest, "#}")
	if i < 0 {
		return s.fail("a comment has no end")
	}
	if i > 0 && (rest[i-1] == '-' || rest[i-1] == '+') {
		i--
	}
	s.advance(i + tagEnd(rest[i:], "#}", true))
	return nil
}

func (s *scanner) raw() error {
	rest := s.src[s.pos:]
	for from := 0; ; {
		i := strings.Index(rest[from:], "{%")
		if i < 0 {
			return s.fail("raw has no end")
		}
		i += from
		from = i + 2
		sign, n := signAt(rest[from:])
		n += from
		n += skipSpace(rest[n:])
		if !strings.HasPrefix(rest[n:], "endraw") {
			continue
		}
		n += len("endraw")
		n += skipSpace(rest[n:])
		end := tagEnd(rest[n:], "%}", true)
		if end == 0 {
			continue
		}
		line, starting := s.line, s.lineStarting
		s.data(s.advance(i), line, sign, true, starting)
		s.advance(n + end - i)
		return nil
	}
}

// operators, longest first.
var operators = []string{
	"//", "**", "==", "!=", ">=", "<=",
	"+", "-", "/", "*", "%", "~", "[", "]", "(", ")", "{", "}", ">", "<", "=", ".", ":", "|", ",", ";",
}

func (s *scanner) tag(end string, kind tokenKind) error {
	var open []byte
	for {
		rest := s.src[s.pos:]
		if rest == "" {
			return s.fail("the template ends inside a tag")
		}
		if n := tagEnd(rest, end, kind == tokenBlockEnd); n > 0 && len(open) == 0 {
			s.tokens = append(s.tokens, token{kind: kind, line: s.line})
			s.advance(n)
			return nil
		}
		if n := skipSpace(rest); n > 0 {
			s.advance(n)
			continue
		}
		r, _ := utf8.DecodeRuneInString(rest)
		switch {
		case r >= '0' && r <= '9':
			if err := s.number(rest); err != nil {
				return err
			}
			continue
		case r == '_' || unicode.IsLetter(r):
			n := len(rest) - len(strings.TrimLeftFunc(rest, func(r rune) bool {
				return r == '_' || unicode.In(r, unicode.L, unicode.N, unicode.Mn, unicode.Mc)
			}))
			s.tokens = append(s.tokens, token{kind: tokenName, line: s.line, text: rest[:n]})
			s.advance(n)
			continue
		case r == '\'' || r == '"':
			if err := s.str(rest); err != nil {
				return err
			}
			continue
		}
		op := ""
		for _, o := range operators {
			if strings.HasPrefix(rest, o) {
				op = o
				break
			}
		}
		switch op {
		case "":
			return s.fail("unexpected character %q", r)
		case "(":
			open = append(open, ')')
		case "[":
			open = append(open, ']')
		case "{":
			open = append(open, '}')
		case ")", "]", "}":
			if len(open) == 0 || open[len(open)-1] != op[0] {
				return s.fail("unexpected '%s'", op)
			}
			open = open[:len(open)-1]
		}
		s.tokens = append(s.tokens, token{kind: tokenOperator, line: s.line, text: op})
		s.advance(len(op))
	}
}

// digits returns the length of digits of a base with single underscores between them.
func digits(s, allowed string) int {
	n := 0
	for n < len(s) {
		switch {
		case strings.IndexByte(allowed, s[n]|0x20) >= 0 || strings.IndexByte(allowed, s[n]) >= 0:
			n++
		case s[n] == '_' && n > 0 && n+1 < len(s) && strings.IndexByte(allowed, s[n+1]|0x20) >= 0:
			n += 2
		default:
			return n
		}
	}
	return n
}

const decimal = "0123456789"

func (s *scanner) number(rest string) error {
	afterDot := s.pos > 0 && s.src[s.pos-1] == '.'
	n := digits(rest, decimal)
	float := false
	if !afterDot {
		m := n
		if m+1 < len(rest) && rest[m] == '.' && digits(rest[m+1:], decimal) > 0 {
			m += 1 + digits(rest[m+1:], decimal)
			float = true
		}
		if m < len(rest) && rest[m]|0x20 == 'e' {
			e := m + 1
			_, sign := signAt(rest[e:])
			if d := digits(rest[e+sign:], decimal); d > 0 {
				m = e + sign + d
				float = true
			}
		}
		n = m
	}
	if float {
		f, err := strconv.ParseFloat(strings.ReplaceAll(rest[:n], "_", ""), 64)
		if err != nil && !isRange(err) {
			return s.fail("%q is not a number", rest[:n])
		}
		s.tokens = append(s.tokens, token{kind: tokenNumber, line: s.line, value: f})
		s.advance(n)
		return nil
	}
	text, base := rest[:n], 10
	if rest[0] == '0' {
		for prefix, allowed := range map[byte]string{'b': "01", 'o': "01234567", 'x': "0123456789abcdef"} {
			if len(rest) > 2 && rest[1]|0x20 == prefix {
				if d := digits(rest[2:], allowed); d > 0 {
					n, text, base = 2+d, rest[2:2+d], map[byte]int{'b': 2, 'o': 8, 'x': 16}[prefix]
				}
			}
		}
		if base == 10 && strings.Trim(text, "0_") != "" {
			return s.fail("%q is not a number", text)
		}
	}
	if len(text) > 1000 {
		return at(s.line, errorf(ErrLimit, "a number of %d digits", len(text)))
	}
	v, ok := new(big.Int).SetString(strings.ReplaceAll(text, "_", ""), base)
	if !ok {
		return s.fail("%q is not a number", text)
	}
	s.tokens = append(s.tokens, token{kind: tokenNumber, line: s.line, value: small(v)})
	s.advance(n)
	return nil
}

func isRange(err error) bool {
	e, ok := err.(*strconv.NumError)
	return ok && e.Err == strconv.ErrRange
}

// str scans a string with Python's escapes.
func (s *scanner) str(rest string) error {
	q := rest[0]
	end := 1
	for end < len(rest) && rest[end] != q {
		if rest[end] == '\\' {
			end++
		}
		end++
	}
	if end >= len(rest) {
		return s.fail("a string has no end")
	}
	value, err := unescape(rest[1:end])
	if err != nil {
		return at(s.line, err)
	}
	s.tokens = append(s.tokens, token{kind: tokenString, line: s.line, text: value})
	s.advance(end + 1)
	return nil
}

func unescape(s string) (string, error) {
	if !strings.Contains(s, `\`) {
		return s, nil
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		if s[i] != '\\' || i+1 == len(s) {
			b.WriteByte(s[i])
			i++
			continue
		}
		c := s[i+1]
		i += 2
		hex := map[byte]int{'x': 2, 'u': 4, 'U': 8}[c]
		simple := strings.IndexByte(`abfnrtv\'"`, c)
		switch {
		case simple >= 0:
			b.WriteByte("\a\b\f\n\r\t\v\\'\""[simple])
		case c == '\n':
		case hex > 0:
			if i+hex > len(s) {
				return "", errorf(ErrSyntax, "truncated \\%cXX escape", c)
			}
			v, err := strconv.ParseUint(s[i:i+hex], 16, 32)
			if err != nil || !utf8.ValidRune(rune(v)) || v > unicode.MaxRune {
				return "", errorf(ErrSyntax, "\\%c%s is no character", c, s[i:i+hex])
			}
			b.WriteRune(rune(v))
			i += hex
		case c >= '0' && c <= '7':
			v := 0
			first := i - 1
			for i--; i < len(s) && i < first+3 && s[i] >= '0' && s[i] <= '7'; i++ {
				v = v*8 + int(s[i]-'0')
			}
			b.WriteRune(rune(v))
		case c == 'N':
			return "", errorf(ErrUnsupported, "\\N with a character's name")
		case c >= utf8.RuneSelf:
			// jinja2 escapes the character first, so that this backslash quotes the one of the escape.
			r, n := utf8.DecodeRuneInString(s[i-1:])
			i += n - 1
			escaped := strconv.QuoteRuneToASCII(r)
			if r < 0x100 {
				escaped = `'\x` + strconv.FormatInt(int64(r), 16) + `'`
			}
			b.WriteString(escaped[1 : len(escaped)-1])
		default:
			b.WriteByte('\\')
			b.WriteByte(c)
		}
	}
	return b.String(), nil
}
