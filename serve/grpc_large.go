package serve

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/optimem/optimem/serve/internal/inference"
	"github.com/optimem/optimem/serve/oip"
)

// Messages of so many bytes are read where their tensors are to be used, and their answers written from where they are.
// Protobuf's own reader would copy them three times.
const (
	largeMessage = 128 << 10
	// messageHead is how many bytes there may be before the first tensor.
	messageHead = 16 << 10
	// framePrefix is what gRPC puts before a message: whether it is packed, and its length.
	framePrefix = 5
)

// Numbers of fields of the messages.
const (
	rawInputs  = 7
	rawOutputs = 6
)

// large answers calls of ModelInfer whose messages are large and begin with all that is not a tensor's bytes, as
// clients write them. Others are next's.
func (r *Registry) large(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		kind := req.Header.Get("Content-Type")
		packed := req.Header.Get("Grpc-Encoding")
		if req.ProtoMajor != 2 || kind != "application/grpc" && kind != "application/grpc+proto" || packed != "" && packed != "identity" {
			next.ServeHTTP(w, req)
			return
		}
		from := newPaced(w, req.Body)
		begin := make([]byte, framePrefix, framePrefix+messageHead)
		n, err := io.ReadFull(from, begin)
		size := int64(0)
		if err == nil {
			size = int64(binary.BigEndian.Uint32(begin[1:]))
		}
		if err == nil && begin[0] == 0 && size >= largeMessage && size <= r.opts.MaxBody+64<<10 {
			begin = begin[:cap(begin)]
			n, err = io.ReadFull(from, begin[framePrefix:])
			n += framePrefix
			if field, at := firstTensor(begin[framePrefix:n]); err == nil && at > 0 {
				r.inferLarge(w, req, from, &largeHead{begin[framePrefix:n], size, field, at})
				return
			}
		}
		_ = from.control.SetReadDeadline(time.Time{})
		rest := io.Reader(req.Body)
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			rest = failingReader{err}
		}
		req.Body = struct {
			io.Reader
			io.Closer
		}{io.MultiReader(bytes.NewReader(begin[:n]), rest), req.Body}
		next.ServeHTTP(w, req)
	})
}

// A failingReader has an error and nothing else.
type failingReader struct{ err error }

func (f failingReader) Read([]byte) (int, error) { return 0, f.err }

// firstTensor returns where the field of the first tensor begins, and its bytes, in a message of which head is the
// beginning; 0 where that is not within it.
func firstTensor(head []byte) (field, first int) {
	for at := 0; at < len(head); {
		number, kind, n := protowire.ConsumeTag(head[at:])
		if n < 0 {
			return 0, 0
		}
		if number == rawInputs && kind == protowire.BytesType {
			_, m := protowire.ConsumeVarint(head[at+n:])
			if m < 0 {
				return 0, 0
			}
			return at, at + n + m
		}
		m := protowire.ConsumeFieldValue(number, kind, head[at+n:])
		if m < 0 {
			return 0, 0
		}
		at += n + m
	}
	return 0, 0
}

// A largeHead is the beginning of a message of so many bytes: the field of its first tensor begins within it, and the
// tensor's own bytes do.
type largeHead struct {
	data         []byte
	size         int64
	field, first int
}

// inferLarge answers a call whose message begins so.
func (r *Registry) inferLarge(w http.ResponseWriter, req *http.Request, from *paced, head *largeHead) {
	ctx, cancel, err := grpcDeadline(req)
	defer cancel()
	b := &body{registry: r, client: clientOf(req.Context())}
	defer b.free()
	var response *oip.Response
	if err == nil {
		response, err = r.inferMessage(ctx, b, from, head)
	}
	header := w.Header()
	header.Set("Content-Type", req.Header.Get("Content-Type"))
	if err == nil {
		err = writeMessage(w, response)
	}
	if err == nil {
		header.Set(http.TrailerPrefix+"Grpc-Status", "0")
		return
	}
	w.WriteHeader(http.StatusOK)
	e := told(req.Context(), err)
	passageOf(req.Context()).refuse(e)
	header.Set(http.TrailerPrefix+"Grpc-Status", strconv.FormatUint(uint64(codeOf(e)), 10))
	header.Set(http.TrailerPrefix+"Grpc-Message", percented(e.Msg))
	if wait := pushbackOf(e); wait != "" {
		header.Set(http.TrailerPrefix+pushback, wait)
	}
}

// inferMessage reads the rest of a message and has it answered.
func (r *Registry) inferMessage(ctx context.Context, b *body, from *paced, head *largeHead) (*oip.Response, error) {
	if err := r.takes(); err != nil { // before a body is read
		return nil, err
	}
	about := new(inference.InferRequest)
	if proto.Unmarshal(head.data[:head.field], about) == nil { // else it is said of the whole message
		v, err := r.find(about.ModelName, about.ModelVersion)
		if err == nil {
			err = r.crammed(v)
		}
		if err != nil {
			return nil, err
		}
	}
	if err := b.more(max(keptSize(head.size), head.size+bodyAlign)); err != nil {
		return nil, err
	}
	message := b.room(head.first, head.size)[:head.size]
	copy(message, head.data)
	if _, err := io.ReadFull(from, message[len(head.data):]); err != nil {
		return nil, bodyError(err)
	}
	if n, err := from.Read(make([]byte, 1)); n > 0 || err == nil {
		return nil, refuse(http.StatusNotImplemented, "a call of one message has more")
	}
	_ = from.control.SetReadDeadline(time.Time{})
	others, raw, err := tensorsOf(message)
	if err != nil {
		return nil, err
	}
	for _, x := range raw[1:] { // which may be copied, for where they lie
		if err := b.more(int64(len(x))); err != nil {
			return nil, err
		}
	}
	for _, x := range others {
		if err := b.more(2 * int64(len(x))); err != nil { // as it is, and as it is read
			return nil, err
		}
	}
	q := new(inference.InferRequest)
	if err := proto.Unmarshal(slices.Concat(others...), q); err != nil {
		return nil, refuse(400, "the message is none of ModelInfer")
	}
	q.Raw = raw
	b.kept = !slices.ContainsFunc(q.Inputs, func(x *inference.InferRequest_Input) bool { return x.GetDatatype() == oip.Bytes })
	return r.answerMessage(ctx, q, b)
}

// tensorsOf finds the bytes of tensors in a message, and the others between them.
func tensorsOf(message []byte) (others, raw [][]byte, err error) {
	begin := 0 // of what stands before the next tensor
	for at := 0; at < len(message); {
		number, kind, n := protowire.ConsumeTag(message[at:])
		m := -1
		if n > 0 {
			m = protowire.ConsumeFieldValue(number, kind, message[at+n:])
		}
		if m < 0 {
			return nil, nil, refuse(400, "the message is cut short")
		}
		field := message[at : at+n+m]
		if number == rawInputs && kind == protowire.BytesType {
			if len(raw) == maxTensors {
				return nil, nil, refuse(400, "more than %d tensors", maxTensors)
			}
			x, _ := protowire.ConsumeBytes(field[n:])
			raw = append(raw, x[:len(x):len(x)])
			others, begin = append(others, message[begin:at]), at+len(field)
		}
		at += len(field)
	}
	return append(others, message[begin:]), raw, nil
}

// writeMessage writes an answer as a message of gRPC.
func writeMessage(w http.ResponseWriter, response *oip.Response) error {
	head, err := proto.Marshal(describe(response))
	if err != nil {
		return err
	}
	size := int64(len(head))
	raw := make([][]byte, len(response.Outputs))
	tags := make([][]byte, len(raw))
	for i := range raw {
		raw[i] = response.Outputs[i].Raw()
		tags[i] = protowire.AppendVarint(protowire.AppendTag(nil, rawOutputs, protowire.BytesType), uint64(len(raw[i])))
		size += int64(len(tags[i]) + len(raw[i]))
	}
	if size > math.MaxInt32 {
		return refuse(http.StatusUnprocessableEntity, "an answer of %d bytes is no message of gRPC", size)
	}
	prefix := binary.BigEndian.AppendUint32([]byte{0}, uint32(size))
	// From here on an error is that of the connection, and there is nobody to tell.
	if _, err := w.Write(append(prefix, head...)); err != nil {
		return nil
	}
	for i := range raw {
		if _, err := w.Write(tags[i]); err != nil {
			return nil
		}
		if _, err := w.Write(raw[i]); err != nil {
			return nil
		}
	}
	return nil
}

// grpcDeadline is the context of a call that says how long it may take.
func grpcDeadline(req *http.Request) (context.Context, context.CancelFunc, error) {
	text := req.Header.Get("Grpc-Timeout")
	if text == "" {
		return req.Context(), func() {}, nil
	}
	unit := map[byte]time.Duration{
		'n': 1, 'u': time.Microsecond, 'm': time.Millisecond, 'S': time.Second, 'M': time.Minute, 'H': time.Hour,
	}[text[len(text)-1]]
	n, err := strconv.ParseUint(text[:len(text)-1], 10, 32)
	if err != nil || unit == 0 || len(text) > 9 {
		return req.Context(), func() {}, refuse(400, "grpc-timeout is %.20q, which is no time", text)
	}
	if n > uint64(math.MaxInt64/unit) { // longer than anybody waits
		return req.Context(), func() {}, nil
	}
	ctx, cancel := context.WithTimeout(req.Context(), time.Duration(n)*unit)
	return ctx, cancel, nil
}

// percented writes a message so that a header can have it.
func percented(text string) string {
	var out strings.Builder
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == '%' {
			fmt.Fprintf(&out, "%%%02X", c)
		} else {
			out.WriteByte(c)
		}
	}
	return out.String()
}
