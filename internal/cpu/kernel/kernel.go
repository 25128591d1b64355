// Package kernel computes the inner loops of the CPU device in assembly, for processors that have AVX-512, AVX2 with
// FMA, or NEON: tiles of products of matrices and of convolutions, dot products, functions of rows, transpositions. The
// assembly is written by _generate.
//
// It knows floats in memory and processors. It does not know ops, shapes or threads. [Best] returns nil, and callers
// compute in Go, if there is no assembly for the processor or the build has the tag noasm.
package kernel

//go:generate sh -c "cd _generate && go run . -family gemm -out ../gemm_amd64.s -stubs ../gen_gemm_amd64.go -pkg kernel"
//go:generate sh -c "cd _generate && go run . -family half -out ../half_amd64.s -stubs ../gen_half_amd64.go -pkg kernel"
//go:generate sh -c "cd _generate && go run . -family bytes -out ../bytes_amd64.s -stubs ../gen_bytes_amd64.go -pkg kernel"
//go:generate sh -c "cd _generate && go run . -family encoded -out ../encoded_amd64.s -stubs ../gen_encoded_amd64.go -pkg kernel"
//go:generate sh -c "cd _generate && go run . -family encoded_few -out ../encoded_few_amd64.s -stubs ../gen_encoded_few_amd64.go -pkg kernel"
//go:generate sh -c "cd _generate && go run . -family encoded_lines -out ../encoded_lines_amd64.s -stubs ../gen_encoded_lines_amd64.go -pkg kernel"
//go:generate sh -c "cd _generate && go run . -family encoded_twice -out ../encoded_twice_amd64.s -stubs ../gen_encoded_twice_amd64.go -pkg kernel"
//go:generate sh -c "cd _generate && go run . -family combine -out ../combine_amd64.s -stubs ../gen_combine_amd64.go -pkg kernel"

// A Set is the kernels of an instruction set.
type Set struct {
	// Name is what reports say: "avx512", "avx2" or "neon".
	Name string
	// Rows and Columns are the size of the largest tile that Gemm computes.
	Rows, Columns int
	// Lanes is the number of floats in a register; depths of Dot are multiples of it.
	Lanes int

	products
	encoded encodedSet
	codes   codesFuncs
	word    wordSet
	// dot4 and dot1 compute sums for four columns and for one.
	dot4, dot1 []dotFunc
	// turnPairs, dotLines and weightedLines are nil where there are none.
	turnPairs     func(n int, x, cos, sin, to *float32, half int)
	dotLines      func(columns, depth int, a *float32, lda int, b *float32, ldb int, to *float32, at [DotRows]int)
	weightedLines func(n int, w *float32, at [DotRows]int, rows *float32, ldr int, sums *float32, lds int)
	vectors
}

type dotFunc = func(depth int, a *float32, lda int, b *float32, ldb int, sums *float32)

// DotRows is the most rows that Dot takes.
const DotRows = 4

// Dot computes sums[r·columns+j] = Σ_k a[r][k]·b[j][k] for at most DotRows rows and for 4 columns or 1. The elements of
// rows and columns lie one behind the other, rows lda floats apart, columns ldb. depth is a multiple of Lanes and not 0.
// Each sum is the same whatever else is computed beside it.
func (s *Set) Dot(rows, columns, depth int, a []float32, lda int, b []float32, ldb int, sums []float32) {
	_, _, _ = a[(rows-1)*lda+depth-1], b[(columns-1)*ldb+depth-1], sums[rows*columns-1]
	if columns == 4 {
		s.dot4[rows-1](depth, &a[0], 4*lda, &b[0], 4*ldb, &sums[0])
		return
	}
	s.dot1[rows-1](depth, &a[0], 4*lda, &b[0], 4*ldb, &sums[0])
}

// Lines are rows of floats, Step floats apart.
type Lines struct {
	X    []float32
	Step int
}

// DotLines computes to[at[r]+j] = Σ_k a[r][k]·b[j][k] for DotRows rows and some columns, a multiple of 4, with the bits of [Set.Dot].
// It returns false where the set has nothing for that.
func (s *Set) DotLines(columns, depth int, a, b Lines, to []float32, at [DotRows]int) bool {
	if s.dotLines == nil || columns == 0 || columns%4 != 0 || depth == 0 || depth%s.Lanes != 0 {
		return false
	}
	_, _ = a.X[(DotRows-1)*a.Step+depth-1], b.X[(columns-1)*b.Step+depth-1]
	for _, first := range at {
		_ = to[first : first+columns]
	}
	s.dotLines(columns, depth, &a.X[0], 4*a.Step, &b.X[0], 4*b.Step, &to[0], at)
	return true
}

// WeightedLines computes sums[r][j] += Σ_i w[at[r]+i]·rows[i][j] for DotRows rows, n of i in order and width of j, with the bits
// of [Set.Weighted]. It returns false where the set has nothing for that.
func (s *Set) WeightedLines(n, width int, w []float32, at [DotRows]int, rows, sums Lines) bool {
	if s.weightedLines == nil || n == 0 || width == 0 || width%(4*s.Lanes) != 0 {
		return false
	}
	_, _ = rows.X[(n-1)*rows.Step+width-1], sums.X[(DotRows-1)*sums.Step+width-1]
	for _, first := range at {
		_ = w[first : first+n]
	}
	for j := 0; j < width; j += 4 * s.Lanes {
		s.weightedLines(n, &w[0], at, &rows.X[j], 4*rows.Step, &sums.X[j], 4*sums.Step)
	}
	return true
}

// TurnPairs computes, for k below half of a line's length, to[k] = x[k]·cos[k] − x[half+k]·sin[k] and to[half+k] = x[half+k]·cos[half+k] +
// x[k]·sin[half+k], with each product rounded. All have the line's length. It returns false where the set has nothing for that.
func (s *Set) TurnPairs(x, cos, sin, to []float32) bool {
	half := len(to) / 2
	if s.turnPairs == nil || half == 0 || half%s.Lanes != 0 || len(to)%2 != 0 {
		return false
	}
	_, _, _ = x[2*half-1], cos[2*half-1], sin[2*half-1]
	s.turnPairs(half, &x[0], &cos[0], &sin[0], &to[0], 4*half)
	return true
}
