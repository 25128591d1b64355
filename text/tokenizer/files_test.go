package tokenizer_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/optimem/optimem/text/tokenizer"
)

type others struct {
	Texts         []string
	Sentencepiece map[string]struct {
		Model   string
		IDs     [][]uint32
		Decoded []*string
	}
	Tiktoken map[string]struct {
		Pattern string
		IDs     [][]uint32
	}
	Ranks   string
	Special map[string]uint32
}

func ids(t testing.TB, tok *tokenizer.Tokenizer, text string, o tokenizer.Options) []uint32 {
	t.Helper()
	e, err := tok.Encode(text, o)
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return e.IDs
}

// TestEqualsSentencePiece: ids and decoded text of a tokenizer.model are sentencepiece's.
func TestEqualsSentencePiece(t *testing.T) {
	var want others
	readFixture(t, "others.json.gz", &want)
	for name, w := range want.Sentencepiece {
		model, err := base64.StdEncoding.DecodeString(w.Model)
		if err != nil {
			t.Fatal(err)
		}
		tok, err := tokenizer.OpenFS(fstest.MapFS{"tokenizer.model": {Data: model}})
		if err != nil {
			t.Fatal(err)
		}
		for i, text := range want.Texts {
			// Control pieces in a text are plain text to sentencepiece.
			got := ids(t, tok, text, tokenizer.Options{SpecialAsText: true})
			if !slices.Equal(got, w.IDs[i]) {
				t.Errorf("%s: %q: %v, recorded %v", name, text, got, w.IDs[i])
			}
			if d := w.Decoded[i]; d != nil && tok.Decode(w.IDs[i], false) != *d {
				t.Errorf("%s: decoded %q, recorded %q", name, tok.Decode(w.IDs[i], false), *d)
			}
		}
		if name == "bpe-bytes" {
			sameAsGGUF(t, tok, want.Texts)
		}
	}
}

// sameAsGGUF: the same pieces under a GGUF file's keys give the same ids.
func sameAsGGUF(t *testing.T, tok *tokenizer.Tokenizer, texts []string) {
	t.Helper()
	meta := map[string]any{"tokenizer.ggml.model": "llama", "tokenizer.ggml.add_bos_token": false}
	var tokens []string
	var scores []float32
	var types []int32
	for id := range uint32(tok.VocabSize()) {
		s, ok := tok.Token(id)
		if !ok {
			t.Fatalf("no token %d of %d", id, tok.VocabSize())
		}
		kind := int32(1)
		switch {
		case s == "<unk>":
			kind = 2
		case s == "<s>" || s == "</s>":
			kind = 3
		case strings.HasPrefix(s, "<0x"):
			kind = 6
		}
		tokens, scores, types = append(tokens, s), append(scores, -float32(id)), append(types, kind)
	}
	meta["tokenizer.ggml.tokens"], meta["tokenizer.ggml.scores"], meta["tokenizer.ggml.token_type"] = tokens, scores, types
	meta["tokenizer.ggml.bos_token_id"] = uint32(1)
	gg, err := tokenizer.FromGGUF(meta)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range texts {
		o := tokenizer.Options{SpecialAsText: true, AddSpecial: true}
		if got, want := ids(t, gg, text, o), ids(t, tok, text, o); !slices.Equal(got, want) {
			t.Errorf("GGUF: %q: %v, sentencepiece %v", text, got, want)
		}
	}
	delete(meta, "tokenizer.ggml.add_bos_token")
	if gg, err = tokenizer.FromGGUF(meta); err != nil {
		t.Fatal(err)
	}
	if got := ids(t, gg, "a", tokenizer.Options{AddSpecial: true}); got[0] != 1 {
		t.Errorf("a llama vocabulary begins with %d, want the beginning of a text", got[0])
	}
}

// TestEqualsTiktoken: ids of a .tiktoken file and of the same tokens as tekken.json are tiktoken's.
func TestEqualsTiktoken(t *testing.T) {
	var want others
	readFixture(t, "others.json.gz", &want)
	for name, w := range want.Tiktoken {
		tok, err := tokenizer.ParseTiktoken([]byte(want.Ranks), w.Pattern, want.Special)
		if err != nil {
			t.Fatal(err)
		}
		tekken, err := tokenizer.OpenFS(fstest.MapFS{"tekken.json": {Data: tekkenOf(t, want.Ranks, w.Pattern)}})
		if err != nil {
			t.Fatal(err)
		}
		for i, text := range want.Texts {
			got := ids(t, tok, text, tokenizer.Options{})
			if !slices.Equal(got, w.IDs[i]) {
				t.Errorf("%s: %q: %v, recorded %v", name, text, got, w.IDs[i])
			}
			if d := tok.Decode(w.IDs[i], false); d != text {
				t.Errorf("%s: decoded %q, want %q", name, d, text)
			}
			if strings.Contains(text, "<") {
				continue
			}
			for j, id := range ids(t, tekken, text, tokenizer.Options{AddSpecial: true}) {
				if j == 0 && id != 1 || j > 0 && id != w.IDs[i][j-1]+30 {
					t.Errorf("tekken: %q: token %d is %d", text, j, id)
				}
			}
		}
	}
}

func tekkenOf(t *testing.T, ranks, pattern string) []byte {
	t.Helper()
	type entry struct {
		Rank  int    `json:"rank"`
		Bytes string `json:"token_bytes"`
	}
	var vocab []entry
	for i, line := range strings.Split(strings.TrimSpace(ranks), "\n") {
		token, _, _ := strings.Cut(line, " ")
		vocab = append(vocab, entry{i, token})
	}
	b, err := json.Marshal(map[string]any{"vocab": vocab, "config": map[string]any{
		"pattern": pattern, "default_vocab_size": len(vocab) + 30, "default_num_special_tokens": 30,
	}})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// byID are the tokens of a model in a tokenizer.json, in order.
func byID(vocab map[string]uint32) []string {
	var tokens []string
	for s := range vocab {
		tokens = append(tokens, s)
	}
	sort.Slice(tokens, func(i, j int) bool { return vocab[tokens[i]] < vocab[tokens[j]] })
	return tokens
}

// TestOtherFilesOfTheSameModel: vocab.txt, vocab.json with merges.txt and GGUF's keys give what tokenizer.json gives.
func TestOtherFilesOfTheSameModel(t *testing.T) {
	var want expectations
	readFixture(t, "expected.json.bz2", &want)
	all := files(t)
	for _, name := range []string{"bert", "gpt2", "qwen", "clip", "roberta"} {
		var file struct {
			Model struct {
				Vocab  map[string]uint32
				Merges [][2]string
			}
		}
		if err := json.Unmarshal(all[name], &file); err != nil {
			t.Fatal(err)
		}
		tok, err := tokenizer.Parse(all[name])
		if err != nil {
			t.Fatal(err)
		}
		tokens := byID(file.Model.Vocab)
		var merges []string
		for _, m := range file.Model.Merges {
			merges = append(merges, m[0]+" "+m[1])
		}
		vocab, err := json.Marshal(file.Model.Vocab)
		if err != nil {
			t.Fatal(err)
		}
		dir := fstest.MapFS{
			"vocab.json": {Data: vocab}, "merges.txt": {Data: []byte("#version: 0.2\n" + strings.Join(merges, "\n") + "\n")},
		}
		conf := map[string]string{
			"gpt2": `{"added_tokens_decoder": {"0": {"content": "<|end|>", "special": true}}}`,
			"qwen": `{"tokenizer_class": "Qwen2Tokenizer", "added_tokens_decoder": {"0": {"content": "<|end|>", "special": true}}}`,
			"roberta": `{"tokenizer_class": "RobertaTokenizerFast", "add_prefix_space": true, "bos_token": {"content": "<s>"},
				"added_tokens_decoder": {"0": {"content": "<s>", "special": true}, "2": {"content": "</s>", "special": true},
				"1": {"content": "<pad>", "special": true}, "3": {"content": "<unk>", "special": true}, "4": {"content": "<mask>", "special": true},
				"900": {"content": "[MASK]", "special": true, "lstrip": true}}}`,
		}[name]
		opts := tokenizer.Options{AddSpecial: true}
		switch name {
		case "bert":
			dir = fstest.MapFS{"vocab.txt": {Data: []byte(strings.Join(tokens, "\n"))}}
		case "clip":
			// Its special tokens have other names in the fixture.
			named := make(map[string]uint32)
			for s, id := range file.Model.Vocab {
				named[map[string]string{"<|start|>": "<|startoftext|>", "<|end|>": "<|endoftext|>"}[s]+strings.TrimSuffix(strings.TrimPrefix(
					s, "<|start|>"), "<|end|>")] = id
			}
			if vocab, err = json.Marshal(named); err != nil {
				t.Fatal(err)
			}
			dir["vocab.json"].Data = vocab
			opts.SpecialAsText = true
		}
		if conf != "" {
			dir["tokenizer_config.json"] = &fstest.MapFile{Data: []byte(conf)}
		}
		other, err := tokenizer.OpenFS(dir)
		if err != nil {
			t.Fatal(err)
		}
		gg := ggufOf(t, name, tokens, merges)
		for _, text := range want.Texts {
			if strings.Contains(text, "<|") {
				continue
			}
			w := ids(t, tok, text, opts)
			if got := ids(t, other, text, opts); !slices.Equal(got, w) {
				t.Errorf("%s: %q: %v, want %v", name, text, got, w)
			}
			if d := cmp.Diff(tok.Decode(w, true), other.Decode(w, true)); d != "" && name != "clip" {
				t.Errorf("%s: decoded %s", name, d)
			}
			if gg == nil {
				continue
			}
			o := tokenizer.Options{SpecialAsText: true}
			if got, w := ids(t, gg, text, o), ids(t, tok, text, o); !slices.Equal(got, w) && name != "qwen" {
				t.Errorf("%s as GGUF: %q: %v, want %v", name, text, got, w)
			}
		}
	}
}

// ggufOf is a model under a GGUF file's keys.
func ggufOf(t *testing.T, name string, tokens, merges []string) *tokenizer.Tokenizer {
	t.Helper()
	meta := map[string]any{"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.merges": merges}
	switch name {
	case "gpt2":
		meta["tokenizer.ggml.model"], meta["tokenizer.ggml.pre"] = "gpt2", "gpt-2"
	case "bert":
		var marked []string
		for _, s := range tokens {
			switch rest, goesOn := strings.CutPrefix(s, "##"); {
			case goesOn:
				s = rest
			case !strings.HasPrefix(s, "[") || !strings.HasSuffix(s, "]") || len(s) < 2:
				s = "▁" + s
			}
			marked = append(marked, s)
		}
		meta["tokenizer.ggml.model"], meta["tokenizer.ggml.tokens"] = "bert", marked
	default:
		return nil
	}
	tok, err := tokenizer.FromGGUF(meta)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// TestSpecialAsText: a stranger's text cannot contain special tokens if it is told so.
func TestSpecialAsText(t *testing.T) {
	tok, err := tokenizer.Parse(files(t)["llama3"])
	if err != nil {
		t.Fatal(err)
	}
	if got := ids(t, tok, "a<|end|>", tokenizer.Options{}); !slices.Contains(got, 0) {
		t.Errorf("%v has no special token", got)
	}
	got := ids(t, tok, "a<|end|>", tokenizer.Options{SpecialAsText: true})
	if slices.Contains(got, 0) || tok.Decode(got, true) != "a<|end|>" {
		t.Errorf("%v is %q", got, tok.Decode(got, true))
	}
}

// TestInvalidTextIsRepaired: bytes that are no text are encoded as U+FFFD, and offsets are of the bytes that came.
func TestInvalidTextIsRepaired(t *testing.T) {
	for _, name := range []string{"gpt2", "llama2", "bert-cased", "xlmr"} {
		tok, err := tokenizer.Parse(files(t)[name])
		if err != nil {
			t.Fatal(err)
		}
		e, err := tok.Encode("a \xff\xc3b", tokenizer.Options{})
		if err != nil {
			t.Fatal(err)
		}
		w := ids(t, tok, "a \uFFFD\uFFFDb", tokenizer.Options{})
		if !slices.Equal(e.IDs, w) {
			t.Errorf("%s: %v, want %v", name, e.IDs, w)
		}
		if last := e.Offsets[len(e.Offsets)-1]; last.End != 5 {
			t.Errorf("%s: the last token ends at %d of 5 bytes", name, last.End)
		}
	}
}

// TestNamesWhatIsWrong: files that are wrong, or ask for what is not here, end in an error of the right class that says where.
func TestNamesWhatIsWrong(t *testing.T) {
	bpe := func(rest string) string {
		return `{"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]` + rest
	}
	double := `{"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}`
	deep := strings.Repeat(`{"type": "Sequence", "normalizers": [`, 3000) + strings.Repeat("]}", 3000)
	for i, c := range []struct {
		file, path  string
		unsupported bool
	}{
		{``, "", false}, {`{`, "", false}, {`[]`, "", false}, {`{}`, "model", false}, {`{"model": 3}`, "model", false},
		{`{"model": {"type": "BPE"}}`, "model", false}, {`{"model": {"type": "Markov"}}`, "model.type", true},
		{`{"version": "2.0", "model": {}}`, "version", true},
		{bpe(`, "dropout": 0.1}}`), "model.dropout", true},
		{`{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a b"]}}`, "model.merges", false},
		{`{"model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": ["a b"]}}`, "model.merges", false},
		{`{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a"]}}`, "model.merges[0]", false},
		{`{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [["a"]]}}`, "model.merges[0]", false},
		{`{"model": {"type": "BPE", "vocab": {"a": -1}, "merges": []}}`, "model.vocab", false},
		{`{"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "": 2}, "merges": [["a", ""]], "continuing_subword_prefix": "x"}}`, "model.merges", false},
		{`{"model": {"type": "Unigram", "vocab": [["a", 0.0]], "unk_id": 1}}`, "model.unk_id", false},
		{`{"model": {"type": "Unigram", "vocab": [["a"]]}}`, "model.vocab[0]", false},
		{`{"model": {"type": "Unigram", "vocab": [[0, "a"]]}}`, "model.vocab", false},
		{`{"model": {"type": "WordPiece", "vocab": {}}}`, "model", false},
		{`{"model": {"type": "WordLevel", "vocab": {}}}`, "model", false},
		{bpe(`}, "normalizer": {"type": "Magic"}}`), "normalizer.type", true},
		{bpe(`}, "normalizer": {}}`), "normalizer", false},
		{bpe(`}, "normalizer": ` + deep + `}`), "normalizer.normalizers[0].no", false},
		{bpe(`}, "normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}}`), "normalizer.precompiled_charsmap", false},
		{bpe(`}, "normalizer": {"type": "Precompiled", "precompiled_charsmap": "////fw=="}}`), "normalizer.precompiled_charsmap", false},
		{bpe(`}, "pre_tokenizer": {"type": "Split", "behavior": "Isolated", "pattern": {"Regex": "("}}}`), "pre_tokenizer.pattern", false},
		{bpe(`}, "pre_tokenizer": {"type": "Split", "behavior": "Isolated", "pattern": {"Regex": "(a)\\1"}}}`), "pre_tokenizer.pattern", true},
		{bpe(`}, "pre_tokenizer": {"type": "Split", "behavior": "Isolated"}}`), "pre_tokenizer", false},
		{bpe(`}, "pre_tokenizer": {"type": "Split", "behavior": "Odd", "pattern": {"String": "a"}}}`), "pre_tokenizer.behavior", true},
		{bpe(`}, "pre_tokenizer": {"type": "FixedLength", "length": 0}}`), "pre_tokenizer.length", false},
		{bpe(`}, "pre_tokenizer": {"type": "Metaspace", "replacement": "ab"}}`), "pre_tokenizer.replacement", false},
		{bpe(`}, "pre_tokenizer": {"type": "Metaspace", "replacement": "a", "add_prefix_space": false, "prepend_scheme": "always"}}`), "pre_tokenizer", false},
		{bpe(`}, "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "x"}}]}}`), "post_processor.single[0]", false},
		{bpe(`}, "post_processor": {"type": "TemplateProcessing", "single": [{"Sequence": {"id": "B"}}]}}`), "post_processor.single[0]", false},
		{bpe(`}, "post_processor": {"type": "BertProcessing", "cls": ["a"]}}`), "post_processor", false},
		{bpe(`}, "decoder": {"type": "Strip", "content": ""}}`), "decoder.content", false},
		{bpe(`}, "truncation": {"max_length": 5, "strategy": "Odd"}}`), "truncation.strategy", true},
		{bpe(`}, "truncation": {"max_length": -5, "strategy": "OnlyFirst"}}`), "truncation", false},
		{bpe(`}, "padding": {"strategy": {"Fixed": 99999999}, "direction": "Left"}}`), "padding", true},
		{bpe(`}, "added_tokens": [{"content": "a"}]}`), "added_tokens[0]", false},
		{bpe(`}, "normalizer": {"type": "Sequence", "normalizers": [` + strings.Repeat(double+", ", 20) + double + `]}}`), "normalizer.", true},
		{bpe(`}, "normalizer": {"type": "Prepend", "prepend": "` + strings.Repeat("a", 300) + `"}}`), "normalizer", true},
		{bpe(`}, "decoder": {"type": "Sequence", "decoders": [` + strings.Repeat(double+", ", 20) + double + `]}}`), "decoder.", true},
		{bpe(`, "continuing_subword_prefix": "` + strings.Repeat("a", 300) + `"}}`), "model", true},
		{`{"model": {"type": "Unigram", "vocab": [["` + strings.Repeat("a", 5000) + `", 0]]}}`, "model.vocab[0]", true},
		{`{"model": {"type": "WordPiece", "vocab": {"a": 0}, "unk_token": "a", "continuing_subword_prefix": "", "max_input_chars_per_word": 100000}}`, "model.max", true},
	} {
		_, err := tokenizer.Parse([]byte(c.file))
		var bad *tokenizer.FormatError
		var refused *tokenizer.UnsupportedError
		path := "?"
		switch {
		case errors.As(err, &bad):
			path = bad.Path
		case errors.As(err, &refused):
			path = refused.Path
		}
		if (refused != nil) != c.unsupported || !strings.HasPrefix(path, c.path) {
			t.Errorf("%d: %.100s: at %s: %v", i, c.file, path, err)
		}
	}
	for name, data := range map[string]string{
		"tokenizer.model": "\x0a\xff", "tekken.json": `{"config": {"pattern": "a", "default_num_special_tokens": -1}, "vocab": []}`,
		"cl100k_base.tiktoken": "YQ==", "vocab.txt": "a\nb", "other.tiktoken": "", "tokenizer.json": "{",
	} {
		_, err := tokenizer.OpenFS(fstest.MapFS{name: {Data: []byte(data)}})
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, meta := range []map[string]any{
		{}, {"tokenizer.ggml.tokens": []string{"a"}}, {"tokenizer.ggml.tokens": []string{"a"}, "tokenizer.ggml.model": "llama"},
		{"tokenizer.ggml.tokens": []string{"a"}, "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "never heard"},
		{"tokenizer.ggml.tokens": []string{"a"}, "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.token_type": []int32{1, 2}},
	} {
		if _, err := tokenizer.FromGGUF(meta); err == nil {
			t.Errorf("%v: no error", meta)
		}
	}
}

// TestLongWordsTakeLinearTime: a million characters without spaces, for every kind of model.
func TestLongWordsTakeLinearTime(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	long := strings.Repeat("lowestnewerdonthaveé日", 50000)
	for name, file := range files(t) {
		tok, err := tokenizer.Parse(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{long, strings.Repeat(" ", 300000) + "x", strings.Repeat("a", 300000), strings.Repeat("<extra>", 40000)} {
			e, err := tok.Encode(text, tokenizer.Options{})
			if err != nil {
				var bad *tokenizer.TextError
				if !errors.As(err, &bad) {
					t.Errorf("%s: %v", name, err)
				}
				continue
			}
			if len(e.IDs) != len(e.Offsets) || len(e.IDs) != len(e.Tokens) {
				t.Errorf("%s: %d ids, %d offsets", name, len(e.IDs), len(e.Offsets))
			}
		}
	}
}

// TestConcurrentUse: many goroutines may share a tokenizer.
func TestConcurrentUse(t *testing.T) {
	tok, err := tokenizer.Parse(files(t)["llama2"])
	if err != nil {
		t.Fatal(err)
	}
	var want expectations
	readFixture(t, "expected.json.bz2", &want)
	done := make(chan error)
	for range 4 {
		go func() {
			for i, text := range want.Texts {
				e, err := tok.Encode(text, tokenizer.Options{})
				if err == nil && !slices.Equal(e.IDs, want.Tokenizers["llama2"].Plain[i].IDs) {
					err = fmt.Errorf("%q: %v", text, e.IDs)
				}
				if err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for range 4 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
