package cpu

import (
	"slices"

	"github.com/optimem/optimem/graph"
)

// KindsInPlace returns the kinds of which a kernel may write results over operands.
func KindsInPlace() []graph.Kind {
	var list []graph.Kind
	for kind, k := range kernels {
		if k.InPlace != nil {
			list = append(list, kind)
		}
	}
	slices.Sort(list)
	return list
}
