package kernel

import (
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"
)

// partsOf returns the parts of element k of a row of a left factor in parts.
func partsOf(a []uint16, row, k int) (parts [UnitParts]float32) {
	for p := range parts {
		parts[p] = widened(BFloat16, a[((k/UnitDepth*UnitParts+p)*UnitRows+row)*UnitDepth+k%UnitDepth])
	}
	return parts
}

// TestSplit: the parts of a float add up to it exactly, and those of infinities and NaN are these and nothing.
func TestSplit(t *testing.T) {
	rng := rand.New(rand.NewPCG(25, 26))
	inf, nan := float32(math.Inf(1)), math.Float32frombits(0x7f800001)
	for _, s := range All() {
		if s.Unit() != UnitTiles {
			continue
		}
		const steps, row = 5, 7
		x := random(rng, steps*UnitDepth)
		for i := range x {
			x[i] *= float32(math.Ldexp(1, rng.IntN(200)-100))
		}
		copy(x, []float32{0, float32(math.Copysign(0, -1)), 1, -1, math.MaxFloat32, -math.MaxFloat32, 1.0000001, inf, -inf, nan})
		a := make([]uint16, steps*UnitParts*UnitRows*UnitDepth)
		for i := range a {
			a[i] = 0x4040
		}
		s.Split(steps, x, a[row*UnitDepth:])
		for k, want := range x {
			parts := partsOf(a, row, k)
			sum := float64(parts[0]) + float64(parts[1]) + float64(parts[2])
			switch {
			case want != want:
				if parts[0] == parts[0] || parts[1] != 0 || parts[2] != 0 {
					t.Fatalf("%v: the parts of NaN are %v", s.Name, parts)
				}
			case sum != float64(want) || math.IsInf(sum, 0) && (parts[1] != 0 || parts[2] != 0):
				t.Fatalf("%v: the parts of %v are %v", s.Name, want, parts)
			}
			for p := range UnitParts {
				for other := range UnitRows {
					if at := ((k/UnitDepth*UnitParts+p)*UnitRows+other)*UnitDepth + k%UnitDepth; other != row && a[at] != 0x4040 {
						t.Fatalf("%v: row %d is written", s.Name, other)
					}
				}
			}
		}
	}
}

// TestRound: floats become what Narrow makes of them, at the places of a row of a left factor and nowhere else.
func TestRound(t *testing.T) {
	rng := rand.New(rand.NewPCG(29, 30))
	for _, s := range All() {
		if !s.HasUnit() {
			continue
		}
		const steps, row, untouched = 3, 5, 0x4040
		x := random(rng, steps*UnitDepth)
		copy(x, []float32{
			0, float32(math.Copysign(0, -1)), math.MaxFloat32, -math.MaxFloat32, 1 + 1.0/256, 1 + 3.0/256, 1e-40, -1e-40,
			float32(math.Inf(1)), float32(math.Inf(-1)), math.Float32frombits(0x7f800001), math.Float32frombits(0xffffffff),
		})
		want := make([]uint16, len(x))
		s.Narrow(BFloat16, x, want)
		a := make([]uint16, steps*UnitRows*UnitDepth)
		for i := range a {
			a[i] = untouched
		}
		s.Round(steps, x, a[row*UnitDepth:])
		for i, got := range a {
			step, k := i/(UnitRows*UnitDepth), i%UnitDepth
			switch mine := i/UnitDepth%UnitRows == row; {
			case mine && got != want[step*UnitDepth+k]:
				t.Fatalf("%s: %v becomes %#x, want %#x", s.Name, x[step*UnitDepth+k], got, want[step*UnitDepth+k])
			case !mine && got != untouched:
				t.Fatalf("%s: element %d is written", s.Name, i)
			}
		}
	}
}

// TestUnitParts: products of a left factor in parts are those of the sums of its parts, and of the same bits for any number
// of rows and panels.
func TestUnitParts(t *testing.T) {
	rng := rand.New(rand.NewPCG(27, 28))
	for _, s := range All() {
		if s.Unit() != UnitTiles {
			continue
		}
		for _, steps := range []int{1, 6} {
			const blocks, panels = 2, 3
			depth, ldc, rows := UnitDepth*steps, panels*UnitColumns, UnitRows*blocks
			x := random(rng, rows*depth)
			a := make([]uint16, UnitParts*len(x))
			block := UnitParts * UnitRows * depth
			for r := range rows {
				s.Split(steps, x[r*depth:], a[r/UnitRows*block+r%UnitRows*UnitDepth:])
			}
			pairs := make([]uint16, panels*depth*UnitColumns)
			for i := range pairs {
				pairs[i] = uint16(math.Float32bits(float32(rng.NormFloat64())) >> 16)
			}
			b := unsafe.Slice((*byte)(unsafe.Pointer(&pairs[0])), 2*len(pairs))
			first := random(rng, ldc)
			all := make([]float32, rows*ldc)
			u := UnitBlock{
				Blocks: blocks, Steps: steps, Parts: UnitParts, Panels: panels, A: a, ABlock: block, B: b, Streams: true,
				First: first, C: all, Ldc: ldc,
			}
			s.MultiplyUnit(&u)
			for i, got := range all {
				r, j := i/ldc, i%ldc
				want, size := float64(first[j]), math.Abs(float64(first[j]))
				for k := range depth {
					w := float64(widened(BFloat16, pairs[j/UnitColumns*depth*UnitColumns+(k/2*UnitColumns+j%UnitColumns)*2+k%2]))
					want += float64(x[r*depth+k]) * w
					size += math.Abs(float64(x[r*depth+k]) * w)
				}
				if math.Abs(float64(got)-want) > 1e-6*size {
					t.Fatalf("%s: [%d %d] is %v, want %v", s.Name, r, j, got, want)
				}
			}
			for _, some := range []int{1, 2, 16, 17} {
				few := make([]float32, UnitRows*ldc)
				one := u
				one.Blocks, one.Rows, one.A, one.C = 1, some, a[block:], few
				s.MultiplyUnit(&one)
				for i, got := range few[:some*ldc] {
					if want := all[UnitRows*ldc+i]; got != want {
						t.Fatalf("%s: %d rows: element %d is %v, of all %v", s.Name, some, i, got, want)
					}
				}
			}
		}
	}
}

// TestUnitLines: few rows by columns that lie one behind the other give the bits that they give by panels, for every number of rows, and
// touch nothing beside the sums.
func TestUnitLines(t *testing.T) {
	rng := rand.New(rand.NewPCG(31, 32))
	for _, s := range All() {
		if s.Unit() != UnitTiles {
			continue
		}
		for _, parts := range []int{1, UnitParts} {
			for _, steps := range []int{1, 3, 20} {
				for _, lines := range []int{16, 48, 64, 96, 192} {
					depth, ldb := UnitDepth*steps, UnitDepth*steps+8
					columns := (lines + UnitColumns - 1) / UnitColumns * UnitColumns
					w := make([]uint16, (lines-1)*ldb+depth)
					for i := range w {
						w[i] = uint16(math.Float32bits(float32(rng.NormFloat64())) >> 16)
					}
					pairs := make([]uint16, depth*columns)
					for j := range lines {
						for k := range depth {
							pairs[j/UnitColumns*depth*UnitColumns+(k/2*UnitColumns+j%UnitColumns)*2+k%2] = w[j*ldb+k]
						}
					}
					for _, rows := range []int{1, 2, 5, UnitFewRows} {
						a := make([]uint16, parts*UnitRows*depth)
						for r := range rows {
							if x := random(rng, depth); parts == 1 {
								s.Round(steps, x, a[r*UnitDepth:])
							} else {
								s.Split(steps, x, a[r*UnitDepth:])
							}
						}
						first, want := random(rng, columns), make([]float32, UnitRows*columns)
						s.MultiplyUnit(&UnitBlock{
							Blocks: 1, Rows: rows, Steps: steps, Parts: parts, Panels: columns / UnitColumns, A: a, First: first, C: want, Ldc: columns,
							B: unsafe.Slice((*byte)(unsafe.Pointer(&pairs[0])), 2*len(pairs)),
						})
						TurnFew(rows, steps, parts, a)
						const guard = 8
						c := make([]float32, lines*rows+guard)
						for i := range c {
							c[i] = first[min(i/rows, lines-1)]
						}
						last := c[lines*rows]
						s.MultiplyFew(&UnitLines{
							Rows: rows, Steps: steps, Parts: parts, Lines: lines, A: a, B: unsafe.Slice((*byte)(unsafe.Pointer(&w[0])), 2*len(w)), Ldb: 2 * ldb, C: c,
						})
						for i, got := range c {
							if i >= lines*rows {
								if got != last {
									t.Fatalf("%d rows, %d columns: what lies behind is written", rows, lines)
								}
							} else if want := want[i%rows*columns+i/rows]; got != want {
								t.Fatalf("%d parts, %d steps, %d rows: column %d of %d is %v, want %v", parts, steps, rows, i/rows, lines, got, want)
							}
						}
					}
				}
			}
		}
	}
}
