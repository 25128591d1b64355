package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/optimem/optimem/embed"
	"github.com/optimem/optimem/generate"
	"github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/serve/oip"
	"github.com/optimem/optimem/serve/openai"
	"github.com/optimem/optimem/tensor"
)

// A textRunner is an engine that writes, beside the pool.
type textRunner struct {
	*generate.Writer
	name                  string
	done                  closers
	budgetBytes, allBytes int64
	passSeconds           float64
	// elsewhere says that passes run where [Options.Remote] has them run.
	elsewhere bool
	// defaults are what holds where a request does not say.
	defaults generate.Defaults
	// base is a request that says nothing.
	base generate.TextRequest
	// kv is the dtype of keys and values, sequences for how many full contexts there is room.
	kv        tensor.DType
	sequences int
	// pictures prepares those of messages, nil of a model that sees none.
	pictures *pictureInput
}

// grammarMemory is what the schemas and grammars of requests take of the bodies of requests, also between them: the vocabulary of masks until
// the model is closed.
type grammarMemory struct {
	bodies *bodies
	mu     sync.Mutex
	held   int64
	closed bool
}

// reserve is for [generate.Text.Reserve].
func (m *grammarMemory) reserve(n int64) (release func(), err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case n > m.bodies.most:
		return nil, forOpenAI(refuse(http.StatusUnprocessableEntity, "a schema takes %d bytes with the masks of its tokens, and %d are the most for all requests",
			n, m.bodies.most))
	case m.closed || !m.bodies.take(n):
		return nil, forOpenAI(crowded())
	}
	m.held += n
	return func() { m.give(n) }, nil
}

func (m *grammarMemory) give(n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.closed {
		m.held -= n
		m.bodies.give(n)
	}
}

// close gives all back.
func (m *grammarMemory) close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.bodies.give(m.held)
	m.held, m.closed = 0, true
	return nil
}

func (t *textRunner) ports() (inputs, outputs []portJSON) {
	return []portJSON{{Name: "text_input", Datatype: oip.Bytes, Shape: []int{1}}}, []portJSON{{Name: "text_output", Datatype: oip.Bytes, Shape: []int{1}}}
}

// request is what a call asks to be written.
func (t *textRunner) request(c *call) (r generate.TextRequest, err error) {
	texts, err := onlyTexts(c.request, "text_input")
	if err != nil {
		return r, err
	}
	if len(texts) != 1 {
		return r, refuse(400, "text_input has %d elements: it takes one", len(texts))
	}
	r = t.base
	r.Prompt, r.Request.Logprobs, r.Request.Priority = texts[0], 0, c.priority
	r.Request.MaxTokens, r.Request.Sampling = cmp.Or(t.defaults.MaxTokens, generate.DefaultTokens), t.defaults.Sampling
	if t.HasChat() {
		r.Messages, r.Prompt = []generate.Message{{Role: "user", Content: texts[0]}}, ""
	}
	for key, set := range map[string]func(float64){
		"max_tokens":  func(x float64) { r.Request.MaxTokens = int(x) },
		"temperature": func(x float64) { r.Request.Sampling.Temperature = x },
		"seed":        func(x float64) { r.Request.Seed = uint64(int64(x)) },
	} {
		switch x := c.request.Parameters[key].(type) {
		case nil:
		case int64:
			set(float64(x))
		case float64:
			set(x)
		default:
			return r, refuse(400, "parameter %q is no number", key)
		}
	}
	switch adapter := c.request.Parameters["adapter"].(type) {
	case nil:
	case string:
		r.Request.Adapter = adapter
	default:
		return r, refuse(400, "parameter \"adapter\" is no text")
	}
	return r, nil
}

// seen makes a source of pictures.
func (t *textRunner) seen(ctx context.Context, files [][]byte) (*generate.Source, func(), error) {
	if most := t.Engine().MostPictures(); len(files) > most {
		return nil, nil, forOpenAI(refuse(400, "%d pictures, and a request may have %d", len(files), most))
	}
	x, held, err := t.pictures.rows(ctx, &oip.Input{Name: "messages", Texts: files, Shape: tensor.Shape{len(files)}})
	free := func() { t.pictures.bodies.give(held) }
	if err != nil {
		free()
		return nil, nil, forOpenAI(err)
	}
	values, err := tensor.Slice[float32](x)
	if err != nil {
		free()
		return nil, nil, err
	}
	return &generate.Source{Features: values}, free, nil
}

// infer writes what follows one text.
func (t *textRunner) infer(ctx context.Context, c *call) error {
	r, err := t.request(c)
	if err != nil {
		return err
	}
	// The answer: tokens as they are written, the text as it grows, and the JSON of it.
	const textBytes = 128 + 12*8
	tokens := int64(t.Context())
	if most := int64(r.Request.MaxTokens); most > 0 {
		tokens = min(tokens, most)
	}
	if err := c.body.more(tokens * textBytes); err != nil {
		return err
	}
	begin := time.Now()
	c.rows = 1
	result, err := t.Pieces(ctx, r, func(generate.Piece) error { return nil })
	if err != nil {
		return err
	}
	c.queue = min(time.Duration(result.FirstTokenSeconds*float64(time.Second)), time.Since(begin))
	c.infer = time.Since(begin) - c.queue
	_, binary := c.request.Wants("text_output")
	c.response = &oip.Response{Model: c.name, Version: c.version, ID: c.request.ID, Outputs: []oip.Output{
		{Name: "text_output", Texts: [][]byte{[]byte(result.Text)}, Shape: tensor.Shape{1}, Binary: binary},
	}}
	return nil
}

// onlyTexts returns the elements of the one input of a model that takes texts.
func onlyTexts(r *oip.Request, name string) ([]string, error) {
	if r.IsRaw || len(r.Inputs) != 1 || r.Inputs[0].Name != name || r.Inputs[0].Datatype != oip.Bytes {
		return nil, refuse(400, "the model takes one input, %s, of %s", name, oip.Bytes)
	}
	all := make([]string, len(r.Inputs[0].Texts))
	for i, t := range r.Inputs[0].Texts {
		all[i] = string(t)
	}
	return all, nil
}

func sessionFacts(s *runtime.Session, budgetBytes, allBytes int64) facts {
	f := facts{budgetBytes: budgetBytes, allBytes: allBytes, join: 1}
	if s != nil {
		f.add(s.Metrics())
	}
	return f
}

// add adds what a session did, of several that run a model together the number of passes of one.
func (f *facts) add(m runtime.Metrics) {
	f.heldBytes, f.weightBytes, f.cacheBytes = f.heldBytes+m.HeldBytes, f.weightBytes+m.WeightBytes,
		f.cacheBytes+m.CacheBytes
	f.ringBytes, f.activationBytes, f.workBytes = f.ringBytes+m.RingBytes, f.activationBytes+m.ActivationBytes,
		f.workBytes+m.WorkBytes
	f.passes, f.calls, f.joined = m.Runs, m.Calls, m.Joined
	f.movedBytes, f.loadedBytes = f.movedBytes+m.MovedBytes, f.loadedBytes+m.LoadedBytes
	f.passing, f.stall = f.passing+m.Passing, f.stall+m.Stall
	if m.Runs > 0 {
		f.passSeconds += m.Passing.Seconds() / float64(m.Runs)
	}
}

func (t *textRunner) facts() facts {
	e := t.Engine()
	f := sessionFacts(nil, t.budgetBytes, t.allBytes)
	for _, m := range e.Metrics() {
		f.add(m)
	}
	stats := e.Stats()
	f.waiting, f.running, f.rows, f.tokens = stats.Waiting, stats.Running, stats.Rows, stats.Tokens
	if f.passSeconds == 0 {
		f.passSeconds = t.passSeconds
	}
	f.join = max(e.Rows(), 1)
	return f
}

func (t *textRunner) giveBack(ctx context.Context) error {
	if t.elsewhere {
		return fmt.Errorf("%s runs over several devices, which keep their memory", t.name)
	}
	return ignoreClosed(t.Engine().Session().Yield(ctx))
}

func ignoreClosed(err error) error {
	if errors.Is(err, runtime.ErrClosed) {
		return nil
	}
	return err
}

func (t *textRunner) resume() {
	if !t.elsewhere {
		t.Engine().Session().Resume()
	}
}

func (t *textRunner) close() error { return t.done.close() }

// A vectorRunner makes vectors of texts, beside the pool.
type vectorRunner struct {
	*embed.Embedder
	name                  string
	done                  closers
	budgetBytes, allBytes int64
}

func (e *vectorRunner) ports() (inputs, outputs []portJSON) {
	return []portJSON{{Name: "text", Datatype: oip.Bytes, Shape: []int{-1}}}, []portJSON{{Name: "embedding", Datatype: "FP32", Shape: []int{-1, e.Dim()}}}
}

func (e *vectorRunner) infer(ctx context.Context, c *call) error {
	texts, err := onlyTexts(c.request, "text")
	if err != nil {
		return err
	}
	const numberBytes = 4 + 4 // where they wait, and in the answer
	if err := c.body.more(int64(len(texts)) * int64(e.Dim()) * numberBytes); err != nil {
		return err
	}
	begin := time.Now()
	c.rows = int64(len(texts))
	r := embed.Request{Texts: texts, Priority: c.priority}
	if prompt, ok := c.request.Parameters["prompt"].(string); ok {
		r.Prompt = prompt
	}
	result, err := e.Embed(ctx, r)
	if err != nil {
		return err
	}
	c.infer = time.Since(begin)
	_, binary := c.request.Wants("embedding")
	c.response = &oip.Response{Model: c.name, Version: c.version, ID: c.request.ID, Outputs: []oip.Output{
		{Name: "embedding", Tensor: tensor.Of(result.Data, len(texts), result.Dim), Binary: binary},
	}}
	return nil
}

func (e *vectorRunner) facts() facts {
	f := sessionFacts(e.Session(), e.budgetBytes, e.allBytes)
	f.waiting = e.Stats().Waiting
	f.join = e.PerPass()
	return f
}

func (e *vectorRunner) giveBack(ctx context.Context) error {
	if s := e.Session(); s != nil {
		return ignoreClosed(s.Yield(ctx))
	}
	return nil
}

func (e *vectorRunner) resume() {
	if s := e.Session(); s != nil {
		s.Resume()
	}
}

func (e *vectorRunner) close() error { return e.done.close() }

// texts are the models as package openai wants them.
type texts struct{ r *Registry }

// List returns the models that write or make vectors. A client names no others.
func (t texts) List(context.Context) ([]openai.Model, error) {
	var all []openai.Model
	for _, s := range t.r.list1() {
		f := s.versions[len(s.versions)-1].what()
		if f.kind == Text || f.kind == Embeddings {
			all = append(all, openai.Model{ID: s.name, Created: t.r.began})
			adapters := maps.Clone(f.settings.Adapters)
			if f.kind == Text && len(t.r.opts.Adapters) > 0 {
				adapters = maps.Clone(t.r.opts.Adapters)
				maps.Copy(adapters, f.settings.Adapters)
			}
			for _, adapter := range slices.Sorted(maps.Keys(adapters)) {
				all = append(all, openai.Model{ID: s.name + ":" + adapter, Created: t.r.began})
			}
		}
	}
	return all, nil
}

// lend lends a model that writes, or makes vectors, with a place among its requests.
func (t texts) lend(ctx context.Context, name string, kind Kind, does string) (*instance, func(), error) {
	v, err := t.r.find(name, "")
	if err != nil {
		return nil, nil, &openai.NotFoundError{Model: name}
	}
	if v.what().kind != kind {
		return nil, nil, &openai.KindError{Model: name, Does: does}
	}
	lent, _ := ctx.Value(lendingKey{}).(*lending)
	if lent != nil {
		lent.version = v
	}
	if p := passageOf(ctx); p != nil {
		p.model, p.version = v.model, v.number
	}
	i, release, err := v.use(ctx)
	if err == nil {
		var done func()
		done, err = t.r.admit(ctx, v, i, lent.place())
		if err == nil {
			return i, func() { done(); release() }, nil
		}
		release()
	}
	return nil, nil, forOpenAI(err)
}

// forOpenAI gives an error the type by which package openai answers it.
func forOpenAI(err error) error {
	var e *Error
	if !errors.As(err, &e) {
		return err
	}
	switch e.Status {
	case 429, 503:
		return &openai.BusyError{Msg: e.Msg, Unavailable: e.Status == 503, RetryAfter: e.RetryAfter}
	}
	return &openai.Error{Status: e.Status, Type: "invalid_request_error", Code: strconv.Itoa(e.Status), Message: e.Msg}
}

// Writer lends a model that writes: MODEL, or MODEL:ADAPTER.
func (t texts) Writer(ctx context.Context, need openai.Need) (*openai.WriterLease, error) {
	name, adapter, adapted := strings.Cut(need.Model, ":")
	i, release, err := t.lend(ctx, name, Text, "write text")
	var missing *openai.NotFoundError
	if errors.As(err, &missing) {
		missing.Model = need.Model
	}
	if err != nil {
		return nil, err
	}
	model := i.runner.(*textRunner)
	lease := &openai.WriterLease{
		Writer: model.Writer, Defaults: &model.defaults, Release: release,
		Stop: model.base.Stop, Schema: model.base.Schema, Grammar: model.base.Grammar, Logprobs: model.base.Request.Logprobs,
	}
	if model.pictures != nil {
		lease.Pictures = model.seen
	}
	if !adapted {
		adapter = model.base.Request.Adapter
	}
	if adapter != "" || adapted {
		if !slices.Contains(model.Engine().Adapters(), adapter) {
			release()
			return nil, &openai.NotFoundError{Model: need.Model}
		}
		lease.Writer = adaptedWriter{model.Writer, adapter}
	}
	lent, _ := ctx.Value(lendingKey{}).(*lending)
	lease.Writer = &tracedWriter{Writer: lease.Writer, registry: t.r, passage: passageOf(ctx), model: name, priority: lent.place(), first: func(took time.Duration) {
		if lent != nil {
			lent.first.CompareAndSwap(0, int64(took))
		}
	}}
	return lease, nil
}

// An adaptedWriter writes with an adapter.
type adaptedWriter struct {
	*generate.Writer
	adapter string
}

// Pieces writes with the adapter.
func (w adaptedWriter) Pieces(ctx context.Context, r generate.TextRequest, got func(generate.Piece) error) (*generate.TextResult, error) {
	r.Request.Adapter = w.adapter
	return w.Writer.Pieces(ctx, r, got)
}

// Embedder lends a model that makes vectors.
func (t texts) Embedder(ctx context.Context, need openai.Need) (*openai.EmbedderLease, error) {
	i, release, err := t.lend(ctx, need.Model, Embeddings, "make vectors")
	if err != nil {
		return nil, err
	}
	lent, _ := ctx.Value(lendingKey{}).(*lending)
	return &openai.EmbedderLease{Embedder: placedEmbedder{i.runner.(*vectorRunner).Embedder, lent.place()}, Release: release}, nil
}

// A placedEmbedder makes vectors for requests of a priority.
type placedEmbedder struct {
	openai.Embedder
	priority runtime.Priority
}

// Embed makes vectors.
func (e placedEmbedder) Embed(ctx context.Context, r embed.Request) (*embed.Result, error) {
	r.Priority = e.priority
	return e.Embedder.Embed(ctx, r)
}
