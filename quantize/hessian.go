package quantize

import (
	"context"
	"errors"
	"math"
	goruntime "runtime"
	"slices"
	"sync"
	"sync/atomic"
)

// damping is what GPTQ adds to the squares of all inputs, as a part of their mean: inputs that hardly vary have an
// inverse then.
const damping = 0.01

// A hessian is what a layer's squared error is weighed by: the sum of x·xᵀ over its inputs x, from which
// [hessian.invert] makes what GPTQ needs of its inverse.
//
// The matrix has n rows of n numbers. On and above the diagonal is, once it was inverted, the upper triangular U with
// H⁻¹ = UᵀU; below it stays H itself, whose diagonal is squares. Columns are in order, where that is not nil: column k
// is the layer's column order[k].
type hessian struct {
	n       int
	upper   []float64
	squares []float64
	order   []int
}

// newHessian takes a matrix over. With byUse columns are ordered by their squares, the largest first, which is GPTQ's
// "act order".
func newHessian(sums []float64, n int, byUse bool) *hessian {
	h := &hessian{n: n, upper: sums, squares: make([]float64, n)}
	for i := range n {
		h.squares[i] = sums[i*n+i]
	}
	if byUse {
		h.order = make([]int, n)
		for i := range n {
			h.order[i] = i
		}
		slices.SortStableFunc(h.order, func(a, b int) int {
			switch {
			case h.squares[a] > h.squares[b]:
				return -1
			case h.squares[a] < h.squares[b]:
				return 1
			}
			return 0
		})
		h.permute()
	}
	for i := range n {
		for j := range i {
			h.upper[i*n+j] = h.upper[j*n+i] // the same numbers to the last bit
		}
	}
	return h
}

// permute brings rows and columns into their order.
func (h *hessian) permute() {
	n := h.n
	row, squares, done := make([]float64, n), slices.Clone(h.squares), make([]bool, n)
	for i := range n {
		old := h.upper[i*n:][:n]
		copy(row, old)
		for k, from := range h.order {
			old[k] = row[from]
		}
		h.squares[i] = squares[h.order[i]]
	}
	for first := range n {
		if done[first] {
			continue
		}
		copy(row, h.upper[first*n:][:n])
		at := first
		for ; h.order[at] != first; at = h.order[at] {
			copy(h.upper[at*n:][:n], h.upper[h.order[at]*n:][:n])
			done[at] = true
		}
		copy(h.upper[at*n:][:n], row)
		done[at] = true
	}
}

// column is the layer's column that is at place k.
func (h *hessian) column(k int) int {
	if h.order == nil {
		return k
	}
	return h.order[k]
}

// errNotFinite says that what layers are given is no number.
var errNotFinite = errors.New("what the model computes of the text is not finite")

// invert makes U. A matrix that is not positive is damped more, until it is.
func (h *hessian) invert(ctx context.Context) error {
	mean := 0.0
	for _, x := range h.squares {
		mean += x
	}
	mean /= float64(h.n)
	for damp := damping * mean; ; damp *= 10 {
		if math.IsInf(damp, 0) || math.IsNaN(damp) {
			return errNotFinite
		}
		for i := range h.n {
			row := h.upper[i*h.n:][:h.n]
			for j := i + 1; j < h.n; j++ {
				row[j] = h.upper[j*h.n+i]
			}
			row[i] = h.squares[i] + damp
			if h.squares[i] == 0 {
				row[i] = 1 // what is never given anything is rounded for itself
			}
		}
		ok, err := h.factor(ctx)
		if err != nil {
			return err
		}
		if ok {
			return h.invertFactor(ctx)
		}
	}
}

// A strip is how many columns, or rows, are computed together, so that what they read is read once for all of them.
const strip = 32

// factor makes the upper triangular R with H = R·Rᵀ of what is on and above the diagonal, from its last column to its
// first. It is false where there is none.
func (h *hessian) factor(ctx context.Context) (bool, error) {
	n := h.n
	for end := n; end > 0; end -= strip {
		begin := max(end-strip, 0)
		// What the columns behind this strip take off it, whatever is shared out: each number has its own sum.
		err := shareOut(ctx, end, func(i int) {
			of := h.upper[i*n:][:n]
			for j := max(begin, i); j < end; j++ {
				of[j] -= dot(of[end:], h.upper[j*n:][end:n])
			}
		})
		if err != nil {
			return false, err
		}
		for j := end - 1; j >= begin; j-- {
			row := h.upper[j*n:][:end]
			pivot := row[j] - dot(row[j+1:], row[j+1:])
			if !(pivot > 0) || math.IsInf(pivot, 0) {
				return false, nil
			}
			row[j] = math.Sqrt(pivot)
			for i := range j {
				of := h.upper[i*n:][:end]
				of[j] = (of[j] - dot(of[j+1:], row[j+1:])) / row[j]
			}
		}
	}
	return true, nil
}

// invertFactor makes U = R⁻¹ of R, in its place, from the last row to the first.
func (h *hessian) invertFactor(ctx context.Context) error {
	n := h.n
	factors := make([]float64, strip*n) // the rows of R of a strip
	for end := n; end > 0; end -= strip {
		begin := max(end-strip, 0)
		for i := begin; i < end; i++ {
			copy(factors[(i-begin)*n:][:n], h.upper[i*n:][:n])
			clear(h.upper[i*n+i : (i+1)*n])
		}
		const wide = 256
		err := shareOut(ctx, (n-begin+wide-1)/wide, func(tile int) {
			from := begin + tile*wide
			to := min(from+wide, n)
			for k := end; k < to; k++ {
				first := max(k, from)
				u := h.upper[k*n+first : k*n+to]
				for i := begin; i < end; i++ {
					addTimes(h.upper[i*n+first:i*n+to], u, factors[(i-begin)*n+k])
				}
			}
			for i := end - 1; i >= begin; i-- {
				for k := i + 1; k < min(end, to); k++ {
					first := max(k, from)
					addTimes(h.upper[i*n+first:i*n+to], h.upper[k*n+first:k*n+to], factors[(i-begin)*n+k])
				}
				inverse := 1 / factors[(i-begin)*n+i]
				for j := max(i, from); j < to; j++ {
					h.upper[i*n+j] *= -inverse
				}
				if from <= i && i < to {
					h.upper[i*n+i] = inverse
				}
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// weigh adds, for each of several rows d of n numbers in the order of columns, d·H·dᵀ to its sum.
func (h *hessian) weigh(rows [][]float64, sums []float64) {
	for i := range h.n {
		below := h.upper[i*h.n:][:i]
		for r, d := range rows {
			if d[i] != 0 {
				sums[r] += float64(d[i] * (float64(h.squares[i]*d[i]) + 2*dot(below, d)))
			}
		}
	}
}

// dot sums products in four parts, of which each has its order.
func dot(a, b []float64) float64 {
	b = b[:len(a)]
	var s0, s1, s2, s3 float64
	i := 0
	for ; i+4 <= len(a); i += 4 {
		x, y := a[i:i+4:i+4], b[i:i+4:i+4]
		s0 += float64(x[0] * y[0])
		s1 += float64(x[1] * y[1])
		s2 += float64(x[2] * y[2])
		s3 += float64(x[3] * y[3])
	}
	for ; i < len(a); i++ {
		s0 += float64(a[i] * b[i])
	}
	return (s0 + s1) + (s2 + s3)
}

// addTimes adds a multiple of numbers to others. The conversion keeps compilers from fusing, which would give other
// bits on other machines.
func addTimes(to, x []float64, factor float64) {
	x = x[:len(to)]
	for i := range to {
		to[i] += float64(factor * x[i])
	}
}

// shareOut calls do for all numbers below n, from several goroutines.
func shareOut(ctx context.Context, n int, do func(i int)) error {
	var next atomic.Int64
	var wait sync.WaitGroup
	for range min(goruntime.GOMAXPROCS(0), n) {
		wait.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				do(i)
			}
		})
	}
	wait.Wait()
	return ctx.Err()
}
