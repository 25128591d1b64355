package graph

import (
	"fmt"
	"slices"

	"github.com/optimem/optimem/tensor"
)

// A NotBatchableError says that a graph does not compute the rows of a batch one by one, and where.
type NotBatchableError struct {
	// Path, Kind and Source are those of the op that mixes rows; they are empty for what no op does.
	Path   string
	Kind   Kind
	Source string
	// Name is the input, output or state that the error is about, where it is about one.
	Name string
	Msg  string
}

// Error names the op and what it does.
func (e *NotBatchableError) Error() string {
	text := "not batchable: "
	if e.Path != "" {
		text += e.Path + ": "
	}
	if e.Kind != "" {
		text += string(e.Kind) + ": "
	}
	if e.Name != "" {
		text += e.Name + ": "
	}
	text += e.Msg
	if e.Source != "" {
		text += " (" + e.Source + ")"
	}
	return text
}

// Batched finds where the rows of a batch are in the outputs of a graph. axes names the dimension of each input that
// counts the rows; an input that is not named, or named with −1, is the same for all rows. The result has the dimension
// of every output, −1 for one that does not depend on the rows.
//
// What it promises: whichever rows are put together, and in whichever order, an output's row is made from that row of
// the inputs, the shared inputs and the weights, and always in the same way. Where that cannot be shown, the error is a
// [*NotBatchableError]. A graph that changes a state, or a cache, is none: it would change it once for every part of a batch.
//
// Rows are followed as offsets. The elements of an input [2 7 64] with axis 0 belong to row offset ÷ 448 mod 2, and so
// do those of every reshape; the rule of each op ([AxisRule]) says where the rows are in its results.
//
// A batch of one leaves no trace in offsets. Graphs for one row cannot mix rows; each row is then a pass of its own,
// and an output's axis is the inputs' axis if the output has size 1 there, else what axes says under the output's name.
func Batched(g *Graph, r *Registry, axes map[string]int) (map[string]int, error) {
	out, _, err := batched(g, r, axes)
	return out, err
}

// batched is Batched, and returns what it learnt.
func batched(g *Graph, r *Registry, axes map[string]int) (map[string]int, *batching, error) {
	a := &batching{graph: g, facts: make([]fact, len(g.Values))}
	if err := a.inputs(axes); err != nil {
		return nil, nil, err
	}
	if len(g.Updates) > 0 {
		return nil, nil, &NotBatchableError{Name: g.Values[g.Updates[0].State].Name, Msg: "it is changed by every pass"}
	}
	if g.Finds != "" || g.Leaves != "" {
		return nil, nil, &NotBatchableError{Msg: "the program keeps something of every call"}
	}
	for i := range g.Ops {
		if op := &g.Ops[i]; g.WritesCache(op) {
			return nil, nil, &NotBatchableError{
				Path: op.Path, Kind: op.Kind, Source: op.Source, Msg: "it reads what other passes left in a cache",
			}
		}
		if err := a.op(r, &g.Ops[i]); err != nil {
			return nil, nil, err
		}
	}
	out := make(map[string]int, len(g.Outputs))
	for _, o := range g.Outputs {
		d, err := a.output(o, axes)
		if err != nil {
			return nil, nil, err
		}
		out[o.Name] = d
	}
	return out, a, nil
}

// A fact is what is known of a value.
type fact struct {
	// rows is set where the value depends on the batch: elements of one digit are made from that row.
	rows *digit
	// same are the digits that an element of a value without rows does not depend on: every row of it is alike.
	same []digit
	// number is set where the elements of a value without rows are this digit: it numbers the rows.
	number *digit
	// op is the op that made the value, nil for others.
	op *Op
}

// batching is the analysis of one graph.
type batching struct {
	graph *Graph
	// rows is the size of the batch, and axis where all inputs have it, −1 where they differ.
	rows, axis int
	facts      []fact
}

// inputs learns the size of the batch.
func (a *batching) inputs(axes map[string]int) error {
	a.rows, a.axis = -1, -1
	var first string
	for _, id := range a.graph.Inputs {
		v := a.graph.Values[id]
		d, ok := axes[v.Name]
		if !ok || d == -1 {
			continue
		}
		if d < 0 || d >= len(v.Shape) {
			return &NotBatchableError{Name: v.Name, Msg: fmt.Sprintf("shape %v has no axis %d", v.Shape, d)}
		}
		n := v.Shape[d]
		switch {
		case n == 0:
			return &NotBatchableError{Name: v.Name, Msg: fmt.Sprintf("axis %d of shape %v is empty", d, v.Shape)}
		case a.rows < 0:
			a.rows, a.axis, first = n, d, v.Name
		case a.rows != n:
			return &NotBatchableError{Name: v.Name, Msg: fmt.Sprintf("axis %d of shape %v: input %s has %d rows", d,
				v.Shape, first, a.rows)}
		case a.axis != d:
			a.axis = -1
		}
		rows := digitAt(v.Shape, place{d, 1}, n)
		a.facts[id].rows = &rows
	}
	if a.rows < 0 {
		return &NotBatchableError{Msg: "no input has a batch axis"}
	}
	for name := range axes {
		if !slices.ContainsFunc(a.graph.Inputs, func(id ValueID) bool { return a.graph.Values[id].Name == name }) &&
			!slices.ContainsFunc(a.graph.Outputs, func(o Output) bool { return o.Name == name }) {
			return &NotBatchableError{Name: name, Msg: "there is no such input or output"}
		}
	}
	return nil
}

// op learns what an op's results are.
func (a *batching) op(r *Registry, op *Op) error {
	def, ok := r.Lookup(op.Kind)
	if !ok {
		return fmt.Errorf("no op %q", op.Kind)
	}
	for _, id := range op.Out {
		a.facts[id].op = op
	}
	if !slices.ContainsFunc(op.In, a.hasRows) {
		a.constant(def, op)
		return nil
	}
	if a.rows == 1 {
		for _, id := range op.Out {
			a.facts[id].rows = &digit{inner: 1, count: 1}
		}
		return nil
	}
	var err error
	if op.Kind == "write_view" {
		err = a.written(op)
	} else {
		err = a.kept(def, op)
	}
	if err != nil {
		return &NotBatchableError{Path: op.Path, Kind: op.Kind, Source: op.Source, Msg: err.Error()}
	}
	return nil
}

func (a *batching) hasRows(o Operand) bool { return o.Value != NoValue && a.facts[o.Value].rows != nil }

// rule returns what the op's axis rule says and which operands it need not hold for, or an error where there is none or
// one that does not fit the operands.
func (a *batching) rule(def OpDef, op *Op) (axes [][]int, free []bool, err error) {
	if def.Axes == nil {
		return nil, nil, fmt.Errorf("it has no batch-axis rule")
	}
	in := make([]Spec, len(op.In))
	for k, o := range op.In {
		in[k] = a.graph.Spec(o)
	}
	out := make([]Spec, len(op.Out))
	for k, id := range op.Out {
		out[k] = a.graph.Spec(a.graph.Whole(id))
	}
	axes = def.Axes(in, out, op.Attrs)
	fits := len(axes) == len(in)
	for k := 0; fits && k < len(in); k++ {
		fits = len(axes[k]) == len(in[k].Shape)
		for _, d := range axes[k] {
			for _, s := range out {
				fits = fits && d >= -1 && d < len(s.Shape)
			}
		}
	}
	if !fits {
		return nil, nil, fmt.Errorf("its batch-axis rule gives %v for %v and %v", axes, in, out)
	}
	if op.Kind == "index" {
		return axes, a.numbered(op, axes), nil
	}
	return axes, make([]bool, len(in)), nil
}

// kept follows the rows through an op by its rule.
func (a *batching) kept(def OpDef, op *Op) error {
	axes, free, err := a.rule(def, op)
	if err != nil {
		return err
	}
	result := place{dim: -1}
	from := -1
	for k, o := range op.In {
		if !a.hasRows(o) {
			continue
		}
		at, err := find(o.Layout, *a.facts[o.Value].rows)
		if err != nil {
			if empty(o.Layout.Shape) {
				continue
			}
			return fmt.Errorf("operand %d: %w", k, err)
		}
		e := axes[k][at.dim]
		switch {
		case e < 0:
			return fmt.Errorf("it mixes the rows in dimension %d of operand %d, %v", at.dim, k, o.Layout.Shape)
		case result.dim < 0:
			result, from = place{e, at.inner}, k
		case result != place{e, at.inner}:
			return fmt.Errorf("operands %d, %v, and %d, %v, are not taken row by row", from,
				op.In[from].Layout.Shape, k,
				o.Layout.Shape)
		}
	}
	if result.dim < 0 {
		return nil // all operands with rows are empty
	}
	if k := a.uneven(op, axes, free, result, a.rows); k >= 0 {
		return fmt.Errorf("operand %d, %v, does not depend on the batch and differs from row to row", k,
			op.In[k].Layout.Shape)
	}
	for _, id := range op.Out {
		s := a.graph.Values[id].Shape
		if s[result.dim]%(result.inner*a.rows) != 0 {
			return fmt.Errorf("its batch-axis rule puts the rows into dimension %d of %v", result.dim, s)
		}
		rows := digitAt(s, result, a.rows)
		a.facts[id].rows = &rows
	}
	return nil
}

// uneven returns an operand that does not stay the same while the digit at a place of the results counts, or −1:
// one without rows that varies, or one that meets the results' dimension in parts of a turn.
func (a *batching) uneven(op *Op, axes [][]int, free []bool, result place, count int) int {
	for k, o := range op.In {
		if o.Value == NoValue {
			continue
		}
		for d, e := range axes[k] {
			if e != result.dim {
				continue
			}
			if o.Layout.Shape[d]%(result.inner*count) != 0 ||
				!a.hasRows(o) && !free[k] && a.varies(o, place{d, result.inner}, count) {
				return k
			}
		}
	}
	return -1
}

// written follows the rows through a write into a view. The operand that has no rows must be the same for all.
func (a *batching) written(op *Op) error {
	base, src := op.In[0], op.In[1]
	view := writtenView(op)
	if empty(src.Layout.Shape) {
		a.facts[op.Out[0]].rows = a.facts[base.Value].rows
		return nil
	}
	var rows digit
	if a.hasRows(base) {
		at, err := find(base.Layout, *a.facts[base.Value].rows)
		if err != nil {
			return fmt.Errorf("operand 0: %w", err)
		}
		rows = digitAt(base.Layout.Shape, at, a.rows)
	} else {
		at, err := find(src.Layout, *a.facts[src.Value].rows)
		if err != nil {
			return fmt.Errorf("operand 1: %w", err)
		}
		if rows = (digit{view.Strides[at.dim] * at.inner, a.rows}); rows.inner == 0 {
			return fmt.Errorf("all rows are written to one place")
		}
		if n := Elements(base.Layout.Shape); n%int64(rows.inner*rows.count) != 0 {
			return fmt.Errorf("the %d elements of operand 0 are not %d rows", n, a.rows)
		}
		whole := Operand{Value: base.Value, Layout: base.Layout}
		flat, err := find(tensor.Contiguous(base.Layout.Shape...), rows)
		if err != nil || a.varies(whole, flat, a.rows) {
			return fmt.Errorf(
				"operand 0, %v, does not depend on the batch and differs from row to row", base.Layout.Shape,
			)
		}
	}
	to, err := find(view, rows)
	if err != nil {
		return fmt.Errorf("the written part: %w", err)
	}
	if a.hasRows(src) {
		if from, err := find(src.Layout, *a.facts[src.Value].rows); err != nil || from != to {
			return fmt.Errorf("rows are written into others")
		}
	} else if a.varies(src, to, a.rows) {
		return fmt.Errorf("operand 1, %v, does not depend on the batch and differs from row to row", src.Layout.Shape)
	}
	a.facts[op.Out[0]].rows = &rows
	return nil
}

// writtenView returns the view that a write_view replaces.
func writtenView(op *Op) tensor.Layout {
	a := op.Attrs
	return tensor.Layout{Shape: a.Ints("shape"), Strides: a.Ints("strides"), Offset: a.Int("offset")}
}

// output returns the axis of an output.
func (a *batching) output(o Output, axes map[string]int) (int, error) {
	if !a.hasRows(o.Operand) {
		return -1, nil
	}
	refuse := func(format string, args ...any) (int, error) {
		e := &NotBatchableError{Name: o.Name, Msg: fmt.Sprintf(format, args...)}
		if op := a.facts[o.Operand.Value].op; op != nil {
			e.Path, e.Kind, e.Source = op.Path, op.Kind, op.Source
		}
		return 0, e
	}
	s := o.Operand.Layout.Shape
	named, given := axes[o.Name]
	if a.rows == 1 {
		d := a.axis
		if given {
			d = named
		}
		if d < 0 || d >= len(s) || s[d] != 1 {
			return refuse("which dimension of %v counts the rows? Name the output's axis", s)
		}
		return d, nil
	}
	at, err := find(o.Operand.Layout, *a.facts[o.Operand.Value].rows)
	if err != nil {
		return refuse("%v: %v", s, err)
	}
	if at.inner != 1 || s[at.dim] != a.rows {
		return refuse("dimension %d of %v has more than the %d rows", at.dim, s, a.rows)
	}
	if given && named != at.dim {
		return refuse("the rows of %v are along axis %d, not %d", s, at.dim, named)
	}
	return at.dim, nil
}

func empty(s tensor.Shape) bool { return slices.Contains(s, 0) }
