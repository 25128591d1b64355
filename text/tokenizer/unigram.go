package tokenizer

import (
	"fmt"
	"math"
	"unicode/utf8"
)

// unigram finds the tokens of a word that have the best sum of scores.
type unigram struct {
	tokens   []string
	scores   []float64
	ids      map[string]uint32
	trie     *trie
	unknown  int // −1 for none
	worst    float64
	fallback bool // spell unknown characters in bytes
	bytes    [256]int64
	single   bool              // sums are rounded to 32 bits
	named    map[string]uint32 // tokens that no text gives
}

// unknownPenalty is what an unknown character scores below the worst token.
const unknownPenalty = 10

func newUnigram(tokens []string, scores []float64, unknown int, fallback bool) *unigram {
	m := &unigram{tokens: tokens, scores: scores, unknown: unknown, fallback: fallback, worst: math.Inf(1)}
	m.ids, m.named = make(map[string]uint32, len(tokens)), make(map[string]uint32)
	for i, t := range tokens {
		m.ids[t] = uint32(i)
		if scores[i] < m.worst {
			m.worst = scores[i]
		}
	}
	m.trie = newTrie(tokens, func(i int) int32 { return int32(i) })
	m.bytes = byteTokens(func(t string) (uint32, bool) { id, ok := m.ids[t]; return id, ok })
	return m
}

// byteTokens are the tokens <0x00> to <0xFF>, −1 for those that there are not.
func byteTokens(id func(string) (uint32, bool)) (all [256]int64) {
	for b := range all {
		all[b] = -1
		if n, ok := id(fmt.Sprintf("<0x%02X>", b)); ok {
			all[b] = int64(n)
		}
	}
	return all
}

func (m *unigram) id(token string) (uint32, bool) {
	if id, ok := m.ids[token]; ok {
		return id, true
	}
	id, ok := m.named[token]
	return id, ok
}

func (m *unigram) token(id uint32) (string, bool) {
	if int64(id) >= int64(len(m.tokens)) {
		return "", false
	}
	return m.tokens[id], true
}

func (m *unigram) size() int { return len(m.tokens) }

// A best is the best way to a place in a word.
type best struct {
	score float64
	start int32 // of the last token, −1 if there is no way yet
	id    int32
}

type unigramRun struct {
	ends  []best
	parts []Span
}

func (m *unigram) tokenize(r *run, p *piece) error {
	text := p.text
	u := &r.unigram
	if cap(u.ends) < len(text)+1 {
		u.ends = make([]best, len(text)+1)
	}
	ends := u.ends[:len(text)+1]
	for i := range ends {
		ends[i] = best{start: -1}
	}
	defer func() {
		if cap(u.ends) > 1<<16 {
			u.ends = nil
		}
	}()
	unknownScore := m.worst - unknownPenalty
	for start := 0; start < len(text); {
		here := ends[start].score
		_, size := utf8.DecodeRuneInString(text[start:])
		single := false
		node := int32(0)
		for i := start; i < len(text); i++ {
			if node = m.trie.child(node, text[i]); node == 0 {
				break
			}
			id := m.trie.value[node]
			if id < 0 {
				continue
			}
			to := &ends[i+1]
			if score := m.rounded(m.scores[id] + here); to.start < 0 || score > to.score {
				*to = best{score, int32(start), id}
			}
			single = single || i+1 == start+size
		}
		if !single {
			to := &ends[start+size]
			if score := m.rounded(unknownScore + here); to.start < 0 || score > to.score {
				if m.unknown < 0 {
					return &TextError{"a character that is not in the vocabulary, which has no token for unknown ones"}
				}
				*to = best{score, int32(start), int32(m.unknown)}
			}
		}
		start += size
	}
	// From the end to the beginning; unknown ones next to each other become one.
	parts := u.parts[:0]
	fused := false
	for end := len(text); end > 0; {
		b := ends[end]
		unknown := int(b.id) == m.unknown
		if unknown && fused {
			parts[len(parts)-1].Start = int(b.start)
		} else {
			parts = append(parts, Span{int(b.start), end})
		}
		fused = unknown
		end = int(b.start)
	}
	u.parts = parts
	for i := len(parts) - 1; i >= 0; i-- {
		if err := m.addPart(r, p, parts[i].Start, parts[i].End); err != nil {
			return err
		}
	}
	return nil
}

// rounded is a sum as sentencepiece has it, in 32 bits.
func (m *unigram) rounded(score float64) float64 {
	if m.single {
		return float64(float32(score))
	}
	return score
}

func (m *unigram) addPart(r *run, p *piece, from, to int) error {
	part := p.text[from:to]
	if id, ok := m.ids[part]; ok {
		r.add(id, m.tokens[id], p, from, to)
		return nil
	}
	if m.fallback {
		whole := true
		for i := range len(part) {
			whole = whole && m.bytes[part[i]] >= 0
		}
		if whole {
			for i := range len(part) {
				id := uint32(m.bytes[part[i]])
				r.add(id, m.tokens[id], p, from, to)
			}
			return nil
		}
	}
	if m.unknown < 0 {
		return &TextError{"a character that is not in the vocabulary, which has no token for unknown ones"}
	}
	r.add(uint32(m.unknown), part, p, from, to)
	return nil
}
