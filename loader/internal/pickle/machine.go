package pickle

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/nlpodyssey/gopickle/pickle"
	"github.com/nlpodyssey/gopickle/types"

	"github.com/optimem/optimem/loader/internal/fault"
)

// A machine is one run of gopickle's unpickler over what a verifier writes. Values that outlive the run point to it,
// so it lets go of everything at the end.
type machine struct {
	v       *verifier
	hooks   Hooks
	classes []*class
	indexes []*keyIndex
	err     error // the first error of a hook or of this package, which says more than gopickle's
}

// run builds the value.
func (m *machine) run() (value any, err error) {
	defer func() {
		if r := recover(); r != nil {
			// What passed the verifier does not make gopickle panic; a hook may still have a mistake.
			err = fault.New(fault.ErrFormat, m.v.at, "unpickling failed: %.200s", panicText(r))
		}
		for _, x := range m.indexes {
			*x = nil
		}
		m.v, m.hooks, m.indexes = nil, Hooks{}, nil
	}()
	if err := m.v.begin(); err != nil {
		return nil, err
	}
	u := pickle.NewUnpickler(&feed{v: m.v})
	u.FindClass = m.findClass
	u.PersistentLoad = m.persistent
	value, err = u.Load()
	switch {
	case err == nil:
		return value, nil
	case m.err != nil:
		return nil, m.err
	case isFault(err):
		return nil, err
	}
	return nil, &fault.Error{Class: fault.ErrFormat, Offset: m.v.at, Msg: "unpickling failed", Err: err}
}

func panicText(r any) string {
	switch r := r.(type) {
	case error:
		return r.Error()
	case string:
		return r
	}
	return "panic"
}

func isFault(err error) bool {
	var f *fault.Error
	return errors.As(err, &f)
}

// fail gives an error of a hook the place of the call.
func (m *machine) fail(what string, err error) error {
	if m.err == nil {
		var f *fault.Error
		class := fault.ErrFormat
		if errors.As(err, &f) {
			class = f.Class
		}
		m.err = &fault.Error{Class: class, Offset: m.v.at, Msg: what, Err: err}
	}
	return m.err
}

// findClass is what GLOBAL and INST give: the verifier writes a global's index for its name.
func (m *machine) findClass(_, name string) (any, error) {
	switch name {
	case dictClass, setClass, frozenSetClass:
		return &containerClass{m: m, name: name}, nil
	}
	i, err := strconv.Atoi(name)
	if err != nil || i < 0 || i >= len(m.v.globals) {
		return nil, fmt.Errorf("BUG: global %q", name)
	}
	for len(m.classes) <= i {
		m.classes = append(m.classes, nil)
	}
	if m.classes[i] == nil {
		g := &m.v.globals[i]
		m.classes[i] = &class{m: m, global: g.use.Global, use: g.use.Class, builtin: g.builtin}
	}
	return m.classes[i], nil
}

func (m *machine) persistent(id any) (any, error) {
	if m.hooks.Persistent == nil {
		return nil, m.fail("persistent id", errors.New("nothing resolves it"))
	}
	value, err := m.hooks.Persistent(id)
	if err != nil {
		return nil, m.fail("persistent id", err)
	}
	return &result{m: m, value: value}, nil
}

// A feed is the reader that the machine reads: canonical opcodes, each checked as it is asked for.
type feed struct {
	v   *verifier
	pos int
	err error
}

var (
	_ io.Reader     = (*feed)(nil)
	_ io.ByteReader = (*feed)(nil)
)

// more checks opcodes until one of them is something the machine must see.
func (f *feed) more() error {
	f.v.out, f.pos = f.v.out[:0], 0
	for f.err == nil && len(f.v.out) == 0 {
		if f.v.done {
			f.err = io.ErrUnexpectedEOF
			break
		}
		f.err = f.v.step()
	}
	return f.err
}

// ReadByte returns the next byte.
func (f *feed) ReadByte() (byte, error) {
	if f.pos == len(f.v.out) {
		if f.v.big.left > 0 {
			var p [1]byte
			_, err := f.Read(p[:])
			return p[0], err
		}
		if err := f.more(); err != nil {
			return 0, err
		}
	}
	f.pos++
	return f.v.out[f.pos-1], nil
}

// Read returns up to len(p) bytes, all of one opcode.
func (f *feed) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if f.pos == len(f.v.out) && f.v.big.left == 0 {
		if err := f.more(); err != nil {
			return 0, err
		}
	}
	if f.pos < len(f.v.out) {
		n := copy(p, f.v.out[f.pos:])
		f.pos += n
		return n, nil
	}
	if f.err != nil {
		return 0, f.err
	}
	chunk, err := f.v.bigChunk(int64(len(p)))
	if err != nil {
		f.err = err
		return 0, err
	}
	return copy(p, chunk), nil
}

// A class is a global as a value. It takes no part in a load that has ended.
type class struct {
	m       *machine
	global  Global
	use     Class
	builtin *builtin
}

var (
	_ types.Callable  = (*class)(nil)
	_ types.PyNewable = (*class)(nil)
)

// Call is what REDUCE, INST and OBJ do.
func (c *class) Call(args ...any) (any, error) {
	if c.m.v == nil || c.use != Data {
		return nil, fmt.Errorf("BUG: call of %s", c.global)
	}
	if c.builtin != nil {
		if c.builtin.call == nil {
			return nil, fmt.Errorf("BUG: call of %s", c.global)
		}
		value, err := c.builtin.call(c, args)
		if err != nil {
			return nil, c.m.fail(c.global.String(), err)
		}
		return value, nil
	}
	if c.m.hooks.Reduce == nil {
		return nil, c.m.fail(c.global.String(), fault.New(fault.ErrUnsupported, -1, "nothing rebuilds it"))
	}
	value, err := c.m.hooks.Reduce(c.global, args)
	if err != nil {
		return nil, c.m.fail(c.global.String(), err)
	}
	return &result{m: c.m, value: value}, nil
}

// PyNew is what NEWOBJ does.
func (c *class) PyNew(args ...any) (any, error) {
	if c.use == Data && (c.builtin == nil || c.builtin.call != nil) {
		return c.Call(args...)
	}
	if c.use != Data && c.use != Inert {
		return nil, fmt.Errorf("BUG: instance of %s", c.global)
	}
	return newInert(c, args), nil
}

// A result is what a hook returned, wrapped so that BUILD can reach it and any container can hold it.
type result struct {
	m     *machine
	value any
}

var _ types.PyStateSettable = (*result)(nil)

// PySetState is what BUILD does.
func (r *result) PySetState(state any) error {
	if r.m.hooks.Build == nil {
		return r.m.fail("BUILD", fault.New(fault.ErrUnsupported, -1, "a state for a rebuilt value"))
	}
	if err := r.m.hooks.Build(r.value, state); err != nil {
		return r.m.fail("BUILD", err)
	}
	return nil
}

// An inert is an Object with the methods that the machine needs, which readers of the Object should not.
type inert struct {
	Object
}

var (
	_ types.ListAppender    = (*inert)(nil)
	_ types.DictSetter      = (*inert)(nil)
	_ types.SetAdder        = (*inert)(nil)
	_ types.PyStateSettable = (*inert)(nil)
)

func newInert(c *class, args []any) *inert {
	return &inert{Object{class: c, args: slices.Clone(args)}}
}

func (o *inert) rest() *objectBody {
	if o.body == nil {
		o.body = new(objectBody)
	}
	return o.body
}

// Append is what APPEND and APPENDS do.
func (o *inert) Append(v any) { o.rest().items = append(o.rest().items, v) }

// Add is what ADDITEMS does.
func (o *inert) Add(v any) { o.Append(v) }

// Set is what SETITEM and SETITEMS do.
func (o *inert) Set(k, v any) {
	if o.rest().dict == nil {
		o.body.dict = o.class.m.newTable()
	}
	o.body.dict.Set(k, v)
}

// PySetState is what BUILD does.
func (o *inert) PySetState(state any) error {
	o.rest().state = state
	return nil
}
