package ziparchive

import (
	"bufio"
	"errors"
	"fmt"
	"hash/crc32"
	"hash/fnv"
	"io"
	"math"
	"slices"
)

// Alignment is where PyTorch puts the data of each record: at a multiple of it, so that a mapped file serves as memory.
const Alignment = 64

// A Writer writes an archive as PyTorchStreamWriter does, byte for byte: records stored and aligned by an extra field
// full of Z, checksums after the data, zip64 where a size or a place needs it, and a zip64 end record always. It
// streams: the only thing it keeps is the directory.
type Writer struct {
	w       *bufio.Writer
	top     string
	off     int64
	records []written
	left    int64 // bytes that the open record still lacks
	names   map[string]bool
	err     error
}

// written is what the directory will say of a record.
type written struct {
	name          string
	offset, bytes int64
	crc           uint32
}

// NewWriter returns a writer of an archive whose records all lie in the folder top.
func NewWriter(w io.Writer, top string) *Writer {
	return &Writer{w: bufio.NewWriterSize(w, 64<<10), top: top, names: make(map[string]bool)}
}

// Create begins a record of exactly the given size. Its contents are then written to the Writer.
func (w *Writer) Create(name string, bytes int64) error {
	if w.err != nil {
		return w.err
	}
	if w.left > 0 {
		return w.fail(fmt.Errorf("record %s lacks %d bytes", w.last().name, w.left))
	}
	full := w.top + "/" + name
	switch _, why := checkName(full); {
	case why != "":
		return w.fail(fmt.Errorf("record %q: %s", full, why))
	case len(full) > maxNameBytes:
		return w.fail(fmt.Errorf("record %.100q: the name is longer than %d bytes", full, maxNameBytes))
	case bytes < 0:
		return w.fail(fmt.Errorf("record %q: negative size", full))
	case w.names[fold(full)]:
		return w.fail(fmt.Errorf("record %q exists already", full))
	}
	w.names[fold(full)] = true
	r := written{name: full, offset: w.off, bytes: bytes}
	w.records = append(w.records, r)
	w.left = bytes

	// The sizes and the checksum follow the data. The wide values are no use to any reader; PyTorch writes them.
	var wide []byte
	if r.bytes >= math.MaxUint32 {
		wide = le.AppendUint64(wide, uint64(r.bytes))
		wide = le.AppendUint64(wide, 0)
	}
	if r.offset >= math.MaxUint32 {
		wide = le.AppendUint64(wide, uint64(r.offset))
	}
	extra := appendZip64(nil, wide)
	data := r.offset + localHeaderBytes + int64(len(full)+len(extra)) + 4
	pad := int(-data & (Alignment - 1))
	extra = le.AppendUint16(extra, extraPadding)
	extra = le.AppendUint16(extra, uint16(pad))
	for range pad {
		extra = append(extra, 'Z')
	}

	h := make([]byte, 0, localHeaderBytes+len(full)+len(extra))
	h = le.AppendUint32(h, localSignature)
	h = le.AppendUint16(h, 0) // version needed: PyTorch gives none
	h = le.AppendUint16(h, r.flags())
	h = append(h, make([]byte, 2+2+2+4+4+4)...) // stored; no time, no date; checksum and sizes follow the data
	h = le.AppendUint16(h, uint16(len(full)))
	h = le.AppendUint16(h, uint16(len(extra)))
	h = append(h, full...)
	h = append(h, extra...)
	return w.write(h)
}

// flags: an empty record has nothing to follow its data.
func (r *written) flags() uint16 {
	if r.bytes == 0 {
		return flagUTF8
	}
	return flagUTF8 | flagDescriptor
}

func appendZip64(b, wide []byte) []byte {
	if len(wide) == 0 {
		return b
	}
	b = le.AppendUint16(b, extraZip64)
	b = le.AppendUint16(b, uint16(len(wide)))
	return append(b, wide...)
}

func (w *Writer) last() *written { return &w.records[len(w.records)-1] }

func (w *Writer) fail(err error) error {
	w.err = err
	return err
}

func (w *Writer) write(p []byte) error {
	if _, err := w.w.Write(p); err != nil {
		return w.fail(err)
	}
	w.off += int64(len(p))
	return nil
}

// Write appends to the record that was begun last.
func (w *Writer) Write(p []byte) (int, error) {
	if w.err != nil {
		return 0, w.err
	}
	if int64(len(p)) > w.left {
		return 0, w.fail(fmt.Errorf("%d bytes more than a record declared", int64(len(p))-w.left))
	}
	if len(p) == 0 {
		return 0, nil
	}
	r := w.last()
	r.crc = crc32.Update(r.crc, crc32.IEEETable, p)
	if err := w.write(p); err != nil {
		return 0, err
	}
	if w.left -= int64(len(p)); w.left > 0 {
		return len(p), nil
	}
	d := le.AppendUint32(nil, descriptorSignature)
	d = le.AppendUint32(d, r.crc)
	if r.bytes >= math.MaxUint32 || r.offset >= math.MaxUint32 {
		d = le.AppendUint64(d, uint64(r.bytes))
		d = le.AppendUint64(d, uint64(r.bytes))
	} else {
		d = le.AppendUint32(d, uint32(r.bytes))
		d = le.AppendUint32(d, uint32(r.bytes))
	}
	return len(p), w.write(d)
}

// WriteRecord writes a whole record.
func (w *Writer) WriteRecord(name string, p []byte) error {
	if err := w.Create(name, int64(len(p))); err != nil {
		return err
	}
	_, err := w.Write(p)
	return err
}

// SerializationID returns forty digits that depend on the names and the checksums of the records so far, for the record
// of that name. PyTorch's has the same form; its first half depends on the C++ library's hash of a string.
func (w *Writer) SerializationID() string {
	names := make([]string, len(w.records))
	var sums uint64
	for i, r := range w.records {
		names[i] = r.name[len(w.top)+1:]
		if r.bytes > 0 { // PyTorch takes the checksums from the data descriptors
			sums ^= uint64(r.crc) + 0x9e3779b9 + sums<<6 + sums>>2
		}
	}
	slices.Sort(names)
	h := fnv.New64a()
	for _, name := range names {
		h.Write([]byte(name))
		h.Write([]byte{0})
	}
	return fmt.Sprintf("%020d%020d", h.Sum64(), sums)
}

// Close writes the directory. It does not close the underlying writer.
func (w *Writer) Close() error {
	if w.err != nil {
		return w.err
	}
	if w.left > 0 {
		return w.fail(fmt.Errorf("record %s lacks %d bytes", w.last().name, w.left))
	}
	start := w.off
	var h []byte
	for i := range w.records {
		h = w.records[i].appendEntry(h[:0])
		if err := w.write(h); err != nil {
			return err
		}
	}
	size, end64 := uint64(w.off-start), w.off
	n := uint64(len(w.records))

	e := le.AppendUint32(nil, end64Signature)
	e = le.AppendUint64(e, end64Bytes-12)
	e = le.AppendUint16(e, 0x031e) // made by version 3.0 on Unix: miniz's constants
	e = le.AppendUint16(e, maxVersion)
	e = le.AppendUint64(e, 0) // disks
	e = le.AppendUint64(e, n)
	e = le.AppendUint64(e, n)
	e = le.AppendUint64(e, size)
	e = le.AppendUint64(e, uint64(start))

	e = le.AppendUint32(e, locatorSignature)
	e = le.AppendUint32(e, 0)
	e = le.AppendUint64(e, uint64(end64))
	e = le.AppendUint32(e, 1)

	e = le.AppendUint32(e, endSignature)
	e = le.AppendUint32(e, 0)
	e = le.AppendUint16(e, uint16(min(n, math.MaxUint16)))
	e = le.AppendUint16(e, uint16(min(n, math.MaxUint16)))
	e = le.AppendUint32(e, uint32(min(size, math.MaxUint32)))
	e = le.AppendUint32(e, uint32(min(start, math.MaxUint32)))
	e = le.AppendUint16(e, 0)
	if err := w.write(e); err != nil {
		return err
	}
	if err := w.w.Flush(); err != nil {
		return w.fail(err)
	}
	w.err = errors.New("the archive is complete")
	return nil
}

// appendEntry appends the directory's entry of a record.
func (r *written) appendEntry(h []byte) []byte {
	var wide []byte
	if r.bytes >= math.MaxUint32 {
		wide = le.AppendUint64(wide, uint64(r.bytes))
		wide = le.AppendUint64(wide, uint64(r.bytes))
	}
	if r.offset >= math.MaxUint32 {
		wide = le.AppendUint64(wide, uint64(r.offset))
	}
	extra := appendZip64(nil, wide)
	h = le.AppendUint32(h, centralSignature)
	h = le.AppendUint32(h, 0) // made by and needed: PyTorch gives none
	h = le.AppendUint16(h, r.flags())
	h = append(h, make([]byte, 2+2+2)...) // stored; no time, no date
	h = le.AppendUint32(h, r.crc)
	h = le.AppendUint32(h, uint32(min(r.bytes, math.MaxUint32)))
	h = le.AppendUint32(h, uint32(min(r.bytes, math.MaxUint32)))
	h = le.AppendUint16(h, uint16(len(r.name)))
	h = le.AppendUint16(h, uint16(len(extra)))
	h = append(h, make([]byte, 2+2+2+4)...) // no comment; disk; attributes
	h = le.AppendUint32(h, uint32(min(r.offset, math.MaxUint32)))
	h = append(h, r.name...)
	return append(h, extra...)
}
