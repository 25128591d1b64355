package main

import "testing"

// TestSum: the sum is that of all numbers.
func TestSum(t *testing.T) {
	x := make([]uint64, 64)
	want := uint64(0)
	for i := range x {
		x[i] = uint64(i * i)
		want += x[i]
	}
	if got := sum(x); got != want {
		t.Errorf("%d, want %d", got, want)
	}
}
