package profilehttp_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/pager"
	"github.com/optimem/optimem/plan"
	"github.com/optimem/optimem/profile"
	"github.com/optimem/optimem/profile/profilehttp"
)

// pass tells of a pass of a plan with one op.
func pass(p *profile.Profile) {
	g := &graph.Graph{Ops: []graph.Op{{Kind: "relu", Path: "fc"}}}
	made := &plan.Plan{
		Lowered: &graph.Lowered{Graph: g, Steps: []graph.Step{{Cost: graph.Cost{FLOPs: 1000}}}},
		Groups:  []plan.Group{{Path: "fc", End: 1}}, Target: plan.CPU,
	}
	at := time.Now()
	p.Observe(pager.Event{Compute: time.Millisecond, Begin: at, Plan: made})
	p.Observe(pager.Event{Kind: pager.PassDone, Took: 2 * time.Millisecond, Begin: at, Instances: 1, Plan: made})
}

func get(p *profile.Profile, method, query string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	profilehttp.Handler(p).ServeHTTP(w, httptest.NewRequest(method, "/debug/optimem/profile"+query, nil))
	return w
}

// TestFormats: a report is a page, a text or JSON, with the columns and levels that are asked for.
func TestFormats(t *testing.T) {
	p := profile.New(profile.Options{})
	pass(p)
	for query, want := range map[string]string{
		"": "text/html; charset=utf-8", "?format=html&depth=1": "text/html; charset=utf-8", "?format=text": "text/plain; charset=utf-8",
		"?format=json": "application/json",
	} {
		w := get(p, http.MethodGet, query)
		if w.Code != http.StatusOK || w.Header().Get("Content-Type") != want || !strings.Contains(w.Body.String(), "fc") ||
			w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %d %v\n%s", query, w.Code, w.Header(), w.Body)
		}
	}
	text := get(p, http.MethodGet, "?format=text&columns=time,bound&sort=stall&apart=1").Body.String()
	if !strings.Contains(text, "bound") || strings.Contains(text, "peak") {
		t.Errorf("%s", text)
	}
	var r profile.Report
	if err := json.Unmarshal(get(p, http.MethodGet, "?format=json").Body.Bytes(), &r); err != nil || r.Passes != 1 {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestRefused: what is no request for a report gets an answer that says so.
func TestRefused(t *testing.T) {
	p := profile.New(profile.Options{})
	for query, want := range map[string]string{
		"?format=xml": "format is", "?columns=size": "no column", "?sort=size": "no column", "?depth=-1": "depth is no number",
		"?passes=many": "passes is no number", "?passes=99999999": "passes is no number from 0 to 10000",
	} {
		if w := get(p, http.MethodGet, query); w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %d %s", query, w.Code, w.Body)
		}
	}
	if w := get(p, http.MethodPost, ""); w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "GET, HEAD" {
		t.Errorf("POST: %d %v", w.Code, w.Header())
	}
}

// TestPasses: who asks for passes waits for them and gets those alone; who leaves does not keep anybody.
func TestPasses(t *testing.T) {
	p := profile.New(profile.Options{})
	pass(p)
	done := make(chan *httptest.ResponseRecorder)
	go func() { done <- get(p, http.MethodGet, "?passes=2&format=json") }()
	for {
		select {
		case w := <-done:
			var r profile.Report
			if err := json.Unmarshal(w.Body.Bytes(), &r); err != nil || r.Passes != 2 {
				t.Errorf("%+v, %v", r, err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			gone := httptest.NewRecorder()
			profilehttp.Handler(p).ServeHTTP(gone, httptest.NewRequestWithContext(ctx, http.MethodGet, "/?passes=1", nil))
			if gone.Body.Len() > 0 {
				t.Errorf("%s", gone.Body)
			}
			return
		default:
			pass(p)
		}
	}
}
