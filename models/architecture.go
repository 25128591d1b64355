package models

import (
	"context"
	"fmt"
	"strconv"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models/aten/cells"
	"github.com/optimem/optimem/tensor"
)

// useArchitecture makes m a tree of modules whose code is known. dict are the checkpoint's weights under the names that
// the tree uses, or that a.Weights translates to.
func (m *Model) useArchitecture(ckpt *loader.Checkpoint, a *layers.Architecture, opts Options, rename func(string) string) error {
	if err := checkClasses(a); err != nil {
		return err
	}
	m.arch = a.Name
	m.inputs = a.Inputs
	adapters, err := m.useAdapters(ckpt, a, opts, rename)
	if err != nil {
		return err
	}
	m.modules = func() []string { return treeModules(a.Root) }
	m.stretch, m.restarts = a.Stretch, a.Restarts
	m.recurrent, m.keyless, m.window = a.Recurrent, a.Keyless, a.Window
	m.source, m.pictures = a.Source, a.Pictures
	if i := sourceInput(a); a.Source > 0 && a.Inputs[i].DType != tensor.Int64 {
		m.sound = &a.Inputs[i]
	}
	m.lookup, m.depth = lookupIn(ckpt, a, rename), depthOf(a)
	if m.context = a.Context; a.Context > 0 {
		m.step = func(o StepOptions) *Model { return m.stepModel(stepSource{ckpt, a, opts.Ops, rename, adapters}, o) }
	}
	m.build = func(ctx context.Context, c Call) (*graph.Graph, error) {
		r := newRecorder(ckpt, opts.Ops)
		r.Ctx = ctx
		r.rename, r.adapted, r.Graph.SourceBytes = rename, adapters.weights, adapters.bytes
		bound, err := r.bind(m.inputs, c.Inputs)
		if err != nil {
			return nil, err
		}
		a, err := adapters.choose(r, a, bound[len(a.Inputs):], c.Numbers)
		if err != nil {
			return nil, err
		}
		args := make([]any, len(a.Inputs))
		for i, x := range bound[:len(a.Inputs)] {
			args[i] = x
		}
		result, err := a.Trace(r, args)
		if err != nil {
			return nil, traceError(err)
		}
		return r.Graph, r.give(result)
	}
	return nil
}

// checkClasses returns an error that lists every class of the tree whose code is not known.
func checkClasses(a *layers.Architecture) error {
	if missing := missingClasses(a); len(missing) > 0 {
		return &UnsupportedError{Missing: missing, Hint: exportHint}
	}
	return nil
}

// missingClasses lists the classes of the tree whose code is not known, each once.
func missingClasses(a *layers.Architecture) []Missing {
	var missing []Missing
	index := make(map[string]int)
	a.Root.Walk(func(path string, m *layers.Module) {
		if _, ok := a.Classes[m.Class]; ok {
			return
		}
		at, seen := index[m.Class]
		if !seen {
			at = len(missing)
			index[m.Class] = at
			missing = append(missing, Missing{Name: m.Class, Path: path, Reason: layers.Refusal(m.Class), Class: true})
		}
		missing[at].Uses++
	})
	return missing
}

const exportHint = `export it: torch.export.save(torch.export.export(model, example_inputs), "model.pt2")`

// decomposedHint is exportHint for programs with ops that others can be computed by.
const decomposedHint = `export it with simpler ops: ` +
	`torch.export.save(torch.export.export(model, example_inputs).run_decompositions(), "model.pt2")`

// fits holds the shape of an input against what the model takes.
func fits(p Port, shape tensor.Shape, given bool) error {
	if !given {
		return &InputError{p.Name, "is missing"}
	}
	ok := p.Shape == nil || len(shape) == len(p.Shape)
	for i := 0; ok && i < len(p.Shape); i++ {
		ok = shape[i] >= 0 && (p.Shape[i] < 0 || shape[i] == p.Shape[i])
	}
	if !ok {
		return &InputError{p.Name, fmt.Sprintf("shape %v where %v is wanted", shape, p.Shape)}
	}
	if _, err := shape.NumElements(); err != nil {
		return &InputError{p.Name, err.Error()}
	}
	return nil
}

// give makes what forward returned the outputs of the graph: tensors by the names of the fields or keys that hold them,
// else by their position.
func (r *recorder) give(result any) error {
	r.Path, r.Source = "", ""
	var add func(name string, v any) error
	add = func(name string, v any) error {
		switch v := v.(type) {
		case nil, string:
			return nil
		case *cells.Ref:
			if name == "" {
				name = "output_" + strconv.Itoa(len(r.Graph.Outputs))
			}
			return r.Output(name, v)
		case int, float64, bool:
			x, ok := r.numberOutput(v)
			if !ok {
				return fmt.Errorf("output %s: a %T", name, v)
			}
			return add(name, x)
		case layers.Fields:
			for _, f := range v {
				if err := add(layers.Join(name, f.Name), f.Value); err != nil {
					return err
				}
			}
			return nil
		case []layers.Tensor:
			for i, x := range v {
				if err := add(position(name, i), x); err != nil {
					return err
				}
			}
			return nil
		case []any:
			for i, x := range v {
				if err := add(position(name, i), x); err != nil {
					return err
				}
			}
			return nil
		}
		return fmt.Errorf("output %s: a %T is not a tensor", name, v)
	}
	if err := add("", result); err != nil {
		return err
	}
	return r.updateStates()
}

// position names the element of a list: by the list's name, or not at all at the top.
func position(name string, i int) string {
	if name == "" {
		return ""
	}
	return layers.Join(name, strconv.Itoa(i))
}
