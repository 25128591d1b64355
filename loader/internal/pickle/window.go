package pickle

import (
	"bytes"
	"errors"
	"io"
)

// The window's size: it starts small because a legacy file holds several short pickles before its weights, and those
// should not be read ahead into.
const (
	minWindowBytes = 4 << 10
	maxWindowBytes = 64 << 10
)

var (
	errTruncated = errors.New("truncated")
	errLongLine  = errors.New("line too long")
)

// A window reads forward over part of a ReaderAt through a bounded buffer. Slices it returns are good until the next
// call.
type window struct {
	r     io.ReaderAt
	buf   []byte
	pos   int
	base  int64 // offset of buf[0] in r
	end   int64 // offset in r that is never passed
	chunk int
	// sparing: nothing is read ahead, but for lines; exact: not for lines either.
	sparing, exact bool
}

func (w *window) offset() int64 { return w.base + int64(w.pos) }
func (w *window) left() int64   { return w.end - w.offset() }

// next returns the next n ≤ maxWindowBytes bytes and moves past them.
func (w *window) next(n int) ([]byte, error) {
	if len(w.buf)-w.pos < n {
		if err := w.fill(n); err != nil {
			return nil, err
		}
	}
	p := w.buf[w.pos : w.pos+n]
	w.pos += n
	return p, nil
}

// skip moves past n ≤ left bytes without reading them.
func (w *window) skip(n int64) {
	w.base, w.pos, w.buf = w.offset()+n, 0, w.buf[:0]
}

// some returns between 1 and n of the bytes to come and moves past them.
func (w *window) some(n int64) ([]byte, error) {
	if w.pos == len(w.buf) {
		if err := w.fill(1); err != nil {
			return nil, err
		}
	}
	return w.next(int(min(n, int64(len(w.buf)-w.pos))))
}

// line returns the bytes before the next newline and moves past it.
func (w *window) line() ([]byte, error) {
	searched := 0
	for {
		if i := bytes.IndexByte(w.buf[w.pos+searched:], '\n'); i >= 0 {
			p := w.buf[w.pos : w.pos+searched+i]
			w.pos += searched + i + 1
			return p, nil
		}
		searched = len(w.buf) - w.pos
		if searched >= maxWindowBytes {
			return nil, errLongLine
		}
		more := int64(searched) + 1
		if w.sparing && !w.exact { // by doubling, since each step moves the line
			more = max(more, min(2*more+64, w.left(), maxWindowBytes))
		}
		if err := w.fill(int(more)); err != nil {
			return nil, err
		}
	}
}

// fill makes at least n bytes available behind pos.
func (w *window) fill(n int) error {
	if int64(n) > w.left() {
		return errTruncated
	}
	w.chunk = min(max(2*w.chunk, minWindowBytes), maxWindowBytes)
	want := int(min(int64(max(n, w.chunk)), w.left()))
	if w.sparing {
		want = n
	}
	rest := w.buf[w.pos:]
	if want > cap(w.buf) {
		w.buf = make([]byte, 0, max(want, w.chunk))
	}
	w.base, w.pos = w.base+int64(w.pos), 0
	have := copy(w.buf[:want], rest)
	got, err := w.r.ReadAt(w.buf[have:want], w.base+int64(have))
	w.buf = w.buf[:have+got]
	switch {
	case have+got >= n:
		return nil
	case err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return errTruncated
	}
	return err
}
