//go:build !noasm

package kernel

import (
	"unsafe"

	"golang.org/x/sys/cpu"
)

// unitConfig says that all eight tiles have 16 rows of 64 bytes.
var unitConfig = func() (config [64]byte) {
	config[0] = 1
	for tile := range 8 {
		config[16+2*tile] = 64
		config[48+tile] = 16
	}
	return config
}()

// fewConfigs say for each number of rows that all that are not the right factor have so many.
var fewConfigs = func() (configs [UnitFewRows + 1][64]byte) {
	for rows := range configs {
		configs[rows] = unitConfig
		for tile := range 6 {
			configs[rows][48+tile] = byte(rows)
		}
	}
	return configs
}()

// partConfigs are fewConfigs where the right factor has one tile.
var partConfigs = func() (configs [UnitFewRows + 1][64]byte) {
	for rows := range configs {
		configs[rows] = fewConfigs[rows]
		configs[rows][48+6] = byte(rows)
	}
	return configs
}()

// lineConfigs say for each number of rows that tile 4 is the right factor, and all others have as many columns as there are rows.
var lineConfigs = func() (configs [UnitFewRows + 1][64]byte) {
	for rows := range configs {
		configs[rows] = unitConfig
		for tile := range 8 {
			if tile != 4 {
				configs[rows][16+2*tile] = byte(4 * rows)
			}
		}
	}
	return configs
}()

//go:noescape
func amxFew(config *byte, panels, steps, parts int, a *uint16, b *byte, first *float32, ldf int, c *float32, ldc int)

//go:noescape
func amxFewParts(config *byte, pairs, steps int, a *uint16, b *byte, first *float32, ldf int, c *float32, ldc int)

//go:noescape
func amxTiles(
	config *byte, blocks, steps, parts, ahead int, a *uint16, aBlock int, b *byte, first *float32, ldf, firstBlock int,
	c *float32, ldc int,
)

func multiplyTiles(u *UnitBlock) {
	if rows := u.rows(); rows <= UnitFewRows {
		u.few(rows)
		return
	}
	for p := range u.panels() {
		u.tiles(p)
	}
}

// few computes few rows of all panels.
func (u *UnitBlock) few(rows int) {
	done := 0
	if pairs := u.panels() / 2; u.parts() == UnitParts && pairs > 0 {
		amxFewParts(&partConfigs[rows][0], pairs, u.Steps, &u.A[0], &u.B[0], &u.First[0], 4*u.LdFirst, &u.C[0], 4*u.Ldc)
		done = 2 * pairs
	}
	if left := u.panels() - done; left > 0 {
		b, first, c := &u.B[done*u.panelBytes()], &u.First[done*UnitColumns], &u.C[done*UnitColumns]
		amxFew(&fewConfigs[rows][0], left, u.Steps, u.parts(), &u.A[0], b, first, 4*u.LdFirst, c, 4*u.Ldc)
	}
}

// tiles computes the columns of a panel.
func (u *UnitBlock) tiles(panel int) {
	b, first, c := &u.B[panel*u.panelBytes()], &u.First[panel*UnitColumns], &u.C[panel*UnitColumns]
	ahead := 0
	if u.Streams {
		const lines = 2 * UnitDepth * UnitColumns / 64 // of a step
		ahead = (lines + u.Blocks - 1) / u.Blocks
	}
	amxTiles(
		&unitConfig[0], u.Blocks, u.Steps, u.parts(), ahead, &u.A[0], 2*u.ABlock, b, first, 4*u.LdFirst,
		4*UnitRows*u.LdFirst, c, 4*u.Ldc,
	)
}

//go:noescape
func amxLines(config *byte, blocks, steps, parts int, w *byte, ldw int, x *uint16, c *float32, ldc int)

//go:noescape
func amxLines16(config *byte, steps, parts int, w *byte, ldw int, x *uint16, c *float32, ldc int)

func multiplyLines(u *UnitLines) {
	config, ldc, done := &lineConfigs[u.Rows][0], 4*u.Rows, 0
	if blocks := u.Lines / 64; blocks > 0 {
		amxLines(config, blocks, u.Steps, u.Parts, &u.B[0], u.Ldb, &u.A[0], &u.C[0], ldc)
		done = blocks * 64
	}
	for ; done < u.Lines; done += UnitFewRows {
		amxLines16(config, u.Steps, u.Parts, &u.B[done*u.Ldb], u.Ldb, &u.A[0], &u.C[done*u.Rows], ldc)
	}
}

//go:noescape
func amxSplit(steps int, x *float32, y *uint16)

func splitFloats(steps int, x *float32, y *uint16) { amxSplit(steps, x, y) }

//go:noescape
func amxRound(steps int, x *float32, y *uint16)

func roundFloats(steps int, x *float32, y *uint16) { amxRound(steps, x, y) }

//go:noescape
func amxConv(tile *UnitTile)

//go:noescape
func amxMax(row *UnitRow)

//go:noescape
func amxNarrow(pixels int, low, high *float32, step int, y *uint16, mask uint32)

//go:noescape
func amxGather(lines int, x *uint16, step int, y *uint16)

//go:noescape
func amxWiden(pixels int, x *uint16, y *float32)

//go:noescape
func amxWeigh(t *UnitScores)

//go:noescape
func amxPairRows(pairs int, x *uint16, step int, y *uint16)

// hasDots reports whether the processor multiplies and adds pairs of bfloat16 in vectors.
func hasDots() bool { return cpu.X86.HasAVX512BF16 }

// fastUnitSets returns the sets in assembly.
func fastUnitSets() []*UnitSet {
	set := Best()
	if set == nil || !set.unit || !hasDots() {
		return nil
	}
	dots := &UnitSet{
		Name: UnitDots, Speed: 2, Vectors: set, conv: dotConv, max: amxMax, narrow: amxNarrow, widen: amxWiden,
		gather: amxGather, weigh: amxWeigh, pairRows: amxPairRows,
	}
	if !tilesAllowed() {
		return []*UnitSet{dots}
	}
	tiles := *dots
	tiles.Name, tiles.Speed, tiles.conv = UnitTiles, 6, amxConv
	return []*UnitSet{&tiles, dots}
}

// codesConfig says that sums have 16 rows of 64 bytes, the left factor 16 of 32, and the right one eight of 64.
var codesConfig = func() (config [64]byte) {
	config = unitConfig
	config[16+2*4], config[48+6] = CodeBlock, CodeBlock/4
	config[16+2*5], config[48+7] = CodeBlock, CodeBlock/4
	return config
}()

//go:noescape
func amxCodes(
	config *byte, tiles, blocks, lane, stage, minima int, words *byte, scales *float32, x *int8,
	factors, room, sums, bias, out *float32, ldo, rows int,
)

// hasTileCodes reports whether the processor's matrix unit multiplies integers; see tilesAllowed.
func hasTileCodes() bool { return cpu.X86.HasAMXInt8 }

// multiplyTileCodes computes lanes one after the other: so a fourth of the panel stays in the nearest cache for all tiles. In this
// order sums of two of them suffice.
func multiplyTileCodes(t *CodeTiles, p *CodePanel, minima bool, sums, room []float32, to TileOut) {
	least := 0 // how far behind scales the minima are, in bytes
	if minima {
		least = 4 * PanelColumns * t.Blocks
	}
	for _, l := range [CodeLanes]struct{ lane, stage, sums int }{{0, 0, 0}, {2, 1, 0}, {1, 0, 1}, {3, 2, 0}} {
		at := min(l.lane, t.Blocks-1)
		amxCodes(
			&codesConfig[0], to.tiles(), t.Blocks, l.lane, l.stage, least, &p.Words[at*CodeBlock*PanelColumns],
			&p.Scales[at*PanelColumns], &t.Codes[at*TileCodes], &t.Factors[at*TileFactors], &room[0],
			&sums[l.sums*TileRows*PanelColumns], unsafe.SliceData(to.Bias), &to.Out[0], 4*to.Stride, to.Rows,
		)
	}
}
