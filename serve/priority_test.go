package serve

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/optimem/optimem/embed"
	"github.com/optimem/optimem/generate"
	"github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/serve/internal/inference"
	"github.com/optimem/optimem/serve/oip"
	"github.com/optimem/optimem/serve/openai"
)

// TestPriorities: of the requests that wait for a model the one with the least number goes first, by REST, gRPC and a
// request that is cut into rows; what is none is refused.
func TestPriorities(t *testing.T) {
	begun, hold := make(chan struct{}, 1), make(chan struct{})
	var order []string
	opts := Options{}
	opts.Session.Observe = func(e runtime.Event) {
		switch e.Kind {
		case runtime.GroupDone:
			select {
			case begun <- struct{}{}:
				<-hold
			default:
			}
		case runtime.PassDone:
			for _, ctx := range e.Calls.Contexts {
				order = append(order, passageOf(ctx).id)
			}
		}
	}
	r := open(t, directory(t, map[string]string{"digits.pt2": digits, "digits.model.json": `{"max_join": 1}`}), opts)
	at, client := serveHTTP(t, r.Handler())
	pixels := pictures(t, 3)
	var calls sync.WaitGroup
	rest := func(id, priority string) {
		calls.Go(func() {
			body := strings.Replace(jsonRequest(pixels), `{"id"`, `{"parameters":{`+priority+`},"id"`, 1)
			req, err := http.NewRequestWithContext(t.Context(), "POST", at+"/v2/models/digits/infer", strings.NewReader(body))
			if err != nil {
				t.Error(err)
				return
			}
			req.Header.Set(requestID, id)
			answer, err := client.Do(req)
			if err != nil {
				t.Error(err)
				return
			}
			defer answer.Body.Close()
			if answer.StatusCode != 200 {
				t.Errorf("%s: %d", id, answer.StatusCode)
			}
		})
	}
	v, err := r.find("digits", "")
	if err != nil {
		t.Fatal(err)
	}
	placed := func(n int) {
		t.Helper()
		until(t, "requests wait", func() bool { return v.current().facts().waiting == n })
	}
	rest("holds", "")
	until(t, "a pass", func() bool { return len(begun) == 1 })
	rest("last", `"priority":7`)
	placed(1)
	rest("none", "")
	placed(2)
	rest("zero", `"priority":0`)
	placed(3)
	calls.Go(func() {
		q := inferMessage("digits", pixels)
		q.Parameters = map[string]*inference.Parameter{"priority": {Choice: &inference.Parameter_Uint64Param{Uint64Param: 1}}}
		if _, err := call1[inference.InferRequest, inference.InferResponse](t, client, at, service+"ModelInfer", q); err != nil {
			t.Error(err)
		}
	})
	placed(4)
	rest("beyond", `"priority":9223372036854775807`)
	placed(5)
	close(hold)
	calls.Wait()
	if len(order) != 6 || !strings.HasPrefix(order[1], "req_") || !slices.Equal(order[2:], []string{"none", "zero", "last", "beyond"}) {
		t.Errorf("they went as %q", order)
	}
	for _, bad := range []string{`-1`, `1.5`, `"1"`, `true`} {
		body := strings.Replace(jsonRequest(pixels), `{"id"`, `{"parameters":{"priority":`+bad+`},"id"`, 1)
		if status, _, text := ask(r.Handler(), "POST", "/v2/models/digits/infer", body); status != 400 || !strings.Contains(text, "priority") {
			t.Errorf("priority %s: %d %s", bad, status, text)
		}
	}
	q := inferMessage("digits", pixels)
	q.Parameters = map[string]*inference.Parameter{"priority": {Choice: &inference.Parameter_Uint64Param{Uint64Param: 1 << 63}}}
	if _, err := call1[inference.InferRequest, inference.InferResponse](t, client, at, service+"ModelInfer", q); err == nil {
		t.Error("a number beyond all is taken")
	}
}

// TestPriorityOfTexts: what is written and what becomes a vector has the request's priority, and the extension is
// announced.
func TestPriorityOfTexts(t *testing.T) {
	r := open(t, directory(t, map[string]string{"chat": chat}), Options{})
	v, err := r.find("chat", "")
	if err != nil {
		t.Fatal(err)
	}
	i, release, err := v.use(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	c := &call{priority: 2, request: &oip.Request{Inputs: []oip.Input{{Name: "text_input", Datatype: oip.Bytes, Texts: [][]byte{[]byte("hello")}}}}}
	if q, err := i.runner.(*textRunner).request(c); err != nil || q.Request.Priority != 2 {
		t.Errorf("%d %v", q.Request.Priority, err)
	}
	if _, _, text := ask(r.Handler(), "GET", "/v2", ""); !strings.Contains(text, `"schedule_policy"`) {
		t.Error(text)
	}
	if _, _, text := ask(r.Handler(), "GET", "/v2/models/chat/config", ""); !strings.Contains(text, `{"default_priority_level":4,"priority_levels":7}`) {
		t.Error(text)
	}
}

// TestDeadlineOfPriorities: whether a request's time is over before its pass is judged by those that go before it.
func TestDeadlineOfPriorities(t *testing.T) {
	r, s := serveSlow(t, Options{})
	h := r.Handler()
	var calls sync.WaitGroup
	send := func(parameters string) {
		calls.Go(func() {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest("POST", slowPath, strings.NewReader(`{"inputs":[],"parameters":{`+parameters+`}}`)))
			if w.Code != 200 {
				t.Errorf("%s: %d %s", parameters, w.Code, w.Body)
			}
		})
	}
	const before = 100
	for range before {
		send("")
	}
	until(t, "all wait", func() bool { return s.calls.Load() == before })
	const enough = `"timeout":120000000` // for 40 passes of two
	if status, _, _ := ask(h, "POST", slowPath, `{"inputs":[],"parameters":{`+enough+`}}`); status != 429 {
		t.Errorf("behind a hundred: %d", status)
	}
	send(`"priority":1,` + enough)
	until(t, "one more waits", func() bool { return s.calls.Load() == before+1 })
	v, _ := r.find("slow", "")
	if all, first := v.stats.waits(0, 1); all != before+1 || first != 1 {
		t.Errorf("%d wait, %d of them of the first priority", all, first)
	}
	if all, first := v.stats.waits(0, 7); all != before+1 || first != before+1 {
		t.Errorf("%d wait, %d of them before one of the last priority", all, first)
	}
	close(s.free)
	calls.Wait()
}

// TestPriorityOfOpenAI: the header says the priority of what is written and what becomes a vector by OpenAI's protocol, and what
// is none is refused.
func TestPriorityOfOpenAI(t *testing.T) {
	for text, want := range map[string]runtime.Priority{"": 4, "0": 4, "1": 1, "7": 7, "99": 7, "9223372036854775807": 7} {
		h := make(http.Header)
		if text != "" {
			h.Set(priorityHeader, text)
		}
		if got, err := headerPriority(h); err != nil || got != want {
			t.Errorf("%q: %d, %v", text, got, err)
		}
	}
	r := open(t, directory(t, map[string]string{"chat": chat}), Options{})
	h := r.Handler()
	for _, bad := range []string{"-1", "1.5", "high", "9223372036854775808"} {
		status, _, text := ask(h, "POST", "/v1/completions", `{"model":"chat","prompt":"a","max_tokens":1}`, priorityHeader, bad, "Content-Type", "application/json")
		if status != 400 || !strings.Contains(text, priorityHeader) {
			t.Errorf("%s: %d %s", bad, status, text)
		}
	}
	status, _, text := ask(h, "POST", "/v1/completions", `{"model":"chat","prompt":"a","max_tokens":1}`, priorityHeader, "2", "Content-Type", "application/json")
	if status != 200 {
		t.Errorf("%d %s", status, text)
	}
	var seen embed.Request
	e := placedEmbedder{embedderFunc(func(r embed.Request) { seen = r }), 3}
	if _, err := e.Embed(t.Context(), embed.Request{}); err != nil || seen.Priority != 3 {
		t.Errorf("%d %v", seen.Priority, err)
	}
	var written generate.TextRequest
	w := &tracedWriter{Writer: writerOf(func(r generate.TextRequest) { written = r }), registry: r, priority: 5}
	if _, err := w.Pieces(t.Context(), generate.TextRequest{}, nil); err != nil || written.Request.Priority != 5 {
		t.Errorf("%d %v", written.Request.Priority, err)
	}
	if (*lending)(nil).place() != runtime.DefaultPriority || (&lending{priority: 6}).place() != 6 {
		t.Error("a place is another")
	}
}

// An embedderFunc sees requests.
type embedderFunc func(embed.Request)

func (f embedderFunc) Dim() int { return 1 }
func (f embedderFunc) Embed(_ context.Context, r embed.Request) (*embed.Result, error) {
	f(r)
	return nil, nil
}

// seeingWriter sees requests.
type seeingWriter struct {
	openai.Writer
	see func(generate.TextRequest)
}

func writerOf(see func(generate.TextRequest)) openai.Writer { return seeingWriter{see: see} }

func (w seeingWriter) Pieces(_ context.Context, r generate.TextRequest, _ func(generate.Piece) error) (*generate.TextResult, error) {
	w.see(r)
	return nil, nil
}
