package sysmem

import (
	"strconv"
	"strings"
)

// maxNodes bounds the nodes of a list.
const maxNodes = 1024

// nodesBelow reads which NUMA nodes have memory, below another folder than the root.
func nodesBelow(root string) []int {
	h := host{root}
	text := h.read("sys/devices/system/node/has_memory")
	if len(text) == 0 {
		text = h.read("sys/devices/system/node/online")
	}
	return parseList(strings.TrimSpace(string(text)))
}

// parseList reads a list as the kernel writes it: "0-2,5". What is not one gives nil.
func parseList(text string) []int {
	var list []int
	for part := range strings.SplitSeq(text, ",") {
		low, high, several := strings.Cut(part, "-")
		if !several {
			high = low
		}
		first, err := strconv.Atoi(low)
		last, err2 := strconv.Atoi(high)
		if err != nil || err2 != nil || first < 0 || last < first || last >= maxNodes {
			return nil
		}
		for n := first; n <= last && len(list) < maxNodes; n++ {
			list = append(list, n)
		}
	}
	return list
}

// nodeBelow reads at which node a device on the PCI bus is.
func nodeBelow(root, address string) (int, bool) {
	if address == "" || strings.ContainsAny(address, "/\x00") {
		return 0, false
	}
	n, ok := host{root}.number("sys/bus/pci/devices/" + address + "/numa_node")
	return int(n), ok && n >= 0 && n < maxNodes // -1 is that nobody knows
}
