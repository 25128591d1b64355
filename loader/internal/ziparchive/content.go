package ziparchive

import (
	"bufio"
	"compress/flate"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/optimem/optimem/loader/internal/fault"
	"github.com/optimem/optimem/loader/internal/limit"
	"github.com/optimem/optimem/storage"
)

// ReadAll returns the contents of a record, which it charges to the meter before it takes memory for them.
func (a *Archive) ReadAll(ctx context.Context, rec Record, meter *limit.Meter) ([]byte, error) {
	r, err := a.Open(ctx, rec)
	if err != nil {
		return nil, err
	}
	if err := meter.Charge(rec.Bytes); err != nil {
		return nil, err
	}
	p := make([]byte, rec.Bytes)
	if _, err := io.ReadFull(r, p); err != nil {
		return nil, err
	}
	// Only at the end does the reader know that the checksum holds and that nothing follows.
	if _, err := io.ReadFull(r, make([]byte, 1)); err != io.EOF {
		return nil, err
	}
	return p, nil
}

// Open returns a reader of the record's contents, which takes a fixed amount of memory. It returns io.EOF only after
// exactly the declared number of bytes with the declared checksum.
func (a *Archive) Open(ctx context.Context, rec Record) (io.Reader, error) {
	raw := &rangeReader{ctx: ctx, src: a.src, off: rec.DataOffset, end: rec.DataOffset + rec.StoredBytes}
	c := &contentReader{rec: rec, raw: raw, unchecked: a.unchecked}
	switch rec.method {
	case methodStore:
		c.r = raw
	case methodDeflate:
		c.buffered = bufio.NewReaderSize(raw, 32<<10)
		c.r = flate.NewReader(c.buffered)
	default:
		return nil, fault.New(fault.ErrUnsupported, rec.centralOffset+10, "compression method %d", rec.method)
	}
	return c, nil
}

// Extent returns where a stored record lies in the outermost source: for an archive within an archive, in the outer
// one's.
func (a *Archive) Extent(rec Record) (storage.Extent, error) {
	if rec.Compressed {
		return storage.Extent{}, fault.New(fault.ErrUnsupported, rec.centralOffset+10,
			"the record is compressed, so its bytes cannot be read in place")
	}
	return storage.Extent{Source: a.base.Source, Offset: a.base.Offset + rec.DataOffset, Bytes: rec.StoredBytes}, nil
}

// Section returns a stored record as a source, to open an archive within the archive. Nothing is copied.
func (a *Archive) Section(rec Record) (storage.Source, error) {
	e, err := a.Extent(rec)
	if err != nil {
		return nil, err
	}
	return section{e}, nil
}

// A section is a run of bytes of another source as a source of its own.
type section struct {
	extent storage.Extent
}

func (s section) Size() int64 { return s.extent.Bytes }

func (s section) ReadAt(ctx context.Context, p []byte, off int64) error {
	return s.extent.ReadAt(ctx, p, off)
}

// A rangeReader reads the bytes from off to end of a source.
type rangeReader struct {
	ctx      context.Context
	src      storage.Source
	off, end int64
}

func (r *rangeReader) Read(p []byte) (int, error) {
	if r.off >= r.end {
		return 0, io.EOF
	}
	p = p[:min(int64(len(p)), r.end-r.off)]
	if err := readAt(r.ctx, r.src, p, r.off); err != nil {
		return 0, err
	}
	r.off += int64(len(p))
	return len(p), nil
}

// A contentReader inflates a record and checks its size and checksum.
type contentReader struct {
	rec       Record
	raw       *rangeReader
	buffered  *bufio.Reader // between raw and the inflater, nil for stored records
	r         io.Reader
	unchecked bool
	n         int64
	crc       uint32
	err       error
}

func (c *contentReader) Read(p []byte) (int, error) {
	if c.err != nil {
		return 0, c.err
	}
	n, err := c.r.Read(p)
	c.n += int64(n)
	if c.n > c.rec.Bytes {
		c.err = c.fail(fault.ErrUnsafe, "the record inflates to more than the %d bytes it declares", c.rec.Bytes)
		return 0, c.err
	}
	c.crc = crc32.Update(c.crc, crc32.IEEETable, p[:n])
	switch {
	case err == nil:
	case err == io.EOF:
		c.err = c.finish()
	default:
		c.err = c.explain(err)
	}
	return n, c.err
}

func (c *contentReader) fail(class error, format string, args ...any) error {
	return fault.New(class, c.rec.DataOffset, format, args...)
}

// explain gives an error of the inflater its class and passes on those of the source.
func (c *contentReader) explain(err error) error {
	var corrupt flate.CorruptInputError
	if errors.As(err, &corrupt) || errors.Is(err, io.ErrUnexpectedEOF) {
		return c.fail(fault.ErrFormat, "the compressed data is corrupt: %v", err)
	}
	return fmt.Errorf("%s: %w", c.rec.Name, err)
}

// finish judges a record that has been read to its end.
func (c *contentReader) finish() error {
	left := c.raw.end - c.raw.off
	if c.buffered != nil {
		left += int64(c.buffered.Buffered())
	}
	switch {
	case c.n != c.rec.Bytes:
		return c.fail(fault.ErrFormat, "the record holds %d bytes, but declares %d", c.n, c.rec.Bytes)
	case left != 0:
		return c.fail(fault.ErrUnsafe, "%d bytes follow the end of the compressed data", left)
	case c.crc != c.rec.CRC32 && !c.unchecked:
		return c.fail(fault.ErrFormat, "CRC-32 of the contents is %08x, declared is %08x", c.crc, c.rec.CRC32)
	}
	return io.EOF
}
