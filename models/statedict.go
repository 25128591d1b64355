package models

import (
	"fmt"
	"strings"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models/torchvision"
)

// useStateDict makes m the architecture that a bare state dict has the names and shapes of.
func (m *Model) useStateDict(ckpt *loader.Checkpoint, opts Options) error {
	dicts := ckpt.StateDicts()
	if len(dicts) == 0 {
		return &UnsupportedError{What: fmt.Sprintf("a %s checkpoint without weights", ckpt.Format), Hint: exportHint}
	}
	var firstErr error
	for _, d := range dicts {
		dict := make(layers.StateDict, len(d.Weights))
		for i, w := range d.Weights {
			dict[i] = layers.Entry{Name: w.Name, DType: w.DType, Shape: w.Layout.Shape}
		}
		a, err := recognise(dict, opts.Arch)
		if err != nil {
			if firstErr == nil {
				firstErr = err
			}
			continue
		}
		return m.useArchitecture(ckpt, a, opts, func(name string) string {
			return joinPath(d.Path, d.Prefix+name)
		})
	}
	return firstErr
}

func joinPath(path, name string) string { return layers.Join(path, name) }

// An AmbiguousError says that a state dict could be several architectures.
type AmbiguousError struct{ Candidates []string }

// Error names them.
func (e *AmbiguousError) Error() string {
	return "the state dict could be any of " + strings.Join(e.Candidates, ", ")
}

// recognise finds the architecture of a state dict, by its name or from the names and shapes alone.
func recognise(dict layers.StateDict, arch string) (*layers.Architecture, error) {
	if arch != "" {
		a, err := torchvision.Named(arch, dict)
		if err != nil {
			return nil, err
		}
		return a, a.Root.Check(arch, dict)
	}
	found, nearest := torchvision.Recognise(dict)
	switch len(found) {
	case 0:
		if nearest != nil {
			return nil, nearest
		}
		return nil, &UnsupportedError{
			What: fmt.Sprintf("a state dict of %d tensors whose architecture is not known", len(dict)),
			Hint: exportHint,
		}
	case 1:
		return found[0], nil
	}
	e := &AmbiguousError{}
	for _, a := range found {
		e.Candidates = append(e.Candidates, a.Name)
	}
	return nil, e
}
