//go:build !files

package running

import (
	"strings"
	"testing"

	"github.com/optimem/optimem/runtime"
)

// TestOptionHint: a budget that nobody knows has a hint with the flag that gives one, and a command for many models has none
// about one of them.
func TestOptionHint(t *testing.T) {
	for _, c := range []struct{ model, option, want string }{
		{"", "Memory", "--memory 4GiB"}, {"m.pt2", "Memory", "--memory 4GiB"}, {"", "Passes", ""}, {"m.pt2", "Mode", "optimem inspect m.pt2"},
	} {
		r := &Run{Model: c.model}
		if got := r.optionHint(&runtime.OptionError{Option: c.option}); !strings.Contains(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%q, %s: %q", c.model, c.option, got)
		}
	}
}
