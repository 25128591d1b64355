package grammar

import (
	"bytes"
	"slices"
	"unicode/utf8"
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
	// tall is one more than the characters that the longest token has below a node, if all below is text; 0 if it is not.
	tall []uint8
	// chars are the characters of each token of ids that is nothing but text, 0 of others, and plain says of nodes that all tokens
	// there and below are such ones.
	chars []uint8
	plain []bool
	// below has the groups of all bytes below a node, and high how many bytes the longest token has there.
	below []uint32
	high  []uint16
}

// isText reports whether a character is one that most rules for strings allow: none of JSON's control characters, quotes and
// backslashes.
func isText(r rune) bool { return r >= ' ' && r != '"' && r != '\\' && r != 0x7f }

// textBelow returns for each offset of a token one more than the characters of text that follow to its end; 0 where what follows
// is not text or where no character begins. A character may be cut off at the end.
func textBelow(t []byte) []uint8 {
	below := make([]uint8, len(t)+1)
	var starts []int
	for i := 0; i < len(t); {
		r, n := utf8.DecodeRune(t[i:])
		switch {
		case !utf8.FullRune(t[i:]):
			n = len(t) - i
		case r == utf8.RuneError && n == 1 || !isText(r):
			starts = starts[:0]
			i += n
			continue
		}
		starts = append(starts, i)
		i += n
	}
	for j, at := range starts {
		below[at] = uint8(min(len(starts)-j+1, 255))
	}
	return below
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
	const unknown = 255
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
			v.tall = append(v.tall, 1)
			v.below, v.high, v.plain = append(v.below, 0), append(v.high, 0), append(v.plain, true)
		}
		// The node after d+1 bytes has the rest of the token below it.
		below := textBelow(t)
		chars := uint8(0)
		if below[0] != unknown {
			chars = max(below[0], 1) - 1
		}
		v.chars = append(v.chars, chars)
		for k := len(path) - 1; chars == 0 && k >= 0 && v.plain[path[k]]; k-- {
			v.plain[path[k]] = false
		}
		groups := uint32(0)
		for d := len(t) - 1; d > 0; d-- {
			groups |= groupOf[t[d]]
			n := path[d-1]
			v.below[n] |= groups
			v.high[n] = max(v.high[n], uint16(len(t)-d))
		}
		for d, n := range path[:len(t)-1] {
			switch b := below[d+1]; {
			case b == 0 || b == unknown:
				v.tall[n] = 0
			case v.tall[n] > 0:
				v.tall[n] = max(v.tall[n], b)
			}
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
