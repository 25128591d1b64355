package tokenizer

import (
	"fmt"
	"math"
	"strings"

	"github.com/optimem/optimem/text/tokenizer/internal/pattern"
)

// splitMerges reads lines of two tokens with a space between.
func splitMerges(lines []string, path string) ([]string, error) {
	pairs := make([]string, 0, 2*len(lines))
	for i, line := range lines {
		if strings.HasPrefix(line, "#version") {
			continue
		}
		left, right, ok := strings.Cut(line, " ")
		if !ok || strings.Contains(right, " ") {
			return nil, format(fmt.Sprintf("%s[%d]", path, i), "%q is not two tokens", clip(line))
		}
		pairs = append(pairs, left, right)
	}
	return pairs, nil
}

// lines cuts a text at its newlines; the last line may have none.
func lines(data []byte) []string {
	text := strings.TrimSuffix(string(data), "\n")
	if text == "" {
		return nil
	}
	all := strings.Split(text, "\n")
	for i := range all {
		all[i] = strings.TrimSuffix(all[i], "\r")
	}
	return all
}

// Patterns of well-known tokenizers.
const (
	patternLlama3 = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|` +
		`\s*[\r\n]+|\s+(?!\S)|\s+`
	patternQwen2 = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|` +
		`\s+(?!\S)|\s+`
	patternO200k = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|` +
		`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|` +
		`\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternClip = `'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+`
)

// byteLevelWords are the pre-tokenizers of a byte-level model whose words are the matches of patterns, one after the other.
func byteLevelWords(patterns ...string) ([]preTokenizer, error) {
	var pre []preTokenizer
	for _, source := range patterns {
		p, err := pattern.Compile(source)
		if err != nil {
			return nil, &UnsupportedError{What: err.Error() + ", which"}
		}
		pre = append(pre, &splitPattern{pattern: p, how: isolated})
	}
	return append(pre, &byteLevel{}), nil
}

// parseVocabMerges reads vocab.json and merges.txt: GPT-2's, RoBERTa's, CLIP's or Qwen2's, as tokenizer_config.json says.
func parseVocabMerges(vocab, merges []byte, c *config) (*Tokenizer, error) {
	var ids map[string]uint32
	if err := decode(vocab, "", &ids); err != nil {
		return nil, err
	}
	pairs, err := splitMerges(lines(merges), "merges.txt")
	if err != nil {
		return nil, err
	}
	t := &Tokenizer{decoders: []decoder{&byteLevel{}}}
	o := bpeOptions{}
	var unknown string
	class := strings.TrimSuffix(c.Class, "Fast")
	if _, ok := ids["<|endoftext|></w>"]; class == "" && (ok || hasSuffixed(ids)) {
		class = "CLIPTokenizer"
	}
	switch class {
	case "", "GPT2Tokenizer", "RobertaTokenizer", "BartTokenizer", "WhisperTokenizer", "PreTrainedTokenizer":
		t.pre = []preTokenizer{&byteLevel{prefix: c.PrefixSpace, words: gpt2Words()}}
		if class == "RobertaTokenizer" || class == "BartTokenizer" {
			cls, ok := ids["<s>"]
			sep, also := ids["</s>"]
			if !ok || !also {
				return nil, format("", "no <s> or </s> in the vocabulary of a %s", class)
			}
			t.post = &around{
				cls: "<s>", sep: "</s>", clsID: cls, sepID: sep, roberta: true, trimmer: trimmer{true, c.PrefixSpace},
			}
		}
	case "Qwen2Tokenizer":
		t.normalizer = &unicodeForm{compose: true}
		if t.pre, err = byteLevelWords(patternQwen2); err != nil {
			return nil, err
		}
	case "CLIPTokenizer":
		space, err := pattern.Compile(`\s+`)
		if err != nil {
			return nil, err
		}
		words, err := pattern.Compile(patternClip)
		if err != nil {
			return nil, err
		}
		t.normalizer = normalizers{&unicodeForm{compose: true}, &replace{pattern: space, content: " "}, lowercase{}}
		t.pre = []preTokenizer{&splitPattern{words, removed, true}, &byteLevel{}}
		o.suffix, unknown = "</w>", "<|endoftext|>"
		bos, ok := ids["<|startoftext|>"]
		eos, also := ids["<|endoftext|>"]
		if !ok || !also {
			return nil, format("", "no <|startoftext|> or <|endoftext|> in the vocabulary")
		}
		t.post = &around{cls: "<|startoftext|>", sep: "<|endoftext|>", clsID: bos, sepID: eos, roberta: true}
		t.decoders = []decoder{bpeBytes{"</w>"}}
	default:
		return nil, &UnsupportedError{Path: "tokenizer_class", What: "vocab.json of a " + clip(c.Class)}
	}
	if _, ok := ids[unknown]; ok && unknown != "" {
		o.unknown, o.hasUnknown = unknown, true
	}
	if t.model, err = newBPE(newVocabulary(ids), pairs, o); err != nil {
		return nil, err
	}
	added, err := c.added()
	if err != nil {
		return nil, err
	}
	if added == nil {
		for _, name := range []string{"<|endoftext|>", "<|startoftext|>", "<s>", "</s>", "<pad>", "<unk>", "<mask>"} {
			if _, ok := ids[name]; ok {
				added = append(added, AddedToken{Content: name, Special: true, LStrip: name == "<mask>"})
			}
		}
	}
	return t, t.complete(added)
}

func hasSuffixed(ids map[string]uint32) bool {
	n := 0
	for t := range ids {
		if strings.HasSuffix(t, "</w>") {
			n++
		}
	}
	return n > len(ids)/4
}

// bpeBytes decodes bytes and makes a space of every suffix, as CLIP's tokenizer does.
type bpeBytes struct{ suffix string }

func (n bpeBytes) link(eager bool, next joint) joint {
	inner := bpeDecoder(n.suffix).link(eager, next)
	return (&byteLevel{}).link(eager, inner)
}

// parseVocabText reads BERT's vocab.txt.
func parseVocabText(data []byte, c *config) (*Tokenizer, error) {
	ids := make(map[string]uint32)
	for i, line := range lines(data) {
		ids[strings.TrimRight(line, " \t")] = uint32(i)
	}
	or := func(b *bool, def bool) bool {
		if b != nil {
			return *b
		}
		return def
	}
	lower := or(c.Lower, true)
	m, err := newWordPiece(newVocabulary(ids), "[UNK]", "##", 100)
	if err != nil {
		return nil, err
	}
	t := &Tokenizer{
		normalizer: bertNormalizer{true, or(c.Chinese, true), or(c.StripAccents, lower), lower},
		pre:        []preTokenizer{&atRunes{isSpace, removed}, &atRunes{isPunctuation, isolated}},
		model:      m,
		decoders:   []decoder{&wordPieceDecoder{"##", true}},
	}
	cls, ok := ids["[CLS]"]
	sep, also := ids["[SEP]"]
	if _, unknown := ids["[UNK]"]; !ok || !also || !unknown {
		return nil, format("", "no [UNK], [CLS] or [SEP]")
	}
	t.post = &around{cls: "[CLS]", sep: "[SEP]", clsID: cls, sepID: sep}
	added, err := c.added()
	if err != nil {
		return nil, err
	}
	if added == nil {
		for _, name := range []string{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"} {
			if _, ok := ids[name]; ok {
				added = append(added, AddedToken{Content: name, Special: true})
			}
		}
	}
	return t, t.complete(added)
}

// byRank makes a BPE model of tokens that are joined in the order of their ranks, whatever two they are made of: all
// pairs of tokens that make a token, each with the rank of what it makes.
func byRank(v *vocabulary, rank func(id uint32) (uint32, bool), o bpeOptions) (*bpe, error) {
	m, err := newBPE(v, nil, o)
	if err != nil {
		return nil, err
	}
	type pair struct{ left, right, whole, rank uint32 }
	var pairs []pair
	for token, id := range v.ids {
		r, ok := rank(id)
		if !ok {
			continue
		}
		if len(token) > maxToken {
			return nil, &UnsupportedError{What: "a token of more than 4096 bytes"}
		}
		for i := range token {
			if i == 0 {
				continue
			}
			left, ok := v.ids[token[:i]]
			if !ok {
				continue
			}
			if right, ok := v.ids[token[i:]]; ok {
				pairs = append(pairs, pair{left, right, id, r})
			}
		}
	}
	m.merges = newPairTable(len(pairs))
	for _, p := range pairs {
		m.merges.put(uint64(p.left)<<32|uint64(p.right), uint64(p.rank)<<32|uint64(p.whole))
		m.pairs = append(m.pairs, [2]uint32{p.left, p.right})
	}
	m.plain = m.plain && o.hasUnknown
	return m, nil
}

// maxToken bounds tokens, in bytes, where time grows with the longest.
const maxToken = 1 << 12

// ranked turns scores into ranks: the best is 0, and equal ones are equal.
func ranked(scores []float32) []uint32 {
	order := make([]int, len(scores))
	for i := range order {
		order[i] = i
	}
	sortBy(order, func(a, b int) bool { return scores[a] > scores[b] })
	ranks := make([]uint32, len(scores))
	n, last := uint32(0), float32(math.Inf(1))
	for _, i := range order {
		if scores[i] != last {
			n++
			last = scores[i]
		}
		ranks[i] = n
	}
	return ranks
}
