// Package otlp sends spans to a collector of OpenTelemetry: OTLP over HTTP, in JSON. It holds a bounded number of spans
// and drops what is beyond that, so that a collector that is slow, or not there, costs no request anything.
//
// It knows spans, W3C's traceparent and the protocol. It does not know what is traced, and has neither metrics nor
// logs.
//
//	e, err := otlp.New("http://127.0.0.1:4318", otlp.Options{Service: "optimem"}) // defer e.Close(ctx)
//	e.Add(otlp.Span{Context: otlp.NewContext(), Name: "pass", Begin: begin, End: time.Now()})
package otlp

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Options say how spans are sent. The zero value is right.
type Options struct {
	// Service and Version are what the collector is told of who sends; "" is "optimem", and nothing.
	Service, Version string
	// Header is sent with each batch, as for who asks for a token.
	Header http.Header
	// Queue is how many spans wait to be sent, 0 is 4096; a batch has 512 at most.
	Queue int
	// Every is how long a span waits for others; 0 is a second.
	Every time.Duration
	// Client sends; nil is one that waits for ten seconds and follows no redirect.
	Client *http.Client
	// Log is told when batches are lost, once until one arrives again; nil drops it.
	Log *slog.Logger
}

const (
	defaultQueue = 4096
	batchSpans   = 512
	sendTimeout  = 10 * time.Second
)

// An Exporter sends spans. Any number of goroutines call any methods.
type Exporter struct {
	url  string
	opts Options

	mu     sync.Mutex
	closed bool
	queue  chan Span
	done   chan struct{}
	// ctx is that of sending.
	ctx    context.Context
	cancel context.CancelFunc

	sent, dropped atomic.Int64
	lost          bool // of the goroutine that sends
}

// New returns an exporter to a collector at a URL: http://HOST:PORT, to which /v1/traces is added where it has no path.
func New(endpoint string, opts Options) (*Exporter, error) {
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("otlp: %q is no URL of a collector, such as http://127.0.0.1:4318", endpoint)
	}
	if strings.Trim(u.Path, "/") == "" {
		u.Path = "/v1/traces"
	}
	opts.Service, opts.Queue, opts.Every = cmp.Or(opts.Service, "optimem"), cmp.Or(opts.Queue, defaultQueue), cmp.Or(opts.Every, time.Second)
	if opts.Client == nil {
		opts.Client = &http.Client{Timeout: sendTimeout, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	e := &Exporter{url: u.String(), opts: opts, queue: make(chan Span, opts.Queue), done: make(chan struct{})}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	go e.run()
	return e, nil
}

// Add has a span sent, or dropped where too many wait. It does not wait itself.
func (e *Exporter) Add(s Span) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		e.dropped.Add(1)
		return
	}
	select {
	case e.queue <- s:
	default:
		e.dropped.Add(1)
	}
}

// Sent and Dropped count the spans that arrived, and those that did not.
func (e *Exporter) Sent() int64 { return e.sent.Load() }

// Dropped counts the spans that were lost.
func (e *Exporter) Dropped() int64 { return e.dropped.Load() }

// Close sends what waits, for as long as ctx lets it.
func (e *Exporter) Close(ctx context.Context) error {
	e.mu.Lock()
	if !e.closed {
		e.closed = true
		close(e.queue)
	}
	e.mu.Unlock()
	stop := context.AfterFunc(ctx, e.cancel)
	defer stop()
	<-e.done
	e.cancel()
	return ctx.Err()
}

// run sends until the queue is closed.
func (e *Exporter) run() {
	defer close(e.done)
	tick := time.NewTicker(e.opts.Every)
	defer tick.Stop()
	var batch []Span
	flush := func() {
		if len(batch) > 0 {
			e.send(batch)
			batch = batch[:0]
		}
	}
	for {
		select {
		case s, more := <-e.queue:
			if !more {
				flush()
				return
			}
			if batch = append(batch, s); len(batch) == batchSpans {
				flush()
			}
		case <-tick.C:
			flush()
		}
	}
}

// send sends a batch, once: what is lost is counted.
func (e *Exporter) send(batch []Span) {
	err := e.post(batch)
	if err == nil {
		e.sent.Add(int64(len(batch)))
		e.lost = false
		return
	}
	e.dropped.Add(int64(len(batch)))
	if !e.lost {
		e.opts.Log.Warn("spans were lost", "spans", len(batch), "error", err)
	}
	e.lost = true
}

func (e *Exporter) post(batch []Span) error {
	text, err := json.Marshal(e.message(batch))
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(e.ctx, http.MethodPost, e.url, bytes.NewReader(text))
	if err != nil {
		return err
	}
	for name, values := range e.opts.Header {
		req.Header[name] = values
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := e.opts.Client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // so that the connection is used again
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("the collector answers %s", resp.Status)
	}
	return nil
}
