package tokenizer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
)

// maxFile bounds the size of a file, in bytes. The largest known is 41 MB.
const maxFile = 1 << 30

// Open reads the tokenizer in a directory, or in a file of any of the forms that a directory may hold.
func Open(name string) (*Tokenizer, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return OpenFS(os.DirFS(name))
	}
	return OpenFile(os.DirFS(filepath.Dir(name)), filepath.Base(name))
}

// OpenFS reads the tokenizer of a directory: the first of tokenizer.json, tokenizer.model, tekken.json, vocab.json with
// merges.txt, vocab.txt and a .tiktoken file that it has.
func OpenFS(dir fs.FS) (*Tokenizer, error) {
	for _, name := range []string{
		"tokenizer.json", "tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "tekken.json", "vocab.json",
		"vocab.txt",
	} {
		if _, err := fs.Stat(dir, name); err == nil {
			return OpenFile(dir, name)
		}
	}
	found, err := fs.Glob(dir, "*.tiktoken")
	if err != nil || len(found) != 1 {
		return nil, &UnsupportedError{What: "a directory without tokenizer.json, tokenizer.model, tekken.json, vocab.json, " +
			"vocab.txt or one .tiktoken file"}
	}
	return OpenFile(dir, found[0])
}

// OpenFile reads one file of a directory, and those beside it that belong to it: merges.txt, tokenizer_config.json.
func OpenFile(dir fs.FS, name string) (*Tokenizer, error) {
	data, err := readFile(dir, name)
	if err != nil {
		return nil, err
	}
	conf, err := readConfig(dir)
	if err != nil {
		return nil, err
	}
	base := path.Base(name)
	var t *Tokenizer
	switch {
	case base == "vocab.json":
		merges, err := readFile(dir, path.Join(path.Dir(name), "merges.txt"))
		if err != nil {
			return nil, err
		}
		t, err = parseVocabMerges(data, merges, conf)
		return t, inFile(err, name)
	case strings.HasSuffix(base, ".tiktoken"):
		t, err = parseTiktokenFile(data, strings.TrimSuffix(base, ".tiktoken"))
	case strings.HasSuffix(base, ".txt"):
		t, err = parseVocabText(data, conf)
	case strings.HasSuffix(base, ".json"):
		if t, err = parseTekken(data); errors.Is(err, errNotTekken) {
			t, err = Parse(data)
		}
	case bytes.HasPrefix(data, []byte("{")):
		t, err = Parse(data)
	default:
		t, err = parseSentencePiece(data, conf)
	}
	return t, inFile(err, name)
}

func readFile(dir fs.FS, name string) ([]byte, error) {
	f, err := dir.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = &UnsupportedError{File: name, What: "a file of more than 1 GiB"}
	}
	return data, err
}

// inFile adds the file's name to an error.
func inFile(err error, name string) error {
	var f *FormatError
	var u *UnsupportedError
	switch {
	case errors.As(err, &f) && f.File == "":
		f.File = name
	case errors.As(err, &u) && u.File == "":
		u.File = name
	}
	return err
}

// config is what this package reads of tokenizer_config.json.
type config struct {
	Class        string   `json:"tokenizer_class"`
	Lower        *bool    `json:"do_lower_case"`
	StripAccents *bool    `json:"strip_accents"`
	Chinese      *bool    `json:"tokenize_chinese_chars"`
	AddBOS       *bool    `json:"add_bos_token"`
	AddEOS       *bool    `json:"add_eos_token"`
	PrefixSpace  bool     `json:"add_prefix_space"`
	BOS          anyToken `json:"bos_token"`
	EOS          anyToken `json:"eos_token"`
	Added        map[string]struct {
		Content    string `json:"content"`
		SingleWord bool   `json:"single_word"`
		LStrip     bool   `json:"lstrip"`
		RStrip     bool   `json:"rstrip"`
		Normalized bool   `json:"normalized"`
		Special    bool   `json:"special"`
	} `json:"added_tokens_decoder"`
}

// anyToken is a token as a string or as an object with its content.
type anyToken string

// UnmarshalJSON reads either.
func (a *anyToken) UnmarshalJSON(data []byte) error {
	var s *string
	if json.Unmarshal(data, &s) == nil {
		if s != nil {
			*a = anyToken(*s)
		}
		return nil
	}
	var o struct {
		Content string `json:"content"`
	}
	err := json.Unmarshal(data, &o)
	*a = anyToken(o.Content)
	return err
}

func readConfig(dir fs.FS) (*config, error) {
	c := &config{}
	data, err := readFile(dir, "tokenizer_config.json")
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err == nil {
		err = inFile(decode(data, "", c), "tokenizer_config.json")
	}
	return c, err
}

// added are the tokens of added_tokens_decoder, by number.
func (c *config) added() ([]AddedToken, error) {
	ids := make([]int, 0, len(c.Added))
	for _, key := range sortedKeys(c.Added) {
		id, err := strconv.ParseUint(key, 10, 31)
		if err != nil {
			return nil, &FormatError{
				File: "tokenizer_config.json", Path: "added_tokens_decoder", Problem: fmt.Sprintf("key %q", clip(key)),
			}
		}
		ids = append(ids, int(id))
	}
	sort.Ints(ids)
	var out []AddedToken
	for _, id := range ids {
		a := c.Added[strconv.Itoa(id)]
		out = append(out, AddedToken{a.Content, a.Special, a.SingleWord, a.LStrip, a.RStrip, a.Normalized})
	}
	return out, nil
}

// ends makes the template that adds a first and a last token, where they are asked for and known.
func (t *Tokenizer) ends(bos, eos string) {
	one := func(name string, typeID uint32) []templatePart {
		id, ok := t.ID(name)
		if name == "" || !ok {
			return nil
		}
		return []templatePart{{-1, typeID, []uint32{id}, []string{name}}}
	}
	text := func(sequence int) templatePart { return templatePart{sequence: sequence, typeID: uint32(sequence)} }
	p := &template{}
	p.single = append(append(one(bos, 0), text(0)), one(eos, 0)...)
	p.pair = append(append(append(append([]templatePart(nil), p.single...), one(bos, 1)...), text(1)), one(eos, 1)...)
	p.addedSingle, p.addedPair = len(p.single)-1, len(p.pair)-2
	if p.addedSingle > 0 {
		t.post = p
	}
}
