package serve

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http/httptest"
	goruntime "runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/optimem/optimem/internal/hostmem"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/storage"
)

var soak = flag.Duration("soak", 0, "how long TestSoak lasts; 0 is a few hundred requests")

// A flaky source fails every so many reads, once it is to.
type flaky struct {
	storage.Source
	fails *atomic.Bool
	reads *atomic.Int64
}

func (f flaky) ReadAt(ctx context.Context, p []byte, off int64) error {
	if f.fails.Load() && f.reads.Add(1)%13 == 0 {
		return errors.New("the disk is gone for a moment")
	}
	return f.Source.ReadAt(ctx, p, off)
}

// flakyDigits is the example's model, whose reads fail now and then, once they are to.
func flakyDigits(t *testing.T) (*models.Model, *atomic.Bool) {
	t.Helper()
	ckpt, err := loader.Open(digits)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ckpt.Close() })
	fails, reads := new(atomic.Bool), new(atomic.Int64)
	weights := slices.Clone(ckpt.Weights)
	for i := range weights {
		weights[i].Extent.Source = flaky{weights[i].Extent.Source, fails, reads}
	}
	made, err := loader.NewCheckpoint("flaky", weights, ckpt.Program)
	if err != nil {
		t.Fatal(err)
	}
	model, err := models.Build(made, models.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return model, fails
}

// hostBytes is what is allocated outside the heap.
func hostBytes() (n int64) {
	for _, p := range []hostmem.Purpose{hostmem.Weights, hostmem.Activations, hostmem.Workspace, hostmem.Staging, hostmem.Caches} {
		n += hostmem.InUse(p)
	}
	return n
}

// TestSoak: mixed requests to tensors and texts, among which reads fail, memory is refused and given back, models are
// swapped and clients go away. Every answer is right or says what was wrong, and when all is over nothing is left: no
// request, byte or goroutine.
func TestSoak(t *testing.T) {
	model, fails := flakyDigits(t)
	goroutines, bytes := goruntime.NumGoroutine(), hostBytes()
	r, err := Open(t.Context(), directory(t, map[string]string{"digits.pt2": digits, "chat": chat}), Options{Memory: 64 << 20, MaxBodies: 1 << 20, MaxBody: 1 << 18})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	if err := r.Add(t.Context(), "flaky", model); err != nil {
		t.Fatal(err)
	}
	fails.Store(true)
	h := r.Handler()
	tensors := jsonRequest(pictures(t, 2))
	text := `{"inputs":[{"name":"text_input","shape":[1],"datatype":"BYTES","data":["Hello!"]}],"parameters":{"max_tokens":8,"temperature":0,"priority":2}}`
	chats := `{"model":"chat","messages":[{"role":"user","content":"Hello!"}],"temperature":0,"max_tokens":8,"logprobs":true,"top_logprobs":20,"n":2}`
	kinds := []struct{ path, body string }{
		{"/v2/models/digits/infer", tensors}, {"/v2/models/flaky/infer", tensors}, {"/v2/models/chat/infer", text}, {"/v1/chat/completions", chats},
	}
	want := make(map[int]string)
	send := func(ctx context.Context, kind int) (int, string) {
		req := httptest.NewRequest("POST", kinds[kind].path, strings.NewReader(kinds[kind].body)).WithContext(ctx)
		req.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, req)
		var a struct{ Outputs, Choices json.RawMessage }
		if err := json.Unmarshal(w.Body.Bytes(), &a); w.Code == 200 && err != nil && ctx.Err() == nil {
			t.Error(err)
		}
		return w.Code, string(a.Outputs) + string(a.Choices)
	}
	for kind := range kinds {
		for {
			status, answer := send(t.Context(), kind)
			if status == 200 {
				want[kind] = answer
				break
			}
			if kind != 1 || status != 500 {
				t.Fatalf("%s: %d", kinds[kind].path, status)
			}
		}
	}
	var left atomic.Int64
	left.Store(400)
	end := time.Now().Add(*soak)
	goOn := func() bool {
		if *soak > 0 {
			return time.Now().Before(end)
		}
		return left.Add(-1) >= 0
	}
	var mu sync.Mutex
	counts := make(map[string]int)
	var clients sync.WaitGroup
	for c := range 6 {
		clients.Go(func() {
			draw := rand.New(rand.NewPCG(1, uint64(c)))
			for goOn() {
				kind := draw.IntN(len(kinds))
				ctx, cancel := context.WithCancel(t.Context())
				if draw.IntN(4) == 0 { // who does not wait
					time.AfterFunc(time.Duration(draw.IntN(3000))*time.Microsecond, cancel)
				}
				status, answer := send(ctx, kind)
				gone := ctx.Err() != nil
				cancel()
				switch {
				case status == 200 && answer != want[kind] && !gone:
					t.Errorf("%s: another answer: %s", kinds[kind].path, answer)
				case status == 200, status == 429, gone, status == 500 && kind == 1:
				case status == 503: // the model is being swapped
				default:
					t.Errorf("%s: %d", kinds[kind].path, status)
				}
				mu.Lock()
				counts[fmt.Sprint(kinds[kind].path, " ", status)]++
				mu.Unlock()
			}
		})
	}
	stop := make(chan struct{})
	var operator sync.WaitGroup
	operator.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
			}
			if i%5 == 4 {
				if err := r.Load(t.Context(), "digits"); err != nil {
					t.Error(err)
				}
				continue
			}
			if err := r.GiveBack(t.Context()); err != nil {
				t.Error(err)
			}
			r.Resume()
		}
	})
	clients.Wait()
	close(stop)
	operator.Wait()
	for _, key := range slices.Sorted(maps.Keys(counts)) {
		t.Log(key, counts[key])
	}
	until(t, "no request is here", func() bool {
		for _, v := range r.all() {
			if v.stats.waiting() != 0 {
				return false
			}
		}
		return r.bodies.heldBytes() == 0
	})
	for kind := range kinds {
		for status, answer := 500, ""; status != 200; {
			if status, answer = send(t.Context(), kind); status == 200 && answer != want[kind] || status != 200 && kind != 1 {
				t.Errorf("%s afterwards: %d %s", kinds[kind].path, status, answer)
				break
			}
		}
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	until(t, "all goroutines end", func() bool { return goruntime.NumGoroutine() <= goroutines })
	if n := hostBytes(); n != bytes {
		t.Errorf("%d bytes are left", n-bytes)
	}
}
