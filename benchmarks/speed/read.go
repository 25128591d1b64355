package main

import (
	"sync"
	"time"
)

// readBytes is what is read at a time: more than any cache holds.
const readBytes = 1 << 30

// readRate returns the bytes a second that so many threads read of memory, each its own part, adding up the numbers of
// 64 bits there; the best of some readings counts.
func readRate(threads, readings int) float64 {
	numbers := make([]uint64, readBytes/8)
	each := len(numbers) / threads / 8 * 8
	for i := range numbers { // pages of nothing but zeros would all be one
		numbers[i] = uint64(i)
	}
	best := time.Duration(0)
	sums := make([]uint64, threads)
	for range readings {
		start := time.Now()
		var wait sync.WaitGroup
		for t := range threads {
			wait.Go(func() { sums[t] = sum(numbers[t*each:][:each]) })
		}
		wait.Wait()
		if took := time.Since(start); best == 0 || took < best {
			best = took
		}
	}
	if sums[0] == 0 { // so that they are computed
		return 0
	}
	return float64(threads*each*8) / best.Seconds()
}

// sum adds up a multiple of eight numbers, eight side by side, so that loads and not sums are waited for.
func sum(x []uint64) uint64 {
	var s [8]uint64
	for ; len(x) >= 8; x = x[8:] {
		y := x[:8:8]
		s[0] += y[0]
		s[1] += y[1]
		s[2] += y[2]
		s[3] += y[3]
		s[4] += y[4]
		s[5] += y[5]
		s[6] += y[6]
		s[7] += y[7]
	}
	return s[0] + s[1] + s[2] + s[3] + s[4] + s[5] + s[6] + s[7]
}
