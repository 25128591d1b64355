package grammar

import (
	"compress/gzip"
	"encoding/json"
	"io"
	"os"
	goruntime "runtime"
	"slices"
	"testing"
	"time"
)

// A maskCase is a grammar with a text that fits it.
type maskCase struct {
	Name, GBNF, Text string
	Schema           json.RawMessage
}

// grammar compiles it.
func (c maskCase) grammar() (*Grammar, error) {
	if c.Schema != nil {
		return ParseSchema(c.Schema, SchemaOptions{})
	}
	return ParseGBNF(c.GBNF)
}

// maskCases are those that testdata/masks.py wrote.
func maskCases(t testing.TB) []maskCase {
	t.Helper()
	f, err := os.Open("testdata/masks.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	var cases []maskCase
	if err := json.Unmarshal(text, &cases); err != nil {
		t.Fatal(err)
	}
	return cases
}

// tokenIDs are the tokens' numbers.
func tokenIDs(tokens [][]byte) map[string]int {
	ids := make(map[string]int, len(tokens))
	for id, t := range tokens {
		ids[string(t)] = id
	}
	return ids
}

// longest returns a text as tokens, each the longest that there is.
func longest(ids map[string]int, text string) []int {
	var out []int
	for len(text) > 0 {
		for n := len(text); ; n-- {
			if id, ok := ids[text[:n]]; ok {
				out, text = append(out, id), text[n:]
				break
			}
		}
	}
	return out
}

// BenchmarkGrammars measures the mask at every token of a text, for many grammars. new: of an engine of which nothing is known
// but the vocabulary's tree; ready: after Prepare; again: at states that were. Of each place the least
// all passes counts, in the processor time of the thread where the system tells. prepare is the time of Prepare, parse that of reading
// the grammar; nodes and places are the most that a mask looked at.
func BenchmarkGrammars(b *testing.B) {
	tokens := benchVocabulary(b)
	v, byText := NewVocabulary(tokens), tokenIDs(tokens)
	for _, c := range maskCases(b) {
		ids := longest(byText, c.Text)
		visits, places := 0, 0
		var g *Grammar
		var parsed, prepared time.Duration
		for range 3 {
			began := threadTime()
			var err error
			if g, err = c.grammar(); err != nil {
				b.Fatal(c.Name, err)
			}
			parsed = least(parsed, threadTime()-began)
		}
		pass := func(e *Engine, times []time.Duration) {
			m, err := e.Start()
			for i := 0; ; i++ {
				if err != nil {
					b.Fatal(c.Name, i, err)
				}
				v0, p0 := e.visits, e.places
				began := threadTime()
				if _, err := m.Mask(); err != nil {
					b.Fatal(c.Name, err)
				}
				times[i] = least(times[i], threadTime()-began)
				visits, places = max(visits, e.visits-v0), max(places, e.places-p0)
				if i == len(ids) {
					if !m.CanEnd() {
						b.Fatal(c.Name, "the text does not end")
					}
					return
				}
				m, err = m.Advance(ids[i])
			}
		}
		for _, how := range []string{"new", "ready", "again"} {
			b.Run(c.Name+"/"+how, func(b *testing.B) {
				goruntime.LockOSThread()
				defer goruntime.UnlockOSThread()
				times := make([]time.Duration, len(ids)+1)
				for b.Loop() {
					e := NewEngine(g, v)
					v.mu.Lock()
					v.cut = nil
					v.mu.Unlock()
					switch how {
					case "ready":
						began := threadTime()
						e.Prepare(b.Context())
						prepared = least(prepared, threadTime()-began)
					case "again":
						pass(e, make([]time.Duration, len(ids)+1))
					}
					pass(e, times)
				}
				slices.Sort(times)
				b.ReportMetric(float64(times[len(times)/2].Nanoseconds())/1e3, "µs/median")
				b.ReportMetric(float64(times[len(times)*99/100].Nanoseconds())/1e3, "µs/p99")
				b.ReportMetric(float64(times[len(times)-1].Nanoseconds())/1e3, "µs/max")
				switch how {
				case "new":
					b.ReportMetric(float64(parsed.Nanoseconds())/1e6, "ms/parse")
				case "ready":
					b.ReportMetric(float64(prepared.Nanoseconds())/1e6, "ms/prepare")
				}
				b.ReportMetric(0, "ns/op")
				if how == "new" {
					b.ReportMetric(float64(visits), "nodes/max")
					b.ReportMetric(float64(places), "places/max")
				}
			})
		}
	}
}

func least(a, b time.Duration) time.Duration {
	if a == 0 || b < a {
		return b
	}
	return a
}
