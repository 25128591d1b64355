package cuda

import (
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/graph/rewrite"
)

// Products and convolutions are computed in blocks of results, which are large where that leaves work for the whole GPU
// and small where it does not. Where there are few results with many terms each, the terms are split into parts, which
// other blocks sum up. Both follow from the sizes alone and never from the GPU, so that results are the same on all.

// A blocking is a size of blocks that there is a kernel for.
type blocking struct {
	// suffix is what the kernel's name ends in.
	suffix        string
	rows, columns int64
	threads       int64
	// speed is how fast large blocks of it get along, as a part of what the largest do.
	speed float64
}

// floatBlocks are those of kernels/tile.h.
var floatBlocks = []blocking{
	{"_128", 128, 128, 256, 1},
	{"_64", 64, 64, 128, 0.8},
	{"_16", 16, 128, 128, 0.5},
}

// tensorBlocks are those of kernels/product.h.
var tensorBlocks = []blocking{
	{"_128", 128, 128, 128, 1},
	{"_64", 64, 64, 128, 0.6},
	{"_32", 32, 128, 128, 0.5},
}

// roundedBlocks take the place of the largest of tensorBlocks and of convBlocks where that is faster, and sum up in the same order: those
// of floats that are rounded on their way to shared memory.
var roundedBlocks = blocking{"_256", 128, 256, 256, 1.5}

// onlySixteens is the suffix of tensorBlocks that only take factors that lie in sixteens of bytes; anyhowBlocks and, where weights are
// widened, anyhowWeightBlocks take the others.
const onlySixteens = "_128"

var anyhowBlocks, anyhowWeightBlocks = tensorBlocks[1], tensorBlocks[2]

// weightBlocks are those of kernels/tensor_weights.cu.
var weightBlocks = []blocking{tensorBlocks[0], tensorBlocks[2]}

const (
	// processors is how many multiprocessors are to have work: those of an A100, about.
	processors = 108
	// leastPart is how many terms a part has at least, mostParts how many parts there are.
	leastPart, mostParts = 256, 16
	// fewParts is how many parts there are at most where rows are to be alone: many rows have room for the sums of as many.
	fewParts = 4
	// partDepth divides the number of terms of a part: the most terms that a kernel takes at a time.
	partDepth = 32
)

// A division is how a product is divided among blocks.
type division struct {
	blocking
	// blocks is how many there are, part how many terms each sums up, parts how many do for the same results.
	blocks, part, parts int64
}

// divide chooses among sizes of blocks for count products of m × k by k × n.
func divide(list []blocking, count, m, n, k int64) division {
	var best division
	var bestCost float64
	for _, b := range list {
		d := division{blocking: b, blocks: count * ceilDiv(m, b.rows) * ceilDiv(n, b.columns), part: k, parts: 1}
		if d.blocks < processors {
			// Sums of parts are written and read again; that is to be less than the factors are.
			d.cut(k, min(2*processors/d.blocks, k/leastPart, mostParts, (m+n)*k/(2*m*n)))
		}
		d.blocks *= d.parts
		if cost := d.cost(); best.blocks == 0 || cost < bestCost {
			best, bestCost = d, cost
		}
	}
	return best
}

// cut cuts k terms into so many parts at most.
func (d *division) cut(k, most int64) {
	if most > 1 {
		d.part = ceilDiv(ceilDiv(k, most), partDepth) * partDepth
		d.parts = ceilDiv(k, d.part)
	}
}

// cost is how long a GPU takes, in no unit.
func (d *division) cost() float64 {
	return float64(ceilDiv(d.blocks, processors)*d.rows*d.columns) / float64(d.parts) / d.speed
}

// divideAlone is divide where a row's bits are not to depend on how many there are: the terms are cut as if there were one row.
// Blocks of every size of a list sum up in the same order.
func divideAlone(list []blocking, count, m, n, k int64) division {
	var best division
	for _, b := range list {
		d := division{blocking: b, part: k, parts: 1}
		if blocks := ceilDiv(n, list[len(list)-1].columns); blocks < processors {
			d.cut(k, min(2*processors/blocks, k/leastPart, fewParts))
		}
		d.blocks = count * ceilDiv(m, b.rows) * ceilDiv(n, b.columns) * d.parts
		if best.blocks == 0 || d.cost() < best.cost() {
			best = d
		}
	}
	return best
}

// divideColumns divides n of the columns that a product has which is whole as divide does that: sums have the same order.
func divideColumns(list []blocking, count, m, n, k int64, a graph.Attrs) division {
	way := divide
	if a.Bool(graph.RowsAlone) {
		way = divideAlone
	}
	d := way(list, count, m, int64(rewrite.WholeColumns(a, int(n))), k)
	return d.with(d.blocking, count, m, n)
}

// with divides by other blocks, which sum up in the same order.
func (d division) with(b blocking, count, m, n int64) division {
	d.blocking = b
	d.blocks = count * ceilDiv(m, b.rows) * ceilDiv(n, b.columns) * d.parts
	return d
}

// partsBytes is the scratch memory for the sums of parts of as many results, float32.
func (d division) partsBytes(results int64) int64 {
	if d.parts < 2 {
		return 0
	}
	return d.parts * results * 4
}

// productSizes returns what a linear or a matmul is: count products of m × k by k × n.
func productSizes(kind graph.Kind, in []graph.Spec) (count, m, n, k int64) {
	x, y := in[0].Shape, in[1].Shape
	count, m = 1, 1
	if kind == "linear" {
		for _, s := range x[:len(x)-1] {
			m *= int64(s)
		}
		return count, m, int64(y[0]), int64(y[1])
	}
	d := len(x)
	for _, s := range x[:d-2] {
		count *= int64(s)
	}
	return count, int64(x[d-2]), int64(y[d-1]), int64(y[d-2])
}
