package models

import (
	"cmp"
	"slices"
	"strings"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/models/torchvision"
	"github.com/optimem/optimem/models/transformers"
)

// A catalogue is a package's architectures: those that have names, and the recognition of their state dicts.
type catalogue struct {
	names func() []string
	// make returns an architecture by one of the names.
	make func(name string) (*layers.Architecture, error)
	// named is make for a state dict that is known to be of that architecture: its head may be of another size.
	named func(name string, dict layers.StateDict) (*layers.Architecture, error)
	// recognise returns the architectures that have exactly the names and shapes of a state dict; where there is none,
	// the [*layers.MismatchError] of the nearest, or nil.
	recognise func(dict layers.StateDict) (found []*layers.Architecture, nearest error)
	// note says what is assumed of every architecture in it.
	note string
}

// catalogues are all that state dicts are compared with.
var catalogues = []catalogue{
	{
		names: torchvision.Names,
		make: func(name string) (*layers.Architecture,
			error) {
			return torchvision.New(name, torchvision.Options{})
		},
		named:     torchvision.Named,
		recognise: torchvision.Recognise,
	},
	{
		names:     transformers.Names,
		make:      transformers.New,
		named:     transformers.Bound,
		recognise: transformers.Recognise,
		note:      "names and shapes do not tell the number of heads and the like; those of the published model of this size are taken",
	},
	{
		names:     func() []string { return []string{mlpName} },
		make:      func(string) (*layers.Architecture, error) { return newMLP([]int{784, 256, 10}), nil },
		named:     namedMLP,
		recognise: recogniseMLP,
		note:      "the file does not tell which activation lies between the linear layers; ReLU is assumed",
	},
}

// Architectures lists the names of the architectures whose code is known, sorted.
func Architectures() []string {
	var names []string
	for _, c := range catalogues {
		names = append(names, c.names()...)
	}
	slices.Sort(names)
	return names
}

// NewArchitecture returns an architecture by its name, with the head of the published weights. An unknown name is an
// [*UnknownArchitectureError].
func NewArchitecture(name string) (*layers.Architecture, error) {
	for _, c := range catalogues {
		if slices.Contains(c.names(), name) {
			return c.make(name)
		}
	}
	return nil, knownArchitecture(name)
}

// An UnknownArchitectureError is a name that no architecture has.
type UnknownArchitectureError struct {
	Name string
	// Close are the names most like it, the closest first.
	Close []string
}

// Error says which name.
func (e *UnknownArchitectureError) Error() string { return "unknown architecture \"" + e.Name + "\"" }

// knownArchitecture returns nil or an [*UnknownArchitectureError].
func knownArchitecture(name string) error {
	names := Architectures()
	if slices.Contains(names, name) {
		return nil
	}
	return &UnknownArchitectureError{Name: name, Close: closest(name, names)}
}

// closest returns the names that differ little from the one that was typed.
func closest(typed string, names []string) []string {
	const most, longest = 5, 100
	if len(typed) > longest {
		return nil
	}
	plain := func(s string) string {
		return strings.Map(func(r rune) rune {
			if strings.ContainsRune("-_. ", r) {
				return -1
			}
			return r
		}, strings.ToLower(s))
	}
	type scored struct {
		name     string
		distance int
	}
	typed = plain(typed)
	var near []scored
	for _, name := range names {
		d := editDistance(typed, plain(name))
		if strings.HasPrefix(plain(name), typed) && typed != "" {
			d = min(d, 1)
		}
		if 3*d <= len(typed)+2 {
			near = append(near, scored{name, d})
		}
	}
	slices.SortStableFunc(near, func(a, b scored) int { return cmp.Compare(a.distance, b.distance) })
	var out []string
	for _, s := range near[:min(most, len(near))] {
		out = append(out, s.name)
	}
	return out
}

// editDistance is Levenshtein's: how many letters must be added, removed or changed.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
