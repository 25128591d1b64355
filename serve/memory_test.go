package serve

import (
	"encoding/json"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/optimem/optimem/runtime"
)

// TestOverloadOfTexts: ten times as many texts are asked for as there is memory for answers. Those beyond are refused
// while not one pass is over, with when to come back; what is held never is more than there is; the others are answered
// as ever, and nothing stays.
func TestOverloadOfTexts(t *testing.T) {
	begun, hold := make(chan struct{}), make(chan struct{})
	free := sync.OnceFunc(func() { close(hold) })
	var first sync.Once
	opts := Options{}
	var passes atomic.Int64
	opts.Session.Observe = func(e runtime.Event) {
		if e.Kind == runtime.GroupDone {
			first.Do(func() { close(begun); <-hold })
		}
		if e.Kind == runtime.PassDone {
			passes.Add(1)
		}
	}
	r := open(t, directory(t, map[string]string{"chat": chat}), opts)
	t.Cleanup(free) // before it is closed
	h := r.Handler()
	const path = "/v1/chat/completions"
	const request = `{"model":"chat","messages":[{"role":"user","content":"Hello!"}],"temperature":0,"max_tokens":8,"n":2,"logprobs":true,"top_logprobs":20}`
	var answers, refused atomic.Int64
	var calls sync.WaitGroup
	var text atomic.Value
	send := func() {
		calls.Go(func() {
			status, header, body := ask(h, "POST", path, request, "Content-Type", "application/json")
			switch {
			case status == 200:
				answers.Add(1)
				var a struct{ Choices json.RawMessage }
				if err := json.Unmarshal([]byte(body), &a); err != nil {
					t.Error(err)
				}
				if before := text.Swap(string(a.Choices)); before != nil && before != string(a.Choices) {
					t.Errorf("another answer: %s", body)
				}
			case status == 429 && header.Get("Retry-After") != "" && strings.Contains(body, "too many bytes"):
				refused.Add(1)
			default:
				t.Errorf("%d %s", status, body)
			}
		})
	}
	send()
	until(t, "a pass", func() bool {
		select {
		case <-begun:
			return true
		default:
			return t.Failed()
		}
	})
	one := r.bodies.heldBytes() // the first has all it will have: its pass runs
	const room = 4
	most := room*one + 10*room*int64(len(request)) // with the bodies of all, which are there for a moment
	if one < 8*2*20*100 || one < 20*room*int64(len(request)) {
		t.Fatalf("%d bytes are reserved for 2 texts of 8 tokens with 20 rivals", one)
	}
	r.bodies.mu.Lock()
	r.bodies.most = most
	r.bodies.mu.Unlock()
	for range 10*room - 1 {
		send()
	}
	until(t, "the refusals", func() bool { return refused.Load() == 9*room })
	if passes.Load() != 0 {
		t.Error("a refusal waited for a pass")
	}
	if held := r.bodies.heldBytes(); held > most {
		t.Errorf("%d bytes are held of %d", held, most)
	}
	free()
	calls.Wait()
	if answers.Load() != room || r.bodies.heldBytes() != 0 {
		t.Errorf("%d were answered, %d bytes are held", answers.Load(), r.bodies.heldBytes())
	}
}

// TestGrammarsAreOfTheBodies: the first request with a schema reserves the vocabulary of masks, which stays until the model is unloaded; where
// there is no room the request is refused, and the model goes on.
func TestGrammarsAreOfTheBodies(t *testing.T) {
	const plain = `{"model":"chat","messages":[{"role":"user","content":"Hello!"}],"temperature":0,"max_tokens":8}`
	bounded := strings.Replace(plain, `"temperature"`, `"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"enum":["yes","no"]}}},"temperature"`, 1)
	const path = "/v1/chat/completions"
	r := open(t, directory(t, map[string]string{"chat": chat}), Options{MaxBody: 32 << 10, MaxBodies: 64 << 10})
	if status, _, body := ask(r.Handler(), "POST", path, bounded, "Content-Type", "application/json"); status != 422 || !strings.Contains(body, "a schema takes") {
		t.Errorf("%d %s", status, body)
	}
	if status, _, body := ask(r.Handler(), "POST", path, plain, "Content-Type", "application/json"); status != 200 {
		t.Errorf("%d %s", status, body)
	}
	if held := r.bodies.heldBytes(); held != 0 {
		t.Errorf("%d bytes are held", held)
	}

	r = open(t, directory(t, map[string]string{"chat": chat}), Options{})
	h := r.Handler()
	for range 2 {
		if status, _, body := ask(h, "POST", path, bounded, "Content-Type", "application/json"); status != 200 {
			t.Fatalf("%d %s", status, body)
		}
	}
	held := r.bodies.heldBytes()
	if held < 64<<10 {
		t.Errorf("%d bytes are held of masks", held)
	}
	if status, _, body := ask(h, "POST", path, plain, "Content-Type", "application/json"); status != 200 || r.bodies.heldBytes() != held {
		t.Errorf("%d %s: %d bytes are held, %d before", status, body, r.bodies.heldBytes(), held)
	}
	if status, _, body := ask(r.Admin(), "POST", "/v2/repository/models/chat/unload", "{}", "Content-Type", "application/json"); status != 200 {
		t.Fatalf("%d %s", status, body)
	}
	until(t, "the model to be closed", func() bool { return r.bodies.heldBytes() == 0 })
}
