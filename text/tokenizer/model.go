package tokenizer

import (
	"math/bits"
	"math/rand/v2"
	"unicode/utf8"
)

// A model encodes words.
type model interface {
	// tokenize adds the tokens of a piece to the run's encoding.
	tokenize(r *run, p *piece) error
	id(token string) (uint32, bool)
	token(id uint32) (string, bool)
	size() int
}

// A vocabulary is tokens and their numbers.
type vocabulary struct {
	ids    map[string]uint32
	dense  []string // by number, where numbers leave few gaps
	known  []bool   // which of dense there are
	sparse map[uint32]string
}

func newVocabulary(ids map[string]uint32) *vocabulary {
	v := &vocabulary{ids: ids}
	last := uint32(0)
	for _, id := range ids {
		last = max(last, id)
	}
	if int64(last) < 4*int64(len(ids))+1024 {
		v.dense, v.known = make([]string, last+1), make([]bool, last+1)
		for t, id := range ids {
			if !v.known[id] || t < v.dense[id] { // two tokens with one number: the same one whatever the map's order
				v.dense[id], v.known[id] = t, true
			}
		}
		return v
	}
	v.sparse = make(map[uint32]string, len(ids))
	for t, id := range ids {
		if old, ok := v.sparse[id]; !ok || t < old {
			v.sparse[id] = t
		}
	}
	return v
}

func (v *vocabulary) id(token string) (uint32, bool) {
	id, ok := v.ids[token]
	return id, ok
}

func (v *vocabulary) token(id uint32) (string, bool) {
	if v.sparse != nil {
		t, ok := v.sparse[id]
		return t, ok
	}
	if int64(id) >= int64(len(v.dense)) || !v.known[id] {
		return "", false
	}
	return v.dense[id], true
}

func (v *vocabulary) size() int { return len(v.ids) }

// pairTable maps pairs of numbers to two numbers. It hashes with a seed of its own, so that no file can know which of
// its pairs collide.
type pairTable struct {
	keys   []uint64
	values []uint64
	used   []bool
	shift  uint
	seed   uint64
	n      int
}

func newPairTable(n int) *pairTable {
	size := uint(4)
	for 1<<size < 2*n {
		size++
	}
	return &pairTable{
		keys: make([]uint64, 1<<size), values: make([]uint64, 1<<size), used: make([]bool, 1<<size),
		shift: 64 - size, seed: rand.Uint64() | 1,
	}
}

func (t *pairTable) slot(key uint64) int {
	hi, lo := bits.Mul64(key^0x9E3779B97F4A7C15, t.seed)
	return int((hi ^ lo) * 0x9E3779B97F4A7C15 >> t.shift)
}

func (t *pairTable) put(key, value uint64) {
	mask := len(t.keys) - 1
	for i := t.slot(key); ; i = (i + 1) & mask {
		if !t.used[i] {
			t.used[i], t.keys[i], t.values[i] = true, key, value
			t.n++
			return
		}
		if t.keys[i] == key {
			t.values[i] = value
			return
		}
	}
}

func (t *pairTable) get(key uint64) (uint64, bool) {
	mask := len(t.keys) - 1
	for i := t.slot(key); t.used[i]; i = (i + 1) & mask {
		if t.keys[i] == key {
			return t.values[i], true
		}
	}
	return 0, false
}

// wordLevel knows whole words.
type wordLevel struct {
	*vocabulary
	unknown string
}

func (m *wordLevel) tokenize(r *run, p *piece) error {
	if id, ok := m.ids[p.text]; ok {
		r.add(id, p.text, p, 0, len(p.text))
		return nil
	}
	id, ok := m.ids[m.unknown]
	if !ok {
		return &TextError{"a word that is not in the vocabulary, which has no token for unknown ones"}
	}
	r.add(id, m.unknown, p, 0, len(p.text))
	return nil
}

// wordPiece takes the longest token that begins a word, then the longest that goes on.
type wordPiece struct {
	*vocabulary
	unknown  string
	maxChars int
	names    []string // of the trie's values
	trie     *trie
	goesOn   int32 // where tokens that go on begin in the trie; −1 if there are none
}

func newWordPiece(v *vocabulary, unknown, prefix string, maxChars int) (*wordPiece, error) {
	if maxChars > maxWordChars {
		return nil, &UnsupportedError{
			Path: "model.max_input_chars_per_word", What: "a word of more than 10,000 characters",
		}
	}
	m := &wordPiece{vocabulary: v, unknown: unknown, maxChars: maxChars}
	for t := range v.ids {
		m.names = append(m.names, t)
	}
	m.trie = newTrie(m.names, func(i int) int32 { return int32(i) })
	for i := range len(prefix) {
		if m.goesOn = m.trie.child(m.goesOn, prefix[i]); m.goesOn == 0 {
			m.goesOn = -1
			break
		}
	}
	return m, nil
}

// maxWordChars bounds the words that are looked at: the time for one may grow with the square of its length.
const maxWordChars = 10000

func (m *wordPiece) tokenize(r *run, p *piece) error {
	unknown := func() error {
		id, ok := m.ids[m.unknown]
		if !ok {
			return &TextError{"a word that is not in the vocabulary, which has no token for unknown ones"}
		}
		r.add(id, m.unknown, p, 0, len(p.text))
		return nil
	}
	if len(p.text) > m.maxChars && utf8.RuneCountInString(p.text) > m.maxChars {
		return unknown()
	}
	e := r.enc
	before := len(e.IDs)
	node := int32(0)
	for start := 0; start < len(p.text); {
		found, end := int32(-1), 0
		for i := start; i < len(p.text) && node >= 0; i++ {
			if node = m.trie.child(node, p.text[i]); node == 0 {
				break
			}
			if v := m.trie.value[node]; v >= 0 {
				found, end = v, i+1
			}
		}
		if found < 0 {
			e.IDs, e.Tokens, e.Offsets, e.Words = e.IDs[:before], e.Tokens[:before], e.Offsets[:before],
				e.Words[:before]
			return unknown()
		}
		token := m.names[found]
		r.add(m.ids[token], token, p, start, end)
		start, node = end, m.goesOn
	}
	return nil
}
