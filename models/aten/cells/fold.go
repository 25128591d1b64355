package cells

import (
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// AllDims returns the dimensions of a rank.
func AllDims(rank int) []int {
	dims := make([]int, rank)
	for i := range dims {
		dims[i] = i
	}
	return dims
}

// Fold emits a reduction along dims.
func (b *Builder) Fold(kind graph.Kind, r *Ref, dims []int, keepdim bool, attrs graph.Attrs) (*Ref, error) {
	all := graph.Attrs{"dims": dims, "keepdim": keepdim}
	for name, v := range attrs {
		all[name] = v
	}
	return b.Emit1(kind, all, b.Read(r))
}

// Converted returns r in the dtype that a reduction to dtype d starts from: what changes no element is left to the
// reduction.
func (b *Builder) Converted(r *Ref, d tensor.DType) (*Ref, error) {
	switch {
	case IsIntegral(r.dtype) && IsIntegral(d), r.dtype.IsHalf() && (d == tensor.Float32 || d == tensor.Float64),
		r.dtype == tensor.Float32 && d == tensor.Float64:
		return r, nil
	}
	return b.Cast(r, d)
}

// SumDType returns the dtype that sums of a dtype have.
func SumDType(d tensor.DType) tensor.DType {
	if IsIntegral(d) {
		return tensor.Int64
	}
	return d
}
