package models

import (
	"fmt"
	"slices"
	"strings"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/loader/exported"
	"github.com/optimem/optimem/models/aten/call"
	"github.com/optimem/optimem/models/aten/cells"
	"github.com/optimem/optimem/tensor"
)

// higherOrder are the ops that take graphs. It is filled by init because its functions build nodes, which look in it.
var higherOrder map[string]func(b *programBuilder, s *scope, n *exported.Node, args arguments) ([]any, error)

func init() {
	higherOrder = map[string]func(*programBuilder, *scope, *exported.Node, arguments) ([]any, error){
		"torch.ops.higher_order.wrap_with_set_grad_enabled": inlineRegion,
		"torch.ops.higher_order.wrap_with_autocast":         autocast,
		"torch.ops.higher_order.cond":                       conditional,
	}
}

// inlineRegion inlines the graph among the arguments with those that follow it.
func inlineRegion(b *programBuilder, _ *scope, _ *exported.Node, args arguments) ([]any, error) {
	for i, a := range args.positional {
		if g, ok := a.(*exported.Graph); ok {
			return b.inline(g, args.positional[i+1:])
		}
	}
	return nil, fmt.Errorf("no graph among the arguments")
}

// autocast inlines a region in which PyTorch casts what some ops read to a narrower dtype, or, where it is off, does not.
// Its arguments are the device's type, the dtype, whether it is on, whether casts are cached, the graph and its inputs.
func autocast(b *programBuilder, s *scope, n *exported.Node, args arguments) ([]any, error) {
	if len(args.positional) < 5 {
		return nil, fmt.Errorf("%d arguments", len(args.positional))
	}
	on, ok := args.positional[2].(bool)
	if !ok {
		return nil, fmt.Errorf("argument 2 is not a flag")
	}
	before := b.autocast
	defer func() { b.autocast = before }()
	b.autocast = tensor.Invalid
	if on {
		b.autocast = tensor.BFloat16 // the default on the CPU
		if d, ok := args.positional[1].(tensor.DType); ok {
			b.autocast = d
		}
	}
	return inlineRegion(b, s, n, args)
}

// castUnder are the ops whose float arguments autocast narrows on the CPU. Ops that it widens instead need a rule of
// their own; until then the dtype recorded for their result tells that it is missing.
var castUnder = map[string]bool{
	"conv1d": true, "conv2d": true, "conv3d": true, "_convolution": true, "conv_transpose1d": true,
	"conv_transpose2d": true, "conv_transpose3d": true, "bmm": true, "mm": true, "baddbmm": true, "addmm": true,
	"addbmm": true, "linear": true, "matmul": true, "prelu": true, "scaled_dot_product_attention": true,
	"linalg_vecdot": true,
}

// castArguments narrows the float arguments of a call inside a region under autocast.
func (b *programBuilder) castArguments(target string, args map[string]any) error {
	op, _, _ := strings.Cut(strings.TrimPrefix(target, "torch.ops.aten."), ".")
	if b.autocast == tensor.Invalid || !castUnder[op] {
		return nil
	}
	for name, v := range args {
		r, ok := v.(*cells.Ref)
		if !ok || r.DType() != tensor.Float32 && r.DType() != tensor.Float16 && r.DType() != tensor.BFloat16 {
			continue
		}
		narrow, err := b.Cast(r, b.autocast)
		if err != nil {
			return err
		}
		args[name] = narrow
	}
	return nil
}

// conditional builds both branches of cond under guards, of which a run computes one, and picks its results. Where the
// predicate is known already, only one is built.
func conditional(b *programBuilder, _ *scope, _ *exported.Node, args arguments) ([]any, error) {
	if len(args.positional) < 3 {
		return nil, fmt.Errorf("%d arguments", len(args.positional))
	}
	then, ok1 := args.positional[1].(*exported.Graph)
	other, ok2 := args.positional[2].(*exported.Graph)
	if !ok1 || !ok2 {
		return nil, fmt.Errorf("branches are not graphs")
	}
	inputs := args.positional[3:]
	if known, ok := args.positional[0].(bool); ok {
		if known {
			return b.inline(then, inputs)
		}
		return b.inline(other, inputs)
	}
	pred, ok := args.positional[0].(*cells.Ref)
	if !ok || pred.IsCounted() || pred.DType() != tensor.Bool || cells.NumElements(pred.Shape()) != 1 {
		return nil, fmt.Errorf("the predicate is not one bool")
	}
	pred, err := b.Reshape(pred, tensor.Shape{})
	if err != nil {
		return nil, err
	}
	predicate := b.Read(pred)
	yes, err := b.branch(graph.Guard{Predicate: predicate, Want: true}, then, inputs)
	if err != nil {
		return nil, err
	}
	no, err := b.branch(graph.Guard{Predicate: predicate, Want: false}, other, inputs)
	if err != nil {
		return nil, err
	}
	if len(yes) != len(no) {
		return nil, fmt.Errorf("branches give %d and %d results", len(yes), len(no))
	}
	results := make([]any, len(yes))
	for i := range yes {
		a, ok1 := yes[i].(*cells.Ref)
		c, ok2 := no[i].(*cells.Ref)
		switch {
		case !ok1 && !ok2 && sameScalar(yes[i], no[i]):
			results[i] = yes[i]
		case !ok1 || !ok2:
			return nil, b.Unsupported("a conditional whose result %d is a number that depends on the branch, or a list", i)
		case a.IsCounted() || c.IsCounted():
			return nil, b.Unsupported("a conditional whose result %d has a size that depends on data", i)
		case a.DType() != c.DType() || !a.Shape().Equal(c.Shape()):
			return nil, b.Unsupported("a conditional whose result %d is %v %v or %v %v", i, a.DType(), a.Shape(),
				c.DType(), c.Shape())
		default:
			chosen, err := b.Emit1("choose", nil, predicate, b.Read(a), b.Read(c))
			if err == nil && cells.IsComplex(a.DType()) {
				chosen, err = b.OfPairs(chosen)
			}
			if err != nil {
				return nil, err
			}
			results[i] = chosen
		}
	}
	return results, nil
}

// sameScalar reports whether two results that are no tensors are the same number, text or nothing. Lists cannot be compared.
func sameScalar(a, b any) bool {
	switch a.(type) {
	case nil, int, float64, bool, string:
		return a == b
	}
	return false
}

// branch builds a graph under a guard. It must leave what it is given as it is, since a run may pass it by.
func (b *programBuilder) branch(guard graph.Guard, g *exported.Graph, args []any) ([]any, error) {
	outer := b.Guard
	b.Guard = append(slices.Clip(outer), guard)
	defer func() { b.Guard = outer }()
	given := call.Refs(args)
	before := make([]cells.Cell, len(given))
	for i, r := range given {
		if r != nil {
			before[i] = *r.Memory()
		}
	}
	results, err := b.inline(g, args)
	if err != nil {
		return nil, err
	}
	for i, r := range given {
		if r != nil && before[i] != *r.Memory() {
			return nil, b.Unsupported("a branch of a conditional that writes to its input %d", i)
		}
	}
	return results, nil
}

// inline builds the nodes of a subgraph with the given arguments and returns its results. Lists among the arguments
// are flattened.
func (b *programBuilder) inline(g *exported.Graph, args []any) ([]any, error) {
	var flat []any
	for _, a := range args {
		if refs, ok := a.([]*cells.Ref); ok {
			for _, r := range refs {
				flat = append(flat, r)
			}
			continue
		}
		flat = append(flat, a)
	}
	if len(flat) != len(g.Inputs) {
		return nil, fmt.Errorf("%d arguments for a graph of %d inputs", len(flat), len(g.Inputs))
	}
	s := &scope{
		graph: g, values: make(map[string]any), names: make(map[*cells.Ref]string), path: b.Path, source: b.Source,
	}
	for i, in := range g.Inputs {
		s.set(in.Name, flat[i])
	}
	path, source := b.Path, b.Source
	err := b.run(s)
	b.Path, b.Source = path, source
	if err != nil {
		return nil, err
	}
	var results []any
	for _, out := range g.Outputs {
		v, err := b.argument(s, out)
		if err != nil {
			return nil, err
		}
		if refs, ok := v.([]*cells.Ref); ok {
			for _, r := range refs {
				results = append(results, r)
			}
			continue
		}
		results = append(results, v)
	}
	return results, nil
}
