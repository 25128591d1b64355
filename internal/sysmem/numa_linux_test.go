package sysmem

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestTopology: a device is near a node where there are several and the host says at which it is.
func TestTopology(t *testing.T) {
	const address = "0000:65:00.0"
	const at = "sys/bus/pci/devices/" + address + "/numa_node"
	for name, c := range map[string]struct {
		files map[string]string
		nodes []int
		node  int
		ok    bool
	}{
		"nothing":      {},
		"one":          {map[string]string{"sys/devices/system/node/has_memory": "0\n", at: "0\n"}, []int{0}, 0, false},
		"two":          {map[string]string{"sys/devices/system/node/has_memory": "0-1\n", at: "1\n"}, []int{0, 1}, 1, true},
		"apart":        {map[string]string{"sys/devices/system/node/has_memory": "0,2-3,8\n", at: "8\n"}, []int{0, 2, 3, 8}, 8, true},
		"older":        {map[string]string{"sys/devices/system/node/online": "0-1\n", at: "0\n"}, []int{0, 1}, 0, true},
		"unknown":      {map[string]string{"sys/devices/system/node/online": "0-1\n", at: "-1\n"}, []int{0, 1}, 0, false},
		"no device":    {map[string]string{"sys/devices/system/node/online": "0-1\n"}, []int{0, 1}, 0, false},
		"no such node": {map[string]string{"sys/devices/system/node/online": "0-1\n", at: "5\n"}, []int{0, 1}, 0, false},
		"no list":      {map[string]string{"sys/devices/system/node/online": "zero\n", at: "0\n"}, nil, 0, false},
		"too many":     {map[string]string{"sys/devices/system/node/online": "0-99999999\n", at: "0\n"}, nil, 0, false},
		"backwards":    {map[string]string{"sys/devices/system/node/online": "3-1\n", at: "0\n"}, nil, 0, false},
	} {
		topology := TopologyBelow(fake(t, c.files))
		node, ok := topology.Near(address)
		if !slices.Equal(topology.Nodes, c.nodes) || node != c.node || ok != c.ok {
			t.Errorf("%s: nodes %v, near %d, %v", name, topology.Nodes, node, ok)
		}
		for _, wrong := range []string{"", "../../" + address, "0000:66:00.0"} {
			if _, ok := topology.Near(wrong); ok {
				t.Errorf("%s: a device at %q is near a node", name, wrong)
			}
		}
	}
	ReadTopology() // whatever it is here
}

// TestBus: what a device can be sent is what its link carries, or the slower one of the bridge before it.
func TestBus(t *testing.T) {
	const address = "0000:65:00.0"
	for name, c := range map[string]struct {
		speed, width, before, lanes string
		want                        float64
	}{
		"fifth generation": {"32.0 GT/s PCIe", "16", "", "", 63.015e9},
		"a slower bridge":  {"32.0 GT/s PCIe", "16", "16.0 GT/s PCIe", "8", 15.754e9},
		"a faster bridge":  {"8.0 GT/s PCIe", "4", "16.0 GT/s PCIe", "16", 3.938e9},
		"old":              {"5.0 GT/s", "16", "", "", 8e9},
		"unknown":          {"Unknown", "16", "", "", 0},
		"no width":         {"8.0 GT/s PCIe", "", "", "", 0},
		"too wide":         {"8.0 GT/s PCIe", "255", "", "", 0},
		"endless":          {"+Inf GT/s", "16", "", "", 0},
		"not one":          {"NaN GT/s", "16", "", "", 0},
	} {
		const bridge = "sys/devices/pci0000:64/0000:64:02.0"
		root := fake(t, map[string]string{
			bridge + "/max_link_speed": c.before, bridge + "/max_link_width": c.lanes,
			bridge + "/" + address + "/max_link_speed": c.speed + "\n", bridge + "/" + address + "/max_link_width": c.width + "\n",
		})
		list := filepath.Join(root, "sys/bus/pci/devices")
		if err := os.MkdirAll(list, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.Join(root, bridge, address), filepath.Join(list, address)); err != nil {
			t.Fatal(err)
		}
		if got := TopologyBelow(root).Bus(address); math.Abs(got-c.want) > 1e6 {
			t.Errorf("%s: %g bytes a second, want %g", name, got, c.want)
		}
		for _, wrong := range []string{"", "../../" + address, "0000:66:00.0"} {
			if got := TopologyBelow(root).Bus(wrong); got != 0 {
				t.Errorf("%s: a device at %q can be sent %g bytes a second", name, wrong, got)
			}
		}
	}
}
