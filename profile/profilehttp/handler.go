// Package profilehttp serves a profile over HTTP, to browsers and programs. It knows no models and no sessions.
//
//	mux.Handle("/debug/optimem/profile", profilehttp.Handler(p))
//
// It is a separate package so that a program without a server does not link one. The profile shows how a model is
// built: restrict access to the handler accordingly.
package profilehttp

import (
	"bytes"
	"net/http"
	"strconv"
	"strings"

	"github.com/optimem/optimem/profile"
)

// maxPasses bounds how many passes a request may wait for.
const maxPasses = 10_000

// Handler answers with a report: format=html, text or json; columns=time,stall,… and sort= one of them; depth=N; apart=1 for numbered
// modules one by one; passes=N waits for the next passes and reports those, else it is all passes so far.
func Handler(p *profile.Profile) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "only GET", http.StatusMethodNotAllowed)
			return
		}
		v, passes, msg := asked(r)
		if msg != "" {
			http.Error(w, msg, http.StatusBadRequest)
			return
		}
		report := p.Report()
		if passes > 0 {
			var err error
			if report, err = p.Next(r.Context(), passes); err != nil {
				return // who asked is gone
			}
		}
		var b bytes.Buffer
		kind := "text/html; charset=utf-8"
		var err error
		switch r.FormValue("format") {
		case "json":
			kind, err = "application/json", report.WriteJSON(&b)
		case "text":
			kind = "text/plain; charset=utf-8"
			b.WriteString(report.Text(v))
		default:
			err = report.WriteHTML(&b, "optimem: where time goes", v)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", kind)
		w.Header().Set("Cache-Control", "no-store")
		_, _ = w.Write(b.Bytes())
	})
}

// asked reads what a request wants to see; msg says what is wrong with it.
func asked(r *http.Request) (v profile.View, passes int, msg string) {
	number := func(name string, most int) (n int) {
		text := r.FormValue(name)
		if text == "" || msg != "" {
			return 0
		}
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 || n > most {
			msg = name + " is no number from 0 to " + strconv.Itoa(most)
		}
		return n
	}
	passes = number("passes", maxPasses)
	v.Depth = number("depth", 1000)
	v.Apart = r.FormValue("apart") == "1"
	v.Sort = profile.Column(r.FormValue("sort"))
	if text := r.FormValue("columns"); text != "" {
		for name := range strings.SplitSeq(text, ",") {
			v.Columns = append(v.Columns, profile.Column(name))
		}
	}
	if f := r.FormValue("format"); f != "" && f != "html" && f != "text" && f != "json" {
		msg = "format is html, text or json"
	}
	if err := v.Check(); err != nil && msg == "" {
		msg = err.Error()
	}
	return v, passes, msg
}
