package loader

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/optimem/optimem/loader/internal/fault"
	"github.com/optimem/optimem/loader/internal/pickle"
	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
)

// A numpyDType is a pickled numpy.dtype: "f4" and, from its state, the byte order.
type numpyDType struct {
	code  string
	order string
}

// build takes the state (version, order, subdtype, names, fields, itemsize, alignment, flags).
func (d *numpyDType) build(state any) error {
	parts, ok := pickle.Tuple(state)
	if !ok || len(parts) < 2 {
		return fault.New(fault.ErrFormat, -1, "numpy.dtype: malformed state")
	}
	d.order, _ = pickle.String(parts[1])
	return nil
}

// numpyDTypes maps NumPy's type codes to the dtypes that have the same elements.
var numpyDTypes = map[string]tensor.DType{
	"f2": tensor.Float16, "f4": tensor.Float32, "f8": tensor.Float64,
	"i1": tensor.Int8, "i2": tensor.Int16, "i4": tensor.Int32, "i8": tensor.Int64,
	"u1": tensor.UInt8, "u2": tensor.UInt16, "u4": tensor.UInt32, "u8": tensor.UInt64,
	"b1": tensor.Bool, "c8": tensor.Complex64, "c16": tensor.Complex128,
}

// A ndarray is a pickled NumPy array; its bytes lie in the pickle.
type ndarray struct {
	dtype   *numpyDType
	shape   tensor.Shape
	fortran bool
	data    []byte
	filled  bool
}

// build takes the state (version, shape, dtype, is_fortran, bytes).
func (a *ndarray) build(state any) error {
	bad := func(what string) error { return fault.New(fault.ErrFormat, -1, "numpy.ndarray: %s", what) }
	parts, ok := pickle.Tuple(state)
	if !ok || len(parts) != 5 {
		return bad("malformed state")
	}
	if a.shape, ok = intTuple(parts[1]); !ok {
		return bad("malformed shape")
	}
	if a.dtype, ok = unwrap(parts[2]).(*numpyDType); !ok {
		return bad("malformed dtype")
	}
	a.fortran, _ = pickle.Bool(parts[3])
	if a.data, ok = pickle.Bytes(parts[4]); ok {
		a.filled = true
	}
	// An array of objects has a list where the bytes would be: it stays unfilled.
	return nil
}

// String says what the array is, for listings.
func (a *ndarray) String() string {
	if a.dtype == nil {
		return "numpy.ndarray"
	}
	return fmt.Sprintf("numpy.ndarray %s %v", a.dtype.code, a.shape)
}

// weight returns the array as a tensor over its bytes in memory.
func (a *ndarray) tensor() (*tensorValue, error) {
	if !a.filled {
		return unsupportedTensor("tensor saved as a NumPy array of objects"), nil
	}
	dtype, ok := numpyDTypes[a.dtype.code]
	if !ok {
		return unsupportedTensor("tensor saved as a NumPy array of dtype %.20q", a.dtype.code), nil
	}
	n, err := a.shape.NumElements()
	if err != nil {
		return nil, fault.New(fault.ErrFormat, -1, "numpy.ndarray: %v", err)
	}
	want, ok := tensor.MulBytes(n, int64(dtype.Size()))
	if !ok || want != int64(len(a.data)) {
		return nil, fault.New(
			fault.ErrFormat, -1, "numpy.ndarray: %d bytes for shape %v of %v", len(a.data), a.shape, dtype,
		)
	}
	layout := tensor.Contiguous(a.shape...)
	if a.fortran {
		step := 1
		for i, d := range a.shape {
			layout.Strides[i] = step
			step *= max(d, 1)
		}
	}
	s := &torchStorage{
		dtype:     dtype,
		bytes:     want,
		extent:    storage.Extent{Source: &memorySource{a.data}, Bytes: want},
		bigEndian: a.dtype.order == ">",
	}
	return &tensorValue{storage: s, dtype: dtype, layout: layout}, nil
}

// reduceNumPy interprets the functions of numpyData.
func reduceNumPy(g pickle.Global, args []any) (any, error) {
	switch g.Name {
	case "_reconstruct": // (ndarray, (0,), b'b'); the state follows by BUILD
		return &ndarray{}, nil
	case "dtype": // (code, align, copy)
		if len(args) == 0 {
			return nil, badArgs(g, "no arguments")
		}
		code, ok := pickle.String(args[0])
		if !ok {
			return nil, badArgs(g, "argument 0 is not a string")
		}
		return &numpyDType{code: code}, nil
	case "_frombuffer": // (buffer, dtype, shape, order)
		if len(args) != 4 {
			return nil, badArgs(g, "%d arguments", len(args))
		}
		data, ok := pickle.Bytes(args[0])
		if !ok {
			return nil, badArgs(g, "argument 0 is not bytes")
		}
		dtype, ok := args[1].(*numpyDType)
		if !ok {
			return nil, badArgs(g, "argument 1 is not a dtype")
		}
		shape, ok := intTuple(args[2])
		if !ok {
			return nil, badArgs(g, "argument 2 is not a shape")
		}
		order, _ := pickle.String(args[3])
		return &ndarray{dtype: dtype, shape: shape, data: data, filled: true, fortran: order == "F"}, nil
	case "scalar": // (dtype, bytes)
		return &plainCall{callee: g, args: args}, nil
	}
	return nil, badArgs(g, "is a class, not a function that rebuilds data")
}

// rebuildFromNumPy interprets torch._utils._rebuild_device_tensor_from_numpy (data, dtype, device, requires_grad).
func rebuildFromNumPy(g pickle.Global, args []any) (any, error) {
	if len(args) != 4 {
		return nil, badArgs(g, "%d arguments", len(args))
	}
	array, ok := args[0].(*ndarray)
	if !ok {
		return nil, badArgs(g, "argument 0 is not an array")
	}
	t, err := array.tensor()
	if err != nil {
		return nil, err
	}
	if d, ok := pickle.AsGlobal(args[1]); ok && d.Module == "torch" && d.Name == "bfloat16" &&
		t.dtype == tensor.Float32 {
		// NumPy has no bfloat16, so PyTorch saves such tensors widened; narrowing them again loses nothing.
		return array.bfloat16(t), nil
	}
	return castTo(g, t, args[1])
}

// bfloat16 returns a float32 array narrowed, as a tensor of the same layout.
func (a *ndarray) bfloat16(wide *tensorValue) *tensorValue {
	var order binary.ByteOrder = binary.LittleEndian
	if wide.storage.bigEndian {
		order = binary.BigEndian
	}
	narrow := make([]byte, len(a.data)/2)
	for i := range len(narrow) / 2 {
		x := math.Float32frombits(order.Uint32(a.data[4*i:]))
		binary.LittleEndian.PutUint16(narrow[2*i:], tensor.BFloat16FromFloat32(x))
	}
	s := &torchStorage{
		dtype:  tensor.BFloat16,
		bytes:  int64(len(narrow)),
		extent: storage.Extent{Source: &memorySource{narrow}, Bytes: int64(len(narrow))},
	}
	return &tensorValue{storage: s, dtype: tensor.BFloat16, layout: wide.layout}
}
