package tokenizer_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/optimem/optimem/text/tokenizer"
)

// TestNormalForms: Unicode's normal forms are those of Unicode 9, whatever later versions say. Recorded with tokenizers 0.23.3.
func TestNormalForms(t *testing.T) {
	for _, c := range []struct{ text, nfd, nfc, nfkc string }{
		{"a\u0301\u0323b", "a\u0323\u0301b", "\u1ea1\u0301b", "\u1ea1\u0301b"},
		{"a\u0301\u1abfb", "a\u0301\u1abfb", "\u00e1\u1abfb", "\u00e1\u1abfb"}, // a mark of Unicode 13
		{"a\u1abf\u0301b", "a\u1abf\u0301b", "a\u1abf\u0301b", "a\u1abf\u0301b"},
		{"\u0344\u0323", "\u0323\u0308\u0301", "\u0323\u0308\u0301", "\u0323\u0308\u0301"},
		{"\u1100\u1161\u11a8c", "\u1100\u1161\u11a8c", "\uac01c", "\uac01c"},
		{"\u212b\u0323x", "A\u0323\u030ax", "\u1ea0\u030ax", "\u1ea0\u030ax"},
		{"\ufb01\u00bd\u32ff", "\ufb01\u00bd\u32ff", "\ufb01\u00bd\u32ff", "fi1\u20442\u32ff"},
		{"a\u0323\u0302\u0301z", "a\u0323\u0302\u0301z", "\u1ead\u0301z", "\u1ead\u0301z"},
		{"\u0301a", "\u0301a", "\u0301a", "\u0301a"},
		{"e\u033d\u0301 a\u0301", "e\u033d\u0301 a\u0301", "e\u033d\u0301 \u00e1", "e\u033d\u0301 \u00e1"},
		{"\U00011935\U00011930", "\U00011935\U00011930", "\U00011935\U00011930", "\U00011935\U00011930"},
	} {
		for form, want := range map[string]string{"NFD": c.nfd, "NFC": c.nfc, "NFKC": c.nfkc} {
			// A model that knows no token returns what it is given as one unknown token.
			tok, err := tokenizer.Parse(fmt.Appendf(nil,
				`{"normalizer": {"type": %q}, "model": {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0]]}}`, form))
			if err != nil {
				t.Fatal(err)
			}
			e, err := tok.Encode(c.text, tokenizer.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if len(e.Tokens) != 1 || e.Tokens[0] != want {
				t.Errorf("%s of %+q: %+q, want %+q", form, c.text, e.Tokens, want)
			}
		}
	}
}

// TestWholeWordsFirst: with ignore_merges a word that is a token is that token, though no pairs lead to it.
func TestWholeWordsFirst(t *testing.T) {
	for pre, want := range map[string][]uint32{
		`null`: {3}, `{"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}`: {3},
	} {
		for _, ignore := range []bool{true, false} {
			tok, err := tokenizer.Parse(fmt.Appendf(nil, `{"pre_tokenizer": %s, "model": {"type": "BPE", "ignore_merges": %v,
				"vocab": {"a": 0, "b": 1, "c": 2, "abc": 3}, "merges": []}}`, pre, ignore))
			if err != nil {
				t.Fatal(err)
			}
			e, err := tok.Encode("abc", tokenizer.Options{})
			if err != nil {
				t.Fatal(err)
			}
			w := want
			if !ignore {
				w = []uint32{0, 1, 2}
			}
			if !slices.Equal(e.IDs, w) {
				t.Errorf("%s, ignore_merges %v: %v, want %v", pre, ignore, e.IDs, w)
			}
		}
	}
}
