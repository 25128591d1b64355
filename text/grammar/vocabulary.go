package grammar

import (
	"bytes"
	"slices"
	"sync"
	"unicode/utf8"
)

// A Vocabulary is the tokens of a tokenizer as a tree of their bytes. It may be shared by goroutines and by grammars.
type Vocabulary struct {
	tokens [][]byte
	tree   []treeNode // in the order of a walk
	ids    []int32    // by their bytes: those that end at node i are ids[tree[i].ids:tree[i+1].ids]
	sets   []charSet
	deepst int
	most   int // characters of a token
	// behind are all nodes before which there are whole characters, by their byte and how many: those of byte b after n characters are
	// from[b][n] to from[b][n+1].
	behind []behind
	from   [256][]int32
	// heavy has how many nodes there are below the first byte of a character, by that of ASCII and, last, for all others.
	heavy [utf8.RuneSelf + 1]int32
	// tall are the tokens of whole characters, but for one that may be cut off at the end, by how many they have: those of n are from
	// tallFrom[n] to tallFrom[n+1].
	tall     []int32
	whole    []charSet // of each token; with notChars where it is no text
	tallFrom []int32

	mu  sync.Mutex
	cut map[charSet]*cut // what was found for sets

	learned learned
}

// A behind is a node of the tree with the characters before it.
type behind struct {
	ascii [2]uint64
	other uint32
	node  int32
}

// A treeNode is one byte of tokens after those that lead to it.
type treeNode struct {
	after int32 // the node after all below it
	ids   int32
	// set is which of the sets of characters the tokens have from this byte on, and tall how many of them the longest has. The set
	// has notChars where that is no UTF-8; a character may be cut off at a token's end.
	set   uint32
	depth uint16
	tall  uint8 // tallest for so many and more
	byte  byte
}

const tallest = 255

// maxTokenBytes is what a token may have; longer ones are never allowed by a mask.
const maxTokenBytes = 1 << 10

// NewVocabulary makes a vocabulary of the tokens' bytes, by id. Tokens that stand for no text, such as the end of a sequence,
// are empty, and no mask allows them.
func NewVocabulary(tokens [][]byte) *Vocabulary {
	v := &Vocabulary{tokens: tokens}
	v.begin()
	order := sorted(tokens)
	v.ids = order
	v.whole = make([]charSet, len(tokens))
	for i := range v.whole {
		v.whole[i].other = notChars
	}
	known := make(map[charSet]uint32)
	number := func(set charSet) uint32 {
		i, ok := known[set]
		if !ok {
			i = uint32(len(v.sets))
			known[set] = i
			v.sets = append(v.sets, set)
		}
		return i
	}
	var path []int32 // nodes of the last token's bytes
	var sets []charSet
	var whole []tallToken
	var prefixes []prefix
	var last []byte
	// leave makes nodes of the last token final: nothing more comes below them.
	leave := func(same int) {
		for d, n := range path[same:] {
			node := &v.tree[n]
			node.after = int32(len(v.tree))
			node.set = number(sets[same+d])
		}
		path, sets = path[:same], sets[:same]
	}
	for i, id := range order {
		t := tokens[id]
		same := same(t, last)
		leave(same)
		for d := same; d < len(t); d++ {
			path = append(path, int32(len(v.tree)))
			sets = append(sets, charSet{})
			v.tree = append(v.tree, treeNode{ids: int32(i), depth: uint16(d), byte: t[d]})
		}
		all, chars := v.suffixes(t, path, sets)
		v.whole[id] = all
		if all.other&notChars == 0 {
			whole = append(whole, tallToken{id, chars})
		}
		eachPrefix(t, func(d int, before charSet, chars int) {
			if d >= same {
				prefixes = append(prefixes, prefix{behind{before.ascii, before.other, path[d]}, t[d], chars})
			}
		})
		v.deepst = max(v.deepst, len(t))
		last = t
	}
	leave(0)
	v.tree = append(v.tree, treeNode{ids: int32(len(order))})
	for n := int32(0); int(n) < len(v.tree)-1; n = v.tree[n].after {
		v.heavy[min(v.tree[n].byte, utf8.RuneSelf)] += v.tree[n].after - n
	}
	v.tree, v.sets = slices.Clone(v.tree), slices.Clone(v.sets)
	v.order(whole, prefixes)
	return v
}

// sorted returns the tokens that may follow, by their bytes.
func sorted(tokens [][]byte) []int32 {
	order := make([]int32, 0, len(tokens))
	for i, t := range tokens {
		if len(t) > 0 && len(t) <= maxTokenBytes {
			order = append(order, int32(i))
		}
	}
	slices.SortFunc(order, func(a, b int32) int {
		if c := bytes.Compare(tokens[a], tokens[b]); c != 0 {
			return c
		}
		return int(a - b)
	})
	return order
}

// same is how many bytes two tokens begin with alike.
func same(a, b []byte) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// A tallToken is a token with its number of characters.
type tallToken struct {
	id    int32
	chars int
}

// A prefix is what comes before a node with a byte.
type prefix struct {
	behind
	byte  byte
	chars int
}

// order makes the lists of tokens and nodes by their numbers of characters.
func (v *Vocabulary) order(tokens []tallToken, prefixes []prefix) {
	slices.SortFunc(tokens, func(a, b tallToken) int {
		if a.chars != b.chars {
			return a.chars - b.chars
		}
		return int(a.id - b.id)
	})
	for i, t := range tokens {
		for len(v.tallFrom) <= t.chars {
			v.tallFrom = append(v.tallFrom, int32(i))
		}
		v.tall = append(v.tall, t.id)
		v.most = t.chars
	}
	v.tallFrom = append(v.tallFrom, int32(len(tokens)))
	slices.SortFunc(prefixes, func(a, b prefix) int {
		if a.byte != b.byte {
			return int(a.byte) - int(b.byte)
		}
		if a.chars != b.chars {
			return a.chars - b.chars
		}
		return int(a.node - b.node)
	})
	v.behind = make([]behind, 0, len(prefixes))
	for i, p := range prefixes {
		v.behind = append(v.behind, p.behind)
		for len(v.from[p.byte]) <= p.chars {
			v.from[p.byte] = append(v.from[p.byte], int32(i))
		}
		if i == len(prefixes)-1 || prefixes[i+1].byte != p.byte {
			v.from[p.byte] = append(v.from[p.byte], int32(i+1))
		}
		v.most = max(v.most, p.chars)
	}
}

// after returns the nodes of a byte after so many characters.
func (v *Vocabulary) after(b byte, chars int) []behind {
	if from := v.from[b]; chars+1 < len(from) {
		return v.behind[from[chars]:from[chars+1]]
	}
	return nil
}

// prefix returns the bytes before a node.
func (v *Vocabulary) prefix(n int32) []byte {
	node := &v.tree[n]
	return v.tokens[v.ids[node.ids]][:node.depth]
}

// frequent reports whether many nodes have a byte of ASCII that is in a set.
func (v *Vocabulary) frequent(set *charSet) bool {
	const many = 4_000
	nodes := int32(0)
	for b := range utf8.RuneSelf {
		if from := v.from[b]; len(from) > 0 && set.hasByte(byte(b)) {
			nodes += from[len(from)-1] - from[0]
		}
	}
	return nodes >= many
}

// eachPrefix calls f for the offsets of a token before which there are whole characters.
func eachPrefix(t []byte, f func(offset int, before charSet, chars int)) {
	var before charSet
	chars := 0
	for d := 0; d < len(t); chars++ {
		f(d, before, chars)
		r, n := utf8.DecodeRune(t[d:])
		switch {
		case r < utf8.RuneSelf:
			before.ascii[r/64] |= 1 << (r % 64)
		case n == 1:
			return
		default:
			before.other |= otherChars
		}
		d += n
	}
}

// suffixes adds to the nodes of a token's bytes which characters follow from each, and returns those of all, and their number.
func (v *Vocabulary) suffixes(t []byte, path []int32, sets []charSet) (from charSet, tall int) {
	for end := len(t); end > 0; {
		// The character that ends here, if its first byte can be found.
		at := end - 1
		for at > 0 && end-at < utf8.UTFMax && !utf8.RuneStart(t[at]) {
			at--
		}
		r, n := utf8.DecodeRune(t[at:end])
		switch {
		case n == end-at && r < utf8.RuneSelf:
			from.ascii[r/64] |= 1 << (r % 64)
		case n == end-at && n > 1 || end == len(t) && !utf8.FullRune(t[at:end]):
			from.other |= otherChars
		default:
			from.other |= notChars
		}
		tall++
		for d := at; d < end; d++ {
			if d > at {
				sets[d].other |= notChars
				continue
			}
			sets[d].add(from)
			n := &v.tree[path[d]]
			n.tall = max(n.tall, uint8(min(tall, tallest)))
		}
		end = at
	}
	return from, tall
}

// Len returns the number of tokens.
func (v *Vocabulary) Len() int { return len(v.tokens) }

// A Mask has a bit for each token: bit id%64 of word id/64.
type Mask []uint64

// Has reports whether a token is in the mask.
func (m Mask) Has(id int) bool { return m[id/64]>>(id%64)&1 != 0 }

// set allows tokens.
func (m Mask) set(ids []int32) {
	for _, id := range ids {
		m[uint32(id)/64] |= 1 << (uint32(id) % 64)
	}
}

// Mask returns an empty mask for the vocabulary.
func (v *Vocabulary) mask() Mask { return make(Mask, (len(v.tokens)+63)/64) }
