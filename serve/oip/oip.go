// Package oip reads and writes the messages of the Open Inference Protocol, version 2, as they are in HTTP: JSON, and the
// extension that puts tensors behind it as bytes.
//
// Requests are untrusted. A body is the caller's to bound; what is made of it here takes as much as [Limits] allow, which
// is compared before memory is taken: shapes are multiplied with arithmetic that notices overflow, JSON is read in one
// pass over the bytes, to a bounded depth, and a tensor's memory is that of its shape.
//
// It knows names, datatypes and tensors. It does not know models, connections, or how long anything takes.
//
//	request, err := oip.Parse(body, headerBytes, oip.Limits{})
//	for _, in := range request.Inputs {
//		values[in.Name] = in.Tensor
//	}
package oip

import (
	"fmt"

	"github.com/optimem/optimem/tensor"
)

// An Error says what is wrong with a request, in the place where it is.
type Error struct {
	// Where is "inputs[0].data", "" for the request itself.
	Where, Msg string
}

// Error names the place.
func (e *Error) Error() string {
	if e.Where == "" {
		return "request: " + e.Msg
	}
	return e.Where + ": " + e.Msg
}

func wrong(where, format string, args ...any) error {
	return &Error{where, fmt.Sprintf(format, args...)}
}

// Limits bound what a request may cost. The zero value is right.
type Limits struct {
	// TensorBytes bounds the elements of all inputs together, as they lie in memory; 0 is 256 MiB.
	TensorBytes int64
	// Depth bounds the nesting of JSON; 0 is 32.
	Depth int
	// Tensors bounds the inputs, and the outputs that are asked for; 0 is 256.
	Tensors int
	// Rank bounds the dimensions of a tensor; 0 is 16.
	Rank int
}

func (l Limits) filled() Limits {
	if l.TensorBytes == 0 {
		l.TensorBytes = 256 << 20
	}
	if l.Depth == 0 {
		l.Depth = 32
	}
	if l.Tensors == 0 {
		l.Tensors = 256
	}
	if l.Rank == 0 {
		l.Rank = 16
	}
	return l
}

// Bytes is the datatype of elements that are texts or bytes of any length. It has no dtype.
const Bytes = "BYTES"

// datatypes are the protocol's names of dtypes.
var datatypes = map[tensor.DType]string{
	tensor.Bool: "BOOL", tensor.UInt8: "UINT8", tensor.UInt16: "UINT16", tensor.UInt32: "UINT32", tensor.UInt64: "UINT64",
	tensor.Int8: "INT8", tensor.Int16: "INT16", tensor.Int32: "INT32", tensor.Int64: "INT64", tensor.Float16: "FP16",
	tensor.Float32: "FP32", tensor.Float64: "FP64", tensor.BFloat16: "BF16",
}

var dtypes = func() map[string]tensor.DType {
	all := make(map[string]tensor.DType)
	for d, name := range datatypes {
		all[name] = d
	}
	return all
}()

// Datatype returns the protocol's name of a dtype, "" where it has none.
func Datatype(d tensor.DType) string { return datatypes[d] }

// DType returns the dtype of a name of the protocol, [tensor.Invalid] where there is none: of [Bytes], or of no datatype.
func DType(name string) tensor.DType { return dtypes[name] }

// A Request is what a model is asked.
type Request struct {
	ID         string
	Parameters map[string]any
	Inputs     []Input
	// Outputs are those that are wanted; none is all of them.
	Outputs []Wanted
	// Raw is set where the body is the elements of the only input, whose name, datatype and shape are the model's.
	Raw []byte
	// IsRaw says so, also where there is no element.
	IsRaw bool
}

// An Input is a tensor of a request. Values of parameters are string, bool, int64, float64 or nil.
type Input struct {
	Name, Datatype string
	Shape          tensor.Shape
	Parameters     map[string]any
	// Tensor has the elements, which may share the body's memory; nil where the datatype is [Bytes].
	Tensor *tensor.Tensor
	// Texts are the elements where the datatype is [Bytes]. They share the body's memory where they can.
	Texts [][]byte
}

// A Wanted is an output that is asked for.
type Wanted struct {
	Name       string
	Parameters map[string]any
}

// Wants reports whether an output is asked for, and whether as bytes behind the JSON.
func (r *Request) Wants(name string) (wanted, binary bool) {
	all, _ := r.Parameters["binary_data_output"].(bool)
	if r.IsRaw {
		return true, true
	}
	if len(r.Outputs) == 0 {
		return true, all
	}
	for _, w := range r.Outputs {
		if w.Name == name {
			if b, ok := w.Parameters["binary_data"].(bool); ok {
				return true, b
			}
			return true, all
		}
	}
	return false, false
}

// elements returns how many elements and bytes a shape has, held against what is left.
func elements(where string, shape tensor.Shape, size int, left int64) (n, bytes int64, err error) {
	n, err = shape.NumElements()
	if err != nil {
		return 0, 0, wrong(where, "shape %v: %v", shape, err)
	}
	bytes, ok := tensor.MulBytes(n, int64(size))
	if !ok || bytes > left {
		return 0, 0, wrong(where, "shape %v: more bytes than a request may have", shape)
	}
	return n, bytes, nil
}
