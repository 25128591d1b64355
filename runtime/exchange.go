package runtime

import (
	"bytes"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// A member is an instance of a pass: whoever gives its inputs and takes its outputs.
type member interface {
	// input returns the bytes of an input, output where those of an output go, as in pager.IO.
	input(id graph.ValueID) []byte
	output(output int, made bool) []byte
}

// A passIO is the instances of a pass. It implements pager.Shared.
type passIO struct {
	members []member
	// calls are those whose the members are, where they are several.
	calls []*call
	// yielding is the session's; stopped says that the pass ended because of it.
	yielding *atomic.Bool
	stopped  atomic.Bool
}

// Instances implements pager.Shared.
func (x *passIO) Instances() int { return len(x.members) }

// Input implements pager.IO.
func (x *passIO) Input(instance int, id graph.ValueID) []byte { return x.members[instance].input(id) }

// Output implements pager.IO.
func (x *passIO) Output(instance, output int, made bool) []byte {
	return x.members[instance].output(output, made)
}

// Wanted implements pager.Shared.
func (x *passIO) Wanted(instance int) bool {
	if x.yielding.Load() {
		return false
	}
	if x.calls == nil {
		return true
	}
	c := x.calls[instance]
	return !c.over && c.ctx.Err() == nil
}

// Left implements pager.Shared.
func (x *passIO) Left(instance int, err error) (othersGoOn bool) {
	if err == nil && x.yielding.Load() { // nobody leaves for good
		x.stopped.Store(true)
		return false
	}
	if x.calls == nil {
		return false
	}
	c := x.calls[instance]
	c.end(c.failed(err))
	return !x.answered()
}

// answered reports whether every call of the pass has its answer.
func (x *passIO) answered() bool {
	return x.calls != nil && !slices.ContainsFunc(x.calls, func(c *call) bool { return !c.over })
}

// An exchange gives a pass the tensors of a call and makes tensors of what comes out, or fills the caller's.
type exchange struct {
	p   *program
	in  Values
	out Values
	// into says that the outputs are the caller's.
	into bool
	// raw holds the bytes of outputs whose elements have to be put in order, by output; nil of those that are not there.
	raw [][]byte
	// packed holds the elements of inputs that do not lie in order, by input.
	packed [][]byte
	// scratch is what raw was before, for calls of the same program.
	scratch [][]byte
}

// begin makes the exchange that of a call. Where into is nil it makes tensors for the outputs.
func (x *exchange) begin(p *program, in, into Values) error {
	if x.p != p {
		*x = exchange{
			p: p, raw: make([][]byte, len(p.graph.Outputs)), scratch: make([][]byte, len(p.graph.Outputs)),
			packed: make([][]byte, len(p.graph.Inputs)),
		}
	}
	clear(x.raw)
	x.in, x.out, x.into = in, into, into != nil
	if !x.into {
		x.out = make(Values, len(p.graph.Outputs))
		return nil
	}
	return p.fills(into)
}

// fills checks that tensors can take the outputs that they are named after.
func (p *program) fills(out Values) error {
	named := 0
	for i := range p.graph.Outputs {
		o := &p.graph.Outputs[i]
		t, ok := out[o.Name]
		if !ok {
			continue
		}
		named++
		if o.Count != "" && out[o.Count] == nil {
			return &OutputError{o.Name, fmt.Sprintf("data says how much of it there is: output %q, which is wanted too",
				o.Count)}
		}
		dtype := p.graph.Values[o.Operand.Value].DType
		if t == nil || t.DType != dtype || !t.Layout.Shape.Equal(o.Operand.Layout.Shape) {
			return &OutputError{o.Name, fmt.Sprintf("a contiguous %v %v is wanted", dtype, o.Operand.Layout.Shape)}
		}
		_, end, err := t.Layout.Span() // before all that takes a layout to be one
		if err != nil {
			return &OutputError{o.Name, err.Error()}
		}
		if !t.Layout.IsContiguous() {
			return &OutputError{o.Name, fmt.Sprintf("a contiguous %v %v is wanted", dtype, o.Operand.Layout.Shape)}
		}
		if end > int64(len(t.Data)/dtype.Size()) {
			return &OutputError{o.Name, fmt.Sprintf("%v do not fit into %d bytes", o.Operand.Layout.Shape, len(t.Data))}
		}
	}
	if named == len(out) {
		return nil
	}
	for name := range out {
		if !slices.ContainsFunc(p.graph.Outputs, func(o graph.Output) bool { return o.Name == name }) {
			return &OutputError{name, "the model has no such output"}
		}
	}
	return nil
}

// input implements member.
func (x *exchange) input(id graph.ValueID) []byte {
	v := &x.p.graph.Values[id]
	t := x.in[v.Name]
	if bytes, ok := inOrder(t); ok {
		return bytes
	}
	packed := &x.packed[slices.Index(x.p.graph.Inputs, id)]
	if int64(len(*packed)) != v.Bytes() {
		*packed = make([]byte, v.Bytes())
	}
	t.CopyTo(*packed)
	return *packed
}

// inOrder returns the bytes of a tensor whose elements lie in order without gaps.
func inOrder(t *tensor.Tensor) ([]byte, bool) {
	if !t.Layout.IsContiguous() {
		return nil, false
	}
	n, _ := t.Layout.NumElements()
	if n == 0 {
		return nil, true
	}
	size := int64(t.DType.Size())
	from := int64(t.Layout.Offset) * size
	return t.Data[from : from+n*size], true
}

// output implements member.
func (x *exchange) output(output int, made bool) []byte {
	o := &x.p.graph.Outputs[output]
	if !made {
		return nil // a dump out of a branch that was not taken
	}
	dtype := x.p.graph.Values[o.Operand.Value].DType
	bytes := x.p.spanBytes[output]
	if x.into {
		t := x.out[o.Name]
		if t == nil {
			return nil
		}
		if x.p.whole[output] {
			bytes, _ := inOrder(t)
			return bytes
		}
		if x.scratch[output] == nil {
			x.scratch[output] = make([]byte, bytes)
		}
		x.raw[output] = x.scratch[output]
		return x.raw[output]
	}
	data := make([]byte, bytes)
	if x.p.whole[output] {
		x.out[o.Name] = &tensor.Tensor{
			DType: dtype, Layout: tensor.Contiguous(slices.Clone(o.Operand.Layout.Shape)...), Data: data,
		}
		return data
	}
	x.raw[output] = data
	x.out[o.Name] = nil // it is put in order when the pass is over
	return data
}

// finish puts the elements of outputs in order.
func (x *exchange) finish() {
	for i := range x.p.graph.Outputs {
		if x.raw[i] == nil {
			continue
		}
		name := x.p.graph.Outputs[i].Name
		t := x.p.view(i, x.raw[i])
		if x.into {
			bytes, _ := inOrder(x.out[name])
			t.CopyTo(bytes)
			continue
		}
		n, _ := t.Layout.NumElements()
		done := &tensor.Tensor{
			DType: t.DType, Layout: tensor.Contiguous(slices.Clone(t.Layout.Shape)...),
			Data: make([]byte, n*int64(t.DType.Size())),
		}
		t.CopyTo(done.Data)
		x.out[name] = done
	}
	if !x.into {
		graph.Cut(x.p.graph.Outputs, x.out)
	}
	x.in = nil
}

// view returns an output over the bytes from its first element to its last.
func (p *program) view(output int, raw []byte) tensor.Tensor {
	o := &p.graph.Outputs[output].Operand
	layout := o.Layout
	first, _, _ := layout.Span()
	layout.Offset -= int(first)
	return tensor.Tensor{DType: p.graph.Values[o.Value].DType, Layout: layout, Data: raw}
}

// takes reports whether inputs are those that the program was planned for: names, dtypes, shapes, and the values of numbers.
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
		if at := t.Layout.Offset * len(v.Number); v.Number != nil &&
			!bytes.Equal(t.Data[at:at+len(v.Number)], v.Number) {
			return false
		}
	}
	return true
}
