package lora

import (
	"strings"

	"github.com/optimem/optimem/layers"
)

// The classes of modules that adapters change.
var kinds = map[string]kind{
	"torch.nn.modules.linear.Linear":                          linear,
	"torch.nn.modules.linear.NonDynamicallyQuantizableLinear": linear,
	"transformers.pytorch_utils.Conv1D":                       turned,
	"torch.nn.modules.sparse.Embedding":                       embedding,
}

// kindOf returns what sort of module one is, false for one that adapters do not change here.
func kindOf(m *layers.Module) (kind, bool) {
	k, ok := kinds[m.Class]
	if !ok {
		return 0, false
	}
	w := weightOf(m)
	return k, w != nil && len(w.Shape) == 2
}

// sizesOf returns how many inputs and outputs a module has, for an embedding its rows and their length.
func sizesOf(m *layers.Module, k kind) (in, out int) {
	s := weightOf(m).Shape
	if k == linear {
		return s[1], s[0]
	}
	return s[0], s[1]
}

func weightOf(m *layers.Module) *layers.Param {
	for i := range m.Params {
		if m.Params[i].Name == "weight" && !m.Params[i].None {
			return &m.Params[i]
		}
	}
	return nil
}

// A tree is the modules and parameters of an architecture by their paths. A module in two places is at its first.
type tree struct {
	paths   []string
	modules map[string]*layers.Module
	params  map[string]layers.Param
	// owner is the module of a parameter.
	owner map[string]string
}

func treeOf(a *layers.Architecture) *tree {
	t := &tree{modules: make(map[string]*layers.Module), params: make(map[string]layers.Param), owner: make(map[string]string)}
	seen := make(map[*layers.Module]bool)
	a.Root.Walk(func(path string, m *layers.Module) {
		if seen[m] {
			return
		}
		seen[m] = true
		t.paths, t.modules[path] = append(t.paths, path), m
		for _, p := range m.Params {
			if !p.None {
				t.params[layers.Join(path, p.Name)], t.owner[layers.Join(path, p.Name)] = p, path
			}
		}
	})
	return t
}

// find returns the path of a module as the tree has it: an adapter that was made for a model with a head names the base
// model's modules with a prefix more, and the other way round. It reports whether there is one.
func (t *tree) find(path string) (string, bool) {
	if t.modules[path] != nil {
		return path, true
	}
	first, rest, ok := strings.Cut(path, ".")
	root := t.modules[""]
	if ok && !root.Has(first) && t.modules[rest] != nil {
		return rest, true
	}
	for _, c := range root.Children {
		if longer := layers.Join(c.Name, path); t.modules[longer] != nil && !root.Has(first) {
			return longer, true
		}
	}
	return path, false
}
