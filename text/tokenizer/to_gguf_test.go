package tokenizer_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/optimem/optimem/text/tokenizer"
)

// TestToGGUF: a tokenizer that goes into a GGUF file makes the same numbers of texts when it is read from there, and
// those that llama.cpp would compute otherwise are refused.
func TestToGGUF(t *testing.T) {
	texts := []string{
		"Hello, world! It's 12345 o'clock.", "  two  spaces\n\n\tand tabs ", "Straße, naïve, 北京 и мир 🙂", "don't WON'T I'll x1y22z333 !!! ...",
	}
	const embeddings = 210_000
	written := map[string]string{
		"gpt2": "gpt-2", "llama3": "llama-bpe", "qwen": "qwen2", "o200k": "gpt-4o", "deepseek": "deepseek-v3",
	}
	seen := 0
	for name, raw := range files(t) {
		keys, err := tokenizer.ToGGUF(raw, embeddings)
		pre, ok := written[name]
		if !ok {
			var lacks *tokenizer.UnsupportedError
			if err == nil && keys["tokenizer.ggml.pre"] == "gpt-2" { // differs in nothing that GGUF files have
				continue
			}
			if !errors.As(err, &lacks) {
				t.Errorf("%s: %v, %v", name, keys["tokenizer.ggml.pre"], err)
			}
			continue
		}
		seen++
		if err != nil || keys["tokenizer.ggml.pre"] != pre {
			t.Errorf("%s: words as %v, %v", name, keys["tokenizer.ggml.pre"], err)
			continue
		}
		tokens, types := keys["tokenizer.ggml.tokens"].([]string), keys["tokenizer.ggml.token_type"].([]int32)
		if len(tokens) != embeddings || len(types) != embeddings || types[embeddings-1] != 5 || !slices.Contains(types, 3) {
			t.Errorf("%s: %d tokens, the last of the type %d", name, len(tokens), types[embeddings-1])
		}
		before, err := tokenizer.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		after, err := tokenizer.FromGGUF(keys)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, text := range texts {
			want, err := before.Encode(text, tokenizer.Options{})
			if err != nil {
				t.Fatal(err)
			}
			got, err := after.Encode(text, tokenizer.Options{})
			if err != nil || !slices.Equal(got.IDs, want.IDs) {
				t.Errorf("%s: %q is %v, not %v: %v", name, text, got.IDs, want.IDs, err)
			}
		}
		if _, err := tokenizer.ToGGUF(raw, 5); err == nil {
			t.Errorf("%s: a file of five tokens has all", name)
		}
	}
	if seen != len(written) {
		t.Errorf("%d tokenizers were written", seen)
	}
	for _, bad := range []string{"", "[]", `{"model": {"type": "BPE", "vocab": {"a": -1}}, "pre_tokenizer": {"type": "ByteLevel"}}`,
		`{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [["a"]]}, "pre_tokenizer": {"type": "ByteLevel"}}`} {
		if _, err := tokenizer.ToGGUF([]byte(bad), 10); err == nil || strings.Contains(err.Error(), "BUG") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
