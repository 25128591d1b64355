//go:build !files

package running

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/optimem/optimem/cmd/optimem/internal/command"
	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
)

// architecture returns what --arch says of the model: the name of an architecture, or a file that has the code or is
// the configuration of a Hugging Face model. A whole pickled module is run for its weights then.
func (r *Run) architecture(ctx context.Context, ckpt *loader.Checkpoint, limits loader.Limits) (models.Options, error) {
	if r.Arch == "" {
		return models.Options{Arch: r.Class}, nil
	}
	if ckpt.Program != nil {
		return models.Options{}, r.Usage("", "--arch is for state dicts: %s has code of its own", r.Model)
	}
	if _, err := os.Stat(r.Arch); slices.Contains(models.Architectures(), r.Arch) || err != nil {
		return models.Options{Arch: r.Arch}, nil
	}
	if strings.HasSuffix(r.Arch, ".json") {
		config, err := readConfig(r.Arch)
		return models.Options{Config: config}, err
	}
	code, err := loader.OpenWith(ctx, r.Arch, loader.Options{Limits: limits})
	if err != nil {
		return models.Options{}, err
	}
	r.code = code
	return models.Options{Code: code}, nil
}

// maxConfigBytes bounds a configuration, of which the largest have some hundred kilobytes: names of classes.
const maxConfigBytes = 16 << 20

// readConfig reads the configuration of a Hugging Face model.
func readConfig(path string) ([]byte, error) {
	f, size, err := OpenSized(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if size > maxConfigBytes {
		return nil, &command.Failure{Code: command.ExitUnsafe, Err: fmt.Errorf("%s: %d bytes are no configuration", path, size)}
	}
	text, err := io.ReadAll(io.LimitReader(f, maxConfigBytes))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return text, nil
}

// CloseCode closes the file that --arch named, and the adapters.
func (r *Run) CloseCode() error {
	var err error
	for _, a := range r.adapters {
		err = errors.Join(err, a.Close())
	}
	if r.code == nil {
		return err
	}
	return errors.Join(err, r.code.Close())
}

// mismatch lists every difference between a state dict and its architecture, a line for each.
func (r *Run) mismatch(err error, m *layers.MismatchError) error {
	where, _, _ := strings.Cut(err.Error(), "the state dict does not fit")
	r.Say("error", fmt.Sprintf("%sthe state dict does not fit %s: %s", where, m.Arch, Counted(m.Count(), "difference")))
	for _, key := range m.Missing {
		r.Say("missing", key)
	}
	for _, key := range m.Unexpected {
		r.Say("unexpected", key)
	}
	for _, s := range m.Misshaped {
		r.Say("size mismatch", fmt.Sprintf("%s: %v in the checkpoint, %v in the model", s.Name, s.Got, s.Want))
	}
	return &command.Failure{Code: command.ExitUnsupported, Hints: []string{
		"it is another architecture, or a variant of it: --arch takes a file of the model that has its code, too",
	}}
}

// ArchitectureHint says what may have been meant by a name that is unknown.
func ArchitectureHint(e *models.UnknownArchitectureError) string {
	if len(e.Close) > 0 {
		return "did you mean " + strings.Join(e.Close, ", ") + "?"
	}
	return "'optimem synth --help' lists the architectures that have names"
}
