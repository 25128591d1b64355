package tokenizer_test

import (
	"encoding/base64"
	"errors"
	"strings"
	"testing"
	"testing/fstest"
	"unicode/utf8"

	"github.com/optimem/optimem/text/tokenizer"
)

// try encodes and decodes; what a file can bring about is errors of this package, and offsets that lie in the text.
func try(t *testing.T, tok *tokenizer.Tokenizer, err error, text string) {
	t.Helper()
	var format *tokenizer.FormatError
	var unsupported *tokenizer.UnsupportedError
	if err != nil {
		if !errors.As(err, &format) && !errors.As(err, &unsupported) {
			t.Fatalf("an error without a class: %v", err)
		}
		return
	}
	e, err := tok.Encode(text, tokenizer.Options{AddSpecial: true, Truncate: true})
	if err != nil {
		var bad *tokenizer.TextError
		if !errors.As(err, &bad) && !errors.As(err, &unsupported) {
			t.Fatalf("an error without a class: %v", err)
		}
		return
	}
	tok.Decode(e.IDs, false)
	s := tok.Stream(false)
	for _, id := range e.IDs {
		s.Write(id)
	}
	s.Flush()
}

// FuzzParse: no tokenizer.json leads to a panic, an error without a class, or no end.
func FuzzParse(f *testing.F) {
	for _, file := range files(f) {
		// The large parts would make every step slow, and say nothing about the others.
		if len(file) < 6000 {
			f.Add(string(file), "it'S  <s> né 12\n")
		}
	}
	for _, part := range []string{
		`"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFKC"}, {"type": "Strip", "strip_left": true, "strip_right": true}]}`,
		`"normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "lowercase": true}`,
		`"normalizer": {"type": "Replace", "pattern": {"Regex": "a*"}, "content": "b"}`,
		`"normalizer": {"type": "Prepend", "prepend": ""}`, `"normalizer": {"type": "ByteLevel"}`,
		`"normalizer": {"type": "Precompiled", "precompiled_charsmap": "BAAAAAAAAAA="}`,
		`"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "\\s+(?!\\S)|a"}, "behavior": "Contiguous", "invert": true}`,
		`"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": true}`, `"pre_tokenizer": {"type": "UnicodeScripts"}`,
		`"pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first"}`,
		`"post_processor": {"type": "RobertaProcessing", "cls": ["a", 0], "sep": ["b", 1], "trim_offsets": true, "add_prefix_space": true}`,
		`"decoder": {"type": "Sequence", "decoders": [{"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 2}, {"type": "CTC"}]}`,
		`"added_tokens": [{"id": 9, "content": "a", "lstrip": true, "rstrip": true, "normalized": true}]`,
	} {
		f.Add(`{"model": {"type": "BPE", "unk_token": "a", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}, `+part+`}`, "ab \u0301é ￿日")
	}
	f.Add(`{"model": {"type": "Unigram", "unk_id": 0, "vocab": [["a", 0], ["ab", -1]], "byte_fallback": true}}`, "abba")
	f.Fuzz(func(t *testing.T, file, text string) {
		if len(file) > 1<<13 || len(text) > 1<<8 {
			return
		}
		tok, err := tokenizer.Parse([]byte(file))
		try(t, tok, err, text)
	})
}

// FuzzOtherFiles: nor does any other file.
func FuzzOtherFiles(f *testing.F) {
	var all others
	readFixture(f, "others.json.gz", &all)
	model, err := base64.StdEncoding.DecodeString(all.Sentencepiece["bpe-bytes"].Model)
	if err != nil {
		f.Fatal(err)
	}
	f.Add("tokenizer.model", string(model[:2000]), "a b")
	f.Add("vocab.txt", "[UNK]\n[CLS]\n[SEP]\na\n##b", "ab")
	f.Add("cl100k_base.tiktoken", strings.Join(strings.SplitAfter(all.Ranks, "\n")[:300], ""), "a b")
	f.Add("tekken.json", `{"config": {"pattern": "a", "default_vocab_size": 9, "default_num_special_tokens": 2}, "vocab": []}`, "a")
	f.Add("vocab.json", `{"a": 0}`, "a")
	f.Fuzz(func(t *testing.T, name, data, text string) {
		if len(data) > 1<<14 || len(text) > 1<<8 || name == "" || strings.ContainsAny(name, "/\\\x00") || name == "." || name == ".." ||
			!utf8.ValidString(name) {
			return
		}
		dir := fstest.MapFS{name: {Data: []byte(data)}, "merges.txt": {Data: []byte("a b")}}
		tok, err := tokenizer.OpenFS(dir)
		if err != nil && strings.Contains(err.Error(), "file does not exist") {
			return
		}
		try(t, tok, err, text)
	})
}
