package sysmem

import (
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
