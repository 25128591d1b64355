package loader

import (
	"slices"

	"github.com/optimem/optimem/loader/internal/fault"
	"github.com/optimem/optimem/loader/internal/pickle"
)

// moduleFields are the attributes that torch.nn.Module gives every module. They are not listed: parameters,
// buffers, children and the hooks of forward have places of their own, other hooks are ignored.
var moduleFields = map[string]bool{
	"training": true, "_parameters": true, "_buffers": true, "_modules": true, "_non_persistent_buffers_set": true,
	"_backward_pre_hooks": true, "_backward_hooks": true, "_is_full_backward_hook": true,
	"_forward_hooks": true, "_forward_hooks_with_kwargs": true, "_forward_hooks_always_called": true,
	"_forward_pre_hooks": true, "_forward_pre_hooks_with_kwargs": true, "_state_dict_hooks": true,
	"_state_dict_pre_hooks": true, "_load_state_dict_pre_hooks": true, "_load_state_dict_post_hooks": true,
	"_compiled_call_impl": true, "call_super_init": true,
}

// isModule reports whether an inert object is a torch.nn.Module: its state has the three dictionaries of one.
func isModule(obj *pickle.Object) bool {
	state, ok := pickle.Dict(obj.State())
	if !ok {
		return false
	}
	found := 0
	for _, e := range state {
		switch key, _ := pickle.String(e.Key); key {
		case "_parameters", "_buffers", "_modules":
			found++
		}
	}
	return found == 3
}

// Estimates, charged to the meter because a part of a pickle may be in many modules: of looking at an entry of a
// module's dictionaries, and of a member, its name not counted.
const (
	entryBytes  = 16
	memberBytes = 64
)

// module lists the parameters and buffers of a pickled module and of its children, in PyTorch's state_dict order, and
// returns the tree.
func (f *flattener) module(path string, obj *pickle.Object, depth int) (*Module, error) {
	if depth > f.o.opts.Limits.Depth {
		return nil, fault.New(
			fault.ErrLimit, -1, "modules nested more than %d deep at %.100q", f.o.opts.Limits.Depth, path,
		)
	}
	const moduleBytes = 300
	state, _ := pickle.Dict(obj.State())
	if err := f.o.meter.Charge(moduleBytes + int64(len(path)+entryBytes*len(state))); err != nil {
		return nil, err
	}
	m := &Module{Class: obj.Class().String(), Path: path}
	fields := make(map[string]any, len(moduleFields))
	for _, e := range state {
		if key, ok := pickle.String(e.Key); ok && moduleFields[key] {
			fields[key] = unwrap(e.Value)
		}
	}
	m.Training, _ = pickle.Bool(fields["training"])
	var err error
	if m.Params, err = f.members(path, fields["_parameters"], nil, depth); err != nil {
		return nil, err
	}
	if m.Buffers, err = f.members(path, fields["_buffers"], fields["_non_persistent_buffers_set"], depth); err != nil {
		return nil, err
	}
	if m.Attrs, err = f.attrs(path, state, depth); err != nil {
		return nil, err
	}
	if m.Hooks, err = f.hooks(fields["_forward_pre_hooks"], fields["_forward_hooks"], depth); err != nil {
		return nil, err
	}
	children, _ := pickle.Dict(fields["_modules"])
	if err := f.o.meter.Charge(int64(entryBytes * len(children))); err != nil {
		return nil, err
	}
	for _, e := range children {
		name, ok := pickle.String(e.Key)
		child, isObject := pickle.AsObject(unwrap(e.Value))
		if !ok || !isObject || !isModule(child) {
			if pickle.IsNone(e.Value) {
				continue
			}
			return nil, errorAt(f.o.path, join(path, name), notModule(child))
		}
		if f.inside[child] {
			return nil, errorAt(f.o.path, join(path, name), fault.New(fault.ErrFormat, -1, "module contains itself"))
		}
		f.inside[child] = true
		c, err := f.module(join(path, name), child, depth+1)
		delete(f.inside, child)
		if err != nil {
			return nil, err
		}
		m.Children = append(m.Children, c)
	}
	return m, nil
}

// notModule says why what stands among a module's children is none: its class may have a __getstate__ of its own that leaves
// out what a module has, as those of einops do.
func notModule(child *pickle.Object) error {
	if child == nil {
		return fault.New(fault.ErrFormat, -1, "child is not a module")
	}
	return fault.New(fault.ErrUnsupported, -1,
		"%s is pickled in a form of its own, which only its code can read: save the state_dict, or export the model",
		child.Class())
}

// hooks lists what is called before and after forward, by class or function.
func (f *flattener) hooks(before, after any, depth int) ([]ClassName, error) {
	var names []ClassName
	for _, dict := range []any{before, after} {
		entries, _ := pickle.Dict(dict)
		for _, e := range entries {
			v, err := f.attr(e.Value, depth+1)
			if err != nil {
				return nil, err
			}
			name, ok := v.(ClassName)
			if !ok {
				name = "unknown"
			}
			names = append(names, name)
		}
	}
	return names, nil
}

// members lists a module's _parameters or _buffers.
func (f *flattener) members(path string, v, transient any, depth int) ([]Member, error) {
	entries, _ := pickle.Dict(v)
	skip := make(map[string]bool)
	names, _ := pickle.Set(transient)
	if err := f.o.meter.Charge(int64(memberBytes * (len(entries) + len(names)))); err != nil {
		return nil, err
	}
	for _, n := range names {
		if s, ok := pickle.String(n); ok {
			skip[s] = true
		}
	}
	var members []Member
	for _, e := range entries {
		name, ok := pickle.String(e.Key)
		if !ok {
			return nil, errorAt(f.o.path, path, fault.New(fault.ErrFormat, -1, "a parameter's name is not a string"))
		}
		member := Member{Name: name, Transient: skip[name]}
		switch t := unwrap(e.Value).(type) {
		case *tensorValue:
			full := join(path, name)
			err := f.o.meter.Charge(flattenStepBytes + int64(len(full)))
			if err == nil {
				err = f.tensor(full, t, depth)
			}
			if err != nil {
				return nil, err
			}
			member.Weight = full
		default:
			if !pickle.IsNone(e.Value) {
				return nil, errorAt(
					f.o.path, join(path, name), fault.New(fault.ErrFormat, -1, "parameter is not a tensor"),
				)
			}
		}
		members = append(members, member)
	}
	return members, nil
}

// attrs converts the attributes that are not torch.nn.Module's own. Tensors among them are listed, though they are not
// part of the module's state dict.
func (f *flattener) attrs(path string, state []pickle.Entry, depth int) ([]Attr, error) {
	var attrs []Attr
	for _, e := range state {
		key, ok := pickle.String(e.Key)
		if !ok || moduleFields[key] {
			continue
		}
		value, err := f.attr(e.Value, depth+1)
		if err != nil {
			return nil, err
		}
		attrs = append(attrs, Attr{Name: key, Value: value})
		f.tensorsOnly = true
		err = f.walk(join(path, key), e.Value, depth+1)
		f.tensorsOnly = false
		if err != nil {
			return nil, err
		}
	}
	return attrs, nil
}

// attr converts a plain attribute to Go values; what is not plain becomes its class's name.
func (f *flattener) attr(v any, depth int) (any, error) {
	if depth > f.o.opts.Limits.Depth {
		return nil, fault.New(fault.ErrLimit, -1, "attributes nested more than %d deep", f.o.opts.Limits.Depth)
	}
	const attrBytes = 64
	if err := f.o.meter.Charge(attrBytes); err != nil {
		return nil, err
	}
	v = unwrap(v)
	if pickle.IsNone(v) {
		return nil, nil
	}
	if b, ok := pickle.Bool(v); ok {
		return b, nil
	}
	if n, ok := pickle.Int(v); ok {
		return n, nil
	}
	if x, ok := pickle.Float(v); ok {
		return x, nil
	}
	if s, ok := pickle.String(v); ok {
		return s, nil
	}
	if g, ok := pickle.AsGlobal(v); ok {
		return ClassName(g.String()), nil
	}
	switch v := v.(type) {
	case *tensorValue:
		return ClassName("torch.Tensor"), nil
	case *plainCall:
		return ClassName(plainText(v)), nil
	}
	if obj, ok := pickle.AsObject(v); ok {
		if _, isDict := pickle.Dict(v); !isDict {
			return ClassName(obj.Class().String()), nil
		}
	}
	entries, isDict := pickle.Dict(v)
	items, isTuple := pickle.Tuple(v)
	list, isList := pickle.List(v)
	if !isDict && !isTuple && !isList {
		return ClassName(plainText(v)), nil
	}
	if f.inside[v] {
		return ClassName("…"), nil
	}
	f.inside[v] = true
	defer delete(f.inside, v)
	if !isDict {
		out := make([]any, 0, len(items)+len(list))
		for _, item := range slices.Concat(items, list) {
			value, err := f.attr(item, depth+1)
			if err != nil {
				return nil, err
			}
			out = append(out, value)
		}
		return out, nil
	}
	out := make(map[string]any, len(entries))
	for _, e := range entries {
		value, err := f.attr(e.Value, depth+1)
		if err != nil {
			return nil, err
		}
		out[keyText(e.Key)] = value
	}
	return out, nil
}
