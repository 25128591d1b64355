package serve

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/optimem/optimem/serve/internal/inference"
	"github.com/optimem/optimem/serve/oip"
	"github.com/optimem/optimem/tensor"
)

// framed is a message as gRPC sends it.
func framed(t testing.TB, q proto.Message) []byte {
	t.Helper()
	text, err := proto.Marshal(q)
	if err != nil {
		t.Fatal(err)
	}
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(text))), text...)
}

// TestLargeMessages: a large message is answered where its bytes are, with the bits of a small one, wherever its tensor
// lies, and nothing is held afterwards. Others go the way of small ones.
func TestLargeMessages(t *testing.T) {
	r := open(t, directory(t, map[string]string{"digits.pt2": digits}), Options{MaxBody: 1 << 20, MaxBodies: 4 << 20})
	pixels := pictures(t, 2)
	want := scores(t, pixels)
	const rows = largeMessage/256 + 64
	q := inferMessage("digits", slices.Repeat(pixels, rows/2))
	var others atomic.Int64
	at, client := serveHTTP(t, r.large(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		others.Add(1)
		r.Handler().ServeHTTP(w, req)
	})))
	for n := range 9 { // so that the tensor begins at any byte of a word
		q.Id = strings.Repeat("7", n)
		a, err := call1[inference.InferRequest, inference.InferResponse](t, client, at, service+"ModelInfer", q)
		if err != nil {
			t.Fatal(err)
		}
		if a.Id != q.Id || a.ModelName != "digits" || a.ModelVersion != "1" || a.Outputs[0].Name != "linear_1" || a.Outputs[0].Shape[0] != rows {
			t.Errorf("%s %s %s %v", a.Id, a.ModelName, a.ModelVersion, a.Outputs)
		}
		if !bytes.Equal(a.Raw[0], floatBytes(slices.Repeat(want, rows/2))) {
			t.Error("other bits")
		}
	}
	if n := others.Load(); n != 0 {
		t.Errorf("%d messages went another way", n)
	}
	if _, err := call1[inference.InferRequest, inference.InferResponse](t, client, at, service+"ModelInfer", inferMessage("digits", pixels)); err != nil || others.Load() != 1 {
		t.Errorf("a small message: %v, %d", err, others.Load())
	}
	typed := proto.Clone(q).(*inference.InferRequest)
	typed.Raw, typed.Inputs[0].Contents = nil, &inference.Contents{Fp32S: slices.Repeat(pixels, rows/2)}
	if _, err := call1[inference.InferRequest, inference.InferResponse](t, client, at, service+"ModelInfer", typed); err != nil || others.Load() != 2 {
		t.Errorf("elements one by one: %v, %d", err, others.Load())
	}
	if _, err := call1[inference.InferRequest, inference.InferResponse](t, client, at, service+"ModelInfer", q, connect.WithSendGzip()); err != nil || others.Load() != 3 {
		t.Errorf("a packed message: %v, %d", err, others.Load())
	}
	until(t, "no bytes are held", func() bool { return r.bodies.heldBytes() == 0 })
}

// TestBadLargeMessages: what is wrong with a large message is told as with a small one, and nothing is held afterwards.
func TestBadLargeMessages(t *testing.T) {
	r := open(t, directory(t, map[string]string{"digits.pt2": digits}), Options{MaxBody: 1 << 20, MaxBodies: 2 << 20})
	at, client := serveHTTP(t, r.Handler())
	good := inferMessage("digits", make([]float32, largeMessage/4))
	shape := proto.Clone(good).(*inference.InferRequest)
	shape.Inputs[0].Shape[0]--
	other := proto.Clone(good).(*inference.InferRequest)
	other.ModelName = "nöne %"
	many := proto.Clone(good).(*inference.InferRequest)
	for range maxTensors {
		many.Raw = append(many.Raw, nil)
	}
	whole := framed(t, good)
	longer := slices.Clone(whole) // which says that there is more than comes
	binary.BigEndian.PutUint32(longer[1:], uint32(len(whole)+100))
	wrong := slices.Clone(whole) // of which the last field is cut
	wrong = protowire.AppendTag(wrong, rawInputs, protowire.BytesType)
	wrong = protowire.AppendVarint(wrong, 1000)
	binary.BigEndian.PutUint32(wrong[1:], uint32(len(wrong)-framePrefix))
	text := slices.Clone(whole) // whose next field is no text
	text = append(protowire.AppendTag(text, 3, protowire.BytesType), 1, 0xff)
	binary.BigEndian.PutUint32(text[1:], uint32(len(text)-framePrefix))
	for _, c := range []struct {
		name    string
		message []byte
		timeout string
		code    connect.Code
		says    string
	}{
		{"all is well", whole, "99999999H", 0, ""}, {"another shape", framed(t, shape), "", connect.CodeInvalidArgument, "inputs[0]"},
		{"no model", framed(t, other), "", connect.CodeNotFound, "n%C3%B6ne %25"}, {"too many tensors", framed(t, many), "", connect.CodeInvalidArgument, "tensors"},
		{"cut short", longer, "", connect.CodeInvalidArgument, "cut short"}, {"more than one", append(slices.Clone(whole), whole...), "", connect.CodeUnimplemented, "has more"},
		{"a field that is cut", wrong, "", connect.CodeInvalidArgument, "cut short"}, {"no text", text, "", connect.CodeInvalidArgument, "none of ModelInfer"},
		{"no time", whole, "x", connect.CodeInvalidArgument, "grpc-timeout"}, {"no unit", whole, "12", connect.CodeInvalidArgument, "grpc-timeout"},
		{"time that is over", whole, "1n", connect.CodeDeadlineExceeded, "time is over"},
	} {
		req, err := http.NewRequestWithContext(t.Context(), "POST", at+service+"ModelInfer", io.MultiReader(bytes.NewReader(c.message)))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/grpc")
		if c.timeout != "" {
			req.Header.Set("Grpc-Timeout", c.timeout)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		resp.Body.Close()
		status, says := resp.Trailer.Get("Grpc-Status"), resp.Trailer.Get("Grpc-Message")
		if want := grpcNumber(c.code); resp.StatusCode != 200 || status != want || !strings.Contains(says, c.says) {
			t.Errorf("%s: %s %q, not %s %q", c.name, status, says, want, c.says)
		}
		until(t, "no bytes are held", func() bool { return r.bodies.heldBytes() == 0 })
	}
	if !r.bodies.take(2<<20 - 64<<10) {
		t.Fatal("no room")
	}
	_, err := call1[inference.InferRequest, inference.InferResponse](t, client, at, service+"ModelInfer", good)
	if e, ok := err.(*connect.Error); !ok || e.Code() != connect.CodeResourceExhausted || e.Meta().Get(pushback) != "1000" {
		t.Errorf("no room for a message: %v", err)
	}
	r.bodies.give(2<<20 - 64<<10)
	r.Drain()
	if _, err := call1[inference.InferRequest, inference.InferResponse](t, client, at, service+"ModelInfer", good); connect.CodeOf(err) != connect.CodeUnavailable {
		t.Errorf("after the end began: %v", err)
	}
}

func grpcNumber(c connect.Code) string { return strconv.Itoa(int(c)) }

// TestClientOfLargeMessageLeaves: who goes away while a large message comes holds nothing.
func TestClientOfLargeMessageLeaves(t *testing.T) {
	r := open(t, directory(t, map[string]string{"digits.pt2": digits}), Options{MaxBody: 4 << 20})
	at, client := serveHTTP(t, r.Handler())
	whole := framed(t, inferMessage("digits", make([]float32, largeMessage/4)))
	ctx, leave := context.WithCancel(t.Context())
	reader, writer := io.Pipe()
	req, err := http.NewRequestWithContext(ctx, "POST", at+service+"ModelInfer", reader)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/grpc")
	answered := make(chan error, 1)
	go func() {
		resp, err := client.Do(req)
		if err == nil {
			resp.Body.Close()
		}
		answered <- err
	}()
	if _, err := writer.Write(whole[:len(whole)/2]); err != nil {
		t.Fatal(err)
	}
	until(t, "its bytes are held", func() bool { return r.bodies.heldBytes() > 0 })
	leave()
	if err := <-answered; err == nil {
		t.Error("it was answered")
	}
	_ = writer.Close()
	until(t, "no bytes are held", func() bool { return r.bodies.heldBytes() == 0 })
}

// FuzzLargeMessage: what is taken out of a message is what Protobuf's own reader makes of it.
func FuzzLargeMessage(f *testing.F) {
	for _, q := range []*inference.InferRequest{inferMessage("m", make([]float32, 64)), {Id: "7", Raw: [][]byte{{1}, nil, {2, 3}}}, {ModelName: "m"}} {
		f.Add(framed(f, q)[framePrefix:])
	}
	f.Fuzz(func(t *testing.T, message []byte) {
		_, first := firstTensor(message)
		others, raw, err := tensorsOf(message)
		want, got := new(inference.InferRequest), new(inference.InferRequest)
		if proto.Unmarshal(message, want) != nil || len(want.Raw) > maxTensors {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := proto.Unmarshal(slices.Concat(others...), got); err != nil {
			t.Fatal(err)
		}
		if len(raw) > 0 && (first == 0 || first > len(message) || !bytes.HasPrefix(message[first:], raw[0])) {
			t.Fatalf("the first tensor is not at %d", first)
		}
		for i, x := range raw {
			raw[i] = append([]byte{}, x...)
		}
		if got.Raw = raw; !proto.Equal(got, want) {
			t.Fatalf("%v, not %v", got, want)
		}
	})
}

// TestBodiesAreNotCopied: a tensor behind a header of any length is used where it was read.
func TestBodiesAreNotCopied(t *testing.T) {
	r, s := serveSlow(t, Options{})
	close(s.free)
	for n := range 9 {
		head := `{"inputs":[{"name":"x","shape":[2],"datatype":"FP64","parameters":{"binary_data_size":16}}]` + strings.Repeat(" ", n) + `}`
		b, err := r.readBody(httptest.NewRecorder(), httptest.NewRequest("POST", "/", strings.NewReader(head+strings.Repeat("x", 16))), len(head))
		if err != nil {
			t.Fatal(err)
		}
		request, err := oip.Parse(b.data, len(head), oip.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		if &request.Inputs[0].Tensor.Data[0] != &b.data[len(head)] {
			t.Errorf("a tensor behind %d bytes was copied", len(head))
		}
		b.free()
	}
}

// TestPacking: answers are packed where that saves something.
func TestPacking(t *testing.T) {
	noise := make([]float32, 1<<14)
	state := uint32(1)
	for i := range noise {
		state = state*1664525 + 1013904223
		noise[i] = float32(state)
	}
	of := func(list []float32, binary bool) *oip.Response {
		return &oip.Response{Outputs: []oip.Output{{Name: "y", Tensor: tensor.Of(list, len(list)), Binary: binary}}}
	}
	for _, c := range []struct {
		name     string
		response *oip.Response
		want     string
	}{
		{"a small answer", of(noise[:1000], false), ""}, {"numbers in JSON", of(noise, false), "gzip"}, {"random numbers", of(noise, true), ""},
		{"zeros", of(make([]float32, 1<<14), true), "gzip"},
	} {
		for range 2 { // what packs is used again
			h := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				if err := writeResponse(w, req, c.response); err != nil {
					t.Error(err)
				}
			})
			_, header, body := ask(h, "POST", "/", "", "Accept-Encoding", "br, gzip, deflate")
			if got := header.Get("Content-Encoding"); got != c.want {
				t.Errorf("%s: packed as %q, not %q", c.name, got, c.want)
			}
			if n := int64(len(body)); c.want == "gzip" && n >= 2*c.response.Outputs[0].RawBytes() {
				t.Errorf("%s: %d bytes", c.name, n)
			}
		}
	}
}
