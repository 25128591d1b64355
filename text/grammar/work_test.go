package grammar

import (
	"slices"
	"testing"
)

// TestMaskWork counts the nodes of the tree of 128,000 tokens that a mask looks at in states that were never seen: at every
// place of a text no more than is said, of 779,133 that there are. The mask that took most has the tokens that may follow, each by
// itself.
func TestMaskWork(t *testing.T) {
	v := NewVocabulary(benchVocabulary(t))
	schema, err := ParseSchema([]byte(person), SchemaOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, text string
		g          *Grammar
		most       int
	}{
		{"schema", personText, schema, 60_000},
		{"json", personText, parse(t, jsonGrammar), 6_000},
		{"arithmetic", "(12+3*(4-5))/67=89\n1=1\n", parse(t, arithmetic), 2_000},
		{"any", "what is \"this\"?\n", parse(t, `root ::= .*`), 1_000},
		{"no quote", "it is so", parse(t, `root ::= [^"]*`), 6_000},
		{"lines", "- a\n- b\n", parse(t, `root ::= ("- " [^\n]+ "\n")+`), 8_000},
		{"identifier", "a_name9", parse(t, `root ::= [a-zA-Z_] [a-zA-Z0-9_]*`), 60_000},
		{"ascii", "what is \"this\"?\n", parse(t, `root ::= [\x20-\x7e\n]*`), 130_000},
		{"short", "the quick", parse(t, `root ::= [a-zA-Z ]{1,40}`), 130_000},
		{"words", "the quick brown fox", parse(t, `root ::= [a-z]+ (" " [a-z]+)*`), 180_000},
		{"little text", "\"is it so?\"", parse(t, `root ::= "\"" [^"\\\x00-\x1f\x7f]{0,9} "\""`), 60_000},
	} {
		e := NewEngine(c.g, v)
		m, err := e.Start()
		most, of := 0, m
		for i := 0; ; i++ {
			if err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
			e.visits = 0
			if _, err := m.Mask(); err != nil {
				t.Fatal(err)
			}
			if e.visits > most {
				most, of = e.visits, m
			}
			if i == len(c.text) {
				break
			}
			m, err = m.AdvanceBytes([]byte(c.text[i : i+1]))
		}
		if most > c.most || most == 0 {
			t.Errorf("%s: a mask looked at %d nodes, want %d at most", c.name, most, c.most)
		}
		mask, err := of.Mask()
		if err != nil {
			t.Fatal(err)
		}
		for id, token := range v.tokens {
			if _, err := of.AdvanceBytes(token); mask.Has(id) != (err == nil) {
				t.Fatalf("%s: that %q may follow is %v: %v", c.name, token, mask.Has(id), err)
			}
		}
	}
	if !slices.Contains(v.plain, true) || !slices.Contains(v.plain, false) {
		t.Error("all tokens are text, or none")
	}
}
