// Package kernel computes the inner loops of the CPU device in assembly, for processors that have AVX-512 or AVX2 with
// FMA: tiles of products of matrices, dot products, transpositions. The assembly is written by _generate.
//
// It knows floats in memory and processors. It does not know ops, shapes or threads. Where there is no assembly for the
// processor, or the build has the tag noasm, [Best] returns nil and callers compute in Go.
package kernel

//go:generate sh -c "cd _generate && go run . -family gemm -out ../gemm_amd64.s -stubs ../gen_gemm_amd64.go -pkg kernel"

// A Set is the kernels of an instruction set.
type Set struct {
	// Name is what reports say: "avx512" or "avx2".
	Name string
	// Rows and Columns are the size of the largest tile that Gemm computes.
	Rows, Columns int
	// Lanes is the number of floats in a register; depths of Dot are multiples of it.
	Lanes int

	gemm []func(depth int, a *float32, lda int, b, c *float32, ldc int, mode int, bias *float32)
	// dot4 and dot1 compute sums for four columns and for one.
	dot4, dot1 []func(depth int, a *float32, lda int, b *float32, ldb int, sums *float32)
}

// A Mode says what Gemm adds to a product.
type Mode int

// The modes.
const (
	// Store adds nothing.
	Store Mode = iota
	// Add adds what c holds.
	Add
	// RowBias adds bias[r] to row r, ColumnBias bias[j] to column j.
	RowBias
	ColumnBias
)

// Gemm computes c[r][j] = Σ_k a[r][k]·b[k][j] + what mode says, for rows of a tile that is Columns wide. The elements of
// a row of a lie one behind the other, rows lda floats apart; b is packed, all columns of k before those of k+1; rows of
// c lie ldc floats apart. depth is a multiple of 4, rows at most Rows. Sums run over k in order.
func (s *Set) Gemm(rows, depth int, a []float32, lda int, b, c []float32, ldc int, mode Mode, bias []float32) {
	if rows == 0 {
		return
	}
	// The last element that is read or written of each is looked at, so that memory is never left.
	_, _, _ = a[(rows-1)*lda+depth-1], b[depth*s.Columns-1], c[(rows-1)*ldc+s.Columns-1]
	p := &c[0]
	switch mode {
	case RowBias:
		_, p = bias[rows-1], &bias[0]
	case ColumnBias:
		_, p = bias[s.Columns-1], &bias[0]
	}
	s.gemm[rows-1](depth, &a[0], 4*lda, &b[0], &c[0], 4*ldc, int(mode), p)
}

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

// Transpose writes blocks of 8 by 8 elements with rows and columns exchanged: dst[k·ldd + r] = src[r·lds + k] for r < 8
// and k < 8·count.
func (s *Set) Transpose(count int, src []float32, lds int, dst []float32, ldd int) {
	if count == 0 {
		return
	}
	_, _ = src[7*lds+8*count-1], dst[(8*count-1)*ldd+7]
	transpose8(count, &src[0], 4*lds, &dst[0], 4*ldd)
}
