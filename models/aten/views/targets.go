// Package views says what overloads mean that compute nothing: views, copies, casts, what is joined, split, gathered
// and scattered.
//
// [Targets] are its overloads. A view is another layout of the same memory and adds no op; see package cells.
package views

import "slices"

// Targets are the overloads of this package.
var Targets = slices.Concat(
	indexTargets, ViewTargets, CastTargets,
)
