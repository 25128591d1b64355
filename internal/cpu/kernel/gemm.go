package kernel

import "unsafe"

// products are a set's kernels of products of matrices, by what the right factor holds.
type products struct {
	gemm [elements][]gemmFunc
	// widen copies rows, narrow rounds to halves.
	widen  [elements]func(rows int, src *byte, lds int, dst *float32)
	narrow [elements]func(vectors int, src *float32, dst *uint16)
	// few and across compute few rows.
	few    [elements][]fewFunc
	across [elements][]acrossFunc
	// combine adds multiples of 8 rows and of one.
	combine [elements][2]combineFunc
	// pairUp rounds pairs of rows.
	pairUp func(rows int, src *float32, dst *uint32)
	// unit says that processors with the set may multiply bfloat16.
	unit bool
	// WithoutUnit says that nothing multiplies pairs of bfloat16, WithoutTiles that vectors do; for tests.
	WithoutUnit, WithoutTiles bool
}

type combineFunc = func(pairs int, a *float32, b *byte, ldb int, sums *float32)

type gemmFunc = func(
	depth int, a *float32, lda int, b *byte, ldb int, c *float32, ldc int, mode int, bias *float32, ahead uintptr,
	jump int,
)

// An Element is what a right factor holds.
type Element int

// The elements.
const (
	Float32 Element = iota
	BFloat16
	Float16
	// Pairs are BFloat16 of which each two rows of a right factor lie as one, element by element side by side. If their
	// number is odd, there is one more row that is not used.
	Pairs
	// Int8 are whole numbers.
	Int8
	elements
)

// Bytes returns the size of an element.
func (e Element) Bytes() int {
	switch e {
	case Float32:
		return 4
	case Int8:
		return 1
	}
	return 2
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

// A Panel is Columns columns of the right factor of a product: the elements of a row lie one behind the other, rows
// Stride bytes apart, at any address.
type Panel struct {
	Data    []byte
	Stride  int
	Element Element
	// Ahead is an address from which on memory is fetched into the cache while the product is computed, Fetched bytes of
	// it; after each 16 rows of the panel, Jump bytes are left out, or some are fetched once more where Jump is negative. It
	// need not be anyone's.
	Ahead uintptr
	Jump  int
}

// Fetched returns how many bytes from Ahead on are fetched with a product of given rows and depth.
func (s *Set) Fetched(e Element, rows, depth int) int {
	lines := s.Lanes * e.Bytes() / 16
	if rows <= 4 {
		lines = s.Lanes * e.Bytes() / 8
	}
	return 64 * max(lines, 1) * (depth / 4)
}

// Gemm computes c[r][j] = Σ_k a[r][k]·b[k][j] + what mode says, for rows of a tile that is Columns wide. The elements of
// a row of a lie one behind the other, rows lda floats apart; b is float32 and packed, all columns of k before those of
// k+1; rows of c lie ldc floats apart. Rows are at most Rows. Sums run over k in order.
func (s *Set) Gemm(rows, depth int, a []float32, lda int, b, c []float32, ldc int, mode Mode, bias []float32) {
	if rows == 0 || depth == 0 {
		return
	}
	p := Panel{Stride: 4 * s.Columns}
	p.Data = unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(b))), 4*len(b))
	p.Ahead = uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	s.Multiply(rows, depth, a, lda, &p, c, ldc, mode, bias)
}

// MostRows returns the rows of the largest tile with a right factor of an element.
func (s *Set) MostRows(e Element) int { return len(s.gemm[e]) }

// Multiply is Gemm for any panel; rows are at most MostRows of its element, and neither they nor depth are 0.
func (s *Set) Multiply(
	rows, depth int, a []float32, lda int, b *Panel, c []float32, ldc int, mode Mode, bias []float32,
) {
	// The last element that is read or written of each is looked at, so that memory is never left.
	_, _ = a[(rows-1)*lda+depth-1], c[(rows-1)*ldc+s.Columns-1]
	if b.Element == Pairs {
		_ = b.Data[(depth-1)/2*b.Stride+4*s.Columns-1]
	} else {
		_ = b.Data[(depth-1)*b.Stride+s.Columns*b.Element.Bytes()-1]
	}
	p := &c[0]
	switch mode {
	case RowBias:
		_, p = bias[rows-1], &bias[0]
	case ColumnBias:
		_, p = bias[s.Columns-1], &bias[0]
	}
	s.gemm[b.Element][rows-1](depth, &a[0], 4*lda, &b.Data[0], b.Stride, &c[0], 4*ldc, int(mode), p, b.Ahead, b.Jump)
}

// Transpose writes blocks of 8 by 8 elements with rows and columns exchanged: dst[k·ldd + r] = src[r·lds + k] for r < 8
// and k < 8·count.
func (s *Set) Transpose(count int, src []float32, lds int, dst []float32, ldd int) {
	if count == 0 {
		return
	}
	_, _ = src[7*lds+8*count-1], dst[(8*count-1)*ldd+7]
	transpose8(count, (*byte)(unsafe.Pointer(&src[0])), 4*lds, &dst[0], 4*ldd)
}

// TransposeHalf is Transpose of halves to float32.
func (s *Set) TransposeHalf(e Element, count int, src []uint16, lds int, dst []float32, ldd int) {
	if count == 0 {
		return
	}
	_, _ = src[7*lds+8*count-1], dst[(8*count-1)*ldd+7]
	from := (*byte)(unsafe.Pointer(&src[0]))
	if e == BFloat16 {
		transpose8bf16(count, from, 2*lds, &dst[0], 4*ldd)
		return
	}
	transpose8f16(count, from, 2*lds, &dst[0], 4*ldd)
}

// TransposeInt8 is Transpose of Int8 to float32.
func (s *Set) TransposeInt8(count int, src []int8, lds int, dst []float32, ldd int) {
	if count == 0 {
		return
	}
	_, _ = src[7*lds+8*count-1], dst[(8*count-1)*ldd+7]
	transpose8i8(count, (*byte)(unsafe.Pointer(&src[0])), lds, &dst[0], 4*ldd)
}

// TransposePairs is Transpose of pairs: those of a row of src lie one behind the other, rows lds elements apart; rows of dst
// lie ldd pairs apart.
func (s *Set) TransposePairs(count int, src []uint16, lds int, dst []uint32, ldd int) {
	if count == 0 {
		return
	}
	_, _ = src[7*lds+16*count-1], dst[(8*count-1)*ldd+7]
	transpose8(count, (*byte)(unsafe.Pointer(&src[0])), 2*lds, (*float32)(unsafe.Pointer(&dst[0])), 4*ldd)
}

// TransposeWords is Transpose of 16 bits.
func (s *Set) TransposeWords(count int, src []uint16, lds int, dst []uint16, ldd int) {
	if count == 0 {
		return
	}
	_, _ = src[7*lds+8*count-1], dst[(8*count-1)*ldd+7]
	transpose8words(count, &src[0], 2*lds, &dst[0], 2*ldd)
}

// Widen copies rows of Columns elements, lds bytes apart, to one behind the other as float32. Pairs of rows lie lds bytes
// apart.
func (s *Set) Widen(e Element, rows int, src []byte, lds int, dst []float32) {
	if rows == 0 {
		return
	}
	if e == Pairs {
		_ = src[(rows-1)/2*lds+4*s.Columns-1]
	} else {
		_ = src[(rows-1)*lds+s.Columns*e.Bytes()-1]
	}
	_ = dst[rows*s.Columns-1]
	s.widen[e](rows, &src[0], lds, &dst[0])
}

// Narrow rounds floats to halves, to nearest with ties to even; their number is a multiple of Lanes.
func (s *Set) Narrow(e Element, src []float32, dst []uint16) {
	if len(src) == 0 {
		return
	}
	_ = dst[len(src)-1]
	s.narrow[e](len(src)/s.Lanes, &src[0], &dst[0])
}
