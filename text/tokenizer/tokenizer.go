// Package tokenizer turns text into the numbers that a language model knows and back. It reads tokenizer.json in full
// (BPE, Unigram, WordPiece and WordLevel, with every normalizer, pre-tokenizer, post-processor and decoder of Hugging
// Face's tokenizers), sentencepiece's tokenizer.model, vocab.json with merges.txt, vocab.txt, tiktoken's and tekken's
// files and the keys of a GGUF file. Ids, offsets and decoded text are those of Hugging Face's tokenizers, or of the
// program that a file was made for. It does not know models, nor what is done with the numbers.
//
// Files may be hostile: what a file can make this package do is bounded by its size, patterns match in linear time, and
// whatever is wrong ends in a *FormatError or an *UnsupportedError.
//
//	tok, err := tokenizer.Open("model/")
//	enc, err := tok.Encode("Hello", tokenizer.Options{AddSpecial: true})
//	text := tok.Decode(enc.IDs, true)
package tokenizer

import (
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/optimem/optimem/text/tokenizer/internal/pattern"
)

// A Tokenizer encodes and decodes. It never changes, so that many goroutines may use it.
type Tokenizer struct {
	normalizer normalizer // nil: none
	pre        []preTokenizer
	model      model
	post       processor // nil: none
	decoders   []decoder // nil: tokens are joined by spaces
	added      *addedVocabulary
	truncation *Truncation
	padding    *Padding

	runs sync.Pool // of *run
}

// Options say how to encode. The zero value gives the tokens of the text and nothing else.
type Options struct {
	// AddSpecial adds what the model expects around a text, such as a token for its beginning. A chat template has
	// written them already.
	AddSpecial bool
	// SpecialAsText treats special tokens in the text as the characters they are spelt with, so that a stranger's text
	// cannot contain any.
	SpecialAsText bool
	// Truncate and Pad do what the file says, if it says so.
	Truncate, Pad bool
	// MaxTokens, where it is not 0, shortens to so many tokens, added ones included, whatever the file says. It takes from
	// the longer of two texts, at the end at which the file would.
	MaxTokens int
}

// A Span is where a token comes from: bytes of the text, from Start to before End.
type Span struct{ Start, End int }

// An Encoding is a text, or a pair of them, as tokens. All slices have one element for each token.
type Encoding struct {
	IDs         []uint32
	Tokens      []string // as the vocabulary spells them
	Offsets     []Span   // in the text, or in the second of a pair; 0, 0 for what was added
	TypeIDs     []uint32 // 0 for the first text of a pair, 1 for the second, unless the file says otherwise
	Words       []int32  // which word of its text the token is part of, -1 for none
	SpecialMask []bool   // added around the text
	Attention   []bool   // false for padding

	// Cut is how many tokens of the text were left out, as [Options] asked.
	Cut int

	text string
}

// Encode turns a text into tokens. Bytes that are not valid UTF-8 are encoded as U+FFFD.
func (t *Tokenizer) Encode(text string, o Options) (*Encoding, error) {
	first, err := t.encodeOne(text, 0, o)
	if err != nil {
		return nil, err
	}
	return t.finish([]*Encoding{first}, o)
}

// EncodePair turns two texts into the tokens of both, in the form the model has for pairs.
func (t *Tokenizer) EncodePair(text, second string, o Options) (*Encoding, error) {
	a, err := t.encodeOne(text, 0, o)
	if err != nil {
		return nil, err
	}
	b, err := t.encodeOne(second, 1, o)
	if err != nil {
		return nil, err
	}
	return t.finish([]*Encoding{a, b}, o)
}

// A run is what one call of Encode needs. Runs are kept, and the words that they know with them.
type run struct {
	t        *Tokenizer
	enc      *Encoding
	text     string
	opts     Options
	typeID   uint32
	word     int32
	bpe      bpeRun
	unigram  unigramRun
	changes  []change
	searches []pattern.Search // by stage of pre-tokenization
	hits     [2][]hit         // of added tokens before and after normalization
}

func (t *Tokenizer) encodeOne(text string, typeID uint32, o Options) (*Encoding, error) {
	if len(text) > maxText {
		return nil, &UnsupportedError{What: "a text of 2 GiB or more"}
	}
	r, _ := t.runs.Get().(*run)
	if r == nil {
		r = &run{t: t, searches: make([]pattern.Search, len(t.pre)+1)}
	}
	guess := len(text)/4 + 8
	r.enc = &Encoding{
		text: text,
		IDs:  make([]uint32, 0, guess), Tokens: make([]string, 0, guess), Offsets: make([]Span, 0, guess),
		Words: make([]int32, 0, guess),
	}
	r.text, r.opts, r.typeID, r.word = text, o, typeID, 0
	whole := piece{text: text, end: len(text)}
	if !utf8.ValidString(text) {
		whole = repaired(text)
	}
	err := r.encode(whole)
	enc := r.enc
	r.enc, r.text = nil, ""
	for i := range r.searches {
		r.searches[i] = pattern.Search{}
	}
	t.runs.Put(r)
	if err != nil {
		return nil, err
	}
	n := len(enc.IDs)
	enc.TypeIDs = make([]uint32, n)
	if typeID != 0 {
		for i := range enc.TypeIDs {
			enc.TypeIDs[i] = typeID
		}
	}
	enc.SpecialMask = make([]bool, n)
	enc.Attention = make([]bool, n)
	for i := range enc.Attention {
		enc.Attention[i] = true
	}
	return enc, nil
}

// encode cuts out the added tokens, normalizes what lies between, cuts out those that are looked for after
// normalization, splits what then remains into words, and has the model encode the words.
func (r *run) encode(whole piece) error {
	emit := r.stage(0)
	afterNormal := func(p piece) error {
		if p.empty() {
			return nil
		}
		return emit(p)
	}
	between := func(p piece) error {
		if p.empty() {
			return nil
		}
		if r.t.normalizer != nil {
			if err := r.t.normalizer.normalize(r, &p); err != nil {
				return err
			}
		}
		return r.cutAdded(p, 1, afterNormal)
	}
	return r.cutAdded(whole, 0, between)
}

// stage is the pre-tokenizer i and all after it; the last is the model.
func (r *run) stage(i int) func(piece) error {
	if i == len(r.t.pre) {
		return r.tokenize
	}
	next := r.stage(i + 1)
	pre := r.t.pre[i]
	return func(p piece) error {
		return pre.split(r, i, p, func(q piece) error {
			if q.empty() {
				return nil
			}
			return next(q)
		})
	}
}

// tokenize has the model encode a word.
func (r *run) tokenize(p piece) error {
	if err := r.t.model.tokenize(r, &p); err != nil {
		return err
	}
	r.word++
	return nil
}

// add appends a token that covers bytes from..to of a piece.
func (r *run) add(id uint32, token string, p *piece, from, to int) {
	e := r.enc
	e.IDs = append(e.IDs, id)
	e.Tokens = append(e.Tokens, token)
	e.Offsets = append(e.Offsets, p.original(from, to))
	e.Words = append(e.Words, r.word)
}

// VocabSize is the number of tokens, added ones included.
func (t *Tokenizer) VocabSize() int {
	n := t.model.size()
	for content := range t.added.ids {
		if _, ok := t.model.id(content); !ok {
			n++
		}
	}
	return n
}

// ID returns the number of a token.
func (t *Tokenizer) ID(token string) (uint32, bool) {
	if id, ok := t.added.ids[token]; ok {
		return id, true
	}
	return t.model.id(token)
}

// Token returns the token that a number stands for, as the vocabulary spells it.
func (t *Tokenizer) Token(id uint32) (string, bool) {
	if a, ok := t.added.tokens[id]; ok {
		return a.Content, true
	}
	return t.model.token(id)
}

// AddedTokens returns the tokens beside the vocabulary, by number.
func (t *Tokenizer) AddedTokens() map[uint32]AddedToken {
	m := make(map[uint32]AddedToken, len(t.added.tokens))
	for id, a := range t.added.tokens {
		m[id] = a.AddedToken
	}
	return m
}

// Truncation returns how the file shortens encodings, nil if it does not.
func (t *Tokenizer) Truncation() *Truncation {
	if t.truncation == nil {
		return nil
	}
	c := *t.truncation
	return &c
}

// Padding returns how the file lengthens encodings, nil if it does not.
func (t *Tokenizer) Padding() *Padding {
	if t.padding == nil {
		return nil
	}
	c := *t.padding
	return &c
}

// Decode turns tokens into text. Numbers that stand for nothing are left out, and so are special tokens if
// skipSpecial is set.
func (t *Tokenizer) Decode(ids []uint32, skipSpecial bool) string {
	var b strings.Builder
	if t.decoders == nil {
		first := true
		for _, id := range ids {
			if tok, ok := t.decodable(id, skipSpecial); ok {
				if !first {
					b.WriteByte(' ')
				}
				b.WriteString(tok)
				first = false
			}
		}
		return b.String()
	}
	c := t.chain(false, func(s string) { b.WriteString(s) })
	for _, id := range ids {
		if tok, ok := t.decodable(id, skipSpecial); ok {
			c.write(tok)
		}
	}
	c.flush()
	return b.String()
}

// decodable is a token as decoders expect it.
func (t *Tokenizer) decodable(id uint32, skipSpecial bool) (string, bool) {
	if a, ok := t.added.tokens[id]; ok {
		text := a.Content
		if a.Normalized {
			text = a.normal
		}
		if skipSpecial && t.added.special[text] {
			return "", false
		}
		return text, true
	}
	tok, ok := t.model.token(id)
	if ok && skipSpecial && t.added.special[tok] {
		return "", false
	}
	return tok, ok
}
