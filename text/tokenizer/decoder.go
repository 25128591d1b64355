package tokenizer

import (
	"strings"
	"unicode/utf8"

	"github.com/optimem/optimem/text/tokenizer/internal/pattern"
)

// A decoder makes a link of the chain that turns tokens into text. eager asks for a link that passes on what can no
// longer change as soon as it can.
type decoder interface {
	link(eager bool, next joint) joint
}

// A joint takes tokens one by one.
type joint interface {
	write(token string)
	flush()
}

type sink func(string)

func (s sink) write(token string) { s(token) }
func (s sink) flush()             {}

// chain makes the links of all decoders.
func (t *Tokenizer) chain(eager bool, out func(string)) joint {
	var next joint = sink(out)
	for i := len(t.decoders) - 1; i >= 0; i-- {
		// After tokens have been joined others see one token, and those that do not know how to see it bit by bit wait.
		one, fused := eager, false
		for _, before := range t.decoders[:i] {
			if _, ok := before.(fuse); ok {
				fused = true
			}
		}
		if _, ok := t.decoders[i].(fuse); fused && !ok {
			one = false
		}
		if strip, ok := t.decoders[i].(*stripDecoder); ok && eager && fused {
			next = &stripLink{stripDecoder: strip, left: strip.start, next: next}
			continue
		}
		next = t.decoders[i].link(one, next)
		if one != eager {
			next = &gather{next: next}
		}
	}
	return next
}

// gather joins all tokens.
type gather struct {
	all  strings.Builder
	next joint
}

func (g *gather) write(token string) { g.all.WriteString(token) }

func (g *gather) flush() {
	g.next.write(g.all.String())
	g.next.flush()
}

// A mapper changes every token by itself, or by its place.
type mapper struct {
	f    func(i int, token string) string
	i    int
	next joint
}

func (m *mapper) write(token string) {
	m.next.write(m.f(m.i, token))
	m.i++
}

func (m *mapper) flush() { m.next.flush() }

type fuse struct{}

func (fuse) link(eager bool, next joint) joint {
	if eager {
		return &mapper{f: func(_ int, token string) string { return token }, next: next}
	}
	return &gather{next: next}
}

func (n *byteLevel) link(eager bool, next joint) joint {
	return &byteLink{eager: eager, next: next}
}

// byteLink turns characters for bytes into bytes, and bytes into text.
type byteLink struct {
	eager bool
	rest  []byte // not yet text
	next  joint
}

func (l *byteLink) write(token string) {
	before := len(l.rest)
	rest, ok := spelt(token, l.rest)
	if !ok {
		rest = append(rest[:before], token...)
	}
	l.rest = rest
	if l.eager {
		text, n := lossy(nil, l.rest, false)
		l.rest = append(l.rest[:0], l.rest[n:]...)
		if len(text) > 0 {
			l.next.write(string(text))
		}
	}
}

func (l *byteLink) flush() {
	text, _ := lossy(nil, l.rest, true)
	l.rest = nil
	if len(text) > 0 || !l.eager {
		l.next.write(string(text))
	}
	l.next.flush()
}

func (n *metaspace) link(_ bool, next joint) joint {
	return &mapper{next: next, f: func(i int, token string) string {
		with := " "
		if i == 0 && n.scheme != "never" {
			with = ""
		}
		return strings.ReplaceAll(token, n.text, with)
	}}
}

type wordPieceDecoder struct {
	prefix  string
	cleanup bool
}

func (n *wordPieceDecoder) link(_ bool, next joint) joint {
	return &mapper{next: next, f: func(i int, token string) string {
		if i > 0 {
			if rest, ok := strings.CutPrefix(token, n.prefix); ok {
				token = rest
			} else {
				token = " " + token
			}
		}
		if n.cleanup {
			token = cleanUp(token)
		}
		return token
	}}
}

// cleanUp takes away spaces that tokenization left, one sort after the other.
func cleanUp(s string) string {
	for _, pair := range [][2]string{
		{" .", "."}, {" ?", "?"}, {" !", "!"}, {" ,", ","}, {" ' ", "'"}, {" n't", "n't"}, {" 'm", "'m"},
		{" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
	} {
		s = strings.ReplaceAll(s, pair[0], pair[1])
	}
	return s
}

type replaceDecoder struct {
	pattern *pattern.Pattern
	content string
}

func (n *replaceDecoder) link(_ bool, next joint) joint {
	return &mapper{next: next, f: func(_ int, token string) string {
		if token == "" {
			return ""
		}
		var b strings.Builder
		last := 0
		s := n.pattern.Find(token)
		for {
			from, to, ok := s.Next()
			if !ok {
				break
			}
			b.WriteString(token[last:from])
			b.WriteString(n.content)
			last = to
		}
		b.WriteString(token[last:])
		return b.String()
	}}
}

type byteFallback struct{}

func (byteFallback) link(eager bool, next joint) joint {
	return &fallbackLink{eager: eager, next: next}
}

// fallbackLink turns rows of tokens for bytes into text, or into as many U+FFFD if they are none. An eager one tells
// characters of a row that is text up to there, and U+FFFD for the bytes after.
type fallbackLink struct {
	eager bool
	bytes []byte
	next  joint
}

func (l *fallbackLink) write(token string) {
	b, ok := fallbackByte(token)
	if !ok {
		l.end()
		l.next.write(token)
		return
	}
	l.bytes = append(l.bytes, b)
	if !l.eager {
		return
	}
	n := 0
	for utf8.FullRune(l.bytes[n:]) {
		r, size := utf8.DecodeRune(l.bytes[n:])
		if r == utf8.RuneError && size == 1 {
			break
		}
		n += size
	}
	if n > 0 {
		l.next.write(string(l.bytes[:n]))
		l.bytes = append(l.bytes[:0], l.bytes[n:]...)
	}
}

func (l *fallbackLink) end() {
	switch {
	case len(l.bytes) == 0:
		return
	case utf8.Valid(l.bytes):
		l.next.write(string(l.bytes))
	default:
		for range l.bytes {
			l.next.write("\uFFFD")
		}
	}
	l.bytes = l.bytes[:0]
}

func (l *fallbackLink) flush() {
	l.end()
	l.next.flush()
}

type stripDecoder struct {
	content     string // one character
	start, stop int    // how many of it to take away
}

func (n *stripDecoder) strip(token string) string {
	for range n.start {
		rest, ok := strings.CutPrefix(token, n.content)
		if !ok {
			break
		}
		token = rest
	}
	for range n.stop {
		rest, ok := strings.CutSuffix(token, n.content)
		if !ok {
			break
		}
		token = rest
	}
	return token
}

func (n *stripDecoder) link(_ bool, next joint) joint {
	return &mapper{next: next, f: func(_ int, token string) string { return n.strip(token) }}
}

// stripLink strips a text that comes bit by bit.
type stripLink struct {
	*stripDecoder
	left int // how many may still be taken away at the beginning
	held int // characters held back, since they may be the end
	next joint
}

func (l *stripLink) write(token string) {
	for l.left > 0 && token != "" {
		rest, ok := strings.CutPrefix(token, l.content)
		if !ok {
			l.left = 0
			break
		}
		token = rest
		l.left--
	}
	if token == "" {
		return
	}
	body, n := token, 0
	for n < l.stop {
		rest, ok := strings.CutSuffix(body, l.content)
		if !ok {
			break
		}
		body = rest
		n++
	}
	if body == "" { // nothing but what may be the end
		if more := l.held + n - l.stop; more > 0 {
			l.next.write(strings.Repeat(l.content, more))
			n -= more
		}
		l.held += n
		return
	}
	l.next.write(strings.Repeat(l.content, l.held) + body)
	l.held = n
}

func (l *stripLink) flush() { l.next.flush() }

type bpeDecoder string

// link holds one token back, since the last one is treated otherwise.
func (n bpeDecoder) link(_ bool, next joint) joint { return &suffixLink{suffix: string(n), next: next} }

type suffixLink struct {
	suffix string
	held   string
	any    bool
	next   joint
}

func (l *suffixLink) write(token string) {
	if l.any {
		l.next.write(strings.ReplaceAll(l.held, l.suffix, " "))
	}
	l.held, l.any = token, true
}

func (l *suffixLink) flush() {
	if l.any {
		l.next.write(strings.ReplaceAll(l.held, l.suffix, ""))
	}
	l.next.flush()
}

type ctc struct {
	pad, delimiter string
	cleanup        bool
}

func (n *ctc) link(_ bool, next joint) joint { return &ctcLink{ctc: n, next: next} }

// ctcLink leaves out tokens that repeat.
type ctcLink struct {
	*ctc
	last string
	any  bool
	next joint
}

func (l *ctcLink) write(token string) {
	if l.any && token == l.last {
		return
	}
	l.last, l.any = token, true
	token = strings.ReplaceAll(token, l.pad, "")
	if l.cleanup {
		token = strings.ReplaceAll(cleanUp(token), l.delimiter, " ")
	}
	if token != "" {
		l.next.write(token)
	}
}

func (l *ctcLink) flush() { l.next.flush() }
