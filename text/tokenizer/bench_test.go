package tokenizer_test

import (
	"os"
	"strings"
	"testing"

	"github.com/optimem/optimem/text/tokenizer"
)

// BenchmarkEncode encodes a text of about a megabyte with small tokenizers of the common kinds.
func BenchmarkEncode(b *testing.B) {
	all := files(b)
	text := strings.Repeat("The quick brown fox jumps over the lazy dog, doesn't it? In 1984, naïve prices rose 3.14%.\n"+
		"func f(x int) int {\n\treturn x + 41 // 你好，世界\n}\n", 7000)
	for _, name := range []string{"llama3", "qwen", "o200k", "llama2", "gemma", "bert", "t5", "gpt2"} {
		tok, err := tokenizer.Parse(all[name])
		if err != nil {
			b.Fatal(err)
		}
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				if _, err := tok.Encode(text, tokenizer.Options{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkEncodeFile encodes the file OPTIMEM_BENCH_TEXT with the tokenizer OPTIMEM_BENCH_TOKENIZER, on one thread.
func BenchmarkEncodeFile(b *testing.B) {
	name := os.Getenv("OPTIMEM_BENCH_TOKENIZER")
	if name == "" {
		b.Skip("OPTIMEM_BENCH_TOKENIZER is not set")
	}
	text, err := os.ReadFile(os.Getenv("OPTIMEM_BENCH_TEXT"))
	if err != nil {
		b.Fatal(err)
	}
	tok, err := tokenizer.Open(name)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("open", func(b *testing.B) {
		for b.Loop() {
			if _, err := tokenizer.Open(name); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("encode", func(b *testing.B) {
		b.SetBytes(int64(len(text)))
		for b.Loop() {
			e, err := tok.Encode(string(text), tokenizer.Options{})
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(len(e.IDs)), "tokens")
		}
	})
}
