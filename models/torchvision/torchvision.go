// Package torchvision has the models of Python's torchvision: their classes and forwards, the named architectures, and
// recognition of an architecture from the names and shapes of a state dict.
//
// It knows modules and shapes. It does not know files, devices or the meaning of ops.
//
//	a, err := torchvision.New("resnet101", torchvision.Options{Classes: 10})
//	found, nearest := torchvision.Recognise(stateDict)
package torchvision

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/tensor"
)

// Options are the arguments of the constructors in Python. The zero value is right.
type Options struct {
	// Classes is the number of classes that the model tells apart; 0 is that of the published weights.
	Classes int
}

func (o Options) classes() int { return o.classesOr(1000) }

// classesOr is for models that are not published with the classes of ImageNet.
func (o Options) classesOr(published int) int { return cmp.Or(o.Classes, published) }

// A family is a set of architectures with one constructor.
type family struct {
	// classes are those of the family's own, by Python's names.
	classes layers.Classes
	// names lists the published architectures.
	names []string
	// make returns one of them.
	make func(name string, o Options) *layers.Module
	// infer makes the module that a state dict is of, published or with other sizes, and its name: that of the published
	// one with the same sizes, else the family's. It returns nil when the names in the dict are not the family's. It may
	// return several when names and shapes do not tell.
	infer func(dict shapes) []candidate
	// variant makes one by its name that infer does not offer, of the sizes that the state dict has. It may be nil.
	variant func(name string, dict shapes) *layers.Module
	// spelling returns the name of today for one that older checkpoints use; nil where names have not changed.
	spelling func(name string) string
	// note says what names and shapes do not tell of an architecture that infer returned, and is assumed. It may be nil.
	note func(name string) string
	// inputs returns those of forward; nil is one batch of pictures.
	inputs func(root *layers.Module) []layers.Port
}

// A candidate is a module that a state dict may be of.
type candidate struct {
	name string
	root *layers.Module
}

// shapes are the entries of a state dict by name.
type shapes map[string]tensor.Shape

// families is every family of the package.
var families = []*family{
	resnets,
	alexnets,
	vggs,
	densenets,
	googlenets,
	inceptions,
	mobilenetsV2,
	mobilenetsV3,
	shufflenets,
	squeezenets,
	mnasnets,
	efficientnets,
	regnets,
	convnexts,
	vits,
	swins,
	maxvits,
	segmentations,
	videoResnets,
}

// Classes are the package's classes.
var Classes = func() layers.Classes {
	all := maps.Clone(blockClasses)
	for _, f := range families {
		maps.Copy(all, f.classes)
	}
	return all
}()

// runnable are all classes that the models consist of.
var runnable = func() layers.Classes {
	all := maps.Clone(layers.NN())
	maps.Copy(all, Classes)
	return all
}()

// pictures is the input of most models.
var pictures = []layers.Port{{
	Name: "x", DType: tensor.Float32, Shape: tensor.Shape{-1, 3, -1, -1},
	Dims: []string{"batch", "", "height", "width"},
}}

// Names lists the published architectures.
func Names() []string {
	var names []string
	for _, f := range families {
		names = append(names, f.names...)
	}
	return names
}

// New returns a published architecture.
func New(name string, o Options) (*layers.Architecture, error) {
	for _, f := range families {
		if slices.Contains(f.names, name) {
			return f.architecture(name, f.make(name, o)), nil
		}
	}
	return nil, fmt.Errorf("no architecture is called %q", name)
}

func (f *family) architecture(name string, root *layers.Module) *layers.Architecture {
	inputs := pictures
	if f.inputs != nil {
		inputs = f.inputs(root)
	}
	return &layers.Architecture{Name: name, Root: root, Inputs: inputs, Classes: runnable}
}

// Named returns the architecture of that name with the head that the state dict has.
func Named(name string, dict layers.StateDict) (*layers.Architecture, error) {
	found, _ := Recognise(dict)
	for _, a := range found {
		if a.Name == name {
			a.Note = "" // the name says it
			return a, nil
		}
	}
	have := sound(dict)
	for _, f := range families {
		if !slices.Contains(f.names, name) {
			continue
		}
		_, have, older := f.respelled(dict, have)
		a := f.architecture(name, f.fitted(name, have))
		a.Weights = older
		return a, nil
	}
	return nil, fmt.Errorf("no architecture is called %q", name)
}

// fitted makes a published architecture with the head that a state dict has, whatever else is amiss with that.
func (f *family) fitted(name string, have shapes) *layers.Module {
	if f.variant != nil {
		return f.variant(name, have)
	}
	root := f.make(name, Options{})
	for _, e := range slices.Backward(root.StateDict()) {
		if len(e.Shape) < 2 {
			continue
		}
		if head := have[e.Name]; len(head) == len(e.Shape) && head[0] != e.Shape[0] {
			return f.make(name, Options{Classes: head[0]})
		}
		break
	}
	return root
}

// Recognise returns the architectures whose state dict has exactly the names and shapes given: none, one, or several
// where they do not tell. Where there is none, nearest is the [*layers.MismatchError] of the one that comes closest, nil
// where nothing does.
func Recognise(dict layers.StateDict) (found []*layers.Architecture, nearest error) {
	have := sound(dict)
	closest := &nearby{most: len(dict) / 2} // further off than this it is something else
	for _, f := range families {
		dict, have, older := f.respelled(dict, have)
		for _, c := range f.infer(have) {
			if closest.check(c.name, c.root, dict) {
				a := f.architecture(c.name, c.root)
				a.Weights = older
				if f.note != nil {
					a.Note = f.note(c.name)
				}
				found = append(found, a)
			}
		}
	}
	if len(found) > 0 {
		return found, nil
	}
	// Where sizes cannot be read off, because an entry that tells them is amiss, a published one may still be close.
	for _, f := range families {
		dict, have, _ := f.respelled(dict, have)
		if !f.related(have) {
			continue
		}
		for _, name := range f.names {
			closest.check(name, f.fitted(name, have), dict)
		}
	}
	if closest.err == nil {
		return nil, nil
	}
	return nil, closest.err
}

// nearby keeps the least of the mismatches that it sees.
type nearby struct {
	most int // differences, for a mismatch to be kept
	err  *layers.MismatchError
}

// check reports whether a state dict is that of a module.
func (n *nearby) check(name string, root *layers.Module, dict layers.StateDict) bool {
	err := root.Check(name, dict)
	var mismatch *layers.MismatchError
	if errors.As(err, &mismatch) && mismatch.Count() <= n.most {
		n.most, n.err = mismatch.Count()-1, mismatch
	}
	return err == nil
}

// related reports whether a state dict has a fair part of the names that the family's models have.
func (f *family) related(have shapes) bool {
	names := f.make(f.names[0], Options{}).StateDict()
	n := 0
	for _, e := range names {
		if _, ok := have[e.Name]; ok {
			n++
		}
	}
	return n > len(names)/4
}

// respelled returns the state dict with the names of today, its shapes, and the older names by those.
func (f *family) respelled(dict layers.StateDict, have shapes) (layers.StateDict, shapes, map[string]string) {
	if f.spelling == nil {
		return dict, have, nil
	}
	var today layers.StateDict
	older := make(map[string]string)
	for i, e := range dict {
		name := f.spelling(e.Name)
		if name == e.Name {
			continue
		}
		if today == nil {
			today = slices.Clone(dict)
		}
		today[i].Name, older[name] = name, e.Name
	}
	if today == nil {
		return dict, have, nil
	}
	return today, sound(today), older
}

// largest is more than any dimension of a weight here: sizes that are multiplied stay far from overflow.
const largest = 1 << 24

// sound returns the shapes of a state dict without those that no weight of a model has.
func sound(dict layers.StateDict) shapes {
	s := make(shapes, len(dict))
	for _, e := range dict {
		if !slices.ContainsFunc(e.Shape, func(n int) bool { return n < 1 || n > largest }) {
			s[e.Name] = e.Shape
		}
	}
	return s
}

// size returns a dimension of an entry, 0 where there is no such entry or dimension.
func (s shapes) size(name string, dim int) int {
	shape := s[name]
	if dim >= len(shape) {
		return 0
	}
	return shape[dim]
}

// classes returns the size of a head, that of the published ones where it is not there.
func (s shapes) classes(head string) int {
	return Options{Classes: s.size(head, 0)}.classes()
}

// count returns how many of the names prefix0, prefix1, … lead to an entry by adding suffix.
func (s shapes) count(prefix, suffix string) int {
	n := 0
	for {
		if _, ok := s[fmt.Sprintf("%s%d%s", prefix, n, suffix)]; !ok {
			return n
		}
		n++
	}
}
