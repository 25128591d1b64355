//go:build !files

package running

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
)

// NoAdapter is what --adapter and the lines of a batch say for the model without an adapter.
const NoAdapter = "none"

// An adapterFolder is one of --lora.
type adapterFolder struct{ Name, Path string }

// CheckAdapters reads --lora and --adapter, and opens nothing.
func (r *Run) CheckAdapters() error {
	r.Folders, r.Adapter = nil, r.LoraName
	for _, text := range r.Loras {
		f := adapterFolder{filepath.Base(filepath.Clean(text)), text}
		if _, err := os.Stat(text); err != nil {
			if name, path, ok := strings.Cut(text, "="); ok {
				f = adapterFolder{name, path}
			}
		}
		switch {
		case f.Path == "" || f.Name == "" || f.Name == NoAdapter || f.Name == "." ||
			f.Name == string(filepath.Separator):
			return r.Usage("write it as --lora NAME=DIR", "--lora %s names no adapter", text)
		case r.HasAdapter(f.Name):
			return r.Usage("write it as --lora NAME=DIR", "--lora %s: there are two adapters %q", text, f.Name)
		}
		r.Folders = append(r.Folders, f)
	}
	lines := r.Cmd.Name() == "serve" || r.Cmd.Name() == "generate" && r.Cmd.Flags().Changed("batch") // which may say
	switch {
	case r.LoraName == NoAdapter && len(r.Folders) > 0:
		r.Adapter = ""
	case r.LoraName != "" && !r.HasAdapter(r.LoraName):
		return r.Usage(
			"--lora "+r.LoraName+"=DIR loads it", "--adapter %s: there is no adapter of that name", r.LoraName,
		)
	case r.LoraName == "" && len(r.Folders) == 1:
		r.Adapter = r.Folders[0].Name
	case r.LoraName == "" && len(r.Folders) > 1 && !lines:
		return r.Usage(
			"say which: --adapter "+r.Folders[0].Name, "--lora is there %d times, and one adapter is used",
			len(r.Folders),
		)
	}
	return nil
}

// HasAdapter reports whether --lora has an adapter of a name.
func (r *Run) HasAdapter(name string) bool {
	return slices.ContainsFunc(r.Folders, func(f adapterFolder) bool { return f.Name == name })
}

// openAdapters opens the folders of --lora, which CloseCode closes.
func (r *Run) openAdapters(ctx context.Context, limits loader.Limits) ([]models.Adapter, error) {
	var list []models.Adapter
	for _, f := range r.Folders {
		ckpt, err := loader.OpenAdapter(ctx, f.Path, loader.Options{Limits: limits, Verify: r.Verify})
		if err != nil {
			return nil, err
		}
		r.adapters = append(r.adapters, ckpt)
		list = append(list, models.Adapter{Name: f.Name, Checkpoint: ckpt})
	}
	return list, nil
}
