package serve

import (
	_ "embed"
	"net/http"
	"time"
)

//go:embed ui.html
var page []byte

// Admin answers whoever runs the server: all that [Registry.Handler] answers, opening and closing of models, /metrics in
// Prometheus's text format, and /ui, a page that shows models, the budget and who waits.
func (r *Registry) Admin() http.Handler {
	mux := r.routes(true)
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, req *http.Request) { _ = r.metrics(w, req) })
	mux.HandleFunc("GET /ui", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Referrer-Policy", "no-referrer")
		w.Header().Set("X-Frame-Options", "DENY")
		_, _ = w.Write(page)
	})
	mux.HandleFunc("GET /ui/state", func(w http.ResponseWriter, _ *http.Request) { _ = writeJSON(w, 200, r.uiState()) })
	return r.around(mux)
}

// uiModel is a line of the page's table.
type uiModel struct {
	Name, Version string
	Kind          Kind
	State         State
	Reason        string
	Held, Weights int64
	All, Budget   int64
	Here          int64
	Requests      int64
	Failed        int64
	Passes        int64
	Moved         int64
	PassSeconds   float64
	// Picture is the input that takes pictures, "" where none does.
	Picture string
}

// uiState is what the page shows.
type uiState struct {
	Version              string
	Seconds              float64
	Ready, Draining      bool
	Budget, Held         int64
	PoolBudget, PoolHeld int64
	Bodies, MaxBodies    int64
	Models               []uiModel
}

func (r *Registry) uiState() uiState {
	s := uiState{
		Version: r.opts.Version, Seconds: time.Since(r.began).Seconds(), Ready: r.isReady(), Draining: r.draining.Load(),
		Budget: r.opts.Memory, Bodies: r.bodies.heldBytes(), MaxBodies: r.opts.MaxBodies, Models: []uiModel{},
	}
	if pool := r.Pool(); pool != nil {
		m := pool.Metrics()
		s.PoolBudget, s.PoolHeld = m.BudgetBytes, m.HeldBytes
	}
	s.Held = s.PoolHeld
	for _, v := range r.all() {
		state, reason := v.state()
		m := uiModel{Name: v.model, Version: v.number, Kind: v.what().kind, State: state, Reason: reason, Here: v.stats.waiting()}
		v.stats.mu.Lock()
		m.Requests, m.Failed = v.stats.success.Count, v.stats.fail.Count
		v.stats.mu.Unlock()
		if p := v.what().settings.Preprocess; p != nil {
			m.Picture = p.Input
		}
		if i := v.current(); i != nil {
			f := i.facts()
			m.Held, m.Weights, m.All, m.Budget = f.heldBytes, f.weightBytes, f.allBytes, f.budgetBytes
			m.Passes, m.Moved, m.PassSeconds = f.passes, f.movedBytes, f.passSeconds
			if m.Kind != Tensors {
				s.Held += f.heldBytes
			}
		}
		s.Models = append(s.Models, m)
	}
	return s
}
