package graph

import (
	"slices"

	"github.com/optimem/optimem/tensor"
)

// Cut leaves of each result what there is of it, and takes the counts that say so out of the results. A result that is not
// there, or has no count, stays as it is.
func Cut(outputs []Output, results map[string]*tensor.Tensor) {
	for _, o := range outputs {
		t, count := results[o.Name], results[o.Count]
		if o.Count == "" || t == nil || count == nil {
			continue
		}
		n, err := tensor.Slice[int64](count)
		if err != nil || len(n) != 1 {
			panic("BUG: output " + o.Count + " is no count")
		}
		results[o.Name] = firstOf(t, o.Dim, int(min(max(n[0], 0), int64(t.Layout.Shape[o.Dim]))))
	}
	for _, o := range outputs {
		if o.Counts {
			delete(results, o.Name)
		}
	}
}

// firstOf returns the first n of a dimension of a contiguous tensor.
func firstOf(t *tensor.Tensor, dim, n int) *tensor.Tensor {
	view := *t
	view.Layout.Shape = slices.Clone(t.Layout.Shape)
	view.Layout.Shape[dim] = n
	cut := &tensor.Tensor{DType: t.DType, Layout: tensor.Contiguous(slices.Clone(view.Layout.Shape)...)}
	cut.Data = make([]byte, Elements(cut.Layout.Shape)*int64(t.DType.Size()))
	view.CopyTo(cut.Data)
	return cut
}
