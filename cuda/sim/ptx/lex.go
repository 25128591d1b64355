package ptx

import (
	"fmt"
	"strconv"
	"strings"
)

// A SyntaxError says what of a text is not the PTX that this package knows.
type SyntaxError struct {
	Line   int
	Reason string
}

// Error gives the line and the reason.
func (e *SyntaxError) Error() string { return fmt.Sprintf("line %d: %s", e.Line, e.Reason) }

// The kinds of tokens; a mark is a kind of its own.
const (
	tokenEnd    = 0
	tokenWord   = 'w'
	tokenNumber = 'n'
	tokenText   = '"'
)

// A token is a word, a number, a text or a mark.
type token struct {
	text string
	line int32
	kind byte
}

// maxTextBytes bounds what is parsed.
const maxTextBytes = 16 << 20

func isWord(c byte) bool {
	return c == '_' || c == '$' || c == '%' || c == '.' || isDigit(c) || c|0x20 >= 'a' && c|0x20 <= 'z'
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// lex cuts a text into tokens.
func lex(text string) ([]token, error) {
	if len(text) > maxTextBytes {
		return nil, &SyntaxError{Line: 1, Reason: fmt.Sprintf("%d bytes are too many", len(text))}
	}
	var list []token
	line := int32(1)
	for i := 0; i < len(text); {
		c := text[i]
		rest := text[i:]
		switch {
		case c == '\n':
			line++
			i++
		case c == ' ' || c == '\t' || c == '\r':
			i++
		case strings.HasPrefix(rest, "//"):
			n := strings.IndexByte(rest, '\n')
			if n < 0 {
				n = len(rest)
			}
			i += n
		case strings.HasPrefix(rest, "/*"):
			n := strings.Index(rest, "*/")
			if n < 0 {
				return nil, &SyntaxError{Line: int(line), Reason: "a comment without an end"}
			}
			line += int32(strings.Count(rest[:n], "\n"))
			i += n + 2
		case c == '"':
			n := strings.IndexAny(rest[1:], "\"\n")
			if n < 0 || rest[n+1] == '\n' {
				return nil, &SyntaxError{Line: int(line), Reason: "a text without an end"}
			}
			list = append(list, token{rest[1 : n+1], line, tokenText})
			i += n + 2
		case isWord(c):
			n := 1
			for n < len(rest) && (isWord(rest[n]) || strings.HasPrefix(rest[n:], "::")) {
				if rest[n] == ':' {
					n++
				}
				n++
			}
			kind := byte(tokenWord)
			if isDigit(c) {
				kind = tokenNumber
			}
			list = append(list, token{rest[:n], line, kind})
			i += n
		case strings.IndexByte("{}[]()<>,;:@!|+-=", c) >= 0:
			list = append(list, token{rest[:1], line, c})
			i++
		default:
			return nil, &SyntaxError{Line: int(line), Reason: fmt.Sprintf("%q is no part of PTX", c)}
		}
	}
	return append(list, token{line: line, kind: tokenEnd}), nil
}

// number reads a literal as the bits that it stands for.
func number(text string) (uint64, bool) {
	switch {
	case strings.HasPrefix(text, "0f") || strings.HasPrefix(text, "0F"):
		v, err := strconv.ParseUint(text[2:], 16, 32)
		return v, err == nil && len(text) == 10
	case strings.HasPrefix(text, "0d") || strings.HasPrefix(text, "0D"):
		v, err := strconv.ParseUint(text[2:], 16, 64)
		return v, err == nil && len(text) == 18
	}
	v, err := strconv.ParseUint(strings.TrimSuffix(text, "U"), 0, 64)
	return v, err == nil && !strings.Contains(text, "_")
}
