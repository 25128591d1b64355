package serve

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"

	"connectrpc.com/connect"

	"github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/serve/internal/inference"
	"github.com/optimem/optimem/serve/oip"
)

// service is the path of the protocol's gRPC service.
const service = "/inference.GRPCInferenceService/"

// grpcRoutes adds the methods of the gRPC service, and health. Methods that are not here, shared memory among them, are unknown
// to clients for good.
func (r *Registry) grpcRoutes(mux *http.ServeMux, admin bool) {
	limit := connect.WithReadMaxBytes(int(min(r.opts.MaxBody+64<<10, 1<<31-1)))
	add := func(path string, h http.Handler) {
		mux.Handle("POST "+path, r.counted(h, path != service+"ModelStreamInfer"))
	}
	add(service+"ServerLive", unary(service+"ServerLive", limit, func(context.Context, *inference.Empty) (*inference.LiveResponse, error) {
		return &inference.LiveResponse{Live: true}, nil
	}))
	add(service+"ServerReady", unary(service+"ServerReady", limit, func(context.Context, *inference.Empty) (*inference.ReadyResponse, error) {
		return &inference.ReadyResponse{Ready: r.isReady()}, nil
	}))
	add("/grpc.health.v1.Health/Check", unary("/grpc.health.v1.Health/Check", limit, r.grpcHealth))
	add(service+"ModelReady", unary(service+"ModelReady", limit, func(_ context.Context, m *inference.ModelRequest) (*inference.ReadyResponse, error) {
		v, err := r.find(m.Name, m.Version) // one that is not there is not ready, and no error
		return &inference.ReadyResponse{Ready: err == nil && v.isReady() && r.isReady()}, nil
	}))
	add(service+"ServerMetadata", unary(service+"ServerMetadata", limit, func(context.Context, *inference.Empty) (*inference.ServerMetadataResponse, error) {
		return &inference.ServerMetadataResponse{Name: "optimem", Version: r.opts.Version, Extensions: extensions}, nil
	}))
	add(service+"ModelMetadata", unary(service+"ModelMetadata", limit, r.grpcMetadata))
	add(service+"ModelConfig", unary(service+"ModelConfig", limit, r.grpcConfig))
	add(service+"ModelStatistics", unary(service+"ModelStatistics", limit, r.grpcStatistics))
	mux.Handle("POST "+service+"ModelInfer", r.large(r.counted(unary(service+"ModelInfer", limit, r.grpcInfer), true)))
	add(service+"ModelStreamInfer", connect.NewBidiStreamHandler(service+"ModelStreamInfer", r.grpcStream, limit))
	add(service+"RepositoryIndex", unary(service+"RepositoryIndex", limit, func(_ context.Context, q *inference.IndexRequest) (*inference.IndexResponse, error) {
		all := &inference.IndexResponse{}
		for _, m := range r.indexOf(q.Ready) {
			all.Models = append(all.Models, &inference.IndexResponse_Model{Name: m.Name, Version: m.Version, State: string(m.State), Reason: m.Reason})
		}
		return all, nil
	}))
	for method, do := range map[string]func(context.Context, string) error{
		"RepositoryModelLoad": r.Load, "RepositoryModelUnload": func(_ context.Context, name string) error { return r.Unload(name) },
	} {
		add(service+method, unary(service+method, limit, func(ctx context.Context, q *inference.ControlRequest) (*inference.Empty, error) {
			if !admin {
				return nil, refuse(http.StatusForbidden, "models are opened and closed on the address of administration")
			}
			if err := checkControl(q.Parameters); err != nil {
				return nil, err
			}
			return &inference.Empty{}, do(ctx, q.Model)
		}))
	}
}

// unary makes a handler of a method whose errors are told as clients of gRPC know them.
func unary[Q, A any](path string, limit connect.HandlerOption, do func(context.Context, *Q) (*A, error)) http.Handler {
	return connect.NewUnaryHandler(path, func(ctx context.Context, q *connect.Request[Q]) (*connect.Response[A], error) {
		a, err := do(ctx, q.Msg)
		if err != nil {
			return nil, grpcError(ctx, err)
		}
		return connect.NewResponse(a), nil
	}, limit)
}

// codes are gRPC's for HTTP's statuses.
var codes = map[int]connect.Code{
	400: connect.CodeInvalidArgument, 401: connect.CodeUnauthenticated, 403: connect.CodePermissionDenied, 404: connect.CodeNotFound,
	408: connect.CodeResourceExhausted, 413: connect.CodeResourceExhausted, 415: connect.CodeInvalidArgument, 422: connect.CodeFailedPrecondition, 429: connect.CodeResourceExhausted,
	statusClientGone: connect.CodeCanceled, 500: connect.CodeInternal, 501: connect.CodeUnimplemented, 503: connect.CodeUnavailable,
	504: connect.CodeDeadlineExceeded, 507: connect.CodeFailedPrecondition,
}

// grpcError is what a client of gRPC is told. Where it is worth coming back, a trailer says when, as gRPC's retry policies
// read it.
func grpcError(ctx context.Context, err error) error {
	e := told(ctx, err)
	passageOf(ctx).refuse(e)
	out := connect.NewError(codeOf(e), errors.New(e.Msg))
	if wait := pushbackOf(e); wait != "" {
		out.Meta().Set(pushback, wait)
	}
	return out
}

func codeOf(e *Error) connect.Code {
	if code, known := codes[e.Status]; known {
		return code
	}
	return connect.CodeUnknown
}

// pushback is the trailer that says when to come back.
const pushback = "grpc-retry-pushback-ms"

func pushbackOf(e *Error) string {
	if e.RetryAfter == 0 && e.Status != http.StatusTooManyRequests {
		return ""
	}
	return strconv.FormatInt(max(e.RetryAfter.Milliseconds(), 1), 10)
}

// counted reserves what a body takes while it comes: of a message of gRPC nobody knows its size before. It counts twice, as
// it came and as it is read. Where it is of one message, it has to come as fast as one of REST.
func (r *Registry) counted(next http.Handler, one bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		b := &body{registry: r, client: clientOf(req.Context())}
		defer b.free()
		c := &counting{ReadCloser: req.Body, body: b}
		if one && req.ProtoMajor == 2 { // where the time to read is the request's alone
			c.ReadCloser = pacedBody{newPaced(w, req.Body), req.Body}
		}
		req.Body = c
		next.ServeHTTP(w, req.WithContext(context.WithValue(req.Context(), countingKey{}, c)))
	})
}

// A counting body reserves what is read of it, in pieces.
type counting struct {
	io.ReadCloser
	body *body
	left int64
}

type countingKey struct{}

// again forgets what was read: the message is done with, and another may come.
func (c *counting) again() {
	c.body.less(c.body.held)
	c.left = 0
}

// countedPiece is how much is reserved at once.
const countedPiece = 256 << 10

// Read reads some.
func (c *counting) Read(to []byte) (int, error) {
	if c.left < int64(len(to)) {
		n := max(int64(len(to)), countedPiece)
		if err := c.body.more(2 * n); err != nil {
			return 0, grpcError(context.Background(), err)
		}
		c.left += n
	}
	n, err := c.ReadCloser.Read(to)
	c.left -= int64(n)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = grpcError(context.Background(), bodyError(err))
	}
	return n, err
}

// A pacedBody is a body that is closed as any other.
type pacedBody struct {
	*paced
	io.Closer
}

func (r *Registry) grpcHealth(_ context.Context, q *inference.HealthRequest) (*inference.HealthResponse, error) {
	const serving, notServing = 1, 2
	if q.Service != "" && q.Service != strings.Trim(service, "/") {
		return nil, refuse(404, "there is no such service")
	}
	if !r.isReady() {
		return &inference.HealthResponse{Status: notServing}, nil
	}
	return &inference.HealthResponse{Status: serving}, nil
}

func (r *Registry) grpcMetadata(ctx context.Context, q *inference.ModelRequest) (*inference.ModelMetadataResponse, error) {
	v, err := r.find(q.Name, q.Version)
	if err != nil {
		return nil, err
	}
	i, release, err := v.use(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	in, out := i.ports()
	return &inference.ModelMetadataResponse{
		Name: v.model, Versions: r.versionsOf(v.model), Platform: "optimem_" + string(v.what().kind), Inputs: grpcPorts(in), Outputs: grpcPorts(out),
	}, nil
}

func grpcPorts(list []portJSON) []*inference.ModelMetadataResponse_Tensor {
	var all []*inference.ModelMetadataResponse_Tensor
	for _, p := range list {
		all = append(all, &inference.ModelMetadataResponse_Tensor{Name: p.Name, Datatype: p.Datatype, Shape: int64s(p.Shape)})
	}
	return all
}

func int64s(list []int) []int64 {
	all := make([]int64, len(list))
	for i, n := range list {
		all[i] = int64(n)
	}
	return all
}

// dataTypes are the numbers of the configuration's data types.
var dataTypes = map[string]int32{
	"BOOL": 1, "UINT8": 2, "UINT16": 3, "UINT32": 4, "UINT64": 5, "INT8": 6, "INT16": 7, "INT32": 8, "INT64": 9, "FP16": 10, "FP32": 11,
	"FP64": 12, oip.Bytes: 13, "BF16": 14,
}

func (r *Registry) grpcConfig(ctx context.Context, q *inference.ModelRequest) (*inference.ConfigResponse, error) {
	v, err := r.find(q.Name, q.Version)
	if err != nil {
		return nil, err
	}
	i, release, err := v.use(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	in, out := i.ports()
	c := &inference.Config{Name: v.model, Platform: "optimem_" + string(v.what().kind), Backend: "optimem", DynamicBatching: &inference.Config_Batching{
		PriorityLevels: uint64(runtime.LastPriority), DefaultPriorityLevel: uint64(runtime.DefaultPriority),
	}}
	for _, p := range in {
		c.Input = append(c.Input, &inference.Config_Input{Name: p.Name, DataType: dataTypes[p.Datatype], Dims: int64s(p.Shape)})
	}
	for _, p := range out {
		c.Output = append(c.Output, &inference.Config_Output{Name: p.Name, DataType: dataTypes[p.Datatype], Dims: int64s(p.Shape)})
	}
	return &inference.ConfigResponse{Config: c}, nil
}

func (r *Registry) grpcStatistics(_ context.Context, q *inference.ModelRequest) (*inference.StatisticsResponse, error) {
	list := r.all()
	if q.Name != "" {
		v, err := r.find(q.Name, q.Version)
		if err != nil {
			return nil, err
		}
		list = []*version{v}
	}
	all := &inference.StatisticsResponse{}
	for _, v := range list {
		m := statsOf(v)
		of := func(key string) *inference.Duration {
			t := m.InferenceStats[key]
			return &inference.Duration{Count: uint64(t.Count), Ns: uint64(t.NS)}
		}
		s := &inference.Statistics{
			Name: m.Name, Version: m.Version, LastInference: uint64(m.LastInference), InferenceCount: uint64(m.InferenceCount),
			ExecutionCount: uint64(m.ExecutionCount), InferenceStats: &inference.Statistics_Infer{
				Success: of("success"), Fail: of("fail"), Queue: of("queue"), ComputeInput: of("compute_input"), ComputeInfer: of("compute_infer"),
				ComputeOutput: of("compute_output"), CacheHit: of("cache_hit"), CacheMiss: of("cache_miss"),
			},
		}
		for _, u := range m.MemoryUsage {
			s.MemoryUsage = append(s.MemoryUsage, &inference.Statistics_Memory{Type: u.Type, Id: u.ID, ByteSize: uint64(u.ByteSize)})
		}
		all.Models = append(all.Models, s)
	}
	return all, nil
}

func (r *Registry) grpcInfer(ctx context.Context, q *inference.InferRequest) (*inference.InferResponse, error) {
	b, _ := ctx.Value(countingKey{}).(*counting)
	if b == nil { // what comes by another way is charged all the same, until it is made
		b = &counting{body: &body{registry: r}}
		defer b.body.free()
	}
	before := b.body.held
	response, err := r.answerMessage(ctx, q, b.body)
	if err != nil {
		return nil, err
	}
	if err := b.body.more(b.body.held - before); err != nil { // as it is, and as it is packed
		return nil, err
	}
	out := describe(response)
	for i := range response.Outputs {
		out.Raw = append(out.Raw, response.Outputs[i].Raw()) // of all, since clients count through them
	}
	return out, nil
}

// answerMessage has a message answered. The answer's bytes are charged to b.
func (r *Registry) answerMessage(ctx context.Context, q *inference.InferRequest, b *body) (*oip.Response, error) {
	if err := r.takes(); err != nil {
		return nil, err
	}
	v, err := r.find(q.ModelName, q.ModelVersion)
	if err != nil {
		return nil, err
	}
	request, err := grpcRequest(q, r.opts.MaxBody)
	if err != nil {
		v.stats.done(&call{}, told(ctx, err).Status, 0)
		return nil, err
	}
	return r.infer(ctx, v, v.model, request, b)
}

// describe is the message of an answer without its tensors' bytes.
func describe(response *oip.Response) *inference.InferResponse {
	out := &inference.InferResponse{ModelName: response.Model, ModelVersion: response.Version, Id: response.ID}
	for i := range response.Outputs {
		o := &response.Outputs[i]
		out.Outputs = append(out.Outputs, &inference.InferResponse_Output{Name: o.Name, Datatype: o.Datatype(), Shape: int64s(o.Dims())})
	}
	return out
}

// grpcStream answers requests in their order. An error is an answer, and the stream goes on.
func (r *Registry) grpcStream(ctx context.Context, s *connect.BidiStream[inference.InferRequest, inference.StreamResponse]) error {
	counted, _ := ctx.Value(countingKey{}).(*counting)
	for {
		q, err := s.Receive()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		answer := &inference.StreamResponse{}
		if answer.Response, err = r.grpcInfer(ctx, q); err != nil {
			answer.Error = told(ctx, err).Msg
			answer.Response = &inference.InferResponse{ModelName: q.ModelName, Id: q.Id}
		}
		if err := s.Send(answer); err != nil {
			return err
		}
		if counted != nil {
			counted.again()
		}
	}
}
