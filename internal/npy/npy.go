// Package npy reads and writes NumPy's array files: .npy, and .npz, which is a zip file of them.
//
// The header of an array is a Python literal: the package parses the one dictionary with three keys that NumPy writes,
// evaluates nothing, and refuses arrays of Python objects. It checks a header against the size of the data before it
// allocates memory.
//
//	a, err := npy.Open(file, sizeBytes)          // the header
//	t, err := a.Read()                           // the elements
//	err = npy.Write(w, t)
package npy

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/optimem/optimem/tensor"
)

var (
	// ErrFormat: the bytes are not what the format says.
	ErrFormat = errors.New("not a valid array file")
	// ErrUnsupported: an array of something that a tensor cannot hold, or a tensor of what an array cannot hold.
	ErrUnsupported = errors.New("unsupported")
)

const (
	magic = "\x93NUMPY"
	// maxHeaderBytes is far more than NumPy reads, which is 10,000.
	maxHeaderBytes = 64 << 10
	maxDims        = 64
	// alignBytes is what NumPy pads headers to.
	alignBytes = 64
)

// kinds spells dtypes as NumPy does, without the byte order. What is not here NumPy does not have, or tensors have not.
var kinds = map[string]tensor.DType{
	"f2": tensor.Float16, "f4": tensor.Float32, "f8": tensor.Float64, "c8": tensor.Complex64, "c16": tensor.Complex128,
	"i1": tensor.Int8, "i2": tensor.Int16, "i4": tensor.Int32, "i8": tensor.Int64,
	"u1": tensor.UInt8, "u2": tensor.UInt16, "u4": tensor.UInt32, "u8": tensor.UInt64, "b1": tensor.Bool,
}

// An Array is an array whose header has been read. DType and Layout are those that Read gives; an array in Fortran's
// order has a layout of that order.
type Array struct {
	DType  tensor.DType
	Layout tensor.Layout
	// Bytes is the size of the elements.
	Bytes int64

	r       io.Reader
	swapped bool
}

// Open reads the header of the array that r holds, whose size is all of r.
func Open(r io.Reader, sizeBytes int64) (*Array, error) {
	head := make([]byte, 10)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, ended(err)
	}
	if string(head[:6]) != magic {
		return nil, fmt.Errorf("%w: it does not begin as one", ErrFormat)
	}
	length, headBytes := int64(binary.LittleEndian.Uint16(head[8:])), int64(len(head))
	switch major := head[6]; major {
	case 1:
	case 2, 3:
		rest := make([]byte, 2)
		if _, err := io.ReadFull(r, rest); err != nil {
			return nil, ended(err)
		}
		length |= int64(binary.LittleEndian.Uint16(rest)) << 16
		headBytes += int64(len(rest))
	default:
		return nil, fmt.Errorf("%w: version %d.%d of the format", ErrUnsupported, major, head[7])
	}
	if length > maxHeaderBytes || length > sizeBytes-headBytes {
		return nil, fmt.Errorf("%w: a header of %d bytes in a file of %d", ErrFormat, length, sizeBytes)
	}
	text := make([]byte, length)
	if _, err := io.ReadFull(r, text); err != nil {
		return nil, ended(err)
	}
	a := &Array{r: r}
	if err := a.parse(string(text)); err != nil {
		return nil, err
	}
	if have := sizeBytes - headBytes - length; a.Bytes != have {
		return nil, fmt.Errorf("%w: the header says %v %v, which takes %d bytes, and %d follow it",
			ErrFormat, a.DType, a.Layout.Shape, a.Bytes, have)
	}
	return a, nil
}

// parse takes dtype and layout from a header.
func (a *Array) parse(header string) error {
	h, err := parseHeader(header)
	if err != nil {
		return fmt.Errorf("%w: header %s", err, excerpt(header))
	}
	if a.DType, a.swapped, err = parseDescr(h.descr); err != nil {
		return err
	}
	n, err := h.shape.NumElements()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrFormat, err)
	}
	var ok bool
	if a.Bytes, ok = tensor.MulBytes(n, int64(a.DType.Size())); !ok {
		return fmt.Errorf("%w: shape %v of %v takes more than 2^63 bytes", ErrFormat, h.shape, a.DType)
	}
	a.Layout = tensor.Contiguous(h.shape...)
	if h.fortran {
		step := 1
		for i, d := range h.shape {
			a.Layout.Strides[i] = step
			step *= max(d, 1)
		}
	}
	return nil
}

// parseDescr returns the dtype that NumPy calls descr, and whether its bytes are not in this machine's order.
func parseDescr(descr string) (tensor.DType, bool, error) {
	if descr == "" {
		return 0, false, fmt.Errorf("%w: an array of no dtype", ErrFormat)
	}
	order, kind := descr[0], descr[1:]
	d, ok := kinds[kind]
	switch {
	case strings.HasPrefix(kind, "O"):
		return 0, false, fmt.Errorf("%w: an array of Python objects, which only unpickling could read", ErrUnsupported)
	case !ok || !strings.ContainsRune("<>|=", rune(order)) || order == '|' && d.Size() > 1:
		return 0, false, fmt.Errorf("%w: an array of dtype %s", ErrUnsupported, excerpt(descr))
	}
	native := byte('<')
	if bigEndian {
		native = '>'
	}
	return d, d.Size() > 1 && order != '=' && order != native, nil
}

var bigEndian = binary.NativeEndian.Uint16([]byte{0, 1}) == 1

// Read returns the elements. It takes Bytes of memory. It is called once.
func (a *Array) Read() (*tensor.Tensor, error) {
	data := make([]byte, a.Bytes)
	return &tensor.Tensor{DType: a.DType, Layout: a.Layout, Data: data}, a.ReadInto(data)
}

// ReadInto reads the elements into memory of the caller's, of Bytes bytes. It is called once, and not after Read.
func (a *Array) ReadInto(data []byte) error {
	if int64(len(data)) != a.Bytes {
		return fmt.Errorf("%d bytes of memory for an array of %d", len(data), a.Bytes)
	}
	if _, err := io.ReadFull(a.r, data); err != nil {
		return ended(err)
	}
	// The end is where a zip file's checksum is compared.
	if n, err := io.ReadFull(a.r, make([]byte, 1)); n > 0 || err != io.EOF {
		return fmt.Errorf("%w: it does not end where it should: %w", ErrFormat, cmp.Or(err, io.ErrShortBuffer))
	}
	if a.DType == tensor.Bool {
		if i := slices.IndexFunc(data, func(b byte) bool { return b > 1 }); i >= 0 {
			return fmt.Errorf("%w: element %d of an array of bools is %d", ErrFormat, i, data[i])
		}
	}
	if a.swapped {
		word := a.DType.Size()
		if a.DType == tensor.Complex64 || a.DType == tensor.Complex128 {
			word /= 2
		}
		for w := range slices.Chunk(data, word) {
			slices.Reverse(w)
		}
	}
	return nil
}

// Over returns the array that a file's bytes hold, which begin where memory was allocated. Where the elements can be
// used as they lie there, they are, and the bytes are not to be written any more; else they are copied.
func Over(file []byte) (*tensor.Tensor, error) {
	r := bytes.NewReader(file)
	a, err := Open(r, int64(len(file)))
	if err != nil {
		return nil, err
	}
	const aligned = 16 // as memory is, and more than any element wants
	begin := len(file) - r.Len()
	if a.swapped || a.DType == tensor.Bool || begin%aligned != 0 {
		return a.Read()
	}
	return &tensor.Tensor{DType: a.DType, Layout: a.Layout, Data: file[begin:len(file):len(file)]}, nil
}

// Writable returns an error that wraps ErrUnsupported for a dtype that NumPy has not.
func Writable(d tensor.DType) error {
	for _, known := range kinds {
		if d == known {
			return nil
		}
	}
	return fmt.Errorf("%w: NumPy has no dtype %v", ErrUnsupported, d)
}

// Write writes a tensor as the .npy file that NumPy would write for it.
func Write(w io.Writer, t *tensor.Tensor) error {
	if err := Writable(t.DType); err != nil {
		return err
	}
	descr := ""
	for kind, d := range kinds {
		if d == t.DType {
			descr = kind
		}
	}
	switch {
	case t.DType.Size() == 1:
		descr = "|" + descr
	case bigEndian:
		descr = ">" + descr
	default:
		descr = "<" + descr
	}
	if len(t.Layout.Shape) > maxDims {
		return fmt.Errorf("%w: %d dimensions", ErrUnsupported, len(t.Layout.Shape))
	}
	var dims []string
	for _, d := range t.Layout.Shape {
		dims = append(dims, strconv.Itoa(d))
	}
	shape := strings.Join(dims, ", ")
	if len(dims) == 1 {
		shape += ","
	}
	header := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", descr, shape)
	const before = len(magic) + 4 // the version and the length
	padded := (before + len(header) + 1 + alignBytes - 1) / alignBytes * alignBytes
	var head bytes.Buffer
	head.WriteString(magic + "\x01\x00")
	head.Write(binary.LittleEndian.AppendUint16(nil, uint16(padded-before)))
	head.WriteString(header + strings.Repeat(" ", padded-before-len(header)-1) + "\n")
	if _, err := w.Write(head.Bytes()); err != nil {
		return err
	}
	_, err := w.Write(t.Contiguous().Data)
	return err
}

// ended says of a file that is too short that it is.
func ended(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: it ends early", ErrFormat)
	}
	return err
}

// excerpt quotes the beginning of a text.
func excerpt(s string) string {
	const most = 120
	if len(s) > most {
		return strconv.Quote(s[:most]) + "…"
	}
	return strconv.Quote(s)
}
