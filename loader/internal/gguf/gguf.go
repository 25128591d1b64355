// Package gguf reads the head of GGUF files (versions 2 and 3, little endian): what a file says about itself, and where its
// tensors lie. Every length is checked against what the file has before memory is taken for it.
//
// It does not know what keys mean, or models.
//
//	f, err := gguf.Read(reader, size, gguf.Options{Meter: meter, Depth: 200})
package gguf

import (
	"encoding/binary"
	"errors"
	"io"
	"math"
	"unicode/utf8"

	"github.com/optimem/optimem/loader/internal/fault"
	"github.com/optimem/optimem/loader/internal/limit"
	"github.com/optimem/optimem/tensor"
	"github.com/optimem/optimem/tensor/encoded"
)

// Options bound what reading may cost.
type Options struct {
	Meter *limit.Meter
	// Depth bounds arrays in arrays.
	Depth int
}

// A File is what the head of a file says.
type File struct {
	Version uint32
	// Keys are those of Meta in the order of the file. Values are Go's integers of the size in the file, float32, float64,
	// bool, string, and slices of one of these; []any holds arrays in an array.
	Keys []string
	Meta map[string]any
	// Tensors are in the order of their bytes, which is that of the file.
	Tensors []Tensor
	// Data is where the first begins.
	Data int64
}

// A Tensor is a name for bytes of the file.
type Tensor struct {
	Name     string
	Encoding *encoded.Encoding
	// Shape has the dimension first that the file has last, as PyTorch counts.
	Shape tensor.Shape
	// Offset is counted from the beginning of the file.
	Offset, Bytes int64
}

const (
	maxName       = 1<<16 - 1
	maxDimensions = 4
	// headBytes are those before the first key. A key takes at least so many, of which its value is one, and a tensor.
	headBytes, leastKey, leastTensor = 24, 13, 24
	// What is charged to the meter for a key with its value, and for a tensor.
	keyCost, tensorCost = 192, 320
	defaultAlignment    = 32
	maxAlignment        = 1 << 20
)

// Read reads from the beginning of a file of size bytes.
func Read(from io.Reader, size int64, o Options) (*File, error) {
	r := &reader{in: from, size: size, sure: headBytes, o: o}
	f, err := r.file()
	if err != nil && r.err != nil { // what could not be read is the reason, not what was made of it
		err = r.err
	}
	return f, err
}

// A reader counts where it is. Its first error ends everything: what is read after it is zero.
type reader struct {
	in io.Reader
	// ahead are bytes that were read and not yet taken, of buffer.
	ahead, buffer []byte
	at, size      int64
	// sure is how many bytes of the head follow at least, as far as is known: so many may be read ahead, and no weight is.
	sure int64
	o    Options
	err  error
	word [8]byte
}

func (r *reader) left() int64 { return r.size - r.at }

// fail keeps the first error.
func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

func (r *reader) format(what string, args ...any) error {
	err := fault.New(fault.ErrFormat, r.at, what, args...)
	r.fail(err)
	return err
}

// take fills p, which is no longer than what is left.
func (r *reader) take(p []byte) {
	if r.err != nil {
		return
	}
	if int64(len(p)) > r.left() {
		_ = r.format("%d bytes are wanted and %d are left", len(p), r.left())
		return
	}
	for len(p) > 0 {
		if len(r.ahead) == 0 && !r.fill() {
			return
		}
		n := copy(p, r.ahead)
		p, r.ahead = p[n:], r.ahead[n:]
		r.at, r.sure = r.at+int64(n), r.sure-int64(n)
	}
}

// fill reads ahead.
func (r *reader) fill() bool {
	if r.buffer == nil {
		r.buffer = make([]byte, 64<<10)
	}
	n, err := io.ReadAtLeast(r.in, r.buffer[:min(int64(len(r.buffer)), r.sure, r.left())], 1)
	r.ahead = r.buffer[:n]
	switch {
	case n > 0: // the error comes again
	case errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF):
		_ = r.format("the file ends here")
	default:
		r.fail(err)
	}
	return r.err == nil
}

func (r *reader) charge(n int64) bool {
	if r.err == nil {
		r.fail(r.o.Meter.Charge(n))
	}
	return r.err == nil
}

// number reads an integer of so many bytes.
func (r *reader) number(bytes int) uint64 {
	clear(r.word[:])
	r.take(r.word[:bytes])
	if r.err != nil {
		return 0
	}
	return binary.LittleEndian.Uint64(r.word[:])
}

// text reads a string of at most so many bytes.
func (r *reader) text(most int64) string {
	n := r.number(8)
	if r.err == nil && n > uint64(r.left()) {
		_ = r.format("a text of %d bytes, and %d are left", n, r.left())
	}
	if r.err == nil && most > 0 && n > uint64(most) {
		_ = r.format("a name of %d bytes, more than %d", n, most)
	}
	if !r.charge(int64(n)) {
		return ""
	}
	r.sure += int64(n)
	p := make([]byte, n)
	r.take(p)
	return string(p)
}

// name reads a key or a tensor's name.
func (r *reader) name() string {
	s := r.text(maxName)
	if r.err == nil && (s == "" || !utf8.ValidString(s)) {
		_ = r.format("the name %.100q", s)
	}
	return s
}

func (r *reader) file() (*File, error) {
	var magic [4]byte
	r.take(magic[:])
	f := &File{Version: uint32(r.number(4)), Meta: make(map[string]any)}
	if r.err != nil {
		return nil, r.err
	}
	switch {
	case string(magic[:]) != "GGUF":
		return nil, fault.New(fault.ErrFormat, 0, "it does not begin with GGUF")
	case f.Version == 2 || f.Version == 3:
	case f.Version&0xFFFF == 0:
		return nil, fault.New(fault.ErrUnsupported, 4, "a big-endian GGUF file: only little-endian ones are read")
	default:
		return nil, fault.New(fault.ErrUnsupported, 4, "GGUF version %d: versions 2 and 3 are read", f.Version)
	}
	tensors, keys := r.number(8), r.number(8)
	if r.err == nil && (keys > uint64(r.left())/leastKey || tensors > uint64(r.left())/leastTensor) {
		return nil, r.format("%d keys and %d tensors in the %d bytes that are left", keys, tensors, r.left())
	}
	r.sure += int64(keys)*leastKey + int64(tensors)*leastTensor
	for range keys {
		if err := r.pair(f); err != nil {
			return nil, err
		}
	}
	names := make(map[string]bool)
	for range tensors {
		t, err := r.tensor()
		if err != nil {
			return nil, err
		}
		if names[t.Name] {
			return nil, r.format("two tensors are named %.100q", t.Name)
		}
		names[t.Name] = true
		f.Tensors = append(f.Tensors, t)
	}
	if r.err != nil {
		return nil, r.err
	}
	return f, r.place(f)
}

// pair reads a key and its value.
func (r *reader) pair(f *File) error {
	r.charge(keyCost)
	key := r.name()
	if r.err != nil {
		return r.err
	}
	if _, twice := f.Meta[key]; twice {
		return r.format("the key %.100q is there twice", key)
	}
	kind := uint32(r.number(4))
	if kind < numTypes {
		r.sure += widths[kind] - 1
	}
	v := r.value(kind, 0)
	if r.err != nil {
		var at *fault.Error
		if errors.As(r.err, &at) {
			at.Msg += " (in " + short(key) + ")"
		}
		return r.err
	}
	f.Keys = append(f.Keys, key)
	f.Meta[key] = v
	return nil
}

func short(key string) string {
	if len(key) > 60 {
		return key[:60] + "…"
	}
	return key
}

// tensor reads where a tensor lies; offsets are counted from the data yet.
func (r *reader) tensor() (t Tensor, err error) {
	r.charge(tensorCost)
	t.Name = r.name()
	n := r.number(4)
	if r.err == nil && n > maxDimensions {
		return t, r.format("%.100q has %d dimensions, more than %d", t.Name, n, maxDimensions)
	}
	r.sure += 8 * int64(n)
	t.Shape = make(tensor.Shape, n)
	for i := range t.Shape {
		d := r.number(8)
		if r.err == nil && d > math.MaxInt64 {
			return t, r.format("%.100q has a dimension of %d", t.Name, d)
		}
		t.Shape[len(t.Shape)-1-i] = int(d)
	}
	id := uint32(r.number(4))
	off := r.number(8)
	if r.err != nil {
		return t, r.err
	}
	known := false
	if t.Encoding, known = encoded.ByID(id); !known {
		return t, fault.New(fault.ErrUnsupported, r.at, "%.100q has the type %d, which is not known", t.Name, id)
	}
	elements, err := t.Shape.NumElements()
	if err != nil {
		return t, r.format("%.100q: %v", t.Name, err)
	}
	row := int64(1)
	if n > 0 {
		row = int64(t.Shape[n-1])
	}
	if row%t.Encoding.Elements != 0 {
		return t, r.format("%.100q has rows of %d, which are not whole blocks of %d", t.Name, row, t.Encoding.Elements)
	}
	var fits bool
	if t.Bytes, fits = tensor.MulBytes(elements/t.Encoding.Elements, t.Encoding.Bytes); !fits || off > math.MaxInt64 {
		return t, r.format("%.100q takes more than 2^63 bytes", t.Name)
	}
	if width := int64(max(t.Encoding.Decodes().Size(), 4)); elements > math.MaxInt64/8/width {
		return t, r.format("%.100q has %d numbers", t.Name, elements)
	}
	t.Offset = int64(off)
	return t, nil
}

// place checks that the tensors lie one behind the other, with nothing between them but what aligns them, up to the end of the
// file. Nothing is read twice then, and nothing is hidden.
func (r *reader) place(f *File) error {
	align := int64(defaultAlignment)
	if v, ok := f.Meta["general.alignment"]; ok {
		n, isNumber := v.(uint32)
		if !isNumber || n == 0 || n&(n-1) != 0 || n > maxAlignment {
			return fault.New(
				fault.ErrFormat, -1, "general.alignment is %v, not a power of two up to %d", v, maxAlignment,
			)
		}
		align = int64(n)
	}
	pad := func(n int64) int64 { return (n + align - 1) / align * align }
	f.Data = pad(r.at)
	if len(f.Tensors) == 0 {
		f.Data = min(f.Data, r.size)
	}
	room, end := r.size-f.Data, int64(0)
	for i := range f.Tensors {
		t := &f.Tensors[i]
		if t.Offset != pad(end) {
			return fault.New(fault.ErrFormat, -1,
				"%.100q lies at %d of the data, where %d is what follows the one before",
				t.Name, t.Offset, pad(end))
		}
		if t.Bytes > room-t.Offset {
			return fault.New(fault.ErrFormat, -1, "%.100q takes %d bytes at %d of the data, which has %d",
				t.Name, t.Bytes, t.Offset, max(room, 0))
		}
		end = t.Offset + t.Bytes
		t.Offset += f.Data
	}
	if over := room - pad(end); over > 0 {
		return fault.New(fault.ErrFormat, f.Data+pad(end), "%d bytes behind the last tensor", over)
	}
	return nil
}
