package graph

import (
	"fmt"
	"slices"

	"github.com/optimem/optimem/tensor"
)

// attentionOps let positions look at each other.
var attentionOps = []OpDef{
	// scaled_dot_product_attention: softmax(In[0] · In[1]ᵀ × scale + mask) · In[2] for queries [… L E], keys [… S E] and
	// values [… S V] with equal leading dimensions. In[3], the mask [… L S], may be absent; it is bool, where false means
	// that a query does not see a key, or numbers to add. With "is_causal", query i sees keys 0…i. A query that sees no
	// key gives zeros or, with "unseen_nan", NaN, as a plain softmax does. Attribute "also" asks for a second result:
	// "logsumexp" [… L] in float32 (float64 for float64) or "weights" [… L S].
	{Kind: "scaled_dot_product_attention", Shape: attentionShape, FLOPs: attentionFLOPs, Axes: attentionAxes},
}

func attentionShape(in []Spec, a Attrs) ([]Spec, error) {
	if err := wantOperands(in, 3, 4); err != nil {
		return nil, err
	}
	if err := sameDTypes(in[:3]); err != nil {
		return nil, err
	}
	q, k, v := in[0].Shape, in[1].Shape, in[2].Shape
	n := len(q)
	if n < 2 || len(k) != n || len(v) != n || !q[:n-2].Equal(k[:n-2]) || !q[:n-2].Equal(v[:n-2]) ||
		q[n-1] != k[n-1] || k[n-2] != v[n-2] {
		return nil, fmt.Errorf("queries %v, keys %v and values %v do not fit", q, k, v)
	}
	out := slices.Clone(q)
	out[n-1] = v[n-1]
	weights := slices.Clone(q)
	weights[n-1] = k[n-2]
	if given(in, 3) {
		if !in[3].Shape.Equal(weights) {
			return nil, fmt.Errorf("mask %v does not fit queries %v and keys %v", in[3].Shape, q, k)
		}
		if d := in[3].DType; d != tensor.Bool && d != in[0].DType && d != tensor.Float32 {
			return nil, fmt.Errorf("mask %v with queries %v", d, in[0].DType)
		}
	}
	results := []Spec{{DType: in[0].DType, Shape: out}}
	switch also := a.String("also"); also {
	case "":
	case "logsumexp":
		d := in[0].DType
		if d != tensor.Float64 {
			d = tensor.Float32
		}
		results = append(results, Spec{DType: d, Shape: slices.Clone(q[:n-1])})
	case "weights":
		results = append(results, Spec{DType: in[0].DType, Shape: weights})
	default:
		return nil, fmt.Errorf("unknown result %q", also)
	}
	return results, nil
}

func attentionFLOPs(in, _ []Spec, _ Attrs) int64 {
	k, v := in[1].Shape, in[2].Shape
	rows := Elements(in[0].Shape[:len(k)-1])
	return product(2, rows, int64(k[len(k)-2]), int64(k[len(k)-1])+int64(v[len(v)-1]))
}
