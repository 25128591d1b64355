package command

import (
	"io"
	"os"
	"time"
	"unicode/utf8"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// A Progress draws how far a long command has come.
type Progress struct{ bar *progressbar.ProgressBar }

// NewProgress returns a bar on w, which shows nothing unless w is a terminal.
func NewProgress(w io.Writer, title string, totalBytes int64) *Progress {
	return newBar(w, title, totalBytes, progressbar.OptionShowBytes(true), progressbar.OptionUseIECUnits(true))
}

// NewCounter returns a bar over a number of things that are no bytes.
func NewCounter(w io.Writer, title string, total int64) *Progress { return newBar(w, title, total) }

func newBar(w io.Writer, title string, total int64, more ...progressbar.Option) *Progress {
	if !IsTerminal(w) {
		return &Progress{}
	}
	columns, _, err := term.GetSize(int(w.(*os.File).Fd()))
	if err != nil {
		columns = 0
	}
	title = "optimem: " + title
	return &Progress{progressbar.NewOptions64(total, append(more,
		progressbar.OptionSetWriter(w),
		progressbar.OptionSetDescription(title),
		progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionSetWidth(barWidth(columns, title)),
		progressbar.OptionClearOnFinish(),
	)...)}
}

// barColumns is how wide a bar is where there is room.
const barColumns = 30

// barWidth returns how many of a terminal's columns the bar takes, so that title, bar and numbers stay in a line: what
// goes on in a second is drawn below the last each time. Zero columns are an unknown number. Later versions of the
// package see to this themselves, but from 3.18 on they hold an HTTP server: 4.5 MB of the program, and ten seconds of
// its build.
func barWidth(columns int, title string) int {
	if columns <= 0 {
		return barColumns
	}
	const numbers = len(" 100% || (1023.9/1023.9 GiB, 1023.9 MiB/s) [59m59s:59m59s]")
	return min(barColumns, max(0, columns-1-utf8.RuneCountInString(title)-numbers))
}

// Add moves the bar on.
func (p *Progress) Add(nBytes int) {
	if p.bar != nil {
		_ = p.bar.Add(nBytes) // a terminal that went away is no reason to stop
	}
}

// Clear removes the bar from the terminal.
func (p *Progress) Clear() {
	if p.bar != nil {
		_ = p.bar.Clear()
	}
}

// IsTerminal reports whether somebody looks at what is written to w.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// A CountingWriter reports how much has been written.
type CountingWriter struct {
	W    io.Writer
	Tick func(n int)
}

// Write implements [io.Writer].
func (c CountingWriter) Write(p []byte) (int, error) {
	n, err := c.W.Write(p)
	c.Tick(n)
	return n, err
}
