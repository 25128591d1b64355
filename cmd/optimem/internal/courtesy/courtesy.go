// Package courtesy lends the memory of a command's session to other processes that ask for it by signals: SIGUSR1 has it
// give memory back at once, SIGUSR2 lets it go on. It does not know models or flags, and where a system has no such signals
// it does nothing.
//
//	polite := courtesy.Listen()
//	defer polite.Close()
//	go polite.Serve(ctx, session, say)
package courtesy

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"

	"github.com/optimem/optimem/runtime"
)

// A Courtesy lends a session's memory to other processes when signals ask for it. One that comes before the session is there
// waits for it, and does not end the process.
type Courtesy struct {
	signals chan os.Signal
	done    chan struct{}
}

// Listen begins to take signals.
func Listen() *Courtesy {
	c := &Courtesy{signals: make(chan os.Signal, 1), done: make(chan struct{})}
	if list := slices.Concat(GiveBackSignals, GoOnSignals); len(list) > 0 { // none would be all
		signal.Notify(c.signals, list...)
	}
	return c
}

// Serve obeys signals, until Close, and says what it did.
func (c *Courtesy) Serve(ctx context.Context, s *runtime.Session, say func(what, text string)) {
	for {
		select {
		case <-c.done:
			return
		case sig := <-c.signals:
			if slices.Contains(GoOnSignals, sig) {
				s.Resume()
				say("note", "goes on")
			} else if err := s.Yield(ctx); err != nil {
				say("warning", fmt.Sprintf("memory was not given back: %v", err))
			} else {
				say("note", "memory was given back; SIGUSR2 lets it go on")
			}
		}
	}
}

// Close ends Serve, and the signals are what they were.
func (c *Courtesy) Close() {
	signal.Stop(c.signals)
	close(c.done)
}
