//go:build !files

package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/optimem/optimem/cmd/optimem/internal/command"
	"github.com/optimem/optimem/cmd/optimem/internal/running"
	"github.com/optimem/optimem/internal/ascii"
	"github.com/optimem/optimem/runtime"
)

// A writingWatch shows on a terminal what goes on until a text begins: how much of the weights is there, then how much of the
// prompt was read. Elsewhere it shows nothing.
type writingWatch struct {
	mu sync.Mutex
	to io.Writer
	// weights is what stays in memory and is brought first, loaded how much of it is there.
	weights, loaded int64
	// begun is when the prompt began to be read, and first how much of it was there by then.
	begun time.Time
	first int
	// drawn is when the line was drawn last, columns how long it is, quiet that there is nothing more to show.
	drawn   time.Time
	columns int
	quiet   bool
}

// drawEvery is how often the line is drawn anew.
const drawEvery = 100 * time.Millisecond

// newWritingWatch returns one that shows nothing unless to is a terminal.
func newWritingWatch(to io.Writer, quiet bool) *writingWatch {
	return &writingWatch{to: to, quiet: quiet || !command.IsTerminal(to)}
}

// observe follows the weights. It is a session's observer.
func (w *writingWatch) observe(e runtime.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.quiet || e.Kind != runtime.WeightsLoaded && e.Kind != runtime.GroupDone || w.loaded >= w.weights {
		return
	}
	w.loaded = min(w.loaded+e.LoadedBytes, w.weights)
	w.draw(fmt.Sprintf("loaded %s of %s", ascii.FormatSize(w.loaded), ascii.FormatSize(w.weights)), false)
}

// progress follows a prompt. It is what a request tells.
func (w *writingWatch) progress(read, tokens int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.quiet {
		return
	}
	if w.begun.IsZero() {
		w.begun, w.first = time.Now(), read
	}
	w.draw(promptText(read, tokens, read-w.first, time.Since(w.begun)), read == tokens)
}

// promptText is the line of a prompt of which some tokens were read, so many of them in a time.
func promptText(read, tokens, lately int, took time.Duration) string {
	text := fmt.Sprintf("prompt: %d of %s", read, running.Counted(tokens, "token"))
	if lately > 0 && took > 0 {
		rate := float64(lately) / took.Seconds()
		text += fmt.Sprintf(", %s a second", running.RateText(rate))
		if read < tokens {
			text += ", " + running.SecondsText(float64(tokens-read)/rate) + " to go"
		}
	}
	return text
}

// draw writes a line over the last one, if that was not just now.
func (w *writingWatch) draw(text string, now bool) {
	if !now && time.Since(w.drawn) < drawEvery {
		return
	}
	w.drawn = time.Now()
	text = "optimem: " + text
	blank := strings.Repeat(" ", max(0, w.columns-len(text)))
	w.columns = len(text)
	_, _ = io.WriteString(w.to, "\r"+text+blank) // a terminal that went away is no reason to stop
}

// end removes the line, for a text that begins in its place. Weights are there by then, and nothing is shown until there is
// another prompt.
func (w *writingWatch) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.columns > 0 {
		_, _ = io.WriteString(w.to, "\r"+strings.Repeat(" ", w.columns)+"\r")
	}
	w.columns, w.begun, w.loaded = 0, time.Time{}, w.weights
}
