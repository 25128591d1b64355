package openai_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/optimem/optimem/embed"
	"github.com/optimem/optimem/generate"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/serve/openai"
)

// chatFolder is a tiny model that answers a few questions.
const chatFolder = "../../generate/testdata/chat"

// engine returns an engine of the tiny model, which all tests share.
func engine(t testing.TB) *generate.Engine {
	t.Helper()
	e, err := sharedEngine()
	if err != nil {
		t.Fatal(err)
	}
	return e
}

var sharedEngine = sync.OnceValues(func() (*generate.Engine, error) {
	ckpt, err := loader.Open(chatFolder)
	if err != nil {
		return nil, err
	}
	model, err := models.Build(ckpt, models.Options{})
	if err != nil {
		return nil, err
	}
	return generate.New(context.Background(), model, generate.Options{Sequences: 4})
})

// writer returns one of the tiny model. A template takes the place of the folder's, "" leaves it.
func writer(t testing.TB, template string) *generate.Writer {
	t.Helper()
	folder := chatFolder
	if template != "" {
		folder = t.TempDir()
		for _, name := range []string{"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"} {
			data, err := os.ReadFile(filepath.Join(chatFolder, name))
			if err != nil {
				t.Fatal(err)
			}
			put(t, filepath.Join(folder, name), data)
		}
		put(t, filepath.Join(folder, "chat_template.jinja"), []byte(template))
	}
	text, err := generate.OpenText(folder)
	if err != nil {
		t.Fatal(err)
	}
	return generate.NewWriter(text, engine(t))
}

func put(t testing.TB, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// A registry lends what it has, and counts.
type registry struct {
	writers   map[string]openai.Writer
	embedders map[string]openai.Embedder
	err       error

	mu   sync.Mutex
	lent []openai.Need
	out  int
}

func (r *registry) List(context.Context) ([]openai.Model, error) {
	if r.err != nil {
		return nil, r.err
	}
	return []openai.Model{{ID: "tiny", Created: time.Unix(1700000000, 0)}, {ID: "org/other", OwnedBy: "somebody"}}, nil
}

func (r *registry) lend(need openai.Need) func() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lent = append(r.lent, need)
	r.out++
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.out--
	}
}

// lentNow is how many models are lent, which was so often.
func (r *registry) lentNow() (out, times int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.out, len(r.lent)
}

func (r *registry) Writer(_ context.Context, need openai.Need) (*openai.WriterLease, error) {
	if r.err != nil {
		return nil, r.err
	}
	w, ok := r.writers[need.Model]
	if !ok {
		if _, ok := r.embedders[need.Model]; ok {
			return nil, &openai.KindError{Model: need.Model, Does: "write text"}
		}
		return nil, &openai.NotFoundError{Model: need.Model}
	}
	return &openai.WriterLease{Writer: w, Release: r.lend(need)}, nil
}

func (r *registry) Embedder(_ context.Context, need openai.Need) (*openai.EmbedderLease, error) {
	e, ok := r.embedders[need.Model]
	if !ok {
		return nil, &openai.NotFoundError{Model: need.Model}
	}
	return &openai.EmbedderLease{Embedder: e, Release: r.lend(need)}, nil
}

// A server is a handler that listens.
type server struct {
	*httptest.Server
	registry *registry
}

// listen serves models, and returns where.
func listen(t testing.TB, models openai.Models) string {
	s := httptest.NewServer(openai.New(models, openai.Options{}))
	t.Cleanup(s.Close)
	return s.URL
}

func serve(t testing.TB, r *registry, opts openai.Options) *server {
	t.Helper()
	s := httptest.NewServer(openai.New(r, opts))
	t.Cleanup(func() {
		s.Close()
		if out, _ := r.lentNow(); out != 0 {
			t.Errorf("%d models were not given back", out)
		}
	})
	return &server{s, r}
}

// tiny serves the tiny model.
func tiny(t testing.TB) *server {
	t.Helper()
	return serve(t, &registry{writers: map[string]openai.Writer{"tiny": writer(t, "")}}, openai.Options{})
}

// post sends JSON and returns what came back.
func (s *server) post(t testing.TB, path, body string) (*http.Response, []byte) {
	t.Helper()
	r, err := s.Client().Post(s.URL+path, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	data, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r, data
}

// ok is a post that has to be answered.
func (s *server) ok(t testing.TB, path, body string, v any) {
	t.Helper()
	r, data := s.post(t, path, body)
	if r.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s: %s", body, r.Status, data)
	}
	if err := json.Unmarshal(data, v); err != nil {
		t.Fatalf("%s: %v", data, err)
	}
}

// An apiError is an answer that is one.
type apiError struct {
	Error struct {
		Message, Type string
		Param, Code   *string
	}
}

// fails is a post that has to be refused.
func (s *server) fails(t testing.TB, path, body string, status int, param, code, says string) {
	t.Helper()
	r, data := s.post(t, path, body)
	var e apiError
	if err := json.Unmarshal(data, &e); err != nil || r.StatusCode != status {
		t.Fatalf("%.300s: %s: %s, want %d", body, r.Status, data, status)
	}
	or := func(s *string) string {
		if s == nil {
			return ""
		}
		return *s
	}
	if or(e.Error.Param) != param || or(e.Error.Code) != code || !strings.Contains(e.Error.Message, says) || e.Error.Type == "" {
		t.Errorf("%.300s: %s, want the parameter %q, the code %q and %q", body, data, param, code, says)
	}
}

// A chat is an answer of chats, or a chunk.
type chat struct {
	ID, Object, Model string
	Created           int64
	Choices           []struct {
		Index   int
		Message struct {
			Role      string
			Content   *string
			ToolCalls []toolCall `json:"tool_calls"`
		}
		Delta struct {
			Role      string
			Content   *string
			ToolCalls []toolCall `json:"tool_calls"`
		}
		Text     string
		Logprobs json.RawMessage
		Finish   *string `json:"finish_reason"`
	}
	Usage *struct {
		Prompt     int `json:"prompt_tokens"`
		Completion int `json:"completion_tokens"`
		Total      int `json:"total_tokens"`
		Details    struct {
			Cached int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	}
}

type toolCall struct {
	Index    int
	ID, Type string
	Function struct{ Name, Arguments string }
}

// content is the text of an answer.
func (c *chat) content(choice int) string {
	if c.Choices[choice].Message.Content == nil {
		return "<null>"
	}
	return *c.Choices[choice].Message.Content
}

// streamed sends JSON and returns the events of the answer.
func (s *server) streamed(t testing.TB, path, body string) []string {
	t.Helper()
	r, err := s.Client().Post(s.URL+path, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if kind := r.Header.Get("Content-Type"); r.StatusCode != http.StatusOK || !strings.HasPrefix(kind, "text/event-stream") {
		data, _ := io.ReadAll(r.Body)
		t.Fatalf("%s: %s of type %s: %s", body, r.Status, kind, data)
	}
	events, err := readEvents(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return events
}

// readEvents reads a stream as the specification of server-sent events has it.
func readEvents(r io.Reader) ([]string, error) {
	var events []string
	var data []string
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		switch {
		case line == "":
			if data != nil {
				events = append(events, strings.Join(data, "\n"))
			}
			data = nil
		case strings.HasPrefix(line, ":"):
		case strings.HasPrefix(line, "data: "):
			data = append(data, strings.TrimPrefix(line, "data: "))
		default:
			return nil, errors.New("a line that is no event: " + line)
		}
	}
	if data != nil {
		return nil, errors.New("an event without its end")
	}
	return events, lines.Err()
}

// chunks are the events of a stream that ends as it should.
func (s *server) chunks(t testing.TB, path, body string) []chat {
	t.Helper()
	events := s.streamed(t, path, body)
	if len(events) == 0 || events[len(events)-1] != "[DONE]" {
		t.Fatalf("%s: %q does not end with [DONE]", body, events)
	}
	list := make([]chat, len(events)-1)
	for i := range list {
		if err := json.Unmarshal([]byte(events[i]), &list[i]); err != nil {
			t.Fatalf("%s: %v", events[i], err)
		}
	}
	return list
}

// TestModels: what there is is listed, and found by name.
func TestModels(t *testing.T) {
	s := tiny(t)
	for path, want := range map[string]string{
		"/v1/models":           `{"data":[{"id":"tiny","object":"model","created":1700000000,"owned_by":"optimem"},{"id":"org/other","object":"model","created":0,"owned_by":"somebody"}],"object":"list"}`,
		"/v1/models/tiny":      `{"id":"tiny","object":"model","created":1700000000,"owned_by":"optimem"}`,
		"/v1/models/org/other": `{"id":"org/other","object":"model","created":0,"owned_by":"somebody"}`,
		"/v1/models/none":      `{"error":{"code":"model_not_found","message":"the model \"none\" does not exist","param":"model","type":"invalid_request_error"}}`,
	} {
		r, err := s.Client().Get(s.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		got, _ := io.ReadAll(r.Body)
		r.Body.Close()
		if string(bytes.TrimSpace(got)) != want || r.Header.Get("X-Request-Id") == "" || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: %s %s, want %s", path, r.Header, got, want)
		}
	}
}

// TestWrongPaths: what is not there is said in JSON, too.
func TestWrongPaths(t *testing.T) {
	s := tiny(t)
	for _, c := range []struct {
		method, path string
		status       int
	}{
		{"GET", "/v1/nothing", 404}, {"GET", "/", 404}, {"POST", "/v1/models", 405}, {"GET", "/v1/chat/completions", 405}, {"DELETE", "/v1/embeddings", 405},
	} {
		r, err := http.NewRequestWithContext(t.Context(), c.method, s.URL+c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		var e apiError
		if err := json.NewDecoder(got.Body).Decode(&e); err != nil || got.StatusCode != c.status || e.Error.Message == "" {
			t.Errorf("%s %s: %s, %v", c.method, c.path, got.Status, err)
		}
		got.Body.Close()
	}
}

// TestErrorMapping: each error of those who have models is answered with its status, and others with nothing of their words.
func TestErrorMapping(t *testing.T) {
	const body = `{"model": "x", "messages": [{"role": "user", "content": "a"}]}`
	for _, c := range []struct {
		err    error
		status int
		code   string
		says   string
		retry  string
	}{
		{&openai.NotFoundError{Model: "x"}, 404, "model_not_found", `"x"`, ""},
		{&openai.KindError{Model: "x", Does: "write text"}, 400, "", "does not write text", ""},
		{&openai.BusyError{Msg: "too many wait", RetryAfter: 1200 * time.Millisecond}, 429, "rate_limit_exceeded", "too many wait", "2"},
		{&openai.BusyError{Msg: "loading", Unavailable: true, RetryAfter: time.Second}, 503, "unavailable", "loading", "1"},
		{generate.ErrClosed, 503, "unavailable", "closed", ""},
		{context.DeadlineExceeded, 504, "timeout", "too long", ""},
		{&openai.Error{Status: 418, Type: "t", Code: "c", Message: "as it is"}, 418, "c", "as it is", ""},
		{errors.New("open /secret/path"), 500, "", "internal error", ""},
	} {
		s := serve(t, &registry{err: c.err}, openai.Options{})
		r, data := s.post(t, "/v1/chat/completions", body)
		var e apiError
		if err := json.Unmarshal(data, &e); err != nil {
			t.Fatalf("%v: %s", c.err, data)
		}
		code := ""
		if e.Error.Code != nil {
			code = *e.Error.Code
		}
		if r.Header.Get("X-Should-Retry") != map[int]string{500: "false", 504: "false"}[c.status] {
			t.Errorf("%v: %v", c.err, r.Header)
		}
		if r.StatusCode != c.status || code != c.code || !strings.Contains(e.Error.Message, c.says) || r.Header.Get("Retry-After") != c.retry ||
			bytes.Contains(data, []byte("secret")) {
			t.Errorf("%v: %s %s", c.err, r.Status, data)
		}
	}
}

// A constant embedder has vectors of a text's length.
type constant struct{ cut int }

func (constant) Dim() int { return 4 }

func (c constant) Embed(_ context.Context, r embed.Request) (*embed.Result, error) {
	out := &embed.Result{Dim: 4, Cut: c.cut}
	for _, text := range r.Texts {
		text = r.Prompt + text
		n := float32(len(text))
		out.Data = append(out.Data, n, -n, 0.5, 1)
		out.Tokens = append(out.Tokens, len(text))
	}
	return out, nil
}

func copyFile(t testing.TB, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	put(t, to, data)
}
