package tokenizer

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"sort"
	"strconv"
	"strings"
)

func sortBy(order []int, less func(a, b int) bool) {
	sort.SliceStable(order, func(i, j int) bool { return less(order[i], order[j]) })
}

// An encodingOf is what tiktoken knows of an encoding beside its file.
type encodingOf struct {
	pattern string
	special map[string]uint32
}

var endOfText = "<|endoftext|>"

// tiktokenEncodings are the encodings of known files. Whisper's two have no tokens of their own here: its code adds them.
var tiktokenEncodings = map[string]encodingOf{
	"gpt2":         {gpt2, map[string]uint32{endOfText: 50256}},
	"multilingual": {gpt2, map[string]uint32{endOfText: 50257}},
	"r50k_base":    {gpt2, map[string]uint32{endOfText: 50256}},
	"p50k_base":    {gpt2, map[string]uint32{endOfText: 50256}},
	"cl100k_base": {patternLlama3, map[string]uint32{
		endOfText: 100257, "<|fim_prefix|>": 100258, "<|fim_middle|>": 100259, "<|fim_suffix|>": 100260,
		"<|endofprompt|>": 100276,
	}},
	"o200k_base": {patternO200k, map[string]uint32{endOfText: 199999, "<|endofprompt|>": 200018}},
	"qwen":       {patternQwen2, map[string]uint32{endOfText: 151643, "<|im_start|>": 151644, "<|im_end|>": 151645}},
}

func parseTiktokenFile(data []byte, name string) (*Tokenizer, error) {
	known, ok := tiktokenEncodings[name]
	if !ok {
		return nil, &UnsupportedError{What: fmt.Sprintf("%q, whose pattern is not known,", clip(name))}
	}
	return ParseTiktoken(data, known.pattern, known.special)
}

// ParseTiktoken reads a file of tiktoken: lines of a token in base64 and its rank, which is its number. The pattern says
// what words are; special are the tokens beside the file.
func ParseTiktoken(data []byte, pattern string, special map[string]uint32) (*Tokenizer, error) {
	ids := make(map[string]uint32)
	for i, line := range lines(data) {
		if line == "" {
			continue
		}
		at := fmt.Sprintf("line %d", i+1)
		token, rank, ok := strings.Cut(line, " ")
		b, err := base64.StdEncoding.DecodeString(token)
		if !ok || err != nil || len(b) == 0 {
			return nil, format(at, "is not a token in base64 and a number")
		}
		id, err := strconv.ParseUint(strings.TrimSpace(rank), 10, 31)
		if err != nil {
			return nil, format(at, "%q is not a rank", clip(rank))
		}
		ids[spell(b)] = uint32(id)
	}
	return byteRanks(ids, pattern, special)
}

// spell writes bytes with the characters of byte-level vocabularies.
func spell(b []byte) string {
	var s strings.Builder
	for _, c := range b {
		s.WriteRune(byteRunes[c])
	}
	return s.String()
}

// byteRanks makes a tokenizer of tokens by rank.
func byteRanks(ids map[string]uint32, pattern string, special map[string]uint32) (*Tokenizer, error) {
	pre, err := byteLevelWords(pattern)
	if err != nil {
		return nil, err
	}
	// Special tokens are in the vocabulary, so that they have the numbers that are given, but no pair makes one.
	ordinary := uint32(0)
	own := make(map[uint32]bool, len(ids))
	for _, id := range ids {
		ordinary = max(ordinary, id)
		own[id] = true
	}
	if len(ids) < 256 {
		return nil, format("", "%d tokens, which is less than there are bytes", len(ids))
	}
	var added []AddedToken
	names := sortedKeys(special)
	for _, name := range names {
		ids[name] = special[name]
		added = append(added, AddedToken{Content: name, Special: true})
	}
	m, err := byRank(
		newVocabulary(ids), func(id uint32) (uint32, bool) { return id, own[id] }, bpeOptions{ignoreMerges: true},
	)
	if err != nil {
		return nil, err
	}
	t := &Tokenizer{pre: pre, model: m, decoders: []decoder{&byteLevel{}}}
	return t, t.complete(added)
}

var errNotTekken = errors.New("not a tekken file")

// parseTekken reads Mistral's tekken.json.
func parseTekken(data []byte) (*Tokenizer, error) {
	var head struct {
		Config *json.RawMessage `json:"config"`
		Model  *json.RawMessage `json:"model"`
	}
	if json.Unmarshal(data, &head) != nil || head.Config == nil || head.Model != nil {
		return nil, errNotTekken
	}
	var f struct {
		Config struct {
			Pattern    string `json:"pattern"`
			Vocab      int    `json:"default_vocab_size"`
			NumSpecial int    `json:"default_num_special_tokens"`
		} `json:"config"`
		Vocab []struct {
			Rank  int    `json:"rank"`
			Bytes string `json:"token_bytes"`
		} `json:"vocab"`
		Special []struct {
			Rank int    `json:"rank"`
			Text string `json:"token_str"`
		} `json:"special_tokens"`
	}
	if err := decode(data, "", &f); err != nil {
		return nil, err
	}
	n := f.Config.NumSpecial
	if n < 0 || n > 1<<20 || f.Config.Vocab < n {
		return nil, format("config", "%d special tokens of %d", n, f.Config.Vocab)
	}
	special := make(map[string]uint32, n)
	names := f.Special
	if names == nil {
		for i, s := range []string{
			"<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]",
			"[/TOOL_RESULTS]",
			"[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]", "[IMG_END]", "[PREFIX]", "[MIDDLE]", "[SUFFIX]",
			"[SYSTEM_PROMPT]",
			"[/SYSTEM_PROMPT]", "[TOOL_CONTENT]",
		} {
			if i < n {
				special[s] = uint32(i)
			}
		}
	}
	for i, s := range names {
		if s.Rank < 0 || s.Rank >= n || s.Text == "" {
			return nil, format(fmt.Sprintf("special_tokens[%d]", i), "rank %d of %d", s.Rank, n)
		}
		special[s.Text] = uint32(s.Rank)
	}
	taken := make(map[uint32]bool, n)
	for _, id := range special {
		taken[id] = true
	}
	for i := range uint32(n) {
		if !taken[i] {
			special[fmt.Sprintf("<SPECIAL_%d>", i)] = i
		}
	}
	ids := make(map[string]uint32, len(f.Vocab))
	for i, v := range f.Vocab {
		if v.Rank < 0 || v.Rank >= f.Config.Vocab-n {
			continue // beyond the size that the model has
		}
		b, err := base64.StdEncoding.DecodeString(v.Bytes)
		if err != nil || len(b) == 0 {
			return nil, format(fmt.Sprintf("vocab[%d]", i), "is not a token in base64")
		}
		ids[spell(b)] = uint32(v.Rank + n)
	}
	t, err := byteRanks(ids, f.Config.Pattern, special)
	if err == nil {
		t.ends("<s>", "")
	}
	return t, err
}
