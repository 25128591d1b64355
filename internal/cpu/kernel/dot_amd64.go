//go:build !noasm

package kernel

import "unsafe"

// Products of bfloat16 by VDPBF16PS, for processors that have no matrix unit, over the same memory: a step's pairs of
// channels are what a register of a matrix unit reads. A sum adds the products of odd k and then those of even k, pair by
// pair; denormals count as zero.

//go:noescape
func dotTile(
	rows, steps int, x *uint16, xPixel int, offsets *int, w *uint16, first *float32, ldf int, c *float32, ldc int,
)

// dotFinish writes pixels a number of bytes behind the tile's results, of which there are none where sums are kept.
//
//go:noescape
func dotFinish(tile *UnitTile, pixels int, sums *float32, y int)

// dotSteps is how many steps a call has at most: their weights stay in the first cache for all rows, and a call ends soon.
const dotSteps = 8

// dotZeros is what sums of a tile begin with.
var dotZeros [UnitColumns]float32

// dotConv is amxConv, block by block.
func dotConv(t *UnitTile) {
	sums := t.Sums
	for block := range t.Blocks {
		if t.Keep != 0 {
			sums = &at(t.Sums, 4*block*UnitSums, 1)[0]
		}
		tiles := [2]*float32{sums, &at(sums, 4*UnitPixels*UnitColumns, 1)[0]}
		for step := 0; step < t.Steps; step += dotSteps {
			steps := min(dotSteps, t.Steps-step)
			offsets, w := (*int)(unsafe.Add(unsafe.Pointer(t.Offsets), 8*step)), move16(t.W, step*2*UnitDepth*UnitColumns)
			for tile, rows := range t.rows {
				first, ldf := &dotZeros[0], 0
				if step > 0 {
					first, ldf = tiles[tile], 4*UnitColumns
				}
				if rows > 0 {
					x := move16(t.X, block*t.XBlock+tile*t.XSecond)
					dotTile(rows, steps, x, t.XPixel, offsets, w, first, ldf, tiles[tile], 4*UnitColumns)
				}
			}
		}
		for tile, rows := range t.rows {
			if rows > 0 {
				dotFinish(t, rows, tiles[tile], block*t.YBlock+tile*t.YSecond)
			}
		}
	}
}

// dotOffsets are the distances of a block's steps.
var dotOffsets = func() (offsets [dotSteps]int) {
	for i := range offsets {
		offsets[i] = i * 2 * UnitRows * UnitDepth
	}
	return offsets
}()

func multiplyDots(u *UnitBlock) {
	for p := range u.panels() {
		for i := 0; i < u.rows(); i += UnitRows {
			u.dots(i, p)
		}
	}
}

// dots computes the columns of a panel of the block of rows from i on.
func (u *UnitBlock) dots(i, panel int) {
	at := panel * UnitColumns
	first, ldf, c := &u.First[i*u.LdFirst+at], 4*u.LdFirst, &u.C[i*u.Ldc+at]
	for step := 0; step < u.Steps; step += dotSteps {
		x := &u.A[i/UnitRows*u.ABlock+step*UnitRows*UnitDepth]
		w := (*uint16)(unsafe.Pointer(&u.B[panel*u.panelBytes()+step*2*UnitDepth*UnitColumns]))
		rows, steps := min(u.rows()-i, UnitRows), min(dotSteps, u.Steps-step)
		dotTile(rows, steps, x, 2*UnitDepth, &dotOffsets[0], w, first, ldf, c, 4*u.Ldc)
		first, ldf = c, 4*u.Ldc
	}
}

//go:noescape
func dotHalfBytes(
	steps, words int, src *byte, scales, minima *float32, other int, table, dst *byte, ahead uintptr, jump, ending int,
)

//go:noescape
func dotBytes(
	steps, words int, src *byte, scales, minima *float32, other int, table, dst *byte, ahead uintptr, jump, ending int,
)

// dotPlaces say where numbers of words go that have four codes of each of sixteen columns: the column of each place of
// the first eight and of the last eight, by how many bits words are shifted for half bytes, and the bytes of each lane
// that are the upper ends of words, of the first two of the depth and of the next.
//
//lint:ignore U1000 assembly reads it
var dotPlaces = func() (places [5][16]uint32) {
	const zeros = 0x808080
	for i := range uint32(16) {
		odd, word := i%2, i%4
		places[0][i], places[1][i], places[2][i] = i/2, 8+i/2, 8*odd
		places[3][i], places[4][i] = (4*word+odd)<<24|zeros, (4*word+odd+2)<<24|zeros
	}
	return places
}()
