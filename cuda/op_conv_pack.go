package cuda

import (
	"fmt"

	"github.com/optimem/optimem/graph"
)

// The forms that weights of convolutions are packed in: with the channels of a place behind each other, in sixteens of bytes, as
// tensor cores read them, and as the points of Winograd's algorithm. Both hold what each pass makes of a raw weight in scratch
// memory, so that results are the same.
const (
	packedLast     = "channels last"
	packedWinograd = "winograd"
)

// convPacks returns the form of a convolution's weight, none where kernels read that as it is.
func convPacks(in, out []graph.Spec, op *graph.Op) []graph.Pack {
	out = planarResult(out, op.Attrs)
	switch w, ok := winogradOf(in, out, op.Attrs); {
	case tensorConv(in, out, op.Attrs) != "":
		weight := operand{dtype: in[1].DType, layout: op.In[1].Layout}
		if inChannels(weight, fives(weight)) && paddedChannels(in[1]) == int64(in[1].Shape[1]) {
			return nil
		}
		outputs := int64(in[1].Shape[0])
		return []graph.Pack{{In: 1, Bytes: outputs * turnedLine(in[1]), Form: packedLast, Step: 1, Copy: true}}
	case ok && op.Attrs.Bool(byWinograd):
		return []graph.Pack{{In: 1, Bytes: w.weightBytes(), Form: packedWinograd, Copy: true}}
	}
	return nil
}

// turnedLine is the bytes of an output's weights, with their channels behind each other.
func turnedLine(w graph.Spec) int64 {
	bytes := paddedChannels(w) * int64(w.DType.Size())
	for _, s := range w.Shape[2:] {
		bytes *= int64(s)
	}
	return bytes
}

// packConv packs a convolution's weight, or that of some of its outputs.
func packConv(l *launch, p graph.Pack, raw operand, to span) error {
	switch p.Form {
	case packedLast:
		spec := graph.Spec{DType: raw.dtype, Shape: raw.shape()}
		from := turn{raw.shape()[0], 1, raw.shape()[1], int(paddedChannels(spec)), threes(raw.shape()[2:], 1), fives(raw)}
		return l.channelsLast(operand{span: to, dtype: raw.dtype}, raw, from)
	case packedWinograd:
		return l.winogradWeights(to, raw)
	}
	return fmt.Errorf("BUG: there is no form %q of a convolution's weight", p.Form)
}
