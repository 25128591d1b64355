//go:build unix

package kernel

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/optimem/optimem/tensor"
)

// halfFloats returns random numbers with the bits of halves, whose products with codes are exact.
func halfFloats(t *testing.T, rng *rand.Rand, n int) []float32 {
	list := guardedFloats(t, rng, n)
	for i, x := range list {
		list[i] = tensor.Float16ToFloat32(tensor.Float16FromFloat32(x))
	}
	return list
}

// randomTurn returns lines of codes whose memory ends where their last code, scale and minimum do.
func randomTurn(t *testing.T, rng *rand.Rand, like *Turn) *Turn {
	x := *like
	step := 16*x.Pieces + x.Gap
	x.Src = guardedBytes(t, (TurnedLines-1)*x.Stride+x.Steps*step-x.Gap)
	for i := range x.Src {
		x.Src[i] = byte(rng.Uint32())
	}
	scales := x.Steps * TurnedLines
	if x.Pairs {
		scales *= 2
	}
	x.Scales = halfFloats(t, rng, scales)
	if x.Round != Float32 || x.Minima != nil {
		x.Minima = halfFloats(t, rng, scales)
	}
	return &x
}

// TestCodes: products by codes have the bits of those by the numbers that Turn writes, and stay in their memory.
func TestCodes(t *testing.T) {
	rng := rand.New(rand.NewPCG(41, 42))
	table := TableOf([16]int8{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113})
	for _, s := range All() {
		for rows := 1; rows <= FewRows; rows++ {
			for _, like := range []Turn{
				{Steps: 1, Pieces: 1}, {Steps: 4, Pieces: 2, Gap: 2}, {Steps: 8, Pieces: 1, Minima: []float32{}}, {Steps: 16, Pieces: 1},
				{Steps: 3, Pieces: 1, Gap: 4, Table: table}, {Steps: 2, Pieces: 1, Table: table, Minima: []float32{}},
				{Steps: 4, Pieces: 2, Table: table, Minima: []float32{}, Pairs: true},
				{Steps: 2, Pieces: 4, Gap: 3, Table: table, Round: Float16}, {Steps: 3, Pieces: 2, Table: table, Round: BFloat16},
			} {
				if !s.HasCodes(rows, like.Round) {
					continue
				}
				like.Stride = like.Steps*(16*like.Pieces+like.Gap) + rng.IntN(40)
				depth := like.Steps * like.Pieces * 16
				if like.Table != nil {
					depth *= 2
				}
				panel := make([]float32, depth*s.Columns)
				words, room := guardedBytes(t, depth*s.Columns), guardedBytes(t, TurnedLines*Expanded)
				turns := make([]*Turn, s.CodesTurns())
				for i := range turns {
					x := randomTurn(t, rng, &like)
					x.Dst, x.Ldd = panel[i*TurnedLines:], s.Columns
					s.Turn(x)
					s.Words(x, i, words, room)
					turns[i] = x
				}
				lda := depth + rng.IntN(3)
				a := guardedFloats(t, rng, (rows-1)*lda+depth)
				m := newModes(t, rng, rows, s.Columns)
				m.compare(t, s.Name, func(c []float32, mode Mode) {
					s.Codes(rows, turns, words, a, lda, c, m.ldc, mode, m.bias, uintptr(rng.Uint32()), rng.IntN(1<<20))
				}, func(c []float32, mode Mode) {
					s.Multiply(rows, depth, a, lda, &Panel{Data: memory(panel), Stride: 4 * s.Columns}, c, m.ldc, mode, m.bias)
				})
			}
		}
	}
}

// TestWordsQ6K: the words of blocks of Q6_K are those of their codes as bytes, and nothing else is written or read.
func TestWordsQ6K(t *testing.T) {
	rng := rand.New(rand.NewPCG(43, 44))
	for _, s := range All() {
		if s.encoded.wordsQ6K == nil {
			continue
		}
		stride := 210 + rng.IntN(50)
		src := guardedBytes(t, (TurnedLines-1)*stride+192)
		for i := range src {
			src[i] = byte(rng.Uint32())
		}
		blocks := append(bytes.Clone(src), make([]byte, 18)...)
		codes := make([]byte, TurnedLines*Expanded)
		s.ExpandQ6K(TurnedLines, blocks, stride, codes)
		got, want := guardedBytes(t, WordBytes), make([]byte, WordBytes)
		for nth := range s.CodesTurns() {
			if !s.WordsQ6K(&Turn{Src: src, Stride: stride}, nth, got) {
				t.Fatalf("%s: no words", s.Name)
			}
			s.Words(&Turn{Steps: 16, Pieces: 1, Src: codes, Stride: Expanded}, nth, want, nil)
			if !bytes.Equal(got, want) {
				t.Errorf("%s: other words of lines %d", s.Name, nth)
			}
		}
	}
}

// TestCodesTwice: products by codes of two blocks, as lines or words, have the bits of those by one after the other, and
// what says that a scale is infinite writes nothing.
func TestCodesTwice(t *testing.T) {
	rng := rand.New(rand.NewPCG(45, 46))
	table := TableOf([16]int8{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113})
	for _, s := range All() {
		if !s.HasCodesTwice(Float32) {
			continue
		}
		for _, like := range []Turn{
			{Steps: 4, Pieces: 2, Table: table, Minima: []float32{}, Pairs: true}, {Steps: 8, Pieces: 1, Gap: 2, Table: table},
			{Steps: 8, Pieces: 2, Gap: 2}, {Steps: 16, Pieces: 1}, {Steps: 8, Pieces: 2, Minima: []float32{}, Five: true},
		} {
			lines := s.TakesLines(&like)
			if !lines && s.twice(&like, false) == nil {
				continue // without AVX512-VNNI
			}
			step := 16*like.Pieces + like.Gap
			block := like.Steps*step + rng.IntN(5)
			like.Stride = 2*block + rng.IntN(40)
			src := guardedBytes(t, (2*TurnedLines-1)*like.Stride+block+like.Steps*step-like.Gap)
			for i := range src {
				src[i] = byte(rng.Uint32())
				if like.Five {
					src[i] &= 31
				}
			}
			var of [4]struct {
				turn           Turn
				scales, minima [CodesMost * TurnedLines]float32
			}
			var turns []*Turn
			words, room := guardedBytes(t, 2*WordBytes+WordsAfter), make([]byte, TurnedLines*Expanded)
			write := func() {
				for i, x := range turns {
					s.Words(x, i%2, words[i/2*WordBytes:], room)
				}
			}
			for i := range of {
				x := &of[i]
				x.turn = like
				x.turn.Src = src[i/2*block+i%2*TurnedLines*like.Stride:]
				copy(x.scales[:], halfFloats(t, rng, len(x.scales)))
				copy(x.minima[:], halfFloats(t, rng, len(x.minima)))
				x.turn.Scales = x.scales[:]
				if like.Minima != nil {
					x.turn.Minima = x.minima[:]
				}
				turns = append(turns, &x.turn)
			}
			a := guardedFloats(t, rng, 2*Expanded)
			m := newModes(t, rng, 1, s.Columns)
			ahead, jump := uintptr(rng.Uint32()), rng.IntN(1<<20)
			if !lines {
				write()
			}
			m.compare(t, s.Name, func(c []float32, mode Mode) {
				if !s.CodesTwice(turns, lines, words, a, c, mode, m.bias, ahead, jump) {
					t.Errorf("%s: not done: %+v", s.Name, like)
				}
			}, func(c []float32, mode Mode) {
				write()
				s.Codes(1, turns[:2], words, a, 0, c, m.ldc, mode, m.bias, ahead, jump)
				s.Codes(1, turns[2:], words[WordBytes:], a[Expanded:], 0, c, m.ldc, Add, nil, ahead, jump)
			})
			if like.Table != nil || like.Minima != nil {
				continue
			}
			of[3].scales[like.Steps*TurnedLines-1] = float32(math.Inf(-1))
			c := guardedFloats(t, rng, s.Columns)
			before := slices.Clone(c)
			if s.CodesTwice(turns, lines, words, a, c, Store, nil, ahead, jump) || !slices.Equal(c, before) {
				t.Errorf("%s: done with an infinite scale: %+v", s.Name, like)
			}
		}
	}
}
