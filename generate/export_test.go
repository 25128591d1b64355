package generate

import (
	"context"
	"time"
)

// SetClock has requests come by another clock, and none begin until the function that it returns is called.
func (e *Engine) SetClock(ctx context.Context, now func() time.Time) (begin func() error, err error) {
	rows := e.rows
	err = e.between(ctx, func() error {
		e.now, e.rows = now, 0
		return nil
	})
	return func() error { return e.between(ctx, func() error { e.rows = rows; return nil }) }, err
}

// WaitFor returns once so many requests wait.
func (e *Engine) WaitFor(ctx context.Context, requests int) error {
	for {
		n := 0
		if err := e.between(ctx, func() error { n = len(e.waiting); return nil }); err != nil || n == requests {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}
