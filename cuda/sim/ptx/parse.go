package ptx

import (
	"fmt"
	"slices"
	"strings"
)

// What a module may have at most: more than GPUs allow, or than any kernel here needs.
const (
	maxRegisters      = 1 << 16
	maxParameterBytes = 4096
	maxVariableBytes  = 1 << 20
	maxSharedBytes    = 228 << 10
	maxDepth          = 64
)

// A Module is parsed PTX. It is for one goroutine at a time.
type Module struct {
	// Version is the ISA's, as in 78 for 7.8; Target the architecture, as in 70 for sm_70 and 90 for sm_90a.
	Version, Target int
	// Only says that no other architecture has what it may use, as for sm_90a.
	Only bool

	functions map[string]*function
	order     []string // of the entries
	variables map[string]variable
	// constants holds the variables in global memory.
	constants   []byte
	sharedBytes int
	linked      map[string]*Kernel
	grouped     bool // there are products of warpgroups
}

// A space is where a variable lies.
type space uint8

const (
	inGeneric space = iota
	inGlobal
	inShared
	inLocal
	inParameter
)

// A variable is named memory.
type variable struct {
	in     space
	offset uint64
	bytes  int
	// dynamic is shared memory whose size the launch says.
	dynamic bool
}

// A function is an entry or what entries call.
type function struct {
	name       string
	entry      bool
	results    []declaration
	parameters []declaration
	body       []statement
	line       int
}

// A declaration is one of registers or of a variable.
type declaration struct {
	space  string // ".reg", ".param", …
	name   string
	bits   int // of an element
	align  int
	count  int // of elements, or of registers name0 … where ranged
	array  bool
	ranged bool
	pred   bool
	line   int
}

func (d declaration) bytes() int { return max(d.bits/8, 1) * d.count }

// A parser goes through tokens.
type parser struct {
	list []token
	at   int
	m    *Module
}

// failure carries a SyntaxError up.
type failure struct{ err *SyntaxError }

func (p *parser) fail(format string, args ...any) {
	panic(failure{&SyntaxError{Line: int(p.peek().line), Reason: fmt.Sprintf(format, args...)}})
}

// recovered turns a failure into an error.
func recovered(err *error) {
	switch r := recover().(type) {
	case nil:
	case failure:
		*err = r.err
	default:
		panic(r)
	}
}

// Parse reads a module. The error is a *SyntaxError. What instructions mean is looked at by [Module.Kernel].
func Parse(text []byte) (m *Module, err error) {
	list, err := lex(string(text))
	if err != nil {
		return nil, err
	}
	defer recovered(&err)
	p := &parser{list: list, m: &Module{
		functions: make(map[string]*function), variables: make(map[string]variable), linked: make(map[string]*Kernel),
	}}
	for p.peek().kind != tokenEnd {
		p.top()
	}
	if p.m.Version == 0 || p.m.Target == 0 {
		p.fail("there is no version and target: this is no PTX")
	}
	return p.m, nil
}

// Kernels returns the names of the entries, as they come.
func (m *Module) Kernels() []string { return slices.Clone(m.order) }

func (p *parser) peek() token { return p.list[p.at] }

func (p *parser) next() token {
	t := p.list[p.at]
	if t.kind != tokenEnd {
		p.at++
	}
	return t
}

// take goes over a mark if it comes next.
func (p *parser) take(mark byte) bool {
	if p.peek().kind == mark {
		p.next()
		return true
	}
	return false
}

func (p *parser) want(mark byte) {
	if !p.take(mark) {
		p.fail("%q where %q must be", p.peek().text, mark)
	}
}

func (p *parser) word() string {
	if p.peek().kind != tokenWord {
		p.fail("%q where a name must be", p.peek().text)
	}
	return p.next().text
}

// count reads a number of at most a limit.
func (p *parser) count(limit int) int {
	v, ok := number(p.peek().text)
	if p.peek().kind != tokenNumber || !ok || v > uint64(limit) {
		p.fail("%q where a number up to %d must be", p.peek().text, limit)
	}
	p.next()
	return int(v)
}

// top reads what stands outside of functions.
func (p *parser) top() {
	first := p.peek()
	switch word := p.word(); word {
	case ".version":
		t := p.next()
		var major, minor int
		if _, err := fmt.Sscanf(t.text, "%d.%d", &major, &minor); err != nil || major < 1 || major > 99 || minor < 0 ||
			minor > 9 {
			p.fail("version %q", t.text)
		}
		p.m.Version = major*10 + minor
	case ".target":
		name := p.word()
		if _, err := fmt.Sscanf(name, "sm_%d", &p.m.Target); err != nil || p.m.Target < 1 {
			p.fail("target %q", name)
		}
		p.m.Only = strings.HasSuffix(name, "a")
		for p.take(',') {
			p.word()
		}
	case ".address_size":
		if p.count(64) != 64 {
			p.fail("addresses must have 64 bits")
		}
	case ".visible", ".weak", ".extern":
	case ".entry":
		p.function(true, int(first.line))
	case ".func":
		p.function(false, int(first.line))
	case ".global", ".const", ".shared":
		d := p.declaration(word)
		p.variable(d)
	default:
		p.fail("%s is not known", word)
	}
}

// declaration reads what comes after the word of a space: alignment, type, name, size.
func (p *parser) declaration(in string) declaration {
	d := declaration{space: in, align: 0, count: 1, line: int(p.peek().line)}
	for {
		word := p.word()
		switch {
		case word == ".align":
			d.align = p.count(1024)
			if d.align&(d.align-1) != 0 || d.align == 0 {
				p.fail("an alignment of %d", d.align)
			}
			continue
		case word == ".ptr" || word == ".global" || word == ".noreturn":
			continue
		case word == ".v2" || word == ".v4":
			p.fail("vectors of variables are not known")
		case word == ".pred":
			d.bits, d.pred = 1, true
		default:
			t, ok := parseType(strings.TrimPrefix(word, "."))
			if !ok || word[0] != '.' {
				p.fail("%s is no type", word)
			}
			d.bits = t.bits
		}
		break
	}
	d.name = p.word()
	switch {
	case p.take('<'):
		d.ranged = true
		d.count = p.count(maxRegisters)
		p.want('>')
	case p.take('['):
		d.array = true
		d.count = 0
		if p.peek().kind == tokenNumber {
			d.count = p.count(maxVariableBytes)
		}
		p.want(']')
	}
	if d.align == 0 {
		d.align = max(d.bits/8, 1)
	}
	return d
}

// variable places a variable of the module.
func (p *parser) variable(d declaration) {
	if _, twice := p.m.variables[d.name]; twice {
		p.fail("%s is there twice", d.name)
	}
	if d.space == ".shared" {
		v := variable{in: inShared, bytes: d.bytes(), dynamic: d.array && d.count == 0}
		if !v.dynamic {
			p.m.sharedBytes = rounded(p.m.sharedBytes, d.align)
			v.offset = uint64(p.m.sharedBytes)
			p.m.sharedBytes += v.bytes
			if p.m.sharedBytes > maxSharedBytes {
				p.fail("%d bytes of shared memory", p.m.sharedBytes)
			}
		}
		p.m.variables[d.name] = v
		p.want(';')
		return
	}
	at := rounded(len(p.m.constants), d.align)
	if at+d.bytes() > maxVariableBytes {
		p.fail("%d bytes of variables", at+d.bytes())
	}
	p.m.constants = append(p.m.constants, make([]byte, at+d.bytes()-len(p.m.constants))...)
	p.m.variables[d.name] = variable{in: inGlobal, offset: constantBase + uint64(at), bytes: d.bytes()}
	if p.take('=') {
		braces := p.take('{')
		for i := 0; ; i++ {
			negative := p.take('-')
			v, ok := number(p.peek().text)
			if !ok || i >= d.count {
				p.fail("%q where a value of %s must be", p.peek().text, d.name)
			}
			p.next()
			if negative {
				v = -v
			}
			size := max(d.bits/8, 1)
			for k := range size {
				p.m.constants[at+i*size+k] = byte(v >> (8 * k))
			}
			if !braces || !p.take(',') {
				break
			}
		}
		if braces {
			p.want('}')
		}
	}
	p.want(';')
}

func rounded(n, to int) int { return (n + to - 1) / to * to }

// parameters reads a list of declarations in brackets.
func (p *parser) parameters() []declaration {
	var list []declaration
	if p.take(')') {
		return nil
	}
	for {
		if word := p.word(); word != ".param" {
			p.fail("%s where a parameter must be", word)
		}
		list = append(list, p.declaration(".param"))
		if !p.take(',') {
			break
		}
	}
	p.want(')')
	return list
}

// function reads an entry or a function, or the announcement of one.
func (p *parser) function(entry bool, line int) {
	f := &function{entry: entry, line: line}
	if p.take('(') {
		f.results = p.parameters()
	}
	f.name = p.word()
	if p.take('(') {
		f.parameters = p.parameters()
	}
	for p.peek().kind == tokenWord { // .maxntid 256, 1, 1 and the like
		p.word()
		for p.peek().kind == tokenNumber {
			p.next()
			if !p.take(',') {
				break
			}
		}
	}
	if p.take(';') {
		return
	}
	p.want('{')
	if old, twice := p.m.functions[f.name]; twice {
		p.fail("%s is there twice, first in line %d", f.name, old.line)
	}
	p.m.functions[f.name] = f
	if entry {
		p.m.order = append(p.m.order, f.name)
	}
	for depth := 1; depth > 0; {
		line := int(p.peek().line)
		switch {
		case p.take('{'):
			if depth++; depth > maxDepth {
				p.fail("too deep")
			}
			f.body = append(f.body, statement{kind: isOpen, line: line})
		case p.take('}'):
			depth--
			f.body = append(f.body, statement{kind: isClose, line: line})
		default:
			p.statement(f)
		}
	}
}
