package cells

import (
	"strings"
	"testing"
)

// TestReasons: an op that is refused for a reason says so.
func TestReasons(t *testing.T) {
	err := &UnsupportedError{Missing: []Missing{
		{Name: "torch.ops.aten._unique.default", Uses: 2}, {Name: "torch.ops.aten.linalg_svd.default", Uses: 1},
		{Name: "torch.ops.aten.to_sparse.default", Uses: 1}, {Name: "torch.ops.aten.randn.default", Uses: 1},
		{Name: "torch.ops.my.op.default", Uses: 1},
	}}
	lines := strings.Split(err.Error(), "\n")
	for i, want := range []string{SizeOfData, factorisation, SizeOfData, random, "my.op.default"} {
		if !strings.HasSuffix(lines[i], want) {
			t.Errorf("%q does not end in %q", lines[i], want)
		}
	}
}
