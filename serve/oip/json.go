package oip

import (
	"bytes"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// A reader reads JSON in one pass over its bytes. The first mistake ends it.
type reader struct {
	data       []byte
	pos, depth int
	most       int
}

func (r *reader) fail(format string, args ...any) error {
	e := wrong("", format, args...).(*Error)
	e.Msg += " at byte " + strconv.Itoa(r.pos)
	return e
}

// peek returns the next byte that is no white space, 0 at the end.
func (r *reader) peek() byte {
	for r.pos < len(r.data) {
		switch c := r.data[r.pos]; c {
		case ' ', '\t', '\n', '\r':
			r.pos++
		default:
			return c
		}
	}
	return 0
}

func (r *reader) expect(c byte) error {
	if r.peek() != c {
		return r.fail("JSON: %q expected", c)
	}
	r.pos++
	return nil
}

func (r *reader) enter() error {
	if r.depth++; r.depth > r.most {
		return r.fail("JSON: nested more than %d deep", r.most)
	}
	return nil
}

// object calls member for each member of an object, which reads its value.
func (r *reader) object(member func(key string) error) error {
	if err := r.expect('{'); err != nil {
		return err
	}
	if err := r.enter(); err != nil {
		return err
	}
	defer func() { r.depth-- }()
	if r.peek() == '}' {
		r.pos++
		return nil
	}
	seen := make(map[string]bool)
	for {
		key, err := r.text()
		if err != nil {
			return err
		}
		if seen[string(key)] {
			return r.fail("JSON: the key %.40q twice", key)
		}
		seen[string(key)] = true
		if err := r.expect(':'); err != nil {
			return err
		}
		if err := member(string(key)); err != nil {
			return err
		}
		if more, err := r.more('}'); err != nil || !more {
			return err
		}
	}
}

// array calls element for each element of an array, which reads it.
func (r *reader) array(element func() error) error {
	if err := r.expect('['); err != nil {
		return err
	}
	if err := r.enter(); err != nil {
		return err
	}
	defer func() { r.depth-- }()
	if r.peek() == ']' {
		r.pos++
		return nil
	}
	for {
		if err := element(); err != nil {
			return err
		}
		if more, err := r.more(']'); err != nil || !more {
			return err
		}
	}
}

// more reads what follows a member or an element: a comma, or the end.
func (r *reader) more(end byte) (bool, error) {
	switch r.peek() {
	case ',':
		r.pos++
		return true, nil
	case end:
		r.pos++
		return false, nil
	}
	return false, r.fail("JSON: ',' or %q expected", end)
}

// text reads a string. It shares the body's memory where nothing is escaped.
func (r *reader) text() ([]byte, error) {
	if err := r.expect('"'); err != nil {
		return nil, err
	}
	begin := r.pos
	for r.pos < len(r.data) {
		switch c := r.data[r.pos]; {
		case c == '"':
			s := r.data[begin:r.pos:r.pos]
			r.pos++
			if !utf8.Valid(s) {
				return nil, r.fail("JSON: a string that is not UTF-8")
			}
			return s, nil
		case c == '\\':
			return r.escaped(begin)
		case c < ' ':
			return nil, r.fail("JSON: a control character in a string")
		}
		r.pos++
	}
	return nil, r.fail("JSON: a string without end")
}

// escaped goes on with a string from its first escape on.
func (r *reader) escaped(begin int) ([]byte, error) {
	s := bytes.Clone(r.data[begin:r.pos])
	for r.pos < len(r.data) {
		c := r.data[r.pos]
		r.pos++
		switch {
		case c == '"':
			if !utf8.Valid(s) {
				return nil, r.fail("JSON: a string that is not UTF-8")
			}
			return s, nil
		case c < ' ':
			return nil, r.fail("JSON: a control character in a string")
		case c != '\\':
			s = append(s, c)
			continue
		}
		if r.pos == len(r.data) {
			break
		}
		c = r.data[r.pos]
		r.pos++
		if at := bytes.IndexByte([]byte(`"\/bfnrt`), c); at >= 0 {
			s = append(s, "\"\\/\b\f\n\r\t"[at])
			continue
		}
		if c != 'u' {
			return nil, r.fail("JSON: an escape that there is not")
		}
		unit, err := r.hex()
		if err != nil {
			return nil, err
		}
		if utf16.IsSurrogate(unit) {
			unit = r.pair(unit)
		}
		s = utf8.AppendRune(s, unit)
	}
	return nil, r.fail("JSON: a string without end")
}

// pair reads the second half of a pair of surrogates, where there is one.
func (r *reader) pair(first rune) rune {
	if at := r.pos; bytes.HasPrefix(r.data[at:], []byte(`\u`)) {
		r.pos += 2
		if second, err := r.hex(); err == nil {
			if both := utf16.DecodeRune(first, second); both != utf8.RuneError {
				return both
			}
		}
		r.pos = at
	}
	return utf8.RuneError
}

func (r *reader) hex() (rune, error) {
	if len(r.data)-r.pos < 4 {
		return 0, r.fail("JSON: an escape that is cut short")
	}
	n, err := strconv.ParseUint(string(r.data[r.pos:r.pos+4]), 16, 16)
	if err != nil {
		return 0, r.fail("JSON: an escape that is no number")
	}
	r.pos += 4
	return rune(n), nil
}

// word reads a number or a name, the bytes up to what ends one.
func (r *reader) word() []byte {
	r.peek()
	begin := r.pos
	for r.pos < len(r.data) {
		switch r.data[r.pos] {
		case ',', ']', '}', ' ', '\t', '\n', '\r', ':', '[', '{', '"':
			return r.data[begin:r.pos]
		}
		r.pos++
	}
	return r.data[begin:r.pos]
}

// maxNumber is how many bytes a number may have.
const maxNumber = 400

// isNumber reports whether a word is a number, as JSON writes it, or one of NaN, Infinity and -Infinity, which Python and
// Triton write.
func isNumber(w []byte) bool {
	switch string(w) {
	case "NaN", "Infinity", "-Infinity":
		return true
	}
	if len(w) > maxNumber {
		return false
	}
	digits := func() int {
		n := 0
		for n < len(w) && '0' <= w[n] && w[n] <= '9' {
			n++
		}
		w = w[n:]
		return n
	}
	if len(w) > 0 && w[0] == '-' {
		w = w[1:]
	}
	zero := len(w) > 0 && w[0] == '0'
	if n := digits(); n == 0 || zero && n > 1 {
		return false
	}
	if len(w) > 0 && w[0] == '.' {
		if w = w[1:]; digits() == 0 {
			return false
		}
	}
	if len(w) > 0 && (w[0] == 'e' || w[0] == 'E') {
		if w = w[1:]; len(w) > 0 && (w[0] == '+' || w[0] == '-') {
			w = w[1:]
		}
		if digits() == 0 {
			return false
		}
	}
	return len(w) == 0
}

// plain reads a string, a number, a name, or an array or object, of which nothing is kept.
func (r *reader) plain() (any, error) {
	switch r.peek() {
	case '"':
		s, err := r.text()
		return string(s), err
	case '[', '{':
		return nil, r.skip()
	}
	w := r.word()
	switch string(w) {
	case "null":
		return nil, nil
	case "true", "false":
		return len(w) == 4, nil
	}
	if !isNumber(w) {
		return nil, r.fail("JSON: a value expected")
	}
	if n, err := strconv.ParseInt(string(w), 10, 64); err == nil {
		return n, nil
	}
	f, err := strconv.ParseFloat(string(w), 64)
	if err != nil {
		return nil, r.fail("JSON: a number out of range")
	}
	return f, nil
}

// skip reads a value and keeps nothing.
func (r *reader) skip() error {
	switch r.peek() {
	case '[':
		return r.array(r.skip)
	case '{':
		return r.object(func(string) error { return r.skip() })
	}
	_, err := r.plain()
	return err
}

// parameters reads an object of plain values.
func (r *reader) parameters() (map[string]any, error) {
	all := make(map[string]any)
	err := r.object(func(key string) (err error) {
		all[key], err = r.plain()
		return err
	})
	return all, err
}
