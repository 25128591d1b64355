//go:build amd64 && !noasm

package kernel

import "golang.org/x/sys/cpu"

//go:noescape
func dotCodes256(blocks int, w *int8, ws, wm *float32, x *int8, xs, xt, sums *float32)

// dotCodesVNNI is dotCodes256 with one instruction for products and their sums: AVX512-VNNI, of vectors of 256 bits.
//
//go:noescape
func dotCodesVNNI(blocks int, w *int8, ws, wm *float32, x *int8, xs, xt, sums *float32)

// panelCodesVNNI multiplies a panel by eight rows: see PanelCodes. AVX512-VNNI, of vectors of 512 bits.
//
//go:noescape
func panelCodesVNNI(blocks int, words *byte, scales *float32, x *int8, ldx int, factors, sums *float32)

// roundCodes512 rounds numbers to codes: see RoundCodes.
//
//go:noescape
func roundCodes512(blocks int, x *float32, codes *int8, step int, scales, extra *float32, apart int)

// putHalves512 is PutHalfBytes.
//
//go:noescape
func putHalves512(steps, pieces int, src *byte, stride, gap int, table, dst *byte, ahead uintptr)

//go:noescape
func nibbles256(groups, pieces int, src *byte, stride int, table *int8, dst *int8)

// codeLines16, codeLines32 and codeLinesBytes are MultiplyLines, by kind: AVX512-VNNI, of vectors of 512 bits.
//
//go:noescape
func codeLines16(lines *CodeLines)

//go:noescape
func codeLines32(lines *CodeLines)

//go:noescape
func codeLinesBytes(lines *CodeLines)

// codeHeads is HeadsOfCodes.
//
//go:noescape
func codeHeads(kind, steps, each int, src *byte, stride, size, nothing int, scales *float32)

func init() {
	avx2.codes = codesFuncs{dot: dotCodes256, nibbles: nibbles256}
	avx512.codes = avx2.codes
	avx512.codes.round, avx512.codes.halves = roundCodes512, putHalves512
	if cpu.X86.HasAVX512VNNI {
		avx512.codes.dot, avx512.codes.panel = dotCodesVNNI, panelCodesVNNI
		avx512.codes.lines = [3]func(*CodeLines){codeLines16, codeLines32, codeLinesBytes}
		avx512.codes.heads = codeHeads
		avx512.word.twiceBytes, avx512.word.twiceBytesLines = codes512twice, codes512twicelines
	}
}
