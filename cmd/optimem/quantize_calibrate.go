//go:build !files

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/optimem/optimem/cmd/optimem/internal/command"
	"github.com/optimem/optimem/cmd/optimem/internal/running"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/perplexity"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/quantize/moments"
	"github.com/optimem/optimem/runtime"
)

// A calibrating is what a model is given while it reads the text of --calibrate.
type calibrating struct {
	q     *quantizing
	text  *moments.Text
	ckpt  *loader.Checkpoint
	read  int // tokens of this reading
	bar   *command.Progress
	total int
}

// weightShare is the part of --memory that weights on their way have beside a calibration.
const weightShare = 4

// calibration opens the model for --calibrate; nil without it.
func (q *quantizing) calibration(ctx context.Context, model string) (c *calibrating, err error) {
	if q.calibrate == "" {
		return nil, nil
	}
	tokens, err := q.readText(model, q.calibrate)
	if err != nil {
		return nil, err
	}
	c = &calibrating{q: q, total: len(tokens), bar: &command.Progress{}}
	c.ckpt, err = loader.OpenWith(ctx, model, loader.Options{Limits: loader.Limits{MemoryBytes: int64(q.openMemory)}})
	if err != nil {
		return nil, err
	}
	built, err := models.Build(c.ckpt, models.Options{})
	if err == nil {
		memory := int64(q.memory) - int64(q.memory)/weightShare
		c.text, err = moments.Of(built, tokens, moments.Options{
			Context: q.context, MemoryBytes: memory, Session: runtime.Options{Mode: plan.Auto}, Done: c.tell,
		})
	}
	if err != nil {
		return nil, errors.Join(c.place(err), c.ckpt.Close())
	}
	return c, nil
}

// tell draws how far a reading of the text has come: there is one for each set of layers whose inputs fit into memory.
func (c *calibrating) tell(tokens int) {
	if c.read == 0 && !c.q.quiet {
		c.bar = command.NewCounter(c.q.Stderr, "calibrating", int64(c.total))
	}
	c.bar.Add(tokens)
	if c.read += tokens; c.read >= c.total {
		c.bar.Clear()
		c.read = 0
	}
}

// close closes the model.
func (c *calibrating) close() error {
	if c == nil {
		return nil
	}
	c.bar.Clear()
	return c.ckpt.Close()
}

// place gives an error of a calibration its exit code and its hints.
func (c *calibrating) place(err error) error {
	if c == nil {
		return err
	}
	var full *plan.CapacityError
	if errors.As(err, &full) || errors.Is(err, moments.ErrMemory) {
		return &command.Failure{Err: fmt.Errorf("--calibrate: %w", err), Code: running.ExitDoesNotFit, Hints: []string{
			"more --memory: what a layer of n inputs is given takes 16 × n × n bytes, beside the model",
			"a smaller --context takes less, and --keep PATTERN leaves layers as they are",
		}}
	}
	switch {
	case errors.Is(err, perplexity.ErrShort):
		return command.UsageError(c.q.cmd, fmt.Errorf("--calibrate %s: %w", c.q.calibrate, err))
	case errors.Is(err, perplexity.ErrContext):
		return command.UsageError(c.q.cmd, fmt.Errorf("--context: %w", err))
	case errors.Is(err, perplexity.ErrModel):
		return &command.Failure{Err: fmt.Errorf("--calibrate: %w", err), Code: command.ExitUnsupported, Hints: []string{"without --calibrate its weights are quantised all the same"}}
	}
	return err
}
