package generate

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestFolderDefaults: generation_config.json goes before config.json, lists of end tokens are taken whole, and nothing is drawn
// unless the folder says so.
func TestFolderDefaults(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  Defaults
	}{
		"neither":     {nil, Defaults{Begin: -1}},
		"config only": {map[string]string{"config.json": `{"eos_token_id": 2, "bos_token_id": 1, "temperature": 3, "do_sample": true}`}, Defaults{End: []int{2}, Begin: 1}},
		"both": {map[string]string{
			"config.json":            `{"eos_token_id": 2, "bos_token_id": 1}`,
			"generation_config.json": `{"eos_token_id": [5, 7], "do_sample": true, "temperature": 0.6, "top_p": 0.9, "repetition_penalty": 1.1}`,
		}, Defaults{End: []int{5, 7}, Begin: 1, Sampling: Sampling{Temperature: 0.6, TopK: 50, TopP: 0.9, RepetitionPenalty: 1.1}}},
		"greedy": {map[string]string{
			"generation_config.json": `{"do_sample": false, "temperature": 0.6, "top_k": 3, "max_new_tokens": 12}`,
		}, Defaults{Begin: -1, MaxTokens: 12}},
		"pictures": {map[string]string{
			"config.json":            `{"architectures": ["BlipForConditionalGeneration"], "text_config": {"bos_token_id": 7, "sep_token_id": 9, "eos_token_id": 2}}`,
			"generation_config.json": `{"eos_token_id": 2, "bos_token_id": 3, "max_new_tokens": 30}`,
		}, Defaults{End: []int{9}, Begin: 7, Start: []int{7}, MaxTokens: 30, Pictures: true}},
		"pictures by default": {map[string]string{"config.json": `{"architectures": ["BlipForConditionalGeneration"]}`},
			Defaults{End: []int{102}, Begin: 30522, Start: []int{30522}, Pictures: true}},
		"pictures that are compared": {map[string]string{"config.json": `{"architectures": ["BlipModel"]}`}, Defaults{Begin: -1}},
		"words": {map[string]string{
			"generation_config.json": `{"bad_words_ids": [[1], [2, 3]], "suppress_tokens": [4], "no_repeat_ngram_size": 3, "top_k": null}`,
		}, Defaults{Begin: -1, Sampling: Sampling{BadWords: [][]int{{1}, {2, 3}}, Suppress: []int{4}, NoRepeatNgram: 3}}},
	} {
		got, err := FolderDefaults(folder(t, c.files))
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: got %+v, want %+v: %v", name, got, c.want, err)
		}
	}
}

// TestBadDefaults: what cannot be is an error that names the file and the entry.
func TestBadDefaults(t *testing.T) {
	for text, key := range map[string]string{
		`[]`: "", `{"eos_token_id": "x"}`: "eos_token_id", `{"do_sample": true, "top_p": 1.5}`: "top_p",
		`{"max_new_tokens": -1}`: "max_new_tokens", `{"repetition_penalty": -2}`: "repetition_penalty",
		`{"bad_words_ids": 3}`: "bad_words_ids",
	} {
		var bad *ConfigError
		_, err := FolderDefaults(folder(t, map[string]string{"generation_config.json": text}))
		if !errors.As(err, &bad) || bad.Key != key || bad.File != "generation_config.json" {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestSpeechBegins: a decoder of speech begins with the language that is named, or heard, with a task where one is
// said, and with no times; forced tokens of older files count.
func TestSpeechBegins(t *testing.T) {
	const config = `{"is_encoder_decoder": true, "decoder_start_token_id": 50, "max_length": 90}`
	const silent = `"no_timestamps_token_id": 63`
	const tasks = `, "lang_to_id": {"<|en|>": 51, "<|de|>": 52}, "task_to_id": {"transcribe": 59, "translate": 58}`
	languages, tokens := map[string]int{"en": 51, "de": 52}, map[string]int{"transcribe": 59, "translate": 58}
	for text, want := range map[string]*Speech{
		`{}`:               nil,
		`{` + silent + `}`: {Language: -1, Behind: []int{63}, Named: []int{63}},
		`{` + silent + `, "forced_decoder_ids": [[1, 63]]}`:                    {Language: -1, Behind: []int{63}, Named: []int{63}},
		`{` + silent + tasks + `}`:                                             {languages, tokens, -1, []int{63}, []int{59, 63}},
		`{` + silent + tasks + `, "forced_decoder_ids": [[1, null], [2, 59]]}`: {languages, tokens, -1, []int{59, 63}, []int{59, 63}},
		`{` + silent + tasks + `, "forced_decoder_ids": [[1, 52], [2, 58]]}`:   {languages, tokens, 52, []int{58, 63}, []int{58, 63}},
		`{` + silent + tasks + `, "task": "translate"}`:                        {languages, tokens, -1, []int{58, 63}, []int{58, 63}},
	} {
		d, err := FolderDefaults(folder(t, map[string]string{"config.json": config, "generation_config.json": text}))
		if err != nil || !reflect.DeepEqual(d.Speech, want) || !reflect.DeepEqual(d.Start, []int{50}) {
			t.Errorf("%s: %+v, %v, %v", text, d.Speech, d.Start, err)
		}
	}
	var wrong *ConfigError
	files := map[string]string{"config.json": config, "generation_config.json": `{` + silent + `, "forced_decoder_ids": [[2, 63]]}`}
	if _, err := FolderDefaults(folder(t, files)); !errors.As(err, &wrong) {
		t.Errorf("a place that is left out: %v", err)
	}
}

// TestDecoderDefaults: lengths of a model that reads a source count how its decoder begins, and what is forced is read.
func TestDecoderDefaults(t *testing.T) {
	d, err := FolderDefaults(folder(t, map[string]string{
		"config.json":            `{"is_encoder_decoder": true, "decoder_start_token_id": 2, "eos_token_id": 2, "forced_eos_token_id": 2}`,
		"generation_config.json": `{"forced_bos_token_id": 7, "max_length": 142, "min_length": 56, "num_beams": 4, "begin_suppress_tokens": [9]}`,
	}))
	want := Defaults{Begin: -1, End: []int{2}, Start: []int{2}, MaxTokens: 141, Beams: 4, Sampling: Sampling{
		MinTokens: 55, ForceFirst: []int{7}, ForceEnd: []int{2}, SuppressFirst: []int{9},
	}}
	if err != nil || !reflect.DeepEqual(d, want) {
		t.Errorf("%+v, %v", d, err)
	}
}
