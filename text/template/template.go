// Package template renders chat templates, which are written in Jinja, byte for byte like Python's jinja2 in the
// environment of transformers: an immutable sandbox with trim_blocks and lstrip_blocks, break and continue,
// {% generation %}, and a tojson that does not escape HTML and keeps the order of keys.
//
// Templates are untrusted. Rendering is bounded in steps, memory, output and depth, and every failure is an [*Error]
// with a line number. The package reads no files, and knows no tokenizer and no model.
//
// include, import, extends and autoescape are refused: a chat template stands alone.
//
//	t, err := template.Parse("{% for m in messages %}{{ m.role }}: {{ m.content | trim }}\n{% endfor %}")
//	text, err := t.Render(template.NewObject().Set("messages", messages), template.Options{})
package template

import (
	"errors"
	"fmt"
	"time"
)

// The classes of error, for errors.Is.
var (
	// ErrSyntax is a template that jinja2 would not compile.
	ErrSyntax = errors.New("syntax error")
	// ErrRender is a template that fails for these values: an undefined value, operands that do not fit.
	ErrRender = errors.New("rendering failed")
	// ErrRaised is a template that called raise_exception: it refuses the conversation.
	ErrRaised = errors.New("the template refuses")
	// ErrUnsafe is a template that reached for what the sandbox forbids.
	ErrUnsafe = errors.New("forbidden in a template")
	// ErrUnsupported is a part of jinja2 that this package does not have.
	ErrUnsupported = errors.New("not supported")
	// ErrLimit is a template or a value beyond a limit.
	ErrLimit = errors.New("limit exceeded")
)

// An Error says where in a template something went wrong.
type Error struct {
	Line  int   // from 1; 0 if it is not known
	Class error // one of the Err… above
	Text  string
}

// Error returns the message.
func (e *Error) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("template: %v: %s", e.Class, e.Text)
	}
	return fmt.Sprintf("template: line %d: %v: %s", e.Line, e.Class, e.Text)
}

// Unwrap returns the class.
func (e *Error) Unwrap() error { return e.Class }

//go:noinline
func errorf(class error, format string, args ...any) error {
	return &Error{Class: class, Text: fmt.Sprintf(format, args...)}
}

// at gives an error the line where it happened, unless it has one already.
func at(line int, err error) error {
	if e, ok := err.(*Error); ok && e.Line == 0 {
		return &Error{Line: line, Class: e.Class, Text: e.Text}
	}
	return err
}

// What a template may be.
const (
	maxSourceBytes = 1 << 20
	maxNesting     = 200  // of blocks and of brackets in an expression
	maxChain       = 2000 // operators in a row, which evaluate one inside the other
	maxEvals       = 8000 // expressions inside each other, through macros too: what the stack of a goroutine holds easily
)

// Options say what a rendering may cost, and what time it is. The zero value has the defaults.
type Options struct {
	// Steps bounds the nodes evaluated and the items iterated over. Default 5 million.
	Steps int64
	// MemoryBytes bounds the bytes of all values made on the way. Default 256 MiB.
	MemoryBytes int64
	// OutputBytes bounds the text. Default 32 MiB.
	OutputBytes int64
	// Depth bounds macros, loops and blocks inside each other. Default 200.
	Depth int
	// Now tells strftime_now the time. Default time.Now.
	Now func() time.Time
}

func (o Options) withDefaults() Options {
	if o.Steps <= 0 {
		o.Steps = 5_000_000
	}
	if o.MemoryBytes <= 0 {
		o.MemoryBytes = 256 << 20
	}
	if o.OutputBytes <= 0 {
		o.OutputBytes = 32 << 20
	}
	if o.Depth <= 0 {
		o.Depth = 200
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

// A Template is a parsed template. It may be rendered by many goroutines at once.
type Template struct {
	body   []stmt
	blocks map[string]*blockStmt
	hidden frames
}

// Parse reads a template.
func Parse(source string) (*Template, error) {
	if len(source) > maxSourceBytes {
		return nil, errorf(ErrLimit, "a template of %d bytes, more than %d", len(source), maxSourceBytes)
	}
	tokens, err := scan(source)
	if err != nil {
		return nil, err
	}
	p := &parser{tokens: tokens, blocks: make(map[string]*blockStmt)}
	body, err := p.body()
	if err != nil {
		return nil, err
	}
	if len(p.unknown) > 0 {
		return nil, p.unknown[0].err
	}
	t := &Template{body: body, blocks: p.blocks, hidden: make(frames)}
	t.hidden.frame(nil, nil, nil, body)
	return t, nil
}

// Render renders the template with these variables, whose values are copied: nil, bool, integers, floats, strings, []any,
// []string, *[Object], and map[string]any in the order of its sorted keys.
func (t *Template) Render(vars *Object, o Options) (string, error) {
	in := &interp{opts: o.withDefaults(), template: t}
	root := &scope{vars: make(map[string]any)}
	if vars != nil {
		copied, err := in.plain(vars, 0)
		if err != nil {
			return "", err
		}
		for i, k := range copied.(*Object).keys {
			root.vars[k.(string)] = copied.(*Object).values[i]
		}
	}
	in.root = in.open(root, nil)
	if _, err := in.run(t.body, in.root); err != nil {
		return "", err
	}
	return in.out.String(), nil
}
