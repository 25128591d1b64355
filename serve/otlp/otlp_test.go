package otlp

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// A collector keeps the bodies that it was sent.
type collector struct {
	mu     sync.Mutex
	bodies [][]byte
	header http.Header
	path   string
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bodies, c.header, c.path = append(c.bodies, body), r.Header, r.URL.Path
}

// TestMessage: a collector gets what the protocol's mapping to JSON says: identities in hexadecimal, times and integers
// as text.
func TestMessage(t *testing.T) {
	c := &collector{}
	s := httptest.NewServer(c)
	defer s.Close()
	e, err := New(s.URL, Options{Version: "1.2", Header: http.Header{"Authorization": {"Bearer x"}}, Every: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	at := time.Unix(1700000000, 5)
	id := Context{Trace: [16]byte{1, 15: 2}, Span: [8]byte{3, 7: 4}}
	e.Add(Span{Context: id, Parent: [8]byte{7: 9}, Name: "pass", Kind: Server, Begin: at, End: at.Add(2), Error: "lost",
		Attributes: []Attribute{{"a", "x\xff"}, {"b", true}, {"c", int64(1) << 60}, {"d", 1.5}, {"e", 7}, {"f", math.NaN()}, {"g", []int{1}}},
		Links:      []Context{id}, Events: []Event{{"group", at, []Attribute{{"path", "layer1"}}}}})
	e.Add(Span{Context: id, Begin: at, End: at})
	if err := e.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	const want = `{"resourceSpans":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"optimem"}},` +
		`{"key":"service.version","value":{"stringValue":"1.2"}}]},"scopeSpans":[{"scope":{"name":"github.com/optimem/optimem/serve","version":"1.2"},` +
		`"spans":[{"traceId":"01000000000000000000000000000002","spanId":"0300000000000004","parentSpanId":"0000000000000009","flags":1,"name":"pass","kind":2,` +
		`"startTimeUnixNano":"1700000000000000005","endTimeUnixNano":"1700000000000000007","attributes":[{"key":"a","value":{"stringValue":"x` + "\ufffd" + `"}},` +
		`{"key":"b","value":{"boolValue":true}},{"key":"c","value":{"intValue":"1152921504606846976"}},{"key":"d","value":{"doubleValue":1.5}},` +
		`{"key":"e","value":{"intValue":"7"}}],"events":[{"timeUnixNano":"1700000000000000005","name":"group","attributes":[{"key":"path","value":{"stringValue":"layer1"}}]}],` +
		`"links":[{"traceId":"01000000000000000000000000000002","spanId":"0300000000000004"}],"status":{"message":"lost","code":2}},` +
		`{"traceId":"01000000000000000000000000000002","spanId":"0300000000000004","flags":1,"name":"","kind":1,` +
		`"startTimeUnixNano":"1700000000000000005","endTimeUnixNano":"1700000000000000005"}]}]}]}`
	if len(c.bodies) != 1 || string(c.bodies[0]) != want {
		t.Errorf("%q", c.bodies)
	}
	if c.path != "/v1/traces" || c.header.Get("Authorization") != "Bearer x" || c.header.Get("Content-Type") != "application/json" {
		t.Errorf("%s %v", c.path, c.header)
	}
	if e.Sent() != 2 || e.Dropped() != 0 {
		t.Errorf("%d sent, %d dropped", e.Sent(), e.Dropped())
	}
	e.Add(Span{})
	if e.Dropped() != 1 {
		t.Error("a span was taken after the end")
	}
}

// TestBounded: a collector that does not answer holds up nobody and holds no more than the queue: the rest is dropped,
// and counted. The end does not wait for it longer than it is let.
func TestBounded(t *testing.T) {
	asked, free := make(chan string, 10), make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked <- r.URL.Path
		<-free
	}))
	defer s.Close()
	defer close(free)
	e, err := New(s.URL+"/else", Options{Queue: 10, Every: time.Nanosecond, Client: &http.Client{}})
	if err != nil {
		t.Fatal(err)
	}
	e.Add(Span{})
	if path := <-asked; path != "/else" { // it waits for the answer now
		t.Errorf("it was sent to %s", path)
	}
	for range 50 {
		e.Add(Span{})
	}
	if e.Dropped() != 40 {
		t.Errorf("%d of 50 spans were dropped from a queue of 10", e.Dropped())
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := e.Close(ctx); err == nil {
		t.Error("it was not sent, and nobody says so")
	}
	if e.Sent() != 0 || e.Dropped() != 51 {
		t.Errorf("%d sent, %d dropped", e.Sent(), e.Dropped())
	}
}

// TestLost: what a collector refuses is counted and logged once, until a batch arrives again.
func TestLost(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	defer s.Close()
	var log bytes.Buffer
	e, err := New(s.URL, Options{Every: time.Hour, Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	for range 2*batchSpans + 1 {
		e.Add(Span{})
	}
	if err := e.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if e.Dropped() != 2*batchSpans+1 || strings.Count(log.String(), "spans were lost") != 1 || !strings.Contains(log.String(), "404") {
		t.Errorf("%d dropped: %s", e.Dropped(), &log)
	}
	for _, bad := range []string{"", "127.0.0.1:4318", "ftp://x", "http://", "http://x:y"} {
		if _, err := New(bad, Options{}); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

// TestTraceparent: W3C's header is taken up as it is written, and what is none is none.
func TestTraceparent(t *testing.T) {
	const text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	c, ok := ParseTraceparent(text)
	if !ok || c.Unwanted || c.Traceparent() != text {
		t.Errorf("%v %v %s", c, ok, c.Traceparent())
	}
	if child := c.Child(); child.Trace != c.Trace || child.Span == c.Span || child.IsZero() {
		t.Errorf("%v", child)
	}
	if c, ok := ParseTraceparent("cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-02-more"); !ok || !c.Unwanted || !strings.HasSuffix(c.Traceparent(), "-00") {
		t.Errorf("a later version: %v %v", c, ok)
	}
	for _, bad := range []string{
		"", "00", strings.ToUpper(text), text + "-x", "ff" + text[2:], "00-" + strings.Repeat("0", 32) + "-00f067aa0ba902b7-01",
		"00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01", strings.Replace(text, "4b", "4g", 1), strings.Replace(text, "-01", "-0x", 1),
		strings.Replace(text, "-00f", "-0xf", 1), "0x" + text[2:],
	} {
		if c, ok := ParseTraceparent(bad); ok || !c.IsZero() {
			t.Errorf("%q was taken: %v", bad, c)
		}
	}
	a, b := NewContext(), NewContext()
	if a.IsZero() || a.Trace == b.Trace || a.Span == b.Span {
		t.Errorf("%v %v", a, b)
	}
	if !json.Valid([]byte(`"` + a.Traceparent() + `"`)) {
		t.Error(a.Traceparent())
	}
}
