package models

import (
	"errors"
	"fmt"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models/quantized"
	"github.com/optimem/optimem/models/transformers"
)

// useFolder makes m the model of a Hugging Face folder: the architecture that config.json names, or opts.Arch, a class
// such as "BertModel", on the same weights. Folders of other libraries, whose config.json names no model_type, are taken
// for the state dicts that they hold.
func (m *Model) useFolder(ckpt *loader.Checkpoint, opts Options) error {
	if made, err := apartWeights(ckpt); made != nil || err != nil {
		if err != nil {
			return err
		}
		m.weights = made.Weights
		return m.useFolder(made, opts)
	}
	dicts := ckpt.StateDicts()
	if len(dicts) == 0 {
		return &UnsupportedError{What: fmt.Sprintf("a %s folder without weights", ckpt.Format)}
	}
	if quantization, rest, dtype := quantized.Of(ckpt.Config); quantization != nil {
		return m.useQuantized(ckpt, opts, quantization, rest, dtype)
	}
	d := dicts[0] // the most likely one
	dict := make(layers.StateDict, len(d.Weights))
	for i, w := range d.Weights {
		dict[i] = layers.Entry{Name: w.Name, DType: w.DType, Shape: w.Layout.Shape}
	}
	if _, head := transformers.IsEagle(dict); head && opts.Arch == "" {
		return &UnsupportedError{What: "a head of EAGLE alone", Hint: "give it beside its model: --draft " + ckpt.Path}
	}
	a, err := transformers.Named(opts.Arch, ckpt.Config, dict)
	if errors.Is(err, transformers.ErrNoType) {
		return m.useStateDict(ckpt, opts)
	}
	if err != nil {
		return configError(ckpt, err)
	}
	if a.Note != "" {
		m.notes = append(m.notes, a.Note)
	}
	return m.useArchitecture(ckpt, a, opts, func(name string) string {
		return layers.Join(d.Path, d.Prefix+name)
	})
}

// useConfig makes m the model that a configuration of Hugging Face describes, with the weights of a state dict.
func (m *Model) useConfig(ckpt *loader.Checkpoint, opts Options) error {
	return m.useDictionary(ckpt, func(d dictionary) error {
		a, err := transformers.Named(opts.Arch, opts.Config, d.entries)
		if err != nil {
			return configError(ckpt, err)
		}
		return m.useArchitecture(ckpt, a, opts, d.rename)
	})
}

// Seeing returns what names the model that a config.json of Hugging Face describes as a whole, for [Options.Arch], where
// it sees pictures step by step and is taken for its text part otherwise. token stands for a part of a picture in its
// texts, places of them for each picture. class is "" of all others.
func Seeing(config []byte) (class string, token, places int) {
	class, pictures := transformers.Seeing(config)
	if pictures == nil {
		return "", 0, 0
	}
	return class, pictures.Token, pictures.Places
}

// configError gives an error of a configuration its class.
func configError(ckpt *loader.Checkpoint, err error) error {
	var unknown *transformers.UnsupportedError
	var config *transformers.ConfigError
	switch {
	case errors.As(err, &unknown):
		return &UnsupportedError{What: unknown.Error(), Hint: folderHint(ckpt.Path, unknown)}
	case errors.Is(err, transformers.ErrNoType):
		return &UnsupportedError{What: err.Error()}
	case errors.As(err, &config):
		return fmt.Errorf("%w: %w", loader.ErrFormat, err)
	}
	return err
}

// folderHint says what runs a model whose type optimem does not know: the family that it is like, or the Python that exports it.
func folderHint(path string, e *transformers.UnsupportedError) string {
	class, trust := e.Class, ""
	if class == "" {
		class = "AutoModel"
	}
	export := "export it"
	if e.Code != "" {
		export, class, trust = "export it, if you trust that code", e.Loader, ", trust_remote_code=True"
	}
	like := ""
	if e.Like != "" {
		like = fmt.Sprintf("by its weights and its configuration it is of the type %[1]s: --arch %[1]s runs it as such", e.Like)
		if e.Code == "" {
			return like
		}
		like, export = like+"\n", "what its own code computes otherwise is only in that: export it, if you trust it"
	}
	return like + fmt.Sprintf(`%s:
model = transformers.%s.from_pretrained(%q%s, use_cache=False).eval()
torch.export.save(torch.export.export(model, (), {"input_ids": input_ids}), "model.pt2")`, export, class, path, trust)
}
