package family

import (
	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/tensor"
)

// A Pictured says what stands in the places of a token: the features of pictures, in their order; in a step those that
// the module seen kept when it read them.
type Pictured struct {
	// Features are [patches, size], for the places of token.
	Features layers.Tensor
	Token    int
	// Seen is the module that keeps features for steps, nil where there are features.
	Seen *layers.Module
}

// place puts the features into the embeddings of tokens, [batch, tokens, size].
func (p *Pictured) Place(t *layers.Trace, ids, x layers.Tensor) layers.Tensor {
	if p == nil {
		return x
	}
	if p.Seen != nil {
		kept, named := t.Seen(p.Seen, x.Shape()[2])
		return t.Op("where.self", t.Op("unsqueeze", t.Op("unsqueeze", named, 0), -1), kept, x)
	}
	at := t.Op("unsqueeze", t.Op("eq.Scalar", ids, p.Token), -1)
	return t.Op("masked_scatter", x, at, t.Op("to.dtype", p.Features, tensor.Float32))
}
