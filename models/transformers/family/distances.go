package family

import (
	"math"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/tensor"
)

// DistanceBuckets is _relative_position_bucket: near distances have a bucket each, far ones share them by their logarithm.
func DistanceBuckets(t *layers.Trace, m *layers.Module, queries, keys int) layers.Tensor {
	q := t.Op("unsqueeze", t.Op("arange", queries, layers.Named{"dtype": tensor.Int64}), 1)
	q = t.Op("add.Tensor", q, 0)
	k := t.Op("unsqueeze", t.Op("arange", keys, layers.Named{"dtype": tensor.Int64}), 0)
	distance := t.Op("sub.Tensor", k, q)
	count := m.Int("num_buckets")
	var buckets layers.Tensor
	if m.Bool("is_decoder") {
		distance = t.Op("neg", t.Op("min.other", distance, t.Op("zeros_like", distance)))
	} else {
		count /= 2
		after := t.Op("to.dtype", t.Op("gt.Scalar", distance, 0), tensor.Int64)
		buckets = t.Op("add.Tensor", t.Op("mul.Tensor", after, count), 0)
		distance = t.Op("abs", distance)
	}
	bucket := DistanceShares(t, m, distance, count)
	if buckets == nil {
		return t.Op("add.Tensor", bucket, 0)
	}
	return t.Op("add_.Tensor", buckets, bucket)
}

// DistanceShares tells of distances, which are not negative, which of so many buckets they are in.
func DistanceShares(t *layers.Trace, m *layers.Module, distance layers.Tensor, count int) layers.Tensor {
	exact, far := count/2, m.Int("max_distance")
	small := t.Op("lt.Scalar", distance, exact)
	large := t.Op("log", t.Op("div.Tensor", t.Op("to.dtype", distance, tensor.Float32), exact))
	large = t.Op("div.Tensor", large, math.Log(float64(far)/float64(exact)))
	large = t.Op("to.dtype", t.Op("mul.Tensor", large, count-exact), tensor.Int64)
	large = t.Op("add.Tensor", large, exact)
	large = t.Op("min.other", large, t.Op("full_like", large, count-1))
	return t.Op("where.self", small, distance, large)
}
