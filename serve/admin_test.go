package serve

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/optimem/optimem/internal/fixtures"
)

// TestMetrics: what is counted is told in Prometheus's text format, once for each family, with Triton's names where they are
// asked for, and only to administration.
func TestMetrics(t *testing.T) {
	r := open(t, directory(t, map[string]string{"digits.pt2": digits, "chat": chat}), Options{TritonMetrics: true})
	h, admin := r.Handler(), r.Admin()
	for range 3 {
		ask(h, "POST", "/v2/models/digits/infer", jsonRequest(pictures(t, 2)))
	}
	ask(h, "POST", "/v2/models/digits/infer", "nothing")
	if status, _, _ := ask(h, "GET", "/metrics", ""); status != 404 {
		t.Errorf("clients see metrics: %d", status)
	}
	status, header, text := ask(admin, "GET", "/metrics", "")
	if status != 200 || !strings.HasPrefix(header.Get("Content-Type"), "text/plain; version=0.0.4") {
		t.Fatal(status, header)
	}
	for _, want := range []string{
		`optimem_requests_total{model="digits",version="1",code="200"} 3`, `optimem_requests_total{model="digits",version="1",code="400"} 1`,
		`optimem_request_duration_seconds_count{model="digits",version="1"} 4`, `optimem_queue_duration_seconds_bucket{model="digits",version="1",le="+Inf"} 3`,
		`optimem_queue_requests{model="digits",version="1"} 0`, `optimem_passes_total{model="digits"} 3`, `optimem_memory_budget_bytes 6.7108864e+07`,
		`optimem_memory_bytes{model="chat",purpose="caches"} `, `optimem_body_bytes 0`, `optimem_ready 1`,
		`nv_inference_request_success{model="digits",version="1"} 3`, `nv_inference_count{model="digits",version="1"} 6`,
		`nv_inference_exec_count{model="digits",version="1"} 3`, `nv_inference_request_failure{model="digits",version="1",reason="OTHER"} 1`,
	} {
		if !strings.Contains(text, "\n"+want) {
			t.Errorf("no %s", want)
		}
	}
	line := regexp.MustCompile(`^(# (HELP|TYPE) [a-z_:]+ .+|[a-z_:]+(\{([a-z]+="([^"\\\n]|\\.)*",?)+\})? [-+0-9.e]+)$`)
	family := ""
	seen := make(map[string]bool)
	for _, l := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		if !line.MatchString(l) {
			t.Errorf("no line of the format: %q", l)
		}
		if name, ok := strings.CutPrefix(l, "# HELP "); ok {
			if family, _, _ = strings.Cut(name, " "); seen[family] {
				t.Errorf("%s is told of twice", family)
			}
			seen[family] = true
		} else if !strings.HasPrefix(l, "#") && !strings.HasPrefix(l, family) {
			t.Errorf("%q is among %s", l, family)
		}
	}
	if got := labels("a", "x\"\\\n"); got != `{a="x\"\\\n"}` {
		t.Error(got)
	}
	h2 := &histogram{}
	for _, ms := range []int{1, 2, 3, 1 << 20} {
		h2.add(time.Duration(ms) * time.Millisecond)
	}
	x := &exposition{named: make(map[string]*metric)}
	x.histogram("h", "help", h2)
	var b strings.Builder
	if err := x.write(&b); err != nil || !strings.Contains(b.String(), "h_bucket{le=\"0.002\"} 2\nh_bucket{le=\"0.004\"} 3\n") || !strings.Contains(b.String(), "le=\"+Inf\"} 4\n") {
		t.Error(b.String(), err)
	}
}

// TestPage: the page is whole in itself, and what it shows is there.
func TestPage(t *testing.T) {
	r := open(t, directory(t, map[string]string{"digits.pt2": digits}), Options{})
	admin := r.Admin()
	status, header, text := ask(admin, "GET", "/ui", "")
	if status != 200 || !strings.Contains(header.Get("Content-Security-Policy"), "default-src 'none'") || header.Get("X-Frame-Options") != "DENY" {
		t.Fatal(status, header)
	}
	if regexp.MustCompile(`https?://|<(link|img|iframe)|src=`).MatchString(text) || !strings.Contains(text, `<html lang="en">`) {
		t.Error("the page asks for something of elsewhere, or says no language")
	}
	if strings.Contains(text, "innerHTML") {
		t.Error("names of models are put into the page as HTML")
	}
	var s uiState
	_, _, state := ask(admin, "GET", "/ui/state", "")
	if err := json.Unmarshal([]byte(state), &s); err != nil || len(s.Models) != 1 || s.Models[0].State != Ready || s.Budget != 64<<20 || !s.Ready {
		t.Errorf("%v %s", err, state)
	}
	if status, _, _ := ask(r.Handler(), "GET", "/ui", ""); status != 404 {
		t.Errorf("clients see the page: %d", status)
	}
}

// A panicking runner has a mistake.
type panicking struct{ slow }

func (p *panicking) infer(context.Context, *call) error { panic("of the model's at /secret/path") }

// A failing runner cannot read its file.
type failing struct{ slow }

func (f *failing) infer(context.Context, *call) error {
	return &os.PathError{Op: "read", Path: "/secret/path", Err: os.ErrPermission}
}

// TestPanic: a panic, and an error that is not the client's, end one request, as JSON that says nothing of where, and hold nothing.
func TestPanic(t *testing.T) {
	r, s := serveSlow(t, Options{})
	close(s.free)
	v, _ := r.find("slow", "")
	good := v.inst.runner
	v.inst.runner = &panicking{}
	status, header, body := ask(r.Handler(), "POST", slowPath, empty)
	if status != 500 || header.Get("Content-Type") != "application/json" || strings.Contains(body, "secret") {
		t.Errorf("%d %v %s", status, header, body)
	}
	v.inst.runner = &failing{}
	status, _, body = ask(r.Handler(), "POST", slowPath, empty)
	if status != 500 || body != `{"error":"internal error"}`+"\n" {
		t.Errorf("%d %s", status, body)
	}
	v.inst.runner = good
	if status, _, _ := ask(r.Handler(), "POST", slowPath, empty); status != 200 {
		t.Errorf("afterwards: %d", status)
	}
	if v.stats.waiting() != 0 || r.bodies.heldBytes() != 0 || v.inst.users != 0 {
		t.Error("the request that panicked is still here")
	}
}

// TestJoined: many clients at once share passes, and each has its own answer; what is moved does not grow with them.
func TestJoined(t *testing.T) {
	r := open(t, directory(t, map[string]string{"digits.pt2": digits}), Options{Memory: 400 << 10})
	h := r.Handler()
	pixels := pictures(t, 8)
	want := scores(t, pixels)
	var wait sync.WaitGroup
	const clients, each = 32, 4
	for c := range clients {
		wait.Go(func() {
			mine := pixels[c%8*64:][:64]
			for range each {
				status, _, body := ask(h, "POST", "/v2/models/digits/infer", jsonRequest(mine))
				var a answered
				if err := json.Unmarshal([]byte(body), &a); err != nil || status != http.StatusOK {
					t.Errorf("%d %s", status, body)
					return
				}
				if got, w := a.Outputs[0].Data, want[c%8*10:][:10]; argmax(got) != argmax(w) {
					t.Errorf("client %d has another's answer: %v, not %v", c, got, w)
				}
			}
		})
	}
	wait.Wait()
	v, _ := r.find("digits", "")
	if m := statsOf(v); m.InferenceCount != clients*each || m.ExecutionCount >= m.InferenceCount || m.InferenceStats["success"].Count != clients*each {
		t.Errorf("%+v", m)
	}
	if pool := r.Pool().Metrics(); pool.PeakBytes > pool.BudgetBytes {
		t.Errorf("%d bytes of %d", pool.PeakBytes, pool.BudgetBytes)
	}
}

func argmax(list []float32) int {
	at := 0
	for i, x := range list {
		if x > list[at] {
			at = i
		}
	}
	return at
}

// TestTextModels: models that write and make vectors answer in the protocol too, and no other kind of request.
func TestTextModels(t *testing.T) {
	r := open(t, directory(t, map[string]string{"digits.pt2": digits, "chat": chat}), Options{})
	h := r.Handler()
	body := `{"inputs":[{"name":"text_input","shape":[1],"datatype":"BYTES","data":["hello"]}],"parameters":{"max_tokens":4}}`
	status, _, first := ask(h, "POST", "/v2/models/chat/infer", body)
	_, _, second := ask(h, "POST", "/v2/models/chat/infer", body)
	if status != 200 || first != second || !strings.Contains(first, `"name":"text_output","datatype":"BYTES","shape":[1],"data":["`) {
		t.Errorf("%d %s %s", status, first, second)
	}
	for _, bad := range []string{jsonRequest(pictures(t, 1)), strings.Replace(body, `"max_tokens":4`, `"max_tokens":"4"`, 1),
		strings.Replace(strings.Replace(body, `[1]`, `[2]`, 1), `["hello"]`, `["a","b"]`, 1)} {
		if status, _, answer := ask(h, "POST", "/v2/models/chat/infer", bad); status != 400 {
			t.Errorf("%.60s: %d %s", bad, status, answer)
		}
	}
	if status, _, answer := ask(h, "POST", "/v2/models/digits/infer", body); status != 400 {
		t.Errorf("a text to a model of tensors: %d %s", status, answer)
	}
	status, _, answer := ask(h, "GET", "/v1/models", "")
	if status != 200 || !strings.Contains(answer, `"chat"`) || strings.Contains(answer, "digits") {
		t.Errorf("%d %s", status, answer)
	}
	status, _, answer = ask(h, "POST", "/v1/chat/completions", `{"model":"chat","messages":[{"role":"user","content":"hello"}],"max_tokens":4}`,
		"Content-Type", "application/json")
	if status != 200 || !strings.Contains(answer, `"chat.completion"`) {
		t.Errorf("%d %s", status, answer)
	}
	if v, _ := r.find("chat", ""); statsOf(v).InferenceStats["success"].Count != 3 || statsOf(v).InferenceStats["fail"].Count != 3 {
		t.Errorf("%+v", statsOf(v))
	}
	status, _, answer = ask(h, "POST", "/v1/chat/completions", `{"model":"digits","messages":[{"role":"user","content":"hello"}]}`, "Content-Type", "application/json")
	if status != 400 || !strings.Contains(answer, "write text") {
		t.Errorf("%d %s", status, answer)
	}
}

// TestRows: a program that was exported for two rows takes six, with the bits of three requests; one that mixes rows takes two.
func TestRows(t *testing.T) {
	r := open(t, directory(t, map[string]string{"mlp.pt2": fixtures.Folder("../loader/testdata/valid.tar.bz2") + "/t26_pt2_mlp.pt2", "mix.pt2": "../runtime/testdata/strided.pt2"}), Options{})
	h := r.Handler()
	x := make([]float32, 24)
	for i := range x {
		x[i] = float32(i%7) - 3
	}
	infer := func(model string, list []float32) (int, answered, string) {
		width := map[string]int{"mlp": 4, "mix": 12}[model]
		text, err := json.Marshal(list)
		if err != nil {
			t.Fatal(err)
		}
		status, _, body := ask(h, "POST", "/v2/models/"+model+"/infer", fmt.Sprintf(`{"inputs":[{"name":"x","shape":[%d,%d],"datatype":"FP32","data":%s}]}`, len(list)/width, width, text))
		var a answered
		if status == 200 {
			if err := json.Unmarshal([]byte(body), &a); err != nil {
				t.Fatal(err)
			}
		}
		return status, a, body
	}
	status, all, body := infer("mlp", x)
	if status != 200 || fmt.Sprint(all.Outputs[0].Shape) != "[6 3]" {
		t.Fatalf("%d %s", status, body)
	}
	for i := range 3 {
		status, some, body := infer("mlp", x[8*i:][:8])
		if status != 200 || !sameFloats(some.Outputs[0].Data, all.Outputs[0].Data[6*i:][:6]) {
			t.Errorf("rows %d: %d %s", i, status, body)
		}
	}
	for rows, want := range map[int]int{2: 200, 3: 400, 0: 400} {
		if status, _, body := infer("mlp", x[:4*rows]); status != want {
			t.Errorf("%d rows: %d %s", rows, status, body)
		}
	}
	if status, _, body := infer("mlp", make([]float32, 4*2*(maxParts+1))); status != 400 || !strings.Contains(body, "the most") {
		t.Errorf("%d %s", status, body)
	}
	for rows, want := range map[int]int{2: 200, 4: 400} {
		if status, _, body := infer("mix", make([]float32, 12*rows)); status != want {
			t.Errorf("%d rows that are mixed: %d %s", rows, status, body)
		}
	}
}
