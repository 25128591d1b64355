package openai

import (
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strconv"
)

// params are the members of a request's object. Each is taken once; the first error is kept, and what nobody takes is one.
type params struct {
	members map[string]json.RawMessage
	err     error
}

// take returns a member, which is then no longer there.
func (p *params) take(name string) (json.RawMessage, bool) {
	raw, ok := p.members[name]
	delete(p.members, name)
	return raw, ok
}

// fail keeps the first error.
func (p *params) fail(err error) {
	if p.err == nil {
		p.err = err
	}
}

// decode takes a member into v, and reports whether it is there.
func (p *params) decode(name, what string, v any) bool {
	raw, ok := p.take(name)
	if !ok {
		return false
	}
	if err := json.Unmarshal(raw, v); err != nil {
		p.fail(invalid(name, "%s must be %s", name, what))
		return false
	}
	return true
}

// text takes a string, "" where there is none.
func (p *params) text(name string) string {
	var s string
	p.decode(name, "a string", &s)
	return s
}

// boolean takes a truth, false where there is none.
func (p *params) boolean(name string) bool {
	var b bool
	p.decode(name, "true or false", &b)
	return b
}

// number takes a number from least to most.
func (p *params) number(name string, least, most float64) (float64, bool) {
	var x float64
	if !p.decode(name, "a number", &x) {
		return 0, false
	}
	if !(x >= least && x <= most) {
		p.fail(invalid(name, "%s is %v: it must be from %v to %v", name, x, least, most))
		return 0, false
	}
	return x, true
}

// integer takes a whole number from least to most.
func (p *params) integer(name string, least, most int64) (int64, bool) {
	raw, ok := p.take(name)
	if !ok {
		return 0, false
	}
	x, err := strconv.ParseInt(string(raw), 10, 64)
	switch {
	case err != nil:
		p.fail(invalid(name, "%s must be a whole number", name))
	case x < least || x > most:
		p.fail(invalid(name, "%s is %d: it must be from %d to %d", name, x, least, most))
	default:
		return x, true
	}
	return 0, false
}

// only takes a member that may have one of some texts, which change nothing here.
func (p *params) only(name string, allowed ...string) {
	if s := p.text(name); s != "" && !slices.Contains(allowed, s) {
		p.fail(unsupported(name, "%s %q is not supported here", name, s))
	}
}

// drop takes members that change no answer.
func (p *params) drop(names ...string) {
	for _, name := range names {
		delete(p.members, name)
	}
}

// refuse fails where there is a member, with words about it.
func (p *params) refuse(name, why string) {
	if _, ok := p.take(name); ok {
		p.fail(unsupported(name, "%s is not supported here%s", name, why))
	}
}

// done returns the first error, which may be a member that nobody took.
func (p *params) done() error {
	if p.err != nil {
		return p.err
	}
	for _, name := range slices.Sorted(maps.Keys(p.members)) {
		e := unsupported(name, "unrecognized request argument: %s", strconv.Quote(name))
		return e
	}
	return nil
}

// maxInteger bounds counts, such as of tokens.
const maxInteger = math.MaxInt32

// has reports whether there is a member.
func (p *params) has(name string) bool {
	_, ok := p.members[name]
	return ok
}
