package codes

import (
	"math"
	"testing"

	simd "github.com/optimem/optimem/internal/cpu/kernel"
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

// TestPanelingOf: a processor that has what panels are made by has them made at once: nobody would see it by the bits.
func TestPanelingOf(t *testing.T) {
	for _, set := range simd.All() {
		for name := range panelings {
			if made := PanelingOf(set, name) != nil; made != (set.HasCodePanels() && set.Turns()) {
				t.Errorf("%s: panels of %s are made at once: %v", set.Name, name, made)
			}
		}
	}
}

// TestLiningOf: so has it all encodings multiplied as they lie.
func TestLiningOf(t *testing.T) {
	for _, set := range simd.All() {
		for name := range expansions {
			if lined := LiningOf(set, name) != nil; lined != (set.HasCodePanels() && set.Turns()) {
				t.Errorf("%s: lines of %s are multiplied as they lie: %v", set.Name, name, lined)
			}
		}
	}
}
