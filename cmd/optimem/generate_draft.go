//go:build !files

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/optimem/optimem/cmd/optimem/internal/command"
	"github.com/optimem/optimem/generate"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
)

// openDraft opens the model that --draft names, nil where it names none: one of its own, or a head on the model.
func (w *writing) openDraft(ctx context.Context, of *models.Model) (*loader.Checkpoint, *models.Model, error) {
	if w.draft == "" || w.ahead == generate.NoSpeculation {
		return nil, nil, nil
	}
	ckpt, err := loader.OpenWith(ctx, w.draft, loader.Options{Limits: w.Limits(), Verify: w.Verify})
	if err != nil {
		return nil, nil, fmt.Errorf("--draft: %w", err)
	}
	var model *models.Model
	if models.IsHead(ckpt) {
		model, err = models.BuildHead(ckpt, of)
	} else {
		model, err = models.Build(ckpt, models.Options{})
	}
	if err != nil {
		err = fmt.Errorf("--draft: %w", cmp.Or(err, ckpt.Close()))
		var unfit *models.HeadError
		if errors.As(err, &unfit) {
			err = &command.Failure{Err: err, Code: command.ExitUsage}
		}
		return nil, nil, err
	}
	return ckpt, model, nil
}

// noteGuesses says with --verbose why nothing is guessed ahead, where nobody said whether to.
func (w *writing) noteGuesses(engine *generate.Engine) {
	if w.ahead == 0 && !engine.Guesses() {
		w.Note("nothing is guessed ahead: each token more would need other experts, or a state of its own")
	}
}
