package aten

import (
	"fmt"
	"strings"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// A Given is a tensor argument of [BuildCall]: input Name, seen through a layout.
type Given struct {
	Name   string
	DType  tensor.DType
	Layout tensor.Layout
	// Elements is the size of the memory that the layout views.
	Elements int
}

// BuildCall returns the graph of a single call of an aten op, for tests of ops by themselves. Arguments are by the names
// of the schema: Given and []Given for tensors, and nil, int, []int, float64, []float64, bool, string and tensor.DType.
// Results are called "0", "1", …; with inPlace the first result is the argument "self" after the call.
func BuildCall(ops *graph.Registry, name string, args map[string]any) (*graph.Graph, error) {
	s, err := buildSingle(ops, name, args)
	if err != nil {
		return nil, err
	}
	for i, r := range Refs(s.results) {
		if err := s.Output(fmt.Sprint(i), r); err != nil {
			return nil, err
		}
	}
	return s.Graph, nil
}

// A single is a call by itself, built, with the memory of its arguments by name, and what that was before.
type single struct {
	*call
	cells  map[string]*Cell
	before map[string]Cell
}

func buildSingle(ops *graph.Registry, name string, args map[string]any) (*single, error) {
	t, ok := targets[name]
	if !ok {
		return nil, &UnsupportedError{Missing: []Missing{{Name: name, Uses: 1}}}
	}
	b := &Builder{Graph: &graph.Graph{}, Ops: ops}
	s := &single{cells: make(map[string]*Cell), before: make(map[string]Cell)}
	tensorOf := func(g Given) (*Ref, error) {
		c, ok := s.cells[g.Name]
		if !ok {
			memory, err := b.Input(g.Name, g.DType, tensor.Shape{g.Elements})
			if err != nil {
				return nil, err
			}
			c = memory.cell
			s.cells[g.Name], s.before[g.Name] = c, *c
		}
		return &Ref{cell: c, layout: g.Layout, dtype: g.DType}, nil
	}
	c := &call{Builder: b, schema: t.schema, args: make(map[string]any)}
	s.call = c
	for _, p := range t.schema.params {
		v, given := args[p.name]
		switch v := v.(type) {
		case Given:
			r, err := tensorOf(v)
			if err != nil {
				return nil, err
			}
			c.args[p.name] = r
		case []Given:
			refs := make([]*Ref, len(v))
			for i, g := range v {
				if g.Name == "" { // the zero Given is None
					continue
				}
				var err error
				if refs[i], err = tensorOf(g); err != nil {
					return nil, err
				}
			}
			c.args[p.name] = refs
		default:
			if !given && p.required && !strings.HasSuffix(p.typ, "?") && p.typ != "Device" { // not recorded, or None
				return nil, fmt.Errorf("argument %s is missing", p.name)
			}
			if !given {
				v = p.value
			}
			c.args[p.name] = v
		}
	}
	return s, t.run(c)
}

// Refs returns the tensors of results, those of lists one after another.
func Refs(results []any) []*Ref {
	var refs []*Ref
	for _, r := range results {
		switch r := r.(type) {
		case *Ref:
			refs = append(refs, r)
		case []*Ref:
			refs = append(refs, r...)
		}
	}
	return refs
}
