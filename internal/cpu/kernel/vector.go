package kernel

import (
	"math"
	"sync"
)

//go:generate sh -c "cd _generate && go run . -family vector -out ../vector_amd64.s -stubs ../gen_vector_amd64.go -pkg kernel"

// A Map is a function of the elements at the same place of up to three rows a, b and c, with up to three parameters p.
type Map int

// The maps. Those without a comment are what PyTorch computes under the same name. NaN gives NaN.
const (
	MapExp Map = iota
	MapTanh
	MapSigmoid
	MapSilu
	MapGelu
	MapGeluTanh
	MapErf
	MapMish
	MapElu // a·p1 for a > 0, else p0·(e^(a·p2) − 1)
	MapHardSwish
	MapHardSigmoid
	MapRelu
	MapClamp     // to [p0, p1]
	MapLeakyRelu // a for a > 0, else a·p0
	MapNeg
	MapAbs
	MapSqrt
	MapRsqrt
	MapReciprocal
	MapSquare
	MapCube
	MapFloor
	MapCeil
	MapRound // ties to even
	MapTrunc
	MapLog
	MapSin
	MapCos
	MapAffine // (a − p0)·p1 + p2
	MapAdd
	MapSub
	MapMul
	MapDiv
	MapAddScaled // a + p0·b, rounded once
	MapMaximum
	MapMinimum
	MapPrelu      // a for a > 0, else a·b
	MapGlu        // a·sigmoid(b)
	MapAddProduct // a + (p0·b)·c
	MapNormalize  // ((a − p0)·p1)·b + c
	MapWhere      // b where a is not 0, else c
	maps
)

// operands is how many rows a map takes.
func (m Map) operands() int {
	switch {
	case m < MapAdd:
		return 1
	case m < MapAddProduct:
		return 2
	}
	return 3
}

type mapFunc = func(
	n int, to, x0 *float32, step0 int, x1 *float32, step1 int, x2 *float32, step2 int, p0, p1, p2 float32,
)

// vectors are the kernels over rows of floats.
type vectors struct {
	maps        [maps]mapFunc
	sum         func(n int, x *float32) float64
	squares     func(n int, x *float32, shift float64) float64
	max, min    func(n int, x *float32) float32
	expSum      func(n int, to, x *float32, p0, p1 float32) float32
	accumulate  func(n int, sums *float64, x *float32)
	widenHalf   [elements]func(n int, to *float32, x *uint16)
	narrowHalf  [elements]func(n int, to *uint16, x *float32)
	weighted    func(n int, w, rows *float32, ldr int, sums *float32, columns int)
	weightedOne func(n int, w, rows *float32, ldr int, sums *float32, columns int)
	addRows     func(rows, columns int, to *float32, ldt int, x *float32, ldx int, y *float32, ldy int)
	// What follows may be nil, and is then computed row by row.
	mapRows    [maps]func(rows, columns int, x *float32, ldx int, p0, p1, p2 float32)
	maxRows    func(rows, columns int, x *float32, ldx int, top *float32)
	addMaxRows func(rows, columns int, x *float32, ldx int, y *float32, ldy int, p0 float32, top *float32)
	expSumRows func(rows, columns int, x *float32, ldx int, p0 float32, top, sum *float32)
	scaleRows  func(rows, columns int, to *float32, ldto int, x *float32, ldx int, by *float32)
	normRows   func(
		rows, columns int, to *float32, ldto int, x *float32, ldx int, w, b *float32, stepb int, eps float64,
		centred int,
	)
}

// Map computes to[i] from a[i], b[i] and c[i], of which the map looks at as many as it has. An operand of one element
// stands for that element at every place. The result may be one of the operands. An element's bits do not depend on its
// place.
func (s *Set) Map(m Map, to, a, b, c []float32, p0, p1, p2 float32) {
	n := len(to)
	if n == 0 {
		return
	}
	operands := m.operands()
	x0, step0 := s.operand(a, n)
	x1, step1, x2, step2 := x0, step0, x0, step0
	if operands > 1 {
		x1, step1 = s.operand(b, n)
	}
	if operands > 2 {
		x2, step2 = s.operand(c, n)
	}
	if m == MapSin || m == MapCos {
		s.circular(m, to, a)
		return
	}
	s.maps[m](n, &to[0], x0, step0, x1, step1, x2, step2, p0, p1, p2)
}

// mostAngle is how large an angle the kernels of sine and cosine take.
const mostAngle = 20000

// circularPart is of how many elements sines are computed at a time, circularRooms the memory for as many angles.
const circularPart = 512

var circularRooms = sync.Pool{New: func() any { return new([circularPart]float32) }}

// circular computes sines or cosines: of larger angles in Go.
func (s *Set) circular(m Map, to, a []float32) {
	for i := 0; i < len(to); i += circularPart {
		part, x := to[i:min(i+circularPart, len(to))], a
		if len(a) > 1 {
			x = a[i:][:len(part)]
		}
		if s.Max(x) <= mostAngle && s.Min(x) >= -mostAngle {
			s.angles(m, part, x)
			continue
		}
		room := circularRooms.Get().(*[circularPart]float32) // the result may be the operand
		x = room[:copy(room[:], x)]
		s.angles(m, part, x)
		inGo := math.Sin
		if m == MapCos {
			inGo = math.Cos
		}
		for k := range part {
			if v := x[min(k, len(x)-1)]; !(v <= mostAngle && v >= -mostAngle) {
				part[k] = float32(inGo(float64(v)))
			}
		}
		circularRooms.Put(room)
	}
}

// angles is circular for small ones.
func (s *Set) angles(m Map, to, a []float32) {
	x, step := s.operand(a, len(to))
	s.maps[m](len(to), &to[0], x, step, x, step, x, step, 0, 0, 0)
}

// operand returns where a row begins and the bytes between two vectors of it.
func (s *Set) operand(x []float32, n int) (*float32, int) {
	if len(x) == 1 {
		return &x[0], 0
	}
	_ = x[n-1]
	return &x[0], 4 * s.Lanes
}

// Sum returns Σ x[i], summed in float64.
func (s *Set) Sum(x []float32) float64 {
	sum := 0.0
	whole := len(x) / s.Lanes * s.Lanes
	if whole > 0 {
		sum = s.sum(whole, &x[0])
	}
	for _, v := range x[whole:] {
		sum += float64(v)
	}
	return sum
}

// Squares returns Σ (x[i] − shift)², summed in float64.
func (s *Set) Squares(x []float32, shift float64) float64 {
	sum := 0.0
	whole := len(x) / s.Lanes * s.Lanes
	if whole > 0 {
		sum = s.squares(whole, &x[0], shift)
	}
	for _, v := range x[whole:] {
		d := float64(v) - shift
		sum += float64(d * d)
	}
	return sum
}

// Max returns the largest element, −∞ if there is none and NaN if one is.
func (s *Set) Max(x []float32) float32 {
	best := float32(math.Inf(-1))
	whole := len(x) / s.Lanes * s.Lanes
	if whole > 0 {
		best = s.max(whole, &x[0])
	}
	for _, v := range x[whole:] {
		if v > best || v != v {
			best = v
		}
	}
	return best
}

// Min returns the smallest element, ∞ if there is none and NaN if one is.
func (s *Set) Min(x []float32) float32 {
	best := float32(math.Inf(1))
	whole := len(x) / s.Lanes * s.Lanes
	if whole > 0 {
		best = s.min(whole, &x[0])
	}
	for _, v := range x[whole:] {
		if v < best || v != v {
			best = v
		}
	}
	return best
}

// expSumElements is how many exponentials are summed in float32.
const expSumElements = 2048

// ExpSum computes to[i] = exp(x[i]·scale − top), 0 where that is below e^−87, and returns the sum of that. to may be x.
func (s *Set) ExpSum(to, x []float32, scale, top float32) float64 {
	x = x[:len(to)]
	sum := 0.0
	for len(x) > 0 {
		n := min(len(x), expSumElements)
		sum += float64(s.expSum(n, &to[0], &x[0], scale, top))
		to, x = to[n:], x[n:]
	}
	return sum
}

// AddWide computes sums[i] += x[i].
func (s *Set) AddWide(sums []float64, x []float32) {
	x = x[:len(sums)]
	whole := len(x) / s.Lanes * s.Lanes
	if whole > 0 {
		s.accumulate(whole, &sums[0], &x[0])
	}
	for i := whole; i < len(x); i++ {
		sums[i] += float64(x[i])
	}
}

// WidenRow converts half floats as far as whole vectors go; it returns how many.
func (s *Set) WidenRow(e Element, to []float32, x []uint16) int {
	whole := len(to) / s.Lanes * s.Lanes
	if whole > 0 {
		_ = x[whole-1]
		s.widenHalf[e](whole, &to[0], &x[0])
	}
	return whole
}

// NarrowRow converts to half floats, rounded to nearest with ties to even, as far as whole vectors go; it returns how many.
func (s *Set) NarrowRow(e Element, to []uint16, x []float32) int {
	whole := len(x) / s.Lanes * s.Lanes
	if whole > 0 {
		_ = to[whole-1]
		s.narrowHalf[e](whole, &to[0], &x[0])
	}
	return whole
}

// Weighted computes sums[j] += Σ_i w[i]·rows[i·ldr + j], over i in order.
func (s *Set) Weighted(w, rows []float32, ldr int, sums []float32) {
	n, columns := len(w), len(sums)
	if n == 0 || columns == 0 {
		return
	}
	_ = rows[(n-1)*ldr+columns-1]
	j := 0
	for ; j+4*s.Lanes <= columns; j += 4 * s.Lanes {
		s.weighted(n, &w[0], &rows[j], 4*ldr, &sums[j], 0)
	}
	for ; j < columns; j += s.Lanes {
		s.weightedOne(n, &w[0], &rows[j], 4*ldr, &sums[j], min(s.Lanes, columns-j))
	}
}

// AddRows computes to[r][i] = x[r][i] + y[r][i] for rows that lie ldt, ldx and ldy floats apart. The result may be one of
// the operands.
func (s *Set) AddRows(rows, columns int, to []float32, ldt int, x []float32, ldx int, y []float32, ldy int) {
	if rows == 0 || columns == 0 {
		return
	}
	_, _, _ = to[(rows-1)*ldt+columns-1], x[(rows-1)*ldx+columns-1], y[(rows-1)*ldy+columns-1]
	s.addRows(rows, columns, &to[0], 4*ldt, &x[0], 4*ldx, &y[0], 4*ldy)
}

// MapRows is Map of one operand, in place, for rows that lie ldx floats apart.
func (s *Set) MapRows(m Map, rows, columns int, x []float32, ldx int, p0, p1, p2 float32) {
	if rows == 0 || columns == 0 {
		return
	}
	_ = x[(rows-1)*ldx+columns-1]
	if s.mapRows[m] != nil {
		s.mapRows[m](rows, columns, &x[0], 4*ldx, p0, p1, p2)
		return
	}
	for r := range rows {
		row := x[r*ldx:][:columns]
		s.Map(m, row, row, nil, nil, p0, p1, p2)
	}
}

// MaxRows finds the largest element that is not NaN of each of rows that lie ldx floats apart, −∞ where there is none.
func (s *Set) MaxRows(top []float32, columns int, x []float32, ldx int) {
	rows := len(top)
	if rows == 0 || columns == 0 {
		return
	}
	_ = x[(rows-1)*ldx+columns-1]
	if s.maxRows != nil {
		s.maxRows(rows, columns, &x[0], 4*ldx, &top[0])
		return
	}
	for r := range top {
		top[r] = s.maxNumber(x[r*ldx:][:columns])
	}
}

// AddMaxRows computes x[r][i] = scale·x[r][i] + y[r][i] for rows that lie ldx and ldy floats apart, and MaxRows of them.
func (s *Set) AddMaxRows(top []float32, columns int, x []float32, ldx int, y []float32, ldy int, scale float32) {
	rows := len(top)
	if rows == 0 || columns == 0 {
		return
	}
	_, _ = x[(rows-1)*ldx+columns-1], y[(rows-1)*ldy+columns-1]
	if s.addMaxRows != nil {
		s.addMaxRows(rows, columns, &x[0], 4*ldx, &y[0], 4*ldy, scale, &top[0])
		return
	}
	for r := range top {
		row := x[r*ldx:][:columns]
		s.Map(MapAddScaled, row, y[r*ldy:][:columns], row, nil, scale, 0, 0)
		top[r] = s.maxNumber(row)
	}
}

// maxNumber returns the largest element that is not NaN, −∞ where there is none.
func (s *Set) maxNumber(x []float32) float32 {
	best := s.Max(x)
	if best == best {
		return best
	}
	best = float32(math.Inf(-1))
	for _, v := range x {
		if v > best {
			best = v
		}
	}
	return best
}

// ExpSumRows is ExpSum, in place, of rows that lie ldx floats apart and have less than expSumElements: with a top of each, for
// a sum of each.
func (s *Set) ExpSumRows(sums []float32, columns int, x []float32, ldx int, scale float32, top []float32) {
	rows := len(sums)
	if rows == 0 || columns == 0 {
		return
	}
	_, _ = x[(rows-1)*ldx+columns-1], top[rows-1]
	if s.expSumRows != nil {
		s.expSumRows(rows, columns, &x[0], 4*ldx, scale, &top[0], &sums[0])
		return
	}
	for r := range sums {
		row := x[r*ldx:][:columns]
		sums[r] = s.expSum(columns, &row[0], &row[0], scale, top[r])
	}
}

// ScaleRows computes to[r][i] = x[r][i]·by[r] for rows that lie ldto and ldx floats apart. The result may be the operand.
func (s *Set) ScaleRows(by []float32, columns int, to []float32, ldto int, x []float32, ldx int) {
	rows := len(by)
	if rows == 0 || columns == 0 {
		return
	}
	_, _ = to[(rows-1)*ldto+columns-1], x[(rows-1)*ldx+columns-1]
	if s.scaleRows != nil {
		s.scaleRows(rows, columns, &to[0], 4*ldto, &x[0], 4*ldx, &by[0])
		return
	}
	for r := range by {
		s.Map(MapMul, to[r*ldto:][:columns], x[r*ldx:][:columns], by[r:][:1], nil, 0, 0, 0)
	}
}

// nought is what is added where nothing is.
var nought [16]float32

// NormRows computes to[r][i] = (x[r][i] − mean)·scale·w[i] + b[i] for rows that lie ldto and ldx floats apart, with scale =
// 1 ÷ √(mean of (x[r][i] − mean)² + eps), and 0 for the mean where it is not centred. b may be nil. The result may be x.
func (s *Set) NormRows(
	rows int, to []float32, ldto int, x []float32, ldx int, w, b []float32, eps float64, centred bool,
) {
	columns := len(w)
	if rows == 0 || columns == 0 {
		return
	}
	_, _ = to[(rows-1)*ldto+columns-1], x[(rows-1)*ldx+columns-1]
	if s.normRows != nil && columns%s.Lanes == 0 {
		add, step, middle := &nought[0], 0, 0
		if b != nil {
			_ = b[columns-1]
			add, step = &b[0], 4*s.Lanes
		}
		if centred {
			middle = 1
		}
		s.normRows(rows, columns, &to[0], 4*ldto, &x[0], 4*ldx, &w[0], add, step, eps, middle)
		return
	}
	if b == nil {
		b = nought[:1]
	}
	for r := range rows {
		row, n, mean := x[r*ldx:][:columns], float64(columns), 0.0
		if centred {
			mean = s.Sum(row) / n
		}
		scale := 1 / math.Sqrt(s.Squares(row, mean)/n+eps)
		s.Map(MapNormalize, to[r*ldto:][:columns], row, w, b, float32(mean), float32(scale), 0)
	}
}
