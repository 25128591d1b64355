package tokenizer

import (
	"strings"
	"sync"
	"unicode/utf8"
)

// bpe joins pairs of tokens, those first that were joined first in training.
type bpe struct {
	*vocabulary
	merges *pairTable // left<<32|right → rank<<32|result
	bpeOptions

	unknownID    int64 // −1: none
	letters      map[rune]uint32
	ascii        [utf8.RuneSelf]int64 // letters below 0x80, −1 for none
	bytes        [256]int64           // <0x00> …
	raw          *rawVocabulary       // where words come as bytes
	prefixed     bool                 // prefix or suffix is not empty
	plain        bool                 // tokens are made of characters of the text and nothing else
	boundaryOnce sync.Once
	boundaries   *pairTable // pairs of characters that a token may hold next to each other
	pairs        [][2]uint32
}

type bpeOptions struct {
	unknown      string
	hasUnknown   bool
	prefix       string // before letters that do not begin a word
	suffix       string // after the letter that ends a word
	fuseUnknown  bool
	fallback     bool // spell unknown letters in bytes
	ignoreMerges bool // a word that is a token is that token
}

// maxAffix bounds, in bytes, what is put to each piece or letter.
const maxAffix = 256

// rawVocabulary is a byte-level vocabulary by the bytes that its tokens stand for.
type rawVocabulary struct {
	ids    map[string]uint32
	single [256]int64
}

// newBPE makes a model of pairs, in the order in which they are joined.
func newBPE(v *vocabulary, pairs []string, o bpeOptions) (*bpe, error) {
	if len(o.prefix) > maxAffix || len(o.suffix) > maxAffix {
		return nil, &UnsupportedError{Path: "model", What: "a prefix or suffix of more than 256 bytes"}
	}
	m := &bpe{vocabulary: v, bpeOptions: o, unknownID: -1, prefixed: o.prefix != "" || o.suffix != ""}
	if o.hasUnknown {
		if id, ok := v.ids[o.unknown]; ok {
			m.unknownID = int64(id)
		}
	}
	m.merges = newPairTable(len(pairs) / 2)
	m.plain = !m.prefixed && o.hasUnknown // without, letters that are unknown are lost, and offsets with them
	m.pairs = make([][2]uint32, 0, len(pairs)/2)
	for i := 0; i+1 < len(pairs); i += 2 {
		left, right := pairs[i], pairs[i+1]
		a, ok := v.ids[left]
		if !ok {
			return nil, format("model.merges", "pair %d: %q is not in the vocabulary", i/2, clip(left))
		}
		b, ok := v.ids[right]
		if !ok {
			return nil, format("model.merges", "pair %d: %q is not in the vocabulary", i/2, clip(right))
		}
		if len(right) < len(o.prefix) {
			return nil, format("model.merges", "pair %d: %q is shorter than the prefix", i/2, clip(right))
		}
		whole := left + right[len(o.prefix):]
		id, ok := v.ids[whole]
		if !ok {
			return nil, format("model.merges", "pair %d: %q is not in the vocabulary", i/2, clip(whole))
		}
		m.merges.put(uint64(a)<<32|uint64(b), uint64(i/2)<<32|uint64(id))
		m.pairs = append(m.pairs, [2]uint32{a, b})
		if isByteToken(left) || isByteToken(right) || left == o.unknown || right == o.unknown {
			m.plain = false
		}
	}
	m.letters = make(map[rune]uint32)
	for i := range m.ascii {
		m.ascii[i] = -1
	}
	for t, id := range v.ids {
		r, size := utf8.DecodeRuneInString(t)
		if size == 0 || size != len(t) {
			continue
		}
		m.letters[r] = id
		if r < utf8.RuneSelf {
			m.ascii[r] = int64(id)
		}
	}
	m.bytes = byteTokens(v.id)
	return m, nil
}

// takeBytes makes the model ready for words of bytes.
func (m *bpe) takeBytes() {
	raw := &rawVocabulary{ids: make(map[string]uint32, len(m.ids))}
	for i := range raw.single {
		raw.single[i] = -1
	}
	var buf []byte
	for t, id := range m.ids {
		var ok bool
		if buf, ok = spelt(t, buf[:0]); !ok {
			continue
		}
		if m.ignoreMerges {
			raw.ids[string(buf)] = id
		}
		if len(buf) == 1 {
			raw.single[buf[0]] = int64(id)
		}
	}
	m.raw = raw
}

func isByteToken(t string) bool {
	return len(t) == 6 && strings.HasPrefix(t, "<0x") && t[5] == '>'
}

func clip(s string) string {
	if len(s) > 80 {
		s = s[:80] + "…"
	}
	return s
}

// A symbol is a token of a word and how many bytes of the word it covers.
type symbol struct {
	id     uint32
	length int32
}

// bpeRun is the memory of a run: scratch space and the words that it has met.
type bpeRun struct {
	symbols []symbol
	ranks   []uint64
	heap    []uint64
	links   []link
	words   map[string]wordRange
	known   []symbol // of words
	bytes   int
}

type wordRange struct{ from, to int32 }

// Limits on what a run remembers.
const (
	maxWord       = 128
	maxWords      = 1 << 16
	maxWordBytes  = 4 << 20
	longWord      = 64 // letters from which on joining pairs by a heap is worth it
	boundaryBytes = 96 // bytes from which on a word is cut where no token can be
)

func (m *bpe) tokenize(r *run, p *piece) error {
	text := p.text
	if m.ignoreMerges {
		ids := m.ids
		if p.bytes {
			ids = m.raw.ids
		}
		if id, ok := ids[text]; ok {
			token, _ := m.token(id)
			r.add(id, token, p, 0, len(text))
			return nil
		}
	}
	if p.bytes || !m.plain || len(text) < boundaryBytes {
		return m.word(r, p, text, 0)
	}
	// No pair is joined over a boundary that no pair of training was joined over.
	m.boundaryOnce.Do(m.learnBoundaries)
	from := 0
	before := rune(-1)
	for i, c := range text {
		if before >= 0 {
			if _, ok := m.boundaries.get(uint64(before)<<32 | uint64(c)); !ok {
				_, known := m.letters[c]
				if !known {
					_, known = m.letters[before]
				}
				if known { // unknown letters may become one
					if err := m.word(r, p, text[from:i], from); err != nil {
						return err
					}
					from = i
				}
			}
		}
		before = c
	}
	return m.word(r, p, text[from:], from)
}

func (m *bpe) learnBoundaries() {
	m.boundaries = newPairTable(len(m.pairs))
	for _, pair := range m.pairs {
		left, _ := m.token(pair[0])
		right, _ := m.token(pair[1])
		a, _ := utf8.DecodeLastRuneInString(left)
		b, _ := utf8.DecodeRuneInString(right)
		m.boundaries.put(uint64(a)<<32|uint64(b), 0)
	}
}

// word adds the tokens of a part of a piece that begins at byte at.
func (m *bpe) word(r *run, p *piece, text string, at int) error {
	b := &r.bpe
	if len(text) <= maxWord {
		if w, ok := b.words[text]; ok {
			m.addSymbols(r, p, b.known[w.from:w.to], at)
			return nil
		}
	}
	if err := m.letterSymbols(b, text, p.bytes); err != nil {
		return err
	}
	if len(b.symbols) > longWord {
		m.joinLong(b)
	} else {
		m.join(b)
	}
	if len(text) <= maxWord {
		if b.words == nil || len(b.words) >= maxWords || b.bytes > maxWordBytes {
			b.words, b.known, b.bytes = make(map[string]wordRange), nil, 0
		}
		from := len(b.known)
		b.known = append(b.known, b.symbols...)
		b.bytes += len(text) + 8*len(b.symbols)
		b.words[strings.Clone(text)] = wordRange{int32(from), int32(len(b.known))}
	}
	m.addSymbols(r, p, b.symbols, at)
	return nil
}

func (m *bpe) addSymbols(r *run, p *piece, symbols []symbol, at int) {
	e := r.enc
	for _, s := range symbols {
		token := ""
		if m.dense != nil {
			token = m.dense[s.id]
		} else {
			token = m.sparse[s.id]
		}
		to := at + int(s.length)
		e.IDs = append(e.IDs, s.id)
		e.Tokens = append(e.Tokens, token)
		e.Offsets = append(e.Offsets, p.original(at, to))
		e.Words = append(e.Words, r.word)
		at = to
	}
}

// letterSymbols spells a word in single letters.
func (m *bpe) letterSymbols(b *bpeRun, text string, bytes bool) error {
	b.symbols = b.symbols[:0]
	if bytes {
		whole := true
		for i := range len(text) {
			id := m.raw.single[text[i]]
			if id < 0 {
				whole = false
				break
			}
			b.symbols = append(b.symbols, symbol{uint32(id), 1})
		}
		if whole {
			return nil
		}
		return m.incomplete(b, text)
	}
	pending, unknown := int32(0), false
	flush := func() {
		if unknown {
			b.symbols = append(b.symbols, symbol{uint32(m.unknownID), pending})
			unknown = false
		}
	}
	for i := 0; i < len(text); {
		c, size := utf8.DecodeRuneInString(text[i:])
		id, ok := m.letter(text, i, c, size)
		if ok {
			flush()
			b.symbols = append(b.symbols, symbol{id, int32(size)})
			i += size
			continue
		}
		if m.fallback && m.spell(b, text, i, size) {
			i += size
			continue
		}
		if m.hasUnknown {
			if m.unknownID < 0 {
				return &TextError{"a character that is not in the vocabulary, nor is the token for unknown ones"}
			}
			if unknown && m.fuseUnknown {
				pending += int32(size)
			} else {
				flush()
				pending, unknown = int32(size), true
			}
		}
		i += size
	}
	flush()
	return nil
}

// letter looks up one letter, with the prefix or suffix that its place in the word asks for.
func (m *bpe) letter(text string, at int, c rune, size int) (uint32, bool) {
	if !m.prefixed {
		if c < utf8.RuneSelf {
			return uint32(m.ascii[c]), m.ascii[c] >= 0
		}
		id, ok := m.letters[c]
		return id, ok
	}
	id, ok := m.ids[m.affixed(text, at, size)]
	return id, ok
}

func (m *bpe) affixed(text string, at, size int) string {
	s := text[at : at+size]
	if at > 0 {
		s = m.prefix + s
	}
	if at+size == len(text) {
		s += m.suffix
	}
	return s
}

// spell writes a letter in bytes, if the vocabulary has them. Bytes do not end a row of unknown letters.
func (m *bpe) spell(b *bpeRun, text string, at, size int) bool {
	s := m.affixed(text, at, size)
	for i := range len(s) {
		if m.bytes[s[i]] < 0 {
			return false
		}
	}
	for i := range len(s) {
		b.symbols = append(b.symbols, symbol{uint32(m.bytes[s[i]]), 1})
	}
	return true
}

// incomplete spells a word of bytes in a vocabulary that lacks some: by the characters for bytes, as any other word.
func (m *bpe) incomplete(b *bpeRun, text string) error {
	var spelling strings.Builder
	for i := range len(text) {
		spelling.WriteRune(byteRunes[text[i]])
	}
	if err := m.letterSymbols(b, spelling.String(), false); err != nil {
		return err
	}
	// Lengths are in bytes of the spelling; what it stands for is one byte for each character.
	rest := spelling.String()
	for i, s := range b.symbols {
		n := min(int(s.length), len(rest))
		b.symbols[i].length = int32(utf8.RuneCountInString(rest[:n]))
		rest = rest[n:]
	}
	return nil
}

const noPair = ^uint64(0)

func (m *bpe) pair(a, b symbol) uint64 {
	if v, ok := m.merges.get(uint64(a.id)<<32 | uint64(b.id)); ok {
		return v
	}
	return noPair
}

// join joins the pairs of a short word, the first in rank and then in place again and again.
func (m *bpe) join(b *bpeRun) {
	s := b.symbols
	if len(s) < 2 {
		return
	}
	ranks := b.ranks[:0]
	for i := 0; i+1 < len(s); i++ {
		ranks = append(ranks, m.pair(s[i], s[i+1]))
	}
	for {
		at, lowest := -1, uint64(noPair)
		for i, v := range ranks {
			if v>>32 < lowest>>32 {
				at, lowest = i, v
			}
		}
		if at < 0 {
			break
		}
		s[at].id = uint32(lowest)
		s[at].length += s[at+1].length
		s = append(s[:at+1], s[at+2:]...)
		ranks = append(ranks[:at], ranks[at+1:]...)
		if at > 0 {
			ranks[at-1] = m.pair(s[at-1], s[at])
		}
		if at+1 < len(s) {
			ranks[at] = m.pair(s[at], s[at+1])
		}
	}
	b.symbols, b.ranks = s, ranks
}

type link struct{ before, after int32 }

// joinLong does the same for a word of any length with a heap of rank<<32|place.
func (m *bpe) joinLong(b *bpeRun) {
	s := b.symbols
	links, heap := b.links[:0], b.heap[:0]
	for i := range s {
		links = append(links, link{int32(i - 1), int32(i + 1)})
	}
	links[len(s)-1].after = -1
	push := func(i int32) {
		j := links[i].after
		if j < 0 {
			return
		}
		if v := m.pair(s[i], s[j]); v != noPair {
			heap = pushHeap(heap, v>>32<<32|uint64(i))
		}
	}
	for i := range int32(len(s)) {
		push(i)
	}
	for len(heap) > 0 {
		var top uint64
		top, heap = popHeap(heap)
		i := int32(uint32(top))
		j := links[i].after
		if s[i].length == 0 || j < 0 {
			continue
		}
		v := m.pair(s[i], s[j])
		if v == noPair || v>>32 != top>>32 { // what stood here has been joined otherwise
			continue
		}
		s[i].id = uint32(v)
		s[i].length += s[j].length
		s[j].length = 0
		after := links[j].after
		links[i].after = after
		if after >= 0 {
			links[after].before = i
		}
		if before := links[i].before; before >= 0 {
			push(before)
		}
		push(i)
	}
	kept := s[:0]
	for _, one := range s {
		if one.length != 0 {
			kept = append(kept, one)
		}
	}
	b.symbols, b.links, b.heap = kept, links, heap
	if cap(links) > 1<<16 {
		b.symbols, b.links, b.heap = append([]symbol(nil), kept...), nil, nil
	}
}

func pushHeap(h []uint64, v uint64) []uint64 {
	h = append(h, v)
	i := len(h) - 1
	for i > 0 {
		up := (i - 1) / 4
		if h[up] <= v {
			break
		}
		h[i] = h[up]
		i = up
	}
	h[i] = v
	return h
}

func popHeap(h []uint64) (uint64, []uint64) {
	top := h[0]
	v := h[len(h)-1]
	h = h[:len(h)-1]
	i := 0
	for {
		least := 4*i + 1
		if least >= len(h) {
			break
		}
		for j := least + 1; j < min(4*i+5, len(h)); j++ {
			if h[j] < h[least] {
				least = j
			}
		}
		if v <= h[least] {
			break
		}
		h[i] = h[least]
		i = least
	}
	if len(h) > 0 {
		h[i] = v
	}
	return top, h
}
