package grammar

import (
	"bytes"
	"slices"
)

// A Vocabulary is the tokens of a tokenizer as a tree of their bytes. It may be shared by goroutines and by grammars.
type Vocabulary struct {
	tokens [][]byte
	// The tree in the order of a walk: node i has the byte by which it is reached, its depth, and the node after all below it.
	bytes  []byte
	depth  []uint16
	after  []int32
	ends   []int32 // tokens that end at node i: ids[ends[i]:ends[i+1]]
	ids    []int32
	deepst int
}

// maxTokenBytes is what a token may have; longer ones are never allowed by a mask.
const maxTokenBytes = 1 << 10

// NewVocabulary makes a vocabulary of the tokens' bytes, by id. Tokens that stand for no text, such as the end of a sequence,
// are empty, and no mask allows them.
func NewVocabulary(tokens [][]byte) *Vocabulary {
	v := &Vocabulary{tokens: tokens}
	order := make([]int32, 0, len(tokens))
	for i, t := range tokens {
		if len(t) > 0 && len(t) <= maxTokenBytes {
			order = append(order, int32(i))
		}
	}
	slices.SortStableFunc(order, func(a, b int32) int { return bytes.Compare(tokens[a], tokens[b]) })
	v.ids = order
	var path []int32 // nodes of the last token's bytes
	var last []byte
	for i, id := range order {
		t := tokens[id]
		same := 0
		for same < len(t) && same < len(last) && t[same] == last[same] {
			same++
		}
		for _, n := range path[same:] {
			v.after[n] = int32(len(v.bytes))
		}
		path = path[:same]
		for d := same; d < len(t); d++ {
			path = append(path, int32(len(v.bytes)))
			v.bytes = append(v.bytes, t[d])
			v.depth = append(v.depth, uint16(d))
			v.after = append(v.after, 0)
			v.ends = append(v.ends, int32(i))
		}
		v.deepst = max(v.deepst, len(t))
		last = t
	}
	for _, n := range path {
		v.after[n] = int32(len(v.bytes))
	}
	v.ends = append(v.ends, int32(len(order)))
	return v
}

// Len returns the number of tokens.
func (v *Vocabulary) Len() int { return len(v.tokens) }

// A Mask has a bit for each token: bit id%64 of word id/64.
type Mask []uint64

// Has reports whether a token is in the mask.
func (m Mask) Has(id int) bool { return m[id/64]>>(id%64)&1 != 0 }

func (m Mask) set(id int32) { m[id/64] |= 1 << (id % 64) }

// Mask returns an empty mask for the vocabulary.
func (v *Vocabulary) mask() Mask { return make(Mask, (len(v.tokens)+63)/64) }
