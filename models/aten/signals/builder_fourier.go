package signals

import (
	"fmt"
	"math"
	"slices"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/models/aten/cells"
	"github.com/optimem/optimem/models/aten/elements"
	"github.com/optimem/optimem/tensor"
)

// Fourier transforms are products with matrices of roots of unity: of the whole length where that is short, else of two
// factors of it, with a product element by element between them, and so on for the factors (Cooley and Tukey). The real
// and the imaginary parts of a number are two columns of a row.

// A fourierCount is which numbers a transform takes or gives: all of them, all of them real, or the first half of those
// that are conjugates of each other, n/2 + 1.
type fourierCount int

const (
	complexNumbers fourierCount = iota
	realNumbers
	halfNumbers
)

const (
	// wholeFourier is the length up to which a transform is one product, whose matrix takes 1 MiB of float32 at most.
	wholeFourier = 256
	// primeFourier is the same for a length that has no factors up to wholeFourier, whose matrix takes 64 MiB at most.
	primeFourier = 2048
	// maxFourier bounds the length of a transform.
	maxFourier = 1 << 20
)

// A fourier describes a transform of n numbers along the last dimension.
type fourier struct {
	n        int
	from, to fourierCount
	inverse  bool
	scale    float64
	dtype    tensor.DType // of the parts
}

// root returns the parts of exp(∓2πi·k/n).
func (f fourier) root(k int) (re, im float64) {
	sin, cos := math.Sincos(2 * math.Pi * float64(k%f.n) / float64(f.n))
	if !f.inverse {
		sin = -sin
	}
	return cos, sin
}

// matrix returns the weight of the linear layer that the transform is: a line for each part of its results.
func (f fourier) matrix() (values []float64, lines, columns int) {
	inputs, outputs := f.n, f.n
	if f.from == halfNumbers {
		inputs = f.n/2 + 1
	}
	if f.to == halfNumbers {
		outputs = f.n/2 + 1
	}
	for k := range outputs {
		var ofRe, ofIm []float64
		for j := range inputs {
			re, im := f.root(j * k)
			re, im = f.scale*re, f.scale*im
			switch {
			case f.from == realNumbers:
				ofRe, ofIm = append(ofRe, re), append(ofIm, im)
			case f.from == halfNumbers: // the conjugate of number j, where it is another, is number n − j
				if j > 0 && 2*j < f.n {
					re, im = 2*re, 2*im
				}
				if j == 0 || 2*j == f.n {
					im = 0 // the imaginary parts of these do not count
				}
				ofRe = append(ofRe, re, -im)
			default:
				ofRe, ofIm = append(ofRe, re, -im), append(ofIm, im, re)
			}
		}
		columns = len(ofRe)
		values, lines = append(values, ofRe...), lines+1
		if f.to != realNumbers {
			values, lines = append(values, ofIm...), lines+1
		}
	}
	return values, lines, columns
}

// transform returns the transform of x, a tensor of floats whose last dimension has the numbers, or, where they are
// complex, its pairs in one dimension with them.
func transform(b *cells.Builder, x *cells.Ref, f fourier) (*cells.Ref, error) {
	first := split(b, f.n)
	if first == 0 && f.n > primeFourier {
		return nil, b.Unsupported(
			"a Fourier transform of %d numbers, which is not a product of factors up to %d", f.n, wholeFourier,
		)
	}
	if first == 0 {
		weight, err := fourierWeight(b, f)
		if err != nil {
			return nil, err
		}
		if x, err = b.InRows(x); err != nil {
			return nil, err
		}
		return b.Emit1("linear", graph.Attrs{"exact": true}, b.Read(x), b.Read(weight), graph.Absent)
	}
	return transformInTwo(b, x, f, first)
}

// fourierWeight returns the matrix of a transform, the same for all that are alike.
func fourierWeight(b *cells.Builder, f fourier) (*cells.Ref, error) {
	if r, ok := b.Shared[f]; ok {
		return r, nil
	}
	if err := b.Charge(4*f.n*f.n, f.dtype); err != nil {
		return nil, err
	}
	values, lines, columns := f.matrix()
	r, err := b.Constants(values, f.dtype, lines, columns)
	if err != nil {
		return nil, err
	}
	if b.Shared == nil {
		b.Shared = make(map[any]*cells.Ref)
	}
	b.Shared[f] = r
	return r, nil
}

// split returns the factor of a length that its transform begins with, 0 where it is computed as a whole.
func split(b *cells.Builder, n int) int {
	best := 0
	for d := 2; d <= wholeFourier && n > wholeFourier; d++ {
		if n%d == 0 && (best == 0 || d+n/d < best+n/best) {
			best = d
		}
	}
	return best
}

// transformInTwo computes number p + P·q of N = P·Q results from numbers r + Q·s: transforms of P numbers, factors, and
// transforms of Q numbers.
func transformInTwo(b *cells.Builder, x *cells.Ref, f fourier, first int) (*cells.Ref, error) {
	second := f.n / first
	lead := x.Shape()[:x.Rank()-1]
	rank := len(lead)
	if f.from == halfNumbers {
		var err error
		if x, err = allOfHalf(b, x, f.n); err != nil {
			return nil, err
		}
		f.from = complexNumbers
	}
	parts := 1
	if f.from == complexNumbers {
		parts = 2
	}
	// [s r parts] to [r s·parts]
	lines, err := b.Reshape(x, slices.Concat(lead, []int{first, second, parts}))
	if err != nil {
		return nil, err
	}
	lines = b.Transpose(lines, rank, rank+1)
	if lines, err = b.Reshape(lines, slices.Concat(lead, []int{second, first * parts})); err != nil {
		return nil, err
	}
	inner := fourier{n: first, from: f.from, inverse: f.inverse, scale: 1, dtype: f.dtype}
	if lines, err = transform(b, lines, inner); err != nil {
		return nil, err
	}
	if err := b.Charge(2*f.n, f.dtype); err != nil {
		return nil, err
	}
	factors := make([]float64, 0, 2*f.n)
	for r := range second {
		for p := range first {
			re, im := f.root(r * p)
			factors = append(factors, f.scale*re, f.scale*im)
		}
	}
	twiddle, err := b.Constants(factors, f.dtype, second, first, 2)
	if err != nil {
		return nil, err
	}
	if twiddle, err = b.OfPairs(twiddle); err != nil {
		return nil, err
	}
	z, err := b.Reshape(lines, slices.Concat(lead, []int{second, first, 2}))
	if err != nil {
		return nil, err
	}
	if z, err = b.OfPairs(z); err != nil {
		return nil, err
	}
	if z, err = elements.Times(b, z, twiddle); err != nil {
		return nil, err
	}
	// [r p parts] to [p r·parts]
	lines = b.Transpose(b.Pairs(z), rank, rank+1)
	if lines, err = b.Reshape(lines, slices.Concat(lead, []int{first, second * 2})); err != nil {
		return nil, err
	}
	outer := fourier{n: second, inverse: f.inverse, scale: 1, dtype: f.dtype}
	if lines, err = transform(b, lines, outer); err != nil {
		return nil, err
	}
	// [p q parts] to [q p parts]
	if lines, err = b.Reshape(lines, slices.Concat(lead, []int{first, second, 2})); err != nil {
		return nil, err
	}
	if lines, err = b.Reshape(b.Transpose(lines, rank, rank+1), slices.Concat(lead, []int{f.n, 2})); err != nil {
		return nil, err
	}
	switch f.to {
	case realNumbers:
		return b.SelectAt(lines, rank+1, 0), nil
	case halfNumbers:
		lines = b.Slice(lines, rank, 0, f.n/2+1, 1)
	}
	return b.Reshape(lines, slices.Concat(lead, []int{lines.Shape()[rank] * 2}))
}

// allOfHalf returns all n numbers of which the second half are the conjugates of the first.
func allOfHalf(b *cells.Builder, x *cells.Ref, n int) (*cells.Ref, error) {
	rank := x.Rank() - 1
	half, err := b.Reshape(x, slices.Concat(x.Shape()[:rank], []int{n/2 + 1, 2}))
	if err != nil {
		return nil, err
	}
	if half, err = b.OfPairs(half); err != nil {
		return nil, err
	}
	rest, err := b.Apply("flip", graph.Attrs{"dims": []int{rank}}, b.Pairs(b.Slice(half, rank, 1, (n+1)/2, 1)))
	if err != nil {
		return nil, err
	}
	if rest, err = b.OfPairs(rest); err != nil {
		return nil, err
	}
	if rest, err = elements.Conjugate(b, rest); err != nil {
		return nil, err
	}
	all, err := b.JoinAlong(rank, half, rest)
	if err != nil {
		return nil, err
	}
	return b.Reshape(b.Pairs(all), slices.Concat(x.Shape()[:rank], []int{2 * n}))
}

// fourierAlong returns the transform of x along dimension d: of n numbers, for which x is cut or has zeros after it.
func fourierAlong(b *cells.Builder, x *cells.Ref, d int, f fourier) (*cells.Ref, error) {
	var err error
	if f.from == realNumbers && cells.IsComplex(x.DType()) {
		return nil, fmt.Errorf("a transform of real numbers of %v", x.DType())
	}
	if f.from != realNumbers && !cells.IsComplex(x.DType()) {
		if x, err = b.Cast(x, cells.ComplexOf(cells.FloatResult(x.DType()))); err != nil {
			return nil, err
		}
	}
	f.dtype = cells.FloatResult(x.DType())
	if cells.IsComplex(x.DType()) {
		f.dtype = cells.PartOf(x.DType())
	} else if x, err = b.Cast(x, f.dtype); err != nil {
		return nil, err
	}
	if f.dtype.IsHalf() {
		return nil, b.Unsupported("a Fourier transform of %v", f.dtype)
	}
	want := f.n
	if f.from == halfNumbers {
		want = f.n/2 + 1
	}
	if f.n < 1 {
		return nil, fmt.Errorf("a Fourier transform of %d numbers", f.n)
	}
	if f.n > maxFourier {
		return nil, b.Unsupported("a Fourier transform of %d numbers", f.n)
	}
	if x, err = fitted(b, x, d, want); err != nil {
		return nil, err
	}
	rank := x.Rank()
	rows := x
	if d != rank-1 {
		rows = b.Transpose(x, d, rank-1)
	}
	if cells.IsComplex(rows.DType()) {
		rows = b.Pairs(rows)
		if rows, err = b.Reshape(rows, slices.Concat(rows.Shape()[:rank-1], []int{2 * want})); err != nil {
			return nil, err
		}
	}
	out, err := transform(b, rows, f)
	if err != nil {
		return nil, err
	}
	if f.to != realNumbers {
		lead := out.Shape()[:rank-1]
		if out, err = b.Reshape(out, slices.Concat(lead, []int{out.Shape()[rank-1] / 2, 2})); err != nil {
			return nil, err
		}
		if out, err = b.OfPairs(out); err != nil {
			return nil, err
		}
	}
	if d != rank-1 {
		out = b.Transpose(out, d, rank-1)
	}
	return out, nil
}

// fitted returns x with n numbers along dimension d: the first ones, or with zeros after them.
func fitted(b *cells.Builder, x *cells.Ref, d, n int) (*cells.Ref, error) {
	have := x.Shape()[d]
	if n <= have {
		return b.Slice(x, d, 0, n, 1), nil
	}
	shape := slices.Clone(x.Shape())
	shape[d] = n - have
	zeros, err := b.Full(0, x.DType(), shape)
	if err != nil {
		return nil, err
	}
	return b.JoinAlong(d, x, zeros)
}
