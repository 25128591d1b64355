package graph

import "slices"

// An AxisRule is an op's batch-axis rule. For each operand and each of its dimensions it returns the dimension of every
// result along which index i of the result is made from index i of the operand and from no other, in the same way for
// all i; −1 where the op mixes along the dimension, or treats its indices differently. The two dimensions have the
// same size, except for cat, whose operands follow one another. An absent operand has no dimensions. Two operands with
// dimensions that become one are taken together index by index; an operand without such a dimension is taken whole.
//
//	linear, [2 7 64] by a weight [10 64] and a bias [10]: {{0, 1, −1}, {2, −1}, {2}}
type AxisRule func(in, out []Spec, a Attrs) [][]int

// axesOf returns a rule's result in which nothing is kept yet.
func axesOf(in []Spec) [][]int {
	axes := make([][]int, len(in))
	for k, s := range in {
		axes[k] = slices.Repeat([]int{-1}, len(s.Shape))
	}
	return axes
}

// keep says that dimensions from … to−1 of an operand keep their places, moved by shift.
func keep(axes []int, from, to, shift int) {
	for d := max(from, 0); d < min(to, len(axes)); d++ {
		axes[d] = d + shift
	}
}

// mixes is the rule of ops that mix along every dimension.
func mixes(in, _ []Spec, _ Attrs) [][]int { return axesOf(in) }

// samePlace is the rule of ops whose operands and results have one shape and that compute each element by itself. It is
// cat's too.
func samePlace(in, _ []Spec, _ Attrs) [][]int {
	axes := axesOf(in)
	for _, d := range axes {
		keep(d, 0, len(d), 0)
	}
	return axes
}

// leading returns the rule of ops that keep the first n dimensions of the operands listed, and mix all else.
// Tables call it, and without its copies they compile faster.
//
//go:noinline
func leading(n int, operands ...int) AxisRule {
	return func(in, _ []Spec, _ Attrs) [][]int {
		axes := axesOf(in)
		for _, k := range operands {
			if k < len(in) {
				keep(axes[k], 0, n, 0)
			}
		}
		return axes
	}
}

// stacks is the rule of ops over stacks of matrices: all dimensions but the last two are kept.
func stacks(in, _ []Spec, _ Attrs) [][]int {
	axes := axesOf(in)
	for _, d := range axes {
		keep(d, 0, len(d)-2, 0)
	}
	return axes
}

// otherDims is the rule of ops along dimension "dim", for all operands.
func otherDims(in, _ []Spec, a Attrs) [][]int { return allBut(in, []int{a.Int("dim")}) }

// allBut keeps all dimensions but some.
func allBut(in []Spec, some []int) [][]int {
	axes := samePlace(in, nil, nil)
	for _, operand := range axes {
		for _, d := range some {
			if d >= 0 && d < len(operand) {
				operand[d] = -1
			}
		}
	}
	return axes
}

// reducedAxes is the rule of reductions over dimensions "dims".
func reducedAxes(in, _ []Spec, a Attrs) [][]int {
	return remaining(in, a.Ints("dims"), a.Bool("keepdim"))
}

// chosenAxes is the rule of ops that reduce dimension "dim".
func chosenAxes(in, _ []Spec, a Attrs) [][]int {
	return remaining(in, []int{a.Int("dim")}, a.Bool("keepdim"))
}

// remaining numbers the dimensions that are left without dims.
func remaining(in []Spec, dims []int, keepdim bool) [][]int {
	axes := axesOf(in)
	at := 0
	for d := range axes[0] {
		if gone := slices.Contains(dims, d); !gone {
			axes[0][d] = at
		} else if !keepdim {
			continue
		}
		at++
	}
	return axes
}

// flipAxes: the dimensions that are not turned around.
func flipAxes(in, _ []Spec, a Attrs) [][]int { return allBut(in, a.Ints("dims")) }

// rollAxes: the dimensions that stay where they are.
func rollAxes(in, _ []Spec, a Attrs) [][]int {
	var moved []int
	shifts := a.Ints("shifts")
	for i, d := range a.Ints("dims") {
		if n := in[0].Shape[d]; n > 0 && shifts[i]%n != 0 {
			moved = append(moved, d)
		}
	}
	return allBut(in, moved)
}

// padAxes: the dimensions that are not padded.
func padAxes(in, _ []Spec, a Attrs) [][]int {
	axes := axesOf(in)
	before, after := a.Ints("before"), a.Ints("after")
	for d := range axes[0] {
		if before[d] == 0 && after[d] == 0 {
			axes[0][d] = d
		}
	}
	return axes
}

// linearAxes: rows of the input, and results by row of the weight.
func linearAxes(in, out []Spec, _ Attrs) [][]int {
	axes := axesOf(in)
	last := len(out[0].Shape) - 1
	keep(axes[0], 0, last, 0)
	for k, d := range axes[1:] {
		if 1+k == LinearResidual {
			keep(d, 0, len(d), 0)
			continue
		}
		keep(d, 0, 1, last)
	}
	return axes
}

// matmulAxes: matrices, rows of the first, columns of the second.
func matmulAxes(in, out []Spec, a Attrs) [][]int {
	axes := stacks(in, out, a)
	n := len(out[0].Shape)
	axes[0][n-2] = n - 2
	axes[1][n-1] = n - 1
	if given(in, 2) {
		keep(axes[2], 0, n, 0)
	}
	return axes
}

// groupedMatmulAxes: columns of the matrices. Which matrix a row meets depends on where it stands.
func groupedMatmulAxes(in, _ []Spec, _ Attrs) [][]int {
	axes := axesOf(in)
	axes[1][2] = 1
	return axes
}

// cdistAxes: stacks, and the rows of both.
func cdistAxes(in, out []Spec, a Attrs) [][]int {
	axes := stacks(in, out, a)
	n := len(out[0].Shape)
	axes[0][n-2], axes[1][n-2] = n-2, n-1
	return axes
}

// attentionAxes: stacks; queries where none depends on its position.
func attentionAxes(in, out []Spec, a Attrs) [][]int {
	axes := stacks(in, out, a)
	if n := len(in[0].Shape); !a.Bool("is_causal") {
		axes[0][n-2] = n - 2
		if given(in, 3) {
			axes[3][n-2] = n - 2
		}
	}
	return axes
}

// convAxes: images. Channels are kept where each has a kernel of its own, and output channels where all inputs reach
// them.
func convAxes(in, out []Spec, a Attrs) [][]int {
	axes := axesOf(in)
	axes[0][0] = 0
	if given(in, ConvResidual) {
		axes[ConvResidual][0] = 0
	}
	channels, results, groups := in[0].Shape[1], out[0].Shape[1], a.Int("groups")
	switch {
	case groups == channels && groups == results:
		axes[0][1], axes[1][0] = 1, 1
	case groups == 1 && !a.Bool("transposed"):
		axes[1][0] = 1
	case groups == 1:
		axes[1][1] = 1
	default:
		return axes
	}
	for k, d := range axes[2:] {
		if 2+k == ConvResidual {
			keep(d, 1, 2, 0)
			continue
		}
		keep(d, 0, 1, 1)
	}
	return axes
}

// gridSampleAxes: images, channels of the input, points of the grid.
func gridSampleAxes(in, _ []Spec, _ Attrs) [][]int {
	axes := axesOf(in)
	keep(axes[0], 0, 2, 0)
	axes[1][0] = 0
	keep(axes[1], 1, len(axes[1])-1, 1)
	return axes
}

// layerNormAxes: all but the last "dims" dimensions.
func layerNormAxes(in, _ []Spec, a Attrs) [][]int {
	axes := axesOf(in)
	keep(axes[0], 0, len(axes[0])-a.Int("dims"), 0)
	return axes
}

// batchNormAxes: every element by itself, with the parameters of its channel.
func batchNormAxes(in, _ []Spec, _ Attrs) [][]int {
	axes := axesOf(in)
	keep(axes[0], 0, len(axes[0]), 0)
	for _, d := range axes[1:] {
		keep(d, 0, 1, 1)
	}
	return axes
}

// recurrentAxes: sequences side by side. In a packed one the place of a row says which sequence it belongs to.
func recurrentAxes(in, _ []Spec, _ Attrs) [][]int {
	axes := axesOf(in)
	if !given(in, 1) {
		for _, k := range []int{0, 2, 3} {
			keep(axes[k], 1, 2, 0)
		}
	}
	return axes
}

// embeddingAxes: indices, and columns of the table.
func embeddingAxes(in, _ []Spec, _ Attrs) [][]int {
	axes := axesOf(in)
	n := len(axes[1])
	keep(axes[0], 1, len(axes[0]), n-1)
	keep(axes[1], 0, n, 0)
	return axes
}

// embeddingRowsAxes: as embedding, and all of what the rows are put into.
func embeddingRowsAxes(in, out []Spec, a Attrs) [][]int {
	axes := embeddingAxes(in, out, a)
	if given(in, 2) {
		keep(axes[2], 0, len(axes[2]), 0)
	}
	return axes
}

// embeddingBagAxes: columns of the table. Where a bag begins is a number among all indices.
func embeddingBagAxes(in, _ []Spec, _ Attrs) [][]int {
	axes := axesOf(in)
	axes[0][1] = 1
	return axes
}

// indexAxes: the indices, and the dimensions that are not indexed.
func indexAxes(in, _ []Spec, a Attrs) [][]int {
	axes := axesOf(in)
	unindexed(axes[0], a.Int("dim"), len(in)-1, len(axes[1]))
	for _, d := range axes[1:] {
		keep(d, 0, len(d), a.Int("dim"))
	}
	return axes
}

// indexPutAxes: the dimensions that are not indexed. Of the others any index may be written.
func indexPutAxes(in, _ []Spec, a Attrs) [][]int {
	axes := axesOf(in)
	first, indices, rank := a.Int("dim"), len(in)-2, len(axes[2])
	keep(axes[0], 0, first, 0)
	keep(axes[0], first+indices, len(axes[0]), 0)
	keep(axes[1], 0, first, 0)
	keep(axes[1], first+rank, len(axes[1]), indices-rank)
	return axes
}

// unindexed keeps the dimensions of a tensor around those that index tensors of a rank replace.
func unindexed(axes []int, first, indices, rank int) {
	keep(axes, 0, first, 0)
	keep(axes, first+indices, len(axes), rank-indices)
}

// scatterAxes: the dimensions beside "dim" where the index is as large as the input.
func scatterAxes(in, _ []Spec, a Attrs) [][]int {
	axes := axesOf(in)
	for d := range axes[0] {
		if d == a.Int("dim") || in[0].Shape[d] != in[1].Shape[d] {
			continue
		}
		for k := range axes {
			axes[k][d] = d
		}
	}
	return axes
}

// gatherAxes: as scatter, and the index along "dim".
func gatherAxes(in, out []Spec, a Attrs) [][]int {
	axes := scatterAxes(in, out, a)
	keep(axes[1], a.Int("dim"), a.Int("dim")+1, 0)
	return axes
}

// searchAxes: the elements to find, and the rows that both have.
func searchAxes(in, _ []Spec, _ Attrs) [][]int {
	axes := axesOf(in)
	keep(axes[1], 0, len(axes[1]), 0)
	for k := range axes {
		if k != 1 {
			keep(axes[k], 0, len(axes[k])-1, 0)
		}
	}
	return axes
}
