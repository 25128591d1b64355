package kernel

import (
	"math"
	"math/rand/v2"
	"testing"
)

// newTileCase returns rows of inputs in tiles, a panel, and both as codes.
func newTileCase(rng *rand.Rand, tiles, blocks int, minima bool) (t *CodeTiles, p *CodePanel, rows, lines []*Codes) {
	k := blocks * CodeBlock
	t = &CodeTiles{
		Blocks: blocks, Codes: make([]int8, tiles*blocks*TileCodes), Factors: make([]float32, tiles*blocks*TileFactors),
	}
	p = &CodePanel{Words: make([]byte, PanelColumns*k), Scales: make([]float32, 2*PanelColumns*blocks)}
	random := func(least int) *Codes {
		c := &Codes{Codes: make([]int8, k), Scales: make([]float32, blocks), Extra: make([]float32, blocks)}
		for i := range c.Codes {
			c.Codes[i] = int8(least + rng.IntN(128-least))
			if blocks == 5 { // the largest sums that there are
				c.Codes[i] = int8(least)
			}
		}
		for i := range c.Scales {
			c.Scales[i], c.Extra[i] = rng.Float32()-0.4, rng.Float32()-0.6
		}
		return c
	}
	for r := range tiles * TileRows {
		x := random(-127)
		for b := range blocks {
			at := r/TileRows*blocks + b
			copy(t.Codes[at*TileCodes+r%TileRows*CodeBlock:], x.Codes[b*CodeBlock:][:CodeBlock])
			t.Factors[at*TileFactors+r%TileRows] = x.Scales[b]
			t.Factors[at*TileFactors+TileRows+r%TileRows] = x.Extra[b]
		}
		rows = append(rows, x)
	}
	all := make([]int8, 0, PanelColumns*k)
	for j := range PanelColumns {
		w := random(-128)
		if !minima {
			clear(w.Extra)
			w.Extra[0] = float32(math.Copysign(0, -1))
		}
		p.PutScales(j, w)
		all = append(all, w.Codes...)
		lines = append(lines, w)
	}
	(&Set{}).PutCodes(p, all)
	return t, p, rows, lines
}

// TestTileCodes: rows in tiles by many lines side by side have the bits of each row by each line, with minima and without,
// whatever the number of blocks and tiles; what reads and writes stays in its memory.
func TestTileCodes(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	for _, size := range [][2]int{{1, 1}, {2, 1}, {1, 2}, {1, 3}, {3, 4}, {2, 5}, {1, 8}, {4, 9}, {1, 31}, {2, 64}} {
		for _, minima := range []bool{true, false} {
			tiles, blocks := size[0], size[1]
			c, p, rows, lines := newTileCase(rng, tiles, blocks, minima)
			check := func(name string, first int, to TileOut) {
				t.Helper()
				var none *Set
				for r, row := range rows[first*TileRows:][:to.Rows] {
					for j, line := range lines {
						got, want := to.Out[r*to.Stride+j], none.DotCodes(blocks, line, row)
						if to.Bias != nil {
							want += to.Bias[j]
						}
						if math.Float32bits(got) != math.Float32bits(want) {
							t.Fatalf("%s, %d blocks, minima %v: row %d by line %d is %v, want %v", name, blocks, minima, r, j, got, want)
						}
					}
				}
			}
			bias := random(rng, PanelColumns)
			sums, all := make([]float32, tiles*TileSums), tiles*TileRows
			to := TileOut{Rows: all, Stride: PanelColumns + 3, Out: make([]float32, all*(PanelColumns+3)), Bias: bias}
			(&Set{}).TileCodes(c, 0, p, minima, sums, make([]float32, TileRoom), to)
			check("Go", 0, to)
			for _, s := range All() {
				if !s.HasCodeTiles() {
					continue
				}
				for first := range tiles {
					sums, room := guarded(t, make([]float32, (tiles-first)*TileSums)), guarded(t, make([]float32, TileRoom))
					for i := range sums {
						sums[i] = float32(math.NaN())
					}
					p := &CodePanel{Words: p.Words, Scales: guarded(t, p.Scales)}
					to := TileOut{Rows: all - first*TileRows, Stride: PanelColumns, Out: sums}
					s.TileCodes(c, first, p, minima, sums, room, to)
					check(s.Name, first, to)
					to = TileOut{Rows: to.Rows - first - 1, Stride: PanelColumns + 3, Bias: guarded(t, bias)}
					to.Out = guarded(t, make([]float32, (to.Rows-1)*to.Stride+PanelColumns))
					s.TileCodes(c, first, p, minima, sums, room, to)
					check(s.Name, first, to)
				}
			}
		}
	}
}

// TestRoundTile: a row's codes and factors are those of RoundCodes, and lie where its tile has them; no other row's change.
func TestRoundTile(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	for _, s := range All() {
		if !s.HasCodeTiles() {
			continue
		}
		for _, blocks := range []int{0, 1, 3, 16} {
			const tiles, row = 2, 21
			c := &CodeTiles{
				Blocks: blocks, Codes: make([]int8, tiles*blocks*TileCodes), Factors: make([]float32, tiles*blocks*TileFactors),
			}
			x := random(rng, blocks*CodeBlock)
			want := &Codes{Codes: make([]int8, len(x)), Scales: make([]float32, blocks), Extra: make([]float32, blocks)}
			s.RoundCodes(x, want)
			s.RoundTile(c, row, x)
			for i, got := range c.Codes {
				at, r, n := i/TileCodes, i%TileCodes/CodeBlock, int8(0)
				if at >= blocks && at/blocks*TileRows+r == row {
					n = want.Codes[at%blocks*CodeBlock+i%CodeBlock]
				}
				if got != n {
					t.Fatalf("%d blocks: code %d of block %d, row %d is %d, want %d", blocks, i%CodeBlock, at, r, got, n)
				}
			}
			for i, got := range c.Factors {
				at, n := i/TileFactors, float32(0)
				if at >= blocks && i%TileRows == row%TileRows {
					n = [][]float32{want.Scales, want.Extra}[i%TileFactors/TileRows][at%blocks]
				}
				if got != n {
					t.Fatalf("%d blocks: factor %d of block %d is %v, want %v", blocks, i%TileFactors, at, got, n)
				}
			}
			if !c.Finite() {
				t.Errorf("%d blocks: what numbers add is not finite", blocks)
			}
			if blocks == 3 {
				x[40] = float32(math.Inf(-1))
				if s.RoundTile(c, row, x); c.Finite() {
					t.Error("what an infinity adds is finite")
				}
			}
		}
	}
}

// BenchmarkTileCodes is 128 rows by a panel of depth 2048 on tiles, with minima and without, and on vectors.
func BenchmarkTileCodes(b *testing.B) {
	const tiles, blocks = 8, 64
	s := Best()
	if s == nil || !s.HasCodeTiles() {
		b.Skip("no matrix unit")
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for _, minima := range []bool{true, false} {
		b.Run(map[bool]string{true: "minima", false: "plain"}[minima], func(b *testing.B) {
			c, p, _, _ := newTileCase(rng, tiles, blocks, minima)
			sums, room := make([]float32, tiles*TileSums), make([]float32, TileRoom)
			for b.Loop() {
				s.TileCodes(c, 0, p, minima, sums, room, TileOut{Rows: tiles * TileRows, Stride: PanelColumns, Out: sums})
			}
		})
	}
	b.Run("vectors", func(b *testing.B) {
		_, p, _, _ := newTileCase(rng, tiles, blocks, true)
		x, factors, sums := make([]int8, tiles*blocks*TileCodes), make([]float32, 2*tiles*blocks*PanelFactors), make([]float32, PanelSums)
		for b.Loop() {
			for r := range 2 * tiles {
				at := r * PanelRows * blocks * CodeBlock
				s.PanelCodes(blocks, p, x[at:], blocks*CodeBlock, factors[r*blocks*PanelFactors:], sums)
			}
		}
	})
}
