package models

import (
	"fmt"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/loader/exported"
	"github.com/optimem/optimem/models/aten"
	"github.com/optimem/optimem/models/aten/call"
	"github.com/optimem/optimem/models/aten/cells"
	"github.com/optimem/optimem/tensor"
)

// arguments are those of a node.
type arguments struct {
	positional []any
	byName     map[string]any
}

// arguments evaluates what a node is called with.
func (b *programBuilder) arguments(s *scope, n *exported.Node) (arguments, error) {
	args := arguments{byName: make(map[string]any, len(n.Inputs))}
	for _, in := range n.Inputs {
		v, err := b.argument(s, in.Arg)
		if err != nil {
			return args, err
		}
		if in.Name != "" {
			args.byName[in.Name] = v
		}
		if in.Kind != exported.Keyword && !outOfPlace(n, len(args.positional), in) {
			args.positional = append(args.positional, v)
		}
	}
	return args, nil
}

// outOfPlace reports whether an argument of a program that does not say how arguments are passed is a keyword: it has
// the name of a parameter that is not the next one.
func outOfPlace(n *exported.Node, position int, in exported.NamedArgument) bool {
	t, ok := aten.Lookup(n.Target)
	if !ok || in.Kind != exported.KindUnknown {
		return false
	}
	at := t.Position(in.Name)
	return at >= 0 && at != position
}

// argument evaluates one argument.
func (b *programBuilder) argument(s *scope, a exported.Argument) (any, error) {
	switch a.Tag {
	case exported.None:
		return nil, nil
	case exported.Tensor, exported.OptionalTensor:
		if a.Name == "" {
			return nil, nil
		}
		return s.get(a.Name)
	case exported.Tensors, exported.OptionalTensors:
		return b.tensors(s, a.Data.([]string))
	case exported.Int:
		return int(a.Int), nil
	case exported.Float:
		return a.Float, nil
	case exported.Bool:
		return a.Int != 0, nil
	case exported.String:
		return a.Name, nil
	case exported.Ints:
		return intSlice(a.Data.([]int64)), nil
	case exported.SymbolicInt:
		if a.Name == "" {
			return int(a.Int), nil
		}
		return b.number(s, a.Name)
	case exported.SymbolicFloat:
		if a.Name == "" {
			return a.Float, nil
		}
		return b.number(s, a.Name)
	case exported.SymbolicBool:
		if a.Name == "" {
			return a.Int != 0, nil
		}
		return b.number(s, a.Name)
	case exported.SymbolicInts:
		return b.sizes(s, a.Data.([]exported.Sym))
	case exported.ScalarType:
		return a.DType(), nil
	case exported.Memory:
		return exported.MemoryFormat(a.Int), nil
	case exported.StorageLayout:
		return exported.Layout(a.Int), nil
	}
	return a.Data, nil
}

// tensors evaluates a list of tensors; those without a name are nil.
func (b *programBuilder) tensors(s *scope, names []string) (any, error) {
	refs := make([]*cells.Ref, len(names))
	for i, name := range names {
		if name == "" {
			continue
		}
		v, err := s.get(name)
		if err != nil {
			return nil, err
		}
		r, ok := v.(*cells.Ref)
		if selected, is := v.(*cells.Selection); is {
			if r, err = selected.Made(b.Builder); err != nil {
				return nil, err
			}
			ok = true
		}
		if !ok && v != nil {
			return nil, fmt.Errorf("%s is not a tensor", name)
		}
		refs[i] = r
	}
	return refs, nil
}

// sizes evaluates a list of integers: []int, or []any where some are counts that only data tells.
func (b *programBuilder) sizes(s *scope, syms []exported.Sym) (any, error) {
	out, counts := make([]int, len(syms)), map[int]*cells.Count(nil)
	for i, sym := range syms {
		if sym.Name == "" {
			out[i] = int(sym.Int)
			continue
		}
		v, err := b.number(s, sym.Name)
		if err != nil {
			return nil, err
		}
		n, ok := v.(int)
		if count, is := v.(*cells.Count); is {
			if counts == nil {
				counts = make(map[int]*cells.Count)
			}
			counts[i], ok = count, true
		}
		if v == any(dataNumber{}) {
			return nil, b.Unsupported("a size: %s", cells.SizeOfData)
		}
		if !ok {
			return nil, fmt.Errorf("%s is not an integer", sym.Name)
		}
		out[i] = n
	}
	if counts == nil {
		return out, nil
	}
	mixed := make([]any, len(out))
	for i, n := range out {
		if mixed[i] = n; counts[i] != nil {
			mixed[i] = counts[i]
		}
	}
	return mixed, nil
}

// get returns a value by its name.
func (s *scope) get(name string) (any, error) {
	v, ok := s.values[name]
	if !ok {
		return nil, fmt.Errorf("%s has no value", name)
	}
	return v, nil
}

// number returns a symbolic number: what a node computed, else what its expression gives.
func (b *programBuilder) number(s *scope, name string) (any, error) {
	if v, ok := s.values[name]; ok {
		return v, nil
	}
	if sym, ok := s.graph.SymInts[name]; ok {
		n, err := b.size(sym)
		if err != nil {
			return nil, b.Unsupported("%s, which depends on data: %v", name, err)
		}
		return int(n), nil
	}
	return nil, fmt.Errorf("%s has no value", name)
}

// size evaluates a symbolic size.
func (b *programBuilder) size(s exported.SymInt) (int64, error) {
	if s.Expr == nil {
		return s.Int, nil
	}
	return s.Expr.Eval(b.symbols)
}

func intSlice(in []int64) []int {
	out := make([]int, len(in))
	for i, n := range in {
		out[i] = int(n)
	}
	return out
}

// moduleOutput notes what a node gives as the output of the modules that it is in, unless a later one gives another: a
// module's output is what its last op gave, its submodules' ops included, and of several results the first.
func (b *programBuilder) moduleOutput(n *exported.Node, results []any) {
	refs := call.Refs(results)
	if len(refs) == 0 || refs[0] == nil || refs[0].IsCounted() {
		return
	}
	for _, frame := range n.Modules {
		if frame.Path != "" {
			b.Graph.Modules[frame.Path] = b.Read(refs[0])
		}
	}
}

// define names the results of a node and holds them against what the program recorded of them.
func (b *programBuilder) define(s *scope, n *exported.Node, results []any) error {
	b.moduleOutput(n, results)
	s.expect(n)
	if len(n.Outputs) == 1 && (n.Outputs[0].Tag == exported.Tensors || n.Outputs[0].Tag == exported.OptionalTensors) {
		names := n.Outputs[0].Data.([]string)
		refs, ok := results, true
		if len(results) == 1 {
			var list []*cells.Ref
			if list, ok = results[0].([]*cells.Ref); ok {
				refs = make([]any, len(list))
				for i, r := range list {
					refs[i] = r
				}
			} else {
				ok = len(names) == 1
			}
		}
		if !ok || len(refs) != len(names) {
			return fmt.Errorf("%d results for %d names", len(refs), len(names))
		}
		for i, name := range names {
			if err := b.defineOne(s, name, refs[i]); err != nil {
				return err
			}
		}
		return nil
	}
	for i, out := range n.Outputs {
		if out.Tag == exported.None {
			continue
		}
		if i >= len(results) {
			return fmt.Errorf("%d results for %d outputs", len(results), len(n.Outputs))
		}
		if out.Tag == exported.Tensors {
			list, ok := results[i].([]*cells.Ref)
			names := out.Data.([]string)
			if !ok || len(list) != len(names) {
				return fmt.Errorf("result %d is not a list of %d tensors", i, len(names))
			}
			for k, name := range names {
				if err := b.defineOne(s, name, list[k]); err != nil {
					return err
				}
			}
			continue
		}
		if err := b.defineOne(s, out.Name, results[i]); err != nil {
			return err
		}
	}
	return nil
}

// defineOne names one result. A shape or dtype other than the recorded one means that an op is understood wrongly, or
// that the file lies: both must stop here and not as a wrong number.
func (b *programBuilder) defineOne(s *scope, name string, v any) error {
	if name == "" {
		return nil
	}
	s.set(name, v)
	if selected, ok := v.(*cells.Selection); ok {
		return b.checkSizes(s, name, selected.DType(), selected.Shape())
	}
	r, ok := v.(*cells.Ref)
	if !ok {
		return nil
	}
	if err := cells.CheckRank(len(r.Shape())); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	meta := s.graph.TensorValues[name]
	if meta == nil {
		return nil
	}
	if r.IsCounted() {
		sizes := slices.Clone(r.Shape())
		sizes[r.RowDim()] = -1
		return b.checkSizes(s, name, r.DType(), sizes)
	}
	want := make(tensor.Shape, len(meta.Sizes))
	for i, sym := range meta.Sizes {
		n, err := b.size(sym)
		if err != nil {
			return nil // a size that is only known while running
		}
		want[i] = int(n)
	}
	if b.autocast != tensor.Invalid && want.Equal(r.Shape()) && meta.DType != r.DType() {
		return b.Unsupported("a result of %v under autocast to %v, and not of %v", meta.DType, b.autocast, r.DType())
	}
	if meta.DType == r.DType() && s.misrecords(name, r.Shape(), want) {
		return nil
	}
	if !want.Equal(r.Shape()) || meta.DType != r.DType() {
		return fmt.Errorf("%s is %v %v, recorded as %v %v", name, r.DType(), r.Shape(), meta.DType, want)
	}
	return nil
}

// expect notes, before the results of a node are held against what was recorded, whether that may have other shapes. Some
// releases of PyTorch record the states that an LSTM on the CPU ends with as [layers, 1, batch, size], where they compute [layers,
// batch, size], and all that is made of them accordingly.
func (s *scope) expect(n *exported.Node) {
	s.states, s.derived = nil, false
	if n.Target == "torch.ops.aten.lstm.input" && len(n.Outputs) == 3 {
		s.states = []string{n.Outputs[1].Name, n.Outputs[2].Name}
	}
	if len(s.misrecorded) == 0 {
		return
	}
	for _, arg := range n.Inputs {
		for name := range arg.Arg.Values {
			s.derived = s.derived || s.misrecorded[name]
		}
	}
}

// misrecords reports whether a recorded shape is another than a result has, but one that it may be recorded with.
func (s *scope) misrecords(name string, is, recorded tensor.Shape) bool {
	if is.Equal(recorded) {
		return false
	}
	ofState := len(is) == 3 && slices.Contains(s.states, name) &&
		slices.Equal(recorded, slices.Insert(slices.Clone(is), 1, 1))
	if !ofState && !(s.derived && cells.NumElements(is) == cells.NumElements(recorded)) {
		return false
	}
	if s.misrecorded == nil {
		s.misrecorded = make(map[string]bool)
	}
	s.misrecorded[name] = true
	return true
}

// checkSizes is defineOne's check of a dtype, and of all sizes but −1, which only data says.
func (b *programBuilder) checkSizes(s *scope, name string, d tensor.DType, sizes tensor.Shape) error {
	meta := s.graph.TensorValues[name]
	if meta == nil {
		return nil
	}
	bad := meta.DType != d || len(meta.Sizes) != len(sizes)
	for i := 0; i < len(sizes) && !bad; i++ {
		n, err := b.size(meta.Sizes[i])
		bad = err == nil && sizes[i] >= 0 && int(n) != sizes[i]
	}
	if bad {
		return fmt.Errorf("%s is %v %v, recorded as %v %v", name, d, sizes, meta.DType, meta.Sizes)
	}
	return nil
}

// customOp builds a call of an op that an embedder defined. Its operands are the tensors among the arguments, in order,
// those of a list one after another; an absent element of a list is an absent operand. All else is an attribute, by its
// name and, if passed by position, as "arg" and the position; of a list of tensors the attribute is their number. None
// leaves no attribute and no operand.
func (b *programBuilder) customOp(s *scope, n *exported.Node) error {
	attrs := make(graph.Attrs)
	var in []graph.Operand
	position := 0
	for _, arg := range n.Inputs {
		v, err := b.argument(s, arg.Arg)
		if err != nil {
			return err
		}
		set := func(v any) {
			if arg.Name != "" {
				attrs[arg.Name] = v
			}
			if arg.Kind != exported.Keyword {
				attrs[fmt.Sprintf("arg%d", position)] = v
			}
		}
		if slices.ContainsFunc(call.Refs([]any{v}), (*cells.Ref).IsCounted) {
			return b.Unsupported("of a tensor whose size depends on data: %s", cells.SizeOfData)
		}
		switch v := v.(type) {
		case nil:
		case *cells.Selection, *cells.Count, dataNumber, []any:
			return b.Unsupported("of what a mask selects: %s", cells.SizeOfData)
		case *cells.Ref:
			in = append(in, b.Read(v))
		case []*cells.Ref:
			for _, r := range v {
				in = append(in, b.Read(r))
			}
			set(len(v))
		default:
			set(v)
		}
		if arg.Kind != exported.Keyword {
			position++
		}
	}
	refs, err := b.Emit(customKind(n.Target), attrs, in...)
	if err != nil {
		return err
	}
	results := make([]any, len(refs))
	for i, r := range refs {
		results[i] = r
	}
	return b.define(s, n, results)
}
