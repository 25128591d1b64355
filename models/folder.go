package models

import (
	"errors"
	"fmt"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models/transformers"
)

// useFolder makes m the model of a Hugging Face folder: the architecture that config.json names, or opts.Arch, a class
// such as "BertModel", on the same weights. Folders of other libraries, whose config.json names no model_type, are taken
// for the state dicts that they hold.
func (m *Model) useFolder(ckpt *loader.Checkpoint, opts Options) error {
	dicts := ckpt.StateDicts()
	if len(dicts) == 0 {
		return &UnsupportedError{What: fmt.Sprintf("a %s folder without weights", ckpt.Format)}
	}
	d := dicts[0] // the most likely one
	dict := make(layers.StateDict, len(d.Weights))
	for i, w := range d.Weights {
		dict[i] = layers.Entry{Name: w.Name, DType: w.DType, Shape: w.Layout.Shape}
	}
	a, err := transformers.Named(opts.Arch, ckpt.Config, dict)
	var unknown *transformers.UnsupportedError
	var config *transformers.ConfigError
	switch {
	case errors.Is(err, transformers.ErrNoType):
		return m.useStateDict(ckpt, opts)
	case errors.As(err, &unknown):
		return &UnsupportedError{What: unknown.Error(), Hint: folderHint(ckpt.Path, unknown.Class)}
	case errors.As(err, &config):
		return fmt.Errorf("%w: %w", loader.ErrFormat, err)
	case err != nil:
		return err
	}
	return m.useArchitecture(ckpt, a, opts, func(name string) string {
		return layers.Join(d.Path, d.Prefix+name)
	})
}

// folderHint is the Python that exports a model which optimem does not know.
func folderHint(path, class string) string {
	if class == "" {
		class = "AutoModel"
	}
	return fmt.Sprintf(`export it:
model = transformers.%s.from_pretrained(%q, use_cache=False).eval()
torch.export.save(torch.export.export(model, (), {"input_ids": input_ids}), "model.pt2")`, class, path)
}
