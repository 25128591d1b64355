package strictjson

import (
	"encoding/binary"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/optimem/optimem/loader/internal/fault"
)

// plain marks the bytes of a string that stand for themselves and need no check: printable ASCII but quote and
// backslash.
var plain = func() (t [256]bool) {
	for c := ' '; c < 0x80; c++ {
		t[c] = c != '"' && c != '\\'
	}
	return t
}()

// text reads a string, whose quote is the next byte, and checks it. The bytes are good until the next call.
func (d *Decoder) text() ([]byte, error) {
	d.pos++
	i, ascii := d.scan(d.pos, true)
	if i < len(d.buf) && d.buf[i] == '"' {
		text := d.buf[d.pos:i]
		if len(text) > d.opts.MaxStringBytes {
			return nil, d.fail(fault.ErrLimit, "a string longer than %d bytes", d.opts.MaxStringBytes)
		}
		if !ascii && !utf8.Valid(text) {
			return nil, d.fail(fault.ErrFormat, "a string that is not UTF-8")
		}
		d.pos = i + 1
		return text, nil
	}
	return d.longText(ascii)
}

// scan returns the index from i on of the first byte that is not part of the string as it stands (a quote, a
// backslash, a control character), or len(d.buf). ascii turns false where it passes a byte outside ASCII.
func (d *Decoder) scan(i int, ascii bool) (int, bool) {
	buf := d.buf
	for ; i+8 <= len(buf); i += 8 {
		w := binary.LittleEndian.Uint64(buf[i:])
		if !plainWord(w) {
			break
		}
	}
	for i < len(buf) {
		c := buf[i]
		if plain[c] {
			i++
			continue
		}
		if c < utf8.RuneSelf {
			break
		}
		ascii = false
		i++
	}
	return i, ascii
}

// plainWord reports whether all eight bytes of w are plain; it may say no when they are.
func plainWord(w uint64) bool {
	const ones, high = 0x0101010101010101, 0x8080808080808080
	control := w - ' '*ones
	quote := (w ^ '"'*ones) - ones
	backslash := (w ^ '\\'*ones) - ones
	return (w|control|quote|backslash)&high == 0
}

// longText reads the string at d.pos into scratch memory: it has escapes, or goes on beyond the buffer.
func (d *Decoder) longText(ascii bool) ([]byte, error) {
	d.scratch = d.scratch[:0]
	for {
		var i int
		i, ascii = d.scan(d.pos, ascii)
		if err := d.keep(d.buf[d.pos:i]); err != nil {
			return nil, err
		}
		d.pos = i
		if i == len(d.buf) {
			if !d.fill() {
				return nil, d.fail(fault.ErrFormat, "the document ends within a string")
			}
			continue
		}
		switch d.buf[i] {
		case '"':
			if !ascii && !utf8.Valid(d.scratch) {
				return nil, d.fail(fault.ErrFormat, "a string that is not UTF-8")
			}
			d.pos++
			return d.scratch, nil
		case '\\':
			if err := d.escape(); err != nil {
				return nil, err
			}
		default:
			return nil, d.fail(fault.ErrFormat, "the control character %#x in a string", d.buf[i])
		}
	}
}

// keep appends to the scratch memory, which is charged as it grows.
func (d *Decoder) keep(p []byte) error {
	need := len(d.scratch) + len(p)
	if need > d.opts.MaxStringBytes {
		return d.fail(fault.ErrLimit, "a string longer than %d bytes", d.opts.MaxStringBytes)
	}
	if need > cap(d.scratch) {
		grown := max(need, 2*cap(d.scratch), 256)
		if err := d.charge(int64(grown - cap(d.scratch))); err != nil {
			return err
		}
		d.scratch = append(make([]byte, 0, grown), d.scratch...)
	}
	d.scratch = append(d.scratch, p...)
	return nil
}

// escape reads the escape sequence at d.pos.
func (d *Decoder) escape() error {
	d.ensure(12) // the longest: two \uXXXX
	rest := d.buf[d.pos:]
	if len(rest) < 2 {
		return d.fail(fault.ErrFormat, "the document ends within a string")
	}
	var c byte
	switch rest[1] {
	case '"', '\\', '/':
		c = rest[1]
	case 'b':
		c = '\b'
	case 'f':
		c = '\f'
	case 'n':
		c = '\n'
	case 'r':
		c = '\r'
	case 't':
		c = '\t'
	case 'u':
		r, n := unicodeEscape(rest)
		if n == 0 {
			return d.fail(fault.ErrFormat, "a malformed \\u escape or a lone surrogate")
		}
		var enc [utf8.UTFMax]byte
		d.pos += n
		return d.keep(enc[:utf8.EncodeRune(enc[:], r)])
	default:
		return d.fail(fault.ErrFormat, "the unknown escape \\%s", quoteByte(rest[1]))
	}
	d.pos += 2
	return d.keep([]byte{c})
}

// unicodeEscape decodes \uXXXX, or a surrogate pair of two, at the start of p. It returns the bytes that it takes, 0
// if it is malformed.
func unicodeEscape(p []byte) (rune, int) {
	r := hex4(p)
	if r < 0 || !utf16.IsSurrogate(r) {
		if r < 0 {
			return 0, 0
		}
		return r, 6
	}
	r2 := hex4(p[6:])
	if r2 < 0 {
		return 0, 0
	}
	if r = utf16.DecodeRune(r, r2); r == utf8.RuneError {
		return 0, 0
	}
	return r, 12
}

// hex4 returns the code unit of the \uXXXX at the start of p, −1 if there is none.
func hex4(p []byte) rune {
	if len(p) < 6 || p[0] != '\\' || p[1] != 'u' {
		return -1
	}
	var r rune
	for _, c := range p[2:6] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return -1
		}
		r = r<<4 | rune(c)
	}
	return r
}

// literal reads the given word.
func (d *Decoder) literal(word string) error {
	d.ensure(len(word) + 1)
	rest := d.buf[d.pos:]
	if len(rest) < len(word) || string(rest[:len(word)]) != word || len(rest) > len(word) && inWord(rest[len(word)]) {
		return d.fail(fault.ErrFormat, "an unknown word where %s may stand", word)
	}
	d.pos += len(word)
	return nil
}

func inWord(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '_'
}

// number reads a number and returns its text, good until the next call.
func (d *Decoder) number() ([]byte, error) {
	if err := d.begin(Number); err != nil {
		return nil, err
	}
	if len(d.buf)-d.pos < maxNumberBytes {
		d.ensure(maxNumberBytes)
		if d.err != nil {
			return nil, d.err
		}
	}
	rest := d.buf[d.pos:min(len(d.buf), d.pos+maxNumberBytes)]
	if d.opts.NonFinite {
		for _, word := range [...]string{"NaN", "Infinity", "-Infinity"} {
			if len(rest) >= len(word) && string(rest[:len(word)]) == word {
				text := rest[:len(word)]
				return text, d.literal(word)
			}
		}
	}
	n := numberLen(rest)
	switch {
	case n == 0:
		return nil, d.fail(fault.ErrFormat, "a malformed number")
	case n == maxNumberBytes:
		return nil, d.fail(fault.ErrLimit, "a number of more than %d digits", maxNumberBytes)
	case n < len(rest) && (inWord(rest[n]) || rest[n] == '.' || rest[n] == '+' || rest[n] == '-'):
		return nil, d.fail(fault.ErrFormat, "a malformed number")
	}
	d.pos += n
	return rest[:n], nil
}

// numberLen returns the length of the number at the start of p, 0 if it is malformed.
func numberLen(p []byte) int {
	i := 0
	if i < len(p) && p[i] == '-' {
		i++
	}
	switch n := digits(p[i:]); {
	case n == 0, n > 1 && p[i] == '0':
		return 0
	default:
		i += n
	}
	if i < len(p) && p[i] == '.' {
		n := digits(p[i+1:])
		if n == 0 {
			return 0
		}
		i += 1 + n
	}
	if i < len(p) && (p[i] == 'e' || p[i] == 'E') {
		i++
		if i < len(p) && (p[i] == '+' || p[i] == '-') {
			i++
		}
		n := digits(p[i:])
		if n == 0 {
			return 0
		}
		i += n
	}
	return i
}

func digits(p []byte) int {
	for i, c := range p {
		if c < '0' || c > '9' {
			return i
		}
	}
	return len(p)
}

// Skip reads the next value, of any kind, and forgets it. It checks the syntax and the nesting within, not whether
// keys occur twice.
func (d *Decoder) Skip() error {
	k, err := d.Kind()
	if err != nil {
		return err
	}
	switch k {
	case String:
		_, err = d.Text()
	case Number:
		_, err = d.number()
	case Bool:
		_, err = d.Bool()
	case Null:
		err = d.Null()
	case Array:
		err = d.Array(func(int) error { return d.Skip() })
	case Object:
		err = d.skipObject()
	}
	return err
}
