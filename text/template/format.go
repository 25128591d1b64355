package template

import (
	"math"
	"math/big"
	"strconv"
	"strings"

	"github.com/optimem/optimem/text/template/internal/python"
)

// A layout is how a value is written: a conversion of % or a specification of format.
type layout struct {
	fill        string
	align       byte // < > = ^
	sign        byte // + - or a space
	alternate   bool
	zero        bool
	width       int64
	comma       string // between thousands
	precision   int    // -1: none
	verb        byte   // 0: the type's own
	percentSign bool   // written by %: strings go to the right
}

const maxPrecision = 1000

// percent is s % right.
func (in *interp) percent(s string, right any) (any, error) {
	p := percentFormat{text: s, right: right, args: []any{right}}
	if t, ok := right.(*tuple); ok {
		p.args = t.items
	}
	var b strings.Builder
	for ; p.at < len(s); p.at++ {
		if s[p.at] != '%' {
			b.WriteByte(s[p.at])
			continue
		}
		p.at++
		verb, v, l, err := p.conversion()
		if err != nil {
			return nil, err
		}
		if verb == '%' {
			b.WriteByte('%')
			continue
		}
		text, err := in.percentOne(verb, v, l)
		if err != nil {
			return nil, err
		}
		if err := in.take(len(text)); err != nil {
			return nil, err
		}
		b.WriteString(text)
	}
	// What can be subscripted might have been a mapping.
	spare := isA[*Object](right) || isA[*list](right) || isA[*span](right) || isUndefined(right)
	if p.used < len(p.args) && !spare {
		return nil, errorf(ErrRender, "not all arguments converted during string formatting")
	}
	return b.String(), in.take(len(s))
}

// A percentFormat reads the left side of an operator %, and hands out what is on the right.
type percentFormat struct {
	text  string
	at    int
	right any
	args  []any
	used  int
}

// next returns the next argument.
func (p *percentFormat) next() (any, error) {
	if p.used >= len(p.args) {
		return nil, errorf(ErrRender, "not enough arguments for format string")
	}
	p.used++
	return p.args[p.used-1], nil
}

// has reports whether the next character is one of some.
func (p *percentFormat) has(some string) bool {
	return p.at < len(p.text) && strings.IndexByte(some, p.text[p.at]) >= 0
}

// conversion reads a conversion behind its %, up to the letter, and returns that with the value and how it is laid out.
// There is no value for %%.
func (p *percentFormat) conversion() (verb byte, v any, l layout, err error) {
	l = layout{precision: -1, percentSign: true, align: '>', fill: " "}
	hasKey := p.has("(")
	if hasKey {
		if v, err = p.key(); err != nil {
			return 0, nil, l, err
		}
	}
	p.flags(&l)
	if l.width, err = p.count(); err != nil {
		return 0, nil, l, err
	}
	if l.width < 0 {
		l.width, l.align = -l.width, '<'
	}
	if p.has(".") {
		p.at++
		n, err := p.count()
		if err != nil {
			return 0, nil, l, err
		}
		l.precision = int(max(0, min(n, math.MaxInt32)))
	}
	for p.has("hlL") {
		p.at++
	}
	if p.at >= len(p.text) {
		return 0, nil, l, errorf(ErrRender, "incomplete format")
	}
	if verb = p.text[p.at]; verb != '%' && !hasKey {
		v, err = p.next()
	}
	return verb, v, l, err
}

// key reads a key in parentheses and returns its value.
func (p *percentFormat) key() (any, error) {
	end := strings.IndexByte(p.text[p.at:], ')')
	o, ok := p.right.(*Object)
	if end < 0 || !ok {
		return nil, errorf(ErrRender, "format requires a mapping")
	}
	name := p.text[p.at+1 : p.at+end]
	v, ok := o.Get(name)
	if !ok {
		return nil, errorf(ErrRender, "no key '%s' for a format", name)
	}
	p.at += end + 1
	return v, nil
}

// flags reads the flags of a conversion.
func (p *percentFormat) flags(l *layout) {
	for ; p.has("#0- +"); p.at++ {
		switch p.text[p.at] {
		case '#':
			l.alternate = true
		case '0':
			l.zero = true
		case '-':
			l.align = '<'
		case '+':
			l.sign = '+'
		case ' ':
			if l.sign == 0 {
				l.sign = ' '
			}
		}
	}
}

// count reads a number, or takes that of an argument.
func (p *percentFormat) count() (int64, error) {
	if p.has("*") {
		p.at++
		v, err := p.next()
		if err != nil {
			return 0, err
		}
		return wantInt("*", v)
	}
	from := p.at
	for p.has("0123456789") {
		p.at++
	}
	n, err := strconv.ParseInt("0"+p.text[from:p.at], 10, 32)
	if err != nil {
		return 0, errorf(ErrLimit, "a width of %s", p.text[from:p.at])
	}
	return n, nil
}

func (in *interp) percentOne(verb byte, v any, l layout) (string, error) {
	u, isUndefined := v.(*undefined)
	switch verb {
	case 's', 'r', 'a':
		var s string
		var err error
		if verb == 's' {
			s, err = in.str(v)
		} else {
			s, err = in.repr(v)
		}
		if _, marked := v.(markup); in.escaping && err == nil && !(marked && verb == 's') {
			s, err = in.escaped(s)
		}
		if err != nil {
			return "", err
		}
		if verb == 'a' && !python.IsASCII(s) {
			return "", errorf(ErrUnsupported, "%%a")
		}
		l.zero = false
		return in.justified(python.Truncated(s, l.precision), l)
	case 'c':
		if s, ok := v.(string); ok && runeCount(s) == 1 {
			return in.justified(s, l)
		}
		n, ok := integer(v)
		if !ok || n < 0 || n > 0x10ffff {
			return "", errorf(ErrRender, "%%c requires int or char")
		}
		l.zero = false
		return in.justified(string(rune(n)), l)
	case 'd', 'i', 'u', 'x', 'X', 'o':
		if isUndefined {
			return "", u.fail()
		}
		if f, ok := v.(float64); ok && verb != 'x' && verb != 'X' && verb != 'o' {
			var err error
			if v, err = truncate(f); err != nil {
				return "", err
			}
		}
		if _, ok := bigInteger(v); !ok {
			return "", errorf(ErrRender, "%%%c format: a real number is required, not %s", verb, typeName(v))
		}
		l.verb = verb
		if verb == 'i' || verb == 'u' {
			l.verb = 'd'
		}
		return in.number(v, l)
	case 'e', 'E', 'f', 'F', 'g', 'G':
		if isUndefined {
			return "", u.fail()
		}
		f, ok := number(v)
		if !ok {
			return "", errorf(ErrRender, "must be real number, not %s", typeName(v))
		}
		l.verb = verb
		return in.number(f, l)
	}
	return "", errorf(ErrRender, "unsupported format character '%c'", verb)
}

// truncate is int(f).
func truncate(f float64) (any, error) {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return nil, errorf(ErrRender, "cannot convert float %s to integer", python.FloatRepr(f))
	}
	b, _ := new(big.Float).SetFloat64(f).Int(nil)
	return small(b), nil
}

// justified fills a text up to the width.
func (in *interp) justified(s string, l layout) (string, error) {
	fill := l.fill
	if fill == "" {
		fill = " "
	}
	n := l.width - int64(runeCount(s))
	if n <= 0 {
		return s, nil
	}
	if n > in.opts.MemoryBytes {
		return "", in.take(int(in.opts.MemoryBytes) + 1)
	}
	if err := in.take(int(n) * len(fill)); err != nil {
		return "", err
	}
	before := n
	switch l.align {
	case '<':
		before = 0
	case '^':
		before = n / 2
	}
	return strings.Repeat(fill, int(before)) + s + strings.Repeat(fill, int(n-before)), nil
}

// number writes an int or a float.
func (in *interp) number(v any, l layout) (string, error) {
	if l.precision > maxPrecision {
		return "", errorf(ErrLimit, "a precision of %d", l.precision)
	}
	var digits, prefix, tail string
	negative := false
	if f, ok := v.(float64); ok {
		negative = math.Signbit(f) && !math.IsNaN(f)
		digits = python.FloatDigits(math.Abs(f), l.verb, l.precision, l.alternate)
		if i := strings.IndexAny(digits, ".e%"); i >= 0 && l.comma != "" {
			digits, tail = digits[:i], digits[i:]
		}
		if strings.Trim(digits, "0123456789.eE+-%") != "" {
			l.zero = l.zero && !l.percentSign
		}
	} else {
		b, _ := bigInteger(v)
		negative = b.Sign() < 0
		base := map[byte]int{'x': 16, 'X': 16, 'o': 8, 'b': 2}[l.verb]
		if base == 0 {
			base = 10
		}
		digits = new(big.Int).Abs(b).Text(base)
		if l.verb == 'X' {
			digits = strings.ToUpper(digits)
		}
		if l.alternate && base != 10 {
			prefix = "0" + string(l.verb)
		}
		if l.percentSign && l.precision > len(digits) {
			digits = strings.Repeat("0", l.precision-len(digits)) + digits
		}
	}
	sign := ""
	switch {
	case negative:
		sign = "-"
	case l.sign == '+' || l.sign == ' ':
		sign = string(l.sign)
	}
	if l.comma != "" {
		digits = python.Grouped(digits, l.comma)
	}
	if l.zero && l.align != '<' || l.align == '=' {
		fill := l.fill
		if l.zero && (l.percentSign || fill == "") {
			fill = "0"
		}
		if l.align != '>' || l.percentSign {
			inner := l
			inner.fill, inner.align = fill, '>'
			inner.width = l.width - int64(len(sign)+len(prefix))
			if l.comma != "" && fill == "0" {
				for int64(len(digits)+len(tail)) < inner.width {
					digits = python.Grouped("0"+strings.ReplaceAll(digits, l.comma, ""), l.comma)
				}
			}
			padded, err := in.justified(digits+tail, inner)
			return sign + prefix + padded, err
		}
	}
	return in.justified(sign+prefix+digits+tail, l)
}

func formatMethod(in *interp, s string, args []any, kwargs *Object) (any, error) {
	auto := 0
	return in.format(s, args, kwargs, &auto, 0)
}

func formatMapMethod(in *interp, s string, args []any, kwargs *Object) (any, error) {
	p, err := positional("format_map", args, kwargs, "mapping")
	if err != nil {
		return nil, err
	}
	o, ok := p[0].(*Object)
	if !ok {
		return nil, errorf(ErrRender, "format_map needs a mapping, not %s", typeName(p[0]))
	}
	auto := 0
	return in.format(s, nil, o, &auto, 0)
}

// format is str.format. auto is the next number of a field without one, -1 once fields have their own.
func (in *interp) format(s string, args []any, kwargs *Object, auto *int, depth int) (string, error) {
	if depth > 1 {
		return "", errorf(ErrRender, "max string recursion exceeded")
	}
	var b strings.Builder
	for s != "" {
		i := strings.IndexAny(s, "{}")
		if i < 0 {
			b.WriteString(s)
			break
		}
		b.WriteString(s[:i])
		c := s[i]
		s = s[i+1:]
		if s != "" && s[0] == c {
			b.WriteByte(c)
			s = s[1:]
			continue
		}
		if c == '}' {
			return "", errorf(ErrRender, "single '}' encountered in format string")
		}
		end, open := 0, 1
		for ; end < len(s); end++ {
			if s[end] == '{' {
				open++
			} else if s[end] == '}' {
				if open--; open == 0 {
					break
				}
			}
		}
		if open > 0 {
			return "", errorf(ErrRender, "single '{' encountered in format string")
		}
		text, err := in.field(s[:end], args, kwargs, auto, depth)
		if err != nil {
			return "", err
		}
		if err := in.take(len(text)); err != nil {
			return "", err
		}
		b.WriteString(text)
		s = s[end+1:]
	}
	return b.String(), in.take(b.Len())
}

func (in *interp) field(s string, args []any, kwargs *Object, auto *int, depth int) (string, error) {
	// A bracket may hold any character.
	end, inBrackets := 0, false
	for ; end < len(s); end++ {
		if s[end] == '[' {
			inBrackets = true
		} else if s[end] == ']' {
			inBrackets = false
		} else if !inBrackets && (s[end] == ':' || s[end] == '!') {
			break
		}
	}
	name, rest := s[:end], s[end:]
	v, err := in.fieldValue(name, args, kwargs, auto)
	if err != nil {
		return "", err
	}
	if strings.HasPrefix(rest, "!") {
		if len(rest) < 2 || len(rest) > 2 && rest[2] != ':' {
			return "", errorf(ErrRender, "expected ':' after conversion specifier")
		}
		switch rest[1] {
		case 's':
			v, err = in.str(v)
		case 'r':
			v, err = in.repr(v)
		default:
			err = errorf(ErrRender, "unknown conversion specifier '%c'", rest[1])
		}
		if err != nil {
			return "", err
		}
		rest = rest[2:]
	}
	spec, err := in.format(strings.TrimPrefix(rest, ":"), args, kwargs, auto, depth+1)
	if err != nil {
		return "", err
	}
	m, marked := v.(markup)
	switch {
	case !in.escaping:
		return in.formatted(v, spec)
	case marked && spec != "":
		return "", errorf(ErrRender, "a format for a string that is marked safe")
	case marked:
		return string(m), nil
	}
	text, err := in.formatted(v, spec)
	if err != nil {
		return "", err
	}
	return in.escaped(text)
}

func (in *interp) fieldValue(name string, args []any, kwargs *Object, auto *int) (any, error) {
	end := strings.IndexAny(name, ".[")
	if end < 0 {
		end = len(name)
	}
	first, rest := name[:end], name[end:]
	n, err := strconv.Atoi(first)
	if first == "" {
		if *auto < 0 {
			return nil, errorf(ErrRender, "cannot switch from manual field specification to automatic field numbering")
		}
		n, err = *auto, nil
		*auto++
	} else if err == nil {
		if *auto > 0 {
			return nil, errorf(ErrRender, "cannot switch from automatic field numbering to manual field specification")
		}
		*auto = -1
	}
	var v any
	if err == nil {
		if n < 0 || n >= len(args) {
			return nil, errorf(ErrRender, "replacement index %d out of range", n)
		}
		v = args[n]
	} else {
		var ok bool
		if v, ok = kwargs.Get(first); !ok {
			return nil, errorf(ErrRender, "no argument '%s' for a format", first)
		}
	}
	for rest != "" {
		if rest[0] == '.' {
			end := strings.IndexAny(rest[1:], ".[")
			if end < 0 {
				end = len(rest) - 1
			}
			if end == 0 {
				return nil, errorf(ErrRender, "empty attribute in format string")
			}
			if v, err = in.attr(v, rest[1:1+end]); err != nil {
				return nil, err
			}
			rest = rest[1+end:]
			continue
		}
		end := strings.IndexByte(rest, ']')
		if rest[0] != '[' || end < 2 {
			return nil, errorf(ErrRender, "a bracket is missing in format string")
		}
		var key any = rest[1:end]
		if i, err := strconv.Atoi(rest[1:end]); err == nil && i >= 0 {
			key = int64(i)
		}
		if v, err = in.getItem(v, key); err != nil {
			return nil, err
		}
		rest = rest[end+1:]
	}
	return v, nil
}

// formatted is format(v, spec).
func (in *interp) formatted(v any, spec string) (string, error) {
	if spec == "" {
		return in.str(v)
	}
	v = unmark(v)
	l, err := parseSpec(spec)
	if err != nil {
		return "", err
	}
	wrong := errorf(ErrRender, "a format '%s' for '%s'", spec, typeName(v))
	if b, ok := v.(bool); ok && l.verb == 0 {
		v, _ = integer(b)
	}
	switch n := v.(type) {
	case string:
		if l.verb != 0 && l.verb != 's' || l.sign != 0 || l.align == '=' || l.comma != "" || l.alternate {
			return "", wrong
		}
		if l.align == 0 {
			l.align = '<'
			if l.zero && l.fill == "" {
				l.fill = "0"
			}
		}
		return in.justified(python.Truncated(n, l.precision), l)
	case float64:
		if strings.IndexByte("\x00eEfFgG%", l.verb) < 0 {
			if l.verb != 'n' {
				return "", wrong
			}
			l.verb = 'g'
		}
		return in.aligned(n, l)
	}
	if _, ok := bigInteger(v); !ok {
		return "", wrong
	}
	switch {
	case strings.IndexByte("\x00dxXobn", l.verb) >= 0:
		if l.precision >= 0 {
			return "", wrong
		}
	case strings.IndexByte("eEfFgG%", l.verb) >= 0:
		f, _ := number(v)
		return in.aligned(f, l)
	case l.verb == 'c':
		n, ok := integer(v)
		if !ok || n < 0 || n > 0x10ffff || l.sign != 0 {
			return "", wrong
		}
		return in.justified(string(rune(n)), l)
	default:
		return "", wrong
	}
	return in.aligned(v, l)
}

func (in *interp) aligned(v any, l layout) (string, error) {
	if l.zero && l.align == 0 {
		l.align = '='
	}
	if l.align == 0 {
		l.align = '>'
	}
	if l.align != '=' {
		if l.zero && l.fill == "" {
			l.fill = "0"
		}
		l.zero = false
	}
	return in.number(v, l)
}

func parseSpec(s string) (layout, error) {
	l := layout{precision: -1}
	bad := errorf(ErrRender, "invalid format specifier '%s'", s)
	const aligns = "<>=^"
	if _, n := python.FirstRune(s); n > 0 && len(s) > n && strings.IndexByte(aligns, s[n]) >= 0 {
		l.fill, l.align, s = s[:n], s[n], s[n+1:]
	} else if strings.IndexByte(aligns, s[0]) >= 0 {
		l.align, s = s[0], s[1:]
	}
	one := func(set string) byte {
		if s != "" && strings.IndexByte(set, s[0]) >= 0 {
			c := s[0]
			s = s[1:]
			return c
		}
		return 0
	}
	l.sign = one("+- ")
	l.alternate = one("#") != 0
	l.zero = one("0") != 0
	count := func() (int64, bool) {
		n := len(s) - len(strings.TrimLeft(s, decimal))
		v, err := strconv.ParseInt("0"+s[:n], 10, 32)
		s = s[n:]
		return v, err == nil
	}
	var ok bool
	if l.width, ok = count(); !ok {
		return l, bad
	}
	if c := one(",_"); c != 0 {
		l.comma = string(c)
	}
	if one(".") != 0 {
		if s == "" || s[0] < '0' || s[0] > '9' {
			return l, bad
		}
		n, ok := count()
		if !ok {
			return l, bad
		}
		l.precision = int(n)
	}
	if len(s) > 1 {
		return l, bad
	}
	if s != "" {
		l.verb = s[0]
	}
	return l, nil
}
