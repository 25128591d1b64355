//go:build !files

package main

import (
	"cmp"
	"context"
	"fmt"

	"github.com/optimem/optimem/generate"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
)

// openDraft opens the model that --draft names, nil where it names none.
func (w *writing) openDraft(ctx context.Context) (*loader.Checkpoint, *models.Model, error) {
	if w.draft == "" || w.ahead == generate.NoSpeculation {
		return nil, nil, nil
	}
	ckpt, err := loader.OpenWith(ctx, w.draft, loader.Options{Limits: w.Limits(), Verify: w.Verify})
	if err != nil {
		return nil, nil, fmt.Errorf("--draft: %w", err)
	}
	model, err := models.Build(ckpt, models.Options{})
	if err != nil {
		return nil, nil, fmt.Errorf("--draft: %w", cmp.Or(err, ckpt.Close()))
	}
	return ckpt, model, nil
}
