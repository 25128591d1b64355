package models

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models/aten"
	"github.com/optimem/optimem/models/aten/call"
	"github.com/optimem/optimem/models/aten/cells"
	"github.com/optimem/optimem/models/torchscript"
	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
)

// A recorder is what traces write to: it gives the ops that they call the meaning that they have in exported programs,
// so that a model gives the same graph whichever form it came in.
type recorder struct {
	*programBuilder
	// wide holds weights in the dtype that their module declares, where the checkpoint has another.
	wide map[string]*cells.Ref
	// rename maps the names of the model to those of the checkpoint's weights; nil where they are the same.
	rename func(name string) string
	// adapted are the weights of adapters, by their names in the model.
	adapted map[string]tensor.Weight
	// site is what calls tell the builder of their place.
	site call.Site
}

func newRecorder(ckpt *loader.Checkpoint, ops *graph.Registry) *recorder {
	return &recorder{
		programBuilder: &programBuilder{
			Builder:  &cells.Builder{Graph: &graph.Graph{Modules: make(map[string]graph.Operand)}, Ops: ops},
			ckpt:     ckpt,
			storages: make(map[storage.Extent]*cells.Cell),
		},
		wide: make(map[string]*cells.Ref),
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
		arg, err := r.Input(p.Name, p.DType, shape)
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
	var err error
	for i, a := range args {
		if args[i], err = r.inward(a); err != nil {
			return nil, err
		}
	}
	given := make(map[string]any, len(named))
	for name, a := range named {
		if given[name], err = r.inward(a); err != nil {
			return nil, err
		}
	}
	if _, ok := r.Ops.Lookup(graph.Kind(op)); ok && strings.Contains(op, "::") {
		return r.callCustom(op, args, given)
	}
	t, err := aten.Resolve(op, args, given)
	if err != nil {
		return nil, err
	}
	bound, err := t.Bind(args, given) // no more by position than the schema has in front of its "*", says resolve
	if err != nil {
		return nil, err
	}
	for name, v := range bound {
		n, ok := v.(int)
		if !ok || !t.TakesDType(name) {
			continue
		}
		if bound[name], ok = torchscript.DType(n); !ok { // TorchScript writes dtypes as numbers
			return nil, fmt.Errorf("argument %s: no dtype %d", name, n)
		}
	}
	results, err := t.Call(r.Builder, r.site, bound)
	for i, v := range results {
		results[i] = outward(v)
	}
	return results, err
}

// inward turns a trace's tensors into those of the builder; outward is the reverse. In a list what a mask selects is a tensor with
// a count of its rows.
func (r *recorder) inward(v any) (any, error) {
	switch v := v.(type) {
	case []layers.Tensor:
		refs := make([]*cells.Ref, len(v))
		for i, t := range v {
			if t == nil {
				continue
			}
			var err error
			if refs[i], err = r.whole(t); err != nil {
				return nil, err
			}
		}
		return refs, nil
	case []any:
		return aten.List(v), nil
	}
	return v, nil
}

// whole returns a tensor of a trace as one of the builder: what a mask selects with a count of its rows.
func (r *recorder) whole(t layers.Tensor) (*cells.Ref, error) {
	if s, ok := t.(*cells.Selection); ok {
		return s.Made(r.Builder)
	}
	return t.(*cells.Ref), nil
}

func outward(v any) any {
	if refs, ok := v.([]*cells.Ref); ok {
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
	var w *cells.Ref
	if own, ok := r.adapted[name]; ok {
		w = r.stored(own)
	} else {
		if r.rename != nil {
			name = r.rename(name)
		}
		var err error
		if w, err = r.weight(name); err != nil {
			return nil, err
		}
	}
	if dtype == tensor.Invalid || w.DType() == dtype {
		return w, nil
	}
	if cast, ok := r.wide[name]; ok {
		return cast, nil
	}
	cast, err := r.Cast(w, dtype)
	if err != nil {
		return nil, err
	}
	r.wide[name] = cast
	return cast, nil
}

// Constant implements layers.Recorder.
func (r *recorder) Constant(t *tensor.Tensor) (layers.Tensor, error) {
	t = t.Contiguous()
	if cells.IsComplex(t.DType) {
		shape := append(slices.Clone(t.Layout.Shape), 2)
		return r.OfPairs(r.Own(r.Graph.AddConst(&tensor.Tensor{
			DType: cells.PartOf(t.DType), Layout: tensor.Contiguous(shape...), Data: t.Data,
		})))
	}
	return r.Own(r.Graph.AddConst(t)), nil
}

// Enter implements layers.Recorder.
func (r *recorder) Enter(path string) { r.Path = path }

// Leave implements layers.Recorder.
func (r *recorder) Leave(path string, result any) {
	if x, ok := result.(*cells.Ref); ok && !x.IsCounted() {
		r.Graph.Modules[path] = r.Read(x)
	}
}

// callCustom records a call of an op that an embedder defined, with operands and attributes as exported programs have
// them.
func (r *recorder) callCustom(op string, args []any, named map[string]any) ([]any, error) {
	attrs := make(graph.Attrs)
	var in []graph.Operand
	add := func(key string, v any) {
		switch v := v.(type) {
		case nil:
		case *cells.Ref:
			in = append(in, r.Read(v))
		case []*cells.Ref:
			for _, x := range v {
				in = append(in, r.Read(x))
			}
			attrs[key] = len(v)
		default:
			attrs[key] = v
		}
	}
	all := slices.AppendSeq(slices.Clone(args), maps.Values(named))
	if slices.ContainsFunc(all, cells.IsSelection) || slices.ContainsFunc(call.Refs(all), (*cells.Ref).IsCounted) {
		return nil, r.Unsupported("of a tensor whose size depends on data: %s", cells.SizeOfData)
	}
	for i, v := range args {
		add(fmt.Sprintf("arg%d", i), v)
	}
	for _, name := range slices.Sorted(maps.Keys(named)) {
		add(name, named[name])
	}
	refs, err := r.Emit(graph.Kind(op), attrs, in...)
	if err != nil {
		return nil, err
	}
	results := make([]any, len(refs))
	for i, x := range refs {
		results[i] = x
	}
	return results, nil
}
