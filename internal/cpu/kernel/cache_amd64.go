//go:build amd64 && !noasm

package kernel

//go:noescape
func cpuid(leaf, index uint32) (a, b, c, d uint32)

// secondCache asks Intel's leaf, and AMD's of the same form, which Intel's processors do not have.
func secondCache() int {
	const intel, amd, extended = 4, 0x8000001d, 0x80000000
	for _, ask := range []struct{ leaf, base uint32 }{{amd, extended}, {intel, 0}} {
		if highest, _, _, _ := cpuid(ask.base, 0); highest < ask.leaf {
			continue
		}
		n := secondOf(func(index uint32) cacheLeaf {
			a, b, c, _ := cpuid(ask.leaf, index)
			return cacheLeaf{a, b, c}
		})
		if n > 0 {
			return n
		}
	}
	return 0
}
