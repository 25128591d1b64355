package tokenizer

import (
	"encoding/json"
	"fmt"
	"slices"
)

// A fileForGGUF is what ToGGUF reads of a tokenizer.json.
type fileForGGUF struct {
	Normalizer   partForGGUF `json:"normalizer"`
	PreTokenizer partForGGUF `json:"pre_tokenizer"`
	Post         partForGGUF `json:"post_processor"`
	Added        []struct {
		ID      int    `json:"id"`
		Content string `json:"content"`
		Special bool   `json:"special"`
	} `json:"added_tokens"`
	Model struct {
		Type         string            `json:"type"`
		Vocab        json.RawMessage   `json:"vocab"`
		Merges       []json.RawMessage `json:"merges"`
		IgnoreMerges bool              `json:"ignore_merges"`
		Fallback     bool              `json:"byte_fallback"`
		Prefix       string            `json:"continuing_subword_prefix"`
		Suffix       string            `json:"end_of_word_suffix"`
	} `json:"model"`
}

// A partForGGUF is a pre-tokenizer or a post-processor.
type partForGGUF struct {
	Type           string        `json:"type"`
	PreTokenizers  []partForGGUF `json:"pretokenizers"`
	Processors     []partForGGUF `json:"processors"`
	AddPrefixSpace bool          `json:"add_prefix_space"`
	UseRegex       *bool         `json:"use_regex"`
	Individual     bool          `json:"individual_digits"`
	Invert         bool          `json:"invert"`
	Behavior       string        `json:"behavior"`
	Pattern        struct {
		Regex string `json:"Regex"`
	} `json:"pattern"`
	Single []struct {
		Sequence     *struct{} `json:"Sequence"`
		SpecialToken *struct {
			ID string `json:"id"`
		} `json:"SpecialToken"`
	} `json:"single"`
}

// ToGGUF returns what a GGUF file says of a tokenizer.json, by keys that begin with "tokenizer.ggml.", as
// [FromGGUF] reads it: BPE over bytes, whose words are made by a pattern that llama.cpp has a name for. The list of
// tokens is filled up to as many as the model has embeddings. Which tokens begin and end texts is not in the file.
func ToGGUF(text []byte, embeddings int) (map[string]any, error) {
	var f fileForGGUF
	if err := json.Unmarshal(text, &f); err != nil {
		return nil, format("tokenizer.json", "%v", err)
	}
	lacks := func(path, what string) (map[string]any, error) { return nil, &UnsupportedError{Path: path, What: what} }
	m := &f.Model
	switch {
	case m.Type != "BPE" || m.Fallback || m.Prefix+m.Suffix != "":
		return lacks("model", fmt.Sprintf("%q: GGUF files are made with BPE over bytes only", clip(m.Type)))
	case f.Normalizer.Type != "" && f.Normalizer.Type != "NFC": // llama.cpp has none of either
		return lacks("normalizer", fmt.Sprintf("%q in a GGUF file", clip(f.Normalizer.Type)))
	case embeddings < 1 || embeddings > mostForGGUF:
		return nil, format("model", "%d tokens", embeddings)
	}
	pre, ok := f.PreTokenizer.forGGUF(m.IgnoreMerges)
	if !ok {
		return lacks("pre_tokenizer", "a pattern of words that llama.cpp has no name for")
	}
	tokens, types := make([]string, embeddings), make([]int32, embeddings)
	for i := range tokens {
		tokens[i], types[i] = fmt.Sprintf("[PAD%d]", i), pieceUnused
	}
	put := func(content string, id int, kind int32) error {
		if id < 0 || id >= embeddings {
			return format("model.vocab", "the token %q is number %d of %d", clip(content), id, embeddings)
		}
		tokens[id], types[id] = content, kind
		return nil
	}
	var vocab map[string]int
	if err := json.Unmarshal(m.Vocab, &vocab); err != nil {
		return nil, format("model.vocab", "%v", err)
	}
	for content, id := range vocab {
		if err := put(content, id, pieceNormal); err != nil {
			return nil, err
		}
	}
	for _, a := range f.Added {
		kind := int32(pieceUser)
		if a.Special {
			kind = pieceControl
		}
		if err := put(a.Content, a.ID, kind); err != nil {
			return nil, err
		}
	}
	merges, err := mergesForGGUF(m.Merges)
	if err != nil {
		return nil, err
	}
	return map[string]any{
		ggufKey + "model": "gpt2", ggufKey + "pre": pre, ggufKey + "tokens": tokens, ggufKey + "token_type": types,
		ggufKey + "merges": merges, ggufKey + "add_bos_token": f.Post.begins(),
	}, nil
}

// mostForGGUF bounds the tokens of a file.
const mostForGGUF = 1 << 24

// mergesForGGUF are lines of two tokens each.
func mergesForGGUF(list []json.RawMessage) ([]string, error) {
	merges := make([]string, len(list))
	for i, raw := range list {
		var pair []string
		switch {
		case json.Unmarshal(raw, &merges[i]) == nil:
		case json.Unmarshal(raw, &pair) == nil && len(pair) == 2:
			merges[i] = pair[0] + " " + pair[1]
		default:
			return nil, format("model.merges", "number %d is no pair", i)
		}
	}
	return merges, nil
}

// forGGUF returns llama.cpp's name for how words are made.
func (p *partForGGUF) forGGUF(ignoreMerges bool) (string, bool) {
	parts := p.PreTokenizers
	if p.Type != "Sequence" {
		parts = []partForGGUF{*p}
	}
	var patterns []string
	for i, part := range parts {
		switch last := i == len(parts)-1; {
		case part.Type == "Digits" && part.Individual:
			patterns = append(patterns, `\p{N}`)
		case part.Type == "Split" && (part.Behavior == "Isolated" && !part.Invert || part.Behavior == "Removed" &&
			part.Invert):
			patterns = append(patterns, part.Pattern.Regex)
		case part.Type == "ByteLevel" && last && !part.AddPrefixSpace:
			if part.UseRegex == nil || *part.UseRegex {
				patterns = append(patterns, gpt2)
			}
		default:
			return "", false
		}
	}
	for _, name := range []string{"gpt-2", "smollm", "llama-bpe", "qwen2", "gpt-4o", "tekken", "deepseek-v3"} {
		if slices.Equal(ggufPatterns[name], patterns) {
			return name, ignoreMerges == (name == "llama-bpe" || name == "tekken")
		}
	}
	return "", false
}

// begins reports whether a token is put before every text.
func (p *partForGGUF) begins() bool {
	if len(p.Single) > 0 && p.Single[0].SpecialToken != nil {
		return true
	}
	return slices.ContainsFunc(p.Processors, func(q partForGGUF) bool { return q.begins() })
}
