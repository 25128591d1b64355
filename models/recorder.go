package models

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models/torchscript"
	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
)

// DType returns the tensor's dtype; with Shape it makes a ref what a trace sees as a tensor.
func (r *ref) DType() tensor.DType { return r.dtype }

// Shape returns the tensor's dimensions, which the caller must not change.
func (r *ref) Shape() tensor.Shape { return r.layout.Shape }

// A recorder is what traces write to: it gives the ops that they call the meaning that they have in exported programs,
// so that a model gives the same graph whichever form it came in.
type recorder struct {
	*programBuilder
	// wide holds weights in the dtype that their module declares, where the checkpoint has another.
	wide map[string]*ref
	// rename maps the names of the model to those of the checkpoint's weights; nil where they are the same.
	rename func(name string) string
}

func newRecorder(ckpt *loader.Checkpoint, ops *graph.Registry) *recorder {
	return &recorder{
		programBuilder: &programBuilder{
			builder:  &builder{graph: &graph.Graph{Modules: make(map[string]graph.Operand)}, ops: ops},
			ckpt:     ckpt,
			storages: make(map[storage.Extent]*cell),
		},
		wide: make(map[string]*ref),
	}
}

// bind adds the inputs, which have the shapes given, to the graph; an optional one that is not given is nil.
func (r *recorder) bind(ports []Port, shapes map[string]tensor.Shape) ([]layers.Tensor, error) {
	args := make([]layers.Tensor, len(ports))
	for i, p := range ports {
		shape, ok := shapes[p.Name]
		if !ok && p.Optional {
			continue
		}
		if err := fits(p, shape, ok); err != nil {
			return nil, err
		}
		arg, err := r.input(p.Name, p.DType, shape)
		if err != nil {
			return nil, err
		}
		args[i] = arg
	}
	return args, nil
}

// Call implements layers.Recorder.
func (r *recorder) Call(op string, args []any, named layers.Named) ([]any, error) {
	args = slices.Clone(args)
	for i, a := range args {
		args[i] = inward(a)
	}
	given := make(map[string]any, len(named))
	for name, a := range named {
		given[name] = inward(a)
	}
	if _, ok := r.ops.Lookup(graph.Kind(op)); ok && strings.Contains(op, "::") {
		return r.callCustom(op, args, given)
	}
	t, err := resolve(op, args, given)
	if err != nil {
		return nil, err
	}
	c := &call{builder: r.builder, schema: t.schema, args: make(map[string]any)}
	for i, p := range t.schema.params {
		v, ok := given[p.name]
		if !ok && i < len(args) { // no more than the schema has in front of its "*", says resolve
			v, ok = args[i], true
		}
		switch {
		case ok:
			if v, err = p.convert(v); err != nil {
				return nil, err
			}
			c.args[p.name] = v
		case p.required:
			return nil, fmt.Errorf("argument %s is missing", p.name)
		default:
			c.args[p.name] = p.value
		}
	}
	if err := t.run(c); err != nil {
		return nil, err
	}
	results := make([]any, len(c.results))
	for i, v := range c.results {
		results[i] = outward(v)
	}
	return results, nil
}

// inward turns a trace's tensors into those of the builder; outward is the reverse.
func inward(v any) any {
	switch v := v.(type) {
	case []layers.Tensor:
		refs := make([]*ref, len(v))
		for i, t := range v {
			refs[i], _ = t.(*ref)
		}
		return refs
	case []any:
		return inwardList(v)
	}
	return v
}

// inwardList makes a list of one type of a list of any.
func inwardList(list []any) any {
	if len(list) == 0 {
		return []int{}
	}
	switch list[0].(type) {
	case *ref:
		refs := make([]*ref, len(list))
		for i, v := range list {
			refs[i], _ = v.(*ref)
		}
		return refs
	case int:
		ints := make([]int, 0, len(list))
		for _, v := range list {
			if n, ok := v.(int); ok {
				ints = append(ints, n)
			}
		}
		if len(ints) == len(list) {
			return ints
		}
	}
	floats := make([]float64, 0, len(list))
	for _, v := range list {
		switch v := v.(type) {
		case float64:
			floats = append(floats, v)
		case int:
			floats = append(floats, float64(v))
		}
	}
	if len(floats) == len(list) {
		return floats
	}
	refs := make([]*ref, len(list)) // optional tensors, the first of which is None
	for i, v := range list {
		r, ok := v.(*ref)
		if !ok && v != nil {
			return list
		}
		refs[i] = r
	}
	return refs
}

func outward(v any) any {
	if refs, ok := v.([]*ref); ok {
		list := make([]layers.Tensor, len(refs))
		for i, r := range refs {
			if r != nil {
				list[i] = r
			}
		}
		return list
	}
	return v
}

// Weight implements layers.Recorder. A checkpoint may hold a weight in another float type than its module declares, as
// half-precision ones do; load_state_dict copies such a weight into the module's dtype, and so does this.
func (r *recorder) Weight(name string, dtype tensor.DType) (layers.Tensor, error) {
	if r.rename != nil {
		name = r.rename(name)
	}
	w, err := r.weight(name)
	if err != nil {
		return nil, err
	}
	if dtype == tensor.Invalid || w.dtype == dtype {
		return w, nil
	}
	if cast, ok := r.wide[name]; ok {
		return cast, nil
	}
	cast, err := r.cast(w, dtype)
	if err != nil {
		return nil, err
	}
	r.wide[name] = cast
	return cast, nil
}

// Constant implements layers.Recorder.
func (r *recorder) Constant(t *tensor.Tensor) (layers.Tensor, error) {
	t = t.Contiguous()
	if isComplex(t.DType) {
		shape := append(slices.Clone(t.Layout.Shape), 2)
		return r.ofPairs(r.own(r.graph.AddConst(&tensor.Tensor{
			DType: partOf(t.DType), Layout: tensor.Contiguous(shape...), Data: t.Data,
		})))
	}
	return r.own(r.graph.AddConst(t)), nil
}

// Enter implements layers.Recorder.
func (r *recorder) Enter(path string) { r.path = path }

// Leave implements layers.Recorder.
func (r *recorder) Leave(path string, result any) {
	if x, ok := result.(*ref); ok {
		r.graph.Modules[path] = r.read(x)
	}
}

// resolve finds the overload that a call means, as PyTorch does: the one whose parameters take the arguments.
func resolve(op string, args []any, named map[string]any) (target, error) {
	name := "torch.ops." + strings.Replace(op, "::", ".", 1)
	if t, ok := targets[name]; ok {
		if n := t.schema.positional(); len(args) > n {
			return target{}, fmt.Errorf("%d arguments by position, of which it takes %d", len(args), n)
		}
		return t, nil
	}
	if strings.Contains(strings.TrimPrefix(op, "aten::"), ".") {
		return target{}, &UnsupportedError{Missing: []Missing{{Name: name, Uses: 1}}}
	}
	candidates := overloads()[name]
	for _, convert := range []bool{false, true} {
		for _, c := range candidates {
			if c.takes(args, named, convert) {
				return c, nil
			}
		}
	}
	if len(candidates) > 0 {
		return target{}, fmt.Errorf("no overload takes %s", kindsOf(args, named))
	}
	return target{}, &UnsupportedError{Missing: []Missing{{Name: name, Uses: 1}}}
}

func kindsOf(args []any, named map[string]any) string {
	var list []string
	for _, a := range args {
		list = append(list, kindOf(a))
	}
	for name, a := range named {
		list = append(list, name+"="+kindOf(a))
	}
	return "(" + strings.Join(list, ", ") + ")"
}

func kindOf(a any) string {
	switch a := a.(type) {
	case nil:
		return "None"
	case *ref:
		return "Tensor"
	case []*ref:
		return "Tensor[]"
	case float64:
		return "float"
	case string:
		return "str"
	case []int:
		return "int[]"
	case []float64:
		return "float[]"
	case tensor.DType:
		return "dtype"
	default:
		return fmt.Sprintf("%T", a)
	}
}

// overloads returns the targets of each name, the one without an overload name first. Most programs name their overloads and
// need none of it.
var overloads = sync.OnceValue(func() map[string][]target {
	all := make(map[string][]target)
	for name, t := range targets {
		base := name[:strings.LastIndexByte(name, '.')]
		all[base] = append(all[base], t)
		// The plain name stands for the default overload alone when there is one, which is in targets under ".default".
	}
	for _, list := range all {
		slices.SortFunc(list, func(a, b target) int { return strings.Compare(overloadOrder(a), overloadOrder(b)) })
	}
	return all
})

// overloadOrder sorts the default overload before others, those of tensors before those of numbers.
func overloadOrder(t target) string {
	_, name, _ := strings.Cut(strings.TrimPrefix(t.schema.target, "torch.ops."), ".")
	_, name, _ = strings.Cut(name, ".")
	switch {
	case name == "default":
		return "0"
	case strings.HasPrefix(name, "Tensor"), name == "self":
		return "1" + name
	case name == "correction": // takes what std.dim takes, which comes first
		return "3"
	}
	return "2" + name
}

// takes reports whether the arguments are of the types of the parameters, or can be converted to them.
func (t target) takes(args []any, named map[string]any, convert bool) bool {
	params := t.schema.params
	positional := 0
	for i, p := range params {
		v, ok := named[p.name]
		if !ok && i < len(args) && !p.keywordOnly {
			v, ok = args[i], true
			positional++
		}
		if !ok {
			if p.required {
				return false
			}
			continue
		}
		if !p.accepts(v, convert) {
			return false
		}
	}
	if positional < len(args) {
		return false
	}
	for name := range named {
		if !slices.ContainsFunc(params, func(p param) bool { return p.name == name }) {
			return false
		}
	}
	return true
}

// element returns the parameter's type without what says that it may be None, a list or written to.
func (p param) element() (element string, optional, list, sized bool) {
	typ, optional := strings.CutSuffix(p.typ, "?")
	if i := strings.IndexByte(typ, '('); i >= 0 { // Tensor(a!)
		end := strings.IndexByte(typ, ')')
		typ = typ[:i] + typ[end+1:]
	}
	element = typ
	if i := strings.IndexByte(typ, '['); i >= 0 {
		element, list = typ[:i], true
		sized = len(typ) > i+2 // int[2] takes one integer for all
	}
	return strings.TrimSuffix(element, "?"), optional, list, sized
}

// accepts reports whether a value can be an argument for the parameter. A flag stands for a number; where conversions are
// allowed, so does a tensor without dimensions, and a number for a tensor.
func (p param) accepts(v any, convert bool) bool {
	element, optional, list, sized := p.element()
	isInt := element == "int" || element == "SymInt"
	isNumber := element == "Scalar" || element == "number"
	switch v := v.(type) {
	case nil:
		return optional
	case *ref:
		return !list && (element == "Tensor" || convert && isNumber && v.rank() == 0)
	case []*ref:
		return list && element == "Tensor"
	case int:
		switch {
		case list:
			return sized && isInt
		case element == "ScalarType", element == "Layout", element == "MemoryFormat":
			return true // as TorchScript has them
		}
		return isInt || isNumber || element == "float" || convert && element == "Tensor"
	case bool:
		return !list && (element == "bool" || isNumber || isInt || element == "float")
	case float64:
		return !list && (element == "float" || isNumber || convert && element == "Tensor") || sized && element == "float"
	case complex128:
		return !list && (element == "complex" || isNumber)
	case string:
		return !list && (element == "str" || element == "Device")
	case []int:
		return list && (isInt || isNumber || element == "float" || len(v) == 0 && element == "Tensor")
	case []float64:
		return list && (isNumber || element == "float")
	case []bool:
		return list && element == "bool"
	case tensor.DType:
		return !list && element == "ScalarType"
	}
	return !list
}

// convert returns an argument as the meanings of ops take it: TorchScript writes dtypes as numbers.
func (p param) convert(v any) (any, error) {
	n, ok := v.(int)
	if !ok {
		return v, nil
	}
	if element, _, _, _ := p.element(); element != "ScalarType" {
		return v, nil
	}
	d, ok := torchscript.DType(n)
	if !ok {
		return nil, fmt.Errorf("argument %s: no dtype %d", p.name, n)
	}
	return d, nil
}

// callCustom records a call of an op that an embedder defined, with operands and attributes as exported programs have
// them.
func (r *recorder) callCustom(op string, args []any, named map[string]any) ([]any, error) {
	attrs := make(graph.Attrs)
	var in []graph.Operand
	add := func(key string, v any) {
		switch v := v.(type) {
		case nil:
		case *ref:
			in = append(in, r.read(v))
		case []*ref:
			for _, x := range v {
				in = append(in, r.read(x))
			}
			attrs[key] = len(v)
		default:
			attrs[key] = v
		}
	}
	for i, v := range args {
		add(fmt.Sprintf("arg%d", i), v)
	}
	for _, name := range slices.Sorted(maps.Keys(named)) {
		add(name, named[name])
	}
	refs, err := r.emit(graph.Kind(op), attrs, in...)
	if err != nil {
		return nil, err
	}
	results := make([]any, len(refs))
	for i, x := range refs {
		results[i] = x
	}
	return results, nil
}
