package serve

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/serve/otlp"
	"github.com/optimem/optimem/tensor"
)

// A toldSpan is one as a collector gets it.
type toldSpan struct {
	TraceID, SpanID, ParentSpanID, Name string
	Begin                               string `json:"startTimeUnixNano"`
	End                                 string `json:"endTimeUnixNano"`
	Links                               []struct{ TraceID, SpanID string }
	Events                              []struct{ Name string }
	Attributes                          []struct {
		Key   string
		Value map[string]any
	}
}

func (s *toldSpan) attribute(name string) string {
	for _, a := range s.Attributes {
		if a.Key == name {
			for _, v := range a.Value {
				return fmt.Sprint(v)
			}
		}
	}
	return ""
}

// traces has spans collected, and returns what ends that and gives them.
func traces(t *testing.T) (*otlp.Exporter, func() []toldSpan) {
	t.Helper()
	var mu sync.Mutex
	var all []toldSpan
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var told struct {
			ResourceSpans []struct {
				ScopeSpans []struct{ Spans []toldSpan }
			}
		}
		if err := json.Unmarshal(body, &told); err != nil {
			t.Errorf("%s: %v", body, err)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		all = append(all, told.ResourceSpans[0].ScopeSpans[0].Spans...)
	}))
	t.Cleanup(s.Close)
	e, err := otlp.New(s.URL, otlp.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return e, func() []toldSpan {
		if err := e.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		defer mu.Unlock()
		return all
	}
}

const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// TestTraces: a request's span is in the trace of who asks, with what it waited and what its pass took within it, and
// linked to the pass, whose span is linked to it and tells of groups. Who does not want a trace has none. A text tells
// of its tokens.
func TestTraces(t *testing.T) {
	e, collected := traces(t)
	r := open(t, directory(t, map[string]string{"digits.pt2": digits, "chat": chat}), Options{Traces: e})
	h := r.Handler()
	pixels := pictures(t, 1)
	for _, from := range []string{parent, strings.TrimSuffix(parent, "1") + "0"} {
		if status, _, body := ask(h, "POST", "/v2/models/digits/infer", jsonRequest(pixels), "Traceparent", from); status != 200 {
			t.Fatal(body)
		}
	}
	if status, _, body := ask(h, "POST", "/v1/chat/completions", `{"model":"chat","max_tokens":3,"messages":[{"role":"user","content":"hello"}]}`,
		"Content-Type", "application/json"); status != 200 {
		t.Fatal(body)
	}
	spans := make(map[string]toldSpan)
	for _, s := range collected() {
		if spans[s.Name].Name != "" {
			t.Errorf("two spans %s", s.Name)
		}
		spans[s.Name] = s
	}
	request, pass := spans["POST /v2/models/{model}/infer"], spans["pass digits"]
	if request.ParentSpanID != "00f067aa0ba902b7" || request.TraceID != "4bf92f3577b34da6a3ce929d0e0e4736" || request.attribute("optimem.model") != "digits" ||
		request.attribute("http.response.status_code") != "200" || request.attribute("optimem.request.id") == "" {
		t.Errorf("%+v", request)
	}
	for _, name := range []string{"queue", "infer"} {
		if s := spans[name]; s.ParentSpanID != request.SpanID || s.TraceID != request.TraceID || s.Begin < request.Begin || s.End > request.End {
			t.Errorf("%+v in %+v", s, request)
		}
	}
	if links := spans["infer"].Links; len(links) != 1 || links[0].SpanID != pass.SpanID || links[0].TraceID != pass.TraceID {
		t.Errorf("%+v", links)
	}
	if len(pass.Links) != 1 || pass.Links[0].SpanID != request.SpanID || pass.TraceID == request.TraceID || len(pass.Events) == 0 || pass.Events[0].Name != "group" ||
		pass.attribute("optimem.instances") != "1" {
		t.Errorf("%+v", pass)
	}
	text, write := spans["POST /v1/chat/completions"], spans["write"]
	if text.ParentSpanID != "" || write.ParentSpanID != text.SpanID || write.attribute("gen_ai.usage.output_tokens") != "3" || text.attribute("optimem.model") != "chat" {
		t.Errorf("%+v, %+v", text, write)
	}
	if len(spans) != 6 {
		t.Errorf("%d spans", len(spans))
	}
}

// TestRequestIDs: a request is known by the name that its client gave it, in the answer and in the lines of its pass
// and of the request itself; one that is no name is replaced.
func TestRequestIDs(t *testing.T) {
	var mu sync.Mutex
	var logged bytes.Buffer
	log := slog.New(slog.NewTextHandler(writerFunc(func(p []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return logged.Write(p)
	}), &slog.HandlerOptions{Level: slog.LevelDebug}))
	r := open(t, directory(t, map[string]string{"digits.pt2": digits}), Options{Log: log})
	_, header, _ := ask(r.Handler(), "POST", "/v2/models/digits/infer", jsonRequest(pictures(t, 1)), "X-Request-Id", "mine-1")
	if got := header.Get("X-Request-Id"); got != "mine-1" {
		t.Errorf("it is called %q", got)
	}
	mu.Lock()
	text := logged.String()
	mu.Unlock()
	for _, want := range []string{`msg="a pass is done"`, "requests=[mine-1]", "msg=answered request=mine-1", `msg="a group is done"`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	for _, bad := range []string{"", "a b", strings.Repeat("x", 129), "x\ty"} {
		if _, header, _ := ask(r.Handler(), "GET", "/v2", "", "X-Request-Id", bad); !strings.HasPrefix(header.Get("X-Request-Id"), "req_") {
			t.Errorf("%q became %q", bad, header.Get("X-Request-Id"))
		}
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// TestAnswersAreCounted: what an answer takes is reserved before its pass, with the bodies, and is free when it is
// written; one that could never be reserved is refused for good.
func TestAnswersAreCounted(t *testing.T) {
	r := open(t, directory(t, map[string]string{"digits.pt2": digits}), Options{})
	h := r.Handler()
	raw := string(floatBytes(pictures(t, 2)))
	need := int64(2*len(raw) + 2*10*4) // the body, what a tensor of it takes, and the scores
	for free, want := range map[int64]int{need - 1: 429, need: 200} {
		if !r.bodies.take(r.bodies.most - free) {
			t.Fatal("no room")
		}
		if status, _, answer := ask(h, "POST", "/v2/models/digits/infer", raw, headerLength, "0"); status != want {
			t.Errorf("%d bytes of room: %d %s", free, status, answer)
		}
		r.bodies.give(r.bodies.most - free)
		if held := r.bodies.heldBytes(); held != 0 {
			t.Errorf("%d bytes are held", held)
		}
	}
	v, err := r.find("digits", "")
	if err != nil {
		t.Fatal(err)
	}
	m := v.current().runner.(*tensorRunner)
	in := runtime.Values{"input": tensor.Of(pictures(t, 2), 2, 1, 8, 8)}
	if _, one := m.answer(t.Context(), in, 1); one != 2*10*4 {
		t.Errorf("the answer takes %d bytes", one)
	}
	b := &body{registry: r}
	if err := b.more(r.bodies.most + 1); told(t.Context(), err).Status != 422 || b.held != 0 {
		t.Errorf("more than there is: %v", err)
	}
}
