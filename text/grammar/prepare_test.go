package grammar

import (
	"context"
	"slices"
	"testing"
)

// TestPrepared counts what masks for 128,000 tokens look at once the grammar was made ready, and wants the masks to be the same.
func TestPrepared(t *testing.T) {
	tokens := benchVocabulary(t)
	v, byText := NewVocabulary(tokens), tokenIDs(tokens)
	for _, c := range maskCases(t) {
		most, ok := map[string]int{
			"person": 4_000, "patterns": 6_000, "numbered list": 2_000, "no e": 6_000, "until": 2_000, "words": 1_000, "sentences": 1_000,
			"markdown": 2_000, "short strings": 2_000, "any of": 2_000,
		}[c.Name]
		if !ok {
			continue
		}
		g, err := c.grammar()
		if err != nil {
			t.Fatal(err)
		}
		e, plain := NewEngine(g, v), NewEngine(g, v)
		e.Prepare(t.Context())
		if e.visits > maxPreparedNodes+200_000 || e.masks > maxPreparedMasks+20 {
			t.Errorf("%s: %d nodes are looked at ahead, and %d masks are kept", c.Name, e.visits, e.masks)
		}
		m, err := e.Start()
		p, err2 := plain.Start()
		nodes := 0
		for i, id := range append(longest(byText, c.Text), -1) {
			if err != nil || err2 != nil {
				t.Fatalf("%s: %v, %v", c.Name, err, err2)
			}
			e.visits = 0
			mask, err3 := m.Mask()
			want, err4 := p.Mask()
			if err3 != nil || err4 != nil || !slices.Equal(mask, want) {
				t.Fatalf("%s: after %d tokens another mask than without: %v, %v", c.Name, i, err3, err4)
			}
			nodes = max(nodes, e.visits)
			if id >= 0 {
				m, err = m.Advance(id)
				p, err2 = p.Advance(id)
			}
		}
		if nodes > most {
			t.Errorf("%s: a mask looks at %d nodes, want %d at most", c.Name, nodes, most)
		}
	}
}

// TestPreparedBounded: a grammar with more costly states than there is room or work for is made ready as far as that goes, from its
// beginning on; nothing is made where the caller has gone.
func TestPreparedBounded(t *testing.T) {
	v := NewVocabulary(benchVocabulary(t))
	g := parse(t, "root ::= w{600}\nw ::= [a-z]+ (\" \" [a-z]+)* \".\"")
	e := NewEngine(g, v)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if e.Prepare(gone); e.masks > 0 || e.prepared.Load() {
		t.Errorf("%d masks are made for nobody", e.masks)
	}
	e.Prepare(t.Context())
	if e.visits > maxPreparedNodes+200_000 || e.masks > maxPreparedMasks+20 || e.masks < 20 {
		t.Errorf("%d masks, %d nodes looked at", e.masks, e.visits)
	}
	before := e.visits
	if e.Prepare(t.Context()); e.visits != before {
		t.Error("made ready twice")
	}
	e.mu.Lock()
	e.forget()
	e.mu.Unlock()
	if e.Prepare(t.Context()); e.visits == before || e.masks < 20 {
		t.Errorf("%d masks after all was forgotten", e.masks)
	}
	// Others may ask and have all forgotten in between.
	e = NewEngine(g, v)
	done := make(chan bool)
	go func() {
		e.Prepare(t.Context())
		close(done)
	}()
	for range 20 {
		m, err := e.Start()
		if err == nil {
			m, err = m.AdvanceBytes([]byte("a word.a"))
		}
		if err == nil {
			_, err = m.Mask()
		}
		if err != nil {
			t.Fatal(err)
		}
		e.mu.Lock()
		e.forget()
		e.mu.Unlock()
	}
	<-done
}
