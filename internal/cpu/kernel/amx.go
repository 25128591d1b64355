package kernel

// The sizes of what a matrix unit multiplies: blocks of 32 rows by 32 columns, in steps of 32 of the depth.
const (
	UnitRows    = 32
	UnitColumns = 32
	UnitDepth   = 32
	// UnitParts is how many numbers of bfloat16 any float32 is the sum of.
	UnitParts = 3
)

// What multiplies factors of bfloat16: a matrix unit, or vectors of pairs where there is none.
const (
	UnitTiles = "amx"
	UnitDots  = "avx512bf16"
)

// Unit returns what the set multiplies factors of bfloat16 with, UnitTiles or UnitDots, "" where it has neither or the
// system does not let the process use it.
func (s *Set) Unit() string {
	switch {
	case !s.unit || s.WithoutUnit:
		return ""
	case !s.WithoutTiles && tilesAllowed():
		return UnitTiles
	case hasDots():
		return UnitDots
	}
	return ""
}

// HasUnit reports whether the set multiplies factors of bfloat16.
func (s *Set) HasUnit() bool { return s.Unit() != "" }

// A UnitBlock is what a matrix unit multiplies, some blocks of rows one below the other:
//
//	c[r][j] = first[r][j] + Σ_k a[r][k]·b[k][j]
//
// Sums are float32 and run over k in order, two products at a time. Denormal factors count as zero.
type UnitBlock struct {
	// Blocks is the number of blocks of rows, Steps that of the depth.
	Blocks, Steps int
	// Rows is how many rows are wanted, 0 for all of the blocks'; there is memory for all.
	Rows int
	// Panels is how many blocks of columns there are side by side; 0 is 1.
	Panels int
	// A is the left factor: each block has, for each step, 32 rows of 32 elements one behind the other; blocks lie ABlock
	// elements apart.
	A      []uint16
	ABlock int
	// Parts is how many numbers an element of the left factor is the sum of: 0 is 1, and tiles take UnitParts, too. Then A
	// has, for each step, the 32 rows of each part, one part behind the other, and sums have the parts of a step in order.
	Parts int
	// B is the right one as Pairs, panel by panel. Streams says that what comes next lies behind it, and may be fetched.
	B       []byte
	Streams bool
	// First is what is added; rows lie LdFirst floats apart, 0 for the same in all rows.
	First   []float32
	LdFirst int
	// C is the result, whose rows lie Ldc floats apart. It may be First.
	C   []float32
	Ldc int
}

// rows is how many rows are wanted.
func (u *UnitBlock) rows() int {
	if u.Rows > 0 {
		return min(u.Rows, UnitRows*u.Blocks)
	}
	return UnitRows * u.Blocks
}

// panels is how many panels there are.
func (u *UnitBlock) panels() int { return max(u.Panels, 1) }

// parts is how many parts the left factor has.
func (u *UnitBlock) parts() int { return max(u.Parts, 1) }

// panelBytes is how far panels of the right factor lie apart.
func (u *UnitBlock) panelBytes() int { return u.Steps * 2 * UnitDepth * UnitColumns }

// MultiplyUnit computes with the set's unit.
func (s *Set) MultiplyUnit(u *UnitBlock) {
	last, width := UnitRows*u.Blocks-1, u.panels()*UnitColumns
	_ = u.A[(u.Blocks-1)*u.ABlock+u.parts()*u.Steps*UnitRows*UnitDepth-1]
	_, _, _ = u.B[u.panels()*u.panelBytes()-1], u.First[last*u.LdFirst+width-1], u.C[last*u.Ldc+width-1]
	if s.Unit() == UnitTiles {
		multiplyTiles(u)
	} else {
		multiplyDots(u)
	}
}

// UnitFewRows is how many rows a tile has: so many are computed by themselves, and UnitLines has no more.
const UnitFewRows = UnitRows / 2

// A UnitLines is a UnitBlock of few rows whose right factor lies column behind column, as a weight does in its file, and takes no
// turning: sums are those of MultiplyUnit, bit for bit. It takes a set with tiles.
type UnitLines struct {
	// Rows is 1 to UnitFewRows; Steps and Parts are those of UnitBlock, and Lines is how many columns there are, in sixteens.
	Rows, Steps, Parts, Lines int
	// A is the left factor of one UnitBlock, behind [TurnFew].
	A []uint16
	// B is the right factor, of which all that lies between columns may be fetched; they lie Ldb bytes apart.
	B   []byte
	Ldb int
	// C has the sums of each column, Rows of them: what they begin with, and then the result.
	C []float32
}

// TurnFew puts the rows of the one block of a left factor, rows of them, behind themselves as UnitLines reads them: the same pair of
// elements of all rows side by side.
func TurnFew(rows, steps, parts int, a []uint16) {
	const block = UnitRows * UnitDepth
	for at := 0; at < steps*parts*block; at += block {
		from, to := a[at:at+block/2], a[at+block/2:at+block]
		for i := range rows {
			for pair := range UnitDepth / 2 {
				copy(to[2*(pair*UnitFewRows+i):][:2], from[i*UnitDepth+2*pair:])
			}
		}
	}
}

// MultiplyFew computes with the set's tiles.
func (s *Set) MultiplyFew(u *UnitLines) {
	if s.Unit() != UnitTiles || u.Lines%UnitFewRows != 0 || u.Rows < 1 || u.Rows > UnitFewRows {
		panic("BUG: no such product")
	}
	if u.Lines == 0 {
		return
	}
	_ = u.A[u.Parts*u.Steps*UnitRows*UnitDepth-1]
	_, _ = u.B[(u.Lines-1)*u.Ldb+2*u.Steps*UnitDepth-1], u.C[u.Lines*u.Rows-1]
	multiplyLines(u)
}

// Split writes floats as sums of UnitParts numbers of bfloat16, the largest first, which are exact unless one is denormal: UnitDepth
// of them for each step, part by part as UnitBlock has them, dst being the left factor from a row on. Infinities and NaN are
// their first part. It takes a set with tiles.
func (s *Set) Split(steps int, src []float32, dst []uint16) {
	if steps == 0 {
		return
	}
	_, _ = src[steps*UnitDepth-1], dst[(steps*UnitParts-1)*UnitRows*UnitDepth+UnitDepth-1]
	splitFloats(steps, &src[0], &dst[0])
}

// Round rounds floats to bfloat16, to nearest with ties to even: UnitDepth of them for each step, as UnitBlock has them where there
// is one part, dst being the left factor from a row on. It takes a set with a unit.
func (s *Set) Round(steps int, src []float32, dst []uint16) {
	if steps == 0 {
		return
	}
	_, _ = src[steps*UnitDepth-1], dst[(steps-1)*UnitRows*UnitDepth+UnitDepth-1]
	roundFloats(steps, &src[0], &dst[0])
}

// PairUp rounds rows of Columns floats to BFloat16 and puts pairs of them side by side. rows is even.
func (s *Set) PairUp(rows int, src []float32, dst []uint32) {
	if rows == 0 {
		return
	}
	_, _ = src[rows*s.Columns-1], dst[rows/2*s.Columns-1]
	s.pairUp(rows, &src[0], &dst[0])
}
