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
	"log/slog"
	"math/rand/v2"
	"net/http"
	"time"
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
		opts.Seed = rand.Uint64
	}
	h := &Handler{models: models, opts: opts, mux: http.NewServeMux()}
	h.mux.HandleFunc("GET /v1/models", h.list)
	h.mux.HandleFunc("GET /v1/models/{id...}", h.model)
	return h
}

// ServeHTTP answers a request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.mux.ServeHTTP(w, r) }
