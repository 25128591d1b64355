//go:build !files

package main

import (
	"cmp"
	"context"
	"errors"
	"path/filepath"

	"github.com/optimem/optimem/cmd/optimem/internal/newfile"
	"github.com/optimem/optimem/cmd/optimem/internal/running"
	"github.com/optimem/optimem/generate"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/runtime"
)

// A batchWidth is how many prompts are answered at once, and whether their keys and values wait away while other layers are
// computed.
type batchWidth struct {
	sequences int
	away      bool
	// rate is how many tokens a second are expected, moves says that passes bring weights.
	rate  float64
	moves bool
}

// worth is by how much faster answering has to be for more prompts at once, and for keys and values to wait away.
const worth = 1.05

// mayWait reports whether keys and values of a batch may wait in a file, or in the host's memory: as with all that waits there, if it
// is allowed.
func (w *writing) mayWait() bool {
	return (w.Device == "cpu" || w.Swap.Host) && w.draft == "" && w.Stages.List == "" && w.Swap.Bytes > 0
}

// bestSequences returns how many of so many prompts are to be answered at once. Where each pass brings weights these
// are as many as are expected to write the most tokens a second: all rows of a pass share what it brings, while their
// keys and values take memory of weights that could stay, or time where they wait away.
func (w *writing) bestSequences(ctx context.Context, context, prompts int) (best batchWidth, err error) {
	best = batchWidth{sequences: min(prompts, mostSequences)}
	if prompts <= mostSequences && !w.mayWait() || w.draft != "" {
		return best, nil
	}
	m, err := w.OpenModel(ctx)
	if err != nil {
		return best, err
	}
	defer func() { err = cmp.Or(err, m.Close()) }()
	longest := m.Model.Context()
	if longest == 0 {
		return best, nil // what is wrong is said when it is started
	}
	opts := generate.Options{Session: w.Options(nil, 0), Context: min(context, longest), KV: running.KVType(w.kv, m.Ckpt), Speculate: generate.NoSpeculation}
	opts.Session.PlanOnly = true
	in, err := w.widest(ctx, m.Model, opts, prompts)
	if in.sequences > 0 {
		best = in
	}
	if err != nil || in.sequences > 0 && !in.moves || !w.mayWait() {
		return best, err
	}
	opts.Session.CachesAway = true
	out, err := w.widest(ctx, m.Model, opts, prompts)
	if out.rate > in.rate*worth {
		best = out
	}
	return best, err
}

// widest finds the number of prompts at once that is expected to write the most tokens a second, from as many on as are
// answered together in any case, or from the most below that for which there is room; none where there is for none.
func (w *writing) widest(ctx context.Context, model *models.Model, opts generate.Options, prompts int) (best batchWidth, err error) {
	least := min(prompts, mostSequences)
	for n := least; n <= mostBatched && n < 2*prompts; n *= 2 {
		is, err := w.widthOf(ctx, model, opts, n, prompts)
		if err != nil {
			return best, err
		}
		if is.sequences == 0 || is.rate < best.rate*worth {
			break
		}
		if best = is; !is.moves {
			break
		}
	}
	for n := least / 2; n > 0 && best.sequences == 0; n /= 2 {
		if best, err = w.widthOf(ctx, model, opts, n, prompts); err != nil {
			return best, err
		}
	}
	return best, nil
}

// widthOf is what answering so many prompts at once is expected to be like: of no sequences where the budget, or the disk, does
// not admit it.
func (w *writing) widthOf(ctx context.Context, model *models.Model, opts generate.Options, n, prompts int) (batchWidth, error) {
	opts.Sequences, opts.Grammars = n, w.grammars.bytes(n)
	e, err := generate.New(ctx, model, opts)
	var full *runtime.CapacityError
	if errors.As(err, &full) {
		return batchWidth{}, nil
	}
	if err != nil {
		return batchWidth{}, err
	}
	p, err := e.ForecastPass(ctx, min(n, e.Rows()), min(n, e.Rows()))
	rows := e.Rows()
	if err = cmp.Or(err, e.Close()); err != nil {
		return batchWidth{}, err
	}
	if opts.Session.CachesAway && !w.hasRoom(p) {
		return batchWidth{}, nil
	}
	return batchWidth{
		sequences: min(n, prompts), away: opts.Session.CachesAway,
		rate: float64(min(n, rows, prompts)) / p.Forecast.Seconds, moves: p.MovedBytes+p.Routed.ExpectedBytes > 0,
	}, nil
}

// hasRoom reports whether there is room for keys and values that wait: as much as --swap says, if a disk has that free. Of the host's
// memory the plan knows.
func (w *writing) hasRoom(p *plan.Plan) bool {
	return p.CacheAwayBytes <= w.Swap.Bytes &&
		(w.Swap.Host || newfile.CheckRoom(filepath.Join(w.WaitFolder(), "f"), p.CacheAwayBytes) == nil)
}
