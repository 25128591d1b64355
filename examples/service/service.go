package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"sync"
	"time"

	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

const (
	// maxBodyBytes bounds a request, maxPictures what is in it.
	maxBodyBytes = 1 << 20
	maxPictures  = 256
	// maxRequests bounds the requests that are read, wait or run at once; more are turned away.
	maxRequests = 64
	// side is the width and height of a picture, classes how many digits there are.
	side, classes = 8, 10
)

// A service answers requests with a session.
type service struct {
	session *optimem.Session
	// slots has a token for each request that is under way.
	slots chan struct{}
	// asked has a token when a request came since the service last looked.
	asked chan struct{}

	mu sync.Mutex
	// answered counts requests by status, took is the time that they needed together.
	answered map[int]int64
	took     time.Duration
}

func newService(session *optimem.Session) *service {
	return &service{
		session: session, slots: make(chan struct{}, maxRequests), asked: make(chan struct{}, 1), answered: make(map[int]int64),
	}
}

// takesPictures says what is wrong if the model does not take one picture, or not within its budget. Nothing is run.
func takesPictures(ctx context.Context, session *optimem.Session) error {
	_, err := session.Plan(ctx, map[string]tensor.Shape{"input": {1, 1, side, side}})
	return err
}

// rest gives the session's memory back each time that nobody has asked for the given time, until ctx is done. The next
// request waits a little longer: weights that stay are read again.
func (s *service) rest(ctx context.Context, idle time.Duration) error {
	timer := time.NewTimer(idle)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.asked:
			timer.Reset(idle)
		case <-timer.C:
			if err := s.session.GiveBack(ctx); err != nil && ctx.Err() == nil {
				return err
			}
		}
	}
}

func (s *service) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /classify", s.classify)
	mux.HandleFunc("GET /metrics", s.metrics)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok\n") })
	return mux
}

// An answer is what the model says of each picture: the digit, and the scores of all ten.
type answer struct {
	Digits []int       `json:"digits"`
	Scores [][]float32 `json:"scores"`
}

// A refusal is an error with the status that tells the client of it.
type refusal struct {
	status int
	err    error
}

func (e *refusal) Error() string { return e.err.Error() }

func refuse(format string, args ...any) error {
	return &refusal{http.StatusBadRequest, fmt.Errorf(format, args...)}
}

// clientGone is the status that is counted for a client that did not wait. Nobody gets it.
const clientGone = 499

func (s *service) classify(w http.ResponseWriter, r *http.Request) {
	begin := time.Now()
	status := http.StatusOK
	defer func() {
		select {
		case s.asked <- struct{}{}:
		default: // it has not looked since the last one
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.answered[status]++
		s.took += time.Since(begin)
	}()
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	default:
		status = http.StatusServiceUnavailable
		w.Header().Set("Retry-After", "1")
		http.Error(w, "too many requests at once", status)
		return
	}
	a, err := s.answer(w, r)
	var text []byte
	if err == nil {
		if text, err = json.Marshal(a); err != nil {
			err = refuse("scores that are no finite numbers: %v", err)
		}
	}
	if err != nil {
		status = statusOf(r, err)
		http.Error(w, err.Error(), status)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(text, '\n')) // an error is that of the connection, and there is nobody to tell
}

func statusOf(r *http.Request, err error) int {
	var refused *refusal
	var large *http.MaxBytesError
	switch {
	case r.Context().Err() != nil:
		return clientGone
	case errors.As(err, &large):
		return http.StatusRequestEntityTooLarge
	case errors.As(err, &refused):
		return refused.status
	}
	return http.StatusInternalServerError
}

// answer reads pictures and runs the model. The client's going ends the run.
func (s *service) answer(w http.ResponseWriter, r *http.Request) (*answer, error) {
	body := http.MaxBytesReader(w, r.Body, maxBodyBytes)
	var pixels []float32
	var err error
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch kind {
	case "application/json":
		pixels, err = readJSON(body)
	case "application/x-npy":
		pixels, err = readNPY(body)
	default:
		err = &refusal{http.StatusUnsupportedMediaType, errors.New("pictures come as application/json or application/x-npy")}
	}
	if err != nil {
		return nil, err
	}
	n := len(pixels) / (side * side)
	if n == 0 || n > maxPictures || n*side*side != len(pixels) {
		return nil, refuse("%d numbers are not 1 to %d pictures of %d × %d", len(pixels), maxPictures, side, side)
	}
	// Single pictures share passes with those of other requests. Several are a batch, which the session cuts as its memory
	// demands.
	run := s.session.Run
	if n > 1 {
		run = s.session.RunBatch
	}
	out, err := run(r.Context(), optimem.Values{"input": tensor.Of(pixels, n, 1, side, side)})
	if err != nil {
		return nil, err
	}
	a := &answer{}
	for _, y := range out { // the model has one output
		scores, err := tensor.Slice[float32](y)
		if err != nil {
			return nil, err
		}
		if len(scores) != n*classes {
			return nil, fmt.Errorf("%d scores for %d pictures: not a model of digits", len(scores), n)
		}
		for i := range n {
			row := scores[i*classes : (i+1)*classes]
			best := 0
			for k, score := range row {
				if score > row[best] {
					best = k
				}
			}
			a.Digits, a.Scores = append(a.Digits, best), append(a.Scores, row)
		}
	}
	return a, nil
}

// readJSON reads {"pictures": [[64 numbers], …]}.
func readJSON(r io.Reader) ([]float32, error) {
	var request struct {
		Pictures [][]float32 `json:"pictures"`
	}
	d := json.NewDecoder(r)
	d.DisallowUnknownFields()
	if err := d.Decode(&request); err != nil {
		if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
			return nil, err
		}
		return nil, refuse("the body is not what is wanted: %v", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, refuse("something follows the pictures")
	}
	var pixels []float32
	for i, p := range request.Pictures {
		if len(p) != side*side {
			return nil, refuse("picture %d has %d numbers, not %d", i, len(p), side*side)
		}
		pixels = append(pixels, p...)
	}
	return pixels, nil
}

// metrics writes what was done in the text format of Prometheus.
func (s *service) metrics(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	write := func(name, kind, help string, value float64) {
		fmt.Fprintf(w, "# HELP %s %s\n# TYPE %s %s\n%s %s\n", name, help, name, kind, name, number(value))
	}
	fmt.Fprint(w, "# HELP service_requests_total Requests answered, by status.\n# TYPE service_requests_total counter\n")
	s.mu.Lock()
	for _, status := range []int{200, 400, 413, 415, clientGone, 500, 503} {
		fmt.Fprintf(w, "service_requests_total{status=\"%d\"} %d\n", status, s.answered[status])
	}
	took := s.took
	s.mu.Unlock()
	write("service_request_seconds_total", "counter", "Time from a request's headers to its answer.", took.Seconds())
	write("service_requests_in_flight", "gauge", "Requests that are read, wait or run.", float64(len(s.slots)))
	m := s.session.Metrics()
	write("optimem_passes_total", "counter", "Passes over the model.", float64(m.Runs))
	write("optimem_calls_total", "counter", "Runs that went through passes.", float64(m.Calls))
	write("optimem_joined_total", "counter", "Runs that went through the pass of another.", float64(m.Joined))
	write("optimem_replans_total", "counter", "Times that memory was refused and planned again.", float64(m.Replans))
	write("optimem_moved_bytes_total", "counter", "Weights brought for passes.", float64(m.MovedBytes))
	write("optimem_loaded_bytes_total", "counter", "Bytes read from the checkpoint.", float64(m.LoadedBytes))
	write("optimem_pass_seconds_total", "counter", "Time that passes took.", m.Passing.Seconds())
	write("optimem_compute_seconds_total", "counter", "Time that ops took.", m.Compute.Seconds())
	write("optimem_stall_seconds_total", "counter", "Time that ops waited for weights.", m.Stall.Seconds())
	write("optimem_peak_bytes", "gauge", "The most memory held at once.", float64(m.PeakBytes))
	fmt.Fprint(w, "# HELP optimem_held_bytes Memory held, by purpose.\n# TYPE optimem_held_bytes gauge\n")
	for _, held := range []struct {
		purpose string
		bytes   int64
	}{
		{"weights", m.WeightBytes}, {"ring", m.RingBytes}, {"activations", m.ActivationBytes}, {"workspace", m.WorkBytes},
	} {
		fmt.Fprintf(w, "optimem_held_bytes{purpose=%q} %d\n", held.purpose, held.bytes)
	}
}

func number(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }
