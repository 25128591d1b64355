package loader

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"io"
	"slices"
	"strings"

	"github.com/optimem/optimem/loader/internal/fault"
	"github.com/optimem/optimem/loader/internal/strictjson"
	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
)

// maxSafetensorsHeader is the limit of the reference implementation.
const maxSafetensorsHeader = 100_000_000

// Estimates, charged to the meter, of what a tensor takes: its Weight or Error, its entries in tables that grow by
// doubling, and the sizes and strides of each dimension.
const (
	safetensorsTensorCost    = 448
	safetensorsDimensionCost = 32
)

// A safetensorsReader reads one file: 8 bytes of length, a JSON object of that length, and the tensors' bytes, which
// must fill the rest of the file without a gap.
type safetensorsReader struct {
	o    *opener
	ckpt *Checkpoint
	src  storage.Source
	// begin and size are the place in the file, and the length, of what follows the header.
	begin, size int64
	runs        []safetensorsRun
}

// A safetensorsRun is where a tensor's bytes lie, counted from the end of the header.
type safetensorsRun struct {
	name       string
	begin, end int64
}

// openSafetensors reads the header of a safetensors file.
func (o *opener) openSafetensors(ckpt *Checkpoint, src storage.Source) error {
	ckpt.Format = FormatSafetensors
	r := &safetensorsReader{o: o, ckpt: ckpt, src: src}
	if err := r.locate(); err != nil {
		return err
	}
	if err := r.header(); err != nil {
		return errorAt(o.path, "header", err)
	}
	if err := r.coverage(); err != nil || o.isShard { // what shards leave out is looked for in all of them
		return err
	}
	return o.addTied(ckpt, safetensorsMetadata+".")
}

// locate reads the header's length.
func (r *safetensorsReader) locate() error {
	var head [9]byte
	if r.src.Size() < int64(len(head)) {
		return fault.New(fault.ErrFormat, 0, "%d bytes are too few for a safetensors file", r.src.Size())
	}
	if err := r.src.ReadAt(r.o.ctx, head[:], 0); err != nil {
		return err
	}
	n := binary.LittleEndian.Uint64(head[:])
	if rest := r.src.Size() - 8; n > uint64(rest) {
		return fault.New(fault.ErrFormat, 0, "the header has %d bytes, by its length, in the %d that remain", n, rest)
	}
	if n > maxSafetensorsHeader {
		return fault.New(fault.ErrLimit, 0, "the header has %d bytes, more than %d", n, maxSafetensorsHeader)
	}
	if n < 2 || head[8] != '{' {
		return fault.New(fault.ErrFormat, 8, "the header does not begin with {")
	}
	r.begin = 8 + int64(n)
	r.size = r.src.Size() - r.begin
	return nil
}

func (r *safetensorsReader) header() error {
	d := strictjson.NewDecoder(
		section(r.o.ctx, r.src, 8, r.begin),
		strictjson.Options{Meter: r.o.meter, Depth: r.o.opts.Limits.Depth})
	err := d.Object(func(key string) error {
		if key == safetensorsMetadata {
			return r.metadata(d)
		}
		return r.tensor(d, key)
	})
	if err != nil {
		return err
	}
	// The format pads with spaces and nothing else: other bytes could make the file one of another format as well.
	pad := section(r.o.ctx, r.src, 8+d.Offset(), r.begin)
	buf := make([]byte, 32<<10)
	for at := d.Offset(); ; {
		n, err := pad.Read(buf)
		if i := bytes.IndexFunc(buf[:n], func(c rune) bool { return c != ' ' }); i >= 0 {
			return fault.New(fault.ErrFormat, at+int64(i), "%q after the end of the header's object", buf[i])
		}
		if err == io.EOF { //nolint:errorlint // a section returns it bare
			return nil
		}
		if err != nil {
			return err
		}
		at += int64(n)
	}
}

// metadata reads the strings that a file says about itself.
func (r *safetensorsReader) metadata(d *strictjson.Decoder) error {
	return d.Object(func(key string) error {
		text, err := d.String()
		if err == nil && len(r.ckpt.Values) < maxValues {
			r.ckpt.Values = append(r.ckpt.Values, Value{Name: safetensorsMetadata + "." + key, Text: text})
			err = r.o.meter.Charge(int64(len(safetensorsMetadata)+len(key)) + 128)
		}
		return err
	})
}

// tensor reads one tensor's entry. Keys that the format does not define are passed over, as everywhere.
func (r *safetensorsReader) tensor(d *strictjson.Decoder, name string) error {
	if err := r.o.meter.Charge(safetensorsTensorCost); err != nil {
		return err
	}
	var dtype string
	var shape tensor.Shape
	var offsets []int64
	err := d.Object(func(key string) (err error) {
		switch key {
		case "dtype":
			dtype, err = d.String()
		case "shape":
			shape = tensor.Shape{}
			err = d.Array(func(int) error {
				n, err := d.Int()
				if err == nil && (n < 0 || int64(int(n)) != n) {
					err = d.Errorf(fault.ErrFormat, "a dimension of %d", n)
				}
				shape = append(shape, int(n))
				return cmp.Or(err, r.o.meter.Charge(safetensorsDimensionCost))
			})
		case "data_offsets":
			err = d.Array(func(i int) error {
				n, err := d.Int()
				if err == nil && (i > 1 || n < 0 || n > r.size) {
					err = d.Errorf(fault.ErrFormat, "%d is not one of two offsets into %d bytes", n, r.size)
				}
				offsets = append(offsets, n)
				return err
			})
		}
		return err
	})
	switch {
	case err != nil:
		return err
	case dtype == "" || shape == nil || len(offsets) != 2:
		return d.Errorf(fault.ErrFormat, "a tensor needs dtype, shape and two data_offsets")
	case offsets[0] > offsets[1]:
		return d.Errorf(fault.ErrFormat, "data_offsets %v run backwards", offsets)
	}
	run := safetensorsRun{name: name, begin: offsets[0], end: offsets[1]}
	r.runs = append(r.runs, run)
	elements, err := shape.NumElements()
	if err != nil {
		return d.Errorf(fault.ErrFormat, "%v", err)
	}
	t := safetensorsDType(dtype)
	if t == tensor.Invalid {
		r.ckpt.Unreadable = append(r.ckpt.Unreadable, &Error{
			Path: r.o.path, Record: name, Offset: -1,
			Err: fault.New(fault.ErrUnsupported, -1, "a tensor of dtype %.32q", dtype),
		})
		return nil
	}
	if need, ok := tensor.MulBytes(elements, int64(t.Size())); !ok || need != run.end-run.begin {
		return d.Errorf(fault.ErrFormat, "shape %v of %s does not take the %d bytes of data_offsets %v",
			shape, dtype, run.end-run.begin, offsets)
	}
	return r.ckpt.addWeight(tensor.Weight{
		Name: name, DType: t, Layout: tensor.Contiguous(shape...),
		Extent: storage.Extent{Source: r.src, Offset: r.begin + run.begin, Bytes: run.end - run.begin},
	})
}

func safetensorsDType(name string) tensor.DType {
	for _, d := range safetensorsDTypes {
		if d.name == name {
			return d.dtype
		}
	}
	return tensor.Invalid
}

// coverage checks that the tensors lie one after the other, from the header to the end of the file: nothing is read
// twice and nothing is hidden.
func (r *safetensorsReader) coverage() error {
	slices.SortFunc(r.runs, func(a, b safetensorsRun) int {
		return cmp.Or(cmp.Compare(a.begin, b.begin), cmp.Compare(a.end, b.end), strings.Compare(a.name, b.name))
	})
	end := int64(0)
	for _, run := range r.runs {
		switch {
		case run.begin < end:
			return fault.New(
				fault.ErrFormat, r.begin+run.begin, "the tensor %.100q overlaps the one before it", run.name,
			)
		case run.begin > end:
			return fault.New(fault.ErrFormat, r.begin+end, "a hole of %d bytes before the tensor %.100q",
				run.begin-end, run.name)
		}
		end = run.end
	}
	if end < r.size {
		return fault.New(fault.ErrFormat, r.begin+end, "%d bytes after the last tensor", r.size-end)
	}
	return nil
}
