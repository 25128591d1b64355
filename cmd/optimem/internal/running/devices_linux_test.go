//go:build !files

package running

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/optimem/optimem/internal/sysmem"
)

// TestNodesAreTold: where the host has several NUMA nodes, devices says so, and where it has one, nothing.
func TestNodesAreTold(t *testing.T) {
	for list, want := range map[string][]int{"0-1": {0, 1}, "0": nil, "": nil} {
		root := t.TempDir()
		folder := filepath.Join(root, "sys/devices/system/node")
		if err := os.MkdirAll(folder, 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, "has_memory"), []byte(list+"\n"), 0o666); err != nil {
			t.Fatal(err)
		}
		row := deviceRows(sysmem.Read(), sysmem.TopologyBelow(root))[0]
		if !slices.Equal(row.Nodes, want) || strings.Contains(row.About, "2 NUMA nodes") != (want != nil) {
			t.Errorf("%q: %+v", list, row)
		}
	}
}
