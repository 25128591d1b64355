package runtime

import (
	"slices"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/tensor"
)

// An exchange gives a pass the tensors of a call and makes tensors of what comes out.
type exchange struct {
	p   *program
	in  Values
	out Values
	// raw holds the bytes of outputs whose elements have to be put in order.
	raw [][]byte
}

// Input implements pager.IO.
func (x *exchange) Input(_ int, id layers.ValueID) []byte {
	v := &x.p.graph.Values[id]
	t := x.in[v.Name].Contiguous()
	off := int64(t.Layout.Offset * t.DType.Size())
	return t.Data[off : off+v.Bytes()]
}

// Output implements pager.IO.
func (x *exchange) Output(_, output int, made bool) []byte {
	o := &x.p.graph.Outputs[output]
	if !made {
		return nil // a dump out of a branch that was not taken
	}
	first, end, err := o.Operand.Layout.Span()
	if err != nil {
		panic("BUG: output " + o.Name + ": " + err.Error())
	}
	dtype := x.p.graph.Values[o.Operand.Value].DType
	bytes := make([]byte, (end-first)*int64(dtype.Size()))
	if x.p.whole[output] {
		x.out[o.Name] = &tensor.Tensor{
			DType: dtype, Layout: tensor.Contiguous(slices.Clone(o.Operand.Layout.Shape)...), Data: bytes,
		}
		return bytes
	}
	x.raw[output] = bytes
	x.out[o.Name] = nil // it is put in order when the pass is over
	return bytes
}

// finish puts the elements of outputs in order.
func (x *exchange) finish() {
	for i, o := range x.p.graph.Outputs {
		if x.raw[i] == nil {
			continue
		}
		first, _, _ := o.Operand.Layout.Span()
		layout := o.Operand.Layout
		layout.Shape = slices.Clone(layout.Shape) // the graph's stays as it is, whatever becomes of the tensor
		layout.Offset -= int(first)
		t := (&tensor.Tensor{DType: x.p.graph.Values[o.Operand.Value].DType, Layout: layout, Data: x.raw[i]}).Contiguous()
		if len(t.Data) < len(x.raw[i]) {
			t.Data = slices.Clone(t.Data) // a view of a few elements does not hold on to all
		}
		x.out[o.Name] = t
	}
}

// takes reports whether inputs are those that the program was planned for: names, dtypes and shapes.
func (p *program) takes(in Values) bool {
	if len(in) != len(p.graph.Inputs) {
		return false
	}
	for _, id := range p.graph.Inputs {
		v := &p.graph.Values[id]
		t := in[v.Name]
		if t == nil || t.DType != v.DType || !t.Layout.Shape.Equal(v.Shape) {
			return false
		}
		_, end, err := t.Layout.Span()
		if err != nil || end > int64(len(t.Data)/max(t.DType.Size(), 1)) {
			return false
		}
	}
	return true
}
