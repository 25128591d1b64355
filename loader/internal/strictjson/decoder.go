// Package strictjson is a pull decoder for JSON from untrusted files: the caller walks the document in one pass and
// keeps what it needs, so that a 40 MB graph is never in memory as a whole.
//
// It accepts RFC 8259 and nothing more (Python's NaN and Infinity on request): valid UTF-8, no duplicate keys, no lone
// surrogates, no integer that does not fit. Nesting and the length of tokens are bounded, and the strings it hands out
// are charged to a meter; equal ones are mostly the same string. It does not know any schema.
//
//	d := strictjson.NewDecoder(r, strictjson.Options{Meter: m})
//	err := d.Object(func(key string) error {
//		switch key {
//		case "name":
//			name, err = d.String()
//			return err
//		}
//		return d.Skip()
//	})
//	if err == nil {
//		err = d.End()
//	}
package strictjson

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/optimem/optimem/loader/internal/fault"
	"github.com/optimem/optimem/loader/internal/limit"
)

// A Kind is the type of a JSON value.
type Kind uint8

// The kinds of value.
const (
	Invalid Kind = iota
	Object
	Array
	String
	Number
	Bool
	Null
)

// String returns the name of the kind as error messages use it.
func (k Kind) String() string {
	return [...]string{"nothing", "an object", "an array", "a string", "a number", "true or false", "null"}[k]
}

// Defaults of [Options], and the fixed sizes of the decoder.
const (
	DefaultDepth          = 200
	defaultMaxStringBytes = 4 << 20

	bufferBytes    = 64 << 10
	maxNumberBytes = 1 << 10
	// readTries bounds reads that return neither bytes nor an error, as in package bufio.
	readTries = 100
)

// Options say what a decoder may cost. The zero value has defaults and no meter.
type Options struct {
	// Meter is charged for the strings handed out and for the decoder's own memory. Nil: nothing is charged.
	Meter *limit.Meter
	// Depth bounds the nesting of objects and arrays.
	Depth int
	// MaxStringBytes bounds one string.
	MaxStringBytes int
	// NonFinite accepts the literals NaN, Infinity and -Infinity as numbers, which Python's json writes.
	NonFinite bool
}

// A Decoder reads one JSON document. Its first error is final: every later call returns it again. It is not safe for
// parallel use.
type Decoder struct {
	r    io.Reader
	opts Options

	buf   []byte
	pos   int   // next unread byte of buf
	base  int64 // offset of buf[0] in the document
	token int64 // offset of the value read last, for errors
	eof   bool
	err   error

	values  int64 // values begun, to see whether a callback consumed its own
	path    []step
	scratch []byte // a string with escapes, or one that crosses a refill
	keys    []string
	intern  interner
}

// A step is one level of nesting: the key or the index of the value being read.
type step struct {
	key   string
	index int // −1 in an object
}

// NewDecoder returns a decoder of the document that r holds.
func NewDecoder(r io.Reader, o Options) *Decoder {
	return &Decoder{r: r, opts: o.withDefaults()}
}

// NewBytesDecoder returns a decoder of a document in memory, which it does not copy.
func NewBytesDecoder(doc []byte, o Options) *Decoder {
	return &Decoder{buf: doc, eof: true, opts: o.withDefaults()}
}

func (o Options) withDefaults() Options {
	if o.Depth <= 0 {
		o.Depth = DefaultDepth
	}
	if o.MaxStringBytes <= 0 {
		o.MaxStringBytes = defaultMaxStringBytes
	}
	return o
}

// Offset returns the position in the document of the next unread byte.
func (d *Decoder) Offset() int64 { return d.base + int64(d.pos) }

// Errorf returns an error of a class of package fault about the value read last: it carries the offset where that
// value begins, and the message begins with its JSON pointer.
//
//go:noinline
func (d *Decoder) Errorf(class error, format string, args ...any) error {
	return d.errorAt(class, d.token, format, args...)
}

// Pointer returns the JSON pointer of the value being read, such as "/graph/nodes/17/inputs", shortened in the middle
// where keys are long.
func (d *Decoder) Pointer() string {
	const maxKey, maxSteps = 64, 24
	var b strings.Builder
	for i, s := range d.path {
		if len(d.path) > maxSteps && i >= maxSteps/2 && i < len(d.path)-maxSteps/2 {
			if i == maxSteps/2 {
				b.WriteString("/…")
			}
			continue
		}
		b.WriteByte('/')
		if s.index >= 0 {
			b.WriteString(strconv.Itoa(s.index))
			continue
		}
		key := s.key
		if len(key) > maxKey {
			key = strings.ToValidUTF8(key[:maxKey], "") + "…"
		}
		b.WriteString(strings.NewReplacer("~", "~0", "/", "~1").Replace(key))
	}
	return b.String()
}

func (d *Decoder) errorAt(class error, off int64, format string, args ...any) error {
	msg := fmt.Sprintf(format, args...)
	if p := d.Pointer(); p != "" {
		msg = p + ": " + msg
	}
	return fault.New(class, off, "%s", msg)
}

// fail makes a syntax error at the next unread byte the decoder's final one.
func (d *Decoder) fail(class error, format string, args ...any) error {
	if d.err == nil {
		d.err = d.errorAt(class, d.Offset(), format, args...)
	}
	return d.err
}

// charge charges the meter and makes its error final.
func (d *Decoder) charge(n int64) error {
	if d.opts.Meter == nil {
		return nil
	}
	if err := d.opts.Meter.Charge(n); err != nil {
		if d.err == nil {
			d.err = err
		}
		return d.err
	}
	return nil
}

// fill reads more of the document behind the unread bytes. It reports whether there is an unread byte beyond those
// that were there before; a false answer means the end of the document or an error in d.err.
func (d *Decoder) fill() bool {
	if d.eof || d.err != nil {
		return false
	}
	if d.buf == nil {
		if d.charge(bufferBytes) != nil {
			return false
		}
		d.buf = make([]byte, 0, bufferBytes)
	}
	rest := copy(d.buf, d.buf[d.pos:])
	d.base += int64(d.pos)
	d.pos = 0
	d.buf = d.buf[:rest]
	for range readTries {
		n, err := d.r.Read(d.buf[rest:cap(d.buf)])
		d.buf = d.buf[:rest+n]
		if err == io.EOF { //nolint:errorlint // a wrapped EOF is a failed read, not the end
			d.eof = true
			return n > 0
		}
		if err != nil {
			d.err = fmt.Errorf("read: %w", err)
			return false
		}
		if n > 0 {
			return true
		}
	}
	d.err = fmt.Errorf("read: %w", io.ErrNoProgress)
	return false
}

// ensure makes n unread bytes available at once, fewer at the end of the document. n is at most maxNumberBytes.
func (d *Decoder) ensure(n int) {
	for len(d.buf)-d.pos < n {
		if !d.fill() {
			return
		}
	}
}

// space skips white space and returns the byte that follows, unread, or 0 at the end of the document or after an
// error. No byte of a valid document outside a string is 0.
func (d *Decoder) space() byte {
	for d.err == nil {
		for i, c := range d.buf[d.pos:] {
			switch c {
			case ' ', '\n', '\r', '\t':
				continue
			}
			d.pos += i
			if c == 0 {
				_ = d.fail(fault.ErrFormat, "a zero byte")
			}
			return c
		}
		d.pos = len(d.buf)
		if !d.fill() {
			break
		}
	}
	return 0
}

// next skips white space and returns the byte that follows, unread, or an error.
func (d *Decoder) next() (byte, error) {
	if d.err == nil && d.pos+1 < len(d.buf) { // most often
		c := d.buf[d.pos]
		if c == ' ' {
			d.pos++
			c = d.buf[d.pos]
		}
		if c > ' ' {
			return c, nil
		}
	}
	c := d.space()
	if c == 0 {
		return 0, d.fail(fault.ErrFormat, "the document ends early")
	}
	return c, nil
}

// Kind returns the kind of the next value without reading it.
func (d *Decoder) Kind() (Kind, error) {
	c, err := d.next()
	if err != nil {
		return Invalid, err
	}
	switch {
	case c == '{':
		return Object, nil
	case c == '[':
		return Array, nil
	case c == '"':
		return String, nil
	case c == '-', '0' <= c && c <= '9':
		return Number, nil
	case c == 't', c == 'f':
		return Bool, nil
	case c == 'n':
		return Null, nil
	case d.opts.NonFinite && (c == 'N' || c == 'I'):
		return Number, nil
	}
	return Invalid, d.fail(fault.ErrFormat, "unexpected %s where a value should begin", quoteByte(c))
}

// begin checks that the next value is of the given kind and starts it.
func (d *Decoder) begin(want Kind) error {
	got, err := d.Kind()
	if err != nil {
		return err
	}
	if got != want {
		return d.fail(fault.ErrFormat, "%v where %v is expected", got, want)
	}
	d.token = d.Offset()
	d.values++
	return nil
}

// enter starts an object or array.
func (d *Decoder) enter(k Kind) error {
	if err := d.begin(k); err != nil {
		return err
	}
	if len(d.path) >= d.opts.Depth {
		return d.fail(fault.ErrLimit, "nested deeper than %d", d.opts.Depth)
	}
	d.pos++
	return nil
}

// Object reads an object and calls fn once for each key; fn reads the value, and a value that it leaves is skipped.
// An error of fn ends the reading and is returned as it is. A key that occurs twice is an error.
func (d *Decoder) Object(fn func(key string) error) error {
	if err := d.enter(Object); err != nil {
		return err
	}
	d.path = append(d.path, step{index: -1})
	level := len(d.path) - 1
	seen := keySet{first: len(d.keys)}
	for first := true; ; first = false {
		at, text, err := d.key(first)
		if err != nil {
			return err
		}
		if at < 0 {
			break
		}
		key, err := d.intern.get(d, text)
		if err != nil {
			return err
		}
		dup, err := seen.add(d, key)
		if err != nil {
			return err
		}
		if dup {
			d.err = d.errorAt(fault.ErrFormat, at, "the key %s occurs twice", quoteKey(key))
			return d.err
		}
		d.path[level].key = key
		if err := d.colon(); err != nil {
			return err
		}
		before := d.values
		if err := d.rest(fn(key), before); err != nil {
			return err
		}
	}
	d.path = d.path[:level]
	clear(d.keys[seen.first:])
	d.keys = d.keys[:seen.first]
	if m := d.opts.Meter; m != nil {
		m.Release(largeKeyCost * seen.charged)
	}
	return nil
}

// key reads the next key of an object, with the comma before it, and returns where it begins and its text, good until
// the next call. At the end of the object the place is negative.
func (d *Decoder) key(first bool) (at int64, text []byte, err error) {
	c, err := d.next()
	if err != nil {
		return 0, nil, err
	}
	switch {
	case c == '}':
		d.pos++
		return -1, nil, nil
	case first:
	case c != ',':
		return 0, nil, d.fail(fault.ErrFormat, "%s where a comma or the end of the object is expected", quoteByte(c))
	default:
		d.pos++
		if c, err = d.next(); err != nil {
			return 0, nil, err
		}
	}
	if c != '"' {
		return 0, nil, d.fail(fault.ErrFormat, "%s where a key should begin", quoteByte(c))
	}
	at = d.Offset()
	text, err = d.text()
	return at, text, err
}

func (d *Decoder) colon() error {
	c, err := d.next()
	if err != nil {
		return err
	}
	if c != ':' {
		return d.fail(fault.ErrFormat, "%s where a colon is expected", quoteByte(c))
	}
	d.pos++
	return nil
}

// skipObject reads an object and forgets it.
func (d *Decoder) skipObject() error {
	if err := d.enter(Object); err != nil {
		return err
	}
	d.path = append(d.path, step{index: -1})
	for first := true; ; first = false {
		at, _, err := d.key(first)
		if err != nil {
			return err
		}
		if at < 0 {
			break
		}
		if err := d.colon(); err != nil {
			return err
		}
		if err := d.Skip(); err != nil {
			return err
		}
	}
	d.path = d.path[:len(d.path)-1]
	return nil
}

// Array reads an array and calls fn once for each element; fn reads the element, and one that it leaves is skipped.
// An error of fn ends the reading and is returned as it is.
func (d *Decoder) Array(fn func(i int) error) error {
	if err := d.enter(Array); err != nil {
		return err
	}
	d.path = append(d.path, step{})
	level := len(d.path) - 1
	for i := 0; ; i++ {
		c, err := d.next()
		if err != nil {
			return err
		}
		if c == ']' && i == 0 {
			break
		}
		d.path[level].index = i
		before := d.values
		if err := d.rest(fn(i), before); err != nil {
			return err
		}
		if c, err = d.next(); err != nil {
			return err
		}
		if c == ']' {
			break
		}
		if c != ',' {
			return d.fail(fault.ErrFormat, "%s where a comma or the end of the array is expected", quoteByte(c))
		}
		d.pos++
	}
	d.pos++
	d.path = d.path[:level]
	return nil
}

// rest ends the reading of a value by a callback that returned err, before which so many values had begun: it skips
// the value if the callback has left it.
func (d *Decoder) rest(err error, before int64) error {
	if err != nil {
		if d.err == nil {
			d.err = err
		}
		return err
	}
	if d.err != nil {
		return d.err
	}
	if d.values == before {
		return d.Skip()
	}
	return nil
}

// End checks that nothing but white space follows the document.
func (d *Decoder) End() error {
	if c := d.space(); c != 0 {
		return d.fail(fault.ErrFormat, "%s after the end of the document", quoteByte(c))
	}
	return d.err
}

func quoteByte(c byte) string {
	if c < 0x80 {
		return strconv.QuoteRune(rune(c))
	}
	return fmt.Sprintf("byte %#x", c)
}

func quoteKey(key string) string {
	if len(key) > 100 {
		key = key[:100]
	}
	return strconv.Quote(key)
}
