package models

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/tensor"
)

// useStateDict makes m the architecture that a bare state dict has the names and shapes of.
func (m *Model) useStateDict(ckpt *loader.Checkpoint, opts Options) error {
	if opts.Arch != "" {
		if err := knownArchitecture(opts.Arch); err != nil {
			return err
		}
	}
	return m.useDictionary(ckpt, func(d dictionary) error {
		found, err := recognise(catalogues, d.entries, opts.Arch)
		if err != nil {
			return err
		}
		if found.note != "" {
			m.notes = append(m.notes, found.arch.Name+": "+found.note)
		}
		return m.useArchitecture(ckpt, found.arch, opts, d.rename)
	})
}

// useGiven makes m the architecture of the options, with the weights of a state dict.
func (m *Model) useGiven(ckpt *loader.Checkpoint, opts Options) error {
	a := opts.Architecture
	return m.useDictionary(ckpt, func(d dictionary) error {
		if err := a.Check(d.entries); err != nil {
			return err
		}
		return m.useArchitecture(ckpt, a, opts, d.rename)
	})
}

// A dictionary is a state dict of a checkpoint: its entries under the names that the module has for them, and the way
// back to the checkpoint's names.
type dictionary struct {
	entries layers.StateDict
	rename  func(name string) string
}

// maxPrefixes bounds how many modules around the model are looked through.
const maxPrefixes = 4

// useDictionary tries the state dicts of a checkpoint, the most likely model first, until use takes one. A training
// script may have kept the model as a part of a larger module, so names are also tried without the modules that all of
// them lie in. The error is the one that says most about the file.
func (m *Model) useDictionary(ckpt *loader.Checkpoint, use func(d dictionary) error) error {
	dicts := ckpt.StateDicts()
	if len(dicts) == 0 {
		return &UnsupportedError{What: fmt.Sprintf("a %s checkpoint without weights", ckpt.Format)}
	}
	leftOut := make(map[string]bool)
	if ckpt.Module != nil {
		leftOut = outsideStateDict(ckpt)
	}
	var best error
	for _, d := range dicts {
		var nearest error // under one of the prefixes
		d.Weights = slices.DeleteFunc(d.Weights, func(w tensor.Weight) bool {
			return leftOut[layers.Join(d.Path, d.Prefix+w.Name)]
		})
		if len(d.Weights) == 0 {
			continue
		}
		prefix := ""
		for range maxPrefixes {
			err := use(newDictionary(d, prefix))
			if err == nil {
				if len(dicts) > 1 {
					m.notes = append(m.notes, fmt.Sprintf("the weights are those of %s; the file also holds %s",
						dictName(d), otherDicts(dicts, d)))
				}
				return nil
			}
			if nearest == nil || saysMore(err, nearest) {
				nearest = err
			}
			outer := commonModule(d, prefix)
			if outer == "" || tells(err) == tellsAmbiguous {
				break
			}
			prefix += outer
		}
		if best == nil || tells(nearest) > tells(best) {
			best = nearest
		}
	}
	if best == nil {
		best = &UnsupportedError{What: fmt.Sprintf("a %s checkpoint without weights of a state dict", ckpt.Format)}
	}
	return best
}

// newDictionary lists a state dict without a prefix that all its names have.
func newDictionary(d loader.StateDict, prefix string) dictionary {
	out := dictionary{entries: make(layers.StateDict, len(d.Weights))}
	for i, w := range d.Weights {
		out.entries[i] = layers.Entry{
			Name: strings.TrimPrefix(w.Name, prefix), DType: w.DType, Shape: w.Layout.Shape,
		}
	}
	out.rename = func(name string) string { return layers.Join(d.Path, d.Prefix+prefix+name) }
	return out
}

// commonModule returns the name, with its dot, of the module that holds everything below a prefix, "" where there is
// none.
func commonModule(d loader.StateDict, prefix string) string {
	name, _, ok := strings.Cut(d.Weights[0].Name[len(prefix):], ".")
	if !ok || name == "" {
		return ""
	}
	outer := prefix + name + "."
	for _, w := range d.Weights {
		if !strings.HasPrefix(w.Name, outer) || len(w.Name) == len(outer) {
			return ""
		}
	}
	return name + "."
}

func dictName(d loader.StateDict) string {
	if d.Path == "" {
		return "the file's top level"
	}
	return d.Path
}

func otherDicts(dicts []loader.StateDict, used loader.StateDict) string {
	var names []string
	for _, d := range dicts {
		if d.Path != used.Path {
			names = append(names, dictName(d))
		}
	}
	const most = 5
	if len(names) > most {
		names = append(names[:most], fmt.Sprintf("%d more", len(names)-most))
	}
	return strings.Join(names, ", ")
}

// How much an error tells about a state dict.
const (
	tellsNothing = iota
	tellsMismatch
	tellsAmbiguous
)

func tells(err error) int {
	var ambiguous *AmbiguousError
	var mismatch *layers.MismatchError
	switch {
	case errors.As(err, &ambiguous):
		return tellsAmbiguous
	case errors.As(err, &mismatch):
		return tellsMismatch
	}
	return tellsNothing
}

// saysMore reports whether an error tells more about a state dict than another under other names: of two mismatches,
// that with fewer differences.
func saysMore(err, other error) bool {
	var a, b *layers.MismatchError
	if errors.As(err, &a) && errors.As(other, &b) {
		return a.Count() < b.Count()
	}
	return tells(err) > tells(other)
}

// An AmbiguousError says that a state dict could be several architectures.
type AmbiguousError struct{ Candidates []string }

// Error names them.
func (e *AmbiguousError) Error() string {
	return "the state dict could be any of " + strings.Join(e.Candidates, ", ")
}

// A match is an architecture that a state dict was recognised as.
type match struct {
	arch *layers.Architecture
	// note says what names and shapes did not tell and was assumed.
	note string
}

// recognise finds the architecture of a state dict, by its name or from the names and shapes alone. Where there is
// none, the error is the mismatch of the nearest in any catalogue.
func recognise(catalogues []catalogue, dict layers.StateDict, arch string) (match, error) {
	var matches []match
	var nearest *layers.MismatchError
	for _, c := range catalogues {
		if arch != "" && !slices.Contains(c.names(), arch) {
			continue
		}
		if arch != "" {
			a, err := c.named(arch, dict)
			if err != nil {
				return match{}, err
			}
			return match{a, cmp.Or(a.Note, c.note)}, a.Check(dict)
		}
		found, err := c.recognise(dict)
		for _, a := range found {
			matches = append(matches, match{a, cmp.Or(a.Note, c.note)})
		}
		var mismatch *layers.MismatchError
		if errors.As(err, &mismatch) && (nearest == nil || mismatch.Count() < nearest.Count()) {
			nearest = mismatch
		}
	}
	switch {
	case len(matches) == 1:
		return matches[0], nil
	case len(matches) == 0 && nearest != nil:
		return match{}, nearest
	case len(matches) == 0:
		return match{}, &UnsupportedError{
			What: fmt.Sprintf("a state dict of %d tensors whose architecture is not known", len(dict)),
			Hint: codeHint,
		}
	}
	e := &AmbiguousError{}
	for _, f := range matches {
		e.Candidates = append(e.Candidates, f.arch.Name)
	}
	slices.SortFunc(e.Candidates, cmp.Compare)
	return match{}, e
}

// codeHint says what helps with weights whose code is not known.
const codeHint = "name a file of the same model that has its code: --arch model.pt2; or load it into its model in Python and " +
	exportHint
