package serve

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/optimem/optimem/embed"
	"github.com/optimem/optimem/generate"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/serve/internal/inference"
	"github.com/optimem/optimem/serve/oip"
)

// A refusing runner answers every call with an error.
type refusing struct {
	slow
	err error
}

func (f *refusing) infer(context.Context, *call) error { return f.err }

// A mapped error is one that a client is told by a status of HTTP and a code of gRPC.
type mapped struct {
	err    error
	status int
	code   connect.Code
	// says is a part of the message; wait is whether it says when to come back.
	says string
	wait bool
}

// mapping has for each line of the table in docs/serving.md, by what is wrong, the errors that it is about.
var mapping = map[string][]mapped{
	"the request: names, shapes, datatypes, JSON": {
		{&oip.Error{Where: "inputs[0]", Msg: "no name"}, 400, connect.CodeInvalidArgument, "inputs[0]: no name", false},
		{&runtime.InputError{Input: "x", Msg: "of another shape"}, 400, connect.CodeInvalidArgument, "input x", false},
		{&runtime.RowsError{Rows: 3, Micro: 8, Err: errors.New("three rows")}, 400, connect.CodeInvalidArgument, "three rows", false},
		{&graph.NotBatchableError{Msg: "rows are mixed"}, 400, connect.CodeInvalidArgument, "these shapes", false},
		{&models.ProgramError{Err: errors.New("node 7")}, 400, connect.CodeInvalidArgument, "node 7", false},
		{&embed.RequestError{Msg: "no texts"}, 400, connect.CodeInvalidArgument, "no texts", false},
		{&generate.RequestError{Msg: "a temperature below zero"}, 400, connect.CodeInvalidArgument, "below zero", false},
	},
	"no such model or version": {{refuse(404, "there is no model"), 404, connect.CodeNotFound, "no model", false}},
	"a body that is too large; that comes too slowly": {
		{&http.MaxBytesError{Limit: 7}, 413, connect.CodeResourceExhausted, "more than 7 bytes", false},
		{bodyError(os.ErrDeadlineExceeded), 408, connect.CodeResourceExhausted, "too slowly", false},
	},
	"shapes that do not fit into the budget; the error says what would": {
		{&runtime.CapacityError{MinBytes: 70, HaveBytes: 60}, 422, connect.CodeFailedPrecondition, "needs 70 bytes of memory at least, and has 60", false},
	},
	"too many requests, or the deadline is too short for its pass": {
		{runtime.ErrPoolFull, 429, connect.CodeResourceExhausted, "too many", true}, {crowded(), 429, connect.CodeResourceExhausted, "too many bytes", true},
	},
	"the deadline passed while the request waited or ran": {{context.DeadlineExceeded, 504, connect.CodeDeadlineExceeded, "time is over", false}},
	"the server is shutting down, or the model is closed": {
		{runtime.ErrClosed, 503, connect.CodeUnavailable, "closed", true}, {generate.ErrClosed, 503, connect.CodeUnavailable, "closed", true},
	},
	"a model that needs an unsupported feature": {{refuse(501, "no such op"), 501, connect.CodeUnimplemented, "no such op", false}},
	"anything else, of which only the log has the words": {
		{errors.New("open /secret/path"), 500, connect.CodeInternal, "internal error", false},
	},
}

// TestErrorMapping: every line of the table in docs/serving.md holds, in REST and in gRPC, and there is no other error
// whose words come out.
func TestErrorMapping(t *testing.T) {
	text, err := os.ReadFile("../docs/serving.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(text), "| what is wrong | HTTP | gRPC |\n|---|---|---|\n")
	if !found {
		t.Fatal("docs/serving.md has no table of errors")
	}
	table, _, _ = strings.Cut(table, "\n\n")
	lines := strings.Split(table, "\n")
	if len(lines) != len(mapping) {
		t.Errorf("%d lines are in the table, and %d are known here", len(lines), len(mapping))
	}
	r, err := New(Options{Memory: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	f := &refusing{}
	v := newVersion(r, found1("failing"))
	now := make(chan struct{})
	close(now)
	v.inst = &instance{runner: f, turn: now, done: make(chan struct{})}
	r.models["failing"] = &served{name: "failing", versions: []*version{v}}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	at, client := serveHTTP(t, r.Handler())
	for _, line := range lines {
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		if len(cells) != 3 {
			t.Fatalf("a line of the table: %s", line)
		}
		cases := mapping[cells[0]]
		if len(cases) == 0 {
			t.Errorf("no test for the line %q", cells[0])
		}
		for _, c := range cases {
			if !strings.Contains(cells[1], strconv.Itoa(c.status)) || !strings.Contains(cells[2], grpcName(c.code)) {
				t.Errorf("%s: the table does not have %d and %v", cells[0], c.status, c.code)
			}
			if c.wait != strings.Contains(cells[1], "Retry-After") {
				t.Errorf("%s: Retry-After is not as in the table", cells[0])
			}
			f.err = fmt.Errorf("in a model: %w", c.err)
			status, header, body := ask(r.Handler(), "POST", "/v2/models/failing/infer", empty)
			if status != c.status || !strings.Contains(body, c.says) || !strings.HasPrefix(body, `{"error":`) || strings.Contains(body, "secret") {
				t.Errorf("%v: %d %s", c.err, status, body)
			}
			if (header.Get("Retry-After") != "") != c.wait {
				t.Errorf("%v: Retry-After is %q", c.err, header.Get("Retry-After"))
			}
			_, err := call1[inference.InferRequest, inference.InferResponse](t, client, at, service+"ModelInfer", &inference.InferRequest{ModelName: "failing"})
			var e *connect.Error
			if !errors.As(err, &e) || e.Code() != c.code || !strings.Contains(e.Message(), c.says) || strings.Contains(e.Message(), "secret") {
				t.Errorf("%v: %v, not %v", c.err, err, c.code)
				continue
			}
			if (e.Meta().Get("grpc-retry-pushback-ms") != "") != c.wait {
				t.Errorf("%v: grpc-retry-pushback-ms is %q", c.err, e.Meta().Get("grpc-retry-pushback-ms"))
			}
		}
	}
	// A client that went away is told nothing, and counted.
	if e := told(t.Context(), context.Canceled); e.Status != statusClientGone || codes[e.Status] != connect.CodeCanceled {
		t.Errorf("a client that went away: %d", e.Status)
	}
}

// found1 is a model of tensors that is in no directory.
func found1(name string) found { return found{name: name, version: "1", kind: Tensors} }

// grpcName is a code's name as gRPC writes it.
func grpcName(c connect.Code) string { return strings.ToUpper(c.String()) }

// A late body ends as one whose time to be read is over.
type late struct{ io.Reader }

func (l late) Read(to []byte) (int, error) {
	n, err := l.Reader.Read(to)
	if errors.Is(err, io.EOF) {
		err = fmt.Errorf("read tcp: %w", os.ErrDeadlineExceeded)
	}
	return n, err
}

func (late) Close() error { return nil }

// TestSlowBodies: a body that comes more slowly than it may is refused as that, in REST and, whatever its size, in
// gRPC. Until when it may come is said to the connection.
func TestSlowBodies(t *testing.T) {
	r, s := serveSlow(t, Options{})
	close(s.free)
	rest := httptest.NewRequest("POST", slowPath, late{strings.NewReader(`{"inp`)})
	w := httptest.NewRecorder()
	if r.Handler().ServeHTTP(w, rest); w.Code != http.StatusRequestTimeout {
		t.Errorf("REST: %d", w.Code)
	}
	large := framed(t, &inference.InferRequest{ModelName: "slow", Raw: [][]byte{make([]byte, 2*largeMessage)}})
	for name, message := range map[string][]byte{
		"small": framed(t, &inference.InferRequest{ModelName: "slow"})[:7], "large": large[:len(large)-1], "of which not even the length came": large[:3],
		"whose tensor did not begin": large[:framePrefix+100],
	} {
		req := httptest.NewRequest("POST", service+"ModelInfer", late{bytes.NewReader(message)})
		req.ProtoMajor, req.ProtoMinor, req.Proto = 2, 0, "HTTP/2.0"
		req.Header.Set("Content-Type", "application/grpc")
		w := &timed{ResponseWriter: httptest.NewRecorder()}
		r.Handler().ServeHTTP(w, req)
		header := w.Header()
		status := header.Get(http.TrailerPrefix+"Grpc-Status") + header.Get("Grpc-Status")
		if status != grpcNumber(connect.CodeResourceExhausted) || len(w.until) == 0 || w.until[0].IsZero() {
			t.Errorf("a message of gRPC, %s: status %q, %v", name, status, header)
		}
	}
	until(t, "no bytes are held", func() bool { return r.bodies.heldBytes() == 0 })
}
