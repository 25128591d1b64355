package oip

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/optimem/optimem/tensor"
)

// NoHeader says to [Parse] that a body is JSON and nothing else.
const NoHeader = -1

// Parse reads a request. headerBytes is how many bytes of the body are JSON, what Inference-Header-Content-Length says; 0 is
// a raw request, [NoHeader] a body of JSON only. The result may share the body's memory.
func Parse(body []byte, headerBytes int, limits Limits) (*Request, error) {
	limits = limits.filled()
	if headerBytes == 0 {
		if int64(len(body)) > limits.TensorBytes {
			return nil, wrong("", "more bytes than a request may have")
		}
		return &Request{Raw: body, IsRaw: true}, nil
	}
	p := parser{limits: limits, left: limits.TensorBytes}
	p.data, p.most = body, limits.Depth
	if headerBytes != NoHeader {
		if headerBytes < 0 || headerBytes > len(body) {
			return nil, wrong("", "a JSON header of %d bytes in a body of %d", headerBytes, len(body))
		}
		p.data, p.tail, p.base = body[:headerBytes], body[headerBytes:], headerBytes
	}
	r, err := p.request()
	if err != nil {
		return nil, err
	}
	if p.peek() != 0 || p.pos < len(p.data) {
		return nil, p.fail("JSON: something follows the request")
	}
	if len(p.tail) > 0 {
		return nil, wrong("", "%d bytes follow those of the inputs", len(p.tail))
	}
	return r, nil
}

// A parser reads a request. tail is what is left of the tensors behind the JSON, which begins at base of the body.
type parser struct {
	reader
	limits Limits
	left   int64
	tail   []byte
	base   int
}

func (p *parser) request() (*Request, error) {
	r := &Request{}
	sawInputs := false
	err := p.object(func(key string) (err error) {
		switch key {
		case "id":
			id, err := p.text()
			r.ID = string(id)
			return err
		case "parameters":
			r.Parameters, err = p.parameters()
			return err
		case "inputs":
			sawInputs = true
			return p.array(func() error {
				if len(r.Inputs) == p.limits.Tensors {
					return wrong("inputs", "more than %d", p.limits.Tensors)
				}
				in, err := p.input(fmt.Sprintf("inputs[%d]", len(r.Inputs)))
				r.Inputs = append(r.Inputs, in)
				return err
			})
		case "outputs":
			return p.array(func() error {
				if len(r.Outputs) == p.limits.Tensors {
					return wrong("outputs", "more than %d", p.limits.Tensors)
				}
				w, err := p.wanted(fmt.Sprintf("outputs[%d]", len(r.Outputs)))
				r.Outputs = append(r.Outputs, w)
				return err
			})
		}
		return p.skip()
	})
	if err == nil && !sawInputs {
		err = wrong("inputs", "missing")
	}
	return r, err
}

func (p *parser) wanted(where string) (Wanted, error) {
	var w Wanted
	err := p.object(func(key string) (err error) {
		switch key {
		case "name":
			name, err := p.text()
			w.Name = string(name)
			return err
		case "parameters":
			w.Parameters, err = p.parameters()
			return err
		}
		return p.skip()
	})
	if err == nil && w.Name == "" {
		err = wrong(where, "no name")
	}
	return w, err
}

// input reads an input. Its data may come before what says what they are, so they are read when the rest is known.
func (p *parser) input(where string) (Input, error) {
	var in Input
	data := -1
	named, shaped := false, false
	err := p.object(func(key string) error {
		var text []byte
		var err error
		switch key {
		case "name":
			named = true
			text, err = p.text()
			in.Name = string(text)
		case "datatype":
			text, err = p.text()
			in.Datatype = string(text)
		case "shape":
			shaped = true
			in.Shape, err = p.shape(where)
		case "parameters":
			in.Parameters, err = p.parameters()
		case "data":
			p.peek()
			data = p.pos
			err = p.skip()
		default:
			err = p.skip()
		}
		return err
	})
	switch {
	case err != nil:
		return in, err
	case !named:
		return in, wrong(where, "no name")
	case !shaped:
		return in, wrong(where, "no shape")
	case in.Datatype != Bytes && DType(in.Datatype) == tensor.Invalid:
		return in, wrong(where, "datatype %.40q is unknown", in.Datatype)
	}
	size, binary := in.Parameters["binary_data_size"]
	switch {
	case binary && data >= 0:
		return in, wrong(where, "data and binary_data_size are both given")
	case binary:
		n, ok := size.(int64)
		if !ok || n < 0 || n > int64(len(p.tail)) {
			return in, wrong(where, "binary_data_size %v, and %d bytes are left", size, len(p.tail))
		}
		raw := p.tail[:n:n]
		p.tail = p.tail[n:]
		err = in.SetRaw(where, raw, &p.left)
	case data < 0:
		return in, wrong(where, "no data")
	default:
		sub := parser{limits: p.limits, left: p.left}
		sub.data, sub.pos, sub.most = p.data, data, p.most
		err = sub.elements(where, &in)
		p.left = sub.left
	}
	return in, err
}

func (p *parser) shape(where string) (tensor.Shape, error) {
	shape := tensor.Shape{}
	err := p.array(func() error {
		w := p.word()
		n, err := strconv.ParseInt(string(w), 10, 64)
		if err != nil || n < 0 || n > math.MaxInt32 || !isNumber(w) {
			return wrong(where, "shape: %.20q is no dimension", w)
		}
		if len(shape) == p.limits.Rank {
			return wrong(where, "shape: more than %d dimensions", p.limits.Rank)
		}
		shape = append(shape, int(n))
		return nil
	})
	return shape, err
}

// SetRaw sets the elements from their bytes as the binary extension has them: little-endian, in order, without gaps, texts
// with four bytes of length before each. left is what tensors may take together, of which theirs is taken.
func (in *Input) SetRaw(where string, raw []byte, left *int64) error {
	if in.Datatype == Bytes {
		n, _, err := elements(where, in.Shape, textBytes, *left)
		if err != nil {
			return err
		}
		if n > int64(len(raw)/4) {
			return wrong(where, "%d elements in %d bytes", n, len(raw))
		}
		*left -= n * textBytes
		in.Texts = make([][]byte, 0, n)
		for len(raw) >= 4 && int64(len(in.Texts)) < n {
			size := int64(binary.LittleEndian.Uint32(raw))
			if raw = raw[4:]; size > int64(len(raw)) {
				return wrong(where, "element %d of %d bytes, and %d are left", len(in.Texts), size, len(raw))
			}
			in.Texts = append(in.Texts, raw[:size:size])
			raw = raw[size:]
		}
		if int64(len(in.Texts)) != n || len(raw) > 0 {
			return wrong(where, "the bytes are not those of %d elements", n)
		}
		return nil
	}
	d := DType(in.Datatype)
	_, bytes, err := elements(where, in.Shape, d.Size(), *left)
	if err != nil {
		return err
	}
	if bytes != int64(len(raw)) {
		return wrong(where, "%d bytes for %s of shape %v, which takes %d", len(raw), in.Datatype, in.Shape, bytes)
	}
	*left -= bytes
	if d == tensor.Bool {
		for _, b := range raw {
			if b > 1 {
				return wrong(where, "a BOOL that is %d", b)
			}
		}
	}
	in.Tensor = &tensor.Tensor{DType: d, Layout: tensor.Contiguous(in.Shape...), Data: aligned(raw)}
	return nil
}

// textBytes is what is counted for an element that is a text, beside its bytes in the body: a slice.
const textBytes = 24

// aligned returns elements in memory that every dtype can be read in. They are copied where they do not lie so: behind a JSON header
// they lie anywhere.
func aligned(raw []byte) []byte {
	whole := len(raw) / 8
	t := &tensor.Tensor{DType: tensor.UInt64, Layout: tensor.Contiguous(whole), Data: raw[:8*whole]}
	if _, err := tensor.Slice[uint64](t); err == nil && whole > 0 {
		return raw
	}
	words := make([]uint64, (len(raw)+7)/8)
	out := wordsAsBytes(words)[:len(raw)]
	copy(out, raw)
	return out
}

// wordsAsBytes returns the memory of words.
func wordsAsBytes(words []uint64) []byte { return tensor.Of(words, len(words)).Data }

var errRange = errors.New("out of range")

// elements reads the data of an input: an array, nested as the shape is or in any other way.
func (p *parser) elements(where string, in *Input) error {
	where += ".data"
	if in.Datatype == Bytes {
		return p.texts(where, in)
	}
	d := DType(in.Datatype)
	n, bytes, err := elements(where, in.Shape, d.Size(), p.left)
	if err != nil {
		return err
	}
	if n > int64(len(p.data)-p.pos) { // an element has a byte, and one between it and the next
		return wrong(where, "shape %v has more elements than the data", in.Shape)
	}
	p.left -= bytes
	out := aligned(nil)
	if bytes > 0 {
		out = wordsAsBytes(make([]uint64, (bytes+7)/8))[:bytes]
	}
	put := putter(d)
	at, size := 0, d.Size()
	var element func() error
	element = func() error {
		if p.peek() == '[' {
			return p.array(element)
		}
		if p.peek() == '"' {
			return wrong(where, "a string in a tensor of %s", in.Datatype)
		}
		w := p.word()
		if at == len(out) {
			return wrong(where, "more than the %d elements of shape %v", n, in.Shape)
		}
		if err := put(out[at:at+size], w); err != nil {
			return wrong(where, "element %d, %.40q, is no %s: %v", at/size, w, in.Datatype, err)
		}
		at += size
		return nil
	}
	if err := p.array(element); err != nil {
		return err
	}
	if at != len(out) {
		return wrong(where, "%d elements, and shape %v has %d", at/size, in.Shape, n)
	}
	in.Tensor = &tensor.Tensor{DType: d, Layout: tensor.Contiguous(in.Shape...), Data: out}
	return nil
}

func (p *parser) texts(where string, in *Input) error {
	n, bytes, err := elements(where, in.Shape, textBytes, p.left)
	if err != nil {
		return err
	}
	if n > int64(len(p.data)-p.pos) {
		return wrong(where, "shape %v has more elements than the data", in.Shape)
	}
	p.left -= bytes
	in.Texts = make([][]byte, 0, n)
	var element func() error
	element = func() error {
		if p.peek() == '[' {
			return p.array(element)
		}
		s, err := p.text()
		if err != nil {
			return err
		}
		if int64(len(in.Texts)) == n {
			return wrong(where, "more than the %d elements of shape %v", n, in.Shape)
		}
		in.Texts = append(in.Texts, s)
		return nil
	}
	if err := p.array(element); err != nil {
		return err
	}
	if int64(len(in.Texts)) != n {
		return wrong(where, "%d elements, and shape %v has %d", len(in.Texts), in.Shape, n)
	}
	return nil
}

// putter returns what writes an element of a dtype that JSON has as a word.
func putter(d tensor.DType) func(to, word []byte) error {
	size := d.Size()
	switch d {
	case tensor.Bool:
		return func(to, w []byte) error {
			switch string(w) {
			case "true", "1":
				to[0] = 1
			case "false", "0":
				to[0] = 0
			default:
				return errors.New("it is neither true nor false")
			}
			return nil
		}
	case tensor.Float32, tensor.Float16, tensor.BFloat16, tensor.Float64:
		return func(to, w []byte) error { return putFloat(d, to, w) }
	case tensor.UInt8, tensor.UInt16, tensor.UInt32, tensor.UInt64:
		return func(to, w []byte) error {
			n, err := strconv.ParseUint(string(w), 10, 8*size)
			if err != nil || !isNumber(w) {
				return whole(err)
			}
			putBits(to, n)
			return nil
		}
	}
	return func(to, w []byte) error {
		n, err := strconv.ParseInt(string(w), 10, 8*size)
		if err != nil || !isNumber(w) {
			return whole(err)
		}
		putBits(to, uint64(n))
		return nil
	}
}

func whole(err error) error {
	if errors.Is(err, strconv.ErrRange) {
		return errRange
	}
	return errors.New("it is no whole number")
}

func putFloat(d tensor.DType, to, w []byte) error {
	if !isNumber(w) {
		return errors.New("it is no number")
	}
	bits := 32
	if d == tensor.Float64 {
		bits = 64
	}
	f, err := strconv.ParseFloat(string(w), bits)
	if err != nil {
		return errRange
	}
	half := uint16(0)
	switch d {
	case tensor.Float64:
		putBits(to, math.Float64bits(f))
		return nil
	case tensor.Float32:
		putBits(to, uint64(math.Float32bits(float32(f))))
		return nil
	case tensor.Float16:
		half = tensor.Float16FromFloat32(float32(f))
	default:
		half = tensor.BFloat16FromFloat32(float32(f))
	}
	putBits(to, uint64(half))
	return nil
}

// putBits writes the low bits of a number in the machine's order.
func putBits(to []byte, n uint64) {
	switch len(to) {
	case 1:
		to[0] = byte(n)
	case 2:
		binary.NativeEndian.PutUint16(to, uint16(n))
	case 4:
		binary.NativeEndian.PutUint32(to, uint32(n))
	case 8:
		binary.NativeEndian.PutUint64(to, n)
	}
}
