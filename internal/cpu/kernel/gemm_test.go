//go:build unix

package kernel

import (
	"math"
	"math/rand/v2"
	"syscall"
	"testing"
	"unsafe"
)

// guardedBytes returns memory that ends where a page begins that may not be read.
func guardedBytes(t *testing.T, bytes int) []byte {
	t.Helper()
	page := syscall.Getpagesize()
	size := (bytes + page - 1) / page * page
	all, err := syscall.Mmap(-1, 0, size+page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Munmap(all) })
	if err := syscall.Mprotect(all[size:], syscall.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	return all[size-bytes : size : size]
}

func guardedFloats(t *testing.T, rng *rand.Rand, n int) []float32 {
	x := unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(guardedBytes(t, 4*n)))), n)
	copy(x, random(rng, n))
	return x
}

// guardedElements returns random elements and what they are as floats.
func guardedElements(t *testing.T, rng *rand.Rand, e Element, n int) ([]byte, []float32) {
	if e == Pairs {
		e, n = BFloat16, 2*n
	}
	data, floats := guardedBytes(t, n*e.Bytes()), random(rng, n)
	for i, x := range floats {
		if e == Float32 {
			*(*float32)(unsafe.Pointer(&data[4*i])) = x
			continue
		}
		if e == Int8 {
			data[i] = byte(rng.IntN(256))
			floats[i] = float32(int8(data[i]))
			continue
		}
		bits := uint16(math.Float32bits(x) >> 16)
		if e == Float16 {
			bits = uint16(rng.IntN(0x3c00)) | uint16(rng.IntN(2))<<15 // below 1, with denormals
		}
		*(*uint16)(unsafe.Pointer(&data[2*i])) = bits
		floats[i] = widened(e, bits)
	}
	return data, floats
}

// rounded is widened with the first number that does not fit in the place of infinity.
func rounded(e Element, bits uint16) float64 {
	x := float64(widened(e, bits))
	switch {
	case !math.IsInf(x, 0):
		return x
	case e == BFloat16:
		return math.Copysign(math.Ldexp(1, 128), x)
	}
	return math.Copysign(1<<16, x)
}

func TestMultiply(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for _, s := range All() {
		for e := range elements {
			for height := 1; height <= s.MostRows(e); height++ {
				for _, depth := range []int{1, 3, 4, 17, 66} {
					lda, ldc, ldb := depth+rng.IntN(3), s.Columns+rng.IntN(3), s.Columns+rng.IntN(40)
					a := guardedFloats(t, rng, (height-1)*lda+depth)
					rows := depth
					if e == Pairs {
						rows = (depth + 1) / 2
					}
					b, floats := guardedElements(t, rng, e, (rows-1)*ldb+s.Columns)
					c := guardedFloats(t, rng, (height-1)*ldc+s.Columns)
					bias := guardedFloats(t, rng, max(height, s.Columns))
					p := &Panel{Data: b, Stride: ldb * len(b) / ((rows-1)*ldb + s.Columns), Element: e, Ahead: uintptr(rng.Uint32()), Jump: rng.IntN(1<<20) - 1<<19}
					for mode := Store; mode <= ColumnBias; mode++ {
						before := append([]float32(nil), c...)
						s.Multiply(height, depth, a, lda, p, c, ldc, mode, bias)
						for i, got := range c {
							r, j := i/ldc, i%ldc
							if j >= s.Columns {
								if got != before[i] {
									t.Fatal("wrote beside the tile")
								}
								continue
							}
							var want float32
							for k := range depth {
								x, at := a[r*lda+k], k*ldb+j
								if e == Pairs {
									at = 2*(k/2*ldb+j) + k%2
								}
								y := floats[at]
								want = float32(math.FMA(float64(x), float64(y), float64(want)))
							}
							switch mode {
							case Add:
								want += before[i]
							case RowBias:
								want += bias[r]
							case ColumnBias:
								want += bias[j]
							}
							if math.Abs(float64(got-want)) > 1e-6*max(1, math.Abs(float64(want))) {
								t.Fatalf("%s, element %d, %d rows, depth %d, mode %d: [%d %d] is %v, want %v",
									s.Name, e, height, depth, mode, r, j, got, want)
							}
						}
					}
				}
			}
		}
	}
}

func TestPanelsOfHalves(t *testing.T) {
	same := func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) || a != a && b != b }
	rng := rand.New(rand.NewPCG(9, 10))
	for _, s := range All() {
		for e := BFloat16; e <= Float16; e++ {
			// Every half there is, widened and rounded again.
			halves := make([]uint16, 1<<16)
			for i := range halves {
				halves[i] = uint16(i)
			}
			floats := make([]float32, len(halves))
			data := unsafe.Slice((*byte)(unsafe.Pointer(&halves[0])), 2*len(halves))
			s.Widen(e, len(halves)/s.Columns, data, 2*s.Columns, floats)
			again := make([]uint16, len(halves))
			s.Narrow(e, floats, again)
			for i, x := range floats {
				if want := widened(e, uint16(i)); !same(x, want) {
					t.Fatalf("%s: %#x is %v, want %v", s.Name, i, x, want)
				}
				if again[i] != uint16(i) && x == x || x != x && widened(e, again[i]) == widened(e, again[i]) {
					t.Fatalf("%s: %#x becomes %#x", s.Name, i, again[i])
				}
			}
			// Between two halves it is the nearer one, or the even one.
			for i := range floats {
				floats[i] = math.Float32frombits(rng.Uint32())
				if i%2 == 0 { // halfway for bfloat16
					floats[i] = math.Float32frombits(rng.Uint32()&^0xffff | 0x8000)
				}
			}
			s.Narrow(e, floats, again)
			for i, x := range floats {
				got := rounded(e, again[i])
				for _, other := range []uint16{again[i] - 1, again[i] + 1} {
					o := rounded(e, other)
					near, far := math.Abs(got-float64(x)), math.Abs(o-float64(x))
					if far < near || far == near && again[i]&1 == 1 {
						t.Fatalf("%s: %v becomes %v although %v is nearer", s.Name, x, got, o)
					}
				}
			}
			s.Widen(Pairs, 2*len(halves)/s.Columns/2-1, data, 4*s.Columns, floats)
			for i := range 2*len(halves)/s.Columns/2 - 1 {
				for j := range s.Columns {
					if x := floats[i*s.Columns+j]; !same(x, widened(BFloat16, halves[2*(i/2*s.Columns+j)+i%2])) {
						t.Fatalf("%s: element %d of row %d of pairs is %v", s.Name, j, i, x)
					}
				}
			}
			const count, lds, ldd = 3, 59, 11
			src, dst := halves[1000:1000+7*lds+16*count], make([]float32, (8*count-1)*ldd+8)
			s.TransposeHalf(e, count, src, lds, dst, ldd)
			words := make([]uint16, len(dst))
			s.TransposeWords(count, src, lds, words, ldd)
			both := make([]uint32, len(dst))
			s.TransposePairs(count, src, lds, both, ldd)
			for k := range 8 * count {
				for r := range 8 {
					if dst[k*ldd+r] != widened(e, src[r*lds+k]) || words[k*ldd+r] != src[r*lds+k] ||
						both[k*ldd+r] != uint32(src[r*lds+2*k])|uint32(src[r*lds+2*k+1])<<16 {
						t.Fatalf("element %d of row %d is %v and %#x", r, k, dst[k*ldd+r], words[k*ldd+r])
					}
				}
			}
		}
	}
}

func TestMultiplyUnit(t *testing.T) {
	rng := rand.New(rand.NewPCG(21, 22))
	var sets []*Set
	for _, s := range All() {
		dots := *s
		dots.WithoutTiles = true
		sets = append(sets, s, &dots)
	}
	for _, s := range sets {
		if !s.HasUnit() {
			continue
		}
		for _, blocks := range []int{1, 3} {
			for _, steps := range []int{1, 4, 11} {
				for _, same := range []bool{false, true} {
					rows, depth, ldc := UnitRows*blocks, UnitDepth*steps, UnitColumns+5
					a, b := random(rng, rows*depth), random(rng, depth*UnitColumns)
					u := &UnitBlock{Blocks: blocks, Steps: steps, ABlock: UnitRows * depth, Ldc: ldc}
					u.A = make([]uint16, len(a))
					for i, x := range a {
						u.A[i] = uint16(math.Float32bits(x) >> 16)
						a[i] = widened(BFloat16, u.A[i])
					}
					paired := make([]uint32, len(b)/2)
					s.PairUp(depth, b, paired)
					u.B = unsafe.Slice((*byte)(unsafe.Pointer(&paired[0])), 2*len(b))
					s.Widen(Pairs, depth, u.B, 4*s.Columns, b)
					u.C = guardedFloats(t, rng, (rows-1)*ldc+UnitColumns)
					before := append([]float32(nil), u.C...)
					if u.First, u.LdFirst = before, ldc; same {
						u.First, u.LdFirst = before[:UnitColumns], 0
					}
					u.Rows = rows - rng.IntN(UnitRows)
					s.MultiplyUnit(u)
					for i, got := range u.C {
						r, j := i/ldc, i%ldc
						if j >= UnitColumns {
							if got != before[i] {
								t.Fatal("wrote beside the tile")
							}
							continue
						}
						if r >= u.Rows {
							continue
						}
						want := float64(u.First[r*u.LdFirst+j])
						for k := range depth {
							at := ((r/UnitRows*steps+k/UnitDepth)*UnitRows+r%UnitRows)*UnitDepth + k%UnitDepth
							want += float64(a[at]) * float64(b[k*UnitColumns+j])
						}
						if math.Abs(float64(got)-want) > 1e-5 {
							t.Fatalf("%s: [%d %d] is %v, want %v", s.Unit(), r, j, got, want)
						}
					}
				}
			}
		}
	}
}

// TestUnitPanels: panels side by side have the bits of each by itself, with any number of rows, and nothing else is
// written.
func TestUnitPanels(t *testing.T) {
	rng := rand.New(rand.NewPCG(23, 24))
	for _, s := range All() {
		dots := *s
		dots.WithoutTiles = true
		for _, s := range []*Set{s, &dots} {
			if !s.HasUnit() {
				continue
			}
			for _, rows := range []int{1, 2, 5, 16, 17, 32} {
				const panels, steps = 3, 19
				depth, ldc := UnitDepth*steps, panels*UnitColumns+7
				a, b := make([]uint16, UnitRows*depth), make([]byte, 2*depth*panels*UnitColumns)
				for i := range a {
					a[i] = uint16(math.Float32bits(float32(rng.NormFloat64())) >> 16)
				}
				pairs := unsafe.Slice((*uint16)(unsafe.Pointer(&b[0])), len(b)/2)
				for i := range pairs {
					pairs[i] = uint16(math.Float32bits(float32(rng.NormFloat64())) >> 16)
				}
				first := random(rng, panels*UnitColumns)
				each, all := make([]float32, UnitRows*ldc), make([]float32, UnitRows*ldc)
				for i := range all {
					each[i], all[i] = 7, 7
				}
				u := UnitBlock{Blocks: 1, Rows: rows, Steps: steps, A: a, First: first, Ldc: ldc}
				one := u
				for p := range panels {
					one.B, one.First, one.C = b[p*2*depth*UnitColumns:], first[p*UnitColumns:], each[p*UnitColumns:]
					s.MultiplyUnit(&one)
				}
				u.Panels, u.B, u.C = panels, b, all
				s.MultiplyUnit(&u)
				for i := range all {
					if all[i] != each[i] || i%ldc >= panels*UnitColumns && all[i] != 7 {
						t.Fatalf("%s, %d rows: element %d is %v, by itself %v", s.Unit(), rows, i, all[i], each[i])
					}
				}
			}
		}
	}
}
