//go:build !files

package main

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
)

// noAdapter is what --adapter and the lines of a batch say for the model without an adapter.
const noAdapter = "none"

// An adapterFolder is one of --lora.
type adapterFolder struct{ name, path string }

// checkAdapters reads --lora and --adapter, and opens nothing.
func (r *run) checkAdapters() error {
	r.folders, r.adapter = nil, r.loraName
	for _, text := range r.loras {
		f := adapterFolder{filepath.Base(filepath.Clean(text)), text}
		if _, err := os.Stat(text); err != nil {
			if name, path, ok := strings.Cut(text, "="); ok {
				f = adapterFolder{name, path}
			}
		}
		switch {
		case f.path == "" || f.name == "" || f.name == noAdapter || f.name == "." ||
			f.name == string(filepath.Separator):
			return r.usage("write it as --lora NAME=DIR", "--lora %s names no adapter", text)
		case r.hasAdapter(f.name):
			return r.usage("write it as --lora NAME=DIR", "--lora %s: there are two adapters %q", text, f.name)
		}
		r.folders = append(r.folders, f)
	}
	lines := r.cmd.Name() == "serve" || r.cmd.Name() == "generate" && r.cmd.Flags().Changed("batch") // which may say
	switch {
	case r.loraName == noAdapter && len(r.folders) > 0:
		r.adapter = ""
	case r.loraName != "" && !r.hasAdapter(r.loraName):
		return r.usage(
			"--lora "+r.loraName+"=DIR loads it", "--adapter %s: there is no adapter of that name", r.loraName,
		)
	case r.loraName == "" && len(r.folders) == 1:
		r.adapter = r.folders[0].name
	case r.loraName == "" && len(r.folders) > 1 && !lines:
		return r.usage(
			"say which: --adapter "+r.folders[0].name, "--lora is there %d times, and one adapter is used",
			len(r.folders),
		)
	}
	return nil
}

// hasAdapter reports whether --lora has an adapter of a name.
func (r *run) hasAdapter(name string) bool {
	return slices.ContainsFunc(r.folders, func(f adapterFolder) bool { return f.name == name })
}

// openAdapters opens the folders of --lora, which closeCode closes.
func (r *run) openAdapters(ctx context.Context, limits loader.Limits) ([]models.Adapter, error) {
	var list []models.Adapter
	for _, f := range r.folders {
		ckpt, err := loader.OpenAdapter(ctx, f.path, loader.Options{Limits: limits, Verify: r.verify})
		if err != nil {
			return nil, err
		}
		r.adapters = append(r.adapters, ckpt)
		list = append(list, models.Adapter{Name: f.name, Checkpoint: ckpt})
	}
	return list, nil
}
