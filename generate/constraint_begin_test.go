package generate

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"github.com/optimem/optimem/text/tokenizer"
)

// spaced is a tokenizer whose texts lose the space of their first token, with bytes for what has no token.
func spaced(t testing.TB) *tokenizer.Tokenizer {
	t.Helper()
	var vocabulary strings.Builder
	n := 0
	add := func(token string) {
		fmt.Fprintf(&vocabulary, "%q: %d, ", token, n)
		n++
	}
	for _, special := range []string{"<unk>", "<s>", "</s>"} {
		add(special)
	}
	for b := range 256 {
		add(fmt.Sprintf("<0x%02X>", b))
	}
	for _, token := range []string{"▁", "a", "b", "ab", "▁a", "▁ab", "▁▁", "é", "▁é", "b▁"} {
		add(token)
	}
	tok, err := tokenizer.Parse([]byte(`{"added_tokens": [
		{"id": 0, "content": "<unk>", "special": true}, {"id": 1, "content": "<s>", "special": true}, {"id": 2, "content": "</s>", "special": true}],
		"decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
			{"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
		"model": {"type": "BPE", "unk_token": "<unk>", "byte_fallback": true, "merges": [],
			"vocab": {` + strings.TrimSuffix(vocabulary.String(), ", ") + `}}}`))
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// TestBeginningOfText: a text follows its grammar also where the first token loses a space, whichever tokens are chosen.
func TestBeginningOfText(t *testing.T) {
	text := &Text{tokenizer: spaced(t), defaults: Defaults{End: []int{2}}}
	for source, want := range map[string]string{
		`root ::= "ab" | "a b" | "é" | " a"`: `^(ab|a b|é| a)$`,
		`root ::= [ab]{1,2} (" " [abé])*`:    `^[ab]{1,2}( [abé])*$`,
		`root ::= " "{1,2} ("aé" | "b")`:     `^ {1,2}(aé|b)$`,
	} {
		seen := make(map[string]bool)
		for seed := range 400 {
			c, err := text.Constraint(TextRequest{Grammar: source})
			if err != nil {
				t.Fatal(err)
			}
			rng := rand.New(rand.NewPCG(uint64(seed), 1))
			var ids []uint32
			ended := false
			for !ended && len(ids) < 30 {
				allowed := []uint64{1<<64 - 1, 1<<64 - 1, 1<<64 - 1, 1<<64 - 1, 1<<64 - 1, 1<<64 - 1} // more than there are
				if err := c.Mask(allowed); err != nil {
					t.Fatalf("after %q: %v", text.tokenizer.Decode(ids, true), err)
				}
				var may []int
				for id := range 64 * len(allowed) {
					if allowed[id/64]>>(id%64)&1 != 0 {
						may = append(may, id)
					}
				}
				id := may[rng.IntN(len(may))]
				err := c.Accept(id)
				if err != nil && !errors.Is(err, ErrStop) {
					t.Fatalf("token %d may follow %v: %v", id, ids, err)
				}
				ended = errors.Is(err, ErrStop) || id == 2
				ids = append(ids, uint32(id))
			}
			got := text.tokenizer.Decode(ids, true)
			if ended && !regexp.MustCompile(want).MatchString(got) {
				t.Fatalf("%s: %q of %v", source, got, ids)
			}
			seen[got] = true
		}
		if len(seen) < 3 || !seen["ab"] && !seen["  aé"] {
			t.Errorf("%s: few texts: %v", source, seen)
		}
	}
}

// BenchmarkConstraint measures what a grammar adds to a token with 128,000 of them: the mask, and going on.
func BenchmarkConstraint(b *testing.B) {
	const tokens = 128_000
	var vocabulary strings.Builder
	rng := rand.New(rand.NewPCG(1, 2))
	seen := make(map[string]bool)
	letters := []rune("etaoinshrdlucmfwypvbgkjqxz0123456789{}[]:,.-ĠéàüабвгдЖ的一是\"\\")
	for len(seen) < tokens {
		var w strings.Builder
		for range 1 + int(min(rng.ExpFloat64()*4, 12)) {
			w.WriteRune(letters[rng.IntN(len(letters))])
		}
		if word := w.String(); !seen[word] {
			fmt.Fprintf(&vocabulary, "%q: %d, ", word, len(seen))
			seen[word] = true
		}
	}
	tok, err := tokenizer.Parse([]byte(`{"decoder": {"type": "Fuse"}, "model": {"type": "BPE", "merges": [], "vocab": {` +
		strings.TrimSuffix(vocabulary.String(), ", ") + `}}}`))
	if err != nil {
		b.Fatal(err)
	}
	text := &Text{tokenizer: tok}
	allowed := make([]uint64, tokens/64)
	r := TextRequest{Schema: []byte(`{"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}, "required": ["name", "age"]}`)}
	if _, err := text.Constraint(r); err != nil { // makes the tree of the tokens
		b.Fatal(err)
	}
	masks := 0
	for b.Loop() {
		c, err := text.Constraint(r)
		if err != nil {
			b.Fatal(err)
		}
		for range 40 {
			for i := range allowed {
				allowed[i] = 1<<64 - 1
			}
			if err := c.Mask(allowed); err != nil {
				b.Fatal(err)
			}
			masks++
			id := rng.IntN(tokens)
			for allowed[id/64]>>(id%64)&1 == 0 {
				id = (id + 1) % tokens
			}
			if err := c.Accept(id); err != nil {
				break
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(masks), "µs/token")
}
