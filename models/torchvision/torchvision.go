// Package torchvision knows the models of Python's package of that name: their classes, what each computes, how the
// named architectures are put together, and how to tell from the names and shapes of a state dict which one it is.
//
// It knows modules and shapes. It does not know files, ops' meaning or devices.
//
//	a, err := torchvision.New("resnet101", torchvision.Options{Classes: 10})
//	found, nearest := torchvision.Recognise(stateDict)
package torchvision

import (
	"cmp"
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
	Name: "x", DType: tensor.Float32, Shape: tensor.Shape{-1, 3, -1, -1}, Dims: []string{"batch", "", "height", "width"},
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
			return a, nil
		}
	}
	for _, f := range families {
		if slices.Contains(f.names, name) && f.variant != nil {
			return f.architecture(name, f.variant(name, sound(dict))), nil
		}
	}
	a, err := New(name, Options{})
	if err != nil {
		return nil, err
	}
	// The state dict is not quite the architecture's. Whatever else is amiss, the size of the head is not.
	for _, e := range slices.Backward(a.Root.StateDict()) {
		if shape, ok := dict.Shapes()[e.Name]; ok && len(shape) == len(e.Shape) && len(shape) > 1 {
			return New(name, Options{Classes: shape[0]})
		}
	}
	return a, nil
}

// Recognise returns the architectures whose state dict has exactly the names and shapes given: none, one, or several
// where they do not tell. Where there is none, nearest is the [*layers.MismatchError] of the one that comes closest, nil
// where nothing does.
func Recognise(dict layers.StateDict) (found []*layers.Architecture, nearest error) {
	have := sound(dict)
	best := len(dict)/2 + 1 // further off than this it is something else
	for _, f := range families {
		dict, have, older := f.respelled(dict, have)
		for _, c := range f.infer(have) {
			err := c.root.Check(c.name, dict)
			if err == nil {
				a := f.architecture(c.name, c.root)
				a.Weights = older
				found = append(found, a)
				continue
			}
			e := err.(*layers.MismatchError)
			if n := e.Count(); n < best {
				best, nearest = n, e
			}
		}
	}
	if len(found) > 0 {
		nearest = nil
	}
	return found, nearest
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
