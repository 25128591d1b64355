package models

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// BatchAxes finds the dimensions that count the rows of a batch, in every input and output: −1 for one that is the same
// for all rows. shapes are the inputs' shapes; of the batch they may have any number of rows. named gives axes by the
// caller, of inputs and, where they cannot be found, of outputs.
//
// If named has inputs, the others follow where they share a symbolic dimension with them, and are the same for all rows
// where not. Else the batch is a symbolic dimension of the inputs: the first of those at axis 0 that proves to be one;
// or all of those together, as the exporter gives inputs symbols of their own when nothing makes it find them equal; or
// the first of the others. A model with no symbol at axis 0 has its rows there if all inputs have the same size there, or
// if it does not tell the shape of any.
//
// A symbolic batch is proved at two sizes above one, which tells a size that happens to be equal from the batch; see
// [graph.Batched] for what is proved. Where it is not so, the error is a [*graph.NotBatchableError] for the first
// choice of axes.
func (m *Model) BatchAxes(shapes map[string]tensor.Shape, named map[string]int) (in, out map[string]int, err error) {
	return m.BatchAxesContext(context.Background(), shapes, named)
}

// BatchAxesContext is BatchAxes until ctx is done, whose error it returns then.
func (m *Model) BatchAxesContext(
	ctx context.Context, shapes map[string]tensor.Shape, named map[string]int,
) (in, out map[string]int, err error) {
	outputs := make(map[string]int)
	given := make(map[string]int)
	listed := m.Outputs() // nil where a graph has to be built first, and says then whether they are its
	for name, d := range named {
		port, isInput := m.input(name)
		if !isInput {
			if listed != nil && !slices.Contains(listed, name) {
				return nil, nil, &graph.NotBatchableError{Name: name, Msg: "there is no such input or output"}
			}
			outputs[name] = d
			continue
		}
		dims := len(port.Shape)
		if port.Shape == nil {
			dims = len(shapes[name])
		}
		if d < -1 || d >= dims {
			return nil, nil, &graph.NotBatchableError{Name: name, Msg: fmt.Sprintf("there is no axis %d", d)}
		}
		given[name] = d
	}
	choices, err := m.batchChoices(given)
	if err != nil {
		return nil, nil, err
	}
	for _, c := range choices {
		out, refused := m.proveBatch(ctx, shapes, c, outputs)
		if refused == nil {
			return c.axes, out, nil
		}
		if stopped := ctx.Err(); stopped != nil {
			return nil, nil, stopped
		}
		if err == nil {
			err = refused
		}
	}
	return nil, nil, err
}

// input returns an input by name.
func (m *Model) input(name string) (Port, bool) {
	i := slices.IndexFunc(m.inputs, func(p Port) bool { return p.Name == name })
	if i < 0 {
		return Port{}, false
	}
	return m.inputs[i], true
}

// A batchChoice is a guess at the batch axes of all inputs.
type batchChoice struct {
	axes map[string]int
	// symbols are the names of the dimensions, none for a fixed size. open says that there is no fixed size all the same: the
	// model does not tell the inputs' shapes.
	symbols []string
	open    bool
}

// batchChoices returns guesses, the best first.
func (m *Model) batchChoices(given map[string]int) ([]batchChoice, error) {
	for _, p := range m.inputs {
		if d, ok := given[p.Name]; ok && d >= 0 {
			c := m.sharing(m.namedSymbols(given)...)
			c.open = p.Shape == nil
			maps.Copy(c.axes, given)
			return []batchChoice{c}, nil
		}
	}
	var first, others []string // symbols at axis 0, and elsewhere
	for _, p := range m.inputs {
		for d, symbol := range p.Dims {
			switch {
			case !isSymbol(symbol):
			case d == 0:
				first = append(first, symbol)
			default:
				others = append(others, symbol)
			}
		}
	}
	var choices []batchChoice
	if len(first) == 0 {
		if c, ok := m.frontChoice(); ok {
			choices = append(choices, c)
		}
	}
	first, others = distinct(first), distinct(others)
	for _, symbol := range first {
		choices = append(choices, m.sharing(symbol))
	}
	if len(first) > 1 {
		choices = append(choices, m.sharing(first...))
	}
	for _, symbol := range others {
		choices = append(choices, m.sharing(symbol))
	}
	for _, c := range choices {
		maps.Copy(c.axes, given) // inputs said to be the same for all rows
	}
	if len(choices) == 0 {
		return nil, &graph.NotBatchableError{Msg: "the inputs do not show which of their axes counts the rows; name it"}
	}
	return choices, nil
}

// namedSymbols returns the symbols of the axes that the caller gave.
func (m *Model) namedSymbols(given map[string]int) []string {
	var symbols []string
	for _, p := range m.inputs {
		if d, ok := given[p.Name]; ok && d >= 0 && d < len(p.Dims) && p.Dims[d] != "" {
			symbols = append(symbols, p.Dims[d])
		}
	}
	return distinct(symbols)
}

// sharing returns the axes of the inputs that have one of some symbolic dimensions.
func (m *Model) sharing(symbols ...string) batchChoice {
	c := batchChoice{axes: make(map[string]int), symbols: symbols}
	for _, p := range m.inputs {
		c.axes[p.Name] = slices.IndexFunc(p.Dims, func(dim string) bool { return slices.Contains(symbols, dim) })
	}
	return c
}

// frontChoice is axis 0 of all inputs, if they have the same size there or shapes that are not known.
func (m *Model) frontChoice() (batchChoice, bool) {
	c := batchChoice{axes: make(map[string]int)}
	if !slices.ContainsFunc(m.inputs, func(p Port) bool { return p.Shape != nil }) {
		for _, p := range m.inputs {
			c.axes[p.Name] = 0
		}
		c.open = true
		return c, len(m.inputs) > 0
	}
	rows := -1
	for _, p := range m.inputs {
		if len(p.Shape) == 0 {
			c.axes[p.Name] = -1
			continue
		}
		c.axes[p.Name] = 0
		if rows >= 0 && p.Shape[0] != rows || p.Shape[0] < 1 {
			return c, false
		}
		rows = p.Shape[0]
	}
	return c, rows > 0
}

// distinct returns names in order, each once.
func distinct(names []string) []string {
	var out []string
	for _, n := range names {
		if !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	return out
}

// isSymbol reports whether a dimension is one symbol, and not fixed or computed.
func isSymbol(dim string) bool { return dim != "" && !strings.ContainsFunc(dim, notInName) }

func notInName(r rune) bool { return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) }

// batchSizes are tried until two fit the program's constraints.
var batchSizes = []int{2, 3, 4, 5, 6, 8, 12, 16, 32, 64}

// proveBatch returns the axes of the outputs for a choice of those of the inputs.
func (m *Model) proveBatch(
	ctx context.Context, shapes map[string]tensor.Shape, c batchChoice, outputs map[string]int,
) (map[string]int, error) {
	axes := maps.Clone(c.axes)
	for _, p := range m.inputs {
		if shapes[p.Name] == nil && p.Optional {
			delete(axes, p.Name) // it is not in the graph
		}
	}
	for name, d := range outputs {
		if _, taken := axes[name]; !taken {
			axes[name] = d
		}
	}
	if len(c.symbols) == 0 && !c.open {
		g, err := m.GraphContext(ctx, shapes, nil)
		if err != nil {
			return nil, err
		}
		return graph.Batched(g, m.ops, axes)
	}
	for _, p := range m.inputs {
		for d, dim := range p.Dims {
			if d == c.axes[p.Name] {
				continue
			}
			for _, symbol := range c.symbols {
				if slices.Contains(strings.FieldsFunc(dim, notInName), symbol) {
					return nil, &graph.NotBatchableError{Name: p.Name,
						Msg: fmt.Sprintf("dimension %d is %s, and %s counts the rows", d, dim, symbol)}
				}
			}
		}
	}
	var graphs []*graph.Graph
	var refused error
	for _, n := range batchSizes {
		g, err := m.GraphContext(ctx, withRows(shapes, c.axes, n), nil)
		if stopped := ctx.Err(); err != nil && stopped != nil {
			return nil, stopped
		}
		if err != nil {
			refused = err
			continue
		}
		if graphs = append(graphs, g); len(graphs) == 2 {
			break
		}
	}
	if len(graphs) == 0 {
		return nil, refused
	}
	if len(graphs) == 1 {
		return graph.Batched(graphs[0], m.ops, axes)
	}
	return graph.BatchedPair(graphs[0], graphs[1], m.ops, axes)
}

// withRows returns shapes with another number of rows.
func withRows(shapes map[string]tensor.Shape, axes map[string]int, n int) map[string]tensor.Shape {
	changed := maps.Clone(shapes)
	for name, s := range changed {
		if d, ok := axes[name]; ok && d >= 0 && d < len(s) {
			changed[name] = slices.Clone(s)
			changed[name][d] = n
		}
	}
	return changed
}
