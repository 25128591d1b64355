package grammar

import (
	"slices"
	"testing"
)

// TestMaskWork counts what masks for 128,000 tokens look at in states that were never seen, at every token of a text: nodes of the
// tree, of 779,133 that there are, and places in the grammar.
func TestMaskWork(t *testing.T) {
	tokens := benchVocabulary(t)
	v, byText := NewVocabulary(tokens), tokenIDs(tokens)
	mostNodes := map[string]int{
		"patterns": 35_000, "c": 65_000, "words": 32_000, "sentences": 35_000, "xml": 35_000,
		"no e": 60_000, "accents": 150_000, "scripts": 660_000, // parts of what is not ASCII are looked at one by one
	}
	for _, c := range maskCases(t) {
		g, err := c.grammar()
		if err != nil {
			t.Fatal(err)
		}
		e := NewEngine(g, v)
		m, err := e.Start()
		nodes, places := 0, 0
		for _, id := range append(longest(byText, c.Text), -1) {
			if err != nil {
				t.Fatalf("%s: %v", c.Name, err)
			}
			e.visits, e.places = 0, 0
			if _, err := m.Mask(); err != nil {
				t.Fatal(err)
			}
			nodes, places = max(nodes, e.visits), max(places, e.places)
			if id >= 0 {
				m, err = m.Advance(id)
			}
		}
		most := mostNodes[c.Name]
		if most == 0 {
			most = 6_000
		}
		if nodes > most || places > 3_000 {
			t.Errorf("%s: a mask looks at %d nodes and %d places, want %d and 3000 at most", c.Name, nodes, places, most)
		}
	}
}

// TestLargestMasks: the masks for 128,000 tokens are what trying every token gives, where most of them are taken at once.
func TestLargestMasks(t *testing.T) {
	if testing.Short() {
		t.Skip("tries 128,000 tokens one by one")
	}
	v := NewVocabulary(benchVocabulary(t))
	for source, text := range map[string]string{
		`root ::= "\"" ([^"\\\x00-\x1f\x7f] | "\\" ["\\n])* "\""`: `"it`, `root ::= [^e]* "e" [^x]{2,5}`: "a",
		`root ::= .* "\"end\"" | [a-z ]{1,7} "é"? [^a]*`: `it "e`, `root ::= [a-zA-Z_] [a-zA-Z0-9_]* ("(" [^)]* ")")?`: "",
		"root ::= e\ne ::= [a-z ]* (\"[\" e \"]\" [a-z ]* | \"{\" e \"}\" [a-z ]*)*": "a [b {c ",
	} {
		m, err := NewEngine(parse(t, source), v).Start()
		if err == nil {
			m, err = m.AdvanceBytes([]byte(text))
		}
		if err != nil {
			t.Fatal(err)
		}
		mask, err := m.Mask()
		if err != nil {
			t.Fatal(err)
		}
		for id, token := range v.tokens {
			if _, err := m.AdvanceBytes(token); mask.Has(id) != (err == nil) {
				t.Fatalf("%s: that %q may follow is %v: %v", source, token, mask.Has(id), err)
			}
		}
		if !slices.ContainsFunc(mask, func(w uint64) bool { return w != 0 }) {
			t.Errorf("%s: nothing may follow", source)
		}
	}
}
