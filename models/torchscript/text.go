package torchscript

import (
	"strconv"
	"strings"
)

// stringFuncs take a text first. Texts are bytes, as in the language.
var stringFuncs map[string]builtin

func init() {
	stringFuncs = map[string]builtin{
		"aten::len":          func(c *invocation) (any, bool) { return len(c.subject()), true },
		"aten::add":          func(c *invocation) (any, bool) { return c.made(c.subject() + c.str(1, "b")), true },
		"aten::mul":          func(c *invocation) (any, bool) { return c.repeatText(c.subject(), c.int(1, "n")), true },
		"aten::slice":        sliceFunc,
		"aten::__getitem__":  func(c *invocation) (any, bool) { return c.index(c.subject(), c.int(1, "index")), true },
		"prim::StringIndex":  func(c *invocation) (any, bool) { return c.index(c.subject(), c.int(1, "index")), true },
		"aten::__contains__": func(c *invocation) (any, bool) { return strings.Contains(c.subject(), c.str(1, "key")), true },
		"aten::lower":        mapped(strings.ToLower),
		"aten::upper":        mapped(strings.ToUpper),
		"aten::capitalize": mapped(func(s string) string {
			if s == "" {
				return s
			}
			return strings.ToUpper(s[:1]) + strings.ToLower(s[1:])
		}),
		"aten::strip":      trimmed(strings.Trim),
		"aten::lstrip":     trimmed(strings.TrimLeft),
		"aten::rstrip":     trimmed(strings.TrimRight),
		"aten::startswith": func(c *invocation) (any, bool) { return strings.HasPrefix(c.window(), c.str(1, "substr")), true },
		"aten::endswith":   func(c *invocation) (any, bool) { return strings.HasSuffix(c.window(), c.str(1, "substr")), true },
		"aten::find":       func(c *invocation) (any, bool) { return c.search(strings.Index), true },
		"aten::rfind":      func(c *invocation) (any, bool) { return c.search(strings.LastIndex), true },
		"aten::index":      func(c *invocation) (any, bool) { return c.mustSearch(strings.Index), true },
		"aten::rindex":     func(c *invocation) (any, bool) { return c.mustSearch(strings.LastIndex), true },
		"aten::count":      func(c *invocation) (any, bool) { return strings.Count(c.window(), c.str(1, "substr")), true },
		"aten::replace":    replaceText,
		"aten::split":      splitText,
		"aten::splitlines": func(c *invocation) (any, bool) {
			c.grow(strings.Count(c.subject(), "\n"))
			return c.texts(strings.Split(strings.TrimSuffix(c.subject(), "\n"), "\n")), true
		},
		"aten::join": joinTexts,
		"aten::list": func(c *invocation) (any, bool) {
			s := c.subject()
			c.grow(len(s))
			l := &list{}
			for i := range len(s) {
				l.elems = append(l.elems, s[i:i+1])
			}
			return l, true
		},
		"aten::isdigit":   every('0', '9', '0', '9'),
		"aten::isdecimal": every('0', '9', '0', '9'),
		"aten::isnumeric": every('0', '9', '0', '9'),
		"aten::isalpha":   every('a', 'z', 'A', 'Z'),
		"aten::isspace":   every('\t', '\r', ' ', ' '),
		"aten::isupper": func(c *invocation) (any, bool) {
			s := c.subject()
			return strings.ToUpper(s) == s && strings.ToLower(s) != s, true
		},
		"aten::islower": func(c *invocation) (any, bool) {
			s := c.subject()
			return strings.ToLower(s) == s && strings.ToUpper(s) != s, true
		},
		"aten::zfill": func(c *invocation) (any, bool) { return c.padded(1, "0", c.int(1, "width")), true },
		"aten::rjust": func(c *invocation) (any, bool) { return c.padded(1, c.fillChar(), c.int(1, "width")), true },
		"aten::ljust": func(c *invocation) (any, bool) { return c.padded(-1, c.fillChar(), c.int(1, "width")), true },
		"aten::Int":   func(c *invocation) (any, bool) { return c.toInt(c.args[0]), true },
		"aten::Float": func(c *invocation) (any, bool) {
			x, err := strconv.ParseFloat(strings.TrimSpace(c.subject()), 64)
			if err != nil {
				c.fail("float of %.100q", c.subject())
			}
			return x, true
		},
		"aten::ord": func(c *invocation) (any, bool) {
			if len(c.subject()) != 1 {
				c.fail("ord of %d characters", len(c.subject()))
			}
			return int(c.subject()[0]), true
		},
		"aten::lt": func(c *invocation) (any, bool) { return c.subject() < c.str(1, "b"), true },
		"aten::gt": func(c *invocation) (any, bool) { return c.subject() > c.str(1, "b"), true },
		"aten::le": func(c *invocation) (any, bool) { return c.subject() <= c.str(1, "b"), true },
		"aten::ge": func(c *invocation) (any, bool) { return c.subject() >= c.str(1, "b"), true },
	}
}

// subject is the text that a function is called on. Looking through it is paid for.
//
//go:noinline
func (c *invocation) subject() string {
	s := c.args[0].(string)
	c.tick(len(s) / valueBytes)
	return s
}

// made pays for a text.
func (m *machine) made(s string) string {
	m.charge(int64(len(s)))
	return s
}

func mapped(f func(string) string) builtin {
	return func(c *invocation) (any, bool) { return c.made(f(c.subject())), true }
}

func trimmed(f func(s, cutset string) string) builtin {
	return func(c *invocation) (any, bool) {
		cut := " \n\t\f\v"
		if _, ok := c.arg(1, "chars"); ok {
			cut = c.str(1, "chars")
		}
		return f(c.subject(), cut), true
	}
}

// repeatText returns n copies of a text.
func (m *machine) repeatText(s string, n int) string {
	if n <= 0 || s == "" {
		return ""
	}
	if int64(n) > m.bytes/int64(len(s)) {
		m.limit("a text repeated %d times", n)
	}
	m.charge(int64(len(s)) * int64(n))
	return strings.Repeat(s, n)
}

// window returns the part of the text that start and end leave.
func (c *invocation) window() string {
	s := c.subject()
	low, high := c.bounds(len(s))
	return s[low:high]
}

func (c *invocation) bounds(n int) (low, high int) {
	low, high = c.intOr(2, "start", 0), c.intOr(3, "end", -1)
	if high < 0 {
		high += n + 1 // the default −1 is the end
	}
	if low < 0 {
		low += n
	}
	low, high = max(0, min(low, n)), max(0, min(high, n))
	return low, max(low, high)
}

func (c *invocation) search(find func(s, substr string) int) int {
	s := c.subject()
	low, high := c.bounds(len(s))
	at := find(s[low:high], c.str(1, "substr"))
	if at >= 0 {
		at += low
	}
	return at
}

func (c *invocation) mustSearch(find func(s, substr string) int) int {
	at := c.search(find)
	if at < 0 {
		c.fail("index: %.100q is not in the text", c.args[1])
	}
	return at
}

func replaceText(c *invocation) (any, bool) {
	s, old, with := c.subject(), c.str(1, "old"), c.str(2, "new")
	n := c.intOr(3, "max", -1)
	count := strings.Count(s, old)
	if n >= 0 {
		count = min(n, count)
	}
	c.charge(int64(len(s)))
	if len(with) > 0 && int64(count) > c.bytes/int64(len(with)) {
		c.limit("a text with %d replacements", count)
	}
	c.charge(int64(count) * int64(len(with)))
	return strings.Replace(s, old, with, n), true
}

func splitText(c *invocation) (any, bool) {
	sep, ok := c.arg(1, "separator")
	if !ok || sep == nil {
		c.grow(len(c.subject()) / 2) // at most so many words
		return c.texts(strings.Fields(c.subject())), true
	}
	n := c.intOr(2, "max", -1)
	if n >= 0 {
		n++
	}
	if c.str(1, "separator") == "" {
		c.fail("split at an empty text")
	}
	c.grow(strings.Count(c.subject(), c.str(1, "separator")))
	return c.texts(strings.SplitN(c.subject(), c.str(1, "separator"), n)), true
}

// texts makes a list of texts, whose number was paid for.
func (m *machine) texts(parts []string) *list {
	m.grow(len(parts))
	l := &list{elems: make([]any, len(parts))}
	for i, p := range parts {
		l.elems[i] = p
	}
	return l
}

func joinTexts(c *invocation) (any, bool) {
	sep := c.subject()
	var b strings.Builder
	for i, e := range c.list(1, "values").elems {
		s, ok := e.(string)
		if !ok {
			c.wrong("values", e)
		}
		c.tick(1)
		c.charge(int64(len(s) + len(sep)))
		if i > 0 {
			b.WriteString(sep)
		}
		b.WriteString(s)
	}
	return b.String(), true
}

// every reports whether a text has bytes of two ranges only, and at least one.
func every(low1, high1, low2, high2 byte) builtin {
	return func(c *invocation) (any, bool) {
		s := c.subject()
		for i := range len(s) {
			if b := s[i]; (b < low1 || b > high1) && (b < low2 || b > high2) {
				return false, true
			}
		}
		return s != "", true
	}
}

func (c *invocation) fillChar() string {
	if _, ok := c.arg(2, "fillchar"); !ok {
		return " "
	}
	s := c.str(2, "fillchar")
	if len(s) != 1 {
		c.fail("a fill character of %d", len(s))
	}
	return s
}

// padded fills a text up on the left (side 1) or right (−1).
func (c *invocation) padded(side int, fill string, width int) string {
	s := c.subject()
	pad := c.repeatText(fill, width-len(s))
	c.charge(int64(len(s)))
	if side > 0 {
		return pad + s // zeros before a sign too, unlike Python's zfill
	}
	return s + pad
}
