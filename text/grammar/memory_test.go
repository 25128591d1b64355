package grammar

import (
	"errors"
	goruntime "runtime"
	"slices"
	"testing"
)

// heap is what lies on the heap, without what the collector would take.
func heap() int64 {
	goruntime.GC()
	goruntime.GC()
	var m goruntime.MemStats
	goruntime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestVocabularyBytes: the vocabulary takes what it says, without what is left for what is found, and no more than was said before.
func TestVocabularyBytes(t *testing.T) {
	tokens := benchVocabulary(t)
	own := int64(0)
	for i, token := range tokens {
		tokens[i] = slices.Clip(slices.Clone(token))
		own += int64(len(token)+7) &^ 7
	}
	before := heap()
	v := NewVocabulary(tokens)
	took := heap() - before
	v.cut = map[charSet]*cut{}
	said := v.Bytes() - own - int64(24*len(tokens)) - 2*v.learned.most - maxCuts*(cutBytes+v.maskBytes()+int64(len(v.sets)+63)/64*8)
	if took > said+said/50 || took < said-said/10 {
		t.Errorf("the vocabulary takes %d bytes, and says %d", took, said)
	}
	if most := MostBytes(tokens); v.Bytes() > most || most > 3*v.Bytes() {
		t.Errorf("%d bytes, and %d were said to be the most", v.Bytes(), most)
	}
	goruntime.KeepAlive(v)
}

// TestEngineBytes: what engines say that they hold is no less than what they do, and not many times more.
func TestEngineBytes(t *testing.T) {
	v := NewVocabulary(benchVocabulary(t))
	byText := tokenIDs(v.tokens)
	for _, c := range maskCases(t) {
		g, err := c.grammar()
		if err != nil {
			t.Fatal(c.Name, err)
		}
		e := NewEngine(g, v)
		m, err := e.Start()
		for _, id := range append(longest(byText, c.Text), -1) {
			if err == nil {
				_, err = m.Mask()
			}
			if err == nil && id >= 0 {
				m, err = m.Advance(id)
			}
		}
		if err != nil {
			t.Fatal(c.Name, err)
		}
		e.Prepare(t.Context())
		e.mu.Lock() // engines of before are forgotten meanwhile
		said := e.holding.bytes
		e.mu.Unlock()
		with := heap()
		e.mu.Lock()
		e.forget()
		left := v.learned.held + e.holding.bytes
		e.mu.Unlock()
		if took := with - heap(); took > said+said/20+(64<<10) || said > 4*took+(256<<10) {
			t.Errorf("%s: engine holds %d bytes, and says %d", c.Name, took, said)
		}
		if left != 0 {
			t.Errorf("%s: %d bytes are left", c.Name, left)
		}
		goruntime.KeepAlive(g)
	}
}

// TestEnginesShareMemory: engines together hold no more than there is for them and for one call, those that are used least forget, and
// every mask is that of an engine with all memory.
func TestEnginesShareMemory(t *testing.T) {
	tokens := benchVocabulary(t)
	small, large := NewVocabulary(tokens), NewVocabulary(tokens)
	small.learned.most = 12 * small.maskBytes()
	byText := tokenIDs(tokens)
	type writing struct {
		at, all Matcher
		ids     []int
	}
	var texts []writing
	for _, c := range maskCases(t)[:8] {
		g, err := c.grammar()
		if err != nil {
			t.Fatal(c.Name, err)
		}
		at, err := NewEngine(g, small).Start()
		if err != nil {
			t.Fatal(err)
		}
		all, err := NewEngine(g, large).Start()
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, writing{at, all, longest(byText, c.Text)})
	}
	forgot := 0
	for step := range 40 {
		for i := range texts {
			x := &texts[i]
			if step >= len(x.ids) {
				continue
			}
			bytes := x.at.e.holding.bytes
			got, err := x.at.Mask()
			if err != nil {
				t.Fatal(err)
			}
			want, err := x.all.Mask()
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got, want) {
				t.Fatalf("text %d, step %d: another mask", i, step)
			}
			if x.at.e.holding.bytes < bytes || bytes == 0 {
				forgot++
			}
			if held := small.learned.held; held > 2*small.learned.most {
				t.Fatalf("%d bytes are held, %d are there", held, small.learned.most)
			}
			if x.at, err = x.at.Advance(x.ids[step]); err != nil {
				t.Fatal(err)
			}
			if x.all, err = x.all.Advance(x.ids[step]); err != nil {
				t.Fatal(err)
			}
		}
	}
	if forgot == 0 {
		t.Error("no engine forgot anything")
	}
	sum := int64(0)
	for _, h := range small.learned.engines {
		sum += h.bytes
	}
	if sum != small.learned.held {
		t.Errorf("engines hold %d bytes, and %d are counted", sum, small.learned.held)
	}
}

// TestOthersForget: where there is too little for two engines, that which was used before gives way.
func TestOthersForget(t *testing.T) {
	v := NewVocabulary(benchVocabulary(t))
	first, then := NewEngine(parse(t, `root ::= [a-z]{1,9} "."`), v), NewEngine(parse(t, `root ::= [0-9]{1,9} "."`), v)
	for _, e := range []*Engine{first, then} {
		m, err := e.Start()
		if err == nil {
			_, err = m.Mask()
		}
		if err != nil {
			t.Fatal(err)
		}
		if e == first {
			v.learned.most = e.holding.bytes - 1
		}
	}
	if first.holding.bytes != 0 || then.holding.bytes == 0 {
		t.Errorf("%d bytes are kept of the first, %d of the second", first.holding.bytes, then.holding.bytes)
	}
}

// TestOneCallIsBounded: a mask for which more would be found than there is memory for ends in an error, and the engine goes on.
func TestOneCallIsBounded(t *testing.T) {
	v := NewVocabulary(benchVocabulary(t))
	v.learned.most = 1 << 20
	e := NewEngine(parse(t, `root ::= [a-zA-Z ]* [a-m] [a-zA-Z ]{14} "." | "yes"`), v)
	m, err := e.Start()
	if err != nil {
		t.Fatal(err)
	}
	if _, err = m.Mask(); !errors.Is(err, ErrLimit) {
		t.Errorf("error %v", err)
	}
	if v.learned.held > 3*v.learned.most {
		t.Errorf("%d bytes are held", v.learned.held)
	}
	if _, err := m.AdvanceBytes([]byte("yes")); err != nil {
		t.Error(err)
	}
}

// TestDroppedEngines: what nobody has any more is not counted.
func TestDroppedEngines(t *testing.T) {
	v := NewVocabulary([][]byte{[]byte("a"), []byte("b")})
	g := parse(t, `root ::= "a" "b"*`)
	for range 50 {
		m, err := NewEngine(g, v).Start()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.Mask(); err != nil {
			t.Fatal(err)
		}
	}
	for range 100 {
		goruntime.GC()
		v.learned.mu.Lock()
		n, held := len(v.learned.engines), v.learned.held
		v.learned.mu.Unlock()
		if n == 0 && held == 0 {
			return
		}
		goruntime.Gosched()
	}
	t.Error("engines that nobody has are counted")
}
