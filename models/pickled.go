package models

import (
	"maps"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models/torchvision"
	"github.com/optimem/optimem/tensor"
)

// classes are those whose code is known, wherever a module comes from.
var classes = func() layers.Classes {
	all := maps.Clone(layers.NN())
	maps.Copy(all, torchvision.Classes)
	return all
}()

// usePickled makes m a module that was pickled whole: its tree and attributes are in the file, its code is not.
func (m *Model) usePickled(ckpt *loader.Checkpoint, opts Options) error {
	names := make(map[string]string)
	root, err := pickledModule(ckpt, ckpt.Module, "", names)
	if err != nil {
		return err
	}
	a := &layers.Architecture{Name: root.Class, Root: root, Classes: classes, Weights: names}
	a.Inputs = []Port{{Name: "x", DType: tensor.Float32}}
	return m.useArchitecture(ckpt, a, opts, nil)
}

// pickledModule makes a module of what the loader read of one.
func pickledModule(ckpt *loader.Checkpoint, p *loader.Module, path string, names map[string]string) (*layers.Module, error) {
	m := &layers.Module{Class: p.Class, Attrs: make(map[string]any, len(p.Attrs)+1)}
	for _, a := range p.Attrs {
		m.Attrs[a.Name] = plainAttr(a.Value)
	}
	m.Attrs["training"] = false
	members := func(list []loader.Member, buffer bool) error {
		for _, member := range list {
			param := layers.Param{Name: member.Name, Buffer: buffer, None: member.Weight == ""}
			if !param.None {
				w, ok := ckpt.Weight(member.Weight)
				if !ok {
					return &UnsupportedError{What: "tensor " + member.Weight + ", which cannot be read"}
				}
				param.DType, param.Shape = w.DType, w.Layout.Shape
				names[layers.Join(path, member.Name)] = member.Weight
			}
			m.Params = append(m.Params, param)
		}
		return nil
	}
	if err := members(p.Params, false); err != nil {
		return nil, err
	}
	if err := members(p.Buffers, true); err != nil {
		return nil, err
	}
	for _, c := range p.Children {
		name := c.Path
		if p.Path != "" {
			name = c.Path[len(p.Path)+1:]
		}
		child, err := pickledModule(ckpt, c, layers.Join(path, name), names)
		if err != nil {
			return nil, err
		}
		m.Add(name, child)
	}
	return m, nil
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
