package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"

	"github.com/optimem/optimem/runtime"
)

// A courtesy lends a session's memory to other processes when signals ask for it. One that comes before the session is there
// waits for it, and does not end the process.
type courtesy struct {
	signals chan os.Signal
	done    chan struct{}
}

// listen begins to take signals.
func listen() *courtesy {
	c := &courtesy{signals: make(chan os.Signal, 1), done: make(chan struct{})}
	if list := slices.Concat(giveBackSignals, goOnSignals); len(list) > 0 { // none would be all
		signal.Notify(c.signals, list...)
	}
	return c
}

// serve obeys signals, until close.
func (c *courtesy) serve(ctx context.Context, s *runtime.Session, say func(what, text string)) {
	for {
		select {
		case <-c.done:
			return
		case sig := <-c.signals:
			if slices.Contains(goOnSignals, sig) {
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

func (c *courtesy) close() {
	signal.Stop(c.signals)
	close(c.done)
}
