//go:build unix

package kernel

import (
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"
)

// modes are what a few rows of a given width are added to.
type modes struct {
	rows, columns, ldc int
	before, bias       []float32
}

// compare gives compute and then, column by column, what tiles compute; the bits must be the same.
func (m *modes) compare(t *testing.T, what string, compute func(c []float32, mode Mode), tile func(c []float32, mode Mode)) {
	t.Helper()
	for mode := Store; mode <= ColumnBias; mode++ {
		got, want := guardedFloats(t, rand.New(rand.NewPCG(1, 2)), len(m.before)), slices.Clone(m.before)
		copy(got, m.before)
		compute(got, mode)
		tile(want, mode)
		for i := range got {
			if i%m.ldc < m.columns && got[i] != want[i] {
				t.Fatalf("%s, mode %d: [%d %d] is %v, want %v", what, mode, i/m.ldc, i%m.ldc, got[i], want[i])
			}
			if i%m.ldc >= m.columns && got[i] != m.before[i] {
				t.Fatalf("%s, mode %d: wrote beside the columns", what, mode)
			}
		}
	}
}

func newModes(t *testing.T, rng *rand.Rand, rows, columns int) *modes {
	m := &modes{rows: rows, columns: columns, ldc: columns + rng.IntN(3)}
	m.before = random(rng, (rows-1)*m.ldc+columns)
	m.bias = guardedFloats(t, rng, max(rows, columns))
	return m
}

// TestFew compares panels side by side with tiles.
func TestFew(t *testing.T) {
	rng := rand.New(rand.NewPCG(31, 32))
	for _, s := range All() {
		for _, e := range []Element{Float32, Float16, Pairs, Int8} {
			for rows := 1; rows <= FewRows; rows++ {
				panels := s.FewPanels(e, rows)
				for _, depth := range []int{1, 2, 7, 32, 65} {
					lda, width := depth+rng.IntN(3), s.Columns
					a := guardedFloats(t, rng, (rows-1)*lda+depth)
					lines := depth
					if e == Pairs {
						lines = (depth + 1) / 2
					}
					apart := lines*width + rng.IntN(9) // elements, or pairs
					data, _ := guardedElements(t, rng, e, (panels-1)*apart+lines*width)
					size := len(data) / ((panels-1)*apart + lines*width)
					m := newModes(t, rng, rows, panels*width)
					m.compare(t, s.Name, func(c []float32, mode Mode) {
						b := &Panel{Data: data, Stride: width * size, Element: e}
						s.Few(rows, depth, a, lda, b, apart*size, c, m.ldc, mode, m.bias, rng.IntN(1<<20))
					}, func(c []float32, mode Mode) {
						for n := range panels {
							b := &Panel{Data: data[n*apart*size:], Stride: width * size, Element: e}
							bias := m.bias
							if mode == ColumnBias {
								bias = bias[n*width:]
							}
							s.Multiply(rows, depth, a, lda, b, c[n*width:], m.ldc, mode, bias)
						}
					})
				}
			}
		}
	}
}

// TestAcross compares columns that lie along the depth with tiles of the same numbers in a panel.
func TestAcross(t *testing.T) {
	rng := rand.New(rand.NewPCG(33, 34))
	for _, s := range All() {
		for _, e := range []Element{Float32, Pairs, Int8} {
			for rows := 1; rows <= len(s.across[e]); rows++ {
				each, columns := s.AcrossDepth(e, rows), s.AcrossColumns(e, rows)
				for _, depth := range []int{each, 3 * each, 256} {
					lda, ldb := depth+rng.IntN(3), depth+rng.IntN(9)
					a := guardedFloats(t, rng, (rows-1)*lda+depth)
					kind := e
					if e == Pairs {
						kind = BFloat16
					}
					data, floats := guardedElements(t, rng, kind, (columns-1)*ldb+depth)
					panel := make([]float32, depth*s.Columns)
					for j := range columns {
						for k := range depth {
							panel[k*s.Columns+j] = floats[j*ldb+k]
						}
					}
					b := &Panel{Data: unsafe.Slice((*byte)(unsafe.Pointer(&panel[0])), 4*len(panel)), Stride: 4 * s.Columns}
					m := newModes(t, rng, rows, columns)
					bias := append(slices.Clone(m.bias), make([]float32, s.Columns)...)
					m.compare(t, s.Name, func(c []float32, mode Mode) {
						s.Across(e, rows, depth, a, lda, data, ldb*kind.Bytes(), c, m.ldc, mode, m.bias, rng.IntN(1<<20))
					}, func(c []float32, mode Mode) {
						wide := make([]float32, rows*s.Columns)
						for r := range rows {
							copy(wide[r*s.Columns:][:columns], c[r*m.ldc:])
						}
						s.Multiply(rows, depth, a, lda, b, wide, s.Columns, mode, bias)
						for r := range rows {
							copy(c[r*m.ldc:][:columns], wide[r*s.Columns:])
						}
					})
				}
			}
		}
	}
}

// TestCombine compares rows that are added to sums of zero with tiles.
func TestCombine(t *testing.T) {
	rng := rand.New(rand.NewPCG(35, 36))
	for _, s := range All() {
		for _, e := range []Element{Float32, BFloat16, Float16, Int8} {
			if !s.HasCombine(e) {
				continue
			}
			for _, depth := range []int{1, 7, 8, 21, 64} {
				for panels := 1; panels <= 3; panels++ {
					width := panels * s.Columns
					ldb := width + rng.IntN(9)
					a := guardedFloats(t, rng, depth)
					data, floats := guardedElements(t, rng, e, (depth-1)*ldb+width)
					sums := guardedFloats(t, rng, width)
					clear(sums)
					s.Combine(e, a, data, ldb*e.Bytes(), sums)
					want := make([]float32, s.Columns)
					for n := range panels {
						b := &Panel{Data: memory(floats[n*s.Columns:]), Stride: 4 * ldb}
						s.Multiply(1, depth, a, depth, b, want, s.Columns, Store, nil)
						for j, x := range want {
							if got := sums[n*s.Columns+j]; got != x {
								t.Fatalf("%s, element %d, depth %d: sum %d is %v, want %v", s.Name, e, depth, n*s.Columns+j, got, x)
							}
						}
					}
				}
			}
		}
	}
}

func memory(x []float32) []byte { return unsafe.Slice((*byte)(unsafe.Pointer(&x[0])), 4*len(x)) }
