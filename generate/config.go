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
	"slices"
	"strings"

	"github.com/optimem/optimem/models"
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
	// Start are the tokens that a decoder begins with, of a model that reads a source before it writes; nil of others.
	// Of one that reads speech they are those before the language.
	Start []int
	// Beams is how many texts the folder wants to be followed ([Writer.Beam]), 0 where it does not say.
	Beams int
	// Speech says more of how a decoder begins that writes what was spoken; nil of others.
	Speech *Speech
	// Pictures says that the model writes of a picture, which is its source.
	Pictures bool
	// Sees says how the model sees pictures in what it reads, if it is opened as a whole; nil of models that see none.
	Sees *Sees
}

// A Sees says how a model sees pictures: Class is what [models.Options.Arch] opens it whole by, since it is taken for its
// text part otherwise; Token stands for a part of a picture in a text, Places of them for each picture.
type Sees struct {
	Class         string
	Token, Places int
}

// A Speech says how a decoder begins that writes what was spoken: Whisper's.
type Speech struct {
	// Languages are the tokens of the languages, by their codes; none of a model that knows one.
	Languages map[string]int
	// Tasks are the tokens of the tasks, by their names.
	Tasks map[string]int
	// Language is the token of the one that the folder names, −1 where it has the model tell.
	Language int
	// Behind are the tokens behind the language: of a task, where the folder names one, and that no times are wanted.
	// Named are those behind a language that the caller names: there the task is to write down, and not to translate,
	// unless the folder says so.
	Behind, Named []int
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
			if file == "config.json" && !slices.Contains(modelKeys, key) {
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
	s.SuppressFirst, s.ForceEnd = r.tokens("begin_suppress_tokens"), r.tokens("forced_eos_token_id")
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
	r.decoder(&d)
	if r.err != nil {
		return d, r.err
	}
	return d, d.captions(folder)
}

// captions reads whether the model sees pictures, and how a text of a picture begins and ends, where config.json names a model that writes such: BLIP, of
// which the entries of its text part count, whatever generation_config.json says.
func (d *Defaults) captions(folder string) error {
	text, err := readFile(folder, "config.json", maxConfig)
	if err != nil || text == nil {
		return err
	}
	if class, token, places := models.Seeing(text); class != "" {
		d.Sees = &Sees{class, token, places}
		return nil
	}
	var c struct {
		Classes json.RawMessage `json:"architectures"`
		Text    struct {
			Begin *int `json:"bos_token_id"`
			End   *int `json:"sep_token_id"`
		} `json:"text_config"`
	}
	var classes []string
	if json.Unmarshal(text, &c) != nil || json.Unmarshal(c.Classes, &classes) != nil || !slices.Equal(classes, []string{"BlipForConditionalGeneration"}) {
		return nil // whose entries are others' to read
	}
	begin, end := 30522, 102
	if c.Text.Begin != nil {
		begin = *c.Text.Begin
	}
	if c.Text.End != nil {
		end = *c.Text.End
	}
	d.Begin, d.Start, d.End, d.Pictures = begin, []int{begin}, []int{end}, true
	return nil
}

// modelKeys are the entries of config.json that are looked at.
var modelKeys = []string{"eos_token_id", "bos_token_id", "decoder_start_token_id", "is_encoder_decoder", "forced_eos_token_id", "forced_bos_token_id"}

// decoder reads how a model begins that reads a source. Lengths count its beginning then.
func (r *configReader) decoder(d *Defaults) {
	var reads bool
	if r.read("is_encoder_decoder", &reads); !reads {
		return
	}
	if d.Start = r.tokens("decoder_start_token_id"); len(d.Start) == 0 && d.Begin >= 0 {
		d.Start = []int{d.Begin}
	}
	d.Sampling.ForceFirst = r.tokens("forced_bos_token_id")
	d.Beams = r.count("num_beams")
	if n := r.count("max_length"); d.MaxTokens == 0 && n > len(d.Start) {
		d.MaxTokens = n - len(d.Start)
	}
	if n := r.count("min_length"); d.Sampling.MinTokens == 0 {
		d.Sampling.MinTokens = max(n-len(d.Start), 0)
	}
	d.Speech = r.speech()
	if n := r.count("max_length"); d.Speech != nil && r.count("max_new_tokens") == 0 {
		d.MaxTokens = n // of which the beginning takes none
	}
}

// speech reads how a decoder begins that writes what was spoken, nil of others.
func (r *configReader) speech() *Speech {
	silent := r.tokens("no_timestamps_token_id")
	if len(silent) == 0 {
		return nil
	}
	s := &Speech{Language: -1}
	var languages map[string]int
	var forced [][2]*int
	var task string
	r.read("lang_to_id", &languages)
	r.read("task_to_id", &s.Tasks)
	r.read("forced_decoder_ids", &forced)
	r.read("task", &task)
	if len(languages) > 0 {
		s.Languages = make(map[string]int)
		for name, id := range languages { // <|en|>
			s.Languages[strings.TrimSuffix(strings.TrimPrefix(name, "<|"), "|>")] = id
		}
	}
	for i, pair := range forced {
		at, id := pair[0], pair[1]
		switch {
		case at == nil || *at != i+1:
			r.fail("forced_decoder_ids", "are not of one place after the other")
		case id == nil:
		case i == 0 && len(languages) > 0:
			s.Language = *id
		default:
			s.Behind = append(s.Behind, *id)
		}
	}
	if id, ok := s.Tasks[task]; ok {
		s.Behind = append(slices.DeleteFunc(s.Behind, s.isTask), id)
	}
	s.Named = slices.Clone(s.Behind)
	if id, ok := s.Tasks["transcribe"]; ok && !slices.ContainsFunc(s.Named, s.isTask) {
		s.Named = append(s.Named, id)
	}
	for _, list := range []*[]int{&s.Behind, &s.Named} {
		if n := len(*list); n == 0 || (*list)[n-1] != silent[0] {
			*list = append(*list, silent[0])
		}
	}
	return s
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
