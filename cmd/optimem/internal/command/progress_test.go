package command

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/schollz/progressbar/v3"
)

// TestBarsFitTheTerminal draws bars as a terminal of each width would show them.
func TestBarsFitTheTerminal(t *testing.T) {
	title := "optimem: model.safetensors"
	for _, c := range []struct{ columns, want int }{{0, 30}, {200, 30}, {120, 30}, {100, 15}, {85, 0}, {20, 0}} {
		width := barWidth(c.columns, title)
		if width != c.want {
			t.Errorf("%d columns: a bar of %d, want %d", c.columns, width, c.want)
		}
		if c.columns < 85 {
			continue
		}
		var drawn bytes.Buffer
		bar := progressbar.NewOptions64(123<<30, progressbar.OptionSetWriter(&drawn), progressbar.OptionSetWidth(width),
			progressbar.OptionShowBytes(true), progressbar.OptionUseIECUnits(true),
			progressbar.OptionSetDescription(title))
		if err := bar.Add64(100 << 30); err != nil {
			t.Fatal(err)
		}
		for line := range strings.SplitSeq(drawn.String(), "\r") {
			if n := utf8.RuneCountInString(line); n >= c.columns {
				t.Errorf("%d columns: %d are drawn: %q", c.columns, n, line)
			}
		}
		if width > 0 && !strings.Contains(drawn.String(), "█") {
			t.Errorf("%d columns: no bar in %q", c.columns, drawn.String())
		}
	}
}
