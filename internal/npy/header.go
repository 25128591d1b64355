package npy

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/optimem/optimem/tensor"
)

// A header is what the literal in front of an array says.
type header struct {
	descr   string
	fortran bool
	shape   tensor.Shape
}

// parseHeader reads the literal. Keys may come in any order, each once.
func parseHeader(text string) (header, error) {
	p := literal{rest: text}
	var h header
	seen := make(map[string]bool)
	p.expect("{")
	for !p.accept("}") {
		key := p.text()
		p.expect(":")
		if seen[key] {
			p.fail("%q is there twice", key)
		}
		seen[key] = true
		switch key {
		case "descr":
			h.descr = p.descr()
		case "fortran_order":
			h.fortran = p.accept("True")
			if !h.fortran {
				p.expect("False")
			}
		case "shape":
			h.shape = p.tuple()
		default:
			p.fail("%q means nothing", key)
		}
		if !p.accept(",") {
			p.expect("}")
			break
		}
		if p.err != nil {
			break
		}
	}
	p.space()
	if p.rest != "" {
		p.fail("something follows it")
	}
	if p.err == nil && len(seen) != 3 {
		p.fail("a key is missing")
	}
	return h, p.err
}

// A literal is a Python literal that is being read. The first error stays, and nothing is left to read after it.
type literal struct {
	rest string
	err  error
}

func (p *literal) fail(format string, args ...any) {
	if p.err == nil {
		p.err = fmt.Errorf("%w: "+format, append([]any{ErrFormat}, args...)...)
	}
	p.rest = ""
}

func (p *literal) space() { p.rest = strings.TrimLeft(p.rest, " \t\r\n") }

func (p *literal) accept(token string) bool {
	p.space()
	after, ok := strings.CutPrefix(p.rest, token)
	p.rest = after
	return ok
}

func (p *literal) expect(token string) {
	if !p.accept(token) {
		p.fail("%q is missing", token)
	}
}

// text reads a string, which needs no escapes.
func (p *literal) text() string {
	p.space()
	if p.rest == "" || p.rest[0] != '\'' && p.rest[0] != '"' {
		p.fail("a string is missing")
		return ""
	}
	s, after, ok := strings.Cut(p.rest[1:], p.rest[:1])
	if !ok || strings.ContainsAny(s, "\\\n") {
		p.fail("a string does not end")
		return ""
	}
	p.rest = after
	return s
}

// descr reads a dtype; a list is one of several fields.
func (p *literal) descr() string {
	p.space()
	if strings.HasPrefix(p.rest, "[") || strings.HasPrefix(p.rest, "(") {
		p.err, p.rest = fmt.Errorf("%w: an array of structures", ErrUnsupported), ""
		return ""
	}
	return p.text()
}

// tuple reads a shape: (), (3,), (2, 3).
func (p *literal) tuple() tensor.Shape {
	shape := tensor.Shape{}
	p.expect("(")
	for !p.accept(")") && p.err == nil {
		if len(shape) == maxDims {
			p.fail("more than %d dimensions", maxDims)
		}
		end := strings.IndexFunc(p.rest, func(r rune) bool { return r < '0' || r > '9' })
		n, err := strconv.Atoi(p.rest[:max(end, 0)])
		if err != nil {
			p.fail("a dimension is missing or too large")
			break
		}
		p.rest = strings.TrimPrefix(p.rest[end:], "L") // Python 2
		shape = append(shape, n)
		if !p.accept(",") {
			if len(shape) == 1 {
				p.fail("a shape is a tuple")
			}
			p.expect(")")
			break
		}
	}
	return shape
}
