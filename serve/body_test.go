package serve

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/optimem/optimem/serve/internal/inference"
	"github.com/optimem/optimem/serve/oip"
)

// Nothing is dropped because tests are slow.
func init() { keptFor = time.Hour }

// A discarding response takes what is written, and counts it.
type discarding struct {
	header http.Header
	bytes  int
	last   []byte
}

func (d *discarding) Header() http.Header { return d.header }
func (d *discarding) WriteHeader(int)     {}
func (d *discarding) Write(p []byte) (int, error) {
	d.bytes, d.last = d.bytes+len(p), p[max(len(p)-100, 0):]
	return len(p), nil
}

// TestLargeRequestsAllocateNothing: of a large request, by REST and by gRPC, neither the body nor the answer is memory that
// Go has to find and clear, once others were there. What is left is less than a tenth of the request.
func TestLargeRequestsAllocateNothing(t *testing.T) {
	r := open(t, directory(t, map[string]string{"same.pt": "testdata/same.pt"}), Options{MaxBody: 8 << 20})
	const size, times = 4 << 20, 5
	numbers := make([]float32, size/4)
	for i := range numbers {
		numbers[i] = float32(i % 1000)
	}
	data := floatBytes(numbers)
	inputs, _, err := r.Inputs(t.Context(), "same")
	if err != nil {
		t.Fatal(err)
	}
	name := inputs[0].Name
	message := framed(t, &inference.InferRequest{
		ModelName: "same", Inputs: []*inference.InferRequest_Input{{Name: name, Datatype: "FP32", Shape: []int64{size / 4}}}, Raw: [][]byte{data},
	})
	head := fmt.Sprintf(`{"inputs":[{"name":%q,"shape":[%d],"datatype":"FP32","parameters":{"binary_data_size":%d}}],"parameters":{"binary_data_output":true}}`,
		name, size/4, size)
	h := r.Handler()
	for name, made := range map[string]func() *http.Request{
		"REST": func() *http.Request {
			req := httptest.NewRequest("POST", "/v2/models/same/infer", bytes.NewReader(slices.Concat([]byte(head), data)))
			req.Header.Set(headerLength, strconv.Itoa(len(head)))
			return req
		},
		"gRPC": func() *http.Request {
			req := httptest.NewRequest("POST", service+"ModelInfer", bytes.NewReader(message))
			req.Header.Set("Content-Type", "application/grpc")
			req.ProtoMajor = 2
			return req
		},
	} {
		ask := func(req *http.Request) {
			w := &discarding{header: make(http.Header)}
			if h.ServeHTTP(w, req); w.bytes < size || !bytes.Equal(w.last, data[size-100:]) {
				t.Fatalf("%s: %d bytes of an answer: %v %s", name, w.bytes, w.header, w.last)
			}
		}
		ask(made())
		var all []*http.Request
		for range times {
			all = append(all, made())
		}
		var before, after goruntime.MemStats
		goruntime.ReadMemStats(&before)
		for _, req := range all {
			ask(req)
		}
		goruntime.ReadMemStats(&after)
		if each := (after.TotalAlloc - before.TotalAlloc) / times; each > size/10 {
			t.Errorf("%s: a request takes %d bytes anew", name, each)
		}
	}
	if n := r.bodies.heldBytes(); n != 0 {
		t.Errorf("%d bytes are held", n)
	}
}

// TestKeptMemory: memory of large bodies is used again by those of its size, gives way to what is reserved, the oldest
// first, never goes with what is held beyond the most there may be, and is dropped when memory is given back.
func TestKeptMemory(t *testing.T) {
	const size = leastKept
	b := &bodies{most: 4 * size}
	first, second := b.memory(size), b.memory(size)
	b.keep(first)
	b.keep(second)
	b.keep(make([]byte, size-1)) // which is small
	if b.spareBytes != 2*size || len(b.spare) != 2 {
		t.Fatalf("%d bytes are kept", b.spareBytes)
	}
	if m := b.memory(2 * size); len(m) != 2*size || len(b.spare) != 2 {
		t.Error("memory of another size is used")
	}
	if !b.take(3*size) || len(b.spare) != 1 || &b.spare[0][0] != &second[0] || b.spareBytes != size {
		t.Errorf("%d bytes are kept beside %d", b.spareBytes, b.held)
	}
	if m := b.memory(size); &m[0] != &second[0] || b.spareBytes != 0 || len(b.spare) != 0 {
		t.Error("what is kept is not used")
	}
	b.keep(make([]byte, 2*size)) // for which there is no room
	if b.spareBytes != 0 {
		t.Errorf("%d bytes are kept beside %d", b.spareBytes, b.held)
	}
	b.keep(first)
	b.keep(second)
	if len(b.spare) != 1 || &b.spare[0][0] != &second[0] || b.spareBytes != size {
		t.Errorf("%d bytes are kept beside %d", b.spareBytes, b.held)
	}
	b.give(3 * size)
	if b.drop(); b.spareBytes != 0 || len(b.spare) != 0 {
		t.Error("it is kept")
	}
	r := open(t, directory(t, map[string]string{"digits.pt2": digits}), Options{})
	r.bodies.keep(make([]byte, size))
	if err := r.GiveBack(t.Context()); err != nil || r.bodies.spareBytes != 0 {
		t.Errorf("memory is kept though it was given back: %v", err)
	}
}

// TestOnlyTensorsAreKept: memory in which texts lie, that others may still have, goes to nobody else; that of numbers in
// JSON does as soon as they are read.
func TestOnlyTensorsAreKept(t *testing.T) {
	r := open(t, directory(t, map[string]string{"digits.pt2": digits}), Options{})
	pad := strings.Repeat(" ", leastKept)
	for _, c := range []struct {
		name, head, tail string
		header           bool
		read, after      int
	}{
		{"JSON", `{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":[1]}]` + pad + `}`, "", false, 1, 1},
		{"texts", `{"inputs":[{"name":"x","shape":[1],"datatype":"BYTES","data":["a"]}]` + pad + `}`, "", false, 0, 0},
		{"binary", `{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","parameters":{"binary_data_size":4}}]` + pad + `}`, "1234", true, 0, 1},
		{"binary texts", `{"inputs":[{"name":"x","shape":[1],"datatype":"BYTES","parameters":{"binary_data_size":4}}]` + pad + `}`, "\x00\x00\x00\x00", true, 0, 0},
	} {
		r.bodies.drop()
		header := oip.NoHeader
		if c.header {
			header = len(c.head)
		}
		b, err := r.readBody(httptest.NewRecorder(), httptest.NewRequest("POST", "/", io.MultiReader(strings.NewReader(c.head+c.tail))), header)
		if err == nil || b != nil { // its length is not known, so nothing is kept of it
			if b.free(); len(r.bodies.spare) != 0 {
				t.Errorf("%s: memory of a body of unknown length is kept", c.name)
			}
		}
		b, err = r.readBody(httptest.NewRecorder(), httptest.NewRequest("POST", "/", strings.NewReader(c.head+c.tail)), header)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.parse(b, header); err != nil {
			t.Fatal(err)
		}
		if n := len(r.bodies.spare); n != c.read {
			t.Errorf("%s: %d are kept when it is read", c.name, n)
		}
		if b.free(); len(r.bodies.spare) != c.after || r.bodies.heldBytes() != 0 {
			t.Errorf("%s: %d are kept afterwards, and %d bytes held", c.name, len(r.bodies.spare), r.bodies.heldBytes())
		}
	}
}

// TestKeptSize: sizes are multiples of a piece, with what aligning takes, and small ones as they are.
func TestKeptSize(t *testing.T) {
	for n, want := range map[int64]int64{
		0: 0, leastKept - 1: leastKept - 1, leastKept: leastKept + keptPiece, leastKept + keptPiece - bodyAlign: leastKept + keptPiece,
		leastKept + keptPiece - bodyAlign + 1: leastKept + 2*keptPiece, math.MaxInt32: 1<<31 + keptPiece,
	} {
		if got := keptSize(n); got != want {
			t.Errorf("%d bytes take %d, not %d", n, got, want)
		}
	}
}
