package tokenizer

import (
	"encoding/binary"
	"math"
	"strings"
	"unicode/utf8"
)

// Types of pieces in a sentencepiece model.
const (
	pieceNormal  = 1
	pieceUnknown = 2
	pieceControl = 3
	pieceUser    = 4
	pieceUnused  = 5
	pieceByte    = 6
)

// A spModel is what a tokenizer needs of sentencepiece_model.proto.
type spModel struct {
	tokens   []string
	scores   []float32
	types    []int
	kind     int // 1 unigram, 2 BPE, 3 words, 4 characters
	fallback bool
	suffix   bool // spaces go to the end of words
	charsmap []byte
	noPrefix bool // add_dummy_prefix is false
	noTrim   bool // remove_extra_whitespaces is false
	noEscape bool // escape_whitespaces is false
}

// fields calls f for each field of a protocol buffer: a number, or bytes.
func fields(data []byte, path string, f func(field int, n uint64, b []byte) error) error {
	for len(data) > 0 {
		key, size := binary.Uvarint(data)
		if size <= 0 {
			return format(path, "bad protocol buffer")
		}
		data = data[size:]
		var n uint64
		var b []byte
		switch key & 7 {
		case 0:
			if n, size = binary.Uvarint(data); size <= 0 {
				return format(path, "bad number")
			}
			data = data[size:]
		case 1, 5:
			width := 8
			if key&7 == 5 {
				width = 4
			}
			if len(data) < width {
				return format(path, "ends early")
			}
			b, data = data[:width], data[width:]
		case 2:
			if n, size = binary.Uvarint(data); size <= 0 || n > uint64(len(data)-size) {
				return format(path, "bytes that end beyond the file")
			}
			b, data = data[size:size+int(n)], data[size+int(n):]
		default:
			return format(path, "bad protocol buffer")
		}
		if err := f(int(key>>3), n, b); err != nil {
			return err
		}
	}
	return nil
}

func readSentencePiece(data []byte) (*spModel, error) {
	m := &spModel{kind: 1}
	err := fields(data, "", func(field int, _ uint64, b []byte) error {
		switch field {
		case 1:
			token, score, kind := "", float32(0), pieceNormal
			if err := fields(b, "pieces", func(field int, n uint64, b []byte) error {
				switch {
				case field == 1:
					token = string(b)
				case field == 2 && len(b) == 4:
					score = math.Float32frombits(binary.LittleEndian.Uint32(b))
				case field == 3:
					kind = int(n)
				}
				return nil
			}); err != nil {
				return err
			}
			if len(token) > maxToken {
				return &UnsupportedError{Path: "pieces", What: "a token of more than 4096 bytes"}
			}
			if !utf8.ValidString(token) || math.IsNaN(float64(score)) {
				return format("pieces", "a piece that is not text, or no score")
			}
			m.tokens, m.scores, m.types = append(m.tokens, token), append(m.scores, score), append(m.types, kind)
		case 2:
			return fields(b, "trainer_spec", func(field int, n uint64, _ []byte) error {
				switch field {
				case 3:
					m.kind = int(n)
				case 24:
					m.suffix = n != 0
				case 35:
					m.fallback = n != 0
				}
				return nil
			})
		case 3:
			return fields(b, "normalizer_spec", func(field int, n uint64, b []byte) error {
				switch field {
				case 2:
					m.charsmap = b
				case 3:
					m.noPrefix = n == 0
				case 4:
					m.noTrim = n == 0
				case 5:
					m.noEscape = n == 0
				}
				return nil
			})
		}
		return nil
	})
	if err == nil && len(m.tokens) == 0 {
		err = format("pieces", "there are none")
	}
	return m, err
}

func parseSentencePiece(data []byte, c *config) (*Tokenizer, error) {
	m, err := readSentencePiece(data)
	if err != nil {
		return nil, err
	}
	t, err := m.tokenizer()
	if err != nil {
		return nil, err
	}
	bos, eos := "", ""
	if c.AddBOS != nil && *c.AddBOS {
		bos = string(c.BOS)
	}
	if c.AddEOS != nil && *c.AddEOS {
		eos = string(c.EOS)
	}
	t.ends(bos, eos)
	return t, nil
}

// mark is what sentencepiece writes for a space.
const mark = "▁"

func (m *spModel) tokenizer() (*Tokenizer, error) {
	if m.suffix {
		return nil, &UnsupportedError{Path: "trainer_spec", What: "treat_whitespace_as_suffix"}
	}
	norm := &spNormalizer{prefix: !m.noPrefix, trim: !m.noTrim, escape: !m.noEscape}
	if len(m.charsmap) > 0 {
		var err error
		if norm.table, err = newPrecompiled(m.charsmap, "normalizer_spec.precompiled_charsmap"); err != nil {
			return nil, err
		}
	}
	t := &Tokenizer{normalizer: norm}
	unknown := -1
	var user, special []AddedToken
	for i, kind := range m.types {
		switch kind {
		case pieceUnknown:
			unknown = i
		case pieceUser:
			if m.kind == 2 { // a unigram model has them in its table, with scores that are better than any other
				user = append(user, AddedToken{Content: m.tokens[i], Normalized: true})
			}
		case pieceControl:
			special = append(special, AddedToken{Content: m.tokens[i], Special: true})
		}
	}
	var err error
	switch m.kind {
	case 1:
		t.model = m.unigram(unknown)
	case 2:
		t.model, err = m.bpe(unknown)
	default:
		err = &UnsupportedError{Path: "trainer_spec.model_type", What: "a model of words or characters"}
	}
	if err != nil {
		return nil, err
	}
	t.decoders = []decoder{m.unescape(), byteFallback{}, fuse{}}
	if !m.noPrefix {
		t.decoders = append(t.decoders, &stripDecoder{" ", 1, 0})
	}
	// Pieces of the user's are looked for in normalized text, as it is.
	t.added, err = newAdded(
		append(user, special...), t.model, func(s string) (string, error) { return norm.spaces(s), nil },
	)
	return t, err
}

func (m *spModel) unescape() decoder {
	return &metaspace{mark: '▁', text: mark, scheme: "never"}
}

func (m *spModel) unigram(unknown int) model {
	scores := make([]float64, len(m.tokens))
	worst, bestScore := float32(math.MaxFloat32), float32(0x1p-126) // FLT_MIN, which is above every log probability
	for i, s := range m.scores {
		if m.types[i] == pieceNormal {
			worst, bestScore = min(worst, s), max(bestScore, s)
		}
	}
	tokens := make([]string, len(m.tokens))
	for i := range m.tokens {
		scores[i] = float64(m.scores[i])
		switch m.types[i] {
		case pieceNormal:
			tokens[i] = m.tokens[i]
		case pieceUser:
			tokens[i] = m.tokens[i]
			scores[i] = float64(float32(len(m.tokens[i]))*bestScore) - 0.1
		}
	}
	u := newUnigram(tokens, scores, unknown, m.fallback)
	u.worst = float64(worst)
	u.single = true
	u.tokens = m.tokens
	for i, t := range m.tokens { // names of pieces that text cannot give
		if _, ok := u.ids[t]; !ok && tokens[i] == "" {
			u.named[t] = uint32(i)
		}
	}
	delete(u.ids, "")
	u.bytes = byteTokens(u.id)
	return u
}

func (m *spModel) bpe(unknown int) (model, error) {
	ids := make(map[string]uint32, len(m.tokens))
	for i, t := range m.tokens {
		ids[t] = uint32(i)
	}
	o := bpeOptions{fuseUnknown: true, fallback: m.fallback}
	if unknown >= 0 {
		o.unknown, o.hasUnknown = m.tokens[unknown], true
	}
	ranks := ranked(m.scores)
	return byRank(newVocabulary(ids), func(id uint32) (uint32, bool) {
		kind := m.types[id]
		return ranks[id], kind == pieceNormal || kind == pieceUser || kind == pieceUnused
	}, o)
}

// spNormalizer normalizes as sentencepiece does.
type spNormalizer struct {
	table                *precompiled
	prefix, trim, escape bool
}

func (n *spNormalizer) spaces(s string) string {
	if n.escape {
		return strings.ReplaceAll(s, " ", mark)
	}
	return s
}

func (n *spNormalizer) normalize(_ *run, p *piece) error {
	align := p.aligned()
	var buf []byte
	var out []span32
	put := func(s string, at span32) {
		buf = append(buf, s...)
		for range len(s) {
			out = append(out, at)
		}
	}
	space := " "
	if n.escape {
		space = mark
	}
	pending := n.prefix // a space to come before what comes next
	pendingAt := span32{int32(p.start), int32(p.start)}
	begun := false
	afterSpace := true // at the beginning spaces are left out as after others
	for i := 0; i < len(p.text); {
		text, size := n.next(p.text[i:])
		at := span32{align[i].start, align[i+size-1].end}
		i += size
		if len(buf) > 4*maxSpread*(len(p.text)+16) {
			return &TextError{"longer by far once normalized"}
		}
		for len(text) > 0 {
			c, w := utf8.DecodeRuneInString(text)
			one := text[:w]
			text = text[w:]
			if c == ' ' && n.trim {
				if !afterSpace {
					pending, pendingAt = true, at
				}
				afterSpace = true
				continue
			}
			if pending {
				if !begun {
					pendingAt = span32{at.start, at.start}
				}
				put(space, pendingAt)
				pending = false
			}
			begun = true
			afterSpace = false
			if c == ' ' {
				one = space
			}
			put(one, at)
		}
	}
	p.text, p.align = string(buf), out
	if p.align == nil {
		p.align = []span32{}
	}
	return nil
}

// next is the beginning of a text that is normalized together, and what becomes of it.
func (n *spNormalizer) next(text string) (string, int) {
	if n.table != nil {
		if with, size := n.table.longest(text); size > 0 {
			return with, size
		}
	}
	_, size := utf8.DecodeRuneInString(text)
	return text[:size], size
}

// longest returns the replacement of the longest entry that a text begins with, and the entry's length.
func (p *precompiled) longest(text string) (with string, size int) {
	at := unitOffset(p.units[0])
	for i := range len(text) {
		if at ^= uint32(text[i]); int64(at) >= int64(len(p.units)) {
			break
		}
		u := p.units[at]
		if u&(1<<31|0xFF) != uint32(text[i]) {
			break
		}
		at ^= unitOffset(u)
		if u>>8&1 != 0 && int64(at) < int64(len(p.units)) {
			from := int64(p.units[at] & (1<<31 - 1))
			if from > int64(len(p.texts)) || from < int64(len(p.texts)) && !utf8.RuneStart(p.texts[from]) ||
				!boundary(text, i+1) {
				continue
			}
			with, _, _ = strings.Cut(p.texts[from:], "\x00")
			size = i + 1
		}
	}
	return with, size
}

func boundary(text string, at int) bool { return at >= len(text) || utf8.RuneStart(text[at]) }
