package sysmem

import (
	"path/filepath"
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

// busBelow reads how fast the link of a device on the PCI bus can be. A bridge before it that says nothing does not count.
func busBelow(root, address string) float64 {
	if address == "" || strings.ContainsAny(address, "/\x00") {
		return 0
	}
	folder := filepath.Join(root, "sys/bus/pci/devices", address)
	own := host{folder}.link()
	if real, err := filepath.EvalSymlinks(folder); err == nil {
		if bridge := (host{filepath.Dir(real)}).link(); bridge > 0 && bridge < own {
			return bridge
		}
	}
	return own
}

// link reads what the link of a device carries whose folder is the root: "32.0 GT/s PCIe" on each of so many lanes, of which of ten bits
// eight count, or from 8 GT/s on 128 of 130.
func (h host) link() float64 {
	text, _, _ := strings.Cut(strings.TrimSpace(string(h.read("max_link_speed"))), " ")
	speed, err := strconv.ParseFloat(text, 64)
	lanes, ok := h.number("max_link_width")
	if err != nil || !ok || !(speed > 0 && speed < 1000) || lanes < 1 || lanes > 32 {
		return 0
	}
	carried := 0.8
	if speed >= 8 {
		carried = 128.0 / 130
	}
	return speed * 1e9 * float64(lanes) * carried / 8
}
