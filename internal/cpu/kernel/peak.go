package kernel

import (
	"sync"
	"time"
)

// Peak returns the FLOP/s of as many threads that multiply matrices which stay in their first caches: what the processor's
// arithmetic gives at most, 0 where there are no kernels for it. It takes a tenth of a second or so.
func Peak(threads int) float64 {
	const depth, turns, rounds = 128, 20000, 5
	set := Best()
	if set == nil {
		return 0
	}
	best := 0.0
	for range rounds {
		var all sync.WaitGroup
		begin := time.Now()
		for range threads {
			all.Go(func() {
				a, b := make([]float32, set.Rows*depth), make([]float32, depth*set.Columns)
				c := make([]float32, set.Rows*set.Columns)
				for range turns {
					set.Gemm(set.Rows, depth, a, depth, b, c, set.Columns, Store, nil)
				}
			})
		}
		all.Wait()
		flops := 2 * float64(threads*turns*depth*set.Rows*set.Columns)
		best = max(best, flops/time.Since(begin).Seconds())
	}
	return best
}
