package generate

import "github.com/optimem/optimem/tensor"

// DefaultTokens is how many tokens are written where neither the caller nor the model's files say.
const DefaultTokens = 256

// KVTypes are the dtypes that keys and values may be kept as, by the names that users give them.
var KVTypes = map[string]tensor.DType{"fp32": tensor.Float32, "bf16": tensor.BFloat16, "fp16": tensor.Float16, "int8": tensor.Int8}

// KVType is the dtype of keys and values where nobody says: that of most of the weights' bytes, of those that are
// floats and may be kept; float32 where as many are.
func KVType(weights []tensor.Weight) tensor.DType {
	bytes := make(map[tensor.DType]int64)
	best := tensor.Float32
	for _, w := range weights {
		d := w.DType
		if bytes[d] += w.Extent.Bytes; d.IsHalf() && bytes[d] > bytes[best] {
			best = d
		} else if d == tensor.Float32 && bytes[d] >= bytes[best] {
			best = d
		}
	}
	return best
}
