package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// A function is what a map computes, in float64, and the error that is allowed: a part of the result, or a part of the
// operand's magnitude where results cancel. Both are 0 where the bits must be those of the float32 steps.
type function struct {
	f                  func(a, b, c float64) float64
	relative, absolute float64
}

func one(f func(float64) float64) func(a, b, c float64) float64 {
	return func(a, _, _ float64) float64 { return f(a) }
}

func f32(x float64) float64 { return float64(float32(x)) }

func gate(x float64) float64 { return math.Min(math.Max(f32(x+3), 0), 6) }

func pick(yes bool, a, b float64) float64 {
	if yes {
		return a
	}
	return b
}

// The parameters that all maps are tested with.
const p0, p1, p2 = -0.75, 1.25, 2.5

var functions = map[Map]function{
	MapExp:     {one(math.Exp), 1.5e-7, 1e-45},
	MapTanh:    {one(math.Tanh), 2.5e-7, 1e-45},
	MapSigmoid: {one(func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }), 2.5e-7, 1e-45},
	MapSilu:    {one(func(x float64) float64 { return x / (1 + math.Exp(-x)) }), 3e-7, 1e-43},
	MapGelu:    {one(func(x float64) float64 { return x / 2 * math.Erfc(-x/math.Sqrt2) }), 2e-7, 2e-7},
	MapGeluTanh: {one(func(x float64) float64 {
		return x / (1 + math.Exp(-2*math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x)))
	}), 3e-7, 4e-7},
	MapErf:  {one(math.Erf), 2.5e-7, 1e-45},
	MapMish: {one(func(x float64) float64 { return x * math.Tanh(math.Log1p(math.Exp(x))) }), 4e-7, 1e-43},
	MapElu: {one(func(x float64) float64 {
		return pick(x > 0, f32(x*p1), p0*math.Expm1(x*p2))
	}), 4e-7, 1e-44},
	MapHardSwish:   {one(func(x float64) float64 { return f32(x*gate(x)) / 6 }), 2e-7, 0},
	MapHardSigmoid: {one(func(x float64) float64 { return gate(x) / 6 }), 1.5e-7, 0},
	MapRelu:        {one(func(x float64) float64 { return pick(x < 0, 0, x) }), 0, 0},
	MapClamp:       {one(func(x float64) float64 { return math.Min(math.Max(x, p0), p1) }), 0, 0},
	MapLeakyRelu:   {one(func(x float64) float64 { return pick(x > 0, x, x*p0) }), 0, 0},
	MapNeg:         {one(func(x float64) float64 { return -x }), 0, 0},
	MapAbs:         {one(math.Abs), 0, 0},
	MapSqrt:        {one(math.Sqrt), 0, 0},
	MapRsqrt:       {one(func(x float64) float64 { return 1 / f32(math.Sqrt(x)) }), 0, 0},
	MapReciprocal:  {one(func(x float64) float64 { return 1 / x }), 0, 0},
	MapSquare:      {one(func(x float64) float64 { return x * x }), 0, 0},
	MapCube:        {one(func(x float64) float64 { return f32(x*x) * x }), 0, 0},
	MapFloor:       {one(math.Floor), 0, 0},
	MapCeil:        {one(math.Ceil), 0, 0},
	MapRound:       {one(math.RoundToEven), 0, 0},
	MapTrunc:       {one(math.Trunc), 0, 0},
	MapLog:         {one(math.Log), 2e-7, 0},
	MapSin:         {one(math.Sin), 2e-7, 1e-45},
	MapCos:         {one(math.Cos), 2e-7, 1e-45},
	MapAffine:      {one(func(x float64) float64 { return f32(x-p0)*p1 + p2 }), 1.2e-7, 0},
	MapAdd:         {func(a, b, _ float64) float64 { return a + b }, 0, 0},
	MapSub:         {func(a, b, _ float64) float64 { return a - b }, 0, 0},
	MapMul:         {func(a, b, _ float64) float64 { return a * b }, 0, 0},
	MapDiv:         {func(a, b, _ float64) float64 { return a / b }, 0, 0},
	MapAddScaled:   {func(a, b, _ float64) float64 { return a + p0*b }, 1.2e-7, 0},
	MapMaximum:     {func(a, b, _ float64) float64 { return pick(b > a || b != b, b, a) }, 0, 0},
	MapMinimum:     {func(a, b, _ float64) float64 { return pick(b < a || b != b, b, a) }, 0, 0},
	MapPrelu:       {func(a, b, _ float64) float64 { return pick(a > 0, a, a*b) }, 0, 0},
	MapGlu:         {func(a, b, _ float64) float64 { return a / (1 + math.Exp(-b)) }, 3e-7, 1e-37},
	MapAddProduct:  {func(a, b, c float64) float64 { return a + f32(f32(p0*b)*c) }, 0, 0},
	MapNormalize:   {func(a, b, c float64) float64 { return f32(f32(a-p0)*p1)*b + c }, 1.2e-7, 0},
	MapWhere:       {func(a, b, c float64) float64 { return pick(a != 0, b, c) }, 0, 0},
}

// numbers returns floats of all kinds, in no order.
func numbers(rng *rand.Rand, n int) []float32 {
	special := []float32{
		0, float32(math.Copysign(0, -1)), 1, -1, 0.5, -3, 3, 6, -6, 1e-45, -1e-45, 1e-39, -1e-39, 88.7, 88.73, 89, -87.4, -103.9,
		-104, 20, -20, 1e10, -1e10, 3e38, -3e38, float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)), 0.85, 1.2, 2.5,
		1.5, -2.5, 8388609, -0.3465, 0.3467,
	}
	x := make([]float32, n)
	for i := range x {
		switch i % 4 {
		case 0:
			x[i] = special[rng.IntN(len(special))]
		case 1:
			x[i] = math.Float32frombits(rng.Uint32())
		case 2:
			x[i] = float32(rng.NormFloat64() * 20)
		default:
			x[i] = float32(rng.NormFloat64())
		}
	}
	return x
}

// agree reports whether a result is what a function may give.
func (w function) agree(got float32, a, b, c float32) bool {
	want := w.f(float64(a), float64(b), float64(c))
	rounded := float32(want)
	if got == rounded || got != got && rounded != rounded {
		return true
	}
	d := math.Abs(float64(got) - want)
	limit := math.Max(math.Abs(want)*w.relative, w.absolute*math.Min(math.Max(1, math.Abs(float64(a))), 16))
	if math.Abs(want) < 2e-38 { // as fine as such numbers are
		limit = math.Max(limit, 3e-45)
	}
	if w.relative > 0 && math.Abs(want) > math.MaxFloat32 { // rounded on the way
		return math.IsInf(float64(got), 0) && math.Signbit(float64(got)) == math.Signbit(want)
	}
	return w.relative > 0 && d <= limit
}

func TestMaps(t *testing.T) {
	for _, s := range All() {
		for m := range maps {
			w, ok := functions[m]
			if !ok {
				t.Fatalf("map %d has no function to compare with", m)
			}
			rng := rand.New(rand.NewPCG(7, uint64(m)))
			for range 50 {
				const n = 1000
				a, b, c, to := numbers(rng, n), numbers(rng, n), numbers(rng, n), make([]float32, n)
				for i, v := range b {
					if m == MapGlu && v < -80 { // the gate has not all its bits
						b[i] = -80
					}
				}
				s.Map(m, to, a, b, c, p0, p1, p2)
				for i := range to {
					if !w.agree(to[i], a[i], b[i], c[i]) {
						t.Fatalf("%s: map %d of %v, %v, %v is %v, want %v", s.Name, m, a[i], b[i], c[i], to[i],
							float32(w.f(float64(a[i]), float64(b[i]), float64(c[i]))))
					}
				}
			}
		}
	}
}

// sameBits compares slices, NaN equal to NaN of any bits.
func sameBits(a, b []float32) bool {
	for i := range a {
		if math.Float32bits(a[i]) != math.Float32bits(b[i]) && (a[i] == a[i] || b[i] == b[i]) {
			return false
		}
	}
	return true
}

// TestMapPlaces: an element has the same bits wherever it stands, nothing else is written, an operand of one element
// stands for all, and the result may take an operand's place.
func TestMapPlaces(t *testing.T) {
	for _, s := range All() {
		for m := range maps {
			rng := rand.New(rand.NewPCG(9, uint64(m)))
			const most = 150
			a, b, c, whole := numbers(rng, most), numbers(rng, most), numbers(rng, most), make([]float32, most)
			s.Map(m, whole, a, b, c, p0, p1, p2)
			for n := 1; n < 140; n += 1 + n/20 {
				from := rng.IntN(most - n)
				to := make([]float32, n+2)
				to[0], to[n+1] = 7, 7
				x, y, z := guarded(t, a[from:from+n]), guarded(t, b[from:from+n]), guarded(t, c[from:from+n])
				s.Map(m, to[1:n+1], x, y, z, p0, p1, p2)
				if !sameBits(to[1:n+1], whole[from:from+n]) {
					t.Fatalf("%s: map %d of %d elements differs from that of more", s.Name, m, n)
				}
				if to[0] != 7 || to[n+1] != 7 {
					t.Fatalf("%s: map %d wrote beside %d elements", s.Name, m, n)
				}
				s.Map(m, x, x, y, z, p0, p1, p2)
				if !sameBits(x, to[1:n+1]) {
					t.Fatalf("%s: map %d in place differs", s.Name, m)
				}
			}
			const n = 37
			same := func(x float32) []float32 {
				all := make([]float32, n)
				for i := range all {
					all[i] = x
				}
				return all
			}
			to, want := make([]float32, n), make([]float32, n)
			s.Map(m, to, a[5:6], b[:n], c[6:7], p0, p1, p2)
			s.Map(m, want, same(a[5]), b[:n], same(c[6]), p0, p1, p2)
			if !sameBits(to, want) {
				t.Fatalf("%s: map %d of one element for all differs", s.Name, m)
			}
			s.Map(m, to, a[:n], b[5:6], c[:n], p0, p1, p2)
			s.Map(m, want, a[:n], same(b[5]), c[:n], p0, p1, p2)
			if !sameBits(to, want) {
				t.Fatalf("%s: map %d of one second element for all differs", s.Name, m)
			}
		}
	}
}

func TestRows(t *testing.T) {
	for _, s := range All() {
		rng := rand.New(rand.NewPCG(11, 12))
		for n := range 140 {
			x := guarded(t, random(rng, n))
			sum, squares, largest, smallest := 0.0, 0.0, math.Inf(-1), math.Inf(1)
			for _, v := range x {
				w := float64(v)
				sum += w
				squares += (w - 0.25) * (w - 0.25)
				largest, smallest = max(largest, w), min(smallest, w)
			}
			if got := s.Sum(x); !(math.Abs(got-sum) <= 1e-12) {
				t.Fatalf("%s: the sum of %d is %v, want %v", s.Name, n, got, sum)
			}
			if got := s.Squares(x, 0.25); !(math.Abs(got-squares) <= 1e-12) {
				t.Fatalf("%s: the squares of %d are %v, want %v", s.Name, n, got, squares)
			}
			if got := s.Max(x); float64(got) != largest {
				t.Fatalf("%s: the largest of %d is %v, want %v", s.Name, n, got, largest)
			}
			if got := s.Min(x); float64(got) != smallest {
				t.Fatalf("%s: the smallest of %d is %v, want %v", s.Name, n, got, smallest)
			}
			wide := make([]float64, n+1)
			for i := range wide {
				wide[i] = 1
			}
			s.AddWide(wide[:n], x)
			for i, v := range x {
				if wide[i] != 1+float64(v) || wide[n] != 1 {
					t.Fatalf("%s: element %d of %d is %v", s.Name, i, n, wide[i])
				}
			}
			to := guarded(t, make([]float32, n))
			got, want := s.ExpSum(to, x, 1.5, 0.5), 0.0
			for i, v := range x {
				e := math.Exp(f32(float64(v)*1.5 - 0.5))
				want += e
				if !(math.Abs(float64(to[i])-e) <= 1.5e-7*e) {
					t.Fatalf("%s: exponential %d of %d is %v, want %v", s.Name, i, n, to[i], e)
				}
			}
			if !(math.Abs(got-want) <= 1e-6*want) {
				t.Fatalf("%s: the sum of %d exponentials is %v, want %v", s.Name, n, got, want)
			}
			if n > 0 {
				x[rng.IntN(n)] = float32(math.NaN())
				if a, b := s.Max(x), s.Min(x); a == a || b == b {
					t.Fatalf("%s: NaN among %d: %v and %v", s.Name, n, a, b)
				}
			}
		}
	}
}

func TestWeighted(t *testing.T) {
	rng := rand.New(rand.NewPCG(13, 14))
	for _, s := range All() {
		for columns := 1; columns < 140; columns += 1 + columns/40 {
			const n, pad = 7, 3
			w, rows, sums := random(rng, n), guarded(t, random(rng, n*(columns+pad)-pad)), random(rng, columns)
			before := append([]float32(nil), sums...)
			s.Weighted(w, rows, columns+pad, sums)
			for j := range sums {
				want := float64(before[j])
				for i := range w {
					want += float64(w[i]) * float64(rows[i*(columns+pad)+j])
				}
				near(t, s.Name, sums[j], want, n)
			}
		}
	}
}

func TestHalves(t *testing.T) {
	rng := rand.New(rand.NewPCG(15, 16))
	for _, s := range All() {
		for _, e := range []Element{BFloat16, Float16} {
			bits, wide := make([]uint16, 1<<16), make([]float32, 1<<16)
			for i := range bits {
				bits[i] = uint16(i)
			}
			if got := s.WidenRow(e, wide, bits); got != len(bits) {
				t.Fatalf("%d of %d were converted", got, len(bits))
			}
			for i, x := range wide {
				if want := halfToFloat(e, bits[i]); x != want && (x == x || want == want) {
					t.Fatalf("%s: %04x is %v, want %v", s.Name, i, x, want)
				}
			}
			for _, x := range [][]float32{wide, numbers(rng, 1<<16)} {
				s.NarrowRow(e, bits, x)
				for i, v := range x {
					got, want := halfToFloat(e, bits[i]), nearestHalf(e, v)
					if got != want && (got == got || v == v) {
						t.Fatalf("%s: %v becomes %v, want %v", s.Name, v, got, want)
					}
				}
			}
		}
	}
}

// halfToFloat is the value of a half float.
func halfToFloat(e Element, bits uint16) float32 {
	if e == BFloat16 {
		return math.Float32frombits(uint32(bits) << 16)
	}
	exponent, fraction := int(bits>>10&31), float64(bits&1023)
	x := 0.0
	switch exponent {
	case 0:
		x = fraction * 0x1p-24
	case 31:
		x = math.Inf(1)
		if fraction != 0 {
			x = math.NaN()
		}
	default:
		x = math.Ldexp(1+fraction/1024, exponent-15)
	}
	return float32(math.Copysign(x, 1-2*float64(bits>>15)))
}

// nearestHalf rounds to the nearest half float, ties to even.
func nearestHalf(e Element, v float32) float32 {
	digits, least, most := 10, -14, 15
	if e == BFloat16 {
		digits, least, most = 7, -126, 127
	}
	x := float64(v)
	if x == 0 || math.IsInf(x, 0) || x != x {
		return v
	}
	_, exponent := math.Frexp(x)
	unit := math.Ldexp(1, max(exponent-1, least)-digits)
	x = math.RoundToEven(x/unit) * unit
	if math.Abs(x) >= math.Ldexp(1, most+1) {
		x = math.Inf(int(math.Copysign(1, x)))
	}
	return float32(x)
}

func BenchmarkMap(b *testing.B) {
	const n = 2048
	x, y, z := make([]float32, n), make([]float32, n), make([]float32, n)
	for i := range x {
		x[i], y[i] = float32(i%97)/16-3, float32(i%89)/17-2
	}
	for _, s := range All() {
		for m := range maps {
			b.Run(fmt.Sprintf("%s/%d", s.Name, m), func(b *testing.B) {
				for b.Loop() {
					s.Map(m, z, x, y, x, 1, 2, 3)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/element")
			})
		}
	}
}

func TestAddRows(t *testing.T) {
	rng := rand.New(rand.NewPCG(41, 42))
	for _, s := range All() {
		for range 200 {
			rows, columns := 1+rng.IntN(5), 1+rng.IntN(70)
			ldt, ldx, ldy := columns+rng.IntN(3), columns+rng.IntN(3), rng.IntN(2)*(columns+rng.IntN(3))
			x, y := guarded(t, numbers(rng, (rows-1)*ldx+columns)), guarded(t, numbers(rng, (rows-1)*ldy+columns))
			to := guarded(t, make([]float32, (rows-1)*ldt+columns))
			s.AddRows(rows, columns, to, ldt, x, ldx, y, ldy)
			for i, got := range to {
				var want float32
				if r, k := i/ldt, i%ldt; k < columns {
					want = x[r*ldx+k] + y[r*ldy+k]
				}
				if got != want && (got == got || want == want) {
					t.Fatalf("%s: %d rows of %d: element %d is %v, want %v", s.Name, rows, columns, i, got, want)
				}
			}
		}
	}
}

// TestRowsAreRows: the kernels of many rows compute the bits of those of one, and of NaN what they say.
func TestRowsAreRows(t *testing.T) {
	rng := rand.New(rand.NewPCG(43, 44))
	lowest, nan := float32(math.Inf(-1)), float32(math.NaN())
	same := func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) || a != a && b != b }
	for _, s := range All() {
		for range 300 {
			rows, columns := 1+rng.IntN(5), 1+rng.IntN(70)
			ldx, ldy := columns+rng.IntN(3), rng.IntN(2)*(columns+rng.IntN(3))
			x := numbers(rng, (rows-1)*ldx+columns)
			y := guarded(t, numbers(rng, (rows-1)*ldy+columns))
			for _, special := range []float32{lowest, nan} { // whole rows of it
				if rng.IntN(4) == 0 {
					row := x[rng.IntN(rows)*ldx:][:columns]
					for i := range row {
						row[i] = special
					}
				}
			}
			check := func(what string, got []float32, want func(row []float32, r int)) {
				t.Helper()
				whole := slices.Clone(x)
				for r := range rows {
					want(whole[r*ldx:][:columns:columns], r)
				}
				for i, v := range got {
					if !same(v, whole[i]) {
						t.Fatalf("%s: %s of %d rows of %d: element %d is %v, want %v", s.Name, what, rows, columns, i, v, whole[i])
					}
				}
			}
			copied := func() []float32 { return guarded(t, slices.Clone(x)) }
			for m := range Map(maps) {
				if m.operands() > 1 {
					continue
				}
				got := copied()
				s.MapRows(m, rows, columns, got, ldx, 0.5, 1.5, 2)
				check(fmt.Sprintf("map %d", m), got, func(row []float32, _ int) { s.Map(m, row, row, nil, nil, 0.5, 1.5, 2) })
			}
			top, sums := guarded(t, make([]float32, rows)), guarded(t, make([]float32, rows))
			largest := func(row []float32, r int) {
				want := lowest
				for _, v := range row {
					if v > want {
						want = v
					}
				}
				if top[r] != want {
					t.Fatalf("%s: the largest of row %d of %v is %v, want %v", s.Name, r, row, top[r], want)
				}
			}
			got := copied()
			s.MaxRows(top, columns, got, ldx)
			check("max", got, largest)
			s.AddMaxRows(top, columns, got, ldx, y, ldy, 0.75)
			check("scaled sum", got, func(row []float32, r int) {
				s.Map(MapAddScaled, row, y[r*ldy:][:columns], row, nil, 0.75, 0, 0)
				largest(row, r)
			})
			for r := range top {
				top[r] = float32(rng.NormFloat64())
			}
			got = copied()
			s.ScaleRows(top, columns, got, ldx, guarded(t, slices.Clone(x)), ldx)
			check("product", got, func(row []float32, r int) { s.Map(MapMul, row, row, top[r:][:1], nil, 0, 0, 0) })
			got = copied()
			s.ExpSumRows(sums, columns, got, ldx, 1.25, top)
			check("exponentials", got, func(row []float32, r int) {
				if want := float32(s.ExpSum(row, row, 1.25, top[r])); !same(sums[r], want) {
					t.Fatalf("%s: the sum of row %d is %v, want %v", s.Name, r, sums[r], want)
				}
			})
		}
	}
}

// TestNormRows: rows that are normalised together have the bits that their sums and squares, and the map, give them.
func TestNormRows(t *testing.T) {
	rng := rand.New(rand.NewPCG(47, 48))
	floats := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(rng.NormFloat64() + 3)
		}
		return guarded(t, x)
	}
	for _, s := range All() {
		for range 200 {
			rows, columns := 1+rng.IntN(5), 1+rng.IntN(100)
			if rng.IntN(2) == 0 {
				columns = (columns + 15) / 16 * 16
			}
			ldx, ldto := columns+rng.IntN(3), columns+rng.IntN(3)
			x, w, b := floats((rows-1)*ldx+columns), floats(columns), floats(columns)
			centred := rng.IntN(2) == 0
			if rng.IntN(2) == 0 {
				b = nil
			}
			to, want := guarded(t, make([]float32, (rows-1)*ldto+columns)), make([]float32, (rows-1)*ldto+columns)
			s.NormRows(rows, to, ldto, x, ldx, w, b, 1e-5, centred)
			for r := range rows {
				row, mean := x[r*ldx:][:columns], 0.0
				if centred {
					mean = s.Sum(row) / float64(columns)
				}
				scale, add := 1/math.Sqrt(s.Squares(row, mean)/float64(columns)+1e-5), b
				if b == nil {
					add = []float32{0}
				}
				s.Map(MapNormalize, want[r*ldto:][:columns], row, w, add, float32(mean), float32(scale), 0)
			}
			if !slices.Equal(to, want) {
				t.Fatalf("%s: %d rows of %d: %v, want %v", s.Name, rows, columns, to, want)
			}
		}
	}
}

// TestAngles: sines and cosines of angles near multiples of π/2, where little is left of them, and logarithms near 1.
func TestAngles(t *testing.T) {
	rng := rand.New(rand.NewPCG(31, 32))
	near := func(x float64, bits int) float32 {
		b := math.Float32bits(float32(x))
		return math.Float32frombits(b + uint32(rng.IntN(2*bits+1)-bits))
	}
	for _, s := range All() {
		for range 40 {
			angles, ones, to := make([]float32, 500), make([]float32, 500), make([]float32, 500)
			for i := range angles {
				angles[i] = near(float64(rng.IntN(25000)-12500)*math.Pi/2, 3)
				if ones[i] = near(1, 50); i%2 == 0 {
					angles[i], ones[i] = float32(rng.Float64()*40000-20000), near(1, 1<<22)
				}
			}
			for m, x := range map[Map][]float32{MapSin: angles, MapCos: angles, MapLog: ones} {
				s.Map(m, to, x, nil, nil, 0, 0, 0)
				for i := range to {
					if !functions[m].agree(to[i], x[i], 0, 0) {
						t.Fatalf("%s: map %d of %v is %v, want %v", s.Name, m, x[i], to[i], functions[m].f(float64(x[i]), 0, 0))
					}
				}
			}
		}
	}
}

// Exponentials of rows that are longer than what is summed at once are those of their own elements.
func TestLongExpSums(t *testing.T) {
	rng := rand.New(rand.NewPCG(53, 54))
	for _, s := range All() {
		for _, n := range []int{expSumElements, expSumElements + 1, 3*expSumElements - 7} {
			x := random(rng, n)
			to, want := make([]float32, n), 0.0
			got := s.ExpSum(to, x, 2, 0.25)
			for i, v := range x {
				e := math.Exp(f32(float64(v)*2 - 0.25))
				want += e
				if !(math.Abs(float64(to[i])-e) <= 1.5e-7*e) {
					t.Fatalf("%s: exponential %d of %d is %v, want %v", s.Name, i, n, to[i], e)
				}
			}
			if !(math.Abs(got-want) <= 1e-6*want) {
				t.Fatalf("%s: the sum of %d exponentials is %v, want %v", s.Name, n, got, want)
			}
			if s.ExpSum(x, x, 2, 0.25); !sameBits(x, to) {
				t.Fatalf("%s: %d exponentials in place have other bits", s.Name, n)
			}
		}
	}
}

// The best set is the one with the widest registers, and so are the best of those for convolutions.
func TestTheBestSetIsTheWidest(t *testing.T) {
	best, convs := Best(), ConvSets()
	for _, s := range All() {
		if best == nil || best.Lanes < s.Lanes {
			t.Errorf("%s is wider than the best set", s.Name)
		}
	}
	for _, s := range convs {
		if s.Columns > convs[0].Columns || convs[0].Vectors != best {
			t.Errorf("%s is wider than the first set, %s", s.Name, convs[0].Name)
		}
	}
}
