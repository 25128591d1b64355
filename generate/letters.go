package generate

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/optimem/optimem/internal/sound"
	"github.com/optimem/optimem/tensor"
)

// Letters make text of what a model says of each moment of a sound: which letter is spoken, or none. Such models were
// trained for connectionist temporal classification (CTC): their class is named ForCTC, as Wav2Vec2ForCTC. They write
// nothing token by token, and run as a whole. Letters may be shared between goroutines.
//
//	letters, err := generate.OpenLetters(folder)
//	input, heard, err := letters.Sound(file)
//	out, err := session.Run(ctx, runtime.Values{letters.Input: input})
//	text, err := letters.Text(out[letters.Output])
type Letters struct {
	// Input and Output are the names of the model's input and of the output that Text reads.
	Input, Output string

	wave  *sound.WaveSpec
	names map[int]string
	// blank is the token that is no letter; delimiter, which is space in a text, stands between words. unknown is what
	// numbers are that have no name.
	blank, delimiter, space, unknown string
	lower, tidy                      bool
}

// The most samples of a sound that are read at once, and the most bytes of a vocabulary.
const (
	mostSamples   = 1 << 22
	maxVocabulary = 16 << 20
)

// OpenLetters reads what a Hugging Face folder says of sounds and letters: preprocessor_config.json, vocab.json and
// tokenizer_config.json of transformers' Wav2Vec2CTCTokenizer. It is nil where config.json names no model for CTC, or
// there is no folder.
func OpenLetters(folder string) (*Letters, error) {
	if info, err := os.Stat(folder); err != nil || !info.IsDir() {
		return nil, nil
	}
	config, err := readConfig(folder, "config.json")
	if err != nil {
		return nil, err
	}
	var classes []string
	if json.Unmarshal(config["architectures"], &classes) != nil || len(classes) == 0 || !strings.HasSuffix(classes[0], "ForCTC") {
		return nil, nil
	}
	l := &Letters{Input: "input_values", Output: "logits"}
	text, file, err := soundConfig(folder)
	if err != nil {
		return nil, err
	}
	if l.wave, err = sound.ParseWave(text); err != nil {
		return nil, &ConfigError{File: file, Msg: err.Error()}
	}
	target, err := l.readTokenizer(folder)
	if err != nil {
		return nil, err
	}
	return l, l.readVocabulary(folder, target)
}

// A spelling is a token as files of tokenizers have it: its text, or an object that has it.
type spelling struct{ text string }

// UnmarshalJSON reads either.
func (s *spelling) UnmarshalJSON(text []byte) error {
	var object struct{ Content string }
	if json.Unmarshal(text, &s.text) == nil {
		return nil
	}
	err := json.Unmarshal(text, &object)
	s.text = object.Content
	return err
}

// A spelled is what files of tokenizers say of letters.
type spelled struct {
	Pad       *spelling           `json:"pad_token"`
	Unknown   *spelling           `json:"unk_token"`
	Delimiter *spelling           `json:"word_delimiter_token"`
	Space     *string             `json:"replace_word_delimiter_char"`
	Lower     bool                `json:"do_lower_case"`
	Tidy      bool                `json:"clean_up_tokenization_spaces"`
	Target    string              `json:"target_lang"`
	Added     map[string]spelling `json:"added_tokens_decoder"`
}

// readTokenizer reads how tokens become text, and the language of a vocabulary that has several, "" of others.
func (l *Letters) readTokenizer(folder string) (target string, err error) {
	var c, older spelled
	if err := readSpelled(folder, "tokenizer_config.json", &c); err != nil {
		return "", err
	}
	l.names = make(map[int]string)
	for id, token := range c.Added {
		n, err := strconv.Atoi(id)
		if err != nil {
			return "", &ConfigError{"tokenizer_config.json", "added_tokens_decoder", fmt.Sprintf("has a token %.20q", id)}
		}
		l.names[n] = token.text
	}
	if c.Added == nil { // what is in its place else
		if err := readSpelled(folder, "special_tokens_map.json", &older); err != nil {
			return "", err
		}
		var added map[string]int
		if err := readSpelled(folder, "added_tokens.json", &added); err != nil {
			return "", err
		}
		for token, id := range added {
			l.names[id] = token
		}
	}
	first := func(missing string, list ...*spelling) string {
		for _, s := range list {
			if s != nil {
				return s.text
			}
		}
		return missing
	}
	l.blank, l.unknown = first("<pad>", older.Pad, c.Pad), first("<unk>", older.Unknown, c.Unknown)
	l.delimiter, l.space = first("|", c.Delimiter), " "
	if c.Space != nil {
		l.space = *c.Space
	}
	l.lower, l.tidy = c.Lower, c.Tidy
	return c.Target, nil
}

// readSpelled reads a file of JSON, if it is there.
func readSpelled(folder, name string, to any) error {
	text, err := readFile(folder, name, maxVocabulary)
	if err != nil || text == nil {
		return err
	}
	if err := json.Unmarshal(text, to); err != nil {
		return &ConfigError{File: name, Msg: "is not what it is to be: " + err.Error()}
	}
	return nil
}

// readVocabulary reads the tokens, of a language where there are several.
func (l *Letters) readVocabulary(folder, target string) error {
	const file = "vocab.json"
	var all map[string]json.RawMessage
	if err := readSpelled(folder, file, &all); err != nil {
		return err
	}
	if all == nil {
		return &ConfigError{File: file, Msg: "is missing, which has the letters"}
	}
	if target != "" {
		language, ok := all[target]
		all = nil
		if !ok || json.Unmarshal(language, &all) != nil {
			return &ConfigError{file, target, "is no vocabulary, and tokenizer_config.json names it as target_lang"}
		}
	}
	for token, raw := range all {
		var id int
		if err := json.Unmarshal(raw, &id); err != nil {
			return &ConfigError{file, fmt.Sprintf("%.20q", token), "is no number: a vocabulary of several languages needs a target_lang"}
		}
		l.names[id] = token
	}
	return nil
}

// Sound reads a WAV file as the model's input, [1, samples]: of the kinds that [Text.Sound] reads. Of a longer sound it
// reads the first 4,194,304 samples, 262 seconds of 16,000.
func (l *Letters) Sound(r io.Reader) (*tensor.Tensor, Heard, error) {
	clip, err := sound.ReadWAV(r, mostSamples)
	if err != nil {
		return nil, Heard{}, soundError(err)
	}
	values, err := l.wave.Values(clip)
	if err != nil {
		return nil, Heard{}, soundError(err)
	}
	return tensor.Of(values, 1, len(values)), heardOf(clip), nil
}

var errNoLetters = errors.New("the model gives no letters of one sound, [1, moments, letters]")

// Text returns the text of the likeliest letters: logits are [1, moments, letters]. A letter that several moments say,
// one after the other, is one.
func (l *Letters) Text(logits *tensor.Tensor) (string, error) {
	if logits == nil || len(logits.Layout.Shape) != 3 || logits.Layout.Shape[0] != 1 {
		return "", errNoLetters
	}
	shape := logits.Layout.Shape
	values, err := tensor.Slice[float32](logits.Contiguous())
	if err != nil {
		return "", err
	}
	var text strings.Builder
	last := ""
	for at := range shape[1] {
		name := l.name(likeliest(values[at*shape[2]:][:shape[2]]))
		if at > 0 && name == last {
			continue
		}
		switch last = name; name {
		case l.blank:
		case l.delimiter:
			text.WriteString(l.space)
		default:
			text.WriteString(name)
		}
	}
	return l.finish(text.String()), nil
}

// name is the text of a token.
func (l *Letters) name(id int) string {
	if name, ok := l.names[id]; ok {
		return name
	}
	return l.unknown
}

// likeliest is the index of the largest number, the first of equal ones.
func likeliest(row []float32) int {
	best := 0
	for i, x := range row {
		if x > row[best] {
			best = i
		}
	}
	return best
}

// tidied are the spaces that transformers' clean_up_tokenization leaves out, one kind after the other.
var tidied = [][2]string{
	{" .", "."}, {" ?", "?"}, {" !", "!"}, {" ,", ","}, {" ' ", "'"}, {" n't", "n't"}, {" 'm", "'m"}, {" 's", "'s"}, {" 've", "'ve"},
	{" 're", "'re"},
}

// finish makes a text of letters what the folder says of all of it.
func (l *Letters) finish(text string) string {
	text = strings.TrimSpace(text)
	if l.lower {
		text = strings.ToLower(text)
	}
	if l.tidy {
		for _, pair := range tidied {
			text = strings.ReplaceAll(text, pair[0], pair[1])
		}
	}
	return text
}
