package bodies

import "math"

// The byte offsets of the fields of kernel.WinogradTile.
const (
	WinogradIn       = 8 * iota // what is transformed
	WinogradInRow               // bytes from row to row of it
	WinogradInStep              // from column to column
	WinogradOut                 // where to
	WinogradOutRow              //
	WinogradOutStep             //
	WinogradInNext              // from tile to tile
	WinogradOutNext             //
	WinogradCount               // tiles
	WinogradScratch             // a square of vectors
	WinogradFlags               // of the output: as for tiles of convolutions
	WinogradScale               //
	WinogradShift               //
	WinogradMask                //
	WinogradResidual            // like out
	WinogradLow                 //
	WinogradHigh                //
)

// A Transform is one dimension of a Winograd transform: In vectors become Out.
type Transform[R any] struct {
	In, Out int
	// Constants are those that the steps ask for.
	Constants []float64
	// Steps computes o from d, which it may overwrite.
	Steps func(a Assembler[R], d, o []R)
}

// Winograd returns the transforms of the input, of the output and of weights for tiles of m×m pixels and kernels of 3×3. The
// points are 0, ±1 and ∞ for m = 2, and 0, ±√½, ±√2 and ∞ for m = 4: with these, errors are a fourth of those with the
// usual 0, ±1, ±2 and ∞ at most, and half in the mean. That of weights for m = 4 is the caller's: which signs its constants
// have depends on the processor's instructions.
func Winograd[R any](weights4 Transform[R]) map[int][3]Transform[R] {
	return map[int][3]Transform[R]{
		2: {{4, 4, nil, input2[R]}, {4, 2, nil, output2[R]}, {3, 4, []float64{1. / 2}, weights2[R]}},
		4: {
			{6, 6, []float64{2.5, 2, 0.5, math.Sqrt2 / 2}, input4[R]}, {6, 4, []float64{2, 0.5, 4, math.Sqrt2 / 2}, output4[R]},
			weights4,
		},
	}
}

func input2[R any](a Assembler[R], d, o []R) {
	a.Sub(o[0], d[0], d[2])
	a.Add(o[1], d[1], d[2])
	a.Sub(o[2], d[2], d[1])
	a.Sub(o[3], d[1], d[3])
}

func output2[R any](a Assembler[R], m, o []R) {
	a.Add(o[0], m[1], m[2])
	a.Add(o[0], o[0], m[0])
	a.Sub(o[1], m[1], m[2])
	a.Sub(o[1], o[1], m[3])
}

func weights2[R any](a Assembler[R], g, o []R) {
	a.Move(o[0], g[0])
	a.Move(o[3], g[2])
	a.Add(g[0], g[0], g[2])
	half := a.Constant(0.5)
	a.Mul(g[0], g[0], half)
	a.Mul(g[1], g[1], half)
	a.Add(o[1], g[0], g[1])
	a.Sub(o[2], g[0], g[1])
}

func input4[R any](a Assembler[R], d, o []R) {
	half, two, sum, r := a.Constant(0.5), a.Constant(2), a.Constant(2.5), a.Constant(math.Sqrt2/2)
	a.Add(o[0], d[0], d[4])
	a.MulSub(o[0], d[2], sum) // d0 − 5/2·d2 + d4
	a.Add(o[5], d[5], d[1])
	a.MulSub(o[5], d[3], sum) // d1 − 5/2·d3 + d5
	a.Move(d[0], d[4])
	a.MulSub(d[0], d[2], two)  // d4 − 2·d2
	a.MulSub(d[4], d[2], half) // d4 − d2/2
	a.Move(d[2], d[3])
	a.MulSub(d[2], d[1], two)  // d3 − 2·d1
	a.MulSub(d[3], d[1], half) // d3 − d1/2
	a.Add(d[3], d[3], d[3])
	a.Move(o[1], d[0])
	a.MulAdd(o[1], d[2], r)
	a.Move(o[2], d[0])
	a.MulSub(o[2], d[2], r)
	a.Move(o[3], d[4])
	a.MulAdd(o[3], d[3], r)
	a.Move(o[4], d[4])
	a.MulSub(o[4], d[3], r)
}

func output4[R any](a Assembler[R], m, o []R) {
	two, half, four, r := a.Constant(2), a.Constant(0.5), a.Constant(4), a.Constant(math.Sqrt2/2)
	a.Add(o[2], m[1], m[2]) // s1
	a.Sub(o[1], m[1], m[2]) // d1
	a.Add(m[1], m[3], m[4]) // s2
	a.Sub(m[2], m[3], m[4]) // d2
	a.Add(o[0], m[0], o[2])
	a.Add(o[0], o[0], m[1])
	a.Mul(m[3], m[2], four)
	a.MulAdd(m[3], o[1], half)
	a.Move(o[3], m[5])
	a.MulAdd(o[3], m[3], r) // m5 + r·(d1/2 + 4·d2)
	a.MulAdd(o[1], m[2], two)
	a.Mul(o[1], o[1], r) // r·(d1 + 2·d2)
	a.Mul(o[2], o[2], half)
	a.MulAdd(o[2], m[1], two) // s1/2 + 2·s2
}
