package tokenizer_test

import (
	"compress/bzip2"
	"compress/gzip"
	"encoding/json"
	"os"
	"slices"
	"sort"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/optimem/optimem/text/tokenizer"
)

// readFixture reads what testdata/record.py wrote.
func readFixture(t testing.TB, name string, to any) {
	t.Helper()
	f, err := os.Open("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z := bzip2.NewReader(f)
	if strings.HasSuffix(name, ".gz") {
		if z, err = gzip.NewReader(f); err != nil {
			t.Fatal(err)
		}
	}
	if err := json.NewDecoder(z).Decode(to); err != nil {
		t.Fatal(err)
	}
}

func files(t testing.TB) map[string]json.RawMessage {
	var all map[string]json.RawMessage
	readFixture(t, "tokenizers.json.gz", &all)
	return all
}

// recorded is an encoding by Hugging Face's tokenizers; offsets are in characters.
type recorded struct {
	IDs              []uint32
	Tokens           []string
	Offsets          [][2]int
	Types            []uint32
	Words            []int32
	Special          []int
	Attention        []int
	Decoded, Skipped *string // nil where decoding failed
}

type expectations struct {
	Texts      []string
	Tokenizers map[string]struct{ Plain, Special, Pairs []*recorded }
}

// inCharacters is an encoding as it is recorded.
func inCharacters(tok *tokenizer.Tokenizer, e *tokenizer.Encoding, texts ...string) *recorded {
	r := &recorded{
		IDs: append([]uint32{}, e.IDs...), Tokens: append([]string{}, e.Tokens...), Types: append([]uint32{}, e.TypeIDs...),
		Words: append([]int32{}, e.Words...), Offsets: [][2]int{}, Special: []int{}, Attention: []int{},
	}
	decoded, skipped := tok.Decode(e.IDs, false), tok.Decode(e.IDs, true)
	r.Decoded, r.Skipped = &decoded, &skipped
	bit := map[bool]int{true: 1}
	text, second := texts[0], false
	for i, s := range e.Offsets {
		// The second text begins where a word's number falls, or where words stop and begin again.
		if len(texts) > 1 && !second && i > 0 && e.Words[i] == 0 && slices.ContainsFunc(e.Words[:i], func(w int32) bool { return w >= 0 }) &&
			e.Words[i-1] != 0 {
			text, second = texts[1], true
		}
		at := [2]int{s.Start, s.End}
		for j, b := range at {
			if b <= len(text) {
				at[j] = utf8.RuneCountInString(text[:b])
			}
		}
		r.Offsets = append(r.Offsets, at)
		r.Special = append(r.Special, bit[e.SpecialMask[i]])
		r.Attention = append(r.Attention, bit[e.Attention[i]])
	}
	return r
}

// TestEqualsHuggingFace: ids, tokens, offsets, types, words, masks and decoded text are those of Hugging Face's tokenizers.
func TestEqualsHuggingFace(t *testing.T) {
	var want expectations
	readFixture(t, "expected.json.bz2", &want)
	all := files(t)
	for _, name := range names(all) {
		t.Run(name, func(t *testing.T) {
			tok, err := tokenizer.Parse(all[name])
			if err != nil {
				t.Fatal(err)
			}
			w := want.Tokenizers[name]
			if len(w.Plain) != len(want.Texts) || len(w.Special) < 10 || len(w.Pairs) < 5 {
				t.Fatalf("%d, %d and %d recorded", len(w.Plain), len(w.Special), len(w.Pairs))
			}
			as := tokenizer.Options{Truncate: true, Pad: true}
			check := func(w *recorded, o tokenizer.Options, texts ...string) {
				t.Helper()
				var e *tokenizer.Encoding
				var err error
				if len(texts) == 2 {
					e, err = tok.EncodePair(texts[0], texts[1], o)
				} else {
					e, err = tok.Encode(texts[0], o)
				}
				if err != nil || w == nil {
					if (err != nil) != (w == nil) {
						t.Errorf("%q: error %v, recorded %v", texts, err, w)
					}
					return
				}
				got := inCharacters(tok, e, texts...)
				if w.Decoded == nil {
					got.Decoded = nil
				}
				if w.Skipped == nil {
					got.Skipped = nil
				}
				if len(texts) == 2 { // by bytes where it is not sure which text a token is of
					got.Offsets, w.Offsets = nil, nil
				}
				if d := cmp.Diff(w, got); d != "" {
					t.Errorf("%q: recorded −, got +\n%s", texts, d)
				}
			}
			for i, text := range want.Texts {
				check(w.Plain[i], as, text)
			}
			as.AddSpecial = true
			for i, r := range w.Special {
				check(r, as, want.Texts[5*i])
			}
			for i, r := range w.Pairs {
				as.AddSpecial = i%2 == 0
				check(r, as, want.Texts[5+7*i], want.Texts[30+3*i])
			}
		})
	}
}

func names(all map[string]json.RawMessage) []string {
	var names []string
	for n := range all {
		names = append(names, n)
	}
	sort.Strings(names)
	return names
}

// TestStreamsWholeCharacters: what a stream says is valid text at every step, and put together it is what Decode says.
func TestStreamsWholeCharacters(t *testing.T) {
	var want expectations
	readFixture(t, "expected.json.bz2", &want)
	for name, file := range files(t) {
		tok, err := tokenizer.Parse(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range want.Texts {
			e, err := tok.Encode(text, tokenizer.Options{AddSpecial: true})
			if err != nil {
				continue
			}
			for _, skip := range []bool{false, true} {
				var got strings.Builder
				s := tok.Stream(skip)
				for _, id := range e.IDs {
					part := s.Write(id)
					if !utf8.ValidString(part) {
						t.Fatalf("%s: %q: half a character in %q", name, text, part)
					}
					got.WriteString(part)
				}
				got.WriteString(s.Flush())
				if w := tok.Decode(e.IDs, skip); got.String() != w && !strings.Contains(w, "\uFFFD") {
					t.Errorf("%s: %q: streamed %q, decoded %q", name, text, got.String(), w)
				}
			}
		}
	}
}

// TestLongWordsAreJoinedAsShortOnes: a long word, which is cut up and joined by a heap, has the tokens of its parts.
func TestLongWordsAreJoinedAsShortOnes(t *testing.T) {
	vocab := `{"<unk>": 0, "a": 1, "b": 2, "c": 3, "ab": 4, "bc": 5, "abc": 6, "aa": 7, "aaa": 8, "aab": 9, " ": 10}`
	tok, err := tokenizer.Parse([]byte(`{"model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": true, "vocab": ` + vocab +
		`, "merges": ["b c", "a b", "a a", "a bc", "aa a", "ab c", "aa b"]}}`))
	if err != nil {
		t.Fatal(err)
	}
	parts := []string{"abc ", "aaab ", "aab ", "xyz ", "aaaaabcb ", "cab ", "aaaa ", "ééa ", "abab "}
	var text strings.Builder
	var want []uint32
	for i := range 200 {
		part := parts[i*7%len(parts)]
		e, err := tok.Encode(part, tokenizer.Options{})
		if err != nil {
			t.Fatal(err)
		}
		text.WriteString(part)
		want = append(want, e.IDs...)
	}
	e, err := tok.Encode(text.String(), tokenizer.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(e.IDs, want) {
		t.Errorf("%v, want %v", e.IDs, want)
	}
	// Recorded with tokenizers 0.23.3.
	for short, w := range map[string][]uint32{
		"abc": {6}, "aaab": {7, 4}, "aaaaabcb": {7, 7, 6, 2}, "aaaa": {7, 7}, "xyza": {0, 1}, "ab": {4}, "aab": {1, 4}, "xx" + strings.Repeat("xy", 60): {0},
	} {
		if e, err := tok.Encode(short, tokenizer.Options{}); err != nil || !slices.Equal(e.IDs, w) {
			t.Errorf("%s: %v, %v; want %v", short, e.IDs, err, w)
		}
	}
}

// TestAddedTokensLongestFirst: of added tokens that begin together the longest is found, and of others the first.
func TestAddedTokensLongestFirst(t *testing.T) {
	tok, err := tokenizer.Parse([]byte(`{"model": {"type": "WordLevel", "unk_token": "u", "vocab": {"u": 0}}, "added_tokens": [
		{"id": 1, "content": "ab"}, {"id": 2, "content": "abcd"}, {"id": 3, "content": "bcde"}, {"id": 4, "content": "b"}, {"id": 5, "content": "cd"},
		{"id": 6, "content": " ", "rstrip": true}]}`))
	if err != nil {
		t.Fatal(err)
	}
	for text, w := range map[string][]uint32{
		"abcd": {2}, "abcde": {2, 0}, "abc": {1, 0}, "xbcde": {0, 3}, "bcd": {4, 5}, "ababcd": {1, 2}, "b": {4}, "x": {0}, "abab": {1, 1}, "bcdcd": {4, 5, 5},
	} {
		if e, err := tok.Encode(text, tokenizer.Options{}); err != nil || !slices.Equal(e.IDs, w) {
			t.Errorf("%s: %v, %v; want %v", text, e.IDs, err, w)
		}
	}
}

// TestDecodesBytesThatAreNoText: a row of bytes that is no text is as many U+FFFD; byte-level ones follow the rule for
// the longest beginnings of characters. A stream says the same but for rows that begin as text.
func TestDecodesBytesThatAreNoText(t *testing.T) {
	all := files(t)
	for _, c := range []struct {
		name, want, streamed string
		tokens               []string
	}{
		{"gemma", "\uFFFD\uFFFD\uFFFDa", "é\uFFFDa", []string{"<0xC3>", "<0xA9>", "<0xFF>", "a"}},
		{"gemma", "\uFFFD\uFFFDa", "\uFFFD\uFFFDa", []string{"<0xF0>", "<0x9F>", "a"}},
		{"gemma", "😀", "😀", []string{"<0xF0>", "<0x9F>", "<0x98>", "<0x80>"}},
		{"gpt2", "\uFFFDa\uFFFD\uFFFD", "\uFFFDa\uFFFD\uFFFD", []string{"ð", "Ł", "a", "ÿ", "Ã"}},
		{"gpt2", "é\uFFFD", "é\uFFFD", []string{"Ã", "©", "ã", "ģ"}},
	} {
		tok, err := tokenizer.Parse(all[c.name])
		if err != nil {
			t.Fatal(err)
		}
		var ids []uint32
		for _, s := range c.tokens {
			id, ok := tok.ID(s)
			if !ok {
				t.Fatalf("%s has no %s", c.name, s)
			}
			ids = append(ids, id)
		}
		if got := tok.Decode(ids, false); got != c.want {
			t.Errorf("%s %v: %q, want %q", c.name, c.tokens, got, c.want)
		}
		s := tok.Stream(false)
		got := ""
		for _, id := range ids {
			got += s.Write(id)
		}
		if got += s.Flush(); got != c.streamed {
			t.Errorf("%s %v: streamed %q, want %q", c.name, c.tokens, got, c.streamed)
		}
	}
}
