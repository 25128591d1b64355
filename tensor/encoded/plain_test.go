package encoded_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
	"github.com/optimem/optimem/tensor/encoded"
)

// The plain way to read codes: one number at a time, by what the types say of where it lies. What makes many at once is held
// against it.

// bitsAt are bits of an extent, from one on, of which the first of a byte is its least.
func bitsAt(e storage.Extent, at int64, bits int) uint8 {
	data, code := e.Source.(*memory).data, uint8(0)
	for i := range int64(bits) {
		code |= data[(at+i)/8] >> ((at + i) % 8) & 1 << i
	}
	return code
}

// floatAt is a number of an extent.
func floatAt(e storage.Extent, i int64, d tensor.DType) float32 {
	data := e.Source.(*memory).data
	switch d {
	case tensor.Int8:
		return float32(int8(data[i]))
	case tensor.Float16:
		return tensor.Float16ToFloat32(binary.LittleEndian.Uint16(data[2*i:]))
	case tensor.BFloat16:
		return tensor.BFloat16ToFloat32(binary.LittleEndian.Uint16(data[2*i:]))
	}
	return math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
}

func roundedTo(x float32, d tensor.DType) float32 {
	switch d {
	case tensor.Float16:
		return tensor.Float16ToFloat32(tensor.Float16FromFloat32(x))
	case tensor.BFloat16:
		return tensor.BFloat16ToFloat32(tensor.BFloat16FromFloat32(x))
	}
	return x
}

// plainWords is the number of a weight of words.
func plainWords(w encoded.Words, r, k int64) float32 {
	bits, codes := int64(w.Bits), int64(32/w.Bits)
	code := func(e storage.Extent, line, column, wide, i int64) uint8 {
		if w.Bits != 3 {
			return bitsAt(e, (line*wide+column)*32+i*bits, w.Bits)
		}
		c := uint8(0)
		for b := range int64(3) { // a code may be in two words
			c |= bitsAt(e, ((line*3+(i*3+b)/32)*wide+column)*32+(i*3+b)%32, 1) << b
		}
		return c
	}
	if w.Bits == 3 {
		codes = 32
	}
	turned := []int64{0, 4, 1, 5, 2, 6, 3, 7}
	var c uint8
	switch w.Order {
	case encoded.AlongColumns:
		c = code(w.Codes, k/codes, r, w.Rows, k%codes)
	case encoded.AcrossRows:
		c = code(w.Codes, k, r/codes, w.Rows/codes, turned[r%8])
	case encoded.InRows:
		c = code(w.Codes, r, k/codes, (w.Columns+codes-1)/codes, k%codes)
	default:
		c = w.Codes.Source.(*memory).data[r*w.Columns+k] ^ 0x80
	}
	groups := (w.Columns + w.Group - 1) / w.Group
	g := k / w.Group
	if w.Groups.Bytes > 0 {
		g = int64(binary.LittleEndian.Uint32(w.Groups.Source.(*memory).data[4*k:]))
	}
	at, nothing := g*w.Rows+r, w.Nothing
	if w.ByRow {
		at = r*groups + g
	}
	if w.Zeros.Bytes > 0 {
		switch {
		case w.ByRow:
			nothing = code(w.Zeros, r/codes, g, groups, r%codes)
		case w.Bits == 3:
			nothing = bitsAt(w.Zeros, (g*w.Rows+r)*3, 3)
		case w.Order == encoded.AcrossRows:
			nothing = code(w.Zeros, g, r/codes, w.Rows/codes, turned[r%8])
		default:
			nothing = code(w.Zeros, g, r/codes, (w.Rows+codes-1)/codes, r%codes)
		}
		nothing += w.ZeroLess
		if w.Bits != 3 {
			nothing &= uint8(1<<w.Bits - 1)
		}
	}
	return roundedTo(float32(int(c)-int(nothing))*floatAt(w.Scales, at, w.DType), w.DType)
}

// checkPlain holds what a matrix makes against numbers made one at a time.
func checkPlain(t *testing.T, name string, m encoded.Matrix, e *encoded.Encoding, columns int64, d tensor.DType,
	plain func(r, k int64) float32) {
	t.Helper()
	m.SlabRows = min(m.SlabRows, 37)
	source, _ := encoded.Make([]encoded.Matrix{m})
	whole := make([]byte, m.Rows*m.RowBytes)
	if err := source.ReadAt(t.Context(), whole, 0); err != nil {
		t.Fatal(err)
	}
	numbers := numbersOf(whole, m.Rows*columns, d, e)
	for i, x := range numbers {
		r, k := int64(i)/columns, int64(i)%columns
		if want := plain(r, k); math.Float32bits(want) != math.Float32bits(x) && (want == want || x == x) {
			t.Fatalf("%s: row %d column %d is %v, want %v", name, r, k, x, want)
		}
	}
}

// TestWordsAsPlain: words of every order, of every number of bits, with groups in order and in none.
func TestWordsAsPlain(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 1))
	for _, d := range []tensor.DType{tensor.Float16, tensor.BFloat16, tensor.Float32} {
		if testing.Short() && d != tensor.Float16 {
			continue
		}
		for _, c := range []struct {
			order encoded.Order
			bits  int
		}{
			{encoded.AlongColumns, 2}, {encoded.AlongColumns, 3}, {encoded.AlongColumns, 4}, {encoded.AlongColumns, 8},
			{encoded.AcrossRows, 4}, {encoded.InRows, 4}, {encoded.InRows, 8}, {encoded.SignedBytes, 8},
		} {
			for _, group := range []int64{16, 32, 96, 160} {
				for _, zeros := range []bool{false, true} {
					for _, mixed := range []bool{false, true} {
						rows := int64(32 * (1 + rng.IntN(2)))
						columns := int64(480)
						groups := (columns + group - 1) / group
						w := encoded.Words{
							Rows: rows, Columns: columns, Group: group, Bits: c.bits, Order: c.order, DType: d,
							Codes: stream(rng.Uint32(), rows*columns*int64(c.bits)/8), ByRow: c.order >= encoded.InRows,
							Scales: multiples(rng.Uint32(), d, groups*rows, 1.0/1024), Nothing: 1 << (c.bits - 1),
							ZeroLess: uint8(rng.IntN(2)),
						}
						if zeros && c.order != encoded.SignedBytes {
							w.Zeros = stream(rng.Uint32(), groups*rows*int64(c.bits)/8)
						}
						if mixed {
							index := make([]byte, 0, 4*columns)
							for range columns {
								index = binary.LittleEndian.AppendUint32(index, uint32(rng.IntN(int(groups))))
							}
							w.Groups = held(index)
						}
						m, e := w.Matrix()
						name := fmt.Sprintf("order %d, %d bits, group %d, zeros %v, mixed %v, %v", c.order, c.bits, group, zeros, mixed, d)
						checkPlain(t, name, m, e, columns, d, func(r, k int64) float32 { return plainWords(w, r, k) })
					}
				}
			}
		}
	}
}

// TestHalfQuadraticAsPlain: codes of every number of bits, of groups along rows and across them, also where a row has parts of groups.
func TestHalfQuadraticAsPlain(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 2))
	for _, d := range []tensor.DType{tensor.Float16, tensor.BFloat16, tensor.Float32} {
		if testing.Short() && d != tensor.Float16 {
			continue
		}
		for _, bits := range []int{8, 4, 3, 2, 1} {
			for _, across := range []bool{false, true} {
				for _, sizes := range [][3]int64{{48, 128, 64}, {64, 96, 16}, {40, 192, 48}, {64, 40, 80}, {96, 512, 128}, {32, 37, 8},
					{160, 1088, 80}, {96, 24, 96}} {
					rows, columns, group := sizes[0], sizes[1], sizes[2]
					groups := rows * columns / group
					q := encoded.HalfQuadratic{
						Rows: rows, Columns: columns, Group: group, Bits: bits, Across: across, DType: d,
						Scales: multiples(rng.Uint32(), d, groups, 1.0/1024), Zeros: multiples(rng.Uint32(), d, groups, 1.0/16),
					}
					size, ok := q.CodeBytes()
					if !ok {
						continue
					}
					q.Codes = stream(rng.Uint32(), size)
					wide, high := group, groups // of the matrix of groups
					if across {
						wide, high = groups, group
					}
					plain := func(r, k int64) float32 {
						e := r*columns + k
						g, row, column := e/group, e/wide, e%wide
						if across {
							g = e % groups
						}
						share := int64(8 / bits)
						lines := high / share
						if bits == 3 {
							share, lines = 10, (high+9)/10
						}
						at := row%lines*wide + column
						code := bitsAt(q.Codes, at*8+int64(bits)*(share-1-row/lines), bits)
						if bits == 3 {
							code = bitsAt(q.Codes, at*32+3*(9-row/lines), 3)
						}
						return roundedTo(roundedTo(float32(code)-floatAt(q.Zeros, g, d), d)*floatAt(q.Scales, g, d), d)
					}
					m, e := q.Matrix()
					name := fmt.Sprintf("%d by %d, group %d, %d bits, across %v, %v", rows, columns, group, bits, across, d)
					checkPlain(t, name, m, e, columns, d, plain)
				}
			}
		}
	}
}

// TestAffineAsPlain: codes of every number of bits and rule, with and without a sign, with zero points of every dtype.
func TestAffineAsPlain(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	const rows, columns = 40, 384
	for _, d := range []tensor.DType{tensor.Float16, tensor.BFloat16, tensor.Float32} {
		for _, bits := range []int{2, 4, 8} {
			for _, rule := range []encoded.Rule{encoded.OffsetInteger, encoded.OffsetFloat, encoded.MiddleFloat, encoded.PlainFloat} {
				if rule == encoded.MiddleFloat && bits == 2 { // tinygemm has 4 bits
					continue
				}
				for _, scale := range []tensor.DType{d, tensor.Float32} {
					for _, group := range []int64{16, 48, 128, columns} {
						signed := rng.IntN(2) == 1 && rule != encoded.PlainFloat // MLX has no sign
						zero, groups := scale, columns/group
						if rule == encoded.OffsetInteger {
							zero = tensor.Int8
						}
						a := encoded.Affine{
							Rows: rows, Columns: columns, Group: group, Bits: bits, Signed: signed, Rule: rule, DType: d,
							Codes: stream(rng.Uint32(), rows*columns*int64(bits)/8), ScaleDType: scale, ZeroDType: zero,
							Scales: multiples(rng.Uint32(), scale, rows*groups, 1.0/1024), ByGroup: rng.IntN(2) == 1,
						}
						a.Zeros = multiples(rng.Uint32(), zero, rows*groups, 1.0/64)
						if rule == encoded.OffsetInteger {
							low := 0
							if signed {
								low = -1 << (bits - 1)
							}
							a.Zeros = held(bytesOf(codesOf(rng.Uint32(), low, min(low+1<<bits-1, 127), rows*groups)))
						}
						plain := func(r, k int64) float32 {
							c := float32(bitsAt(a.Codes, (r*columns+k)*int64(bits), bits))
							middle := float32(int(1) << (bits - 1))
							if signed {
								c = float32((int(c) + 1<<(bits-1)) % (1 << bits)) // from the least on
								if rule != encoded.MiddleFloat {
									c -= middle
								}
							}
							at := r*groups + k/group
							if a.ByGroup {
								at = k/group*rows + r
							}
							s, z := floatAt(a.Scales, at, scale), floatAt(a.Zeros, at, zero)
							switch rule {
							case encoded.OffsetInteger:
								return roundedTo((c-z)*s, d)
							case encoded.OffsetFloat:
								return roundedTo(roundedTo(c-z, d)*s, d)
							case encoded.MiddleFloat:
								return roundedTo(roundedTo((c-middle)*s, d)+z, d)
							}
							return roundedTo(float32(c*s)+z, d)
						}
						m, e := a.Matrix()
						name := fmt.Sprintf("%d bits, sign %v, rule %d, group %d, scales %v, %v, by group %v", bits, signed, rule, group, scale, d,
							a.ByGroup)
						checkPlain(t, name, m, e, columns, d, plain)
					}
				}
			}
		}
	}
}

// TestBytesAsPlain: bytes with a sign, and of float8, with blocks and where none fit.
func TestBytesAsPlain(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	const rows = 40
	for _, d := range []tensor.DType{tensor.Float16, tensor.BFloat16, tensor.Float32} {
		for _, sizes := range [][2]int64{{256, 64}, {200, 128}, {40, 16}, {96, 96}, {200, 7}} {
			columns, group := sizes[0], sizes[1]
			groups := (columns + group - 1) / group
			for _, of127 := range []bool{false, true} {
				l := encoded.Signed8{
					Rows: rows, Columns: columns, Group: group, Codes: stream(rng.Uint32(), rows*columns), Of127: of127, DType: d,
					Scales: multiples(rng.Uint32(), tensor.Float32, rows*groups, 1.0/1024), Whole: group == columns && rng.IntN(2) == 0,
				}
				m, e := l.Matrix()
				checkPlain(t, fmt.Sprintf("%d columns, group %d, %v", columns, group, d), m, e, columns, d, func(r, k int64) float32 {
					at := r*groups + k/group
					if l.Whole {
						at = 0
					}
					x := floatAt(l.Codes, r*columns+k, tensor.Int8) * floatAt(l.Scales, at, tensor.Float32)
					if of127 {
						x = float32(x) * float32(7.874015718698502e-3)
					}
					return roundedTo(x, d)
				})
			}
			for _, scale := range []tensor.DType{tensor.Float32, tensor.BFloat16, tensor.UInt8} {
				for _, high := range []int64{1, 16, rows} {
					f := encoded.Floats8{
						Rows: rows, Columns: columns, BlockRows: high, BlockColumns: group, DType: d, ScaleDType: scale,
						Codes: stream(rng.Uint32(), rows*columns), Scales: multiples(rng.Uint32(), scale, (rows+high-1)/high*groups, 1.0/1024),
					}
					if scale == tensor.UInt8 {
						f.Scales = held(bytesOf(codesOf(rng.Uint32(), 110, 140, (rows+high-1)/high*groups)))
					}
					m, e := f.Matrix()
					checkPlain(t, fmt.Sprintf("float8, %d columns, %d by %d, %v", columns, high, group, d), m, e, columns, d,
						func(r, k int64) float32 {
							at := r/high*groups + k/group
							x := tensor.Float8ToFloat32(tensor.Float8E4M3FN, f.Codes.Source.(*memory).data[r*columns+k])
							if scale == tensor.UInt8 {
								return roundedTo(x*float32(math.Ldexp(1, int(f.Scales.Source.(*memory).data[at])-127)), d)
							}
							return roundedTo(x*floatAt(f.Scales, at, scale), d)
						})
				}
			}
		}
	}
}

// TestNestedAsPlain: codes of 4 bits of bitsandbytes, with nested scales and without.
func TestNestedAsPlain(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 5))
	const rows, columns = 40, 384
	for _, d := range []tensor.DType{tensor.Float16, tensor.BFloat16, tensor.Float32} {
		for _, kind := range []string{"NF4", "FP4"} {
			for _, block := range []int64{32, 64, 128} {
				for _, eight := range []bool{false, true} {
					w := encoded.Nested{
						Rows: rows, Columns: columns, Block: block, Kind: kind, Codes: stream(rng.Uint32(), rows*columns/2), DType: d,
						Scales: multiples(rng.Uint32(), tensor.Float32, rows*columns/block, 1.0/1024),
					}
					if eight {
						w.NestedBlock, w.Offset, w.Scales8 = 64, 0.3, stream(rng.Uint32(), rows*columns/block)
						for i := range w.Map {
							w.Map[i] = float32(i-100) / 128
						}
					}
					table, _ := encoded.TableOf(kind)
					m, e, ok := w.Matrix()
					if !ok {
						t.Fatal("no blocks")
					}
					checkPlain(t, fmt.Sprintf("%s of %d, nested %v, %v", kind, block, eight, d), m, e, columns, d, func(r, k int64) float32 {
						at := r*columns + k
						scale := floatAt(w.Scales, at/block, tensor.Float32)
						if eight {
							scale = floatAt(w.Scales, at/block/64, tensor.Float32)
							scale = float32(w.Map[w.Scales8.Source.(*memory).data[at/block]]*scale) + w.Offset
						}
						return roundedTo(table[bitsAt(w.Codes, at/2*8+(1-at%2)*4, 4)]*scale, d)
					})
				}
			}
		}
	}
}

// TestWideLinesAsPlain: lines of words of which a slab's rows have so few that each is read by itself.
func TestWideLinesAsPlain(t *testing.T) {
	const rows, columns, group = 4128, 96, 32
	for _, bits := range []int{2, 3, 4, 8} {
		w := encoded.Words{
			Rows: rows, Columns: columns, Group: group, Bits: bits, Order: encoded.AlongColumns, DType: tensor.Float16,
			Codes: stream(1, int64(rows*columns*bits/8)), Scales: multiples(2, tensor.Float16, rows*columns/group, 1.0/1024),
			Zeros: stream(3, int64(rows*columns/group*bits/8)), ZeroLess: 1,
		}
		m, e := w.Matrix()
		checkPlain(t, fmt.Sprint(bits, " bits"), m, e, columns, w.DType, func(r, k int64) float32 { return plainWords(w, r, k) })
		if bits == 4 {
			w = mixed(w)
			m, e = w.Matrix()
			checkPlain(t, "in no order", m, e, columns, w.DType, func(r, k int64) float32 { return plainWords(w, r, k) })
		}
	}
}
