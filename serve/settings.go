package serve

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"

	"github.com/optimem/optimem/generate"
	"github.com/optimem/optimem/internal/ascii"
	"github.com/optimem/optimem/internal/preprocess"
	"github.com/optimem/optimem/plan"
)

// settings are what model.json beside a model says of it. All of it is optional.
type settings struct {
	// Kind is what is done with the model, where that is not as the files look.
	Kind Kind `json:"kind"`
	// Arch is the architecture of a bare state dict, Code a file in the same folder that has its code.
	Arch string `json:"arch"`
	Code string `json:"code"`
	// Aliases are more names of the model.
	Aliases []string `json:"aliases"`
	// Memory is the share of a model beside the pool.
	Memory size `json:"memory"`
	// MaxJoin is how many requests share a pass, Mode how a member of the pool runs.
	MaxJoin int       `json:"max_join"`
	Mode    plan.Mode `json:"mode"`
	// Context, Sequences and KV are as in generate.Options.
	Context   int    `json:"context"`
	Sequences int    `json:"sequences"`
	KV        string `json:"kv"`
	// Adapters are folders of adapters beside model.json, by the names under which requests ask for them: MODEL:NAME.
	Adapters map[string]string `json:"adapters"`
	// Draft is a folder or a file beside model.json: a model, or a head, that guesses what this one writes, in its share of memory.
	Draft string `json:"draft"`
	// Preprocess says that an input takes pictures, and how they become numbers.
	Preprocess *preparation `json:"preprocess"`
	// OnDemand opens the model with the first request, and not at the start.
	OnDemand bool `json:"on_demand"`

	// folder is where model.json is.
	folder string
}

// A size is a number of bytes, or a text such as "2GiB".
type size int64

// UnmarshalJSON reads one.
func (s *size) UnmarshalJSON(text []byte) error {
	var name string
	if json.Unmarshal(text, &name) != nil {
		name = string(text)
	}
	n, err := ascii.ParseSize(name)
	*s = size(n)
	return err
}

// readSettings reads a model.json, the zero value where there is none.
func readSettings(root *os.Root, name string) (settings, error) {
	var s settings
	text, err := readSmall(root, name)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return s, err
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return s, fmt.Errorf("%s: %w", path.Base(name), err)
	}
	bad := func(format string, args ...any) (settings, error) {
		return settings{}, fmt.Errorf("%s: %s", path.Base(name), fmt.Sprintf(format, args...))
	}
	s.folder = path.Dir(name)
	for adapter, folder := range s.Adapters {
		if !modelName.MatchString(adapter) || !modelName.MatchString(folder) {
			return bad("adapters: %q: %q is no name of a folder beside it", adapter, folder)
		}
		if err := checkAdapter(root, path.Join(s.folder, folder)); err != nil {
			return bad("adapters: %q: %v", adapter, err)
		}
	}
	if s.Draft != "" {
		if !modelName.MatchString(s.Draft) {
			return bad("draft: %q is no name of a folder or a file beside it", s.Draft)
		}
		if err := checkDraft(root, path.Join(s.folder, s.Draft)); err != nil {
			return bad("draft: %v", err)
		}
	}
	for _, a := range s.Aliases {
		if !modelName.MatchString(a) {
			return bad("aliases: %q is no name", a)
		}
	}
	switch s.Kind {
	case "", Tensors, Text, Embeddings:
	default:
		return bad("kind: %q is none of tensors, text, embeddings", s.Kind)
	}
	switch s.Mode {
	case "", plan.Auto, plan.Page, plan.Resident:
	default:
		return bad("mode: %q is none of auto, page, resident", s.Mode)
	}
	if _, known := generate.KVTypes[s.KV]; s.KV != "" && !known {
		return bad("kv: %q is none of fp32, bf16, fp16, int8", s.KV)
	}
	if s.Code != "" && (!modelName.MatchString(s.Code) || modelFile(s.Code) == "") {
		return bad("code: %q is no file beside the model", s.Code)
	}
	if p := s.Preprocess; p != nil {
		if p.spec, err = preprocess.Parse(p.Spec); err != nil {
			return bad("preprocess: %v: there is %s; options, after a colon: %s", err, preprocess.Names, preprocess.Options)
		}
	}
	if s.Memory < 0 || s.MaxJoin < 0 || s.Context < 0 || s.Sequences < 0 {
		return bad("a number is below zero")
	}
	return s, nil
}

// checkAdapter reports whether a folder has an adapter, and no file that is a link out of the directory.
func checkAdapter(root *os.Root, folder string) error {
	entries, err := readDir(root, folder)
	if err != nil {
		return err
	}
	adapter := false
	for _, e := range entries {
		if _, err := root.Stat(path.Join(folder, e.Name())); err != nil {
			return outside(err)
		}
		adapter = adapter || e.Name() == "adapter_config.json"
	}
	if !adapter {
		return fmt.Errorf("%s is no folder of an adapter: it has no adapter_config.json", path.Base(folder))
	}
	return nil
}

// checkDraft reports whether there is a file, or a folder without a link out of the directory.
func checkDraft(root *os.Root, name string) error {
	info, err := root.Stat(name)
	if err != nil {
		return outside(err)
	}
	if !info.IsDir() {
		return nil
	}
	entries, err := readDir(root, name)
	for _, e := range entries {
		if _, err := root.Stat(path.Join(name, e.Name())); err != nil {
			return outside(err)
		}
	}
	return err
}
