//go:build !files

package running

import (
	"fmt"

	"github.com/optimem/optimem/plan"
)

// directBytes returns bytes of the host's memory where that is the device's own.
func directBytes(p *plan.Plan, bytes int64) int64 {
	if p.Target.Direct {
		return bytes
	}
	return 0
}

// readRates compares reading a pass's weights packed and as they were.
type readRates struct{ packed, raw float64 }

// decodeRates returns what a pass's reads of packed files are expected to take, and those of the original.
func (r *Run) decodeRates(m *openModel) readRates {
	rates := r.rates().WithGuesses()
	return readRates{
		packed: rates.ReadingPacked(m.fileBytes, m.movedBytes, 0), raw: float64(m.movedBytes) / rates.DiskBytes,
	}
}

// String says which is less.
func (r readRates) String() string {
	better := "packed pays here"
	if r.packed >= r.raw {
		better = "the original would do as well here: the disk gives as much as is decoded"
	}
	return fmt.Sprintf("read in %s, the original in %s: %s", SecondsText(r.packed), SecondsText(r.raw), better)
}
