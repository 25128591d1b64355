// Package signals says what overloads mean that take pictures and sounds: pools, resizing, padding, regions of
// pictures, Fourier transforms, windows, and codes of 8 bits.
//
// [Targets] are its overloads. A Fourier transform is products with matrices that the graph holds as constants.
package signals

import "slices"

// Targets are the overloads of this package.
var Targets = slices.Concat(
	poolTargets, resampleTargets, FourierTargets, quantizeTargets, windowTargets, regionTargets,
)
