package serve

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"
)

const limitedTokens = "alice 0123456789abcdef requests=2 bytes=200\nbob fedcba9876543210\ncarol 0123456789012345 rate=0.001\n"

// limited serves a slow model to clients with tokens of which each has limits.
func limited(t *testing.T) (http.Handler, *Registry, *slow) {
	t.Helper()
	r, s := serveSlow(t, Options{})
	tokens, err := ReadTokens(strings.NewReader(limitedTokens))
	if err != nil {
		t.Fatal(err)
	}
	return Guard{Tokens: tokens, Limits: ClientLimits{Requests: 3, Rate: 1000}}.Protect(r.Handler()), r, s
}

// TestClientsHaveLimits: who has as many requests under way as the token's line says is refused, in the words of each
// protocol, and others are not; who asks too often is told when to come back; health is told to all.
func TestClientsHaveLimits(t *testing.T) {
	h, r, s := limited(t)
	alice, bob, carol := "Bearer 0123456789abcdef", "Bearer fedcba9876543210", "Bearer 0123456789012345"
	answered := make(chan int, 2)
	for range 2 {
		go func() {
			status, _, _ := ask(h, "POST", slowPath, empty, "Authorization", alice)
			answered <- status
		}()
	}
	until(t, "two requests", func() bool { return s.calls.Load() == 2 })
	for path, want := range map[string]string{slowPath: `{"error":"too many`, "/v1/chat/completions": `"type":"rate_limit_error"`} {
		status, header, body := ask(h, "POST", path, empty, "Authorization", alice)
		if status != 429 || header.Get("Retry-After") == "" || !strings.Contains(body, want) {
			t.Errorf("%s: a third request: %d %v %s", path, status, header, body)
		}
	}
	_, header, _ := ask(h, "POST", service+"ModelInfer", "", "Authorization", alice, "Content-Type", "application/grpc")
	if header.Get("Grpc-Status") != "8" || header.Get("Grpc-Retry-Pushback-Ms") != "1000" {
		t.Errorf("a third request by gRPC: %v", header)
	}
	if status, _, _ := ask(h, "GET", "/v2/health/ready", "", "Authorization", alice); status != 200 {
		t.Errorf("health: %d", status)
	}
	if status, _, body := ask(h, "GET", "/v2", "", "Authorization", bob); status != 200 {
		t.Errorf("another client: %d %s", status, body)
	}
	close(s.free)
	for range 2 {
		if status := <-answered; status != 200 {
			t.Errorf("a request that had begun: %d", status)
		}
	}
	if status, _, _ := ask(h, "POST", slowPath, empty, "Authorization", alice); status != 200 {
		t.Errorf("afterwards: %d", status)
	}
	if status, _, body := ask(h, "POST", slowPath, empty+strings.Repeat(" ", 100), "Authorization", alice); status != 422 || !strings.Contains(body, "this client") {
		t.Errorf("more bytes than the client may have: %d %s", status, body)
	}
	if n := r.bodies.heldBytes(); n != 0 {
		t.Errorf("%d bytes are held afterwards", n)
	}
	for i, want := range []int{200, 429} {
		status, header, _ := ask(h, "GET", "/v2", "", "Authorization", carol)
		after, _ := strconv.Atoi(header.Get("Retry-After"))
		if status != want || want == 429 && (after < 900 || after > 1000) {
			t.Errorf("request %d of one in a thousand seconds: %d, Retry-After %d", i, status, after)
		}
	}
}

// TestClientsBytes: what a client's requests take together is bounded, and given back.
func TestClientsBytes(t *testing.T) {
	r, s := serveSlow(t, Options{})
	c := &client{limits: ClientLimits{Bytes: 400}}
	h := r.Handler()
	send := func(n int) int {
		req := httptest.NewRequest("POST", slowPath, strings.NewReader(empty+strings.Repeat(" ", n-len(empty))))
		w := httptest.NewRecorder()
		h.ServeHTTP(w, req.WithContext(context.WithValue(req.Context(), clientKey{}, c)))
		return w.Code
	}
	answered := make(chan int, 1)
	c.take(110)
	if status := send(60); status != 429 {
		t.Errorf("a request beyond the client's bytes: %d", status)
	}
	c.give(110)
	go func() { answered <- send(60) }()
	until(t, "a pass", func() bool { return s.calls.Load() == 1 })
	close(s.free)
	if status := <-answered; status != 200 {
		t.Errorf("a request within the client's bytes: %d", status)
	}
	if c.bytes != 0 || r.bodies.heldBytes() != 0 {
		t.Errorf("%d bytes of the client, %d of all are held afterwards", c.bytes, r.bodies.heldBytes())
	}
}

// TestRate: requests may begin as often as the rate says, a second's at once, and no more saved up.
func TestRate(t *testing.T) {
	now := time.Unix(0, 0)
	c := (&clients{}).find("x", ClientLimits{Rate: 2}, now)
	try := func(want bool) {
		t.Helper()
		err := c.begin(now)
		if (err == nil) != want {
			t.Errorf("at %v: %v", now, err)
		}
		if err == nil {
			c.end()
		}
	}
	try(true)
	try(true)
	try(false)
	now = now.Add(499 * time.Millisecond)
	try(false)
	now = now.Add(time.Millisecond)
	try(true)
	try(false)
	now = now.Add(time.Hour)
	try(true)
	try(true)
	try(false)
}

// TestClientsAreForgotten: those that have nothing under way and would be let in are forgotten, the longest unheard
// first; others are not, but where there are too many.
func TestClientsAreForgotten(t *testing.T) {
	all, now := &clients{}, time.Unix(0, 0)
	busy := all.find("busy", ClientLimits{Rate: 1}, now)
	if err := busy.begin(now); err != nil {
		t.Fatal(err)
	}
	all.find("idle", ClientLimits{}, now)
	if all.find("busy", ClientLimits{}, now) != busy {
		t.Error("a client was forgotten that has a request")
	}
	all.find("other", ClientLimits{}, now)
	if all.known["idle"] != nil || all.known["busy"] == nil {
		t.Error("the wrong one was forgotten")
	}
	for i := range 2 * maxClients {
		c := all.find(fmt.Sprint(i), ClientLimits{}, now)
		c.here = 1
	}
	if len(all.known) != maxClients || all.order.Len() != maxClients || all.known["busy"] != nil {
		t.Errorf("%d clients are known", len(all.known))
	}
	for remote, want := range map[string]string{
		"192.0.2.1:80": "192.0.2.1", "[2001:db8:1:2:3::4]:80": "2001:db8:1:2::/64", "[::ffff:192.0.2.1]:1": "192.0.2.1", "@": "unknown", "": "unknown",
		"[fe80::1%eth0]:1": "fe80::/64",
	} {
		if got := address(remote); got != want {
			t.Errorf("%s: %s", remote, got)
		}
	}
}

// TestLimitsThatAreNone: what is no limit is refused: less than nothing, no number, and no end.
func TestLimitsThatAreNone(t *testing.T) {
	for _, text := range []string{"requests=-1", "bytes=-1", "rate=-1", "rate=NaN", "rate=Inf", "requests=x", "bytes=", "rate", "other=1"} {
		var l ClientLimits
		if err := l.set(text); err == nil {
			t.Errorf("%s is taken: %+v", text, l)
		}
	}
	var l ClientLimits
	for _, text := range []string{"requests=4", "bytes=64MiB", "rate=2.5"} {
		if err := l.set(text); err != nil {
			t.Error(err)
		}
	}
	if l != (ClientLimits{Requests: 4, Bytes: 64 << 20, Rate: 2.5}) {
		t.Errorf("%+v", l)
	}
}

// TestWhoAskedTooOftenIsKnown: a client that has nothing under way, but may not begin yet, is not forgotten, or it
// could begin.
func TestWhoAskedTooOftenIsKnown(t *testing.T) {
	all, now := &clients{}, time.Unix(0, 0)
	x := all.find("x", ClientLimits{Rate: 1}, now)
	if err := x.begin(now); err != nil {
		t.Fatal(err)
	}
	x.end()
	all.find("y", ClientLimits{}, now)
	if all.find("x", ClientLimits{Rate: 1}, now) != x {
		t.Error("it was forgotten")
	}
	all.find("y", ClientLimits{}, now)
	now = now.Add(time.Second)
	if all.find("z", ClientLimits{}, now); all.known["x"] != nil {
		t.Error("it is known though it may begin again")
	}
}
