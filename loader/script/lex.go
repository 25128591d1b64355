package script

import (
	"errors"
	"strings"

	"github.com/optimem/optimem/loader/internal/fault"
	"github.com/optimem/optimem/loader/internal/limit"
)

// A kind of token. Punctuation is its own byte.
type tokenKind uint8

const (
	tokEOF     tokenKind = 0
	tokIdent   tokenKind = 'a'
	tokKeyword tokenKind = 'k'
	tokPath    tokenKind = 'p' // dotted name whose first word is torch, ops, __torch__ or CONSTANTS
	tokNumber  tokenKind = '0'
	tokString  tokenKind = '"'
	tokNewline tokenKind = '\n'
	tokIndent  tokenKind = '>'
	tokDedent  tokenKind = '<'
	tokArrow   tokenKind = '~' // ->
)

type token struct {
	kind tokenKind
	off  int    // byte offset in the file
	text string // a part of the source, quotes included
}

func (t token) String() string {
	switch t.kind {
	case tokEOF:
		return "end of file"
	case tokNewline:
		return "end of line"
	case tokIndent:
		return "indented line"
	case tokDedent:
		return "end of block"
	case tokString:
		return "string"
	case tokNumber:
		return "number"
	}
	if len(t.text) > maxQuoted {
		return `"` + t.text[:maxQuoted] + `…"`
	}
	return `"` + t.text + `"`
}

// maxQuoted bounds how much of the source an error repeats.
const maxQuoted = 60

// The words that are keywords in Python and, with few exceptions, in TorchScript; none is ever a variable's name.
var keywords = map[string]bool{
	"False": true, "None": true, "True": true, "and": true, "as": true, "assert": true, "async": true, "await": true,
	"break": true, "class": true, "continue": true, "def": true, "del": true, "elif": true, "else": true,
	"except": true, "finally": true, "for": true, "from": true, "global": true, "if": true, "import": true, "in": true,
	"is": true, "lambda": true, "nonlocal": true, "not": true, "or": true, "pass": true, "raise": true, "return": true,
	"try": true, "while": true, "with": true, "yield": true,
}

// A lexer cuts one file into tokens, one at a time.
type lexer struct {
	file     *File
	src      string
	off      int
	brackets int   // open (, [ and {: inside them line ends mean nothing
	indents  []int // columns of the open blocks; the first is 0
	pending  int   // dedents still to be given
	started  bool  // a token of the current line was given
	dotted   bool  // the last token was a dot: the next word is an attribute
	maxDepth int
	meter    *limit.Meter
}

// charge takes bytes from the budget for memory.
func (l *lexer) charge(bytes int64) {
	if l.meter == nil {
		return
	}
	if err := l.meter.Charge(bytes); err != nil {
		l.failWith(err, l.off)
	}
}

// A bailout carries an error out of the recursive descent to Parse.
type bailout struct{ err error }

// fail ends parsing with an error at byte offset off.
func (l *lexer) fail(class error, off int, format string, args ...any) {
	err := fault.New(class, int64(off), format, args...)
	err.Msg = l.file.position(off).String() + ": " + err.Msg
	panic(bailout{err})
}

// failWith ends parsing with another error's class and message, placed at byte offset off.
func (l *lexer) failWith(err error, off int) {
	var f *fault.Error
	if errors.As(err, &f) {
		l.fail(f.Class, off, "%s", f.Msg)
	}
	panic(bailout{err})
}

// next returns the next token. Every statement ends in tokNewline, blocks are enclosed in tokIndent and tokDedent.
func (l *lexer) next() token {
	if l.pending > 0 {
		l.pending--
		return token{kind: tokDedent, off: l.off}
	}
	if !l.started && l.brackets == 0 {
		if t, ok := l.startLine(); ok {
			return t
		}
	}
	for l.off < len(l.src) {
		c := l.src[l.off]
		switch {
		case c == ' ':
			l.off++
		case c == '#':
			l.comment()
		case c == '\n':
			l.off++
			l.newLine()
			if l.brackets == 0 {
				l.started = false
				return token{kind: tokNewline, off: l.off - 1}
			}
		default:
			return l.token(c)
		}
	}
	if l.brackets > 0 {
		l.fail(fault.ErrFormat, l.off, "file ends inside brackets")
	}
	if l.started {
		l.started = false
		return token{kind: tokNewline, off: l.off}
	}
	return token{kind: tokEOF, off: l.off}
}

func (l *lexer) newLine() {
	l.charge(8)
	l.file.lines = append(l.file.lines, int32(l.off))
}

func (l *lexer) comment() {
	if strings.HasPrefix(strings.TrimLeft(l.src[l.off+1:min(l.off+80, len(l.src))], " "), "type:") {
		l.fail(fault.ErrUnsupported, l.off, "type comment")
	}
	if i := strings.IndexByte(l.src[l.off:], '\n'); i >= 0 {
		l.off += i
	} else {
		l.off = len(l.src)
	}
}

// startLine skips empty lines and compares the indentation of the next one with the open blocks.
func (l *lexer) startLine() (token, bool) {
	column := 0
	for l.off < len(l.src) {
		switch c := l.src[l.off]; {
		case c == ' ':
			column++
			l.off++
			continue
		case c == '\n':
			column = 0
			l.off++
			l.newLine()
			continue
		case c == '#':
			l.comment()
			continue
		}
		break
	}
	if l.off == len(l.src) {
		column = 0
	} else {
		l.started = true
	}
	top := len(l.indents) - 1
	if column == l.indents[top] {
		return token{}, false
	}
	if column > l.indents[top] {
		if len(l.indents) > l.maxDepth {
			l.fail(fault.ErrLimit, l.off, "blocks are nested more than %d deep", l.maxDepth)
		}
		l.indents = append(l.indents, column)
		return token{kind: tokIndent, off: l.off}, true
	}
	for column < l.indents[top] {
		top--
		l.pending++
	}
	if column != l.indents[top] {
		l.fail(fault.ErrFormat, l.off, "indentation of %d columns matches no open block", column)
	}
	l.indents = l.indents[:top+1]
	l.pending--
	return token{kind: tokDedent, off: l.off}, true
}

func (l *lexer) token(c byte) token {
	start := l.off
	dotted := l.dotted
	l.dotted = c == '.'
	switch {
	case isLetter(c):
		return l.word(dotted)
	case isDigit(c):
		return l.number()
	case c == '"' || c == '\'':
		return l.string(c)
	}
	l.off++
	kind := tokenKind(c)
	switch c {
	case '(', '[', '{':
		l.brackets++
	case ')', ']', '}':
		if l.brackets == 0 {
			l.fail(fault.ErrFormat, start, "%q closes nothing", c)
		}
		l.brackets--
	case ',', ':', '=', '+':
	case '.':
		if strings.HasPrefix(l.src[l.off:], "..") {
			l.fail(fault.ErrUnsupported, start, "ellipsis")
		}
	case '-':
		if l.off < len(l.src) && l.src[l.off] == '>' {
			l.off++
			kind = tokArrow
		}
	case '*', '/', '%', '@', '<', '>', '!', '&', '|', '^', '~', ';', '\\':
		l.fail(fault.ErrUnsupported, start, "operator %q", c)
	default:
		l.fail(fault.ErrFormat, start, "unexpected byte %#02x", c)
	}
	if c == '=' && l.off < len(l.src) && l.src[l.off] == '=' {
		l.fail(fault.ErrUnsupported, start, `operator "=="`)
	}
	return token{kind: kind, off: start, text: l.src[start:l.off]}
}

func (l *lexer) word(attribute bool) token {
	start := l.off
	l.identifier()
	text := l.src[start:l.off]
	if l.off < len(l.src) && (l.src[l.off] == '"' || l.src[l.off] == '\'') {
		l.fail(fault.ErrUnsupported, start, "string with prefix %q", text)
	}
	if keywords[text] {
		return token{kind: tokKeyword, off: start, text: text}
	}
	if !attribute && isRoot(text) {
		// One token for the whole name saves a tree node per dot.
		for l.off+1 < len(l.src) && l.src[l.off] == '.' && isLetter(l.src[l.off+1]) {
			l.off++
			l.identifier()
		}
		if l.off > start+len(text) {
			return token{kind: tokPath, off: start, text: l.src[start:l.off]}
		}
	}
	return token{kind: tokIdent, off: start, text: text}
}

// isRoot reports whether a word begins a dotted global name.
func isRoot(word string) bool {
	return word == "torch" || word == "ops" || word == "__torch__" || word == "CONSTANTS"
}

func (l *lexer) identifier() {
	for l.off < len(l.src) && (isLetter(l.src[l.off]) || isDigit(l.src[l.off])) {
		l.off++
	}
}

// number takes digits, a fraction, an exponent and the j of an imaginary number; the parser checks the value.
func (l *lexer) number() token {
	start := l.off
	digits := func() {
		for l.off < len(l.src) && isDigit(l.src[l.off]) {
			l.off++
		}
	}
	is := func(set string) bool { return l.off < len(l.src) && strings.IndexByte(set, l.src[l.off]) >= 0 }
	digits()
	if is(".") {
		l.off++
		digits()
	}
	if is("eE") {
		l.off++
		if is("+-") {
			l.off++
		}
		digits()
	}
	if is("j") {
		l.off++
	}
	if l.off < len(l.src) && (isLetter(l.src[l.off]) || isDigit(l.src[l.off])) {
		l.fail(fault.ErrFormat, start, "malformed number")
	}
	return token{kind: tokNumber, off: start, text: l.src[start:l.off]}
}

func (l *lexer) string(quote byte) token {
	start := l.off
	if rest := l.src[start+1:]; len(rest) > 1 && rest[0] == quote && rest[1] == quote {
		l.fail(fault.ErrUnsupported, start, "triple-quoted string")
	}
	for {
		l.off++
		if l.off >= len(l.src) {
			l.fail(fault.ErrFormat, start, "string is not closed")
		}
		switch c := l.src[l.off]; {
		case c == quote:
			l.off++
			return token{kind: tokString, off: start, text: l.src[start:l.off]}
		case c == '\\':
			l.off++ // the parser checks the escape
		case c < ' ' || c == 0x7f:
			l.fail(fault.ErrFormat, l.off, "byte %#02x inside a string", c)
		}
	}
}

func isLetter(c byte) bool { return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '_' }

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
