package kernel

import "math"

// A UnitScores is rows of scores of keys, in blocks of 32 keys, which become weights: for each row, over the keys that it
// sees, the exponentials of scores and mask over their sum, rounded to bfloat16; zero for the others. Distances are in
// bytes. Scores are overwritten.
type UnitScores struct {
	// Scores are [Blocks, Rows, 32]: rows of a block lie 128 bytes apart, blocks ScoresBlock.
	Scores      *float32
	ScoresBlock int
	// Y has the weights: rows of a block lie 64 bytes apart.
	Y      *uint16
	YBlock int
	// Mask is added, keys one behind the other and rows MaskRow apart; nil is none.
	Mask    *float32
	MaskRow int
	Rows    int
	// The first row sees Seen keys, from the first on, each other row SeenStep more than the one before, but no more than
	// Keys. Blocks is how many blocks have any.
	Seen, SeenStep, Keys, Blocks int
	// Unseen is what stands in place of one over the sum where that is zero: 0, or NaN.
	Unseen float32
	_      uint32
}

// Weigh makes weights of scores.
func (s *UnitSet) Weigh(t *UnitScores) { s.weigh(t) }

// PairRows writes pairs of pixels of 32 channels, a number of bytes apart in x, with their channels side by side.
func (s *UnitSet) PairRows(pairs int, x []uint16, step int, y []uint16) {
	if pairs == 0 {
		return
	}
	_, _ = x[(2*pairs-1)*step/2+UnitColumns-1], y[2*pairs*UnitColumns-1]
	s.pairRows(pairs, &x[0], step, &y[0])
}

func unitPairRowsGo(pairs int, x *uint16, step int, y *uint16) {
	for i := range pairs {
		a, b := halves(x, 2*i*step, UnitColumns), halves(x, (2*i+1)*step, UnitColumns)
		to := halves(y, 128*i, 2*UnitColumns)
		for k := range a {
			to[2*k], to[2*k+1] = a[k], b[k]
		}
	}
}

// leastScore is what the largest score counts as at least, so that rows that see nothing sum up to zero.
const leastScore = -math.MaxFloat32

func unitWeighGo(t *UnitScores) {
	for row := range t.Rows {
		seen := max(0, min(t.Seen+row*t.SeenStep, t.Keys))
		score := func(key int) *float32 { return &at(t.Scores, key/32*t.ScoresBlock+128*row+4*(key%32), 1)[0] }
		top := float32(leastScore)
		for key := range seen {
			if t.Mask != nil {
				*score(key) += at(t.Mask, row*t.MaskRow+4*key, 1)[0]
			}
			top = max(top, *score(key))
		}
		sum := 0.0
		for key := range seen {
			e := math.Exp(float64(*score(key) - top))
			if e < 1.2e-38 {
				e = 0
			}
			*score(key) = float32(e)
			sum += e
		}
		factor := t.Unseen
		if sum != 0 {
			factor = float32(1 / sum)
		}
		for key := range 32 * t.Blocks {
			v := float32(0)
			if key < seen {
				v = *score(key)
			}
			halves(t.Y, key/32*t.YBlock+64*row, 32)[key%32] = unitHalf(v * factor)
		}
	}
}
