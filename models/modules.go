package models

import (
	"fmt"
	"slices"
	"strings"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/loader/exported"
	"github.com/optimem/optimem/loader/script"
)

// Modules returns the paths of the modules of a model, sorted: those whose outputs a graph may have in
// [graph.Graph.Modules]. Which of them give a tensor depends on what runs. It is nil where the model says nothing of
// modules.
func (m *Model) Modules() []string {
	if m.modules == nil {
		return nil
	}
	paths := m.modules()
	slices.Sort(paths)
	return slices.Compact(paths)
}

// An UnknownModuleError is a path at which a model has no module.
type UnknownModuleError struct {
	Path string
	// Close are the paths most like it, the closest first; where none is like it, they are the model's first ones. All
	// counts the modules of the model.
	Close []string
	All   int
}

// Error says which paths there are.
func (e *UnknownModuleError) Error() string {
	switch text := fmt.Sprintf("no module %q", e.Path); {
	case e.All == 0:
		return text + ": the program names no modules"
	case len(e.Close) == e.All:
		return text + ": there are " + strings.Join(e.Close, ", ")
	default:
		return fmt.Sprintf("%s: among the %d there are %s", text, e.All, strings.Join(e.Close, ", "))
	}
}

// CheckModule returns an [*UnknownModuleError] where the model is known to have no module at a path.
func (m *Model) CheckModule(path string) error {
	if m.modules == nil {
		return nil
	}
	paths := m.Modules()
	if _, ok := slices.BinarySearch(paths, path); ok {
		return nil
	}
	e := &UnknownModuleError{Path: path, Close: closest(path, paths), All: len(paths)}
	if len(e.Close) == 0 {
		// The modules that are in few others say most about where to look.
		slices.SortStableFunc(paths, func(a, b string) int { return strings.Count(a, ".") - strings.Count(b, ".") })
		const most = 12
		e.Close = paths[:min(len(paths), most)]
	}
	return e
}

// exportedModules lists the modules that the nodes of a graph and of those in it belong to.
func exportedModules(g *exported.Graph) []string {
	paths := []string{}
	seen := make(map[string]bool)
	var last *exported.Frame
	var visit func(g *exported.Graph)
	visit = func(g *exported.Graph) {
		for i := range g.Nodes {
			n := &g.Nodes[i]
			for _, in := range n.Inputs {
				if sub, ok := in.Arg.Data.(*exported.Graph); ok {
					visit(sub)
				}
			}
			if len(n.Modules) == 0 || &n.Modules[0] == last {
				continue // the nodes of one module share their stack
			}
			last = &n.Modules[0]
			for _, f := range n.Modules {
				if f.Path != "" && !seen[f.Path] {
					seen[f.Path] = true
					paths = append(paths, f.Path)
				}
			}
		}
	}
	visit(g)
	return paths
}

// scriptModules lists the modules of a TorchScript archive. A module in two places goes by its first, as in package
// torchscript.
func scriptModules(root *script.Object) []string {
	paths := []string{}
	seen := make(map[*script.Object]bool)
	var visit func(o *script.Object, path string)
	visit = func(o *script.Object, path string) {
		if o == nil || seen[o] {
			return
		}
		seen[o] = true
		paths = append(paths, path)
		for _, a := range o.Attributes {
			if child, ok := a.Value.(*script.Object); ok {
				visit(child, layers.Join(path, a.Name))
			}
		}
	}
	visit(root, "")
	return paths
}

// treeModules lists the modules of a tree.
func treeModules(root *layers.Module) []string {
	paths := []string{}
	root.Walk(func(path string, _ *layers.Module) { paths = append(paths, path) })
	return paths
}
