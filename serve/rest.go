package serve

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/serve/oip"
	"github.com/optimem/optimem/serve/openai"
)

// headerLength is how many bytes of a body are JSON, where tensors follow them.
const headerLength = "Inference-Header-Content-Length"

// Handler answers the requests of clients: the Open Inference Protocol, and OpenAI's under /v1. It does not open or close
// models, and tells no metrics; [Registry.Admin] does.
func (r *Registry) Handler() http.Handler { return r.around(r.routes(false)) }

func (r *Registry) routes(admin bool) *http.ServeMux {
	mux := http.NewServeMux()
	handle := func(pattern string, answer func(w http.ResponseWriter, req *http.Request) error) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, req *http.Request) {
			if err := answer(w, req); err != nil {
				writeError(w, told(req.Context(), err))
			}
		})
	}
	handle("GET /v2", r.server)
	handle("GET /v2/{$}", r.server)
	handle("GET /v2/health/live", func(w http.ResponseWriter, _ *http.Request) error {
		return writeJSON(w, 200, map[string]bool{"live": true})
	})
	handle("GET /v2/health/ready", r.ready)
	handle("GET /v2/models/stats", func(w http.ResponseWriter, _ *http.Request) error { return r.statistics(w, r.all()) })
	handle("POST /v2/repository/index", r.index)
	handle("POST /v2/repository/models/{model}/load", r.control(admin, func(ctx context.Context, name string) error { return r.Load(ctx, name) }))
	handle("POST /v2/repository/models/{model}/unload", r.control(admin, func(_ context.Context, name string) error { return r.Unload(name) }))
	for _, at := range []string{"/v2/models/{model}", "/v2/models/{model}/versions/{version}"} {
		with := func(answer func(w http.ResponseWriter, req *http.Request, v *version) error) func(http.ResponseWriter, *http.Request) error {
			return func(w http.ResponseWriter, req *http.Request) error {
				v, err := r.find(req.PathValue("model"), req.PathValue("version"))
				if err != nil {
					return err
				}
				return answer(w, req, v)
			}
		}
		handle("GET "+at, with(r.metadata))
		handle("GET "+at+"/ready", with(r.modelReady))
		handle("GET "+at+"/config", with(r.config))
		handle("GET "+at+"/stats", with(func(w http.ResponseWriter, _ *http.Request, v *version) error { return r.statistics(w, []*version{v}) }))
		handle("POST "+at+"/infer", with(r.inferREST))
	}
	r.grpcRoutes(mux, admin)
	most := min(r.opts.MaxBody, maxTextBody)
	mux.Handle("/v1/", r.bounded(most, openai.New(texts{r}, openai.Options{MaxBody: most, Logger: r.log, Reserve: reserveAnswer})))
	handle("/", func(http.ResponseWriter, *http.Request) error { return refuse(404, "there is no such request") })
	return mux
}

// maxTextBody bounds a request to write or to make vectors.
const maxTextBody = 16 << 20

// bounded reserves what a body may take before somebody else reads it.
func (r *Registry) bounded(most int64, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		n := req.ContentLength
		if n < 0 || n > most {
			n = most
		}
		b := &body{registry: r, client: clientOf(req.Context())}
		err := r.takes()
		var priority runtime.Priority
		if err == nil {
			priority, err = headerPriority(req.Header)
		}
		if err == nil {
			err = b.more(n)
		}
		if err != nil {
			writeOpenAI(w, told(req.Context(), err))
			return
		}
		defer b.free()
		lent := &lending{body: b, priority: priority}
		begin := time.Now()
		defer func() {
			if lent.version != nil {
				took := time.Since(begin)
				status := http.StatusOK
				if a, ok := w.(*answer); ok {
					status = cmp.Or(a.status, status)
				}
				if req.Context().Err() != nil {
					status = statusClientGone
				}
				queue := min(time.Duration(lent.first.Load()), took)
				lent.version.stats.done(&call{rows: 1, queue: queue, infer: took - queue}, status, took)
			}
		}()
		next.ServeHTTP(w, req.WithContext(context.WithValue(req.Context(), lendingKey{}, lent)))
	})
}

// A lending says which version answered a request that is read elsewhere, so that it is counted as the version's, and
// how long the first token took.
type lending struct {
	version *version
	first   atomic.Int64
	// body has what of the bodies of requests is the request's, its answer's memory, too.
	body *body
	// priority is the request's.
	priority runtime.Priority
}

// priorityHeader says what the parameter priority does, for protocols that have none.
const priorityHeader = "Optimem-Priority"

// headerPriority is what the header says.
func headerPriority(h http.Header) (runtime.Priority, error) {
	text := h.Get(priorityHeader)
	if text == "" {
		return runtime.DefaultPriority, nil
	}
	n, err := strconv.ParseUint(text, 10, 63)
	if err != nil {
		return 0, refuse(400, "%s is no number of 0 or more", priorityHeader)
	}
	return priorityOf(map[string]any{"priority": int64(n)})
}

// place is where a request that is read elsewhere waits.
func (l *lending) place() runtime.Priority {
	if l == nil {
		return runtime.DefaultPriority
	}
	return l.priority
}

// reserveAnswer reserves the memory of an answer that is made elsewhere, beside the body of its request.
func reserveAnswer(ctx context.Context, bytes int64) (release func(), err error) {
	lent, ok := ctx.Value(lendingKey{}).(*lending)
	if !ok {
		return func() {}, nil
	}
	if err := lent.body.more(bytes); err != nil {
		return nil, forOpenAI(err)
	}
	return func() { lent.body.less(bytes) }, nil
}

type lendingKey struct{}

// around is what all requests pass: panics become answers, and answers that nobody takes end.
func (r *Registry) around(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		out := &answer{ResponseWriter: w, control: http.NewResponseController(w)}
		p := r.passage(req)
		w.Header().Set(requestID, p.id)
		req = req.WithContext(context.WithValue(req.Context(), passageKey{}, p))
		defer func() {
			status := cmp.Or(out.status, http.StatusOK)
			r.over(p, req, status)
			if p.refused || status == http.StatusTooManyRequests {
				r.counts.refuse(time.Since(p.begin))
			}
			who := ""
			if c := clientOf(req.Context()); c != nil {
				who = c.name
			}
			r.log.Debug("answered", "request", p.id, "client", who, "method", req.Method, "path", req.URL.Path, "model", p.model, "status", status,
				"took", time.Since(p.begin))
		}()
		defer func() {
			if p := recover(); p != nil && p != http.ErrAbortHandler {
				r.counts.mu.Lock()
				r.counts.panics++
				r.counts.mu.Unlock()
				r.log.Error("a request panicked", "request", w.Header().Get(requestID), "panic", p, "stack", string(debug.Stack()))
				if out.status == 0 {
					writeError(out, refuse(500, "internal error"))
				}
			} else if p != nil {
				panic(p)
			}
			r.counts.add(cmp.Or(out.status, 200))
		}()
		next.ServeHTTP(out, req)
	})
}

// An answer is a response that must be taken at some rate.
type answer struct {
	http.ResponseWriter
	control *http.ResponseController
	status  int
}

// WriteHeader notes the status.
func (a *answer) WriteHeader(status int) {
	a.status = cmp.Or(a.status, status)
	a.ResponseWriter.WriteHeader(status)
}

// Write gives who reads some time to take what is written.
func (a *answer) Write(p []byte) (int, error) {
	a.status = cmp.Or(a.status, 200)
	_ = a.control.SetWriteDeadline(time.Now().Add(slack + time.Duration(len(p)/slowestRate)*time.Second))
	return a.ResponseWriter.Write(p)
}

// Flush sends what was written.
func (a *answer) Flush() { _ = a.control.Flush() }

// Unwrap returns the response within, for [http.ResponseController].
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

func writeJSON(w http.ResponseWriter, status int, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(text, '\n')) // an error is that of the connection
	return nil
}

func writeError(w http.ResponseWriter, e *Error) {
	if e.RetryAfter > 0 || e.Status == http.StatusTooManyRequests || e.Status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", strconv.Itoa(retryAfter(e.RetryAfter)))
	}
	_ = writeJSON(w, e.Status, map[string]string{"error": e.Msg})
}

// extensions are those of the protocol that are known here.
var extensions = []string{"binary_tensor_data", "model_repository", "statistics", "model_configuration", "schedule_policy"}

func (r *Registry) server(w http.ResponseWriter, _ *http.Request) error {
	return writeJSON(w, 200, map[string]any{"name": "optimem", "version": r.opts.Version, "extensions": extensions})
}

// isReady reports whether requests would be answered.
func (r *Registry) isReady() bool { return !r.draining.Load() && !r.gate.isShut() }

func (r *Registry) ready(w http.ResponseWriter, _ *http.Request) error {
	if !r.isReady() {
		w.Header().Set("Retry-After", "1")
		return writeJSON(w, http.StatusServiceUnavailable, map[string]bool{"ready": false})
	}
	return writeJSON(w, 200, map[string]bool{"ready": true})
}

func (r *Registry) modelReady(w http.ResponseWriter, _ *http.Request, v *version) error {
	state, reason := v.state()
	told := struct {
		Name     string  `json:"name"`
		Ready    bool    `json:"ready"`
		State    State   `json:"state"`
		Reason   string  `json:"reason,omitempty"`
		Loaded   float64 `json:"loaded"`
		Expected float64 `json:"expected_seconds"`
	}{Name: v.model, State: state, Reason: reason}
	if i := v.current(); i != nil {
		f := i.facts()
		told.Ready, told.Expected = r.isReady(), f.passSeconds
		if f.allBytes > 0 {
			told.Loaded = min(float64(f.weightBytes)/float64(f.allBytes), 1)
		}
	}
	if !told.Ready {
		w.Header().Set("Retry-After", "1")
		return writeJSON(w, http.StatusServiceUnavailable, told)
	}
	return writeJSON(w, 200, told)
}

func (r *Registry) metadata(w http.ResponseWriter, req *http.Request, v *version) error {
	i, release, err := v.use(req.Context())
	if err != nil {
		return err
	}
	defer release()
	in, out := i.ports()
	return writeJSON(w, 200, map[string]any{
		"name": v.model, "versions": r.versionsOf(v.model), "platform": "optimem_" + string(v.what().kind), "inputs": in, "outputs": out,
	})
}

// versionsOf lists the versions of a model.
func (r *Registry) versionsOf(name string) []string {
	var all []string
	for _, v := range r.siblings(name) {
		all = append(all, v.number)
	}
	return all
}

// configPort is an input or output in a configuration.
type configPort struct {
	Name     string `json:"name"`
	DataType string `json:"data_type"`
	Dims     []int  `json:"dims"`
}

func configPorts(list []portJSON) []configPort {
	all := make([]configPort, len(list))
	for i, p := range list {
		name := "TYPE_" + p.Datatype
		if p.Datatype == oip.Bytes {
			name = "TYPE_STRING"
		}
		all[i] = configPort{p.Name, name, p.Shape}
	}
	return all
}

// config answers what Triton's clients ask a configuration for. Rows are a dimension like others here: max_batch_size is 0.
func (r *Registry) config(w http.ResponseWriter, req *http.Request, v *version) error {
	i, release, err := v.use(req.Context())
	if err != nil {
		return err
	}
	defer release()
	in, out := i.ports()
	return writeJSON(w, 200, map[string]any{
		"name": v.model, "platform": "optimem_" + string(v.what().kind), "backend": "optimem", "max_batch_size": 0,
		"input": configPorts(in), "output": configPorts(out), "dynamic_batching": map[string]any{"priority_levels": runtime.LastPriority, "default_priority_level": runtime.DefaultPriority},
	})
}

// indexed is a line of the repository's index.
type indexed struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	State   State  `json:"state"`
	Reason  string `json:"reason"`
}

func (r *Registry) index(w http.ResponseWriter, req *http.Request) error {
	b, err := r.readBody(w, req, 0)
	if err != nil {
		return err
	}
	defer b.free()
	var asked struct {
		Ready bool `json:"ready"`
	}
	if len(b.data) > 0 {
		if err := json.Unmarshal(b.data, &asked); err != nil {
			return refuse(400, "the body is no JSON object")
		}
	}
	return writeJSON(w, 200, r.indexOf(asked.Ready))
}

func (r *Registry) indexOf(ready bool) []indexed {
	all := []indexed{}
	for _, v := range r.all() {
		state, reason := v.state()
		if !ready || state == Ready {
			all = append(all, indexed{v.model, v.number, state, reason})
		}
	}
	return all
}

// control opens or closes a model. It takes no files and no configuration: what a model is is said by the directory alone.
func (r *Registry) control(admin bool, do func(ctx context.Context, name string) error) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, req *http.Request) error {
		if !admin {
			return refuse(http.StatusForbidden, "models are opened and closed on the address of administration")
		}
		b, err := r.readBody(w, req, 0)
		if err != nil {
			return err
		}
		defer b.free()
		if len(b.data) > 0 {
			var asked struct {
				Parameters map[string]any `json:"parameters"`
			}
			if err := json.Unmarshal(b.data, &asked); err != nil {
				return refuse(400, "the body is no JSON object")
			}
			if err := checkControl(asked.Parameters); err != nil {
				return err
			}
		}
		if err := do(req.Context(), req.PathValue("model")); err != nil {
			return err
		}
		return writeJSON(w, 200, struct{}{})
	}
}

// checkControl refuses parameters that would change what is opened.
func checkControl[V any](parameters map[string]V) error {
	for key := range parameters {
		if key != "unload_dependents" {
			return refuse(http.StatusNotImplemented, "parameter %.40q: models come from the directory alone, as they are", key)
		}
	}
	return nil
}

// inferREST answers a request for an inference.
func (r *Registry) inferREST(w http.ResponseWriter, req *http.Request, v *version) error {
	header := oip.NoHeader
	if text := req.Header.Get(headerLength); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 {
			return refuse(400, "%s is no number of bytes", headerLength)
		}
		header = n
	}
	if err := r.takes(); err != nil { // before a body is read
		return err
	}
	if err := r.crammed(v); err != nil {
		r.drain(w, req)
		return err
	}
	b, err := r.readBody(w, req, header)
	if err != nil {
		return err
	}
	defer b.free()
	request, err := r.parse(b, header)
	if err != nil {
		v.stats.done(&call{}, told(req.Context(), err).Status, 0)
		return err
	}
	response, err := r.infer(req.Context(), v, v.model, request, b)
	if err != nil {
		return err
	}
	return writeResponse(w, req, response)
}

// parse makes a request of a body. What it takes is reserved, and the body's memory given back where nothing is left in it.
func (r *Registry) parse(b *body, header int) (*oip.Request, error) {
	n := int64(len(b.data))
	most := min(4*n, r.opts.MaxBody) // a number takes two bytes of JSON at least, and eight of memory at most
	if header == 0 {
		most = n
	}
	if err := b.more(most); err != nil {
		return nil, err
	}
	request, err := oip.Parse(b.data, header, oip.Limits{TensorBytes: most})
	if err != nil {
		return nil, err
	}
	b.kept = !slices.ContainsFunc(request.Inputs, func(in oip.Input) bool { return in.Texts != nil })
	if !request.IsRaw && b.kept {
		b.less(int64(cap(b.data)))
		b.data = nil
	}
	if header == oip.NoHeader && b.kept { // numbers were read out of it
		b.release()
	}
	return request, nil
}

// writeResponse writes what a model answered, packed as the client wants it.
func writeResponse(w http.ResponseWriter, req *http.Request, response *oip.Response) error {
	w.Header().Set("Content-Type", "application/json")
	var head strings.Builder
	if response.HasBinary() {
		if err := response.WriteJSON(&head); err != nil {
			return err
		}
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Header().Set(headerLength, strconv.Itoa(head.Len()))
	}
	to := io.Writer(w)
	if packing := packing(req.Header.Get("Accept-Encoding")); packing != "" && worthPacking(response) {
		w.Header().Set("Content-Encoding", packing)
		z := packers[packing].Get().(packer)
		z.Reset(w)
		defer func() {
			_ = z.Close() // an error is that of the connection
			packers[packing].Put(z)
		}()
		to = z
	} else if response.HasBinary() {
		n := int64(head.Len())
		for i := range response.Outputs {
			if o := &response.Outputs[i]; o.Binary {
				n += o.RawBytes()
			}
		}
		w.Header().Set("Content-Length", strconv.FormatInt(n, 10))
	}
	w.WriteHeader(http.StatusOK)
	// From here on an error is that of the connection, and there is nobody to tell.
	if !response.HasBinary() {
		_ = response.WriteJSON(to)
		return nil
	}
	if _, err := io.WriteString(to, head.String()); err != nil {
		return nil
	}
	for i := range response.Outputs {
		if o := &response.Outputs[i]; o.Binary {
			if _, err := to.Write(o.Raw()); err != nil {
				return nil
			}
		}
	}
	return nil
}
