//go:build unix

package sysmem

import "testing"

// What was touched counts, and does not go away.
func TestPeakRSS(t *testing.T) {
	before := PeakRSS()
	const bytes = 64 << 20
	touched := make([]byte, bytes)
	for i := 0; i < bytes; i += 4096 {
		touched[i] = 1
	}
	after := PeakRSS()
	if before <= 0 || after < bytes || after < before {
		t.Errorf("%d bytes before %d were touched, %d after", before, len(touched), after)
	}
}
