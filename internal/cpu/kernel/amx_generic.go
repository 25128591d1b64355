//go:build !amd64 || noasm

package kernel

func tilesAllowed() bool { return false }

func hasDots() bool { return false }

func multiplyTiles(*UnitBlock) { panic("BUG: no matrix unit") }

func multiplyLines(*UnitLines) { panic("BUG: no matrix unit") }

func splitFloats(int, *float32, *uint16) { panic("BUG: no matrix unit") }

func roundFloats(int, *float32, *uint16) { panic("BUG: no matrix unit") }

func multiplyDots(*UnitBlock) { panic("BUG: no products of pairs") }

func hasTileCodes() bool { return false }

func multiplyTileCodes(*CodeTiles, *CodePanel, bool, []float32, []float32, TileOut) {
	panic("BUG: no matrix unit")
}

func fastUnitSets() []*UnitSet { return nil }
