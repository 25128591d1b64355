package cpu

import (
	"slices"

	"github.com/optimem/optimem/layers"
)

// KindsInPlace returns the kinds of which a kernel may write results over operands.
func KindsInPlace() []layers.Kind {
	var list []layers.Kind
	for kind, k := range kernels {
		if k.inPlace != nil {
			list = append(list, kind)
		}
	}
	slices.Sort(list)
	return list
}
