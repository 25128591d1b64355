package models

import (
	"maps"
	"strings"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models/aten/cells"
	"github.com/optimem/optimem/models/torchvision"
	"github.com/optimem/optimem/tensor"
)

// classes are those whose code is known, wherever a module comes from.
var classes = func() layers.Classes {
	all := maps.Clone(layers.NN())
	maps.Copy(all, torchvision.Classes)
	return all
}()

// usePickled makes m a module that was pickled whole. It runs as after model.eval(), whatever mode it was saved in.
func (m *Model) usePickled(ckpt *loader.Checkpoint, opts Options) error {
	a, err := pickledArchitecture(ckpt)
	if err != nil {
		return err
	}
	return m.useArchitecture(ckpt, a, opts, nil)
}

// pickledArchitecture returns the module of a file: its tree and attributes are there, its code is not. An error lists
// every class and hook whose code is not known.
func pickledArchitecture(ckpt *loader.Checkpoint) (*layers.Architecture, error) {
	p := pickled{ckpt: ckpt, names: make(map[string]string)}
	root, err := p.module(ckpt.Module, "")
	if err != nil {
		return nil, err
	}
	a := &layers.Architecture{Name: root.Class, Root: root, Classes: classes, Weights: p.names}
	missing := append(missingClasses(a), p.hooks...)
	if len(missing) > 0 {
		return nil, &UnsupportedError{Missing: missing, Hint: exportHint + "\n" + moduleHint}
	}
	a.Inputs = pickledInputs(root)
	return a, nil
}

// moduleHint is for the weights of modules whose code is not known.
const moduleHint = "or run its weights with the code of another file: --arch model.pt2, " +
	"or config.json of a Hugging Face model"

// A pickled is a module on its way from a file.
type pickled struct {
	ckpt *loader.Checkpoint
	// names are the checkpoint's names of the tree's parameters.
	names map[string]string
	// hooks are those whose code is not known, each once.
	hooks []Missing
}

// weightNormHook is the hook that makes a weight of a magnitude and a direction; [layers.Trace.Param] does.
const weightNormHook = "torch.nn.utils.weight_norm.WeightNorm"

// module makes a module of what the loader read of one.
func (p *pickled) module(from *loader.Module, path string) (*layers.Module, error) {
	m := &layers.Module{Class: from.Class, Attrs: make(map[string]any, len(from.Attrs)+1)}
	maps.Copy(m.Attrs, classes[from.Class].Defaults)
	for _, a := range from.Attrs {
		m.Attrs[a.Name] = plainAttr(a.Value)
	}
	m.Attrs["training"] = false
	for _, hook := range from.Hooks {
		if hook != weightNormHook {
			p.hook(string(hook), m.Class, path)
		}
	}
	members := func(list []loader.Member, buffer bool) error {
		for _, member := range list {
			param := layers.Param{Name: member.Name, Buffer: buffer, None: member.Weight == ""}
			if !param.None {
				w, ok := p.ckpt.Weight(member.Weight)
				if !ok {
					return &UnsupportedError{What: "tensor " + member.Weight + ", which cannot be read"}
				}
				param.DType, param.Shape = w.DType, w.Layout.Shape
				p.names[layers.Join(path, member.Name)] = member.Weight
			}
			m.Params = append(m.Params, param)
		}
		return nil
	}
	if err := members(from.Params, false); err != nil {
		return nil, err
	}
	if err := members(from.Buffers, true); err != nil {
		return nil, err
	}
	for _, c := range from.Children {
		name := c.Path
		if from.Path != "" {
			name = strings.TrimPrefix(c.Path, from.Path+".")
		}
		child, err := p.module(c, layers.Join(path, name))
		if err != nil {
			return nil, err
		}
		m.Add(name, child)
	}
	return m, nil
}

// hook notes a hook whose code is not known.
func (p *pickled) hook(name, class, path string) {
	for i := range p.hooks {
		if p.hooks[i].Name == name {
			p.hooks[i].Uses++
			return
		}
	}
	why := layers.Refusal(name)
	if why == "" {
		why = "a hook that runs around the forward of a " + class
	}
	p.hooks = append(p.hooks, Missing{Name: name, Path: path, Uses: 1, Reason: why, Class: true})
}

// pickledInputs are the parameters of the root's forward. Its code is not in the file, so they are those of its class,
// of any shape. Numbers have the dtype of the parameters.
func pickledInputs(root *layers.Module) []Port {
	ports := classes[root.Class].Inputs
	if inner := root.Child("module"); ports == nil && inner != nil && len(root.Children) == 1 {
		return pickledInputs(inner) // DataParallel and its like pass on what they are given
	}
	if ports == nil {
		name := "x" // what most people call it, torchvision among them
		if strings.HasPrefix(root.Class, "torch.nn.") {
			name = "input"
		}
		ports = []Port{{Name: name, DType: firstPort(root).DType}}
	}
	float := floatOfParams(root)
	inputs := make([]Port, len(ports))
	for i, p := range ports {
		if p.DType == tensor.Invalid || p.DType == tensor.Float32 {
			p.DType = float
		}
		inputs[i] = p
	}
	return inputs
}

// firstPort is the input of the first module that computes something; its name is not the model's.
func firstPort(m *layers.Module) Port {
	for {
		if ports := classes[m.Class].Inputs; len(ports) > 0 {
			return ports[0]
		}
		if len(m.Children) == 0 || m.Children[0].Module == nil {
			return Port{}
		}
		m = m.Children[0].Module
	}
}

// floatOfParams is the dtype of the first parameter that is a float.
func floatOfParams(root *layers.Module) tensor.DType {
	found := tensor.Invalid
	root.Walk(func(_ string, m *layers.Module) {
		for _, p := range m.Params {
			if found == tensor.Invalid && !p.None && cells.IsFloat(p.DType) {
				found = p.DType
			}
		}
	})
	if found == tensor.Invalid {
		return tensor.Float32
	}
	return found
}

// plainAttr returns an attribute as modules hold it.
func plainAttr(v any) any {
	switch v := v.(type) {
	case int64:
		return int(v)
	case []any:
		out := make([]any, len(v))
		for i, x := range v {
			out[i] = plainAttr(x)
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, x := range v {
			out[k] = plainAttr(x)
		}
		return out
	case loader.ClassName:
		return string(v)
	}
	return v
}
