package models

import (
	"fmt"
	"strings"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/loader/exported"
)

// useCode makes m the model whose code is in one checkpoint and whose weights are in another, as load_state_dict makes
// one: names and shapes must be the same, and what the state dict leaves out is the first checkpoint's.
func (m *Model) useCode(ckpt *loader.Checkpoint, opts Options) error {
	code := opts.Code
	opts.Code = nil
	if code.Program == nil && code.Module == nil {
		return &UnsupportedError{
			What: fmt.Sprintf("%s as an architecture: it holds weights and no code", code.Path),
			Hint: "name a file of the same model that has its code: an exported program, TorchScript or a whole module",
		}
	}
	return m.useDictionary(ckpt, func(d dictionary) error {
		merged, err := withWeights(code, ckpt, d)
		if err != nil {
			return err
		}
		inner, err := Build(merged, opts)
		if err != nil {
			return err
		}
		m.inputs, m.outputs, m.build, m.arch = inner.inputs, inner.outputs, inner.build, code.Path
		m.modules = inner.modules
		m.notes = append(m.notes, inner.notes...)
		return nil
	})
}

// withWeights returns a checkpoint with the code of one and the weights of a state dict of another.
func withWeights(code, ckpt *loader.Checkpoint, d dictionary) (*loader.Checkpoint, error) {
	leftOut := outsideStateDict(code)
	var want layers.Module
	weights := append(code.Weights[:0:0], code.Weights...)
	for _, w := range weights {
		if !leftOut[w.Name] {
			want.Params = append(want.Params, layers.Param{Name: w.Name, DType: w.DType, Shape: w.Layout.Shape})
		}
	}
	if err := want.Check(code.Path, d.entries); err != nil {
		return nil, err
	}
	for i, w := range weights {
		given, ok := ckpt.Weight(d.rename(w.Name))
		if !ok || leftOut[w.Name] {
			continue
		}
		if given.DType != w.DType {
			return nil, &UnsupportedError{What: fmt.Sprintf("weight %s of %v where %s has %v",
				w.Name, given.DType, code.Path, w.DType)}
		}
		given.Name = w.Name
		weights[i] = given
	}
	merged, err := loader.NewCheckpoint(code.Path, weights, code.Program)
	if err != nil {
		return nil, err
	}
	merged.Format, merged.Module = code.Format, code.Module
	return merged, nil
}

// outsideStateDict returns the tensors of a checkpoint with code that its state dict does not hold: constants and
// buffers that are not persistent.
func outsideStateDict(code *loader.Checkpoint) map[string]bool {
	out := make(map[string]bool)
	switch {
	case code.Program != nil && code.Program.Exported != nil:
		for _, w := range code.Weights {
			out[w.Name] = true
		}
		for _, in := range code.Program.Exported.Signature.Inputs {
			if in.Kind == exported.Parameter || in.Kind == exported.Buffer && in.Persistent {
				delete(out, in.Target)
			}
		}
	case code.Program != nil:
		for _, w := range code.Weights {
			if strings.HasPrefix(w.Name, "CONSTANTS.") {
				out[w.Name] = true
			}
		}
	case code.Module != nil:
		var walk func(m *loader.Module)
		walk = func(m *loader.Module) {
			for _, b := range m.Buffers {
				if b.Transient {
					out[b.Weight] = true
				}
			}
			for _, c := range m.Children {
				walk(c)
			}
		}
		walk(code.Module)
	}
	return out
}
