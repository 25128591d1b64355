package tokenizer_test

import (
	"slices"
	"testing"

	"github.com/optimem/optimem/text/tokenizer"
)

// TestGGUFWords: merges apply within words alone, and what words are follows from the file's name for them. Python's
// package
// tokenizers, with llama.cpp's patterns, gave the tokens.
func TestGGUFWords(t *testing.T) {
	tokens := []string{
		"a", "b", "1", "2", "3", "4", ".", "!", "Ġ", "Ċ", "Ã", "©", "ä", "¸", "Ń", "âĦ", "â", "Ħ", "ª", "ab", "12",
		"34", "Ġa", "!!",
		"Ċa", "Ã©", "ä¸Ń", "ä¸", "aÃ©", ".a", "Ġ!", "234", "ĠĠ", "Ã©ä¸Ń", "aâĦª", "âĦª",
	}
	merges := []string{
		"a b", "Ġ a", "! !", "Ċ a", "Ã ©", "ä ¸", "ä¸ Ń", "a Ã©", ". a", "Ġ !", "3 4", "2 34", "1 2", "Ġ Ġ", "Ã© ä¸Ń",
		"â Ħ", "âĦ ª",
		"a âĦª",
	}
	const text = "ab 1234 !!.a\nab aé中中é a\u212a  a\n"
	for pre, want := range map[string][]string{
		"glm4": {"ab", "Ġ", "12", "3", "4", "Ġ", "!!", ".", "a", "Ċ", "ab", "Ġa", "Ã©ä¸Ń", "ä¸Ń", "Ã©", "Ġa",
			"âĦª", "Ġ", "Ġa", "Ċ"},
		"chatglm-bpe": {"ab", "Ġ", "12", "3", "4", "Ġ", "!!", ".", "a", "Ċ", "ab", "Ġa", "Ã©ä¸Ń", "ä¸Ń", "Ã©", "Ġa",
			"âĦª", "Ġ", "Ġa", "Ċ"},
		"exaone4": {"ab", "Ġ", "1", "234", "Ġ", "!!", ".", "a", "Ċ", "ab", "Ġa", "Ã©ä¸Ń", "ä¸Ń", "Ã©", "Ġa",
			"âĦª", "Ġ", "Ġa", "Ċ"},
		"deepseek-llm": {"ab", "Ġ", "1", "234", "Ġ", "!!", ".", "a", "Ċ", "ab", "Ġa", "Ã©", "ä¸Ń", "ä¸Ń", "Ã©", "Ġa",
			"âĦª", "Ġ", "Ġa", "Ċ"},
	} {
		tok, err := tokenizer.FromGGUF(map[string]any{
			"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.merges": merges, "tokenizer.ggml.model": "gpt2",
			"tokenizer.ggml.pre": pre,
		})
		if err != nil {
			t.Errorf("%s: %v", pre, err)
			continue
		}
		var got []string
		for _, id := range ids(t, tok, text, tokenizer.Options{}) {
			got = append(got, tokens[id])
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", pre, got, want)
		}
	}
}
