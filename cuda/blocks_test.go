package cuda

import "testing"

// TestDivide: large products have large blocks, small ones small blocks, and few results of many terms have parts that
// cover the terms once.
func TestDivide(t *testing.T) {
	for _, c := range []struct {
		count, m, n, k int64
		suffix         string
		parts          bool
	}{
		{1, 4096, 4096, 4096, "_128", false},
		{1, 2048, 2304, 768, "_128", false},
		{1, 128, 768, 768, "_64", true},
		{1, 1, 50257, 768, "_16", false},
		{1, 1, 768, 3072, "_16", true},
		{1, 16, 1000, 2048, "_16", true},
		{96, 128, 128, 64, "_128", false},
		{1, 5, 9, 7, "_16", false},
		{1, 3, 3, 0, "_16", false},
	} {
		d := divide(floatBlocks, c.count, c.m, c.n, c.k)
		if d.suffix != c.suffix || (d.parts > 1) != c.parts {
			t.Errorf("%d × %d × %d × %d: blocks %s, %d parts of %d", c.count, c.m, c.n, c.k, d.suffix, d.parts, d.part)
		}
		if d.parts > 1 && (d.part*d.parts < c.k || d.part*(d.parts-1) >= c.k || d.part%partDepth != 0) {
			t.Errorf("%d parts of %d terms of %d", d.parts, d.part, c.k)
		}
		if d.blocks != c.count*ceilDiv(c.m, d.rows)*ceilDiv(c.n, d.columns)*d.parts {
			t.Errorf("%d blocks", d.blocks)
		}
		if most := 2 * (c.m + c.n) * c.k; d.partsBytes(c.m*c.n) > most {
			t.Errorf("%d bytes for parts", d.partsBytes(c.m*c.n))
		}
	}
}
