package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
)

// architecture returns what --arch says of the model: the name of an architecture, or a file that has the code.
func (r *run) architecture(ctx context.Context, ckpt *loader.Checkpoint, limits loader.Limits) (models.Options, error) {
	if r.arch == "" {
		return models.Options{}, nil
	}
	if ckpt.Program != nil || ckpt.Module != nil {
		return models.Options{}, r.usage("", "--arch is for state dicts: %s has code of its own", r.model)
	}
	if _, err := os.Stat(r.arch); slices.Contains(models.Architectures(), r.arch) || err != nil {
		return models.Options{Arch: r.arch}, nil
	}
	code, err := loader.OpenWith(ctx, r.arch, loader.Options{Limits: limits})
	if err != nil {
		return models.Options{}, err
	}
	r.code = code
	return models.Options{Code: code}, nil
}

// closeCode closes the file that --arch named.
func (r *run) closeCode() error {
	if r.code == nil {
		return nil
	}
	return r.code.Close()
}

// mismatch lists every difference between a state dict and its architecture, a line for each.
func (r *run) mismatch(err error, m *layers.MismatchError) error {
	where, _, _ := strings.Cut(err.Error(), "the state dict does not fit")
	r.say("error", fmt.Sprintf("%sthe state dict does not fit %s: %s", where, m.Arch, counted(m.Count(), "difference")))
	for _, key := range m.Missing {
		r.say("missing", key)
	}
	for _, key := range m.Unexpected {
		r.say("unexpected", key)
	}
	for _, s := range m.Misshaped {
		r.say("size mismatch", fmt.Sprintf("%s: %v in the checkpoint, %v in the model", s.Name, s.Got, s.Want))
	}
	return &failure{code: exitUnsupported, hints: []string{
		"it is another architecture, or a variant of it: --arch takes a file of the model that has its code, too",
	}}
}

// architectureHint says what may have been meant by a name that is unknown.
func architectureHint(e *models.UnknownArchitectureError) string {
	if len(e.Close) > 0 {
		return "did you mean " + strings.Join(e.Close, ", ") + "?"
	}
	return "'optimem synth --help' lists the architectures that have names"
}
