package main

import (
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// A progress draws how far a long command has come.
type progress struct{ bar *progressbar.ProgressBar }

// newProgress returns a bar on w, which shows nothing unless w is a terminal.
func newProgress(w io.Writer, title string, totalBytes int64) *progress {
	if !isTerminal(w) {
		return &progress{}
	}
	return &progress{progressbar.NewOptions64(totalBytes,
		progressbar.OptionSetWriter(w),
		progressbar.OptionSetDescription("optimem: "+title),
		progressbar.OptionShowBytes(true),
		progressbar.OptionUseIECUnits(true),
		progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionSetWidth(30),
		progressbar.OptionClearOnFinish(),
	)}
}

// newCounter returns a bar over a number of things that are no bytes.
func newCounter(w io.Writer, title string, total int64) *progress {
	if !isTerminal(w) {
		return &progress{}
	}
	return &progress{progressbar.NewOptions64(total,
		progressbar.OptionSetWriter(w),
		progressbar.OptionSetDescription("optimem: "+title),
		progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionSetWidth(30),
		progressbar.OptionClearOnFinish(),
	)}
}

func (p *progress) add(nBytes int) {
	if p.bar != nil {
		_ = p.bar.Add(nBytes) // a terminal that went away is no reason to stop
	}
}

// clear removes the bar from the terminal.
func (p *progress) clear() {
	if p.bar != nil {
		_ = p.bar.Clear()
	}
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
