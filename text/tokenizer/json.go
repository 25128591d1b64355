package tokenizer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"sort"
	"unicode/utf8"
)

// Parse reads the text of a tokenizer.json.
func Parse(data []byte) (*Tokenizer, error) {
	var file struct {
		Version       *string         `json:"version"`
		Truncation    json.RawMessage `json:"truncation"`
		Padding       json.RawMessage `json:"padding"`
		AddedTokens   json.RawMessage `json:"added_tokens"`
		Normalizer    json.RawMessage `json:"normalizer"`
		PreTokenizer  json.RawMessage `json:"pre_tokenizer"`
		PostProcessor json.RawMessage `json:"post_processor"`
		Decoder       json.RawMessage `json:"decoder"`
		Model         json.RawMessage `json:"model"`
	}
	if err := decode(data, "", &file); err != nil {
		return nil, err
	}
	if file.Version != nil && *file.Version != "1.0" {
		return nil, &UnsupportedError{Path: "version", What: fmt.Sprintf("version %q", clip(*file.Version))}
	}
	t := &Tokenizer{}
	var err error
	read := func(raw json.RawMessage, f func(json.RawMessage) error) {
		if err == nil && !absent(raw) {
			err = f(raw)
		}
	}
	read(file.Normalizer, func(raw json.RawMessage) (err error) {
		t.normalizer, err = readNormalizer(raw, "normalizer")
		return err
	})
	read(file.PreTokenizer, func(raw json.RawMessage) (err error) {
		t.pre, err = readPreTokenizers(raw, "pre_tokenizer")
		return err
	})
	if err == nil {
		if absent(file.Model) {
			return nil, format("model", "is missing")
		}
		t.model, err = readModel(file.Model)
	}
	read(file.PostProcessor, func(raw json.RawMessage) (err error) {
		t.post, err = readProcessor(raw, "post_processor")
		return err
	})
	read(file.Decoder, func(raw json.RawMessage) (err error) {
		t.decoders, err = readDecoders(raw, "decoder")
		return err
	})
	read(file.Truncation, func(raw json.RawMessage) (err error) {
		t.truncation, err = readTruncation(raw)
		return err
	})
	read(file.Padding, func(raw json.RawMessage) (err error) {
		t.padding, err = readPadding(raw)
		return err
	})
	var added []AddedToken
	read(file.AddedTokens, func(raw json.RawMessage) (err error) {
		added, err = readAdded(raw)
		return err
	})
	if err != nil {
		return nil, err
	}
	return t, t.complete(added)
}

// complete numbers the added tokens and sees to bytes staying bytes where the model can take them.
func (t *Tokenizer) complete(added []AddedToken) error {
	if len(t.pre) > 0 {
		last, isBytes := t.pre[len(t.pre)-1].(*byteLevel)
		m, isBPE := t.model.(*bpe)
		if isBytes && isBPE && !m.prefixed && !m.fallback {
			raw := *last
			raw.raw = true
			t.pre[len(t.pre)-1] = &raw
			m.takeBytes()
		}
	}
	var err error
	t.added, err = newAdded(added, t.model, func(s string) (string, error) {
		if t.normalizer == nil {
			return s, nil
		}
		p := piece{text: s, end: len(s)}
		if !utf8.ValidString(s) {
			p = repaired(s)
		}
		err := t.normalizer.normalize(&run{t: t}, &p)
		return p.text, err
	})
	return err
}

// absent reports whether a field is missing or null.
func absent(raw json.RawMessage) bool {
	return len(raw) == 0 || bytes.Equal(raw, []byte("null"))
}

// decode reads a part of a file.
func decode(data []byte, path string, to any) error {
	err := json.Unmarshal(data, to)
	if err == nil {
		return nil
	}
	var typed *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &typed):
		if typed.Field != "" && path != "" {
			path += "."
		}
		return format(path+typed.Field, "%s in place of %s", typed.Value, typed.Type)
	case errors.As(err, &syntax):
		return format(path, "byte %d: %v", syntax.Offset, err)
	}
	return format(path, "%v", err)
}

// kind reads the field type.
func kindOf(raw json.RawMessage, path string) (string, error) {
	var head struct {
		Type *string `json:"type"`
	}
	if err := decode(raw, path, &head); err != nil {
		return "", err
	}
	if head.Type == nil {
		return "", format(path, "has no type")
	}
	return *head.Type, nil
}

func unknownKind(path, what string) error {
	return &UnsupportedError{Path: path, What: fmt.Sprintf("%q", clip(what))}
}

func readAdded(raw json.RawMessage) ([]AddedToken, error) {
	var list []struct {
		ID         *uint32 `json:"id"`
		Content    *string `json:"content"`
		SingleWord bool    `json:"single_word"`
		LStrip     bool    `json:"lstrip"`
		RStrip     bool    `json:"rstrip"`
		Normalized bool    `json:"normalized"`
		Special    bool    `json:"special"`
	}
	if err := decode(raw, "added_tokens", &list); err != nil {
		return nil, err
	}
	out := make([]AddedToken, 0, len(list))
	for i, a := range list {
		if a.Content == nil || a.ID == nil {
			return nil, format(fmt.Sprintf("added_tokens[%d]", i), "has no content or no id")
		}
		out = append(out, AddedToken{*a.Content, a.Special, a.SingleWord, a.LStrip, a.RStrip, a.Normalized})
	}
	return out, nil
}

func readTruncation(raw json.RawMessage) (*Truncation, error) {
	var f struct {
		Direction string `json:"direction"`
		MaxLength *int   `json:"max_length"`
		Strategy  string `json:"strategy"`
		Stride    int    `json:"stride"`
	}
	if err := decode(raw, "truncation", &f); err != nil {
		return nil, err
	}
	if f.MaxLength == nil || *f.MaxLength < 0 || f.Stride < 0 {
		return nil, format("truncation", "no length, or one below zero")
	}
	switch f.Strategy {
	case "LongestFirst", "OnlyFirst", "OnlySecond":
	default:
		return nil, unknownKind("truncation.strategy", f.Strategy)
	}
	if f.Direction != "" && f.Direction != "Left" && f.Direction != "Right" {
		return nil, unknownKind("truncation.direction", f.Direction)
	}
	return &Truncation{*f.MaxLength, f.Strategy, f.Direction == "Left", f.Stride}, nil
}

func readPadding(raw json.RawMessage) (*Padding, error) {
	var f struct {
		Strategy   json.RawMessage `json:"strategy"`
		Direction  string          `json:"direction"`
		MultipleOf *int            `json:"pad_to_multiple_of"`
		ID         uint32          `json:"pad_id"`
		TypeID     uint32          `json:"pad_type_id"`
		Token      string          `json:"pad_token"`
	}
	if err := decode(raw, "padding", &f); err != nil {
		return nil, err
	}
	p := &Padding{ID: f.ID, TypeID: f.TypeID, Token: f.Token, Left: f.Direction == "Left"}
	if f.Direction != "Left" && f.Direction != "Right" {
		return nil, unknownKind("padding.direction", f.Direction)
	}
	if f.MultipleOf != nil {
		p.MultipleOf = max(*f.MultipleOf, 0)
	}
	if string(f.Strategy) != `"BatchLongest"` {
		var fixed struct {
			Fixed *int `json:"Fixed"`
		}
		if err := decode(f.Strategy, "padding.strategy", &fixed); err != nil {
			return nil, err
		}
		if fixed.Fixed == nil || *fixed.Fixed < 0 {
			return nil, format("padding.strategy", "neither BatchLongest nor a length")
		}
		p.Length = *fixed.Fixed
	}
	if p.Length > maxPadding || p.MultipleOf > maxPadding {
		return nil, &UnsupportedError{Path: "padding", What: "padding to more than 4 million tokens"}
	}
	return p, nil
}

func readModel(raw json.RawMessage) (model, error) {
	var head struct {
		Type *string `json:"type"`
		bpeFile
		U json.RawMessage `json:"unk_id"`
	}
	if err := decode(raw, "model", &head); err != nil {
		return nil, err
	}
	kind := ""
	switch { // old files do not say
	case head.Type != nil:
		kind = *head.Type
	case !absent(head.Merges):
		kind = "BPE"
	case head.Prefix != nil:
		kind = "WordPiece"
	case !absent(head.U):
		kind = "Unigram"
	default:
		kind = "WordLevel"
	}
	switch kind {
	case "BPE":
		return readBPE(&head.bpeFile)
	case "Unigram":
		return readUnigram(raw)
	case "WordPiece":
		var f struct {
			Vocab    map[string]uint32 `json:"vocab"`
			Unknown  *string           `json:"unk_token"`
			Prefix   *string           `json:"continuing_subword_prefix"`
			MaxChars *uint32           `json:"max_input_chars_per_word"`
		}
		if err := decode(raw, "model", &f); err != nil {
			return nil, err
		}
		if f.Vocab == nil || f.Unknown == nil || f.Prefix == nil || f.MaxChars == nil {
			return nil, format(
				"model", "WordPiece needs vocab, unk_token, continuing_subword_prefix, max_input_chars_per_word",
			)
		}
		return newWordPiece(newVocabulary(f.Vocab), *f.Unknown, *f.Prefix, int(*f.MaxChars))
	case "WordLevel":
		var f struct {
			Vocab   map[string]uint32 `json:"vocab"`
			Unknown *string           `json:"unk_token"`
		}
		if err := decode(raw, "model", &f); err != nil {
			return nil, err
		}
		if f.Vocab == nil || f.Unknown == nil {
			return nil, format("model", "WordLevel needs vocab and unk_token")
		}
		return &wordLevel{newVocabulary(f.Vocab), *f.Unknown}, nil
	}
	return nil, unknownKind("model.type", kind)
}

// bpeFile is what a file says of a BPE model.
type bpeFile struct {
	Vocab        json.RawMessage `json:"vocab"`
	Merges       json.RawMessage `json:"merges"`
	Dropout      *float64        `json:"dropout"`
	Unknown      *string         `json:"unk_token"`
	Prefix       *string         `json:"continuing_subword_prefix"`
	Suffix       *string         `json:"end_of_word_suffix"`
	FuseUnknown  bool            `json:"fuse_unk"`
	Fallback     bool            `json:"byte_fallback"`
	IgnoreMerges bool            `json:"ignore_merges"`
}

func readBPE(f *bpeFile) (model, error) {
	if absent(f.Vocab) || absent(f.Merges) {
		return nil, format("model", "BPE needs vocab and merges")
	}
	if f.Dropout != nil && *f.Dropout != 0 {
		return nil, &UnsupportedError{Path: "model.dropout", What: "BPE that drops merges at random"}
	}
	vocab, err := readVocab(f.Vocab, "model.vocab")
	if err != nil {
		return nil, err
	}
	pairs, err := readMerges(f.Merges)
	if err != nil {
		return nil, err
	}
	o := bpeOptions{fuseUnknown: f.FuseUnknown, fallback: f.Fallback, ignoreMerges: f.IgnoreMerges}
	if f.Unknown != nil {
		o.unknown, o.hasUnknown = *f.Unknown, true
	}
	if f.Prefix != nil {
		o.prefix = *f.Prefix
	}
	if f.Suffix != nil {
		o.suffix = *f.Suffix
	}
	return newBPE(newVocabulary(vocab), pairs, o)
}

func readUnigram(raw json.RawMessage) (model, error) {
	var f struct {
		Vocab    []json.RawMessage `json:"vocab"`
		Unknown  *uint32           `json:"unk_id"`
		Fallback bool              `json:"byte_fallback"`
	}
	if err := decode(raw, "model", &f); err != nil {
		return nil, err
	}
	if f.Vocab == nil {
		return nil, format("model", "Unigram needs vocab")
	}
	tokens, scores := make([]string, len(f.Vocab)), make([]float64, len(f.Vocab))
	for i, entry := range f.Vocab {
		pair := []any{&tokens[i], &scores[i]}
		if err := decode(entry, "model.vocab", &pair); err != nil {
			return nil, err
		}
		if len(pair) != 2 {
			return nil, format(fmt.Sprintf("model.vocab[%d]", i), "is not a token and its score")
		}
	}
	for i, t := range tokens {
		if len(t) > maxToken {
			return nil, &UnsupportedError{
				Path: fmt.Sprintf("model.vocab[%d]", i), What: "a token of more than 4096 bytes",
			}
		}
	}
	unknown := -1
	if f.Unknown != nil {
		if unknown = int(*f.Unknown); unknown >= len(tokens) {
			return nil, format("model.unk_id", "%d of %d tokens", unknown, len(tokens))
		}
	}
	return newUnigram(tokens, scores, unknown, f.Fallback), nil
}

// sortedKeys are the keys of a map in order, so that the first error is always the same.
func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}
