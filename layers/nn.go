package layers

import (
	"maps"
	"slices"
)

// NN returns the classes of torch.nn, by the names under which modules are pickled. The constructors of this package
// ([Linear], [Conv2d], …) make modules of them with PyTorch's defaults; other attributes are given as options:
//
//	layers.Conv2d(3, 64, 7, layers.Stride(2), layers.Padding(3), layers.NoBias)
func NN() Classes { return nn }

// nn is put together from the families, one file each.
var nn = func() Classes {
	all := make(Classes)
	for _, family := range []Classes{
		containerClasses, linearClasses, embeddingClasses, convClasses, normClasses, activationClasses, poolClasses,
		shapeClasses, upsampleClasses, recurrentClasses, attentionClasses, transformerClasses, lossClasses,
	} {
		for name, c := range family {
			if _, dup := all[name]; dup || c.Forward == nil {
				panic("BUG: class " + name + " is defined twice or has no forward")
			}
			all[name] = c
		}
	}
	return all
}()

// An Option sets attributes of a module that is being made.
type Option func(attrs map[string]any)

// Attr sets an attribute by its name in PyTorch.
//
//go:noinline
func Attr(name string, value any) Option { return func(a map[string]any) { a[name] = value } }

// Kernel sets the size of a window; one number stands for all its dimensions.
func Kernel(n ...int) Option { return sizeOption("kernel_size", n) }

// Stride sets the step of a window.
//
//go:noinline
func Stride(n ...int) Option { return sizeOption("stride", n) }

// Padding sets what is added at both ends of each dimension.
//
//go:noinline
func Padding(n ...int) Option { return sizeOption("padding", n) }

// Dilation sets the distance between the elements of a window.
func Dilation(n ...int) Option { return sizeOption("dilation", n) }

// Groups sets the number of groups of a convolution.
func Groups(n int) Option { return Attr("groups", n) }

// Eps sets what a normalization adds to the variance.
func Eps(x float64) Option { return Attr("eps", x) }

// NoBias makes a module without a bias.
func NoBias(attrs map[string]any) { attrs["bias"] = false }

// InPlace makes an activation that overwrites its input.
func InPlace(attrs map[string]any) { attrs["inplace"] = true }

//go:noinline
func sizeOption(name string, n []int) Option {
	if len(n) == 1 {
		return Attr(name, n[0])
	}
	return Attr(name, slices.Clone(n))
}

// New returns a module of a class with attributes, for classes that have no constructor here.
func New(class string, attrs map[string]any) *Module {
	return &Module{Class: class, Attrs: maps.Clone(attrs)}
}

// made returns a module with defaults that options have changed.
func made(class string, defaults map[string]any, opts []Option) *Module {
	for _, o := range opts {
		o(defaults)
	}
	return &Module{Class: class, Attrs: defaults}
}
