package kernel

type fewFunc = func(
	depth int, a *float32, lda int, b *byte, ldb, next int, c *float32, ldc int, mode int, bias *float32, ahead int,
)

type acrossFunc = func(
	depth int, a *float32, lda int, b *byte, ldb int, c *float32, ldc int, mode int, bias *float32, ahead int,
)

// FewRows is the most rows that Few takes, and that Across takes whatever the processor.
const FewRows = 4

// FewPanels returns how many panels Few takes side by side for a number of rows, 0 where there is no kernel for it.
func (s *Set) FewPanels(e Element, rows int) int {
	if rows > len(s.few[e]) {
		return 0
	}
	for _, n := range []int{4, 2} {
		registers := 32
		if s.Lanes == 8 {
			registers = 16
		}
		if 2*n*rows+rows+1 <= registers {
			return n
		}
	}
	return 1
}

// Few is Multiply for few rows and FewPanels panels at once, next bytes apart, which are read as streams: of each, what
// lies ahead bytes further is fetched into the second cache. It gives the bits that Multiply does.
func (s *Set) Few(
	rows, depth int, a []float32, lda int, b *Panel, next int, c []float32, ldc int, mode Mode, bias []float32,
	ahead int,
) {
	panels := s.FewPanels(b.Element, rows)
	_, _ = a[(rows-1)*lda+depth-1], c[(rows-1)*ldc+panels*s.Columns-1]
	last := (panels - 1) * next
	if b.Element == Pairs {
		_ = b.Data[last+(depth-1)/2*b.Stride+4*s.Columns-1]
	} else {
		_ = b.Data[last+(depth-1)*b.Stride+s.Columns*b.Element.Bytes()-1]
	}
	p := &c[0]
	switch mode {
	case RowBias:
		_, p = bias[rows-1], &bias[0]
	case ColumnBias:
		_, p = bias[panels*s.Columns-1], &bias[0]
	}
	s.few[b.Element][rows-1](
		depth, &a[0], 4*lda, &b.Data[0], b.Stride, next, &c[0], 4*ldc, int(mode), p, ahead,
	)
}

// AcrossDepth returns what depths of Across are multiples of, 0 where there is no kernel for so many rows.
func (s *Set) AcrossDepth(e Element, rows int) int {
	if rows > len(s.across[e]) {
		return 0
	}
	return 4 / e.Bytes() * s.Lanes
}

// AcrossColumns returns how many columns Across computes.
func (s *Set) AcrossColumns(e Element, rows int) int {
	if e == Int8 && rows <= 2 {
		return 2 * s.Lanes
	}
	return s.Lanes
}

// Across is Multiply for few rows and AcrossColumns columns of the right factor whose elements lie one behind the other, columns
// ldb bytes apart, at any address. Those of bfloat16 are Pairs here. Of each column, what lies ahead bytes further is
// fetched into the second cache. It gives the bits that Multiply does.
func (s *Set) Across(
	e Element, rows, depth int, a []float32, lda int, b []byte, ldb int, c []float32, ldc int, mode Mode,
	bias []float32,
	ahead int,
) {
	columns := s.AcrossColumns(e, rows)
	_, _ = a[(rows-1)*lda+depth-1], c[(rows-1)*ldc+columns-1]
	_ = b[(columns-1)*ldb+depth*e.Bytes()-1]
	p := &c[0]
	switch mode {
	case RowBias:
		_, p = bias[rows-1], &bias[0]
	case ColumnBias:
		_, p = bias[columns-1], &bias[0]
	}
	s.across[e][rows-1](depth, &a[0], 4*lda, &b[0], ldb, &c[0], 4*ldc, int(mode), p, ahead)
}

// HasCombine reports whether there is a Combine of an element.
func (s *Set) HasCombine(e Element) bool { return s.combine[e][0] != nil }

// Combine adds multiples of rows of the right factor to sums, whose number is a multiple of Columns:
//
//	sums[j] += Σ_k a[k]·b[k][j], over k in order
//
// The elements of a row lie one behind the other, rows ldb bytes apart, at any address; there is no Combine of Pairs. Sums
// that were zero become what those of Multiply are.
func (s *Set) Combine(e Element, a []float32, b []byte, ldb int, sums []float32) {
	if len(a) == 0 || len(sums) == 0 {
		return
	}
	_ = b[(len(a)-1)*ldb+len(sums)*e.Bytes()-1]
	_ = sums[len(sums)/s.Columns*s.Columns-1]
	pairs := len(sums) / s.Columns
	for len(a) >= 8 {
		s.combine[e][0](pairs, &a[0], &b[0], ldb, &sums[0])
		if a = a[8:]; len(a) > 0 {
			b = b[8*ldb:]
		}
	}
	for k := range a {
		s.combine[e][1](pairs, &a[k], &b[k*ldb], ldb, &sums[0])
	}
}
