package sysmem

// A Topology is which NUMA nodes the host has: memory of the node that a device is at is nearer to it than that of
// another.
type Topology struct {
	// Nodes are those that have memory, in order; nil where that is not known. With one of them there is nothing to
	// choose.
	Nodes []int
	root  string
}

// ReadTopology asks the host.
func ReadTopology() Topology { return TopologyBelow("/") }

// TopologyBelow reads /sys below another folder than the root.
func TopologyBelow(root string) Topology { return Topology{nodesBelow(root), root} }

// Near returns the node that a device on the PCI bus is at, by its address such as "0000:65:00.0". It is false where
// there are not several nodes, or where the host does not say.
func (t Topology) Near(address string) (node int, ok bool) {
	if len(t.Nodes) < 2 {
		return 0, false
	}
	node, ok = nodeBelow(t.root, address)
	for _, n := range t.Nodes {
		if ok && n == node {
			return node, true
		}
	}
	return 0, false
}

// Bus returns the bytes a second that a device on the PCI bus can be sent, by its address: what its link and that of the bridge before it
// carry, without what packets take; 0 where the host does not say.
func (t Topology) Bus(address string) float64 { return busBelow(t.root, address) }
