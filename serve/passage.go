package serve

import (
	"context"
	"crypto/rand"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/optimem/optimem/generate"
	"github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/serve/openai"
	"github.com/optimem/optimem/serve/otlp"
)

// requestID is the header by which a request is known, to its client and in logs.
const requestID = "X-Request-Id"

// givenID is what a client may call its request.
var givenID = regexp.MustCompile(`^[A-Za-z0-9._:/+=-]{1,128}$`)

// A passage is what is known of a request of a connection while it is answered.
type passage struct {
	id    string
	begin time.Time
	// span is the request's, parent that of whoever asks. Zero where nothing is traced.
	span   otlp.Context
	parent [8]byte
	// model is which one it came to.
	model, version string
	// refused says that the answer is that there are too many requests, in whatever protocol.
	refused bool
}

// refuse notes that an error is such an answer.
func (p *passage) refuse(e *Error) {
	if p != nil && e.Status == http.StatusTooManyRequests {
		p.refused = true
	}
}

type passageKey struct{}

func passageOf(ctx context.Context) *passage {
	p, _ := ctx.Value(passageKey{}).(*passage)
	return p
}

// passage begins one.
func (r *Registry) passage(req *http.Request) *passage {
	p := &passage{id: req.Header.Get(requestID), begin: time.Now()}
	if !givenID.MatchString(p.id) {
		p.id = "req_" + rand.Text()
	}
	if r.opts.Traces == nil {
		return p
	}
	if from, ok := otlp.ParseTraceparent(req.Header.Get("Traceparent")); ok {
		p.span, p.parent = from.Child(), from.Span
	} else {
		p.span = otlp.NewContext()
	}
	return p
}

// traced reports whether spans of the passage are wanted.
func (p *passage) traced() bool { return p != nil && !p.span.IsZero() && !p.span.Unwanted }

// over sends the span of a request that was answered.
func (r *Registry) over(p *passage, req *http.Request, status int) {
	if !p.traced() {
		return
	}
	_, path, found := strings.Cut(req.Pattern, " ")
	if !found {
		path = req.Pattern
	}
	switch req.URL.Path { // which another mux routes
	case "/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/models":
		path = req.URL.Path
	}
	s := otlp.Span{
		Context: p.span, Parent: p.parent, Name: strings.TrimSpace(req.Method + " " + path), Kind: otlp.Server, Begin: p.begin, End: time.Now(),
		Attributes: []otlp.Attribute{
			{Name: "http.request.method", Value: req.Method}, {Name: "http.route", Value: path}, {Name: "http.response.status_code", Value: status},
			{Name: "optimem.request.id", Value: p.id},
		},
	}
	if p.model != "" {
		s.Attributes = append(s.Attributes, otlp.Attribute{Name: "optimem.model", Value: p.model}, otlp.Attribute{Name: "optimem.version", Value: p.version})
	}
	if status >= 500 {
		s.Error = http.StatusText(status)
	}
	r.opts.Traces.Add(s)
}

// child sends a span within a request.
func (r *Registry) child(p *passage, name string, begin, end time.Time, links []otlp.Context, about ...otlp.Attribute) {
	if p.traced() && !begin.IsZero() {
		r.opts.Traces.Add(otlp.Span{
			Context: p.span.Child(), Parent: p.span.Span, Name: name, Begin: begin, End: end, Links: links, Attributes: about,
		})
	}
}

// maxEvents is how many groups the span of a pass tells of.
const maxEvents = 128

// A tracedWriter tells when the first token of a text was there, and when the last.
type tracedWriter struct {
	openai.Writer
	registry *Registry
	passage  *passage
	model    string
	priority runtime.Priority
	// first is told how long the first token took, once for each text.
	first func(time.Duration)
}

// Pieces writes and tells.
func (w *tracedWriter) Pieces(ctx context.Context, r generate.TextRequest, got func(generate.Piece) error) (*generate.TextResult, error) {
	begin := time.Now()
	r.Request.Priority = w.priority
	var first time.Time
	result, err := w.Writer.Pieces(ctx, r, func(p generate.Piece) error {
		if first.IsZero() {
			first = time.Now()
			w.first(first.Sub(begin))
		}
		return got(p)
	})
	about := []otlp.Attribute{{Name: "gen_ai.request.model", Value: w.model}, {Name: "gen_ai.provider.name", Value: "optimem"}}
	if result != nil {
		about = append(about, otlp.Attribute{Name: "gen_ai.usage.input_tokens", Value: result.PromptTokens},
			otlp.Attribute{Name: "gen_ai.usage.output_tokens", Value: len(result.Tokens)})
	}
	if !first.IsZero() {
		about = append(about, otlp.Attribute{Name: "gen_ai.server.time_to_first_token", Value: first.Sub(begin).Seconds()})
	}
	w.registry.child(w.passage, "write", begin, time.Now(), nil, about...)
	return result, err
}
