package kernel

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/optimem/optimem/tensor"
)

// TestTurn: every set makes columns of lines as the loops of its comment do, to the bit.
func TestTurn(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	table := TableOf([16]int8{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113})
	for _, s := range All() {
		if s.encoded.bytes == nil {
			continue
		}
		for range 200 {
			x := Turn{
				Steps: 1 + rng.IntN(4), Pieces: 1 + rng.IntN(2), Gap: rng.IntN(5), Ldd: TurnedLines + rng.IntN(3)*16,
				Pairs: rng.IntN(2) == 0,
			}
			if rng.IntN(2) == 0 {
				x.Table = table
			}
			x.Pairs = x.Pairs && x.Table != nil
			step := 16*x.Pieces + x.Gap
			x.Stride = x.Steps*step + rng.IntN(40)
			x.Src = make([]byte, (TurnedLines-1)*x.Stride+x.Steps*step-x.Gap)
			for i := range x.Src {
				x.Src[i] = byte(rng.Uint32())
			}
			codes, each := 16*x.Pieces, TurnedLines
			if x.Table != nil {
				codes *= 2
			}
			if x.Pairs {
				each *= 2
			}
			floats := func(n int) []float32 {
				list := make([]float32, n)
				for i := range list {
					list[i] = rng.Float32() - 0.5
				}
				return list
			}
			x.Scales = floats(x.Steps * each)
			if rng.IntN(2) == 0 {
				x.Minima = floats(x.Steps * each)
			}
			if x.Table != nil && x.Minima != nil {
				x.Round = []Element{Float32, Float16, BFloat16}[rng.IntN(3)]
			}
			x.Dst = make([]float32, (x.Steps*codes-1)*x.Ldd+TurnedLines)
			s.Turn(&x)
			for line := range TurnedLines {
				for k := range x.Steps * codes {
					at, upper := k%codes, false
					if x.Table != nil {
						upper = at >= 16*x.Pieces
						at %= 16 * x.Pieces
					}
					b := x.Src[line*x.Stride+k/codes*step+at]
					code := int8(b)
					if x.Table != nil && upper {
						code = int8(table[b>>4])
					} else if x.Table != nil {
						code = int8(table[b&15])
					}
					scale := k/codes*each + line
					if x.Pairs && upper {
						scale += TurnedLines
					}
					want := x.Scales[scale] * float32(code)
					switch {
					case x.Round == Float16:
						want = tensor.Float16ToFloat32(tensor.Float16FromFloat32((float32(code) - x.Minima[scale]) * x.Scales[scale]))
					case x.Round == BFloat16:
						want = tensor.BFloat16ToFloat32(tensor.BFloat16FromFloat32((float32(code) - x.Minima[scale]) * x.Scales[scale]))
					case x.Minima != nil:
						want = float32(want) + x.Minima[scale]
					}
					if got := x.Dst[k*x.Ldd+line]; math.Float32bits(got) != math.Float32bits(want) {
						t.Fatalf("%s: line %d, number %d: %v, want %v: %+v", s.Name, line, k, got, want, x.Steps)
					}
				}
			}
		}
		halves := make([]byte, 15*20+2*34+4)
		for i := 0; i+1 < len(halves); i += 2 {
			binary.LittleEndian.PutUint16(halves[i:], tensor.Float16FromFloat32(rng.Float32()-0.5))
		}
		halves[1] = 0 // a denormal
		const apart = 5 * TurnedLines
		var got [apart + 3*TurnedLines]float32
		var room [3 * HeadsRoom]byte
		s.Heads(3, halves, 20, 34, room[:], got[:], apart)
		for i, x := range got[:3*TurnedLines] {
			at := i%TurnedLines*20 + i/TurnedLines*34
			want, second := halves[at:], tensor.Float16ToFloat32(binary.LittleEndian.Uint16(halves[at+2:]))
			if want := tensor.Float16ToFloat32(binary.LittleEndian.Uint16(want)); x != want || got[apart+i] != second {
				t.Errorf("%s: halves %d are %v and %v, want %v and %v", s.Name, i, x, got[apart+i], want, second)
			}
		}
	}
}

// TestExpand: the codes of blocks of 256 are those of package encoded, less scales and minima.
func TestExpand(t *testing.T) {
	rng := rand.New(rand.NewPCG(13, 14))
	for _, s := range All() {
		if s.encoded.bytes == nil {
			continue
		}
		const lines, stride = 3, 230
		src := make([]byte, lines*stride)
		for i := range src {
			src[i] = byte(rng.Uint32())
		}
		q5, q6 := make([]byte, lines*Expanded), make([]byte, lines*Expanded)
		s.ExpandQ5K(lines, src, stride, q5)
		s.ExpandQ6K(lines, src, stride, q6)
		for line := range lines {
			b := src[line*stride:]
			for i := range Expanded {
				g := i / 32
				want5 := b[48+g/2*32+i%32]>>(g%2*4)&15 | b[16+i%32]>>g&1<<4
				part, run, k := i/128, i%128/32, i%32
				want6 := b[part*64+run%2*32+k]>>(run/2*4)&15 | b[128+part*32+k]>>(run*2)&3<<4
				if q5[line*Expanded+i] != want5 || q6[line*Expanded+i] != want6-32 {
					t.Fatalf("%s: line %d, code %d: %d and %d, want %d and %d", s.Name, line, i,
						q5[line*Expanded+i], q6[line*Expanded+i], want5, want6-32)
				}
			}
		}
	}
}
