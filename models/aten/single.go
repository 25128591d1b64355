package aten

import (
	"fmt"
	"strings"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/models/aten/call"
	"github.com/optimem/optimem/models/aten/cells"
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
	for i, r := range call.Refs(s.Results) {
		if err := s.Output(fmt.Sprint(i), r); err != nil {
			return nil, err
		}
	}
	return s.Graph, nil
}

// A single is a call by itself, built, with the memory of its arguments by name, and what that was before.
type single struct {
	*call.Call
	cells  map[string]*cells.Cell
	before map[string]cells.Cell
}

func buildSingle(ops *graph.Registry, name string, args map[string]any) (*single, error) {
	t, ok := targets[name]
	if !ok {
		return nil, &cells.UnsupportedError{Missing: []cells.Missing{{Name: name, Uses: 1}}}
	}
	b := &cells.Builder{Graph: &graph.Graph{}, Ops: ops}
	s := &single{cells: make(map[string]*cells.Cell), before: make(map[string]cells.Cell)}
	tensorOf := func(g Given) (*cells.Ref, error) {
		c, ok := s.cells[g.Name]
		if !ok {
			memory, err := b.Input(g.Name, g.DType, tensor.Shape{g.Elements})
			if err != nil {
				return nil, err
			}
			c = memory.Memory()
			s.cells[g.Name], s.before[g.Name] = c, *c
		}
		return cells.NewRef(c, g.Layout, g.DType), nil
	}
	c := &call.Call{Builder: b, Schema: t.schema, Args: make(map[string]any)}
	s.Call = c
	for _, p := range t.schema.Params {
		v, given := args[p.Name]
		switch v := v.(type) {
		case Given:
			r, err := tensorOf(v)
			if err != nil {
				return nil, err
			}
			c.Args[p.Name] = r
		case []Given:
			refs := make([]*cells.Ref, len(v))
			for i, g := range v {
				if g.Name == "" { // the zero Given is None
					continue
				}
				var err error
				if refs[i], err = tensorOf(g); err != nil {
					return nil, err
				}
			}
			c.Args[p.Name] = refs
		default:
			if !given && p.Required && !strings.HasSuffix(p.Type, "?") && p.Type != "Device" { // not recorded, or None
				return nil, fmt.Errorf("argument %s is missing", p.Name)
			}
			if !given {
				v = p.Value
			}
			c.Args[p.Name] = v
		}
	}
	return s, t.run(c)
}
