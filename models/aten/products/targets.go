// Package products says what overloads mean that multiply: matrices, einsum, convolutions, attention, recurrent layers,
// factors of matrices and what is solved by them.
//
// [Targets] are its overloads. It emits the kinds of op that devices have kernels for, and does not know those.
package products

import "slices"

// Targets are the overloads of this package.
var Targets = slices.Concat(
	linearTargets, factorTargets, attentionTargets, recurrentTargets, einsumTargets, encoderTargets, convTargets,
)
