package tokenizer

import (
	"fmt"
	"math"
	"strings"
)

// FromGGUF makes a tokenizer of the metadata of a GGUF file, whose keys begin with "tokenizer.ggml.". Values are Go's
// strings, bools, integers of any size, and slices of strings, float32, int32, uint32 or bytes. Texts are encoded as
// llama.cpp does.
func FromGGUF(meta map[string]any) (*Tokenizer, error) {
	g := gguf(meta)
	tokens, _ := meta[ggufKey+"tokens"].([]string)
	if len(tokens) == 0 {
		return nil, format(ggufKey+"tokens", "are missing")
	}
	kind, _ := meta[ggufKey+"model"].(string)
	var t *Tokenizer
	var err error
	switch kind {
	case "llama", "t5":
		t, err = g.sentencePiece(tokens, kind)
	case "gpt2":
		t, err = g.bytes(tokens)
	case "bert":
		t, err = g.bert(tokens)
	default:
		err = &UnsupportedError{Path: ggufKey + "model", What: fmt.Sprintf("%q", clip(kind))}
	}
	if err != nil {
		return nil, err
	}
	name := func(key string) string {
		if id, ok := g.number(key); ok && id < uint64(len(tokens)) {
			return tokens[id]
		}
		return ""
	}
	bos, eos := "", ""
	if g.flag("add_bos_token", kind == "llama") {
		bos = name("bos_token_id")
	}
	if g.flag("add_eos_token", kind == "t5") {
		eos = name("eos_token_id")
	}
	if t.post == nil {
		t.ends(bos, eos)
	}
	return t, nil
}

const ggufKey = "tokenizer.ggml."

type gguf map[string]any

func (g gguf) flag(key string, def bool) bool {
	if b, ok := g[ggufKey+key].(bool); ok {
		return b
	}
	return def
}

func (g gguf) number(key string) (uint64, bool) {
	switch n := g[ggufKey+key].(type) {
	case uint32:
		return uint64(n), true
	case int32:
		return uint64(n), n >= 0
	case uint64:
		return n, true
	case int64:
		return uint64(n), n >= 0
	case int:
		return uint64(n), n >= 0
	case uint16:
		return uint64(n), true
	case uint8:
		return uint64(n), true
	}
	return 0, false
}

// types are the types of pieces, numbered as sentencepiece's. A file without them has ordinary tokens.
func (g gguf) types(n int) ([]int, error) {
	types := make([]int, n)
	for i := range types {
		types[i] = pieceNormal
	}
	switch list := g[ggufKey+"token_type"].(type) {
	case nil:
	case []int32:
		if len(list) != n {
			return nil, format(ggufKey+"token_type", "%d of them for %d tokens", len(list), n)
		}
		for i, v := range list {
			types[i] = int(v)
		}
	case []uint32:
		if len(list) != n {
			return nil, format(ggufKey+"token_type", "%d of them for %d tokens", len(list), n)
		}
		for i, v := range list {
			types[i] = int(v)
		}
	default:
		return nil, format(ggufKey+"token_type", "%T", list)
	}
	return types, nil
}

func (g gguf) sentencePiece(tokens []string, kind string) (*Tokenizer, error) {
	scores, _ := g[ggufKey+"scores"].([]float32)
	if len(scores) != len(tokens) {
		return nil, format(ggufKey+"scores", "%d of them for %d tokens", len(scores), len(tokens))
	}
	for i, s := range scores {
		if math.IsNaN(float64(s)) {
			return nil, format(ggufKey+"scores", "no number for token %d", i)
		}
	}
	types, err := g.types(len(tokens))
	if err != nil {
		return nil, err
	}
	m := &spModel{
		tokens: tokens, scores: scores, types: types, kind: 2, fallback: true, noTrim: true,
		noPrefix: !g.flag("add_space_prefix", true),
	}
	if kind == "t5" {
		m.kind, m.fallback = 1, false
		m.noTrim = !g.flag("remove_extra_whitespaces", false)
		m.charsmap, _ = g[ggufKey+"precompiled_charsmap"].([]byte)
	}
	if id, ok := g.number("unknown_token_id"); ok && id < uint64(len(types)) {
		m.types[id] = pieceUnknown
	}
	return m.tokenizer()
}

// ggufPatterns are what words are, by the name in tokenizer.ggml.pre. A name that is not here is refused: words that are wrong make
// wrong numbers, and nothing tells.
var ggufPatterns = map[string][]string{
	"gpt-2": {gpt2}, "default": {gpt2}, "mpt": {gpt2}, "olmo": {gpt2}, "jais": {gpt2}, "phi-2": {gpt2},
	"roberta-bpe": {gpt2}, "exaone4": {gpt2},
	"llama3": {patternLlama3}, "llama-v3": {patternLlama3}, "llama-bpe": {patternLlama3},
	"falcon3": {patternLlama3}, "glm4": {patternLlama3}, "chatglm-bpe": {patternLlama3},
	"deepseek-llm": {
		"[\r\n]", `\s?[` + lettersWithCase + `]+`, "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+", `\s+$`,
		"[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+", `\p{N}+`,
	},
	"qwen2": {patternQwen2}, "stablelm2": {patternQwen2}, "deepseek-r1-qwen": {patternQwen2},
	"megrez": {patternQwen2},
	"gpt-4o": {patternO200k}, "llama4": {patternO200k},
	"smollm": {`\p{N}`, gpt2}, "starcoder": {`\p{N}`, gpt2}, "refact": {`\p{N}`, gpt2}, "command-r": {`\p{N}`, gpt2},
	"codeshell": {`\p{N}`, gpt2}, "exaone": {`\p{N}`, gpt2},
	"deepseek-v3": {`\p{N}{1,3}`, "[一-龥぀-ゟ゠-ヿ]+", patternDeepSeek},
	"deepseek3":   {`\p{N}{1,3}`, "[一-龥぀-ゟ゠-ヿ]+", patternDeepSeek},
	"tekken": {strings.ReplaceAll(
		strings.ReplaceAll(patternO200k, `(?i:'s|'t|'re|'ve|'m|'ll|'d)?`, ""), `\p{N}{1,3}`, `\p{N}`,
	)},
}

// lettersWithCase are those of DeepSeek's first words.
const lettersWithCase = "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373" +
	"\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f" +
	"\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77" +
	"\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d" +
	"\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4" +
	"\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139" +
	"\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d" +
	"\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a" +
	"\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2" +
	"\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943"

const patternDeepSeek = "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|" +
	" ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"

func (g gguf) bytes(tokens []string) (*Tokenizer, error) {
	pre, _ := g[ggufKey+"pre"].(string)
	if pre == "" {
		pre = "default"
	}
	patterns, ok := ggufPatterns[pre]
	if !ok {
		return nil, &UnsupportedError{Path: ggufKey + "pre", What: fmt.Sprintf("%q", clip(pre))}
	}
	lines, _ := g[ggufKey+"merges"].([]string)
	pairs, err := splitMerges(lines, ggufKey+"merges")
	if err != nil {
		return nil, err
	}
	types, err := g.types(len(tokens))
	if err != nil {
		return nil, err
	}
	ids := numbered(tokens)
	whole := pre == "llama3" || pre == "llama-v3" || pre == "llama-bpe" || pre == "tekken" || pre == "falcon3"
	t := &Tokenizer{decoders: []decoder{&byteLevel{}}}
	if t.model, err = newBPE(newVocabulary(ids), pairs, bpeOptions{ignoreMerges: whole}); err != nil {
		return nil, err
	}
	if t.pre, err = byteLevelWords(patterns...); err != nil {
		return nil, err
	}
	return t, t.complete(ggufAdded(tokens, types))
}

func numbered(tokens []string) map[string]uint32 {
	ids := make(map[string]uint32, len(tokens))
	for i, token := range tokens {
		if _, ok := ids[token]; !ok {
			ids[token] = uint32(i)
		}
	}
	return ids
}

// ggufAdded are the tokens that are cut out of texts before words are made.
func ggufAdded(tokens []string, types []int) []AddedToken {
	var added []AddedToken
	for i, kind := range types {
		if kind == pieceControl || kind == pieceUser || kind == pieceUnknown {
			added = append(added, AddedToken{Content: tokens[i], Special: kind != pieceUser})
		}
	}
	return added
}

// bert turns round what the converter did: it marks tokens that begin words with ▁ and takes ## from those that go on.
func (g gguf) bert(tokens []string) (*Tokenizer, error) {
	ids := make(map[string]uint32, len(tokens))
	for i, token := range tokens {
		switch rest, begins := strings.CutPrefix(token, mark); {
		case begins:
			token = rest
		case strings.HasPrefix(token, "[") && strings.HasSuffix(token, "]"):
		default:
			token = "##" + token
		}
		if _, ok := ids[token]; !ok {
			ids[token] = uint32(i)
		}
	}
	lower := true
	var text strings.Builder
	names := make([]string, len(tokens))
	for token, id := range ids {
		names[id] = token
	}
	for _, token := range names {
		text.WriteString(token)
		text.WriteByte('\n')
	}
	return parseVocabText([]byte(text.String()), &config{Lower: &lower})
}
