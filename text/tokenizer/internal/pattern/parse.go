package pattern

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/optimem/optimem/text/tokenizer/internal/chars"
)

type kind uint8

const (
	kEmpty  kind = iota
	kSet         // one character of set
	kCat         // subs one after the other
	kAlt         // the first of subs that leads to a match
	kRepeat      // subs[0] from min to max times; max < 0 is without end
	kAssert      // assert
	kLook        // look-around
	kAtomic      // the first match of subs[0], never another
)

type greed uint8

const (
	greedy greed = iota
	lazy
	possessive
)

type assertion uint8

const (
	lineStart assertion = iota
	lineEnd
	textStart
	textEnd
	textEndNewline
	wordEdge
	notWordEdge
)

// A node of a pattern's tree.
type node struct {
	kind   kind
	set    set
	subs   []*node
	min    int
	max    int
	greed  greed
	assert assertion
	behind bool // look-around: what comes before
	negate bool
	offset int
}

// flags of a group, by Ruby's letters.
type flags struct{ fold, dotAll, extended bool }

type parser struct {
	src   string
	pos   int
	depth int
	folds int
}

func (p *parser) fail(problem string) error {
	return &Error{Pattern: p.src, Offset: p.pos, Problem: problem}
}

func (p *parser) refuse(problem string) error {
	return &Error{Pattern: p.src, Offset: p.pos, Problem: problem, Unsupported: true}
}

func (p *parser) parse() (*node, error) {
	if !utf8.ValidString(p.src) {
		return nil, p.fail("not valid UTF-8")
	}
	n, err := p.alternatives(flags{})
	if err == nil && p.pos < len(p.src) {
		err = p.fail("unmatched )")
	}
	return n, err
}

func (p *parser) more() bool { return p.pos < len(p.src) }

func (p *parser) peek(s string) bool { return strings.HasPrefix(p.src[p.pos:], s) }

func (p *parser) take(s string) bool {
	if p.peek(s) {
		p.pos += len(s)
		return true
	}
	return false
}

func (p *parser) rune() rune {
	r, size := utf8.DecodeRuneInString(p.src[p.pos:])
	p.pos += size
	return r
}

func (p *parser) alternatives(f flags) (*node, error) {
	if p.depth++; p.depth > maxDepth {
		return nil, p.refuse("groups too deep")
	}
	defer func() { p.depth-- }()
	alt := &node{kind: kAlt}
	for {
		n, err := p.sequence(&f)
		if err != nil {
			return nil, err
		}
		alt.subs = append(alt.subs, n)
		if !p.take("|") {
			break
		}
	}
	if len(alt.subs) == 1 {
		return alt.subs[0], nil
	}
	return alt, nil
}

// sequence reads up to | or ). A bare (?i) holds for the rest of the group, whose other alternatives are then read by
// it, as Oniguruma does.
func (p *parser) sequence(f *flags) (*node, error) {
	cat := &node{kind: kCat}
	for p.more() && !p.peek("|") && !p.peek(")") {
		if f.extended {
			if strings.IndexByte(" \t\n\r\f\v", p.src[p.pos]) >= 0 {
				p.pos++
				continue
			}
			if p.peek("#") {
				for p.more() && !p.peek("\n") {
					p.pos++
				}
				continue
			}
		}
		if p.take("(?#") {
			end := strings.IndexByte(p.src[p.pos:], ')')
			if end < 0 {
				return nil, p.fail("comment without end")
			}
			p.pos += end + 1
			continue
		}
		n, err := p.piece(f)
		if err != nil {
			return nil, err
		}
		cat.subs = append(cat.subs, n)
		if f.fold && expands(cat.subs) {
			return nil, p.refuse("letters that case folding joins")
		}
		if n.kind == kAlt && n.offset < 0 { // the rest of the group under a bare flag
			n.offset = 0
			break
		}
	}
	if len(cat.subs) == 1 {
		return cat.subs[0], nil
	}
	if len(cat.subs) == 0 {
		return &node{kind: kEmpty}, nil
	}
	return cat, nil
}

func (p *parser) piece(f *flags) (*node, error) {
	start := p.pos
	n, err := p.atom(f)
	if err != nil {
		return nil, err
	}
	if n.kind == kAlt && n.offset < 0 {
		return n, nil
	}
	for p.more() {
		lo, hi, interval, ok := p.repeat()
		if !ok {
			break
		}
		if n.kind == kAssert || n.kind == kLook {
			return nil, p.refuse("repeat of an assertion")
		}
		r := &node{kind: kRepeat, subs: []*node{n}, min: lo, max: hi, offset: start}
		switch {
		case p.peek("?") && interval && lo == hi:
			return nil, p.refuse("{n}? means what few expect")
		case p.take("?"):
			r.greed = lazy
		case !interval && p.take("+"):
			r.greed = possessive
		}
		if nullable(n) && (hi < 0 || hi > 1) {
			return nil, p.refuse("repeat of what may be empty")
		}
		n = r
	}
	return n, nil
}

// repeat reads *, +, ? or {n,m}. A brace that is no interval is plain text.
func (p *parser) repeat() (lo, hi int, interval, ok bool) {
	switch {
	case p.take("*"):
		return 0, -1, false, true
	case p.take("+"):
		return 1, -1, false, true
	case p.take("?"):
		return 0, 1, false, true
	case !p.peek("{"):
		return 0, 0, false, false
	}
	at := p.pos
	p.pos++
	lo, low := p.number()
	hi = lo
	high := low
	if p.take(",") {
		if hi, high = p.number(); !high {
			hi = -1
		}
	} else if !low {
		p.pos = at
		return 0, 0, false, false
	}
	if !p.take("}") || !low && !high || hi >= 0 && hi < lo {
		p.pos = at
		return 0, 0, false, false
	}
	return lo, hi, true, true
}

func (p *parser) number() (n int, ok bool) {
	for p.more() && p.src[p.pos] >= '0' && p.src[p.pos] <= '9' {
		n = min(n*10+int(p.src[p.pos]-'0'), maxProgram+1)
		p.pos++
		ok = true
	}
	return n, ok
}

func one(s set) *node { return &node{kind: kSet, set: s} }

// character is a single one, with its other cases if case is to be forgotten.
func character(r rune, f *flags) *node {
	s := set{r, r}
	if f.fold {
		s = s.folded()
	}
	return one(s)
}

func (p *parser) atom(f *flags) (*node, error) {
	switch r := p.rune(); r {
	case '(':
		return p.group(f)
	case '[':
		s, err := p.bracket(f, 0)
		if err != nil {
			return nil, err
		}
		return one(s), nil
	case '.':
		if f.dotAll {
			return one(set{0, unicode.MaxRune}), nil
		}
		return one(set{'\n', '\n'}.not()), nil
	case '^':
		return &node{kind: kAssert, assert: lineStart}, nil
	case '$':
		return &node{kind: kAssert, assert: lineEnd}, nil
	case '*', '+', '?':
		p.pos--
		return nil, p.fail("repeat of nothing")
	case '\\':
		return p.escape(f)
	default:
		return character(r, f), nil
	}
}

func (p *parser) group(f *flags) (*node, error) {
	inner := *f
	wrap := func(n *node) *node { return n }
	switch {
	case !p.take("?"):
		if p.peek("*") {
			return nil, p.refuse("callouts")
		}
	case p.take(":"):
	case p.take("="):
		wrap = func(n *node) *node { return &node{kind: kLook, subs: []*node{n}} }
	case p.take("!"):
		wrap = func(n *node) *node { return &node{kind: kLook, negate: true, subs: []*node{n}} }
	case p.take("<="):
		wrap = func(n *node) *node { return &node{kind: kLook, behind: true, subs: []*node{n}} }
	case p.take("<!"):
		wrap = func(n *node) *node { return &node{kind: kLook, behind: true, negate: true, subs: []*node{n}} }
	case p.take(">"):
		wrap = func(n *node) *node { return &node{kind: kAtomic, subs: []*node{n}} }
	case p.take("<"):
		end := strings.IndexByte(p.src[p.pos:], '>')
		if end <= 0 {
			return nil, p.fail("name of a group")
		}
		p.pos += end + 1
	default:
		bare, err := p.flags(&inner)
		if err != nil {
			return nil, err
		}
		if bare {
			n, err := p.alternatives(inner)
			if err != nil {
				return nil, err
			}
			return &node{kind: kAlt, subs: []*node{n}, offset: -1}, nil
		}
	}
	n, err := p.alternatives(inner)
	if err != nil {
		return nil, err
	}
	if !p.take(")") {
		return nil, p.fail("group without end")
	}
	return wrap(n), nil
}

// flags reads the letters of (?i) and (?i: up to the bracket or colon; it says which it was.
func (p *parser) flags(f *flags) (bare bool, err error) {
	on := true
	for p.more() {
		switch p.rune() {
		case '-':
			on = false
		case 'i':
			f.fold = on
		case 'm':
			f.dotAll = on
		case 'x':
			f.extended = on
		case ')':
			return true, nil
		case ':':
			return false, nil
		default:
			p.pos--
			return false, p.refuse("unknown kind of group")
		}
	}
	return false, p.fail("group without end")
}

func (p *parser) escape(f *flags) (*node, error) {
	if !p.more() {
		return nil, p.fail("ends in a backslash")
	}
	switch p.src[p.pos] {
	case 'A', 'z', 'Z', 'b', 'B':
		kinds := map[byte]assertion{
			'A': textStart, 'z': textEnd, 'Z': textEndNewline, 'b': wordEdge, 'B': notWordEdge,
		}
		p.pos++
		return &node{kind: kAssert, assert: kinds[p.src[p.pos-1]]}, nil
	case 'R':
		p.pos++
		pair := &node{kind: kCat, subs: []*node{one(set{'\r', '\r'}), one(set{'\n', '\n'})}}
		single := one(set{'\n', '\r', 0x85, 0x85, 0x2028, 0x2029})
		return &node{kind: kAtomic, subs: []*node{{kind: kAlt, subs: []*node{pair, single}}}}, nil
	case 'G', 'X', 'K', 'k', 'g', 'y', 'Y', 'N', 'O', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		return nil, p.refuse("\\" + string(p.src[p.pos]))
	}
	s, ok, err := p.escapedSet(f)
	if err != nil {
		return nil, err
	}
	if ok {
		return one(s), nil
	}
	r, err := p.escapedRune()
	if err != nil {
		return nil, err
	}
	return character(r, f), nil
}

// escapedSet reads what stands for several characters after a backslash.
func (p *parser) escapedSet(f *flags) (set, bool, error) {
	named := func(name string) set {
		ranges, _ := chars.Ranges(name)
		return ranges
	}
	c := p.src[p.pos]
	p.pos++
	switch c {
	case 's':
		return named("space"), true, nil
	case 'S':
		return set(named("space")).not(), true, nil
	case 'd':
		return named("nd"), true, nil
	case 'D':
		return set(named("nd")).not(), true, nil
	case 'w':
		return named("word"), true, nil
	case 'W':
		return set(named("word")).not(), true, nil
	case 'h':
		return set{'0', '9', 'A', 'F', 'a', 'f'}, true, nil
	case 'H':
		return set{'0', '9', 'A', 'F', 'a', 'f'}.not(), true, nil
	case 'p', 'P':
		if !p.take("{") {
			if p.more() {
				return nil, false, p.refuse("\\p without braces")
			}
			return nil, false, p.fail("\\p without a name")
		}
		end := strings.IndexByte(p.src[p.pos:], '}')
		if end < 0 {
			return nil, false, p.fail("property without end")
		}
		name := p.src[p.pos : p.pos+end]
		negate := c == 'P'
		if strings.HasPrefix(name, "^") {
			negate, name = !negate, name[1:]
		}
		ranges, ok := chars.Ranges(name)
		if !ok {
			return nil, false, p.refuse("property " + quote(name))
		}
		p.pos += end + 1
		s := set(ranges)
		if f.fold {
			if p.folds++; p.folds > maxFolds {
				return nil, false, p.refuse("so many sets without case")
			}
			s = s.folded()
		}
		if negate {
			s = s.not()
		}
		return s, true, nil
	}
	p.pos--
	return nil, false, nil
}

func (p *parser) escapedRune() (rune, error) {
	switch r := p.rune(); r {
	case 't':
		return '\t', nil
	case 'n':
		return '\n', nil
	case 'r':
		return '\r', nil
	case 'f':
		return '\f', nil
	case 'v':
		return '\v', nil
	case 'a':
		return '\a', nil
	case 'e':
		return 0x1B, nil
	case '0':
		return p.digits(8, 0, 2)
	case 'x':
		if p.take("{") {
			r, err := p.digits(16, 1, 8)
			if err == nil && !p.take("}") {
				err = p.fail("\\x{ without end")
			}
			return r, err
		}
		return p.digits(16, 0, 2)
	case 'u':
		return p.digits(16, 4, 4)
	case 'c', 'C', 'M', 'Q', 'E':
		return 0, p.refuse("\\" + string(r))
	case utf8.RuneError:
		return 0, p.fail("not a character")
	default:
		return r, nil
	}
}

func (p *parser) digits(base rune, least, most int) (rune, error) {
	var r rune
	n := 0
	for ; n < most && p.more(); n++ {
		d := rune(strings.IndexByte("0123456789abcdef", p.src[p.pos]|0x20))
		if c := p.src[p.pos]; c < '0' || c > '9' && c < 'A' || d < 0 || d >= base {
			break
		}
		if r = r*base + d; r > unicode.MaxRune {
			return 0, p.fail("not a code point")
		}
		p.pos++
	}
	if n < least || r >= 0xD800 && r < 0xE000 || base == 16 && most == 2 && r > 0x7F {
		return 0, p.refuse("not a character's number")
	}
	return r, nil
}

// posix are the names in [[:name:]].
var posix = map[string]set{
	"blank": {'\t', '\t', ' ', ' '}, "xdigit": {'0', '9', 'A', 'F', 'a', 'f'}, "ascii": {0, 0x7F},
}

// bracket reads a set after its [.
func (p *parser) bracket(f *flags, depth int) (set, error) {
	if depth > maxDepth {
		return nil, p.refuse("sets too deep")
	}
	negate := p.take("^")
	var s, before set
	intersect := false
	first := true
	for {
		if !p.more() {
			return nil, p.fail("set without end")
		}
		if p.peek("]") && !first {
			p.pos++
			break
		}
		first = false
		if p.take("&&") {
			if intersect {
				before = before.and(s.normal())
			} else {
				before, intersect = s.normal(), true
			}
			s = nil
			continue
		}
		if p.take("[:") {
			named, err := p.class()
			if err != nil {
				return nil, err
			}
			s = append(s, named...)
			continue
		}
		if p.take("[") {
			inner, err := p.bracket(f, depth+1)
			if err != nil {
				return nil, err
			}
			s = append(s, inner...)
			continue
		}
		lo, several, err := p.member(f)
		if err != nil {
			return nil, err
		}
		if several != nil {
			if p.peek("-") && !p.peek("-]") {
				return nil, p.fail("range from a set")
			}
			s = append(s, several...)
			continue
		}
		hi := lo
		if p.peek("-") && !p.peek("-]") {
			if hi, err = p.rangeEnd(f, lo); err != nil {
				return nil, err
			}
		}
		s = append(s, lo, hi)
	}
	s = s.normal()
	if intersect {
		s = before.and(s)
	}
	if f.fold {
		if p.folds++; p.folds > maxFolds {
			return nil, p.refuse("so many sets without case")
		}
		s = s.folded()
	}
	if negate {
		s = s.not()
	}
	return s, nil
}

// rangeEnd reads the end of a range of a set from its - on.
func (p *parser) rangeEnd(f *flags, lo rune) (rune, error) {
	p.pos++
	if p.peek("[") || p.peek("&&") {
		return 0, p.refuse("- before a set")
	}
	hi, several, err := p.member(f)
	if err != nil {
		return 0, err
	}
	if several != nil || hi < lo {
		return 0, p.fail("bad range")
	}
	return hi, nil
}

// class reads a named set of POSIX after its [:.
func (p *parser) class() (set, error) {
	end := strings.Index(p.src[p.pos:], ":]")
	if end < 0 {
		return nil, p.refuse("[: without :]")
	}
	name := strings.TrimPrefix(p.src[p.pos:p.pos+end], "^")
	named, ok := posix[name]
	if !ok {
		if name != "alpha" && name != "alnum" && name != "digit" && name != "space" && name != "word" {
			return nil, p.refuse("[:" + name + ":]")
		}
		var ranges []rune
		ranges, _ = chars.Ranges(name)
		named = ranges
	}
	if strings.HasPrefix(p.src[p.pos:], "^") {
		named = named.not()
	}
	p.pos += end + 2
	return named, nil
}

// member reads one character of a set, or an escape that stands for several.
func (p *parser) member(f *flags) (rune, set, error) {
	if !p.more() {
		return 0, nil, p.fail("set without end")
	}
	if !p.take(`\`) {
		return p.rune(), nil, nil
	}
	if !p.more() {
		return 0, nil, p.fail("ends in a backslash")
	}
	s, ok, err := p.escapedSet(f)
	if err != nil {
		return 0, nil, err
	}
	if ok {
		if s == nil {
			s = set{}
		}
		return 0, s, nil
	}
	if p.take("b") {
		return '\b', nil, nil
	}
	if c := p.src[p.pos]; c == 'R' || c == 'X' || c >= '1' && c <= '9' {
		return 0, nil, p.refuse("\\" + string(c) + " in a set")
	}
	r, err := p.escapedRune()
	return r, nil, err
}

// nullable reports whether a node may match nothing.
func nullable(n *node) bool {
	switch n.kind {
	case kSet:
		return false
	case kCat:
		for _, s := range n.subs {
			if !nullable(s) {
				return false
			}
		}
		return true
	case kAlt:
		for _, s := range n.subs {
			if nullable(s) {
				return true
			}
		}
		return false
	case kRepeat:
		return n.min == 0 || nullable(n.subs[0])
	case kAtomic:
		return nullable(n.subs[0])
	}
	return true
}

// plain returns the text of a pattern that is nothing but characters.
func plain(n *node) (string, bool) {
	switch n.kind {
	case kSet:
		if len(n.set) == 2 && n.set[0] == n.set[1] {
			return string(n.set[0]), true
		}
	case kCat:
		var b strings.Builder
		for _, s := range n.subs {
			text, ok := plain(s)
			if !ok {
				return "", false
			}
			b.WriteString(text)
		}
		return b.String(), true
	}
	return "", false
}

// expands reports whether the last node, alone or with the one before it, is among the letters that are several in another
// case: ß is SS, and ﬁ is fi.
func expands(subs []*node) bool {
	last := subs[len(subs)-1]
	text, ok := plain(&node{kind: kSet, set: smallest(last)})
	if !ok {
		return false
	}
	r, _ := utf8.DecodeRuneInString(text)
	switch {
	case r == 0xDF || r == 0x130 || r == 0x149 || r == 0x1F0 || r == 0x390 || r == 0x3B0 || r == 0x587,
		r >= 0x1E96 && r <= 0x1E9E, r >= 0x1F50 && r <= 0x1FFC, r >= 0xFB00 && r <= 0xFB17:
		return true
	}
	if len(subs) < 2 {
		return false
	}
	before, ok := plain(&node{kind: kSet, set: smallest(subs[len(subs)-2])})
	if !ok {
		return false
	}
	switch strings.ToLower(before + text) {
	case "ss", "st", "ff", "fi", "fl":
		return true
	}
	return false
}

// smallest is the first character of a node that is one character in several cases.
func smallest(n *node) set {
	if n.kind != kSet || len(n.set) == 0 || len(n.set) > 8 {
		return nil
	}
	for i := 0; i+1 < len(n.set); i += 2 {
		if n.set[i] != n.set[i+1] {
			return nil
		}
	}
	return set{n.set[0], n.set[0]}
}
