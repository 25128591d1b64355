// Package elements says what overloads mean that compute with elements where they are: functions of each, also of
// complex numbers, sums and other folds over dimensions, norms, sorted rows, and tensors made of nothing but a rule.
//
// [Targets] are its overloads; each family is a file with a table, where another one is added. It does not know which
// call means which overload, nor what becomes of tensors whose sizes only data says: package aten does.
package elements

import "slices"

// Targets are the overloads of this package.
var Targets = slices.Concat(
	reductionTargets, normTargets, ElementwiseTargets, createTargets,
)
