//go:build linux && (amd64 || arm64) && !nocuda

package cuda_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/optimem/optimem/cuda"
	"github.com/optimem/optimem/internal/sysmem"
)

// TestHostMemoryNearTheGPU: page-locked memory is of the NUMA node that the GPU is at, where the host has several nodes
// and says so, and of none in particular elsewhere.
func TestHostMemoryNearTheGPU(t *testing.T) {
	for name, c := range map[string]struct {
		nodes, at string
		want      int
	}{
		"two nodes": {"0-1", "1", 1}, "the first": {"0-1", "0", 0}, "one": {"0", "0", -1}, "not known": {"0-1", "-1", -1},
	} {
		root := t.TempDir()
		for file, text := range map[string]string{
			"sys/devices/system/node/has_memory": c.nodes, "sys/bus/pci/devices/0000:00:00.0/numa_node": c.at,
		} {
			path := filepath.Join(root, file)
			if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text+"\n"), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		var took []int
		t.Run(name, func(t *testing.T) {
			t.Cleanup(cuda.OnHost(sysmem.TopologyBelow(root), func(node int) { took = append(took, node) }))
			dev, _ := openSimulated(t, "memory=64M")
			if got := dev.Info(); got.Node != c.want || got.Address != "0000:00:00.0" {
				t.Errorf("%s: at node %d by address %s", name, got.Node, got.Address)
			}
			mem, err := dev.AllocHost(1 << 16)
			if err != nil {
				t.Fatal(err)
			}
			clear(mem.Bytes())
			mem.Free()
		})
		if len(took) != 1 || took[0] != c.want {
			t.Errorf("%s: memory was taken of nodes %v, want %d", name, took, c.want)
		}
	}
}
