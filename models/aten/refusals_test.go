package aten

import (
	"strings"
	"testing"

	"github.com/optimem/optimem/models/aten/cells"
)

// TestRefusals: no op is refused for a reason and has a meaning at the same time, but those that are random in training
// only.
func TestRefusals(t *testing.T) {
	for target := range targets {
		if why := (cells.Missing{Name: target}).Why(); why != "" && !strings.HasPrefix(why, "it is random") {
			t.Errorf("%s has a meaning and is refused: %s", target, why)
		}
	}
}
