package generate

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
)

// Defaults are what a folder says of how its model is meant to write.
type Defaults struct {
	// End are the tokens after which nothing follows.
	End []int
	// Begin is the token that a text begins with, −1 where none is named.
	Begin int
	// Sampling is how tokens are chosen.
	Sampling Sampling
	// MaxTokens is how many are written where nobody says, 0 where the folder does not say either.
	MaxTokens int
}

// A ConfigError says what is wrong with generation_config.json or config.json.
type ConfigError struct {
	File, Key, Msg string
}

// Error names the file and the entry.
func (e *ConfigError) Error() string {
	if e.Key == "" {
		return e.File + ": " + e.Msg
	}
	return e.File + ": " + e.Key + " " + e.Msg
}

// maxConfig bounds the files that are read.
const maxConfig = 4 << 20

// FolderDefaults reads generation_config.json of a Hugging Face folder and, for what is not there, config.json. A folder
// that has neither gives the zero values.
func FolderDefaults(folder string) (Defaults, error) {
	d := Defaults{Begin: -1}
	entries := make(map[string]json.RawMessage)
	for _, file := range []string{"config.json", "generation_config.json"} {
		all, err := readConfig(folder, file)
		if err != nil {
			return d, err
		}
		for key, raw := range all {
			if file == "config.json" && key != "eos_token_id" && key != "bos_token_id" {
				continue // sampling is not the model's
			}
			if string(raw) != "null" || file != "config.json" {
				entries[key] = raw
			}
		}
	}
	r := &configReader{entries: entries}
	d.End = r.tokens("eos_token_id")
	if begin := r.tokens("bos_token_id"); len(begin) > 0 {
		d.Begin = begin[0]
	}
	d.MaxTokens = r.count("max_new_tokens")
	s := &d.Sampling
	s.RepetitionPenalty = r.number("repetition_penalty", 0, 0, math.MaxFloat32)
	s.NoRepeatNgram = r.count("no_repeat_ngram_size")
	s.MinTokens = r.count("min_new_tokens")
	s.Suppress = r.tokens("suppress_tokens")
	r.read("bad_words_ids", &s.BadWords)
	var sample bool
	r.read("do_sample", &sample)
	if sample {
		s.Temperature = r.number("temperature", 1, 0, math.MaxFloat32)
		s.TopK = 50 // as transformers has it where nobody says
		if _, said := entries["top_k"]; said {
			s.TopK = r.count("top_k")
		}
		s.TopP = r.number("top_p", 0, 0, 1)
		s.MinP = r.number("min_p", 0, 0, 1)
		s.Typical = r.number("typical_p", 0, 0, 1)
	}
	return d, r.err
}

// readConfig returns the entries of a file, none where there is no such file.
func readConfig(folder, name string) (map[string]json.RawMessage, error) {
	text, err := readFile(folder, name, maxConfig)
	if err != nil || text == nil {
		return nil, err
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, &ConfigError{File: name, Msg: "is not an object of JSON: " + err.Error()}
	}
	return all, nil
}

// A configReader reads entries and keeps the first error.
type configReader struct {
	entries map[string]json.RawMessage
	err     error
}

func (r *configReader) fail(key, format string, args ...any) {
	if r.err == nil {
		r.err = &ConfigError{"generation_config.json", key, fmt.Sprintf(format, args...)}
	}
}

// read fills to from an entry, if it is there and not null.
func (r *configReader) read(key string, to any) bool {
	raw, ok := r.entries[key]
	if !ok || string(raw) == "null" {
		return false
	}
	if err := json.Unmarshal(raw, to); err != nil {
		text := string(raw)
		if len(text) > 60 {
			text = text[:60] + "…"
		}
		r.fail(key, "is %s", text)
		return false
	}
	return true
}

// tokens reads a token or a list of them.
func (r *configReader) tokens(key string) []int {
	if raw := r.entries[key]; len(raw) > 0 && raw[0] == '[' {
		var list []int
		r.read(key, &list)
		return list
	}
	var id int
	if r.read(key, &id) {
		return []int{id}
	}
	return nil
}

// count reads a number of something.
func (r *configReader) count(key string) int {
	var n int
	if r.read(key, &n) && n < 0 {
		r.fail(key, "is %d, negative", n)
		return 0
	}
	return n
}

// number reads a number between two.
func (r *configReader) number(key string, missing, least, most float64) float64 {
	x := missing
	if r.read(key, &x) && !(x >= least && x <= most) {
		r.fail(key, "is %v, not between %v and %v", x, least, most)
		return missing
	}
	return x
}

// readFile reads a file of a folder that has no more bytes than most; nil where there is no such file.
func readFile(folder, name string, most int64) ([]byte, error) {
	f, err := os.Open(filepath.Join(folder, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(text)) > most {
		err = &ConfigError{File: name, Msg: fmt.Sprintf("has more than %d bytes", most)}
	}
	return text, err
}
