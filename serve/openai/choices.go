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
	// alike is how many requests in a row have the same prompt. The first of them goes ahead, so that its prompt's keys and values
	// are there for the others.
	alike int
	got   func(event) error
	// tick is called whenever nothing came for idle.
	idle time.Duration
	tick func() error
}

// run writes all answers at once, through shared passes. It returns the first error when all of them have ended. What
// was written before one of them failed is told.
func (x *writing) run(asked context.Context) error {
	ctx, cancel := context.WithCancelCause(asked)
	defer cancel(nil)
	events := make(chan event)
	var wg sync.WaitGroup
	var ahead chan struct{}
	for i, r := range x.requests {
		o := one{choice: i, request: r, writer: x.writer, events: events}
		if i%x.alike == 0 {
			ahead = make(chan struct{})
			o.began = ahead
		} else {
			o.after = ahead
		}
		wg.Go(func() {
			if err := o.write(ctx); err != nil {
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
	heard := true // what comes is told, until whoever is told cannot hear it
	for {
		var err error
		select {
		case e, more := <-events:
			if !more {
				return context.Cause(ctx)
			}
			if heard && asked.Err() == nil {
				err = x.got(e)
				silence.Reset(x.idle)
			}
		case <-silence.C:
			if x.tick != nil && ctx.Err() == nil {
				err = x.tick()
			}
		}
		if err != nil {
			heard = false
			cancel(err)
		}
	}
}

// A one is one of a request's answers.
type one struct {
	choice  int
	request generate.TextRequest
	writer  Writer
	events  chan<- event
	// began is closed when something was written, or nothing will be; after is that of the answer that goes ahead. Each may be nil.
	began chan<- struct{}
	after <-chan struct{}
}

// write writes the answer.
func (o *one) write(ctx context.Context) (err error) {
	defer o.begin()
	defer func() {
		if v := recover(); v != nil {
			err = panicked.By(v)
		}
	}()
	if o.after != nil {
		select {
		case <-o.after:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	result, err := o.writer.Pieces(ctx, o.request, func(p generate.Piece) error {
		o.begin()
		return o.send(ctx, event{choice: o.choice, piece: p})
	})
	if err != nil {
		return err
	}
	return o.send(ctx, event{choice: o.choice, result: result})
}

// begin lets those go on that wait.
func (o *one) begin() {
	if o.began != nil {
		close(o.began)
		o.began = nil
	}
}

func (o *one) send(ctx context.Context, e event) error {
	select {
	case o.events <- e:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
