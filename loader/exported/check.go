package exported

import (
	"errors"
	"fmt"
	"slices"

	"github.com/optimem/optimem/loader/internal/fault"
	"github.com/optimem/optimem/tensor"
)

// check reports what would make the program mean nothing: values that are used before they are defined or defined
// twice, a signature of another graph, symbols that nothing binds.
func (p *Program) check(o Options) error {
	c := checker{opts: o, symbols: make(map[string]struct{})}
	for _, r := range p.Ranges {
		c.symbols[r.Symbol] = struct{}{}
	}
	if err := c.graph(p.Graph, "graph"); err != nil {
		return err
	}
	return p.checkSignature()
}

type checker struct {
	opts Options
	// symbols are those that a range, an input or a value binds; subgraphs see those of the graphs around them.
	symbols map[string]struct{}
}

func formatError(place, format string, args ...any) error {
	return fault.New(fault.ErrFormat, -1, "%s: %s", place, fmt.Sprintf(format, args...))
}

// placed puts a place before an error, which is one of the format unless it has a class.
func placed(place string, err error) error {
	var inner *fault.Error
	if errors.As(err, &inner) {
		return fault.New(inner.Class, -1, "%s: %s", place, inner.Msg)
	}
	return formatError(place, "%v", err)
}

// setEntryBytes is what a name in a set costs.
const setEntryBytes = 32

func (c *checker) graph(g *Graph, place string) error {
	defined := make(map[string]struct{}, len(g.TensorValues))
	for i, a := range g.Inputs {
		if err := c.define(g, defined, a); err != nil {
			return placed(fmt.Sprintf("%s: input %d", place, i), err)
		}
	}
	if err := c.bind(g); err != nil {
		return err
	}
	if err := c.shapes(g, place); err != nil {
		return err
	}
	for i := range g.Nodes {
		n := &g.Nodes[i]
		if err := c.node(g, defined, n); err != nil {
			return placed(fmt.Sprintf("%s: node %d (%s)", place, i, shorten(n.Target)), err)
		}
	}
	for i, a := range g.Outputs {
		if err := c.use(defined, a); err != nil {
			return placed(fmt.Sprintf("%s: output %d", place, i), err)
		}
	}
	return nil
}

func shorten(s string) string {
	if len(s) > 80 {
		return s[:80] + "…"
	}
	return s
}

func (c *checker) node(g *Graph, defined map[string]struct{}, n *Node) error {
	for _, in := range n.Inputs {
		if err := c.use(defined, in.Arg); err != nil {
			return err
		}
	}
	for _, out := range n.Outputs {
		if err := c.define(g, defined, out); err != nil {
			return err
		}
	}
	return nil
}

// use checks that the values of an input exist. Its errors from a subgraph are of package fault.
func (c *checker) use(defined map[string]struct{}, a Argument) error {
	if _, ok := defined[a.Name]; a.Tag == Tensor && ok { // most often
		return nil
	}
	for name := range a.Values {
		if _, ok := defined[name]; !ok {
			return fmt.Errorf("the value %s is used before it is defined", quote(name))
		}
	}
	return c.parts(a)
}

var errNameless = errors.New("a value without a name is used")

// parts checks that an input names its values, and its subgraphs, which see none of the values around them.
func (c *checker) parts(a Argument) error {
	switch a.Tag {
	case Tensor:
		if a.Name == "" {
			return errNameless
		}
	case Tensors:
		if slices.Contains(a.Data.([]string), "") {
			return errNameless
		}
	case NestedTensors:
		for _, names := range a.Data.([][]string) {
			if slices.Contains(names, "") {
				return errNameless
			}
		}
	case Subgraph:
		return c.graph(a.Data.(*Graph), "subgraph "+quote(a.Name))
	case Dict:
		for _, e := range a.Data.([]NamedArgument) {
			if err := c.parts(e.Arg); err != nil {
				return err
			}
		}
	}
	return nil
}

// define adds the values of an output.
func (c *checker) define(g *Graph, defined map[string]struct{}, a Argument) error {
	if a.Tag == Subgraph || a.Tag == Dict || a.Tag == Operator {
		return fmt.Errorf("%v defines no value", a.Tag)
	}
	if a.Tag == CustomObj {
		if _, dup := defined[a.Name]; dup {
			return fmt.Errorf("the value %s is defined twice", quote(a.Name))
		}
		defined[a.Name] = struct{}{}
		return c.opts.Meter.Charge(setEntryBytes)
	}
	for name := range a.Values {
		if _, dup := defined[name]; dup {
			return fmt.Errorf("the value %s is defined twice", quote(name))
		}
		if !g.describes(name) {
			return fmt.Errorf("nothing is said of the value %s", quote(name))
		}
		if err := c.opts.Meter.Charge(setEntryBytes); err != nil {
			return err
		}
		defined[name] = struct{}{}
	}
	return nil
}

// describes reports whether one of the graph's maps has the value.
func (g *Graph) describes(name string) bool {
	if _, ok := g.TensorValues[name]; ok {
		return true
	}
	if _, ok := g.SymInts[name]; ok {
		return true
	}
	if _, ok := g.SymFloats[name]; ok {
		return true
	}
	_, ok := g.SymBools[name]
	return ok
}

// bind adds the symbols that the graph's inputs and values give a meaning to.
func (c *checker) bind(g *Graph) error {
	var err error
	add := func(leaf *Expr) {
		if leaf.Fn != FnSymbol {
			return
		}
		if _, ok := c.symbols[leaf.Name]; !ok && err == nil {
			err = c.opts.Meter.Charge(setEntryBytes)
			c.symbols[leaf.Name] = struct{}{}
		}
	}
	for _, a := range g.Inputs {
		if m := g.TensorValues[a.Name]; a.Tag == Tensor && m != nil {
			for _, s := range m.Sizes {
				if s.Expr != nil {
					s.Expr.walk(add)
				}
			}
			for _, s := range append(m.Strides[:len(m.Strides):len(m.Strides)], m.StorageOffset) {
				if s.Expr != nil {
					s.Expr.walk(add)
				}
			}
		}
	}
	for _, m := range g.TensorValues {
		for _, s := range m.Sizes {
			if s.Expr != nil && s.Expr.Fn == FnSymbol {
				add(s.Expr)
			}
		}
	}
	for _, s := range g.SymInts {
		if s.Expr != nil && s.Expr.Fn == FnSymbol {
			add(s.Expr)
		}
	}
	for _, s := range g.SymFloats {
		if s.Expr != nil && s.Expr.Fn == FnSymbol {
			add(s.Expr)
		}
	}
	return err
}

// shapes checks that every symbol of the graph's shapes is bound.
func (c *checker) shapes(g *Graph, place string) error {
	checked := make(map[*Expr]struct{}) // expressions are shared
	known := func(e *Expr) error {
		if e == nil {
			return nil
		}
		if _, ok := checked[e]; ok {
			return nil
		}
		checked[e] = struct{}{}
		var err error
		e.walk(func(leaf *Expr) {
			if leaf.Fn != FnSymbol || err != nil {
				return
			}
			if _, ok := c.symbols[leaf.Name]; !ok {
				err = formatError(place, "nothing binds the symbol %s", quote(leaf.Name))
			}
		})
		return err
	}
	for _, m := range g.TensorValues {
		for _, dims := range [][]SymInt{m.Sizes, m.Strides, {m.StorageOffset}} {
			for _, s := range dims {
				if err := known(s.Expr); err != nil {
					return err
				}
			}
		}
	}
	for _, s := range g.SymInts {
		if err := known(s.Expr); err != nil {
			return err
		}
	}
	for _, s := range g.SymFloats {
		if err := known(s.Expr); err != nil {
			return err
		}
	}
	for _, s := range g.SymBools {
		if err := known(s.Expr); err != nil {
			return err
		}
	}
	return nil
}

// check reports a shape that cannot be, as far as its numbers tell.
func (m *TensorMeta) check() error {
	elements, size := int64(1), int64(max(m.DType.Size(), 1))
	for _, s := range m.Sizes {
		if s.Expr != nil || s.Int == 0 {
			continue
		}
		n, ok := tensor.MulBytes(elements, s.Int)
		if ok {
			_, ok = tensor.MulBytes(n, size)
		}
		if !ok {
			return fmt.Errorf("the impossible shape %v", m.Sizes)
		}
		elements = n
	}
	for _, s := range m.Strides {
		if s.Expr == nil && s.Int < 0 {
			return fmt.Errorf("the negative stride %d", s.Int)
		}
	}
	if m.StorageOffset.Expr == nil && m.StorageOffset.Int < 0 {
		return fmt.Errorf("the negative storage offset %d", m.StorageOffset.Int)
	}
	return nil
}

// checkSignature checks that the signature is that of the graph.
func (p *Program) checkSignature() error {
	if n := len(p.Signature.Inputs); n != len(p.Graph.Inputs) {
		return formatError("signature", "%d inputs for a graph of %d", n, len(p.Graph.Inputs))
	}
	if n := len(p.Signature.Outputs); n != len(p.Graph.Outputs) {
		return formatError("signature", "%d outputs for a graph of %d", n, len(p.Graph.Outputs))
	}
	inputs := make(map[string]InputKind, len(p.Signature.Inputs))
	targets := make(map[string]InputKind, len(p.Signature.Inputs))
	for i, spec := range p.Signature.Inputs {
		if spec.Kind == ConstantInput {
			continue
		}
		if in := p.Graph.Inputs[i]; spec.Arg.Name != in.Name {
			return formatError("signature", "input %d is %s, in the graph %s", i, quote(spec.Arg.Name), quote(in.Name))
		}
		if spec.Arg.Tag != p.Graph.Inputs[i].Tag && spec.Kind != InputToken {
			return formatError("signature", "input %d is %v, in the graph %v", i, spec.Arg.Tag, p.Graph.Inputs[i].Tag)
		}
		inputs[spec.Arg.Name] = spec.Kind
		if spec.Kind != UserInput && spec.Kind != InputToken {
			if spec.Target == "" {
				return formatError("signature", "input %d names no parameter, buffer or constant", i)
			}
			targets[spec.Target] = spec.Kind
		}
	}
	for i, spec := range p.Signature.Outputs {
		if out := p.Graph.Outputs[i]; spec.Arg.Name != out.Name && spec.Kind != OutputToken {
			return formatError(
				"signature", "output %d is %s, in the graph %s", i, quote(spec.Arg.Name), quote(out.Name),
			)
		}
		kind, known := targets[spec.Target]
		switch spec.Kind {
		case BufferMutation:
			known = known && kind == Buffer
		case ParameterMutation, GradientToParameter:
			known = known && kind == Parameter
		case UserInputMutation, GradientToUserInput:
			kind, known = inputs[spec.Target]
			known = known && kind == UserInput
		default:
			known = true
		}
		if !known {
			return formatError("signature", "output %d is for %s, which is no such input", i, quote(spec.Target))
		}
	}
	return nil
}
