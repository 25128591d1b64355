package listing

import (
	"cmp"
	"slices"

	"github.com/optimem/optimem/tensor"
	"github.com/optimem/optimem/tensor/encoded"
)

// encodingOf says how a file holds a weight, nil where its numbers lie there as they are.
func encodingOf(w tensor.Weight) *encodedJSON {
	source, ok := w.Extent.Source.(*encoded.Source)
	if !ok {
		return nil
	}
	run, extent, ok := source.At(w.Extent.Offset)
	if !ok {
		return nil
	}
	return &encodedJSON{run.Encoding.Name, extent.Offset, extent.Bytes}
}

// encodings lists those in use, the one with most bytes first.
func (in *Listing) encodings() []encodingJSON {
	var all []encodingJSON
	for _, w := range in.Weights {
		e := encodingOf(w)
		if e == nil {
			continue
		}
		i := slices.IndexFunc(all, func(x encodingJSON) bool { return x.Encoding == e.Encoding })
		if i < 0 {
			i, all = len(all), append(all, encodingJSON{Encoding: e.Encoding})
		}
		all[i].Tensors++
		all[i].FileBytes += e.FileBytes
	}
	slices.SortFunc(all, func(a, b encodingJSON) int {
		return cmp.Or(cmp.Compare(b.FileBytes, a.FileBytes), cmp.Compare(a.Encoding, b.Encoding))
	})
	return all
}
