package generate

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/optimem/optimem/tensor"
)

// lettersFolder is a folder of files; those of a model with letters are there unless they are given.
func lettersFolder(t *testing.T, files map[string]string) string {
	t.Helper()
	folder := t.TempDir()
	all := map[string]string{
		"config.json":              `{"architectures": ["HubertForCTC"]}`,
		"preprocessor_config.json": `{"feature_extractor_type": "Wav2Vec2FeatureExtractor"}`,
		"vocab.json":               `{"<pad>": 0, "|": 1, "A": 2, "B": 3, ".": 4, "N": 5, "'": 6, "T": 7}`,
	}
	for name, text := range files {
		all[name] = text
	}
	for name, text := range all {
		if text == "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

// said are logits of which each moment's likeliest letter is the one given.
func said(ids ...int) *tensor.Tensor {
	const letters = 10
	x := make([]float32, len(ids)*letters)
	for i := range x {
		x[i] = -float32(i%letters) - 1
	}
	for at, id := range ids {
		x[at*letters+id] = 1
	}
	return tensor.Of(x, 1, len(ids), letters)
}

// TestLetters: letters that several moments say are one, unless a blank is between them; delimiters are spaces; numbers
// without a letter are the unknown one; what files say of the text as a whole is done.
func TestLetters(t *testing.T) {
	for _, c := range []struct {
		files map[string]string
		ids   []int
		want  string
	}{
		{nil, []int{0, 0, 2, 2, 0, 2, 3, 3, 1, 1, 3}, "AAB B"},
		{nil, []int{1, 2, 1, 0, 1}, "A"},
		{nil, []int{0, 0}, ""},
		{nil, []int{2, 8, 9, 3}, "A<unk>B"},
		{map[string]string{"tokenizer_config.json": `{"do_lower_case": true, "unk_token": {"content": "?"}}`}, []int{2, 9, 3}, "a?b"},
		{map[string]string{"tokenizer_config.json": `{"pad_token": "N", "word_delimiter_token": "B", "replace_word_delimiter_char": "-"}`},
			[]int{2, 5, 2, 3, 2, 0}, "AA-A<pad>"},
		{map[string]string{"tokenizer_config.json": `{"clean_up_tokenization_spaces": true, "do_lower_case": true}`},
			[]int{2, 1, 5, 6, 7, 1, 4}, "an't."},
		{map[string]string{"tokenizer_config.json": `{"pad_token": "A"}`, "special_tokens_map.json": `{"pad_token": "B"}`}, []int{2, 3}, "A"},
		{map[string]string{"tokenizer_config.json": `{"pad_token": "A", "added_tokens_decoder": {"9": {"content": "<x>"}}}`,
			"special_tokens_map.json": `{"pad_token": "B"}`, "added_tokens.json": `{"<y>": 8}`}, []int{2, 3, 9, 8}, "B<x><unk>"},
		{map[string]string{"added_tokens.json": `{"<y>": 8, "<z>": 2}`}, []int{2, 8}, "A<y>"},
		{map[string]string{"tokenizer_config.json": `{"target_lang": "deu"}`, "vocab.json": `{"eng": {"A": 2}, "deu": {"Ä": 2}}`},
			[]int{2}, "Ä"},
		{map[string]string{"preprocessor_config.json": "",
			"processor_config.json": `{"feature_extractor": {"feature_extractor_type": "Wav2Vec2FeatureExtractor"}}`}, []int{2}, "A"},
	} {
		l, err := OpenLetters(lettersFolder(t, c.files))
		if err != nil || l == nil {
			t.Fatalf("%v: %v", c.files, err)
		}
		if got, err := l.Text(said(c.ids...)); err != nil || got != c.want {
			t.Errorf("%v of %v is %q, want %q: %v", c.ids, c.files, got, c.want, err)
		}
	}
}

// TestLettersRefused: folders of other models have none; files that lack, or are not what they are to be, are errors
// that name them.
func TestLettersRefused(t *testing.T) {
	file := filepath.Join(lettersFolder(t, nil), "vocab.json")
	for _, folder := range []string{
		file, file + ".none", lettersFolder(t, map[string]string{"config.json": ""}),
		lettersFolder(t, map[string]string{"config.json": `{"architectures": ["HubertModel"]}`}),
		lettersFolder(t, map[string]string{"config.json": `{"architectures": "HubertForCTC"}`}),
	} {
		if l, err := OpenLetters(folder); l != nil || err != nil {
			t.Errorf("%s: %v, %v", folder, l, err)
		}
	}
	for name, text := range map[string]string{
		"vocab.json": "", "preprocessor_config.json": `{"feature_extractor_type": "ASTFeatureExtractor"}`, "config.json": "{",
		"tokenizer_config.json": `{"pad_token": 3}`, "special_tokens_map.json": "[]", "added_tokens.json": `{"x": "y"}`,
	} {
		var config *ConfigError
		if _, err := OpenLetters(lettersFolder(t, map[string]string{name: text})); !errors.As(err, &config) || config.File != name {
			t.Errorf("%s that is %q: %v", name, text, err)
		}
	}
	for _, files := range []map[string]string{
		{"vocab.json": `{"eng": {"A": 2}}`}, {"tokenizer_config.json": `{"target_lang": "eng"}`},
		{"tokenizer_config.json": `{"added_tokens_decoder": {"x": {"content": "y"}}}`}, {"preprocessor_config.json": ""},
	} {
		var config *ConfigError
		if _, err := OpenLetters(lettersFolder(t, files)); !errors.As(err, &config) {
			t.Errorf("%v: %v", files, err)
		}
	}
}
