package grammar

import (
	"context"
	"slices"
	"strings"
	"testing"
)

// TestPrepared counts the nodes of the tree of 128,000 tokens that masks look at in states that were never seen, once the grammar was made ready:
// no more than 40,000, wherever a text is, of up to 760,000 that some take otherwise. What is made ahead is bounded, and the masks are the same.
func TestPrepared(t *testing.T) {
	v := NewVocabulary(benchVocabulary(t))
	schema, err := ParseSchema([]byte(person), SchemaOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, text string
		g          *Grammar
		ahead      int // nodes looked at ahead, at most
	}{
		{"schema", personText, schema, 12_000_000},
		{"json", personText, parse(t, jsonGrammar), 1_000_000},
		{"arithmetic", "(12+3*(4-5))/67=89\n1=1\n", parse(t, arithmetic), 100_000},
		{"all but one", "it is", parse(t, `root ::= [^x]*`), 700_000},
		{"all but one, then more", "it is", parse(t, `root ::= [^e]* "e" [^x]{2,5}`), 4_500_000},
		{"until", `it "en" is "end`, parse(t, `root ::= .* "\"end\""`), 800_000},
		{"words", "the quick brown fox", parse(t, `root ::= [a-z]+ (" " [a-z]+)*`), 400_000},
		{"short", "the quick", parse(t, `root ::= [a-zA-Z ]{1,40}`), 4_600_000},
		{"identifier", "a_name9", parse(t, `root ::= [a-zA-Z_] [a-zA-Z0-9_]*`), 120_000},
	} {
		e := NewEngine(c.g, v)
		e.Prepare(t.Context())
		if e.visits > c.ahead {
			t.Errorf("%s: %d nodes are looked at ahead, want %d at most", c.name, e.visits, c.ahead)
		}
		plain := NewEngine(c.g, v)
		m, err := e.Start()
		p, err2 := plain.Start()
		for i := 0; ; i++ {
			if err != nil || err2 != nil {
				t.Fatalf("%s: %v, %v", c.name, err, err2)
			}
			e.forget() // no state is known
			m.s = e.fresh(m.s)
			e.visits = 0
			mask, err := m.Mask()
			if err != nil {
				t.Fatal(err)
			}
			if e.visits > 40_000 {
				t.Errorf("%s: after %q a mask looks at %d nodes", c.name, c.text[:i], e.visits)
			}
			if want, err := p.Mask(); err != nil || !slices.Equal(mask, want) {
				t.Fatalf("%s: after %q another mask than without: %v", c.name, c.text[:i], err)
			}
			if i == len(c.text) {
				break
			}
			m, err = m.AdvanceBytes([]byte(c.text[i : i+1]))
			if err != nil {
				t.Fatal(err)
			}
			if p, err = p.AdvanceBytes([]byte(c.text[i : i+1])); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestPreparedBounded: a grammar with more costly places than there is room or work for is made ready as far as that goes, from its beginning on;
// nothing is made where the caller has gone.
func TestPreparedBounded(t *testing.T) {
	v := NewVocabulary(benchVocabulary(t))
	g := parse(t, `root ::= [a-zA-Z ]{1,600}`)
	e := NewEngine(g, v)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if e.Prepare(gone); len(e.costly) > 1 || e.prepared {
		t.Errorf("%d places are made ready for nobody", len(e.costly))
	}
	e.Prepare(t.Context())
	const most = 250_000 // of two places
	if e.visits > maxPrepared+most || len(e.costly) > maxCostly || len(e.costly) < 100 {
		t.Errorf("%d places, %d nodes looked at", len(e.costly), e.visits)
	}
	before := e.visits
	if e.Prepare(t.Context()); e.visits != before {
		t.Error("made ready twice")
	}
	m, err := e.Start()
	if err == nil {
		m, err = m.AdvanceBytes([]byte(strings.Repeat("a", 590)))
	}
	if err != nil {
		t.Fatal(err)
	}
	mask, err := m.Mask()
	if err != nil {
		t.Fatal(err)
	}
	for id, token := range v.tokens {
		fits := len(token) <= 10 && strings.Trim(string(token), "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ ") == ""
		if mask.Has(id) != fits {
			t.Fatalf("%q may follow: %v", token, !fits)
		}
	}
}
