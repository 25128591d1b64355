package models

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/graph/rewrite"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/loader/exported"
	"github.com/optimem/optimem/models/aten"
	"github.com/optimem/optimem/models/aten/call"
	"github.com/optimem/optimem/models/aten/cells"
	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
)

// useExported makes m the program of a torch.export archive.
func (m *Model) useExported(ckpt *loader.Checkpoint, opts Options) error {
	p := ckpt.Program.Exported
	if err := checkTargets(p, opts.Ops); err != nil {
		return err
	}
	for _, in := range p.Inputs() {
		port := Port{Name: in.Name, DType: in.DType}
		if in.DType != tensor.Invalid {
			port.Shape = tensor.Shape{} // that of a scalar: nil is any
		}
		for _, s := range in.Shape {
			if s.Expr == nil {
				port.Shape, port.Dims = append(port.Shape, int(s.Int)), append(port.Dims, "")
				continue
			}
			port.Shape, port.Dims = append(port.Shape, -1), append(port.Dims, s.Expr.String())
		}
		m.inputs = append(m.inputs, port)
	}
	for _, out := range p.Outputs() {
		m.outputs = append(m.outputs, out.Name)
	}
	m.modules = func() []string { return exportedModules(p.Graph) }
	m.build = func(ctx context.Context, c Call) (*graph.Graph, error) {
		return buildExported(ctx, ckpt, p, opts.Ops, c.Inputs)
	}
	return nil
}

// checkTargets returns an error that lists every op of the program that has no meaning here.
func checkTargets(p *exported.Program, ops *graph.Registry) error {
	missing := &UnsupportedError{}
	index := make(map[string]int)
	var visit func(g *exported.Graph)
	visit = func(g *exported.Graph) {
		asserted := onlyAsserted(g)
		for i := range g.Nodes {
			n := &g.Nodes[i]
			for _, in := range n.Inputs {
				if sub, ok := in.Arg.Data.(*exported.Graph); ok {
					visit(sub)
				}
			}
			if known(n.Target, ops) || asserted[i] {
				continue
			}
			at, seen := index[n.Target]
			if !seen {
				at = len(missing.Missing)
				index[n.Target] = at
				missing.Missing = append(missing.Missing, Missing{
					Name: n.Target, Path: modulePath(n), Source: sourceText(n.Source),
				})
			}
			missing.Missing[at].Uses++
		}
	}
	visit(p.Graph)
	if len(missing.Missing) == 0 {
		return nil
	}
	if customMissing(missing.Missing) {
		missing.Hint = customHint
	}
	return missing
}

const customHint = "export with fewer custom ops, or define them: models.Options.Ops"

// customMissing reports whether one of the ops is a library's own, not PyTorch's.
func customMissing(missing []Missing) bool {
	return slices.ContainsFunc(missing, func(m Missing) bool {
		name, isOp := strings.CutPrefix(m.Name, "torch.ops.")
		space, _, _ := strings.Cut(name, ".")
		return isOp && !slices.Contains([]string{"aten", "prim", "prims", "higher_order", "torchvision"}, space)
	})
}

// known reports whether a node's target has a meaning: an op of this package, a Python operator on numbers, a
// higher-order op, or an op of the registry that an embedder added.
func known(target string, ops *graph.Registry) bool {
	if _, ok := aten.Lookup(target); ok {
		return true
	}
	if _, ok := aten.OnNumbers(target); ok {
		return true
	}
	if _, ok := higherOrder[target]; ok {
		return true
	}
	_, ok := ops.Lookup(customKind(target))
	return ok
}

// customKind returns the kind under which an embedder's registry defines a target: "torch.ops.mylib.foo.default" is
// "mylib::foo".
func customKind(target string) graph.Kind {
	parts := strings.Split(target, ".")
	if len(parts) != 5 || parts[0] != "torch" || parts[1] != "ops" {
		return ""
	}
	return graph.Kind(parts[2] + "::" + parts[3])
}

// modulePath returns the path of the module that a node belongs to.
func modulePath(n *exported.Node) string {
	if len(n.Modules) == 0 {
		return ""
	}
	return n.Modules[len(n.Modules)-1].Path
}

func sourceText(s *exported.Source) string {
	if s == nil {
		return ""
	}
	return fmt.Sprintf("%s:%d", s.File, s.Line)
}

// A programBuilder builds the graph of an exported program for concrete shapes.
type programBuilder struct {
	*cells.Builder
	ckpt    *loader.Checkpoint
	program *exported.Program
	// autocast is the dtype that ops cast to in the region being built, Invalid outside of any.
	autocast tensor.DType
	// symbols are the sizes that the inputs give to the program's symbols, binders the first inputs that have them.
	symbols map[string]int64
	binders map[string]string
	// storages holds the cell of each storage already added, so that tied weights are one value.
	storages map[storage.Extent]*cells.Cell
	// weights lists the cells of storages in the order in which they were added.
	weights []weightCell
	// inPlace says that the program writes to tensors.
	inPlace bool
}

// A weightCell is the cell of a storage and the value that it began as.
type weightCell struct {
	cell   *cells.Cell
	origin graph.ValueID
}

// A scope is the names of one graph: the program's, or a subgraph's.
type scope struct {
	graph  *exported.Graph
	values map[string]any
	names  map[*cells.Ref]string
	// misrecorded are the values whose recorded shapes are not theirs.
	misrecorded map[string]bool
	// states are those results of the node being defined that an LSTM ends with; derived says that it reads a misrecorded value.
	states  []string
	derived bool
	// path and source are those of nodes that do not say theirs: of the call that a subgraph belongs to.
	path, source string
}

// buildExported builds the graph of p for inputs of the given shapes.
func buildExported(
	ctx context.Context, ckpt *loader.Checkpoint, p *exported.Program, ops *graph.Registry,
	inputs map[string]tensor.Shape,
) (*graph.Graph, error) {
	g, changed, err := buildReading(ctx, ckpt, p, ops, inputs, true)
	if changed && err == nil {
		g, _, err = buildReading(ctx, ckpt, p, ops, inputs, false)
	}
	return g, err
}

// buildReading builds the graph of p. Where it reads small weights, changed says that the program changes one of those,
// so that later passes would find something else in it.
func buildReading(
	ctx context.Context, ckpt *loader.Checkpoint, p *exported.Program, ops *graph.Registry,
	inputs map[string]tensor.Shape, reads bool,
) (g *graph.Graph, changed bool, err error) {
	b := &programBuilder{
		Builder: &cells.Builder{
			Ctx: ctx, Graph: &graph.Graph{Modules: make(map[string]graph.Operand)}, Ops: ops, Reads: reads,
		},
		ckpt:     ckpt,
		program:  p,
		symbols:  make(map[string]int64),
		binders:  make(map[string]string),
		storages: make(map[storage.Extent]*cells.Cell),
		inPlace:  writesInPlace(p.Graph),
	}
	s := &scope{graph: p.Graph, values: make(map[string]any), names: make(map[*cells.Ref]string)}
	for _, step := range []func(*scope) error{
		func(s *scope) error { return b.bindInputs(s, inputs) }, b.run, b.bindOutputs,
	} {
		if err := step(s); err != nil {
			if stopped := ctx.Err(); stopped != nil && errors.Is(err, stopped) {
				return nil, false, stopped
			}
			return nil, false, blame(err, len(b.symbols) == 0)
		}
	}
	changed = b.ChangesKnown()
	if b.Followed > 0 {
		return rewrite.Prune(b.Graph), changed, nil // of what nobody reads
	}
	return b.Graph, changed, nil
}

// writesInPlace reports whether a graph has an op whose name says that it writes to a tensor.
func writesInPlace(g *exported.Graph) bool {
	return slices.ContainsFunc(g.Nodes, func(n exported.Node) bool {
		name := strings.Split(n.Target, ".")
		return len(name) > 1 && strings.HasSuffix(name[len(name)-2], "_") &&
			!strings.HasSuffix(name[len(name)-2], "__") ||
			slices.ContainsFunc(n.Inputs, func(in exported.NamedArgument) bool {
				sub, ok := in.Arg.Data.(*exported.Graph)
				return ok && writesInPlace(sub)
			})
	})
}

// run builds the nodes of a graph in order.
func (b *programBuilder) run(s *scope) error {
	for i := range s.graph.Nodes {
		n := &s.graph.Nodes[i]
		if err := b.Stopped(); err != nil {
			return err
		}
		b.Path, b.Source = cmp.Or(modulePath(n), s.path), cmp.Or(sourceText(n.Source), s.source)
		if err := b.node(s, n); err != nil {
			return b.at(n, err)
		}
	}
	return nil
}

// at says at which node an error came up. What optimem lacks is listed as missing ops are.
func (b *programBuilder) at(n *exported.Node, err error) error {
	var lacking *UnsupportedError
	if errors.As(err, &lacking) {
		if len(lacking.Missing) > 0 { // a node of a subgraph said it
			return lacking
		}
		return &UnsupportedError{Hint: lacking.Hint, Missing: []Missing{{
			Name: n.Target, Reason: lacking.What, Path: b.Path, Source: b.Source, Uses: 1,
		}}}
	}
	where := b.Path
	if where == "" {
		where = n.Name
	}
	return fmt.Errorf("%s: %s: %w", where, strings.TrimPrefix(n.Target, "torch.ops."), err)
}

// node builds one call.
func (b *programBuilder) node(s *scope, n *exported.Node) error {
	args, err := b.arguments(s, n)
	if err != nil {
		return err
	}
	if v, ok, err := b.dataNumber(n, args); ok || err != nil {
		if err != nil {
			return err
		}
		return b.define(s, n, []any{v})
	}
	if eval, ok := aten.OnNumbers(n.Target); ok {
		v, err := eval(args.positional)
		switch {
		case err != nil && slices.ContainsFunc(args.positional, cells.IsSelection):
			return b.Unsupported("of what a mask selects: %s", cells.SizeOfData)
		case err != nil:
			return err
		}
		return b.define(s, n, []any{v})
	}
	if run, ok := higherOrder[n.Target]; ok {
		results, err := run(b, s, n, args)
		if err != nil {
			return err
		}
		return b.define(s, n, results)
	}
	t, ok := aten.Lookup(n.Target)
	if !ok {
		return b.customOp(s, n)
	}
	bound, err := t.Bind(args.positional, args.byName)
	if err != nil {
		return err
	}
	if err := b.castArguments(n.Target, bound); err != nil {
		return err
	}
	results, err := t.Call(b.Builder, call.Site{
		Meta: s.graph.TensorValues, Names: s.names, Symbols: b.symbols, InPlace: b.inPlace, Selects: true,
		Most: b.most(s, n),
	}, bound)
	if err != nil {
		return err
	}
	return b.define(s, n, results)
}

// most returns the largest size of the first dimension that the program admits for what a node gives, where only data says the
// size; 0 where it does not say.
func (b *programBuilder) most(s *scope, n *exported.Node) int {
	if len(n.Outputs) == 0 {
		return 0
	}
	meta := s.graph.TensorValues[n.Outputs[0].Name]
	if meta == nil || len(meta.Sizes) == 0 || meta.Sizes[0].Expr == nil {
		return 0
	}
	for _, r := range b.program.Ranges {
		if r.Symbol == meta.Sizes[0].Expr.String() && r.Max < math.MaxInt32 {
			return int(r.Max)
		}
	}
	return 0
}
