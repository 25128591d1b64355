// Package bodies has the arithmetic that both generators share: polynomials, the transforms of Winograd's algorithm,
// and functions that take the same steps on every processor. What differs between processors, such as powers of two and
// comparisons, is in their generators.
//
// It knows arithmetic. It does not know instructions, registers or memory.
package bodies

// An Assembler writes arithmetic of vectors in registers R.
type Assembler[R any] interface {
	Move(to, from R)
	Add(to, a, b R) // to = a + b
	Sub(to, a, b R) // to = a − b
	Mul(to, a, b R) // to = a·b
	// MulAdd and MulSub add a·b to to, or subtract it, and round once.
	MulAdd(to, a, b R)
	MulSub(to, a, b R)
	// Constant returns a register that holds a number in every lane.
	Constant(x float64) R
}

// Functions is an Assembler that has what functions are made of.
type Functions[R any] interface {
	Assembler[R]
	// Temporary returns a register that is free until what Mark returned before is released.
	Temporary() R
	Mark() int
	Release(mark int)
	// AddConstant, MinConstant and MaxConstant compute a + x and the smaller or larger of a and x; of these, a where it is NaN.
	AddConstant(to, a R, x float64)
	MinConstant(to, a R, x float64)
	MaxConstant(to, a R, x float64)
	// MulParameter multiplies with a parameter of the function.
	MulParameter(to, a R, parameter int)
	Absolute(to, x R)
	// NegativeAbsolute: to = −|x|.
	NegativeAbsolute(to, x R)
	// CopySign gives to the sign of x.
	CopySign(to, x R)
	// Quotient: to = a ÷ b for b between 1 and 1e30.
	Quotient(to, a, b R)
	// Polynomial: to = c[0] + c[1]·x + …, from the last term to the first.
	Polynomial(to, x R, c ...float64)
	// PositiveOr: to = yes where x is above 0, else no. NegativeOr: to = yes where x is below 0, else the number no.
	PositiveOr(to, x, yes, no R)
	NegativeOr(to, x, yes R, no float64)
	// ExpParts gives n and e^r − 1 for x = n·ln 2 + r, which it changes; Scale: to = p·2^n, rounded once where the result has
	// not all its bits, which changes n; ExpM1: to = e^x − 1 for x between −80 and 88, which it changes.
	ExpParts(x R) (n, e R)
	Scale(to, p, n R)
	ExpM1(to, x R)
}
