package tokenizer

import (
	"math/bits"
	"math/rand/v2"
	"strings"
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
	prefix   string // of tokens that go on
	maxChars int
	longest  int // bytes of the longest token
}

func newWordPiece(v *vocabulary, unknown, prefix string, maxChars int) *wordPiece {
	m := &wordPiece{vocabulary: v, unknown: unknown, prefix: prefix, maxChars: maxChars}
	for t := range v.ids {
		m.longest = max(m.longest, len(t))
	}
	return m
}

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
	for start := 0; start < len(p.text); {
		buf := r.buf[:0]
		if start > 0 {
			buf = append(buf, m.prefix...)
		}
		skip := len(buf)
		end := len(p.text)
		if most := start + m.longest - skip; end > most {
			for end = max(most, start); end > start && !utf8.RuneStart(p.text[end]); {
				end--
			}
		}
		buf = append(buf, p.text[start:end]...)
		r.buf = buf
		found := false
		for end > start {
			if id, ok := m.ids[string(buf)]; ok {
				token, _ := m.token(id)
				if token != string(buf) {
					token = strings.Clone(string(buf))
				}
				r.add(id, token, p, start, end)
				found = true
				break
			}
			_, size := utf8.DecodeLastRune(buf[skip:])
			end -= size
			buf = buf[:len(buf)-size]
		}
		if !found {
			e.IDs, e.Tokens, e.Offsets, e.Words = e.IDs[:before], e.Tokens[:before], e.Offsets[:before], e.Words[:before]
			return unknown()
		}
		start = end
	}
	return nil
}
