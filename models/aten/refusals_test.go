package aten

import (
	"strings"
	"testing"

	"github.com/optimem/optimem/models/aten/cells"
)

// TestRefusals: an op that is refused for a reason says so, and none of them has a meaning at the same time.
func TestRefusals(t *testing.T) {
	err := &cells.UnsupportedError{Missing: []cells.Missing{
		{Name: "torch.ops.aten._unique.default", Uses: 2}, {Name: "torch.ops.aten.linalg_svd.default", Uses: 1},
		{Name: "torch.ops.aten.to_sparse.default", Uses: 1}, {Name: "torch.ops.my.op.default", Uses: 1},
	}}
	lines := strings.Split(err.Error(), "\n")
	for i, want := range []string{cells.SizeOfData, cells.Factorisation, cells.SizeOfData, "my.op.default"} {
		if !strings.HasSuffix(lines[i], want) {
			t.Errorf("%q does not end in %q", lines[i], want)
		}
	}
	for target := range targets {
		if why := (cells.Missing{Name: target}).Why(); why != "" && why != cells.Random {
			t.Errorf("%s has a meaning and is refused: %s", target, why)
		}
	}
}
