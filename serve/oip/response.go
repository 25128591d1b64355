package oip

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"io"
	"math"
	"strconv"

	"github.com/optimem/optimem/tensor"
)

// A Response is what a model answers.
type Response struct {
	Model, Version, ID string
	Outputs            []Output
}

// An Output is a tensor of an answer.
type Output struct {
	Name string
	// Tensor has the elements; nil where they are Texts of a shape.
	Tensor *tensor.Tensor
	Texts  [][]byte
	Shape  tensor.Shape
	// Binary has the elements follow the JSON as bytes.
	Binary bool
}

// Datatype is the protocol's name of the output's, "" where it has none.
func (o *Output) Datatype() string {
	if o.Tensor == nil {
		return Bytes
	}
	return Datatype(o.Tensor.DType)
}

// Dims is the output's shape.
func (o *Output) Dims() tensor.Shape {
	if o.Tensor == nil {
		return o.Shape
	}
	return o.Tensor.Layout.Shape
}

// RawBytes is how many bytes the elements take as the binary extension has them.
func (o *Output) RawBytes() int64 {
	if o.Tensor != nil {
		n, err := o.Tensor.Layout.NumElements()
		if err != nil {
			return 0
		}
		return n * int64(o.Tensor.DType.Size())
	}
	n := int64(0)
	for _, t := range o.Texts {
		n += 4 + int64(len(t))
	}
	return n
}

// Raw returns the elements as the binary extension has them. It may share the tensor's memory.
func (o *Output) Raw() []byte {
	if o.Tensor != nil {
		return o.Tensor.Contiguous().Data[:o.RawBytes()]
	}
	var to []byte
	for _, t := range o.Texts {
		to = binary.LittleEndian.AppendUint32(to, uint32(len(t)))
		to = append(to, t...)
	}
	return to
}

// HasBinary reports whether something follows the JSON.
func (r *Response) HasBinary() bool {
	for i := range r.Outputs {
		if r.Outputs[i].Binary {
			return true
		}
	}
	return false
}

// WriteJSON writes the JSON of an answer: all of it, or what goes before the bytes.
func (r *Response) WriteJSON(to io.Writer) error {
	w := bufio.NewWriterSize(to, 32<<10)
	text := func(s string) {
		b, err := json.Marshal(s)
		if err != nil {
			panic("BUG: " + err.Error())
		}
		w.Write(b)
	}
	w.WriteString(`{"model_name":`)
	text(r.Model)
	w.WriteString(`,"model_version":`)
	text(r.Version)
	if r.ID != "" {
		w.WriteString(`,"id":`)
		text(r.ID)
	}
	w.WriteString(`,"outputs":[`)
	for i := range r.Outputs {
		o := &r.Outputs[i]
		if i > 0 {
			w.WriteByte(',')
		}
		w.WriteString(`{"name":`)
		text(o.Name)
		w.WriteString(`,"datatype":"` + o.Datatype() + `","shape":[`)
		var number [32]byte
		for j, n := range o.Dims() {
			if j > 0 {
				w.WriteByte(',')
			}
			w.Write(strconv.AppendInt(number[:0], int64(n), 10))
		}
		if o.Binary {
			w.WriteString(`],"parameters":{"binary_data_size":`)
			w.Write(strconv.AppendInt(number[:0], o.RawBytes(), 10))
			w.WriteString(`}}`)
			continue
		}
		w.WriteString(`],"data":[`)
		o.writeElements(w)
		w.WriteString(`]}`)
	}
	w.WriteString(`]}`)
	return w.Flush()
}

// writeElements writes the elements with commas between them. Numbers that are none are written as Python does, NaN and
// Infinity, for which JSON has no words.
func (o *Output) writeElements(w *bufio.Writer) {
	if o.Tensor == nil {
		for i, t := range o.Texts {
			if i > 0 {
				w.WriteByte(',')
			}
			b, err := json.Marshal(string(t)) // what is not UTF-8 is replaced
			if err != nil {
				panic("BUG: " + err.Error())
			}
			w.Write(b)
		}
		return
	}
	t := o.Tensor.Contiguous()
	size := t.DType.Size()
	var number [40]byte
	for at := 0; at < int(o.RawBytes()); at += size {
		if at > 0 {
			w.WriteByte(',')
		}
		w.Write(appendElement(number[:0], t.DType, t.Data[at:at+size]))
	}
}

func appendElement(to []byte, d tensor.DType, e []byte) []byte {
	var bits uint64
	switch len(e) {
	case 1:
		bits = uint64(e[0])
	case 2:
		bits = uint64(binary.NativeEndian.Uint16(e))
	case 4:
		bits = uint64(binary.NativeEndian.Uint32(e))
	case 8:
		bits = binary.NativeEndian.Uint64(e)
	}
	switch d {
	case tensor.Bool:
		return strconv.AppendBool(to, bits != 0)
	case tensor.UInt8, tensor.UInt16, tensor.UInt32, tensor.UInt64:
		return strconv.AppendUint(to, bits, 10)
	case tensor.Int8:
		return strconv.AppendInt(to, int64(int8(bits)), 10)
	case tensor.Int16:
		return strconv.AppendInt(to, int64(int16(bits)), 10)
	case tensor.Int32:
		return strconv.AppendInt(to, int64(int32(bits)), 10)
	case tensor.Int64:
		return strconv.AppendInt(to, int64(bits), 10)
	case tensor.Float64:
		return appendFloat(to, math.Float64frombits(bits), 64)
	case tensor.Float16:
		return appendFloat(to, float64(tensor.Float16ToFloat32(uint16(bits))), 32)
	case tensor.BFloat16:
		return appendFloat(to, float64(tensor.BFloat16ToFloat32(uint16(bits))), 32)
	}
	return appendFloat(to, float64(math.Float32frombits(uint32(bits))), 32)
}

func appendFloat(to []byte, f float64, bits int) []byte {
	switch {
	case math.IsNaN(f):
		return append(to, "NaN"...)
	case math.IsInf(f, 1):
		return append(to, "Infinity"...)
	case math.IsInf(f, -1):
		return append(to, "-Infinity"...)
	}
	return strconv.AppendFloat(to, f, 'g', -1, bits)
}
