//go:build !files

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/optimem/optimem/cmd/optimem/internal/command"
	"github.com/optimem/optimem/cmd/optimem/internal/jsonout"
	"github.com/optimem/optimem/cmd/optimem/internal/running"
	"github.com/optimem/optimem/generate"
	"github.com/optimem/optimem/internal/ascii"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/perplexity"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/text/tokenizer"
)

// A textMeasure is what a text is to a model before and after it is quantised.
type textMeasure struct {
	q             *quantizing
	tokens        []uint32
	before, after perplexity.Result
}

// readText returns the tokens that the model has for the text of a flag.
func (q *quantizing) readText(model, name string) ([]uint32, error) {
	text, err := generate.OpenText(model)
	if err != nil {
		return nil, textError(err)
	}
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	words, err := io.ReadAll(io.LimitReader(file, maxPrompt+1))
	if err != nil {
		return nil, err
	}
	if len(words) > maxPrompt {
		return nil, command.UsageError(q.cmd, fmt.Errorf("%s: a text of more than %s", name, ascii.FormatSize(maxPrompt)))
	}
	encoded, err := text.Tokenizer().Encode(string(words), tokenizer.Options{AddSpecial: true})
	if err != nil {
		return nil, textError(err)
	}
	return encoded.IDs, nil
}

// measureBefore reads the text with the model as it is; nil without --text.
func (q *quantizing) measureBefore(ctx context.Context, model string) (*textMeasure, error) {
	if q.text == "" {
		return nil, nil
	}
	m := &textMeasure{q: q}
	var err error
	if m.tokens, err = q.readText(model, q.text); err != nil {
		return nil, err
	}
	m.before, err = m.measure(ctx, model)
	return m, err
}

// measureAfter reads the text with what was made of the model.
func (m *textMeasure) measureAfter(ctx context.Context, folder string) (err error) {
	m.after, err = m.measure(ctx, folder)
	return err
}

// measure reads the text with the model of a folder.
func (m *textMeasure) measure(ctx context.Context, folder string) (result perplexity.Result, err error) {
	q := m.q
	defer func() { err = q.placeText(err, folder) }()
	ckpt, err := loader.OpenWith(ctx, folder, loader.Options{Limits: loader.Limits{MemoryBytes: int64(q.openMemory)}})
	if err != nil {
		return result, err
	}
	defer func() { err = cmp.Or(err, ckpt.Close()) }()
	model, err := models.Build(ckpt, models.Options{})
	if err != nil {
		return result, err
	}
	bar := &command.Progress{}
	if !q.quiet {
		bar = command.NewCounter(q.Stderr, "tokens", int64(len(m.tokens)))
	}
	defer bar.Clear()
	return perplexity.Of(ctx, model, m.tokens, perplexity.Options{
		Context: q.context, Session: runtime.Options{Memory: int64(q.memory)}, Done: bar.Add,
	})
}

// placeText gives an error of reading the text its exit code and its hints.
func (q *quantizing) placeText(err error, model string) error {
	r := running.Run{Line: q.Line, Cmd: q.cmd, ModelFlags: running.ModelFlags{Mode: string(plan.Auto), AsJSON: q.asJSON}, Model: model}
	var full *plan.CapacityError
	switch {
	case errors.Is(err, perplexity.ErrShort):
		return command.UsageError(q.cmd, fmt.Errorf("--text %s: %w", q.text, err))
	case errors.Is(err, perplexity.ErrContext):
		return command.UsageError(q.cmd, fmt.Errorf("--context: %w", err))
	case errors.Is(err, perplexity.ErrModel):
		return &command.Failure{Err: fmt.Errorf("--text: %w", err), Code: command.ExitUnsupported, Hints: []string{"without --text its weights are quantised all the same"}}
	case errors.As(err, &full) && full.MinBytes > 0:
		f := &command.Failure{Err: fmt.Errorf("--text: %w", err), Code: running.ExitDoesNotFit, Hints: []string{
			fmt.Sprintf("the least that works for this --context: --memory %d (%s)", full.MinBytes, ascii.FormatSize(full.MinBytes)),
			"a smaller --context takes less",
		}}
		return cmp.Or(r.DoesNotFitJSON(err, &full.MinBytes), error(f))
	}
	return r.Place(err)
}

// line is what is printed for people.
func (m *textMeasure) line() string {
	return fmt.Sprintf("perplexity of %s: %.5g before, %.5g after\n", running.Counted(m.before.Tokens, "token"), m.before.Perplexity, m.after.Perplexity)
}

func (m *textMeasure) setJSON(o *jsonout.Object) {
	o.Set("perplexity_before", m.before.Perplexity)
	o.Set("perplexity_after", m.after.Perplexity)
	o.Set("perplexity_tokens", m.before.Tokens)
}
