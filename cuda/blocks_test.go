package cuda

import (
	"testing"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// TestDivide: large products have large blocks, small ones small blocks, and few results of many terms have parts that
// cover the terms once.
func TestDivide(t *testing.T) {
	for _, c := range []struct {
		list           []blocking
		count, m, n, k int64
		suffix         string
		parts          bool
	}{
		{floatBlocks, 1, 4096, 4096, 4096, "_128", false},
		{floatBlocks, 1, 2048, 2304, 768, "_128", false},
		{floatBlocks, 1, 128, 768, 768, "_64", true},
		{floatBlocks, 1, 1, 50257, 768, "_16", false},
		{floatBlocks, 1, 1, 768, 3072, "_16", true},
		{floatBlocks, 1, 16, 1000, 2048, "_16", true},
		{floatBlocks, 96, 128, 128, 64, "_128", false},
		{floatBlocks, 1, 5, 9, 7, "_16", false},
		{floatBlocks, 1, 3, 3, 0, "_16", false},
		{tensorBlocks, 1, 4096, 4096, 4096, "_128", false},
		{tensorBlocks, 1, 128, 768, 768, "_64", true},
		{tensorBlocks, 1, 16, 4096, 4096, "_32", true},
		{tensorBlocks, 96, 128, 128, 64, "_128", false},
	} {
		d := divide(c.list, c.count, c.m, c.n, c.k)
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

// TestDivideAlone: where rows are to be alone, terms are cut into the same parts for any number of rows and whatever blocks there
// are, and large products of few rows are cut.
func TestDivideAlone(t *testing.T) {
	alone, most := graph.Attrs{graph.RowsAlone: true}, int64(0)
	for _, list := range [][]blocking{floatBlocks, tensorBlocks, weightBlocks} {
		for _, n := range []int64{1, 70, 600, 4096, 14000, 150000} {
			for _, k := range []int64{1, 77, 520, 1300, 4096, 14336} {
				one := divideColumns(list, 1, 1, n, k, alone)
				most = max(most, one.parts)
				if one.part*one.parts < k || one.part*(one.parts-1) >= k {
					t.Errorf("%d parts of %d terms are not %d", one.parts, one.part, k)
				}
				for _, m := range []int64{2, 9, 16, 33, 64, 130, 300, 512} {
					d := divideColumns(list, 1, m, n, k, alone)
					if d.part != one.part || d.parts != one.parts {
						t.Errorf("%d × %d × %d: %d parts of %d terms, of one row %d of %d", m, k, n, d.parts, d.part, one.parts, one.part)
					}
					if want := ceilDiv(m, d.rows) * ceilDiv(n, d.columns) * d.parts; d.blocks != want {
						t.Errorf("%d × %d × %d: %d blocks, want %d", m, k, n, d.blocks, want)
					}
				}
			}
		}
	}
	if most != fewParts {
		t.Errorf("%d parts at most, want %d", most, fewParts)
	}
}

// TestRoundedBlocksAreFaster: blocks of 256 columns take the place of those of 128 where there is work for the whole GPU in them, and
// sum up in the same parts.
func TestRoundedBlocksAreFaster(t *testing.T) {
	for _, c := range []struct {
		count, m, n, k int64
		larger         bool
	}{
		{1, 4096, 4096, 4096, true}, {1, 2048, 2304, 768, true}, {1, 2048, 128, 4096, false}, {96, 128, 128, 64, false},
		{1, 1024, 1024, 1024, false}, {12, 512, 512, 64, true},
	} {
		d := divide(tensorBlocks, c.count, c.m, c.n, c.k)
		larger := d.with(roundedBlocks, c.count, c.m, c.n)
		if d.suffix == onlySixteens && larger.cost() < d.cost() != c.larger || d.suffix != onlySixteens && c.larger {
			t.Errorf("%d × %d × %d × %d: in blocks %s, cost %g, larger ones %g", c.count, c.m, c.n, c.k, d.suffix, d.cost(), larger.cost())
		}
		if larger.part != d.part || larger.parts != d.parts {
			t.Errorf("%d parts of %d terms, not %d of %d", larger.parts, larger.part, d.parts, d.part)
		}
	}
}

// TestNearby: factors are too far apart for an int from 32 GiB on.
func TestNearby(t *testing.T) {
	for step, want := range map[int]bool{1 << 20: true, 1<<33 - 2: true, 1<<33 - 1: false, 1 << 40: false} {
		o := operand{dtype: tensor.Float32, layout: tensor.Layout{Shape: tensor.Shape{2, 1}, Strides: []int{step, 1}}}
		if got := nearby(o); got != want {
			t.Errorf("lines %d apart: %v", step, got)
		}
	}
}

// TestInTapOrder: blocks of floats count in 32 bits how far it is from a term to the one that a thread copies next, which may be
// two channels away.
func TestInTapOrder(t *testing.T) {
	a := graph.Attrs{"dilation": []int{1, 1}}
	for plane, want := range map[int]bool{1 << 20: true, 1<<30 - 4096: true, 1 << 30: false, -1 << 30: false} {
		x := tensor.Layout{Shape: tensor.Shape{1, 3, 8, 8}, Strides: []int{0, plane, 8, 1}}
		if got := inTapOrder(x, tensor.Contiguous(4, 3, 3, 3), a); got != want {
			t.Errorf("channels %d apart: %v", plane, got)
		}
	}
}
