package openai_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/optimem/optimem/generate"
	"github.com/optimem/optimem/serve/openai"
)

// TestFormats: answers are objects, or values of a schema, whatever the model would like to say.
func TestFormats(t *testing.T) {
	s := tiny(t)
	var got chat
	schema := `{"type": "json_schema", "json_schema": {"name": "answer", "strict": true, "schema": {"type": "object", "properties":
		{"capital": {"enum": ["Rome", "Paris"]}, "sure": {"type": "boolean"}}, "required": ["capital", "sure"], "additionalProperties": false}}}`
	s.ok(t, chats, ask("What is the capital of Italy?", `"n": 2, "response_format": `+schema), &got)
	for i := range got.Choices {
		var v struct {
			Capital string
			Sure    *bool
		}
		if err := json.Unmarshal([]byte(got.content(i)), &v); err != nil || v.Capital != "Rome" && v.Capital != "Paris" || v.Sure == nil || *got.Choices[i].Finish != "stop" {
			t.Errorf("%q, %v", got.content(i), err)
		}
	}
	s.ok(t, chats, ask("Hello", `"response_format": {"type": "json_object"}, "max_tokens": 100`), &got)
	if text := got.content(0); !strings.HasPrefix(text, "{") || *got.Choices[0].Finish == "stop" && !json.Valid([]byte(text)) {
		t.Errorf("%q", text)
	}
}

// TestRefused: what is wrong or would change the answer ends in 400 and a name, before a model is lent.
func TestRefused(t *testing.T) {
	s := tiny(t)
	long := strings.Repeat("a", 70)
	for _, c := range []struct{ more, param, code, says string }{
		{`"surprise": 1`, "surprise", "unsupported_parameter", "surprise"},
		{`"temperature": 2.5`, "temperature", "", "0 to 2"},
		{`"temperature": "hot"`, "temperature", "", "number"},
		{`"temperature": 1e999`, "temperature", "", "number"},
		{`"top_p": -0.1`, "top_p", "", "0 to 1"},
		{`"presence_penalty": 3`, "presence_penalty", "", "-2 to 2"},
		{`"frequency_penalty": -3`, "frequency_penalty", "", "-2 to 2"},
		{`"n": 0`, "n", "", "1 to 16"},
		{`"n": 17`, "n", "", "1 to 16"},
		{`"n": 1.5`, "n", "", "whole"},
		{`"n": "2"`, "n", "", "whole"},
		{`"max_tokens": 0`, "max_tokens", "", ""},
		{`"max_completion_tokens": 99999999999999999999`, "max_completion_tokens", "", "whole"},
		{`"stop": ["1", "2", "3", "4", "5"]`, "stop", "", "5 texts"},
		{`"stop": ["1", ""]`, "stop", "", "empty"},
		{`"stop": 5`, "stop", "", "string"},
		{`"seed": 1.5`, "seed", "", "whole"},
		{`"stream": "yes"`, "stream", "", "true or false"},
		{`"stream_options": {"include_usage": true}`, "stream_options", "", "only for streams"},
		{`"stream": true, "stream_options": {"other": true}`, "stream_options", "", "other"},
		{`"logprobs": 3`, "logprobs", "", "true or false"},
		{`"top_logprobs": 3`, "top_logprobs", "", "with logprobs"},
		{`"logprobs": true, "top_logprobs": 21`, "top_logprobs", "", "0 to 20"},
		{`"logit_bias": {"x": 1}`, "logit_bias", "", `"x"`},
		{`"logit_bias": {"1": 101}`, "logit_bias", "", "101"},
		{`"logit_bias": {"-1": 1}`, "logit_bias", "", `"-1"`},
		{`"logit_bias": {"420": 1}`, "logit_bias", "", "token 420"},
		{`"logit_bias": []`, "logit_bias", "", "object"},
		{`"response_format": {"type": "xml"}`, "response_format", "", "xml"},
		{`"response_format": {"type": "json_schema"}`, "response_format", "", "json_schema"},
		{`"response_format": {"type": "json_schema", "json_schema": {"name": "` + long + `", "schema": {}}}`, "response_format", "", "name"},
		{`"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"not": {}}}}`, "response_format", "", "/not"},
		{`"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "number"}, "more": 1}}`, "response_format", "", "more"},
		{`"response_format": "json"`, "response_format", "", "object"},
		{`"store": true`, "store", "unsupported_parameter", "kept"},
		{`"service_tier": "priority"`, "service_tier", "unsupported_parameter", "priority"},
		{`"reasoning_effort": "low"`, "reasoning_effort", "unsupported_parameter", "chat_template_kwargs"},
		{`"verbosity": "low"`, "verbosity", "unsupported_parameter", "low"},
		{`"modalities": ["text", "audio"]`, "modalities", "unsupported_parameter", "text"},
		{`"audio": {}`, "audio", "unsupported_parameter", ""},
		{`"web_search_options": {}`, "web_search_options", "unsupported_parameter", ""},
		{`"chat_template_kwargs": 5`, "chat_template_kwargs", "", "object"},
		{`"seed": 1, "seed": 2`, "", "", "twice"},
	} {
		s.fails(t, chats, ask("x", c.more), 400, c.param, c.code, c.says)
	}
	for _, c := range []struct{ messages, param, code, says string }{
		{`[]`, "messages", "", "empty"},
		{`{}`, "messages", "", "list"},
		{`["x"]`, "messages[0]", "", "object"},
		{`[{"role": "user"}]`, "messages[0].content", "", "no content"},
		{`[{"role": "king", "content": "x"}]`, "messages[0].role", "", "king"},
		{`[{"content": "x"}]`, "messages[0].role", "", "role"},
		{`[{"role": "function", "name": "f", "content": "x"}]`, "messages[0].role", "unsupported_parameter", "tool"},
		{`[{"role": "user", "content": "x", "mood": "good"}]`, "messages[0]", "", "mood"},
		{`[{"role": "user", "content": []}]`, "messages[0].content", "", "parts"},
		{`[{"role": "user", "content": 5}]`, "messages[0].content", "", "parts"},
		{`[{"role": "user", "content": [{"type": "text"}]}]`, "messages[0].content[0]", "", "no text"},
		{`[{"role": "user", "content": [{"type": "text", "text": "x", "y": 1}]}]`, "messages[0].content[0]", "", "y"},
		{`[{"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "image_url", "image_url": {"url": "data:"}}]}]`, "messages[0].content[1].type", "unsupported_parameter", "image_url"},
		{`[{"role": "user", "content": [{"type": "input_audio"}]}]`, "messages[0].content[0].type", "unsupported_parameter", "input_audio"},
		{`[{"role": "tool", "content": "x"}]`, "messages[0]", "", "tool_call_id"},
		{`[{"role": "assistant"}]`, "messages[0].content", "", "no content"},
		{`[{"role": "assistant", "content": "", "function_call": {"name": "x"}}]`, "messages[0].function_call", "unsupported_parameter", "tool_calls"},
		{`[{"role": "assistant", "tool_calls": [{"id": "x", "type": "function", "function": {"name": "f", "arguments": "{"}}]}]`, "messages[0].tool_calls[0]", "", "JSON"},
		{`[{"role": "assistant", "tool_calls": [{"id": "x", "type": "custom"}]}]`, "messages[0].tool_calls[0]", "", "function"},
		{`[{"role": "user", "content": "` + strings.Repeat("word ", 300) + `"}]`, "messages", "context_length_exceeded", "maximum context length is 256 tokens. However, your messages resulted in"},
	} {
		s.fails(t, chats, `{"model": "tiny", "messages": `+c.messages+`}`, 400, c.param, c.code, c.says)
	}
	s.fails(t, chats, `{"model": "tiny"}`, 400, "messages", "", "must provide")
	s.fails(t, chats, `{"model": 5, "messages": []}`, 400, "model", "", "string")
}

// TestLongTexts are refused by their beginnings, before seconds went into their tokens; what only looks long is not.
func TestLongTexts(t *testing.T) {
	w := &counting{writer(t, ""), 0}
	s := serve(t, &registry{writers: map[string]openai.Writer{"tiny": w}}, openai.Options{})
	for _, text := range []string{strings.Repeat("word ", 100000), strings.Repeat("ü", 100000)} {
		s.fails(t, completions, `{"model": "tiny", "prompt": "`+text+`"}`, 400, "prompt", "context_length_exceeded", "more than")
		s.fails(t, chats, ask(text, ""), 400, "messages", "context_length_exceeded", "more than")
	}
	if w.encoded != 0 {
		t.Errorf("%d long texts were encoded", w.encoded)
	}
	s.fails(t, completions, `{"model": "tiny", "prompt": "`+strings.Repeat("word ", 300)+`"}`, 400, "prompt", "context_length_exceeded", "resulted in 1")
	if w.encoded != 1 {
		t.Errorf("%d texts were encoded", w.encoded)
	}
}

// A counting writer counts texts of which it was asked the tokens.
type counting struct {
	*generate.Writer
	encoded int
}

func (c *counting) Tokens(r generate.TextRequest) ([]int, error) {
	c.encoded++
	return c.Writer.Tokens(r)
}

// TestNoTemplate: a model without a chat template says where its texts go.
func TestNoTemplate(t *testing.T) {
	folder := t.TempDir()
	for _, name := range []string{"config.json", "generation_config.json", "tokenizer.json"} {
		copyFile(t, chatFolder+"/"+name, folder+"/"+name)
	}
	text, err := generate.OpenText(folder)
	if err != nil {
		t.Fatal(err)
	}
	s := serve(t, &registry{writers: map[string]openai.Writer{"tiny": generate.NewWriter(text, engine(t))}}, openai.Options{})
	s.fails(t, chats, ask("x", ""), 400, "model", "", "/v1/completions")
}

// TestHostileBodies: JSON that is none, that is deep or large, or that a stranger's page could send.
func TestHostileBodies(t *testing.T) {
	s := serve(t, &registry{writers: map[string]openai.Writer{"tiny": writer(t, "")}}, openai.Options{MaxBody: 1 << 16})
	for _, c := range []struct {
		body   string
		status int
		says   string
	}{
		{"", 400, "not valid"}, {"{", 400, "not valid"}, {"[]", 400, "object"}, {"5", 400, "object"}, {"null", 400, "object"},
		{`{"model": "tiny"} {}`, 400, "not valid"}, {`{"model": "tiny",}`, 400, "not valid"}, {"{\"model\": \"\x01\"}", 400, "not valid"},
		{strings.Repeat(`{"a":`, 65) + "1" + strings.Repeat("}", 65), 400, "64 deep"},
		{strings.Repeat(`[`, 60000), 400, "64 deep"},
		{`{"model": "` + strings.Repeat("x", 1<<16) + `"}`, 413, "65536 bytes"},
		{ask("x", `"logit_bias": {"1": 1, "1": 2}`), 200, ""},                             // as the last says
		{ask("x", `"max_tokens": 1, "stop": "\\\"`+strings.Repeat("[", 70)+`"`), 200, ""}, // in a text
	} {
		if c.status == 200 {
			var got chat
			s.ok(t, chats, c.body, &got)
			continue
		}
		s.fails(t, chats, c.body, c.status, "", "", c.says)
	}
	deep := strings.Repeat(`{"properties":{"a":`, 20) + `{}` + strings.Repeat("}}", 20)
	s.fails(t, chats, ask("x", `"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": `+deep+`}}, "surprise": 1`), 400, "surprise", "unsupported_parameter", "")
	for kind, encoding := range map[string]string{"text/plain": "", "": "", "application/x-www-form-urlencoded": "", "application/json": "gzip"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+chats, strings.NewReader(ask("x", "")))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", kind)
		if encoding != "" {
			r.Header.Set("Content-Encoding", encoding)
		}
		got, err := s.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		got.Body.Close()
		if got.StatusCode != http.StatusUnsupportedMediaType {
			t.Errorf("%q, %q: %s", kind, encoding, got.Status)
		}
	}
}

// A waiting writer gives some pieces and waits for the end of its request, or fails, or panics.
type waiting struct {
	*generate.Writer
	pieces int
	fail   error
	panics bool
	silent chan struct{} // the text comes when it is closed
	begun  atomic.Int64
	ended  chan error
}

func (w *waiting) Pieces(ctx context.Context, _ generate.TextRequest, got func(generate.Piece) error) (*generate.TextResult, error) {
	w.begun.Add(1)
	for range w.pieces {
		if err := got(generate.Piece{Text: "word "}); err != nil {
			if w.ended != nil {
				w.ended <- err
			}
			return nil, err
		}
	}
	switch {
	case w.panics:
		panic("a bug")
	case w.fail != nil:
		return nil, w.fail
	case w.silent != nil:
		select {
		case <-w.silent:
		case <-ctx.Done():
		}
		result := &generate.TextResult{}
		result.Finish = generate.FinishStop
		return result, nil
	}
	<-ctx.Done()
	w.ended <- context.Cause(ctx)
	return nil, ctx.Err()
}

// TestClientsThatLeave: their requests end, all answers of them, and the model is given back.
func TestClientsThatLeave(t *testing.T) {
	for _, more := range []string{`"stream": true`, `"stream": true, "n": 3`, `"n": 2`} {
		w := &waiting{Writer: writer(t, ""), pieces: 2, ended: make(chan error, 3)}
		r := &registry{writers: map[string]openai.Writer{"tiny": w}}
		s := serve(t, r, openai.Options{})
		ctx, cancel := context.WithCancel(t.Context())
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+chats, strings.NewReader(ask("x", more)))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/json")
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			got, err := s.Client().Do(request)
			if err == nil {
				io.Copy(io.Discard, io.LimitReader(got.Body, 100)) // something comes
				cancel()
				got.Body.Close()
			}
		}()
		if !strings.Contains(more, "stream") {
			for { // until the request is there
				if out, _ := r.lentNow(); out > 0 {
					break
				}
				time.Sleep(time.Millisecond)
			}
			cancel()
		}
		<-answered
		cancel()
		for out := 1; out > 0; out, _ = r.lentNow() {
			time.Sleep(time.Millisecond)
		}
		// Some may not have begun when the client left.
		if begun, ended := w.begun.Load(), len(w.ended); begun == 0 && strings.Contains(more, "stream") || int(begun) != ended {
			t.Errorf("%s: %d of %d answers to nobody ended", more, ended, begun)
		}
	}
}

// TestEngineForgetsClientsThatLeave: the rows of the passes are free for others again.
func TestEngineForgetsClientsThatLeave(t *testing.T) {
	s := tiny(t)
	for range 8 { // more than there is room for
		ctx, cancel := context.WithCancel(t.Context())
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+chats, strings.NewReader(ask("x", `"stream": true, "max_tokens": 200, "logit_bias": {"2": -100, "0": -100}`)))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/json")
		got, err := s.Client().Do(request)
		if err != nil {
			t.Fatal(err)
		}
		io.ReadFull(got.Body, make([]byte, 10))
		cancel()
		got.Body.Close()
	}
	for stats := engine(t).Stats(); stats.Running+stats.Waiting > 0; stats = engine(t).Stats() {
		time.Sleep(time.Millisecond)
	}
	var got chat
	s.ok(t, chats, ask("Hello", ""), &got)
	if got.content(0) != answered {
		t.Errorf("%q", got.content(0))
	}
}

// TestBrokenStreams: an error in the middle comes as an event without [DONE], one before the first as a status.
func TestBrokenStreams(t *testing.T) {
	var logged bytes.Buffer
	var mu sync.Mutex
	logger := slog.New(slog.NewTextHandler(lockedWriter{&mu, &logged}, nil))
	for _, c := range []struct {
		writer *waiting
		status int
		says   string
	}{
		{&waiting{pieces: 2, fail: errors.New("reading /secret: broken")}, 200, "internal error"},
		{&waiting{pieces: 2, fail: &openai.BusyError{Msg: "closing", Unavailable: true}}, 200, "closing"},
		{&waiting{pieces: 2, panics: true}, 200, "internal error"},
		{&waiting{fail: errors.New("reading /secret: broken")}, 500, "internal error"},
		{&waiting{fail: &openai.BusyError{Msg: "full", RetryAfter: time.Second}}, 429, "full"},
		{&waiting{panics: true}, 500, "internal error"},
	} {
		c.writer.Writer = writer(t, "")
		s := serve(t, &registry{writers: map[string]openai.Writer{"tiny": c.writer}}, openai.Options{Logger: logger})
		if c.status != 200 {
			for _, more := range []string{`"stream": true`, ""} {
				r, data := s.post(t, chats, ask("x", more))
				if r.StatusCode != c.status || !bytes.Contains(data, []byte(c.says)) {
					t.Errorf("%s %s", r.Status, data)
				}
			}
			continue
		}
		for path, body := range map[string]string{chats: ask("x", `"stream": true`), completions: `{"model": "tiny", "prompt": "x", "stream": true}`} {
			events := s.streamed(t, path, body)
			var e apiError
			last := events[len(events)-1]
			if err := json.Unmarshal([]byte(last), &e); err != nil || e.Error.Message == "" || !strings.Contains(last, c.says) || strings.Contains(last, "secret") {
				t.Errorf("%q ends with %s", events, last)
			}
			if len(events) < 3 || strings.Contains(strings.Join(events, ""), "[DONE]") {
				t.Errorf("%q", events)
			}
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if n := strings.Count(logged.String(), "level=ERROR"); n != 8 || !strings.Contains(logged.String(), "/secret") || !strings.Contains(logged.String(), "req_") {
		t.Errorf("%d errors were logged: %s", n, logged.String())
	}
}

type lockedWriter struct {
	mu *sync.Mutex
	w  io.Writer
}

func (l lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// TestSilence: a stream that waits has comments, which are no events.
func TestSilence(t *testing.T) {
	w := &waiting{Writer: writer(t, ""), silent: make(chan struct{})}
	s := serve(t, &registry{writers: map[string]openai.Writer{"tiny": w}}, openai.Options{KeepAlive: 5 * time.Millisecond})
	r, err := s.Client().Post(s.URL+chats, "application/json", strings.NewReader(ask("x", `"stream": true`)))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	const two = ": waiting\n\n: waiting\n\n"
	first := make([]byte, len(two))
	_, err = io.ReadFull(r.Body, first)
	close(w.silent)
	data, rest := io.ReadAll(r.Body)
	if err != nil || rest != nil || r.StatusCode != 200 || string(first) != two || !bytes.HasSuffix(data, []byte("data: [DONE]\n\n")) {
		t.Errorf("%s %q %q: %v, %v", r.Status, first, data, err, rest)
	}
	if _, data := s.post(t, chats, ask("x", "")); bytes.Contains(data, []byte("waiting")) {
		t.Errorf("%q", data)
	}
}

// TestManyClients: many at once have the answers that each has alone.
func TestManyClients(t *testing.T) {
	s := tiny(t)
	cases := chatCases(t)
	var wg sync.WaitGroup
	for i := range 3 * len(cases) {
		c := cases[i%len(cases)]
		wg.Go(func() {
			said, err := json.Marshal(c.Messages)
			if err != nil {
				t.Error(err)
				return
			}
			r, err := s.Client().Post(s.URL+chats, "application/json", strings.NewReader(fmt.Sprintf(`{"model": "tiny", "messages": %s}`, said)))
			if err != nil {
				t.Error(err)
				return
			}
			defer r.Body.Close()
			var got chat
			if err := json.NewDecoder(r.Body).Decode(&got); err != nil || len(got.Choices) != 1 || got.content(0) != c.Text {
				t.Errorf("%s: %+v, want %q: %v", said, got, c.Text, err)
			}
		})
	}
	wg.Wait()
}

// FuzzRequests: whatever is sent is answered in JSON or as a stream, and never with an internal error.
func FuzzRequests(f *testing.F) {
	for _, body := range []string{
		ask("Hello", `"max_tokens": 2`), ask("x", `"stream": true, "stream_options": {"include_usage": true}, "logprobs": true, "top_logprobs": 2`),
		withTools("x", `"tool_choice": "required", "max_tokens": 3`), `{"model": "tiny", "prompt": ["a", "b"], "max_tokens": 1, "echo": true}`,
		`{"model": "tiny", "prompt": [[1, 2]], "max_tokens": 1, "logprobs": 1, "logit_bias": {"1": 5}, "stop": ["a"]}`,
		`{"model": "vectors", "input": ["a", "b"], "dimensions": 2, "encoding_format": "base64"}`,
		ask("x", `"max_tokens": 2, "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object", "properties": {"a": {"$ref": "#/x"}}}}}`),
		`{"model": "tiny", "messages": [{"role": "assistant", "tool_calls": [{"id": "x", "function": {"name": "f", "arguments": "{}"}}]}, {"role": "tool", "tool_call_id": "x", "content": [{"type": "text", "text": "y"}]}]}`,
	} {
		f.Add(body)
	}
	w := &bounded{writer(f, calling(hermesCalls))}
	h := openai.New(&registry{writers: map[string]openai.Writer{"tiny": w}, embedders: map[string]openai.Embedder{"vectors": constant{}}}, openai.Options{MaxBody: 1 << 16})
	f.Fuzz(func(t *testing.T, body string) {
		for _, path := range []string{chats, completions, embeddings} {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(body))
			r.Header.Set("Content-Type", "application/json")
			got := httptest.NewRecorder()
			h.ServeHTTP(got, r)
			switch kind := got.Header().Get("Content-Type"); {
			case got.Code >= 500:
				t.Errorf("%s: %d %s", path, got.Code, got.Body)
			case strings.HasPrefix(kind, "text/event-stream"):
				events, err := readEvents(got.Body)
				if err != nil || len(events) == 0 {
					t.Errorf("%s: %q, %v", path, events, err)
				}
			case kind != "application/json" || !json.Valid(got.Body.Bytes()):
				t.Errorf("%s: %s %s", path, kind, got.Body)
			}
		}
	})
}

// A bounded writer writes little, so that there is time for many requests.
type bounded struct{ *generate.Writer }

func (b *bounded) Pieces(ctx context.Context, r generate.TextRequest, got func(generate.Piece) error) (*generate.TextResult, error) {
	if r.Request.MaxTokens = min(r.Request.MaxTokens, 2); r.Request.MaxTokens == 0 {
		r.Request.MaxTokens = 2
	}
	return b.Writer.Pieces(ctx, r, got)
}
