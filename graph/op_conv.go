package graph

import (
	"fmt"

	"github.com/optimem/optimem/tensor"
)

// convOps slide a kernel over the last dimensions of a tensor, as many as attribute "stride" has entries (1 to 3).
var convOps = []OpDef{
	// conv: In[0] is N×C×spatial, In[1] the weight, In[2] the bias of each output channel or absent. Attributes: "stride",
	// "padding" before and "padding_end" after each dimension, "dilation", "groups". With "transposed", the gradient of
	// such a convolution, whose weight is C×(outputs/groups)×kernel and whose result is "output_padding" larger. Then its
	// epilogue. With "channels_last" the result is N×spatial×C, and what is added to it; In[0] stays a view N×C×spatial.
	{Kind: "conv", Shape: convShape, FLOPs: convFLOPs, Axes: convAxes},
}

// maxWindow bounds the attributes of sliding windows, so that their arithmetic cannot overflow.
const maxWindow = 1 << 31

// windowAttr returns a list attribute of n entries, each at least low.
func windowAttr(a Attrs, name string, n, low int) ([]int, error) {
	v := a.Ints(name)
	if len(v) != n {
		return nil, fmt.Errorf("%s %v for %d dimensions", name, v, n)
	}
	for _, x := range v {
		if x < low || x > maxWindow {
			return nil, fmt.Errorf("%s %v", name, v)
		}
	}
	return v, nil
}

// A window is the attributes of ops that slide over the last dimensions.
type window struct {
	stride, padding, paddingEnd, dilation []int
}

func windowOf(a Attrs, rank int) (w window, err error) {
	if w.stride, err = windowAttr(a, "stride", rank, 1); err != nil {
		return w, err
	}
	if w.padding, err = windowAttr(a, "padding", rank, 0); err != nil {
		return w, err
	}
	w.paddingEnd = w.padding
	if _, ok := a["padding_end"]; ok {
		if w.paddingEnd, err = windowAttr(a, "padding_end", rank, 0); err != nil {
			return w, err
		}
	}
	w.dilation, err = windowAttr(a, "dilation", rank, 1)
	return w, err
}

// span returns the input elements that a kernel of size k covers along dimension d.
func (w window) span(d, k int) int { return w.dilation[d]*(k-1) + 1 }

func convShape(in []Spec, a Attrs) ([]Spec, error) {
	if len(in) < 3 || len(in) > ConvResidual+1 {
		return nil, fmt.Errorf("%d operands", len(in))
	}
	x, w, bias := in[0], in[1], in[2]
	rank := len(x.Shape) - 2
	bad := func(why string) ([]Spec, error) {
		return nil, fmt.Errorf("input %v %v and weight %v %v: %s", x.DType, x.Shape, w.DType, w.Shape, why)
	}
	if rank < 1 || rank > 3 || len(w.Shape) != rank+2 {
		return bad("ranks")
	}
	if x.DType != w.DType {
		return bad("dtypes")
	}
	win, err := windowOf(a, rank)
	if err != nil {
		return bad(err.Error())
	}
	groups := a.Int("groups")
	if groups < 1 || groups > maxWindow {
		return bad(fmt.Sprintf("%d groups", groups))
	}
	for _, k := range w.Shape[2:] {
		if k < 1 || k > maxWindow {
			return bad("kernel size")
		}
	}
	transposed := a.Bool("transposed")
	product, ok := tensor.MulBytes(int64(w.Shape[1]), int64(groups))
	inputs, outputs := int(product), w.Shape[0]
	if transposed {
		inputs, outputs = outputs, inputs
	}
	if !ok || inputs != x.Shape[1] || w.Shape[0]%groups != 0 || outputs < 1 {
		return bad(fmt.Sprintf("channels of %d groups", groups))
	}
	if bias.DType != tensor.Invalid && (bias.DType != x.DType || !bias.Shape.Equal(tensor.Shape{outputs})) {
		return bad(fmt.Sprintf("bias %v %v", bias.DType, bias.Shape))
	}
	out := tensor.Shape{x.Shape[0], outputs}
	var extra []int
	if transposed {
		if extra, err = windowAttr(a, "output_padding", rank, 0); err != nil {
			return bad(err.Error())
		}
	}
	for d, n := range x.Shape[2:] {
		span, pad := win.span(d, w.Shape[2+d]), win.padding[d]+win.paddingEnd[d]
		var size int
		if transposed {
			if extra[d] >= win.stride[d] && extra[d] >= win.dilation[d] {
				return bad(fmt.Sprintf("output padding %v is not below the stride or the dilation", extra))
			}
			steps, ok := tensor.MulBytes(int64(max(n-1, 0)), int64(win.stride[d]))
			if !ok || steps > 1<<61 || n == 0 || span > 1<<61 {
				return bad("output size")
			}
			size = int(steps) + span + extra[d] - pad
		} else {
			if n+pad < span || n > 1<<62 {
				return bad("the kernel is larger than the padded input")
			}
			size = (n+pad-span)/win.stride[d] + 1
		}
		if size < 1 {
			return bad(fmt.Sprintf("output size %d", size))
		}
		out = append(out, size)
	}
	if a.Bool("channels_last") {
		out = append(append(tensor.Shape{out[0]}, out[2:]...), out[1])
	}
	result := Spec{DType: x.DType, Shape: out}
	if err := wantEpilogue(in, a, result, ConvResidual); err != nil {
		return bad(err.Error())
	}
	return []Spec{result}, nil
}

// convFLOPs counts a multiplication and an addition for each weight of each output, or of each input if transposed.
func convFLOPs(in, out []Spec, a Attrs) int64 {
	at := out[0].Shape
	if a.Bool("transposed") {
		at = in[0].Shape
	}
	n, err := at.NumElements()
	if err != nil {
		return 0
	}
	weights, err := in[1].Shape[1:].NumElements()
	if err != nil {
		return 0
	}
	flops, ok := tensor.MulBytes(n, 2*weights)
	if !ok {
		return 1<<63 - 1
	}
	return sumOf(flops, epilogueFLOPs(in, a, out[0], ConvResidual))
}
