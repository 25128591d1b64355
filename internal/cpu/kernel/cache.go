package kernel

import "sync"

// SecondCache returns the bytes of a core's second cache, as the processor tells it, and 1 MiB where it does not. What it
// tells inside a virtual machine may be anything, and is held to what such caches are.
var SecondCache = sync.OnceValue(func() int {
	const least, usual, most = 256 << 10, 1 << 20, 4 << 20
	n := secondCache()
	if n <= 0 {
		return usual
	}
	return min(max(n, least), most)
})

// A cacheLeaf is what the processor says of one of its caches, in the registers EAX, EBX and ECX of CPUID.
type cacheLeaf struct{ a, b, c uint32 }

// secondOf returns the bytes of the second cache among those that leaf lists, 0 where there is none.
func secondOf(leaf func(index uint32) cacheLeaf) int {
	const instructions, mostCaches = 2, 16
	for i := range uint32(mostCaches) {
		l := leaf(i)
		kind, level := l.a&31, l.a>>5&7
		if kind == 0 {
			return 0
		}
		if level == 2 && kind != instructions {
			ways, partitions, line, sets := l.b>>22+1, l.b>>12&0x3ff+1, l.b&0xfff+1, l.c+1
			return int(ways) * int(partitions) * int(line) * int(sets)
		}
	}
	return 0
}
