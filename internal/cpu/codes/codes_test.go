package codes

import (
	"math"
	"testing"

	"github.com/optimem/optimem/tensor"
)

// TestHalfAt: every half is the float32 that it is.
func TestHalfAt(t *testing.T) {
	for h := range 1 << 16 {
		got, want := halfAt([]byte{byte(h), byte(h >> 8)}), tensor.Float16ToFloat32(uint16(h))
		if math.Float32bits(got) != math.Float32bits(want) {
			t.Fatalf("%#x is %v, want %v", h, got, want)
		}
	}
}
