package serve

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"connectrpc.com/connect"

	"github.com/optimem/optimem/serve/internal/inference"
	"github.com/optimem/optimem/serve/oip"
)

// A slow runner stands for a model whose pass takes until it is told to end.
type slow struct {
	free  chan struct{}
	ran   atomic.Int64
	calls atomic.Int64
	// closed says that it was closed while a call ran, or after.
	closed atomic.Bool
}

func (s *slow) ports() (inputs, outputs []portJSON) { return nil, nil }

func (s *slow) infer(ctx context.Context, c *call) error {
	s.calls.Add(1)
	select {
	case <-s.free:
	case <-ctx.Done():
		return ctx.Err()
	}
	s.ran.Add(1)
	c.response = &oip.Response{Model: c.name, Version: c.version}
	return nil
}

func (s *slow) facts() facts                   { return facts{passSeconds: 3, join: 2} }
func (s *slow) giveBack(context.Context) error { return nil }
func (s *slow) resume()                        {}
func (s *slow) close() error                   { s.closed.Store(true); return nil }

// serveSlow serves a slow model under the name slow.
func serveSlow(t *testing.T, opts Options) (*Registry, *slow) {
	t.Helper()
	opts.Memory = 1 << 20
	r, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	s := &slow{free: make(chan struct{})}
	v := newVersion(r, found{name: "slow", version: "1", kind: Tensors})
	now := make(chan struct{})
	close(now)
	v.inst = &instance{runner: s, turn: now, done: make(chan struct{})}
	r.models["slow"] = &served{name: "slow", versions: []*version{v}}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r, s
}

const (
	slowPath = "/v2/models/slow/infer"
	empty    = `{"inputs":[]}`
)

// until waits until something is so.
func until(t *testing.T, what string, so func() bool) {
	t.Helper()
	for range 12000 {
		if so() {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("never: %s", what)
}

// TestOverload: ten times as many requests as may wait are there. Those beyond are refused while not one pass is over, with when to
// come back as the plan has it, and none of the others is lost.
func TestOverload(t *testing.T) {
	const most = 8
	r, s := serveSlow(t, Options{MaxQueue: most})
	h := r.Handler()
	var codes [600]atomic.Int64
	var wait sync.WaitGroup
	for range 10 * most {
		wait.Go(func() {
			status, header, body := ask(h, "POST", slowPath, empty)
			codes[status].Add(1)
			if status == 429 {
				if after, err := strconv.Atoi(header.Get("Retry-After")); err != nil || after != 15 { // 9 requests, 2 to a pass of 3 seconds
					t.Errorf("Retry-After %q", header.Get("Retry-After"))
				}
				if !strings.Contains(body, "too many") {
					t.Error(body)
				}
			}
		})
	}
	until(t, "the refusals", func() bool { return codes[429].Load() == 9*most })
	if s.ran.Load() != 0 {
		t.Error("a refusal waited for a pass")
	}
	close(s.free)
	wait.Wait()
	if codes[200].Load() != most || s.ran.Load() != most {
		t.Errorf("%d answered, %d passes", codes[200].Load(), s.ran.Load())
	}
	if v, _ := r.find("slow", ""); v.stats.waiting() != 0 || v.stats.refused.Load() != 9*most {
		t.Errorf("%d are here, %d were refused", v.stats.waiting(), v.stats.refused.Load())
	}
}

// TestRefusedUnread: where as many wait as may, a request is refused whatever it says, its body is taken so that the
// connection can go on, and no memory for it. A large message of gRPC is not even taken.
func TestRefusedUnread(t *testing.T) {
	r, s := serveSlow(t, Options{MaxQueue: 1, MaxBody: 1 << 20, MaxBodies: 1 << 20})
	at, client := serveHTTP(t, r.Handler())
	first := make(chan int, 1)
	go func() {
		status, _, _ := ask(r.Handler(), "POST", slowPath, empty)
		first <- status
	}()
	until(t, "a pass", func() bool { return s.calls.Load() == 1 })
	rest := r.bodies.most - r.bodies.heldBytes()
	if !r.bodies.take(rest) { // so that memory for a body would be refused
		t.Fatal("no room")
	}
	text := strings.NewReader(strings.Repeat("?", 1<<19))
	w := httptest.NewRecorder()
	r.Handler().ServeHTTP(w, httptest.NewRequest("POST", slowPath, text))
	if w.Code != 429 || text.Len() != 0 || !strings.Contains(w.Body.String(), "too many requests") || w.Header().Get("Retry-After") != "3" {
		t.Errorf("%d %s, %d bytes are left", w.Code, w.Body, text.Len())
	}
	_, err := call1[inference.InferRequest, inference.InferResponse](t, client, at, service+"ModelInfer", &inference.InferRequest{
		ModelName: "slow", Raw: [][]byte{make([]byte, 2*largeMessage)},
	})
	if e, ok := err.(*connect.Error); !ok || e.Code() != connect.CodeResourceExhausted || !strings.Contains(e.Message(), "too many requests") {
		t.Error(err)
	}
	if v, _ := r.find("slow", ""); v.stats.refused.Load() != 2 {
		t.Errorf("%d were refused", v.stats.refused.Load())
	}
	until(t, "how long refusals took, by REST and by gRPC", func() bool {
		_, _, text := ask(r.Admin(), "GET", "/metrics", "")
		return strings.Contains(text, "optimem_refusal_duration_seconds_count 2\n")
	})
	r.bodies.give(rest)
	close(s.free)
	if status := <-first; status != 200 {
		t.Errorf("the request that had begun: %d", status)
	}
	until(t, "no bytes are held", func() bool { return r.bodies.heldBytes() == 0 })
}

// TestDeadlines: a request whose time would be over before its pass is refused at once; one whose time passes in a pass ends
// then; a client that goes leaves.
func TestDeadlines(t *testing.T) {
	r, s := serveSlow(t, Options{})
	h := r.Handler()
	leave, gone := context.WithCancel(t.Context())
	left := make(chan int, 1)
	go func() {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("POST", slowPath, strings.NewReader(empty)).WithContext(leave))
		left <- w.Code
	}()
	until(t, "a pass", func() bool { return s.calls.Load() == 1 })
	status, header, _ := ask(h, "POST", slowPath, `{"inputs":[],"parameters":{"timeout":2900000}}`)
	if status != 429 || header.Get("Retry-After") != "3" || s.calls.Load() != 1 {
		t.Errorf("%d after %q, %d passes", status, header.Get("Retry-After"), s.calls.Load())
	}
	gone()
	if status := <-left; status != statusClientGone {
		t.Errorf("a client that went away: %d", status)
	}
	v, _ := r.find("slow", "")
	until(t, "nobody is here", func() bool { return v.stats.waiting() == 0 })
	if status, _, _ := ask(h, "POST", slowPath, `{"inputs":[],"parameters":{"timeout":1000}}`); status != 504 {
		t.Errorf("a time that passes in the pass: %d", status)
	}
	for _, bad := range []string{`-1`, `1.5`, `"1"`, `true`, `9223372036854775807`} {
		if status, _, _ := ask(h, "POST", slowPath, `{"inputs":[],"parameters":{"timeout":`+bad+`}}`); status != 400 {
			t.Errorf("timeout %s: %d", bad, status)
		}
	}
}

func packed(to func(io.Writer) io.WriteCloser, text []byte) string {
	var b bytes.Buffer
	w := to(&b)
	if _, err := w.Write(text); err != nil {
		panic(err)
	}
	if err := w.Close(); err != nil {
		panic(err)
	}
	return b.String()
}

func zipped(w io.Writer) io.WriteCloser   { return gzip.NewWriter(w) }
func deflated(w io.Writer) io.WriteCloser { return zlib.NewWriter(w) }

// TestBodies: a body is bounded, as it comes and as it is unpacked, and so are those of all requests together. What is refused
// holds nothing afterwards.
func TestBodies(t *testing.T) {
	r, s := serveSlow(t, Options{MaxBody: 1000, MaxBodies: 2500})
	close(s.free)
	h := r.Handler()
	pad := func(n int) string { return empty + strings.Repeat(" ", n-len(empty)) }
	bomb := []byte(pad(1 << 20))
	for _, c := range []struct {
		name, body, encoding string
		want                 int
	}{
		{"as many as may be", pad(1000), "", 200}, {"one more", pad(1001), "", 413}, {"packed", packed(zipped, []byte(pad(1000))), "gzip", 200},
		{"deflated", packed(deflated, []byte(pad(1000))), "deflate", 200}, {"as it is", pad(20), "identity", 200},
		{"one more, packed", packed(zipped, []byte(pad(1001))), "gzip", 413}, {"a bomb", packed(zipped, bomb), "gzip", 413},
		{"a bomb, deflated", packed(deflated, bomb), "deflate", 413}, {"not packed", pad(100), "gzip", 400},
		{"cut short", packed(zipped, []byte(pad(1000)))[:20], "gzip", 400}, {"another packing", pad(100), "br", 415}, {"nothing", "", "", 400},
	} {
		var header []string
		if c.encoding != "" {
			header = []string{"Content-Encoding", c.encoding}
		}
		if len(c.body) > 1000 && c.encoding != "" {
			c.want = 413
		}
		if status, _, body := ask(h, "POST", slowPath, c.body, header...); status != c.want {
			t.Errorf("%s: %d %s, not %d", c.name, status, body, c.want)
		}
		if n := r.bodies.heldBytes(); n != 0 {
			t.Fatalf("%s: %d bytes are held afterwards", c.name, n)
		}
	}
	if !r.bodies.take(2000) {
		t.Fatal("no room")
	}
	if status, header, _ := ask(h, "POST", slowPath, pad(600)); status != 429 || header.Get("Retry-After") == "" {
		t.Errorf("no room for a body: %d", status)
	}
	unknown := httptest.NewRequest("POST", slowPath, io.MultiReader(strings.NewReader(pad(900)))) // in chunks, of nobody knows how many
	unknown.ContentLength = -1
	w := httptest.NewRecorder()
	if h.ServeHTTP(w, unknown); w.Code != 429 {
		t.Errorf("no room for a body of unknown length: %d", w.Code)
	}
	r.bodies.give(2000)
	if status, _, _ := ask(h, "POST", slowPath, empty, headerLength, "99"); status != 400 {
		t.Errorf("a header beyond the body: %d", status)
	}
	if status, _, _ := ask(h, "POST", slowPath, empty, headerLength, "x"); status != 400 {
		t.Errorf("a header of no number: %d", status)
	}
}

// TestDrain: after the context is done the server is not ready, ends what has begun and answers it, and then ends. What does
// not end in time is cut off.
func TestDrain(t *testing.T) {
	for _, ends := range []bool{true, false} {
		r, s := serveSlow(t, Options{})
		ctx, stop := context.WithCancel(t.Context())
		served := make(chan error, 1)
		drain := time.Minute
		if !ends {
			drain = 50 * time.Millisecond
		}
		server := NewServer(r.Handler())
		own, err := ListenSocket(t.TempDir() + "/s")
		if err != nil {
			t.Fatal(err)
		}
		go func() { served <- r.Serve(ctx, drain, &Site{Listener: own, Server: server}) }()
		client := socketClient(own.Addr().String())
		answered := make(chan string, 1)
		go func() {
			resp, err := client.Post("http://x"+slowPath, "", strings.NewReader(empty))
			if err != nil {
				answered <- "cut off"
				return
			}
			defer resp.Body.Close()
			answered <- fmt.Sprint(resp.StatusCode)
		}()
		until(t, "a pass", func() bool { return s.calls.Load() == 1 })
		stop()
		until(t, "not ready", func() bool { return !r.isReady() })
		if status, header, _ := ask(r.Handler(), "POST", slowPath, empty); status != 503 || header.Get("Retry-After") == "" {
			t.Errorf("a request after the end began: %d", status)
		}
		if status, _, _ := ask(r.Handler(), "GET", "/v2/health/ready", ""); status != 503 {
			t.Errorf("ready after the end began: %d", status)
		}
		want := "cut off"
		if ends {
			want = "200"
			close(s.free)
		}
		if got := <-answered; got != want {
			t.Errorf("a request that had begun: %s, not %s", got, want)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
	}
}

// TestSettle: memory is given back when those who are there are answered, and not before.
func TestSettle(t *testing.T) {
	r, s := serveSlow(t, Options{})
	h := r.Handler()
	answered := make(chan int, 1)
	go func() {
		status, _, _ := ask(h, "POST", slowPath, empty)
		answered <- status
	}()
	until(t, "a pass", func() bool { return s.calls.Load() == 1 })
	soon, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := r.GiveBack(soon); err == nil {
		t.Error("given back under a request")
	}
	back := make(chan error, 1)
	go func() { back <- r.GiveBack(t.Context()) }()
	close(s.free)
	if err := <-back; err != nil || <-answered != 200 {
		t.Error(err)
	}
	r.Resume()
	if status, _, _ := ask(h, "POST", slowPath, empty); status != 200 {
		t.Errorf("afterwards: %d", status)
	}
}

// TestGiveBack: while memory is given back requests wait, and the server is not ready; then they are answered.
func TestGiveBack(t *testing.T) {
	r := open(t, directory(t, map[string]string{"digits.pt2": digits, "chat": chat}), Options{})
	h := r.Handler()
	pixels := pictures(t, 1)
	if status, _, body := ask(h, "POST", "/v2/models/digits/infer", jsonRequest(pixels)); status != 200 {
		t.Fatal(body)
	}
	if err := r.GiveBack(t.Context()); err != nil {
		t.Fatal(err)
	}
	if held := r.Pool().Metrics().HeldBytes; held != 0 {
		t.Errorf("%d bytes are held", held)
	}
	if status, _, _ := ask(h, "GET", "/v2/health/ready", ""); status != 503 {
		t.Errorf("ready without memory: %d", status)
	}
	if status, _, _ := ask(h, "POST", "/v2/models/digits/infer", strings.Replace(jsonRequest(pixels), `{"id"`, `{"parameters":{"timeout":20000},"id"`, 1)); status != 504 && status != 429 {
		t.Errorf("a request of 20 ms: %d", status) // 429 where the pass before took longer than that
	}
	answers := make(chan int, 1)
	go func() {
		status, _, _ := ask(h, "POST", "/v2/models/digits/infer", jsonRequest(pixels))
		answers <- status
	}()
	select {
	case status := <-answers:
		t.Errorf("answered without memory: %d", status)
	default:
	}
	r.Resume()
	if status := <-answers; status != http.StatusOK {
		t.Errorf("after memory was taken again: %d", status)
	}
}

// A timed response notes until when a body may be read.
type timed struct {
	http.ResponseWriter
	until []time.Time
}

func (d *timed) SetReadDeadline(t time.Time) error {
	d.until = append(d.until, t)
	return nil
}

// TestPace: who sends slowly has so much time as the slowest rate gives, and what comes after a body has no end of its own.
func TestPace(t *testing.T) {
	r, s := serveSlow(t, Options{})
	close(s.free)
	w := &timed{ResponseWriter: httptest.NewRecorder()}
	begin := time.Now()
	b, err := r.readBody(w, httptest.NewRequest("POST", "/", iotest.OneByteReader(strings.NewReader(strings.Repeat("x", 2*slowestRate)))), 0)
	if err != nil {
		t.Fatal(err)
	}
	b.free()
	first, last := w.until[0], w.until[len(w.until)-2]
	if more := last.Sub(first); first.Sub(begin) < slack || time.Until(first) > slack || more != 2*time.Second {
		t.Errorf("at first %v, in the end %v more", first.Sub(begin), more)
	}
	if !w.until[len(w.until)-1].IsZero() {
		t.Error("the body's time goes on when it is read")
	}
}

// TestRetire: a model that is closed ends what it has begun first.
func TestRetire(t *testing.T) {
	r, s := serveSlow(t, Options{})
	h := r.Handler()
	answered := make(chan int, 1)
	go func() {
		status, _, _ := ask(h, "POST", slowPath, empty)
		answered <- status
	}()
	until(t, "a pass", func() bool { return s.calls.Load() == 1 })
	if err := r.Unload("slow"); err != nil {
		t.Fatal(err)
	}
	v, _ := r.find("slow", "")
	if state, _ := v.state(); state != Unloading {
		t.Errorf("it is %s", state)
	}
	time.Sleep(30 * time.Millisecond) // in which it would be closed
	if s.closed.Load() {
		t.Error("it was closed under its request")
	}
	close(s.free)
	if status := <-answered; status != 200 {
		t.Errorf("the request that had begun: %d", status)
	}
	until(t, "it is closed", s.closed.Load)
}

// TestDrained: what nobody wants is read into memory that is reserved, by few at a time, and all of it is given back.
func TestDrained(t *testing.T) {
	r, s := serveSlow(t, Options{MaxQueue: 1, MaxBody: 8 << 20, MaxBodies: 8 << 20})
	first := make(chan int, 1)
	go func() {
		status, _, _ := ask(r.Handler(), "POST", slowPath, empty)
		first <- status
	}()
	until(t, "a pass", func() bool { return s.calls.Load() == 1 })
	before := r.bodies.heldBytes()
	var most int
	var held int64
	body := &seen{Reader: io.LimitReader(zeros{}, 4<<20), on: func(n int) { most, held = max(most, n), max(held, r.bodies.heldBytes()) }}
	w := httptest.NewRecorder()
	r.Handler().ServeHTTP(w, httptest.NewRequest("POST", slowPath, body))
	n := keptSize(leastKept)
	if w.Code != 429 || int64(most) != n || held != before+n || r.bodies.heldBytes() != before {
		t.Errorf("%d; reads of %d bytes; %d bytes are held then, and %d after, %d before", w.Code, most, held, r.bodies.heldBytes(), before)
	}
	var lent [][]byte
	for m := r.bodies.lend(); m != nil; m = r.bodies.lend() {
		lent = append(lent, m)
	}
	if len(lent) != mostLent || r.bodies.heldBytes() != before+mostLent*n {
		t.Errorf("memory is lent to %d, %d bytes are held", len(lent), r.bodies.heldBytes())
	}
	most = 0
	body.Reader = io.LimitReader(zeros{}, 4<<20)
	w = httptest.NewRecorder()
	r.Handler().ServeHTTP(w, httptest.NewRequest("POST", slowPath, body))
	if w.Code != 429 || most == 0 || most > 32<<10 {
		t.Errorf("%d; reads of %d bytes", w.Code, most)
	}
	for _, m := range lent {
		r.bodies.takeBack(m)
	}
	close(s.free)
	if status := <-first; status != 200 || r.bodies.lent != 0 {
		t.Errorf("the request that had begun: %d; memory is lent to %d", status, r.bodies.lent)
	}
	until(t, "no bytes are held", func() bool { return r.bodies.heldBytes() == 0 })
}

// seen tells how much is read at once.
type seen struct {
	io.Reader
	on func(int)
}

func (s *seen) Read(to []byte) (int, error) {
	s.on(len(to))
	return s.Reader.Read(to)
}

// zeros has no end.
type zeros struct{}

func (zeros) Read(to []byte) (int, error) { clear(to); return len(to), nil }
