package axes

import "math"

// sums: Σ x, in four interleaved sums per line.
var sums = combination{
	floats: pass[float64]{
		fold: func(acc float64, x []float64, _ float64) float64 {
			var a, b, c, d float64
			for len(x) >= 4 {
				a += x[0]
				b += x[1]
				c += x[2]
				d += x[3]
				x = x[4:]
			}
			for _, v := range x {
				a += v
			}
			return acc + ((a + b) + (c + d))
		},
		zip: func(acc, x, _ []float64) {
			x = x[:len(acc)]
			for i := range acc {
				acc[i] += x[i]
			}
		},
	},
	ints: pass[int64]{
		fold: func(acc int64, x []int64, _ int64) int64 {
			for _, v := range x {
				acc += v
			}
			return acc
		},
		zip: func(acc, x, _ []int64) {
			for i := range acc {
				acc[i] += x[i]
			}
		},
	},
}

// sumsPresent: Σ x over the x that are not NaN.
var sumsPresent = combination{
	floats: stepwise(0, func(acc, x, _ float64) float64 {
		if x != x {
			return acc
		}
		return acc + x
	}),
	ints: sums.ints,
}

// products: Π x.
var products = combination{
	floats: stepwise(1, func(acc, x, _ float64) float64 { return acc * x }),
	ints:   stepwise(1, func(acc, x, _ int64) int64 { return acc * x }),
}

// largest: max x, NaN if there is one.
var largest = combination{
	floats: stepwise(math.Inf(-1), func(acc, x, _ float64) float64 {
		if x > acc || x != x {
			return x
		}
		return acc
	}),
	ints: stepwise(math.MinInt64, func(acc, x, _ int64) int64 { return max(acc, x) }),
}

// smallest: min x, NaN if there is one.
var smallest = combination{
	floats: stepwise(math.Inf(1), func(acc, x, _ float64) float64 {
		if x < acc || x != x {
			return x
		}
		return acc
	}),
	ints: stepwise(math.MaxInt64, func(acc, x, _ int64) int64 { return min(acc, x) }),
}

// counts: |{x ≠ 0}|.
var counts = combination{
	floats: stepwise(0, func(acc, x, _ float64) float64 {
		if x != 0 {
			acc++
		}
		return acc
	}),
	ints: stepwise(0, func(acc, x, _ int64) int64 {
		if x != 0 {
			acc++
		}
		return acc
	}),
}

// magnitudes: Σ |x|.
var magnitudes = stepwise(0, func(acc, x, _ float64) float64 { return acc + math.Abs(x) })

// squares: Σ x².
var squares = stepwise(0, func(acc, x, _ float64) float64 { return acc + x*x })

// largestMagnitude: max |x|.
var largestMagnitude = stepwise(0, func(acc, x, _ float64) float64 {
	if x = math.Abs(x); x > acc || x != x {
		return x
	}
	return acc
})

// smallestMagnitude: min |x|.
var smallestMagnitude = stepwise(math.Inf(1), func(acc, x, _ float64) float64 {
	if x = math.Abs(x); x < acc || x != x {
		return x
	}
	return acc
})

// powers: Σ |x|^ord.
var powers = stepwise(0, func(acc, x, ord float64) float64 { return acc + math.Pow(math.Abs(x), ord) })

// deviations: Σ (x − at)².
var deviations = stepwise(0, func(acc, x, at float64) float64 { return acc + (x-at)*(x-at) })

// exponentials: Σ exp(x − at).
var exponentials = stepwise(0, func(acc, x, at float64) float64 { return acc + math.Exp(x-at) })

// stepwise returns the pass that applies step to one element after another.
func stepwise[T any](start T, step func(acc, x, at T) T) pass[T] {
	return pass[T]{
		start: start,
		fold: func(acc T, x []T, at T) T {
			for _, v := range x {
				acc = step(acc, v, at)
			}
			return acc
		},
		zip: func(acc, x, at []T) {
			for i := range acc {
				acc[i] = step(acc[i], x[i], at[i])
			}
		},
	}
}
