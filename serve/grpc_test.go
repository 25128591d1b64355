package serve

import (
	"context"
	"errors"
	"net"
	"net/http"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/optimem/optimem/serve/internal/inference"
)

// serveHTTP serves on a port of loopback, and returns the address and a client that speaks HTTP/2 without TLS.
func serveHTTP(t testing.TB, h http.Handler) (string, *http.Client) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := NewServer(h)
	go server.Serve(l)
	t.Cleanup(func() { server.Close() })
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols}
	t.Cleanup(transport.CloseIdleConnections)
	return "http://" + l.Addr().String(), &http.Client{Transport: transport}
}

func call1[Q, A any](t testing.TB, client *http.Client, at, method string, q *Q, opts ...connect.ClientOption) (*A, error) {
	c := connect.NewClient[Q, A](client, at+method, append(opts, connect.WithGRPC())...)
	answer, err := c.CallUnary(context.Background(), connect.NewRequest(q))
	if err != nil {
		return nil, err
	}
	return answer.Msg, nil
}

func inferMessage(model string, pixels []float32) *inference.InferRequest {
	return &inference.InferRequest{
		ModelName: model, Id: "7", Inputs: []*inference.InferRequest_Input{{Name: "input", Datatype: "FP32", Shape: []int64{int64(len(pixels) / 64), 1, 8, 8}}},
		Raw: [][]byte{floatBytes(pixels)},
	}
}

// TestGRPC: the service answers on the port of REST, with the same bits, and errors have gRPC's codes.
func TestGRPC(t *testing.T) {
	r := open(t, directory(t, map[string]string{"digits.pt2": digits}), Options{MaxBody: 1 << 20, MaxBodies: 2 << 20})
	at, client := serveHTTP(t, r.Handler())
	pixels := pictures(t, 2)
	want := scores(t, pixels)
	raw := inferMessage("digits", pixels)
	typed := inferMessage("digits", pixels)
	typed.Raw, typed.Inputs[0].Contents = nil, &inference.Contents{Fp32S: pixels}
	for _, q := range []*inference.InferRequest{raw, typed} {
		a, err := call1[inference.InferRequest, inference.InferResponse](t, client, at, service+"ModelInfer", q)
		if err != nil {
			t.Fatal(err)
		}
		if a.Id != "7" || len(a.Raw) != 1 || string(a.Raw[0]) != string(floatBytes(want)) || a.Outputs[0].Name != "linear_1" || a.ModelVersion != "1" {
			t.Errorf("%v", a)
		}
	}
	index, err := call1[inference.IndexRequest, inference.IndexResponse](t, client, at, service+"RepositoryIndex", &inference.IndexRequest{})
	if err != nil || len(index.Models) != 1 || index.Models[0].State != "READY" {
		t.Error(index, err)
	}
	config, err := call1[inference.ModelRequest, inference.ConfigResponse](t, client, at, service+"ModelConfig", &inference.ModelRequest{Name: "digits"})
	if err != nil || config.Config.Input[0].DataType != 11 {
		t.Error(config, err)
	}
	health, err := call1[inference.HealthRequest, inference.HealthResponse](t, client, at, "/grpc.health.v1.Health/Check", &inference.HealthRequest{})
	if err != nil || health.Status != 1 {
		t.Error(health, err)
	}
	wrongShape := inferMessage("digits", pixels)
	wrongShape.Inputs[0].Shape = []int64{2, 8, 8}
	fewer := inferMessage("digits", pixels)
	fewer.Raw = append(fewer.Raw, nil)
	huge := inferMessage("digits", make([]float32, 1<<19))
	negative := inferMessage("digits", pixels)
	negative.Inputs[0].Shape[0] = -2
	for name, c := range map[string]struct {
		q    *inference.InferRequest
		want connect.Code
	}{
		"no model": {inferMessage("none", pixels), connect.CodeNotFound}, "another shape": {wrongShape, connect.CodeInvalidArgument},
		"raw contents of nothing": {fewer, connect.CodeInvalidArgument}, "too large": {huge, connect.CodeResourceExhausted},
		"a dimension below zero": {negative, connect.CodeInvalidArgument},
	} {
		_, err := call1[inference.InferRequest, inference.InferResponse](t, client, at, service+"ModelInfer", c.q)
		if connect.CodeOf(err) != c.want {
			t.Errorf("%s: %v, not %v", name, err, c.want)
		}
	}
	if _, err := call1[inference.ControlRequest, inference.Empty](t, client, at, service+"RepositoryModelUnload", &inference.ControlRequest{Model: "digits"}); connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Error(err)
	}
	if _, err := call1[inference.Empty, inference.Empty](t, client, at, service+"SystemSharedMemoryStatus", &inference.Empty{}); connect.CodeOf(err) != connect.CodeUnimplemented {
		t.Error(err)
	}
	stream := connect.NewClient[inference.InferRequest, inference.StreamResponse](client, at+service+"ModelStreamInfer", connect.WithGRPC()).CallBidiStream(t.Context())
	for _, q := range []*inference.InferRequest{raw, inferMessage("none", pixels), raw} {
		if err := stream.Send(q); err != nil {
			t.Fatal(err)
		}
		a, err := stream.Receive()
		if err != nil || (a.Error == "") != (q == raw) || q == raw && string(a.Response.Raw[0]) != string(floatBytes(want)) {
			t.Errorf("%v %v", a, err)
		}
	}
	for range 8 { // what was answered is not held, however long the stream
		q := inferMessage("none", make([]float32, 64<<10))
		if err := stream.Send(q); err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Receive(); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(stream.CloseRequest(), stream.CloseResponse()); err != nil {
		t.Error(err)
	}
}

// TestGRPCBusy: a refusal says when to come back as gRPC's retry policies read it, and a client's deadline is the request's.
func TestGRPCBusy(t *testing.T) {
	r, s := serveSlow(t, Options{MaxQueue: 1})
	at, client := serveHTTP(t, r.Handler())
	first := make(chan error, 1)
	q := &inference.InferRequest{ModelName: "slow"}
	go func() {
		_, err := call1[inference.InferRequest, inference.InferResponse](t, client, at, service+"ModelInfer", q)
		first <- err
	}()
	until(t, "a pass", func() bool { return s.calls.Load() == 1 })
	_, err := call1[inference.InferRequest, inference.InferResponse](t, client, at, service+"ModelInfer", q)
	var e *connect.Error
	if !errors.As(err, &e) || e.Code() != connect.CodeResourceExhausted || e.Meta().Get("grpc-retry-pushback-ms") != "3000" {
		t.Errorf("%v %v", err, e.Meta())
	}
	close(s.free)
	if err := <-first; err != nil {
		t.Error(err)
	}
	s.free = make(chan struct{})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	c := connect.NewClient[inference.InferRequest, inference.InferResponse](client, at+service+"ModelInfer", connect.WithGRPC())
	if _, err := c.CallUnary(ctx, connect.NewRequest(q)); connect.CodeOf(err) != connect.CodeDeadlineExceeded {
		t.Error(err)
	}
	v, _ := r.find("slow", "")
	until(t, "nobody is here", func() bool { return v.stats.waiting() == 0 })
	until(t, "no bytes are held", func() bool { return r.bodies.heldBytes() == 0 })
}

// TestNarrow: integers that are given one by one have to be what they are called.
func TestNarrow(t *testing.T) {
	for _, c := range []struct {
		datatype string
		contents *inference.Contents
		want     string
	}{
		{"INT8", &inference.Contents{Ints: []int32{-128, 127}}, "\x80\x7f"}, {"INT8", &inference.Contents{Ints: []int32{128}}, "error"},
		{"UINT8", &inference.Contents{Uints: []uint32{255}}, "\xff"}, {"UINT8", &inference.Contents{Uints: []uint32{256}}, "error"},
		{"INT16", &inference.Contents{Ints: []int32{-2}}, "\xfe\xff"}, {"INT32", &inference.Contents{Ints: []int32{-1 << 31}}, "\x00\x00\x00\x80"},
		{"UINT32", &inference.Contents{Uints: []uint32{1<<32 - 1}}, "\xff\xff\xff\xff"}, {"FP16", &inference.Contents{Fp32S: []float32{1}}, "error"},
		{"BOOL", &inference.Contents{Bools: []bool{true, false}}, "\x01\x00"}, {"INT64", nil, ""},
	} {
		got, err := contents("x", c.datatype, c.contents)
		text := string(got)
		if err != nil {
			text = "error"
		}
		if text != c.want {
			t.Errorf("%s: %q %v", c.datatype, got, err)
		}
	}
}

// FuzzMessage: what a message is made into is what it says, within its bounds, whatever it holds.
func FuzzMessage(f *testing.F) {
	for _, q := range []*inference.InferRequest{
		inferMessage("m", make([]float32, 64)),
		{Inputs: []*inference.InferRequest_Input{{Name: "x", Datatype: "BYTES", Shape: []int64{1}, Contents: &inference.Contents{Texts: [][]byte{nil}}}}},
		{Inputs: []*inference.InferRequest_Input{{Name: "x", Datatype: "INT8", Shape: []int64{2}, Contents: &inference.Contents{Ints: []int32{1, -1}}}}},
	} {
		text, err := proto.Marshal(q)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		q := new(inference.InferRequest)
		if proto.Unmarshal(text, q) != nil {
			return
		}
		const most = 1 << 16
		r, err := grpcRequest(q, most)
		if err != nil {
			return
		}
		total := 0
		for _, in := range r.Inputs {
			n, err := in.Shape.NumElements()
			if err != nil || in.Tensor == nil && int64(len(in.Texts)) != n || in.Tensor != nil && int64(len(in.Tensor.Data)) != n*int64(in.Tensor.DType.Size()) {
				t.Fatalf("input of shape %v has other elements", in.Shape)
			}
			if in.Tensor != nil {
				total += len(in.Tensor.Data)
			}
		}
		if total > most {
			t.Fatalf("%d bytes", total)
		}
	})
}
