package tokenizer

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/optimem/optimem/text/tokenizer/internal/pattern"
)

// readPattern reads {"String": …} or {"Regex": …}.
func readPattern(raw json.RawMessage, path string) (*pattern.Pattern, error) {
	var f struct {
		String *string
		Regex  *string
	}
	if err := decode(raw, path, &f); err != nil {
		return nil, err
	}
	switch {
	case f.String != nil:
		return pattern.Quote(*f.String), nil
	case f.Regex == nil:
		return nil, format(path, "neither a string nor a regular expression")
	}
	p, err := pattern.Compile(*f.Regex)
	var bad *pattern.Error
	switch {
	case err == nil:
		return p, nil
	case errors.As(err, &bad) && bad.Unsupported:
		return nil, &UnsupportedError{Path: path, What: err.Error() + ", which"}
	}
	return nil, format(path, "%v", err)
}

// list reads the parts of a Sequence.
func list(raw json.RawMessage, path, field string, each func(json.RawMessage, string) error) error {
	var f map[string]json.RawMessage
	if err := decode(raw, path, &f); err != nil {
		return err
	}
	var parts []json.RawMessage
	if absent(f[field]) {
		return format(path, "Sequence without %s", field)
	}
	if err := decode(f[field], path+"."+field, &parts); err != nil {
		return err
	}
	for i, part := range parts {
		if err := each(part, fmt.Sprintf("%s.%s[%d]", path, field, i)); err != nil {
			return err
		}
	}
	return nil
}

// maxNesting bounds sequences in sequences.
const maxNesting = 400 // bytes of a path

func tooDeep(path string) error {
	if len(path) > maxNesting {
		return format(clip(path), "sequences too deep")
	}
	return nil
}

func readNormalizer(raw json.RawMessage, path string) (normalizer, error) {
	kind, err := kindOf(raw, path)
	if err != nil {
		return nil, err
	}
	switch kind {
	case "Sequence":
		all := normalizers{}
		if err := tooDeep(path); err != nil {
			return nil, err
		}
		err := list(raw, path, "normalizers", func(part json.RawMessage, path string) error {
			n, err := readNormalizer(part, path)
			if all = append(all, n); err == nil && all.growth() > maxGrowth {
				err = &UnsupportedError{Path: path, What: "a sequence that makes texts thousands of times as long"}
			}
			return err
		})
		return all, err
	case "NFC":
		return &unicodeForm{compose: true}, nil
	case "NFD":
		return &unicodeForm{}, nil
	case "NFKC":
		return &unicodeForm{compat: true, compose: true}, nil
	case "NFKD":
		return &unicodeForm{compat: true}, nil
	case "Lowercase":
		return lowercase{}, nil
	case "StripAccents":
		return stripAccents{}, nil
	case "Nmt":
		return nmt{}, nil
	case "ByteLevel":
		return byteLevelNormalizer{}, nil
	case "BertNormalizer":
		return readBertNormalizer(raw, path)
	case "Strip":
		var f struct {
			Left  bool `json:"strip_left"`
			Right bool `json:"strip_right"`
		}
		err := decode(raw, path, &f)
		return strip{f.Left, f.Right}, err
	case "Prepend":
		var f struct {
			Prepend string `json:"prepend"`
		}
		err := decode(raw, path, &f)
		if err == nil && len(f.Prepend) > maxAffix {
			err = &UnsupportedError{Path: path, What: "prepending more than 256 bytes"}
		}
		return prepend(f.Prepend), err
	case "Replace":
		p, content, err := readReplace(raw, path)
		n := &replace{pattern: p, content: content}
		if err == nil && n.growth() > maxGrowth {
			err = &UnsupportedError{Path: path, What: "a replacement that is thousands of times as long"}
		}
		if err == nil && len(p.String()) == 1 && p.Literal() && p.String()[0] < utf8.RuneSelf {
			n.byte = p.String()[0]
		}
		return n, err
	case "Precompiled":
		return readPrecompiled(raw, path)
	}
	return nil, unknownKind(path+".type", kind)
}

func readBertNormalizer(raw json.RawMessage, path string) (normalizer, error) {
	var f struct {
		Clean   bool  `json:"clean_text"`
		Chinese bool  `json:"handle_chinese_chars"`
		Accents *bool `json:"strip_accents"`
		Lower   bool  `json:"lowercase"`
	}
	if err := decode(raw, path, &f); err != nil {
		return nil, err
	}
	n := bertNormalizer{f.Clean, f.Chinese, f.Lower, f.Lower}
	if f.Accents != nil {
		n.accents = *f.Accents
	}
	return n, nil
}

// readPrecompiled reads SentencePiece's table of replacements.
func readPrecompiled(raw json.RawMessage, path string) (normalizer, error) {
	var f struct {
		Map string `json:"precompiled_charsmap"`
	}
	if err := decode(raw, path, &f); err != nil {
		return nil, err
	}
	data, err := base64.StdEncoding.DecodeString(f.Map)
	if err != nil {
		return nil, format(path+".precompiled_charsmap", "%v", err)
	}
	return newPrecompiled(data, path+".precompiled_charsmap")
}

func readReplace(raw json.RawMessage, path string) (*pattern.Pattern, string, error) {
	var f struct {
		Pattern json.RawMessage `json:"pattern"`
		Content *string         `json:"content"`
	}
	if err := decode(raw, path, &f); err != nil {
		return nil, "", err
	}
	if absent(f.Pattern) || f.Content == nil {
		return nil, "", format(path, "Replace needs pattern and content")
	}
	p, err := readPattern(f.Pattern, path+".pattern")
	return p, *f.Content, err
}

// readPreTokenizers reads a pre-tokenizer, or those of a sequence one after the other.
func readPreTokenizers(raw json.RawMessage, path string) ([]preTokenizer, error) {
	kind, err := kindOf(raw, path)
	if err != nil {
		return nil, err
	}
	switch kind {
	case "Sequence":
		var all []preTokenizer
		if err := tooDeep(path); err != nil {
			return nil, err
		}
		err := list(raw, path, "pretokenizers", func(part json.RawMessage, path string) error {
			more, err := readPreTokenizers(part, path)
			if all = append(all, more...); err == nil && len(all) > maxStages {
				err = &UnsupportedError{Path: path, What: "a sequence of more than 100 pre-tokenizers"}
			}
			return err
		})
		return all, err
	case "BertPreTokenizer":
		return []preTokenizer{&atRunes{isSpace, removed}, &atRunes{isPunctuation, isolated}}, nil
	}
	one, err := readPreTokenizer(kind, raw, path)
	return []preTokenizer{one}, err
}

const maxStages = 100

func readPreTokenizer(kind string, raw json.RawMessage, path string) (preTokenizer, error) {
	switch kind {
	case "ByteLevel":
		return readByteLevel(raw, path)
	case "Metaspace":
		return readMetaspace(raw, path)
	case "Whitespace":
		return whitespace{}, nil
	case "WhitespaceSplit":
		return &atRunes{isSpace, removed}, nil
	case "UnicodeScripts":
		return unicodeScripts{}, nil
	case "Punctuation":
		how, err := readBehavior(raw, path, "Isolated")
		return &atRunes{isPunctuation, how}, err
	case "Digits":
		var f struct {
			Each bool `json:"individual_digits"`
		}
		err := decode(raw, path, &f)
		how := contiguous
		if f.Each {
			how = isolated
		}
		return &atRunes{isNumeric, how}, err
	case "Delimiter", "CharDelimiterSplit":
		var f struct {
			Delimiter string `json:"delimiter"`
		}
		if err := decode(raw, path, &f); err != nil {
			return nil, err
		}
		d, size := utf8.DecodeRuneInString(f.Delimiter)
		if size == 0 || size != len(f.Delimiter) {
			return nil, format(path+".delimiter", "is not one character")
		}
		return &atRunes{func(c rune) bool { return c == d }, removed}, nil
	case "FixedLength":
		f := struct {
			Length int `json:"length"`
		}{5}
		err := decode(raw, path, &f)
		if err == nil && f.Length <= 0 {
			err = format(path+".length", "%d", f.Length)
		}
		return fixedLength(f.Length), err
	case "Split":
		var f struct {
			Pattern json.RawMessage `json:"pattern"`
			Invert  bool            `json:"invert"`
		}
		if err := decode(raw, path, &f); err != nil {
			return nil, err
		}
		how, err := readBehavior(raw, path, "")
		if err != nil {
			return nil, err
		}
		if absent(f.Pattern) {
			return nil, format(path, "Split without pattern")
		}
		p, err := readPattern(f.Pattern, path+".pattern")
		return &splitPattern{p, how, f.Invert}, err
	}
	return nil, unknownKind(path+".type", kind)
}

func readBehavior(raw json.RawMessage, path, def string) (behavior, error) {
	f := struct {
		Behavior string `json:"behavior"`
	}{def}
	if err := decode(raw, path, &f); err != nil {
		return 0, err
	}
	how, ok := behaviors[f.Behavior]
	if !ok {
		return 0, unknownKind(path+".behavior", f.Behavior)
	}
	return how, nil
}

// gpt2Words is compiled once; every tokenizer uses the same.
var gpt2Words = func() *pattern.Pattern {
	p, err := pattern.Compile(gpt2)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return p
}

func readByteLevel(raw json.RawMessage, path string) (*byteLevel, error) {
	f := struct {
		Prefix bool  `json:"add_prefix_space"`
		Regex  *bool `json:"use_regex"`
	}{}
	if err := decode(raw, path, &f); err != nil {
		return nil, err
	}
	b := &byteLevel{prefix: f.Prefix}
	if f.Regex == nil || *f.Regex {
		b.words = gpt2Words()
	}
	return b, nil
}

func readMetaspace(raw json.RawMessage, path string) (*metaspace, error) {
	f := struct {
		Mark   string `json:"replacement"`
		Prefix *bool  `json:"add_prefix_space"`
		Scheme string `json:"prepend_scheme"`
		Split  *bool  `json:"split"`
	}{Scheme: "always"}
	if err := decode(raw, path, &f); err != nil {
		return nil, err
	}
	mark, size := utf8.DecodeRuneInString(f.Mark)
	if size == 0 || size != len(f.Mark) {
		return nil, format(path+".replacement", "is not one character")
	}
	switch f.Scheme {
	case "first", "always", "never":
	default:
		return nil, unknownKind(path+".prepend_scheme", f.Scheme)
	}
	if f.Prefix != nil && !*f.Prefix {
		// A file of an old version says the one, a file of a new version the other.
		var said struct {
			Scheme *string `json:"prepend_scheme"`
		}
		if err := decode(raw, path, &said); err != nil {
			return nil, err
		}
		if said.Scheme == nil || *said.Scheme != "never" {
			return nil, format(path, "add_prefix_space does not fit prepend_scheme")
		}
	}
	return &metaspace{mark, f.Mark, f.Scheme, f.Split == nil || *f.Split}, nil
}

func readProcessor(raw json.RawMessage, path string) (processor, error) {
	kind, err := kindOf(raw, path)
	if err != nil {
		return nil, err
	}
	switch kind {
	case "Sequence":
		all := processors{}
		if err := tooDeep(path); err != nil {
			return nil, err
		}
		err := list(raw, path, "processors", func(part json.RawMessage, path string) error {
			p, err := readProcessor(part, path)
			all = append(all, p)
			return err
		})
		return all, err
	case "ByteLevel":
		f := struct {
			Trim   bool `json:"trim_offsets"`
			Prefix bool `json:"add_prefix_space"`
		}{true, true}
		err := decode(raw, path, &f)
		return trimmer{f.Trim, f.Prefix}, err
	case "BertProcessing", "RobertaProcessing":
		return readAround(raw, path, kind == "RobertaProcessing")
	case "TemplateProcessing":
		return readTemplate(raw, path)
	}
	return nil, unknownKind(path+".type", kind)
}

func readAround(raw json.RawMessage, path string, roberta bool) (processor, error) {
	p := &around{roberta: roberta}
	cls, sep := []any{&p.cls, &p.clsID}, []any{&p.sep, &p.sepID}
	f := struct {
		Cls    *[]any `json:"cls"`
		Sep    *[]any `json:"sep"`
		Trim   bool   `json:"trim_offsets"`
		Prefix bool   `json:"add_prefix_space"`
	}{&cls, &sep, true, true}
	if err := decode(raw, path, &f); err != nil {
		return nil, err
	}
	if len(cls) != 2 || len(sep) != 2 || p.cls == "" || p.sep == "" {
		return nil, format(path, "cls and sep are not a token and its number each")
	}
	p.trimmer = trimmer{f.Trim, f.Prefix}
	return p, nil
}

func readTemplate(raw json.RawMessage, path string) (processor, error) {
	type special struct {
		IDs    []uint32 `json:"ids"`
		Tokens []string `json:"tokens"`
	}
	type part struct {
		Sequence *struct {
			ID     string `json:"id"`
			TypeID uint32 `json:"type_id"`
		}
		SpecialToken *struct {
			ID     string `json:"id"`
			TypeID uint32 `json:"type_id"`
		}
	}
	var f struct {
		Single  []part             `json:"single"`
		Pair    []part             `json:"pair"`
		Special map[string]special `json:"special_tokens"`
	}
	if err := decode(raw, path, &f); err != nil {
		return nil, err
	}
	for _, name := range sortedKeys(f.Special) {
		if s := f.Special[name]; len(s.IDs) != len(s.Tokens) {
			return nil, format(
				path+".special_tokens", "%q has %d ids and %d tokens", clip(name), len(s.IDs), len(s.Tokens),
			)
		}
	}
	read := func(parts []part, field string, sequences int) (out []templatePart, added int, err error) {
		texts := 0
		for i, p := range parts {
			at := fmt.Sprintf("%s.%s[%d]", path, field, i)
			switch {
			case p.Sequence != nil:
				n := map[string]int{"A": 0, "B": 1}[p.Sequence.ID]
				if p.Sequence.ID != "A" && p.Sequence.ID != "B" || n >= sequences {
					return nil, 0, format(at, "no text %q", clip(p.Sequence.ID))
				}
				if texts++; texts > 16 {
					return nil, 0, &UnsupportedError{Path: at, What: "a text more than 16 times"}
				}
				out = append(out, templatePart{sequence: n, typeID: p.Sequence.TypeID})
			case p.SpecialToken != nil:
				s, ok := f.Special[p.SpecialToken.ID]
				if !ok {
					return nil, 0, format(at, "%q is not among special_tokens", clip(p.SpecialToken.ID))
				}
				if added += len(s.IDs); added > maxPadding {
					return nil, 0, &UnsupportedError{Path: at, What: "adding more than 4 million tokens"}
				}
				out = append(out, templatePart{-1, p.SpecialToken.TypeID, s.IDs, s.Tokens})
			default:
				return nil, 0, format(at, "neither a text nor a special token")
			}
		}
		return out, added, nil
	}
	t := &template{}
	var err error
	if t.single, t.addedSingle, err = read(f.Single, "single", 1); err != nil {
		return nil, err
	}
	t.pair, t.addedPair, err = read(f.Pair, "pair", 2)
	return t, err
}

// readDecoders reads a decoder, or those of a sequence one after the other.
func readDecoders(raw json.RawMessage, path string) ([]decoder, error) {
	kind, err := kindOf(raw, path)
	if err != nil {
		return nil, err
	}
	if kind != "Sequence" {
		d, err := readDecoder(kind, raw, path)
		if err == nil && growthOf([]decoder{d}) > maxGrowth {
			err = &UnsupportedError{Path: path, What: "a replacement that is thousands of times as long"}
		}
		return []decoder{d}, err
	}
	if err := tooDeep(path); err != nil {
		return nil, err
	}
	all := []decoder{}
	err = list(raw, path, "decoders", func(part json.RawMessage, path string) error {
		more, err := readDecoders(part, path)
		if err == nil && growthOf(append(all, more...)) > maxGrowth {
			return &UnsupportedError{Path: path, What: "a sequence that makes texts thousands of times as long"}
		}
		if all = append(all, more...); err == nil && len(all) > maxStages {
			err = &UnsupportedError{Path: path, What: "a sequence of more than 100 decoders"}
		}
		return err
	})
	return all, err
}

func readDecoder(kind string, raw json.RawMessage, path string) (decoder, error) {
	switch kind {
	case "ByteLevel":
		return &byteLevel{}, nil
	case "Metaspace":
		return readMetaspace(raw, path)
	case "ByteFallback":
		return byteFallback{}, nil
	case "Fuse":
		return fuse{}, nil
	case "WordPiece":
		f := struct {
			Prefix  string `json:"prefix"`
			Cleanup bool   `json:"cleanup"`
		}{"##", true}
		err := decode(raw, path, &f)
		return &wordPieceDecoder{f.Prefix, f.Cleanup}, err
	case "BPEDecoder":
		f := struct {
			Suffix string `json:"suffix"`
		}{"</w>"}
		err := decode(raw, path, &f)
		return bpeDecoder(f.Suffix), err
	case "CTC":
		f := struct {
			Pad       string `json:"pad_token"`
			Delimiter string `json:"word_delimiter_token"`
			Cleanup   bool   `json:"cleanup"`
		}{"<pad>", "|", true}
		err := decode(raw, path, &f)
		return &ctc{f.Pad, f.Delimiter, f.Cleanup}, err
	case "Strip":
		var f struct {
			Content string `json:"content"`
			Start   uint32 `json:"start"`
			Stop    uint32 `json:"stop"`
		}
		if err := decode(raw, path, &f); err != nil {
			return nil, err
		}
		if utf8.RuneCountInString(f.Content) != 1 {
			return nil, format(path+".content", "is not one character")
		}
		return &stripDecoder{f.Content, int(f.Start), int(f.Stop)}, nil
	case "Replace":
		p, content, err := readReplace(raw, path)
		return &replaceDecoder{p, content}, err
	}
	return nil, unknownKind(path+".type", kind)
}
