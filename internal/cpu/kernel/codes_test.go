package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestDotCodes: every processor's products of codes have the bits of Go's, which are those of the sum to within its
// rounding.
func TestDotCodes(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	codes := func(blocks int, least int) *Codes {
		c := &Codes{Codes: make([]int8, blocks*CodeBlock), Scales: make([]float32, blocks), Extra: make([]float32, blocks)}
		for i := range c.Codes {
			c.Codes[i] = int8(least + rng.IntN(128-least))
		}
		for i := range c.Scales {
			c.Scales[i], c.Extra[i] = rng.Float32()-0.3, rng.Float32()-0.5
		}
		return c
	}
	for _, blocks := range []int{0, 1, 2, 3, 17, 64} {
		w, x := codes(blocks, -128), codes(blocks, -127)
		if blocks == 17 { // the largest sums that there are
			for i := range w.Codes {
				w.Codes[i], x.Codes[i] = -128, int8(127-254*(i%2))
			}
		}
		if blocks == 3 {
			for i := range w.Codes {
				w.Codes[i], x.Codes[i] = -128, -127
			}
		}
		var none *Set
		want, sum, all := none.DotCodes(blocks, w, x), 0.0, 0.0
		for i := range w.Codes {
			p := float64(w.Codes[i]) * float64(x.Codes[i]) * float64(w.Scales[i/CodeBlock]) * float64(x.Scales[i/CodeBlock])
			sum, all = sum+p, all+math.Abs(p)
		}
		for b := range w.Extra {
			p := float64(w.Extra[b]) * float64(x.Extra[b])
			sum, all = sum+p, all+math.Abs(p)
		}
		if math.Abs(float64(want)-sum) > 1e-6*all {
			t.Errorf("%d blocks: %v, want %v", blocks, want, sum)
		}
		for _, s := range All() {
			if got := s.DotCodes(blocks, w, x); math.Float32bits(got) != math.Float32bits(want) {
				t.Errorf("%s, %d blocks: %v, want %v", s.Name, blocks, got, want)
			}
		}
	}
	nan := codes(2, -127)
	nan.Scales[1] = float32(math.NaN())
	for _, s := range append(All(), nil) {
		if got := s.DotCodes(2, codes(2, -128), nan); got == got {
			t.Errorf("%v of a scale that is no number", got)
		}
	}
}

// TestNibbles: codes of half a byte are looked up, the low ones of a group first.
func TestNibbles(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	var table [16]int8
	for i := range table {
		table[i] = int8(rng.Uint32())
	}
	for _, size := range [][3]int{{1, 1, 16}, {3, 1, 18}, {2, 2, 35}, {5, 4, 67}, {0, 1, 16}} {
		groups, pieces, stride := size[0], size[1], size[2]
		src := make([]byte, max(0, (groups-1)*stride+16*pieces))
		for i := range src {
			src[i] = byte(rng.Uint32())
		}
		var want []int8
		for g := range groups {
			for _, shift := range []int{0, 4} {
				for _, c := range src[g*stride:][:16*pieces] {
					want = append(want, table[c>>shift&15])
				}
			}
		}
		for _, s := range append(All(), nil) {
			got := make([]int8, len(want)+1)
			got[len(want)] = 77
			s.Nibbles(groups, pieces, src, stride, &table, got[:len(want)])
			if !slices.Equal(got[:len(want)], want) || got[len(want)] != 77 {
				t.Errorf("%v of %v are\n%v, want\n%v", fmt.Sprint(s == nil), size, got, want)
			}
		}
	}
}

// TestPanelCodes: many rows by many lines side by side have the bits of each row by each line, whatever the number of
// blocks, and stay in their memory.
func TestPanelCodes(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for _, s := range All() {
		if !s.HasCodePanels() {
			continue
		}
		for _, blocks := range []int{1, 2, 3, 4, 5, 8, 23} {
			k := blocks * CodeBlock
			ldx := k + 32*rng.IntN(2)
			lines, x := make([]int8, PanelColumns*k), make([]int8, (PanelRows-1)*ldx+k)
			for i := range lines {
				lines[i] = int8(rng.Uint32())
			}
			for i := range x {
				x[i] = int8(rng.IntN(255) - 127)
			}
			if blocks == 5 { // the largest sums that there are
				for i := range lines {
					lines[i] = -128
				}
				for i := range x {
					x[i] = -127
				}
			}
			panel := &CodePanel{Words: make([]byte, PanelColumns*k), Scales: make([]float32, 2*PanelColumns*blocks)}
			factors, sums := make([]float32, PanelFactors*blocks), make([]float32, PanelSums+1)
			sums[PanelSums] = 77
			random := func() []float32 {
				list := make([]float32, blocks)
				for i := range list {
					list[i] = rng.Float32() - 0.4
				}
				return list
			}
			var rows, columns []*Codes
			for r := range PanelRows {
				rows = append(rows, &Codes{Codes: x[r*ldx:][:k], Scales: random(), Extra: random()})
				PutFactors(factors, r, rows[r])
			}
			for j := range PanelColumns {
				columns = append(columns, &Codes{Codes: lines[j*k:][:k], Scales: random(), Extra: random()})
				panel.PutScales(j, columns[j])
			}
			s.PutCodes(panel, lines)
			s.PanelCodes(blocks, panel, x, ldx, factors, sums)
			var none *Set
			for r, row := range rows {
				for j, column := range columns {
					got, want := sums[r*PanelColumns+j], none.DotCodes(blocks, column, row)
					if math.Float32bits(got) != math.Float32bits(want) {
						t.Fatalf("%s, %d blocks: row %d by line %d is %v, want %v", s.Name, blocks, r, j, got, want)
					}
				}
			}
			if sums[PanelSums] != 77 {
				t.Errorf("%s: more was written than sums", s.Name)
			}
		}
	}
}

// TestPutCodes: a panel has four codes of each line side by side, with and without a kernel for that.
func TestPutCodes(t *testing.T) {
	const k = 64
	lines := make([]int8, PanelColumns*k)
	for i := range lines {
		lines[i] = int8(i * 7)
	}
	for _, s := range append(All(), &Set{}) {
		p := &CodePanel{Words: make([]byte, PanelColumns*k)}
		s.PutCodes(p, lines)
		for i, c := range p.Words {
			if want := lines[i/4%PanelColumns*k+i/(4*PanelColumns)*4+i%4]; int8(c) != want {
				t.Fatalf("%q: byte %d is %d, want %d", s.Name, i, int8(c), want)
			}
		}
	}
}
