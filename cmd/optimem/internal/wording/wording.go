// Package wording writes times, numbers of things and what bytes are for, the way all answers of optimem do.
//
// It does not know what was measured or counted, nor where the text is to stand.
//
//	fmt.Printf("%s in %s", wording.Counted(3, "run"), wording.Seconds(0.25)) // 3 runs in 250 ms
package wording

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/optimem/optimem/internal/ascii"
)

// Seconds writes a time for people, to four digits, in the unit that suits.
func Seconds(s float64) string {
	d := time.Duration(s * float64(time.Second))
	switch {
	case d < time.Millisecond:
		return fmt.Sprintf("%.4g µs", float64(d)/1e3)
	case d < time.Second:
		return fmt.Sprintf("%.4g ms", float64(d)/1e6)
	case d < 1000*time.Second:
		return fmt.Sprintf("%.4g s", d.Seconds())
	}
	return fmt.Sprintf("%.0f s", d.Seconds())
}

// Counted writes a number of things, which are one or have an s behind them.
//
//go:noinline
func Counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// A Purpose is what some bytes are for.
type Purpose struct {
	bytes int64
	what  string
}

// For returns the purpose of some bytes, of which there may be none.
func For(bytes int64, what string) Purpose { return Purpose{bytes, what} }

// Purposes lists those that take any bytes.
func Purposes(list ...Purpose) string {
	var parts []string
	for _, p := range list {
		if p.bytes > 0 {
			parts = append(parts, ascii.FormatSize(p.bytes)+" "+p.what)
		}
	}
	return cmp.Or(strings.Join(parts, ", "), "none")
}
