package graph

import "testing"

// TestTriangleSize counts the places one by one.
func TestTriangleSize(t *testing.T) {
	for rows := range 6 {
		for columns := range 6 {
			for diagonal := -8; diagonal <= 8; diagonal++ {
				lower, upper := 0, 0
				for i := range rows {
					for j := range columns {
						if j-i <= diagonal {
							lower++
						}
						if j-i >= diagonal {
							upper++
						}
					}
				}
				if got, err := triangleSize(rows, columns, diagonal, false); err != nil || got != lower {
					t.Errorf("on and below diagonal %d of %d×%d: %d places, not %d (%v)", diagonal, rows, columns, got, lower, err)
				}
				if got, err := triangleSize(rows, columns, diagonal, true); err != nil || got != upper {
					t.Errorf("on and above diagonal %d of %d×%d: %d places, not %d (%v)", diagonal, rows, columns, got, upper, err)
				}
			}
		}
	}
	if _, err := triangleSize(1<<40, 1<<40, 0, false); err == nil {
		t.Error("2^80 places do not fail")
	}
}
