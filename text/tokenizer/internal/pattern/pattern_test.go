package pattern

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

// matches are the matches in a text, in characters.
func matches(t testing.TB, p *Pattern, text string) [][2]int {
	t.Helper()
	found := [][2]int{}
	s := p.Find(text)
	for {
		from, to, ok := s.Next()
		if !ok {
			break
		}
		found = append(found, [2]int{utf8.RuneCountInString(text[:from]), utf8.RuneCountInString(text[:to])})
	}
	if s.Err != nil {
		t.Fatal(s.Err)
	}
	return found
}

// between are the parts of a text that no match covers, and parts all of them.
func split(text string, found [][2]int) (between, parts [][2]int) {
	between, parts = [][2]int{}, [][2]int{}
	last := 0
	for _, m := range append(found, [2]int{utf8.RuneCountInString(text), -1}) {
		if last < m[0] {
			between, parts = append(between, [2]int{last, m[0]}), append(parts, [2]int{last, m[0]})
		}
		if m[0] < m[1] {
			parts = append(parts, m)
		}
		last = m[1]
	}
	return between, parts
}

type fixture struct {
	Texts    []string
	Patterns []struct {
		Pattern     string
		Kept, Parts [][][2]int
	}
}

func readFixture(t testing.TB) fixture {
	t.Helper()
	f, err := os.Open("../../testdata/patterns.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var all fixture
	if err := json.NewDecoder(z).Decode(&all); err != nil {
		t.Fatal(err)
	}
	return all
}

// TestMatchesAsOniguruma: matches are those that Hugging Face's tokenizers finds, by the fast program and by the safe one.
func TestMatchesAsOniguruma(t *testing.T) {
	all := readFixture(t)
	refused := 0
	for _, f := range all.Patterns {
		p, err := Compile(f.Pattern)
		var bad *Error
		if errors.As(err, &bad) && bad.Unsupported {
			refused++
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", f.Pattern, err)
			continue
		}
		safe := *p
		safe.fast = nil
		for i, text := range all.Texts {
			between, parts := split(text, matches(t, p, text))
			if !reflect.DeepEqual(between, f.Kept[i]) || !reflect.DeepEqual(parts, f.Parts[i]) {
				t.Errorf("%s in %q: parts %v, between %v; recorded %v, %v", f.Pattern, text, parts, between, f.Parts[i], f.Kept[i])
			}
			if p.fast == nil {
				continue
			}
			s := p.Find(text)
			s.m.safe = true
			var slow [][2]int
			for from, to, ok := s.Next(); ok; from, to, ok = s.Next() {
				slow = append(slow, [2]int{utf8.RuneCountInString(text[:from]), utf8.RuneCountInString(text[:to])})
			}
			if b, q := split(text, slow); !reflect.DeepEqual(b, between) || !reflect.DeepEqual(q, parts) {
				t.Errorf("%s in %q: the safe program finds %v", f.Pattern, text, slow)
			}
		}
	}
	if refused > 3 {
		t.Errorf("%d of %d patterns are refused", refused, len(all.Patterns))
	}
}

// TestTakesLinearTime: what other matchers never come to the end of.
func TestTakesLinearTime(t *testing.T) {
	for _, c := range []struct{ pattern, text string }{
		{`(?:a|aa)+$b`, strings.Repeat("a", 200000)},
		{`(?:a+)+b`, strings.Repeat("a", 200000)},
		{`(?:a*?a*?)b|c`, strings.Repeat("a", 100000)},
		{`a*a*a*a*b`, strings.Repeat("a", 100000)},
		{`\d{1,3}(?=(?:\d{3})*\b)`, strings.Repeat("1", 300000)},
		{`(?=.*x)a`, strings.Repeat("a", 100000)},
		{`a++b`, strings.Repeat("a", 200000)},
		{`(?:\s*[\r\n]+|\s+(?!\S)|\s+)`, strings.Repeat(" ", 1000000) + "x"},
		{`(?>a+)b`, strings.Repeat("a", 200000)},
	} {
		p, err := Compile(c.pattern)
		if err != nil {
			t.Fatal(err)
		}
		s := p.Find(c.text)
		n := 0
		for _, _, ok := s.Next(); ok; _, _, ok = s.Next() {
			n++
		}
		if s.Err != nil {
			t.Errorf("%s: %v", c.pattern, s.Err)
		}
	}
}

// TestRefusesWithAClass: what is wrong and what is not supported are told apart.
func TestRefusesWithAClass(t *testing.T) {
	for _, c := range []struct {
		pattern     string
		unsupported bool
	}{
		{"(", false}, {"a)", false}, {"[a", false}, {"*a", false}, {`\`, false}, {`\p{L`, false}, {"[b-a]", false}, {`[\d-z]`, false},
		{"(?:a", false}, {"\xff", false}, {`(?<=a`, false},
		{`(a)\1`, true}, {`\X`, true}, {`\K`, true}, {`(?:a*)*`, true}, {`(?<=a*)b`, true}, {"a{2}?", true}, {`\p{Foo}`, true},
		{"(?i:ss)", true}, {"(?s)a", true}, {`\Ga`, true}, {strings.Repeat("(", 200) + strings.Repeat(")", 200), true},
		{"(?:[ab]{1000}){1000}", true}, {strings.Repeat("a", 70000), true}, {"[" + strings.Repeat("[", 200), true},
	} {
		_, err := Compile(c.pattern)
		var bad *Error
		if !errors.As(err, &bad) {
			t.Errorf("%.40q: %v", c.pattern, err)
		} else if bad.Unsupported != c.unsupported {
			t.Errorf("%.40q: unsupported is %v: %v", c.pattern, bad.Unsupported, err)
		}
	}
}

// TestBoundsItsMemory: a search that would remember too much ends in an error.
func TestBoundsItsMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 256 MiB")
	}
	p, err := Compile(`(?:` + strings.Repeat("(?:a|aa)", 60) + `)+b`)
	if err != nil {
		t.Fatal(err)
	}
	s := p.Find(strings.Repeat("a", 2000000))
	_, _, ok := s.Next()
	var tooMuch *ErrMemory
	if ok || !errors.As(s.Err, &tooMuch) {
		t.Errorf("found %v, error %v", ok, s.Err)
	}
}

// FuzzMatch: no pattern and no text lead to a panic, and both programs agree.
func FuzzMatch(f *testing.F) {
	for _, p := range readFixture(f).Patterns {
		f.Add(p.Pattern, "it'S 12 \n aab")
	}
	f.Fuzz(func(t *testing.T, pattern, text string) {
		if len(pattern) > 100 || len(text) > 1000 || !utf8.ValidString(text) {
			return
		}
		p, err := Compile(pattern)
		if err != nil {
			return
		}
		fast, safe := p.Find(text), p.Find(text)
		safe.m.safe = true
		for {
			a, b, ok := fast.Next()
			c, d, also := safe.Next()
			if a != c || b != d || ok != also {
				t.Fatalf("%q in %q: fast %d %d %v, safe %d %d %v", pattern, text, a, b, ok, c, d, also)
			}
			if !ok {
				break
			}
			if !utf8.ValidString(text[a:b]) {
				t.Fatalf("%q in %q: half a character", pattern, text)
			}
		}
	})
}

// TestAtomicGroupsMayBeLazy: what an atomic group takes first may be the shortest.
func TestAtomicGroupsMayBeLazy(t *testing.T) {
	for pattern, want := range map[string][][2]int{`(?>a*?)b`: {{2, 3}}, `(?>a+?)b`: {{1, 3}}, `(?>a*)b`: {{0, 3}}, `(?>a{1,2}?)a`: {{0, 2}}} {
		p, err := Compile(pattern)
		if err != nil {
			t.Fatal(err)
		}
		if got := matches(t, p, "aab"); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, want %v", pattern, got, want)
		}
	}
}
