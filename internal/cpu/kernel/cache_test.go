package kernel

import "testing"

// TestSecondCache reads what processors are known to say of their caches.
func TestSecondCache(t *testing.T) {
	none := cacheLeaf{}
	for name, c := range map[string]struct {
		leaves []cacheLeaf
		want   int
	}{
		"Sapphire Rapids": {[]cacheLeaf{
			{0x7c004121, 0x02c0003f, 0x3f}, {0x7c004122, 0x01c0003f, 0x3f}, {0x7c004143, 0x03c0003f, 0x7ff}, none,
		}, 2 << 20},
		"Zen 4": {[]cacheLeaf{
			{0x00004121, 0x01c0003f, 0x3f}, {0x00004122, 0x01c0003f, 0x3f}, {0x00004143, 0x01c0003f, 0x7ff}, none,
		}, 1 << 20},
		"instructions alone at that level": {[]cacheLeaf{{0x121, 0x01c0003f, 0x3f}, {0x142, 0x01c0003f, 0x7ff}, none}, 0},
		"none":                             {[]cacheLeaf{none}, 0},
	} {
		got := secondOf(func(i uint32) cacheLeaf { return c.leaves[i] })
		if got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
	endless := secondOf(func(uint32) cacheLeaf { return cacheLeaf{a: 0x121} })
	if n := SecondCache(); endless != 0 || n < 256<<10 || n > 4<<20 {
		t.Errorf("a list without end: %d; this processor: %d", endless, n)
	}
}
