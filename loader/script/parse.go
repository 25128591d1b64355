package script

import (
	"iter"
	"math"
	"strings"
	"unsafe"

	"github.com/optimem/optimem/loader/internal/fault"
	"github.com/optimem/optimem/loader/internal/limit"
)

// Options bound what parsing may cost.
type Options struct {
	// Meter is charged for the tree, which takes about ten times the bytes of the code. Nil: unbounded.
	Meter *limit.Meter
	// Depth bounds the nesting of blocks, expressions and types together. 0: 200.
	Depth int
}

// defaultDepth is far above the few dozen levels of real programs, and small enough for recursive walks of the tree.
const defaultDepth = 200

// Parse parses the files of an archive, given by their names below code/ ("__torch__.py",
// "__torch__/torch/nn/modules/linear.py") and their text. The tree keeps parts of the text, for which the caller
// charges the meter.
//
// Its errors are of type *fault.Error, with the byte offset in the file, and name file, line and column: broken syntax
// is ErrFormat, Python that torch.jit.save does not write ErrUnsupported, what exceeds the options ErrLimit.
func Parse(files iter.Seq2[string, string], opt Options) (*Program, error) {
	if opt.Depth <= 0 {
		opt.Depth = defaultDepth
	}
	prog := &Program{Classes: make(map[string]*Class), Functions: make(map[string]*Function)}
	base := int64(1)
	for name, src := range files {
		if base+int64(len(src)) >= math.MaxInt32 {
			return nil, fault.New(fault.ErrLimit, -1, "%.200q: more than 2 GiB of code", name)
		}
		f := &File{Name: name, base: Pos(base)}
		base += int64(len(src)) + 1
		if err := parseFile(prog, f, src, opt); err != nil {
			return nil, err
		}
		prog.Files = append(prog.Files, f)
	}
	return prog, nil
}

func parseFile(prog *Program, f *File, src string, opt Options) (err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case bailout:
			err = r.err
		default:
			panic(r)
		}
	}()
	p := &parser{lexer: lexer{file: f, src: src, indents: []int{0}, maxDepth: opt.Depth, meter: opt.Meter}, prog: prog}
	p.charge(int64(unsafe.Sizeof(*f)) + slotBytes)
	p.newLine()
	p.qualifier = p.qualifierOf(f.Name)
	p.advance()
	p.parseDefs()
	return nil
}

// A parser is a recursive descent over the tokens of one file.
type parser struct {
	lexer
	prog      *Program
	qualifier string // of the file: "__torch__.torch.nn.modules.linear"
	tok       token  // the next token
	depth     int    // of the nesting around it
	exprs     []Expr // operands of the lists that are open, innermost last
	stmts     []Stmt // statements of the blocks that are open, innermost last
}

// slotBytes is charged with every node for its place in a list of its parent and for the allocator's rounding.
const slotBytes = 24

// mapEntryBytes is what a map from a string takes for an entry.
const mapEntryBytes = 64

// keep puts a node on the heap, where it is charged for.
func keep[T any](p *parser, node T) *T {
	p.charge(int64(unsafe.Sizeof(node)) + slotBytes)
	return &node
}

// push appends to a list whose length is not known beforehand, and charges for what the list may grow to.
func push[T any](p *parser, list []T, v T) []T {
	p.charge(2 * int64(unsafe.Sizeof(v)))
	return append(list, v)
}

// at is the position of byte offset off.
func (p *parser) at(off int) at { return at{p.file.base + Pos(off)} }

// enter counts a level of nesting that begins at the next token; leave ends it.
func (p *parser) enter() {
	p.depth++
	if p.depth > p.maxDepth {
		p.fail(fault.ErrLimit, p.tok.off, "code is nested more than %d deep", p.maxDepth)
	}
}

func (p *parser) leave() { p.depth-- }

//go:noinline
func (p *parser) advance() token {
	t := p.tok
	p.tok = p.next()
	return t
}

// got takes the next token if it is of the given kind.
func (p *parser) got(kind tokenKind) bool {
	if p.tok.kind != kind {
		return false
	}
	p.advance()
	return true
}

// isKeyword reports whether the next token is the given keyword.
func (p *parser) isKeyword(word string) bool { return p.tok.kind == tokKeyword && p.tok.text == word }

// expect takes the next token, which must be of the given kind, described by what.
func (p *parser) expect(kind tokenKind, what string) token {
	if p.tok.kind != kind {
		p.unexpected(what)
	}
	return p.advance()
}

// expectKeyword takes the next token, which must be the given keyword.
func (p *parser) expectKeyword(word string) token {
	if !p.isKeyword(word) {
		p.unexpected(`"` + word + `"`)
	}
	return p.advance()
}

// unexpected fails: the next token is not what the grammar wants there. An operator is well-formed Python that is not
// in the subset.
func (p *parser) unexpected(want string) {
	class := fault.ErrFormat
	switch p.tok.kind {
	case '+', '-':
		class = fault.ErrUnsupported
	case tokKeyword:
		switch p.tok.text {
		case "and", "await", "for", "if", "in", "is", "lambda", "not", "or", "yield":
			class = fault.ErrUnsupported
		}
	}
	p.fail(class, p.tok.off, "%s where %s is expected", p.tok, want)
}

// qualifierOf turns a file's name into the prefix of the names that the file defines.
func (p *parser) qualifierOf(name string) string {
	stem, ok := strings.CutSuffix(name, ".py")
	if !ok || stem == "" || strings.ContainsAny(stem, ".\\") {
		p.fail(fault.ErrFormat, 0, "file name is not that of a module")
	}
	for word := range strings.SplitSeq(stem, "/") {
		if word == "" {
			p.fail(fault.ErrFormat, 0, "file name is not that of a module")
		}
	}
	p.charge(int64(len(stem)))
	return strings.ReplaceAll(stem, "/", ".")
}

// qualified returns the qualified name of what the file defines under the given name.
func (p *parser) qualified(name string) string {
	p.charge(int64(len(p.qualifier)+len(name)) + slotBytes)
	return p.qualifier + "." + name
}

// list parses operands up to the closing bracket, which it takes. The opening one is taken already.
func (p *parser) list(end tokenKind, parse func() Expr) []Expr {
	mark := len(p.exprs)
	for p.tok.kind != end {
		p.exprs = append(p.exprs, parse())
		if !p.got(',') {
			break
		}
	}
	p.expect(end, `"," or "`+string(rune(end))+`"`)
	return p.popExprs(mark)
}

// popExprs returns the operands above mark as a list of exact size.
func (p *parser) popExprs(mark int) []Expr {
	var list []Expr
	if len(p.exprs) > mark {
		list = append(make([]Expr, 0, len(p.exprs)-mark), p.exprs[mark:]...)
	}
	clear(p.exprs[mark:])
	p.exprs = p.exprs[:mark]
	return list
}

// popStmts returns the statements above mark as a list of exact size.
func (p *parser) popStmts(mark int) []Stmt {
	var list []Stmt
	if len(p.stmts) > mark {
		list = append(make([]Stmt, 0, len(p.stmts)-mark), p.stmts[mark:]...)
	}
	clear(p.stmts[mark:])
	p.stmts = p.stmts[:mark]
	return list
}
