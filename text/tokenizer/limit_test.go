package tokenizer_test

import (
	"slices"
	"testing"

	"github.com/optimem/optimem/text/tokenizer"
)

// TestMaxTokens: a caller's limit counts in the place of the file's, added tokens included, at the end at which the file
// cuts; what was left out is counted.
func TestMaxTokens(t *testing.T) {
	file := func(truncation string) *tokenizer.Tokenizer {
		tok, err := tokenizer.Parse([]byte(`{"truncation": ` + truncation + `,
			"pre_tokenizer": {"type": "Whitespace"}, "model": {"type": "WordLevel", "unk_token": "u",
			"vocab": {"<": 0, ">": 1, "a": 2, "b": 3, "c": 4, "d": 5, "u": 6}},
			"post_processor": {"type": "BertProcessing", "cls": ["<", 0], "sep": [">", 1]}}`))
		if err != nil {
			t.Fatal(err)
		}
		return tok
	}
	left := `{"direction": "Left", "max_length": 9, "strategy": "LongestFirst", "stride": 0}`
	for _, c := range []struct {
		truncation string
		options    tokenizer.Options
		want       []uint32
		cut        int
	}{
		{"null", tokenizer.Options{MaxTokens: 5, AddSpecial: true}, []uint32{0, 2, 3, 4, 1}, 1},
		{"null", tokenizer.Options{MaxTokens: 3}, []uint32{2, 3, 4}, 1},
		{"null", tokenizer.Options{MaxTokens: 6, AddSpecial: true}, []uint32{0, 2, 3, 4, 5, 1}, 0},
		{"null", tokenizer.Options{MaxTokens: 1, AddSpecial: true}, []uint32{0, 1}, 4},
		{left, tokenizer.Options{MaxTokens: 3, AddSpecial: true}, []uint32{0, 5, 1}, 3},
		{left, tokenizer.Options{Truncate: true}, []uint32{2, 3, 4, 5}, 0},
	} {
		got, err := file(c.truncation).Encode("a b c d", c.options)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got.IDs, c.want) || got.Cut != c.cut {
			t.Errorf("%s, %+v: %v and %d cut, want %v and %d", c.truncation, c.options, got.IDs, got.Cut, c.want, c.cut)
		}
	}
	pair, err := file("null").EncodePair("a b c", "d d", tokenizer.Options{MaxTokens: 6, AddSpecial: true})
	if err != nil || len(pair.IDs) != 6 || pair.Cut != 2 {
		t.Errorf("a pair: %v, %d cut, %v", pair.IDs, pair.Cut, err)
	}
}
