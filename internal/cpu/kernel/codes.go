package kernel

// CodeBlock is how many codes have a scale in common in [DotCodes]. Its sums are kept apart in CodeLanes: lane i has
// those of the codes 4i to 4i+3 of all blocks.
const CodeBlock, CodeLanes = 32, 8

// Codes are blocks of CodeBlock codes of 8 bits, each with a scale and with what is added: of a weight's block its
// minimum, of an input's its codes' sum times its scale.
type Codes struct {
	Codes         []int8
	Scales, Extra []float32
}

// codesFuncs are the kernels of a processor; nil ones are Go's.
type codesFuncs struct {
	dot     func(blocks int, w *int8, ws, wm *float32, x *int8, xs, xt, sums *float32)
	nibbles func(groups, pieces int, src *byte, stride int, table *int8, dst *int8)
}

// DotCodes returns the product of a weight's blocks and an input's, whose codes are from −127 to 127:
//
//	for each block b, in order:
//		for each lane i: lanes[i] += (w.Scales[b]·x.Scales[b]) · Σ w.Codes[32b+4i+j]·x.Codes[32b+4i+j], j from 0 to 3
//		rest += w.Extra[b]·x.Extra[b]
//
// Sums of codes are exact, and each other product and sum is rounded, so that every processor gives the same bits.
func (s *Set) DotCodes(blocks int, w, x *Codes) float32 {
	var sums [CodeLanes + 1]float32
	if blocks > 0 {
		wc, xc := w.Codes[:blocks*CodeBlock], x.Codes[:blocks*CodeBlock]
		ws, wm, xs, xt := w.Scales[:blocks], w.Extra[:blocks], x.Scales[:blocks], x.Extra[:blocks]
		if s != nil && s.codes.dot != nil {
			s.codes.dot(blocks, &wc[0], &ws[0], &wm[0], &xc[0], &xs[0], &xt[0], &sums[0])
		} else {
			dotCodes(wc, ws, wm, xc, xs, xt, &sums)
		}
	}
	a, b := (sums[0]+sums[4])+(sums[2]+sums[6]), (sums[1]+sums[5])+(sums[3]+sums[7])
	return (a + b) + sums[8]
}

func dotCodes(wc []int8, ws, wm []float32, xc []int8, xs, xt []float32, sums *[CodeLanes + 1]float32) {
	for b := range ws {
		w, x := wc[b*CodeBlock:][:CodeBlock], xc[b*CodeBlock:][:CodeBlock]
		scale := ws[b] * xs[b]
		for i := range CodeLanes {
			u, v := w[4*i:][:4], x[4*i:][:4]
			sum := int32(u[0])*int32(v[0]) + int32(u[1])*int32(v[1]) + int32(u[2])*int32(v[2]) + int32(u[3])*int32(v[3])
			sums[i] += float32(scale * float32(sum))
		}
		sums[CodeLanes] += float32(wm[b] * xt[b])
	}
}

// Nibbles looks codes of half a byte up. A group has pieces of 16 bytes, the low halves of all its bytes before the
// high ones; groups lie stride bytes apart, and their codes one behind the other.
func (s *Set) Nibbles(groups, pieces int, src []byte, stride int, table *[16]int8, dst []int8) {
	if groups == 0 || pieces == 0 {
		return
	}
	half := 16 * pieces
	src, dst = src[:(groups-1)*stride+half], dst[:groups*2*half]
	if s != nil && s.codes.nibbles != nil {
		s.codes.nibbles(groups, pieces, &src[0], stride, &table[0], &dst[0])
		return
	}
	for g := range groups {
		low, high := dst[2*g*half:][:half], dst[(2*g+1)*half:][:half]
		for i, c := range src[g*stride:][:half] {
			low[i], high[i] = table[c&15], table[c>>4]
		}
	}
}
