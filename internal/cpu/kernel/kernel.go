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
