package main

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestTurns: medians are over the rounds, and a ratio compares what was measured in the same round, so that a disk whose
// rate drifts from one to the next changes none.
func TestTurns(t *testing.T) {
	const rows = `{"name":"raw","round":1,"sequences":1,"tokens_per_second":1,"of_limit":0.9,"disk_bytes_per_second":10,"logits_hash":"a"}
{"name":"packed","round":1,"sequences":1,"tokens_per_second":1.3,"of_limit":0.8,"disk_bytes_per_second":10,"logits_hash":"a"}
{"name":"peer","round":1,"tokens_per_second":0.5}
{"name":"raw","round":2,"sequences":1,"tokens_per_second":4,"of_limit":0.7,"disk_bytes_per_second":40,"logits_hash":"a"}
{"name":"packed","round":2,"sequences":1,"tokens_per_second":6,"of_limit":0.8,"disk_bytes_per_second":20,"logits_hash":"a"}
{"name":"raw","round":3,"sequences":1,"tokens_per_second":2,"of_limit":0.8,"disk_bytes_per_second":20,"logits_hash":"a"}
{"name":"packed","round":3,"sequences":1,"tokens_per_second":2.8,"of_limit":0.8,"disk_bytes_per_second":30,"logits_hash":"a"}
`
	var out strings.Builder
	if err := sumTurns(strings.NewReader(rows), &out); err != nil {
		t.Fatal(err)
	}
	var s summary
	if err := json.Unmarshal([]byte(out.String()), &s); err != nil {
		t.Fatal(err)
	}
	is := func(x, want float64) bool { return x > want-1e-9 && x < want+1e-9 }
	if s.Name != "in turns" || s.Rounds != 3 || !is(s.PerSecond["raw"], 2) || !is(s.PerSecond["packed"], 2.8) || !is(s.PerSecond["peer"], 0.5) {
		t.Errorf("%+v", s)
	}
	if !is(s.OfLimit["raw"], 0.8) || !is(s.DiskBytes["packed"], 20) || len(s.OfLimit) != 2 {
		t.Errorf("of the limit %v, rates of the disk %v", s.OfLimit, s.DiskBytes)
	}
	if !is(s.Ratios["packed / raw"], 1.4) || !is(s.Least["packed / raw"], 1.3) || !is(s.Most["packed / raw"], 1.5) || !is(s.Ratios["peer / raw"], 0.5) {
		t.Errorf("ratios %v, %v to %v", s.Ratios, s.Least, s.Most)
	}
	for _, wrong := range []string{
		"", "no JSON", `{"name":"raw","round":1}`,
		strings.Replace(rows, `0.8,"disk_bytes_per_second":30,"logits_hash":"a"`, `0.8,"disk_bytes_per_second":30,"logits_hash":"b"`, 1),
	} {
		if err := sumTurns(strings.NewReader(wrong), &out); err == nil {
			t.Errorf("%q is summed", wrong)
		}
	}
}

// TestTurnsOfGuesses: passes that write several tokens are told from as many times the plain ones of the same round, and have
// logits of their own.
func TestTurnsOfGuesses(t *testing.T) {
	const rows = `{"name":"raw","round":1,"sequences":1,"rows_each":1,"passes":8,"tokens":8,"tokens_per_second":1,"logits_hash":"a"}
{"name":"2.5","round":1,"sequences":1,"rows_each":8,"passes":8,"tokens":20,"tokens_per_second":2,"logits_hash":"b"}
{"name":"5","round":1,"sequences":1,"rows_each":8,"passes":8,"tokens":40,"tokens_per_second":5,"logits_hash":"c"}
{"name":"raw","round":2,"sequences":1,"rows_each":1,"passes":8,"tokens":8,"tokens_per_second":2,"logits_hash":"a"}
{"name":"2.5","round":2,"sequences":1,"rows_each":8,"passes":8,"tokens":20,"tokens_per_second":4.5,"logits_hash":"b"}
`
	var out strings.Builder
	if err := sumTurns(strings.NewReader(rows), &out); err != nil {
		t.Fatal(err)
	}
	var s summary
	if err := json.Unmarshal([]byte(out.String()), &s); err != nil {
		t.Fatal(err)
	}
	is := func(x, want float64) bool { return x > want-1e-9 && x < want+1e-9 }
	if len(s.OfPasses) != 2 || !is(s.OfPasses["2.5"], 0.85) || !is(s.OfPasses["5"], 1) {
		t.Errorf("%v", s.OfPasses)
	}
	if err := sumTurns(strings.NewReader(strings.Replace(rows, `4.5,"logits_hash":"b"`, `4.5,"logits_hash":"c"`, 1)), &out); err == nil {
		t.Error("other logits of the same work are summed")
	}
}

// TestTurnsOfExperts: the worst round says how many experts were read, whether those are all, and how often another program
// computed the same.
func TestTurnsOfExperts(t *testing.T) {
	const rows = `{"name":"experts","round":1,"tokens_per_second":4,"bytes_per_token":7,"expert_reads":30,"belady_reads":20,"exact":true}
{"name":"llama.cpp","round":1,"tokens_per_second":1,"bytes_per_token":70,"agreed":0.9}
{"name":"experts","round":2,"tokens_per_second":4,"bytes_per_token":9,"expert_reads":28,"belady_reads":20,"exact":EXACT}
{"name":"llama.cpp","round":2,"tokens_per_second":1,"bytes_per_token":70,"agreed":0.8}
`
	for _, exact := range []bool{true, false} {
		var out strings.Builder
		if err := sumTurns(strings.NewReader(strings.Replace(rows, "EXACT", strconv.FormatBool(exact), 1)), &out); err != nil {
			t.Fatal(err)
		}
		var s summary
		if err := json.Unmarshal([]byte(out.String()), &s); err != nil {
			t.Fatal(err)
		}
		if s.OfLeast["experts"] != 1.5 || s.Exact == nil || *s.Exact != exact || s.Agreed == nil || *s.Agreed != 0.8 ||
			s.Bytes["experts"] != 8 || s.Ratios["llama.cpp / experts"] != 0.25 {
			t.Errorf("%s", out.String())
		}
	}
}

// TestWalk: the text is the same again, the most frequent word is, and words follow those before.
func TestWalk(t *testing.T) {
	const n = 4096
	text := walk(n)
	if !slices.Equal(text[:100], walk(100)) {
		t.Error("a shorter text begins otherwise")
	}
	count, after := make(map[int64]int), make(map[[2]int64]int)
	for i, w := range text {
		if w < 0 || w >= words {
			t.Fatalf("word %d", w)
		}
		count[w]++
		if i > 0 {
			after[[2]int64{text[i-1], w}]++
		}
	}
	if len(after) > n*3/4 || count[0] < n/50 {
		t.Errorf("%d pairs of %d, the first word %d times", len(after), n, count[0])
	}
}

// TestReportLimit: what the disk admits goes by the mean of its rates before and after.
func TestReportLimit(t *testing.T) {
	r := report{Tokens: 10, ReadBytes: 100, PerSecond: 1, DiskBefore: 10, DiskAfter: 30}
	if r.limit(); r.DiskBytes != 20 || r.Limit != 2 || r.OfLimit != 0.5 {
		t.Errorf("%+v", r)
	}
	if r = (report{Tokens: 10, ReadBytes: 100, PerSecond: 1}); true {
		if r.limit(); r.Limit != 0 {
			t.Errorf("no rate was measured, and the limit is %v", r.Limit)
		}
	}
}
