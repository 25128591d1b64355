package openai

import (
	"context"
	"sync"
	"time"

	"github.com/optimem/optimem/generate"
	"github.com/optimem/optimem/internal/panicked"
)

// An event is what one of a request's answers came to: a piece of text, or the end.
type event struct {
	choice int
	piece  generate.Piece
	// result is set at the end, and piece is then empty.
	result *generate.TextResult
}

// A writing is what a request asks to be written, and who hears of it, on one goroutine.
type writing struct {
	writer   Writer
	requests []generate.TextRequest
	got      func(event) error
	// tick is called whenever nothing came for idle.
	idle time.Duration
	tick func() error
}

// run writes all answers at once, through shared passes. It returns the first error when all of them have ended.
func (x *writing) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	events := make(chan event)
	var wg sync.WaitGroup
	for i, r := range x.requests {
		wg.Go(func() {
			if err := x.one(ctx, i, r, events); err != nil {
				cancel(err)
			}
		})
	}
	go func() {
		wg.Wait()
		close(events)
	}()
	silence := time.NewTicker(x.idle)
	defer silence.Stop()
	for {
		var err error
		select {
		case e, more := <-events:
			if !more {
				return context.Cause(ctx)
			}
			if ctx.Err() == nil {
				err = x.got(e)
				silence.Reset(x.idle)
			}
		case <-silence.C:
			if x.tick != nil && ctx.Err() == nil {
				err = x.tick()
			}
		}
		if err != nil {
			cancel(err)
		}
	}
}

// one writes an answer.
func (x *writing) one(ctx context.Context, choice int, r generate.TextRequest, events chan<- event) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = panicked.By(v)
		}
	}()
	send := func(e event) error {
		select {
		case events <- e:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	result, err := x.writer.Pieces(ctx, r, func(p generate.Piece) error { return send(event{choice: choice, piece: p}) })
	if err != nil {
		return err
	}
	return send(event{choice: choice, result: result})
}
