// Package openai answers the requests of OpenAI's clients with models that run here: an [http.Handler] for /v1/models,
// /v1/chat/completions, /v1/completions and /v1/embeddings.
//
// What is sent is checked against the types of openai-python and openai-node, and a parameter that would change the answer
// is honoured or refused with a 400 that names it, never dropped. It does not know where models come from, who may use them
// or how many may wait: that is for the [Models] it is given and for the handlers around it.
//
//	handler := openai.New(registry, openai.Options{})    // registry lends a *generate.Writer by name
//	mux.Handle("/v1/", handler)
package openai

import (
	"cmp"
	"context"
	"crypto/rand"
	"log/slog"
	random "math/rand/v2"
	"net/http"
	"time"

	"github.com/optimem/optimem/internal/panicked"
)

// Options say how requests are answered. The zero value is right.
type Options struct {
	// MaxBody is how many bytes a request has at most; 0 is 4 MiB.
	MaxBody int64
	// MaxChoices is how many answers one request may ask for (n, and best_of prompts times n); 0 is 16.
	MaxChoices int
	// MaxInputs is how many texts one request for vectors may have; 0 is 2048, as OpenAI has it.
	MaxInputs int
	// KeepAlive is how long a stream is silent before a comment is sent, so that nobody on the way takes it for dead; 0 is 15
	// seconds.
	KeepAlive time.Duration
	// Reserve, where it is not nil, reserves the memory of an answer before it is made, and for one that turns out to
	// take more while it is; release gives it back. Its errors are answered as those of [Models] are.
	Reserve func(ctx context.Context, bytes int64) (release func(), err error)
	// Logger takes what went wrong inside, which is not told to clients; nil drops it.
	Logger *slog.Logger
	// Now is the clock; nil is [time.Now].
	Now func() time.Time
	// Seed gives the seeds of requests that have none; nil gives random ones.
	Seed func() uint64
}

// The defaults.
const (
	defaultMaxBody    = 4 << 20
	defaultMaxChoices = 16
	defaultMaxInputs  = 2048
	defaultKeepAlive  = 15 * time.Second
)

// A Handler answers requests. It may be used by many goroutines at once.
type Handler struct {
	models Models
	opts   Options
	mux    *http.ServeMux
}

// New returns a handler of the models' requests, whose paths begin with /v1.
func New(models Models, opts Options) *Handler {
	opts.MaxBody = cmp.Or(opts.MaxBody, defaultMaxBody)
	opts.MaxChoices = cmp.Or(opts.MaxChoices, defaultMaxChoices)
	opts.MaxInputs = cmp.Or(opts.MaxInputs, defaultMaxInputs)
	opts.KeepAlive = cmp.Or(opts.KeepAlive, defaultKeepAlive)
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.Seed == nil {
		opts.Seed = random.Uint64
	}
	h := &Handler{models: models, opts: opts, mux: http.NewServeMux()}
	for _, route := range []struct {
		method, path string
		answer       func(http.ResponseWriter, *http.Request) error
	}{
		{http.MethodGet, "/v1/models", h.list},
		{http.MethodGet, "/v1/models/{id...}", h.model},
		{http.MethodPost, "/v1/chat/completions", h.chat},
		{http.MethodPost, "/v1/completions", h.completions},
		{http.MethodPost, "/v1/embeddings", h.embeddings},
	} {
		h.mux.HandleFunc(route.method+" "+route.path, h.guarded(route.answer))
		h.mux.HandleFunc(route.path, h.guarded(func(w http.ResponseWriter, r *http.Request) error {
			w.Header().Set("Allow", route.method)
			return &Error{Status: http.StatusMethodNotAllowed, Type: invalidRequest, Message: r.URL.Path + " takes " + route.method + " only"}
		}))
	}
	h.mux.HandleFunc("/", h.guarded(func(_ http.ResponseWriter, r *http.Request) error {
		return &Error{Status: http.StatusNotFound, Type: invalidRequest, Code: "unknown_url", Message: "there is no " + r.Method + " " + r.URL.Path + " here"}
	}))
	return h
}

// ServeHTTP answers a request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.mux.ServeHTTP(w, r) }

// requestID is the header that clients show to who asks about a request.
const requestID = "X-Request-Id"

// guarded has errors and panics answered.
func (h *Handler) guarded(answer func(http.ResponseWriter, *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if w.Header().Get(requestID) == "" { // who is around this handler may have named it
			w.Header().Set(requestID, "req_"+rand.Text())
		}
		defer func() {
			v := recover()
			if v == http.ErrAbortHandler {
				panic(v)
			}
			if v != nil {
				h.fail(w, r, panicked.By(v))
			}
		}()
		if err := answer(w, r); err != nil {
			h.fail(w, r, err)
		}
	}
}

// head is how an answer begins.
func (h *Handler) head(id, object, model string) head {
	return head{id + rand.Text(), object, h.opts.Now().Unix(), model}
}
