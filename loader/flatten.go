package loader

import (
	"slices"
	"strconv"

	"github.com/optimem/optimem/loader/internal/fault"
	"github.com/optimem/optimem/loader/internal/pickle"
	"github.com/optimem/optimem/tensor"
)

// maxValues bounds the plain values kept beside the tensors.
const maxValues = 1000

// A flattener walks the object that a pickle held and lists what is in it under dotted paths. Pickled objects can
// contain themselves and can share parts without end, so the walk has a depth, skips what it is inside of, and pays the
// meter for every step.
type flattener struct {
	o    *opener
	ckpt *Checkpoint
	// tensorsOnly leaves plain values and the places of dictionaries out, inside a module's attributes.
	tensorsOnly bool
	// inside holds the containers between the root and the current value.
	inside map[any]bool
}

// flatten lists everything in v. A bare tensor has the empty name.
func (o *opener) flatten(ckpt *Checkpoint, v any) error {
	f := &flattener{o: o, ckpt: ckpt, inside: make(map[any]bool)}
	ckpt.grow(o.rebuilt)
	return f.walk("", v, 0)
}

// flattenStepBytes is charged for each value visited: what a shared container costs when it is walked again.
const flattenStepBytes = 48

func (f *flattener) walk(path string, v any, depth int) error {
	if depth > f.o.opts.Limits.Depth {
		return fault.New(fault.ErrLimit, -1, "objects nested more than %d deep at %.100q", f.o.opts.Limits.Depth, path)
	}
	if err := f.o.meter.Charge(flattenStepBytes + int64(len(path))); err != nil {
		return err
	}
	v = unwrap(v)
	if t, ok := v.(*tensorValue); ok {
		return f.tensor(path, t, depth)
	}
	entries, isDict := pickle.Dict(v)
	items, isTuple := pickle.Tuple(v)
	list, isList := pickle.List(v)
	obj, isObject := pickle.AsObject(v)
	if !isDict && !isTuple && !isList && !isObject {
		f.value(path, plainText(v))
		return nil
	}
	if f.inside[v] { // a container is a pointer: it stands for itself
		return nil
	}
	f.inside[v] = true
	defer delete(f.inside, v)
	switch {
	case isDict:
		return f.dict(path, entries, depth)
	case isObject:
		return f.object(path, obj, depth)
	}
	return f.items(path, slices.Concat(items, list), depth)
}

func (f *flattener) dict(path string, entries []pickle.Entry, depth int) error {
	node := dictNode{path: path, first: len(f.ckpt.Weights)}
	for _, e := range entries {
		if _, isTensor := unwrap(e.Value).(*tensorValue); isTensor {
			node.direct++
		}
		if err := f.walk(join(path, keyText(e.Key)), e.Value, depth+1); err != nil {
			return err
		}
	}
	if node.end = len(f.ckpt.Weights); node.direct > 0 && !f.tensorsOnly {
		f.ckpt.dicts = append(f.ckpt.dicts, node)
	}
	return nil
}

func (f *flattener) items(path string, items []any, depth int) error {
	for i, item := range items {
		if err := f.walk(join(path, strconv.Itoa(i)), item, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// object lists what an inert object holds: a module's parameters and buffers, or the attributes of anything else.
func (f *flattener) object(path string, obj *pickle.Object, depth int) error {
	if isModule(obj) {
		first := len(f.ckpt.Weights)
		m, err := f.module(path, obj, depth)
		if err != nil {
			return err
		}
		if f.ckpt.Module == nil {
			f.ckpt.Module = m
		}
		f.ckpt.dicts = append(f.ckpt.dicts, dictNode{path: path, module: true, first: first, end: len(f.ckpt.Weights)})
		return nil
	}
	f.value(path, obj.Class().String())
	// A named tuple's items are its constructor's arguments.
	if err := f.items(path, slices.Concat(obj.Args(), obj.Items()), depth); err != nil {
		return err
	}
	for _, e := range obj.Entries() {
		if err := f.walk(join(path, keyText(e.Key)), e.Value, depth+1); err != nil {
			return err
		}
	}
	return f.state(path, obj.State(), depth+1)
}

// state lists the attributes of an object: a dictionary, or a pair of one and of another for its slots.
func (f *flattener) state(path string, state any, depth int) error {
	parts := []any{state}
	if pair, ok := pickle.Tuple(state); ok && len(pair) == 2 {
		parts = pair
	}
	for _, part := range parts {
		if part == nil || pickle.IsNone(part) {
			continue
		}
		if err := f.walk(path, part, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// tensor adds t to the checkpoint under the given path.
func (f *flattener) tensor(path string, t *tensorValue, depth int) error {
	if t.unreadable != nil {
		if err := f.o.meter.Charge(unreadableBytes); err != nil {
			return err
		}
		f.ckpt.Unreadable = append(f.ckpt.Unreadable,
			&Error{Path: f.o.path, Record: path, Offset: -1, Err: t.unreadable})
	} else {
		w, err := f.weight(path, t)
		if err == nil {
			w.Name = f.ckpt.uniqueName(path)
			err = f.ckpt.addWeight(w)
		}
		if err != nil {
			return errorAt(f.o.path, path, err)
		}
	}
	if t.attrs == nil || f.inside[t] {
		return nil
	}
	f.inside[t] = true
	defer delete(f.inside, t)
	return f.state(path, t.attrs, depth+1)
}

// unreadableBytes is what an entry of Unreadable takes, its error not counted.
const unreadableBytes = 96

// weight turns a readable tensor into a weight. The walk has paid for the path, and for the step to the tensor, which is
// a part of what the weight takes.
func (f *flattener) weight(path string, t *tensorValue) (tensor.Weight, error) {
	if err := f.o.meter.Charge(weightBytes - flattenStepBytes); err != nil {
		return tensor.Weight{}, err
	}
	w := tensor.Weight{
		Name:   path,
		DType:  t.dtype,
		Layout: t.layout,
		Extent: t.storage.extent,
		// PyTorch swaps typed storages alone when it reads a file of the other byte order, and so do we.
		BigEndian: t.storage.bigEndian && t.storage.dtype != tensor.Invalid,
		Conj:      t.conj,
		Neg:       t.neg,
	}
	if err := w.Check(); err != nil {
		return w, fault.New(fault.ErrFormat, -1, "storage %q: %v", t.storage.key, err)
	}
	if q := t.quant; q != nil {
		w.Quant = &tensor.Quant{Scheme: q.scheme, Scale: q.scale, ZeroPoint: q.zeroPoint, Axis: q.axis}
		for _, part := range []struct {
			name string
			from any
			to   **tensor.Weight
		}{{"scales", q.scales, &w.Quant.Scales}, {"zero_points", q.zeroPoints, &w.Quant.ZeroPoints}} {
			inner, ok := part.from.(*tensorValue)
			if !ok || inner.unreadable != nil {
				continue
			}
			if err := f.o.meter.Charge(flattenStepBytes + int64(len(path)+len(part.name)+1)); err != nil {
				return w, err
			}
			sub, err := f.weight(path+"."+part.name, inner)
			if err != nil {
				return w, err
			}
			*part.to = &sub
		}
	}
	return w, nil
}

func (f *flattener) value(path, text string) {
	if len(f.ckpt.Values) < maxValues && path != "" && !f.tensorsOnly {
		f.ckpt.Values = append(f.ckpt.Values, Value{Name: path, Text: text})
	}
}

// join appends a key to a dotted path.
func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// keyText returns a dictionary key as a part of a path: Python's str of it.
func keyText(key any) string {
	if s, ok := pickle.String(key); ok {
		return s
	}
	return plainText(key)
}
