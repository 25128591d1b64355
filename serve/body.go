package serve

import (
	"compress/gzip"
	"compress/zlib"
	"errors"
	"io"
	"net/http"
	"os"
	"reflect"
	"strings"
	"time"

	"github.com/optimem/optimem/runtime"
)

// Who sends or takes a body has slack, and then so much time as the slowest rate admits.
const (
	slack       = 30 * time.Second
	slowestRate = 32 << 10 // bytes in a second
)

// firstPiece is how much is reserved first for a body whose length is not known.
const firstPiece = 64 << 10

// A body is that of a request, with what it has of the registry's bodies.
type body struct {
	registry *Registry
	// client is whose it is; nil where nobody looks.
	client *client
	data   []byte
	held   int64
	// memory is what was taken for it and for its answer. kept says that tensors of passes and the answer that was written are
	// all that lay there, so that others may have it.
	memory [][]byte
	kept   bool
}

// free gives back what the body has.
func (b *body) free() {
	b.less(b.held)
	b.data = nil
	b.release()
}

// release gives up the memory.
func (b *body) release() {
	if b.kept {
		for _, m := range b.memory {
			b.registry.bodies.keep(m)
		}
	}
	b.memory = nil
}

// room takes memory for bytes of which [keptSize] are reserved. What comes behind a header in it lies where ops can use it.
// Nothing of it is used yet, and what lies there is anything.
func (b *body) room(header int, bytes int64) []byte {
	if bytes < leastKept {
		return alignedBehind(make([]byte, bytes+bodyAlign), header, bytes)
	}
	whole := b.registry.bodies.memory(keptSize(bytes))
	b.memory = append(b.memory, whole)
	return alignedBehind(whole, header, bytes)
}

// seats gives outputs memory, whose [keptSize] is reserved. Where the memory is not the body's to give up it returns nil: then
// the pass takes some of its own.
func (b *body) seats(into runtime.Values) runtime.Values {
	if b == nil || !b.kept {
		return nil
	}
	for _, x := range into {
		n, _ := x.Layout.NumElements() // that it is one was seen when its bytes were counted
		n *= int64(x.DType.Size())
		x.Data = b.room(0, n)[:n]
	}
	return into
}

// more reserves more, for what is made of the body. What could never be reserved is refused for good. A nil body is of
// a caller who sees to it.
func (b *body) more(n int64) error {
	if b == nil {
		return nil
	}
	if most := b.registry.opts.MaxBodies; n > most {
		return refuse(http.StatusUnprocessableEntity, "the request takes %d bytes with its answer, and %d are the most", n, most)
	}
	if b.client != nil && b.client.limits.Bytes > 0 && n > b.client.limits.Bytes {
		return refuse(http.StatusUnprocessableEntity, "the request takes %d bytes, and this client may have %d", n, b.client.limits.Bytes)
	}
	if !b.client.take(n) {
		return &Error{Status: http.StatusTooManyRequests, Msg: "too many bytes of this client are under way", RetryAfter: time.Second}
	}
	if !b.registry.bodies.take(n) {
		b.client.give(n)
		return crowded()
	}
	b.held += n
	return nil
}

// crowded is what a request is told whose bytes are too many with those of others.
func crowded() *Error {
	return &Error{Status: http.StatusTooManyRequests, Msg: "too many bytes of requests are under way", RetryAfter: time.Second}
}

// less gives back a part.
func (b *body) less(n int64) {
	b.registry.bodies.give(n)
	b.client.give(n)
	b.held -= n
}

// readBody reads the body of a request, unpacked. Its memory is reserved before it is taken. What comes behind so many
// bytes of header lies where numbers of every dtype may, if the body's length is known. The caller frees it.
func (r *Registry) readBody(w http.ResponseWriter, req *http.Request, header int) (_ *body, err error) {
	most := r.opts.MaxBody
	packed := strings.ToLower(strings.TrimSpace(req.Header.Get("Content-Encoding")))
	reserve := req.ContentLength
	switch {
	case reserve > most:
		return nil, &http.MaxBytesError{Limit: most}
	case packed == "identity":
		packed = ""
	case packed != "" && packed != "gzip" && packed != "deflate":
		return nil, refuse(http.StatusUnsupportedMediaType, "bodies may be packed with gzip or deflate")
	}
	if packed != "" || reserve < 0 {
		reserve = 0 // it is reserved as it comes
	}
	b := &body{registry: r, client: clientOf(req.Context())}
	defer func() {
		if err != nil {
			b.free()
		}
	}()
	if err := b.more(keptSize(reserve)); err != nil {
		return nil, err
	}
	hasten(req)
	var from io.Reader = newPaced(w, http.MaxBytesReader(w, req.Body, most))
	switch packed {
	case "gzip":
		from, err = gzip.NewReader(from)
	case "deflate":
		from, err = zlib.NewReader(from)
	}
	if err != nil {
		return nil, bodyError(err)
	}
	if packed == "" && req.ContentLength >= 0 {
		b.data = b.room(header, req.ContentLength)
	}
	if err := b.fill(from, most); err != nil {
		return nil, err
	}
	b.less(b.held - keptSize(int64(cap(b.data))))                  // nothing, but where a declared length was not that
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // else the client would be taken for gone when it passes
	return b, nil
}

// bodyAlign is what the addresses of tensors are multiples of that ops use where they are, and more than numbers need.
const bodyAlign = 64

// alignedBehind returns so many bytes of memory, of which those behind a header lie where ops can use them. None is used
// yet.
func alignedBehind(in []byte, header int, bytes int64) []byte {
	at := int64(reflect.ValueOf(in).Pointer()%bodyAlign) + int64(max(header, 0))%bodyAlign
	shift := (2*bodyAlign - at) % bodyAlign
	return in[shift : shift : shift+bytes]
}

// fill reads all that there is, most bytes at most.
func (b *body) fill(from io.Reader, most int64) error {
	for {
		if len(b.data) < cap(b.data) {
			n, err := from.Read(b.data[len(b.data):cap(b.data)])
			b.data = b.data[:len(b.data)+n]
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return bodyError(err)
			}
			continue
		}
		var one [1]byte // is there more?
		if _, err := io.ReadFull(from, one[:]); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return bodyError(err)
		}
		if int64(len(b.data)) >= most {
			return &http.MaxBytesError{Limit: most}
		}
		had := int64(cap(b.data))
		size := min(max(2*had, firstPiece), most)
		if err := b.more(size); err != nil {
			return err
		}
		grown := make([]byte, len(b.data), size)
		copy(grown, b.data)
		b.data = append(grown, one[0])
		b.less(had)
	}
}

// bodyError says what is wrong with a body that cannot be read.
func bodyError(err error) error {
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return err
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &Error{Status: http.StatusRequestTimeout, Msg: "the body came too slowly", Err: err}
	}
	return &Error{Status: http.StatusBadRequest, Msg: "the body is cut short or not packed as it says", Err: err}
}

// drain reads the body of a request that is refused: the client hears it when it has sent all, and goes on with its connection.
// Few have memory of bodies for that, which saves system calls; the others read by eight KiB.
func (r *Registry) drain(w http.ResponseWriter, req *http.Request) {
	hasten(req)
	from := newPaced(w, http.MaxBytesReader(w, req.Body, r.opts.MaxBody))
	if m := r.bodies.lend(); m != nil {
		_, _ = io.CopyBuffer(onlyWriter{io.Discard}, from, m)
		r.bodies.takeBack(m)
	} else {
		_, _ = io.Copy(io.Discard, from)
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
}

// An onlyWriter has no buffer of its own to read into.
type onlyWriter struct{ io.Writer }

// A paced reader ends when the body comes more slowly than it may.
type paced struct {
	from    io.Reader
	control *http.ResponseController
	began   time.Time
	got     int64
	// due is the deadline that the connection has.
	due time.Time
}

func newPaced(w http.ResponseWriter, from io.Reader) *paced {
	return &paced{from: from, control: http.NewResponseController(w), began: time.Now()}
}

// Read reads some.
func (p *paced) Read(to []byte) (int, error) {
	if due := p.began.Add(slack + time.Duration(p.got/slowestRate)*time.Second); due != p.due {
		p.due = due
		_ = p.control.SetReadDeadline(due) // a connection that has none is no network's
	}
	n, err := p.from.Read(to)
	p.got += int64(n)
	return n, err
}
