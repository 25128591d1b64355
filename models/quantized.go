package models

import (
	"encoding/json"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models/quantized"
	"github.com/optimem/optimem/models/transformers"
	"github.com/optimem/optimem/tensor"
)

// useQuantized makes m the model of a Hugging Face folder whose weights are quantised: of tensors that belong together one weight
// is made, under the name that it had, and the configuration no longer says so.
func (m *Model) useQuantized(ckpt *loader.Checkpoint, opts Options, raw json.RawMessage, rest []byte, dtype tensor.DType) error {
	weights, err := quantized.Weights(ckpt, raw, dtype)
	if err != nil {
		return err
	}
	renamed, err := loader.NewCheckpoint(ckpt.Path, weights, nil)
	if err != nil {
		return err
	}
	dict := make(layers.StateDict, len(weights))
	for i, w := range weights {
		dict[i] = layers.Entry{Name: w.Name, DType: w.DType, Shape: w.Layout.Shape}
	}
	a, err := transformers.Named(opts.Arch, rest, dict)
	if err != nil {
		return configError(ckpt, err)
	}
	if a.Note != "" {
		m.notes = append(m.notes, a.Note)
	}
	renamed.Format, m.weights = ckpt.Format, renamed.Weights
	return m.useArchitecture(renamed, a, opts, nil)
}
