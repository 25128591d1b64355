// Package transformers knows the models of Python's package of that name that run without it: their classes, what each
// computes, and how a folder's config.json says which one it is and of what size.
//
// It knows modules, shapes and configurations. It does not know files, ops' meaning or devices.
//
//	a, err := transformers.FromConfig(config, stateDict)
package transformers

import (
	"errors"

	"github.com/optimem/optimem/layers"
)

// ErrUnknown is wrapped where a configuration names a model that is not known here.
var ErrUnknown = errors.New("model type is not known")

// Classes are the package's classes.
var Classes = layers.Classes{}
