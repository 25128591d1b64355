package tokenizer

import (
	"strings"
	"unicode/utf8"

	"github.com/optimem/optimem/text/tokenizer/internal/chars"
)

// A processor adds what a model expects around one text or two.
type processor interface {
	added(pair bool) int
	process(e []*Encoding, special bool) []*Encoding
}

// Truncation is how a file shortens what is longer than MaxLength tokens, added ones included.
type Truncation struct {
	MaxLength int
	Strategy  string // LongestFirst, OnlyFirst, OnlySecond
	Left      bool   // tokens at the beginning go
	Stride    int    // of what a long text would be cut into
}

// Padding is how a file lengthens encodings.
type Padding struct {
	Length     int // 0: to no length of its own
	MultipleOf int // 0: none
	Left       bool
	ID         uint32
	TypeID     uint32
	Token      string
}

// finish truncates, adds special tokens and pads.
func (t *Tokenizer) finish(e []*Encoding, o Options) (*Encoding, error) {
	var tr Truncation
	cut := 0
	if t.truncation != nil {
		tr = *t.truncation
	}
	if o.MaxTokens > 0 {
		tr.MaxLength, tr.Strategy = o.MaxTokens, "LongestFirst"
	}
	if o.MaxTokens > 0 || o.Truncate && t.truncation != nil {
		if o.AddSpecial && t.post != nil {
			tr.MaxLength = max(tr.MaxLength-t.post.added(len(e) == 2), 0)
		}
		whole := length(e)
		if err := truncate(e, &tr); err != nil {
			return nil, err
		}
		cut = whole - length(e)
	}
	if t.post != nil {
		for i, one := range e {
			one.setType(uint32(i))
		}
		e = t.post.process(e, o.AddSpecial)
	}
	all := e[0]
	if len(e) != 1 {
		all = &Encoding{}
		for _, one := range e {
			all.append(one)
		}
	}
	all.Cut = cut
	if o.Pad && t.padding != nil {
		if err := all.pad(t.padding); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// length is how many tokens encodings have together.
func length(e []*Encoding) int {
	n := 0
	for _, one := range e {
		n += len(one.IDs)
	}
	return n
}

func (e *Encoding) setType(id uint32) {
	for i := range e.TypeIDs {
		e.TypeIDs[i] = id
	}
}

func (e *Encoding) append(o *Encoding) {
	e.IDs = append(e.IDs, o.IDs...)
	e.Tokens = append(e.Tokens, o.Tokens...)
	e.Offsets = append(e.Offsets, o.Offsets...)
	e.TypeIDs = append(e.TypeIDs, o.TypeIDs...)
	e.Words = append(e.Words, o.Words...)
	e.SpecialMask = append(e.SpecialMask, o.SpecialMask...)
	e.Attention = append(e.Attention, o.Attention...)
}

// keep cuts an encoding down to tokens from..to.
func (e *Encoding) keep(from, to int) {
	e.IDs, e.Tokens, e.Offsets = e.IDs[from:to], e.Tokens[from:to], e.Offsets[from:to]
	e.TypeIDs, e.Words = e.TypeIDs[from:to], e.Words[from:to]
	e.SpecialMask, e.Attention = e.SpecialMask[from:to], e.Attention[from:to]
}

func (e *Encoding) truncate(n int, left bool) {
	switch {
	case n >= len(e.IDs):
	case left:
		e.keep(len(e.IDs)-n, len(e.IDs))
	default:
		e.keep(0, n)
	}
}

func truncate(e []*Encoding, t *Truncation) error {
	if t.MaxLength == 0 {
		for _, one := range e {
			one.truncate(0, t.Left)
		}
		return nil
	}
	total := length(e)
	over := total - t.MaxLength
	if over <= 0 {
		return nil
	}
	switch {
	case t.Strategy == "LongestFirst" && len(e) == 1:
		e[0].truncate(total-over, t.Left)
	case t.Strategy == "LongestFirst":
		swap := len(e[0].IDs) > len(e[1].IDs)
		n1 := min(len(e[0].IDs), len(e[1].IDs))
		n2 := max(n1, t.MaxLength-n1)
		if n1+n2 > t.MaxLength {
			n1 = t.MaxLength / 2
			n2 = n1 + t.MaxLength%2
		}
		if swap {
			n1, n2 = n2, n1
		}
		e[0].truncate(n1, t.Left)
		e[1].truncate(n2, t.Left)
	default:
		which := 0
		if t.Strategy == "OnlySecond" {
			which = 1
		}
		if which >= len(e) {
			return &TextError{"too long, and only a second text is to be shortened"}
		}
		if len(e[which].IDs) <= over {
			return &TextError{"too long, and the one text that is to be shortened is too short for that"}
		}
		e[which].truncate(len(e[which].IDs)-over, t.Left)
	}
	return nil
}

// maxPadding bounds what a file may have encodings lengthened to.
const maxPadding = 1 << 22

func (e *Encoding) pad(p *Padding) error {
	length := max(p.Length, 0)
	if p.Length == 0 {
		length = len(e.IDs)
	}
	if p.MultipleOf > 0 && length%p.MultipleOf > 0 {
		length += p.MultipleOf - length%p.MultipleOf
	}
	n := length - len(e.IDs)
	if n <= 0 {
		return nil
	}
	if n > maxPadding {
		return &UnsupportedError{Path: "padding", What: "padding by more than 4 million tokens"}
	}
	fill := &Encoding{
		IDs: make([]uint32, n), Tokens: make([]string, n), Offsets: make([]Span, n), TypeIDs: make([]uint32, n),
		Words: make([]int32, n), SpecialMask: make([]bool, n), Attention: make([]bool, n),
	}
	for i := range n {
		fill.IDs[i], fill.Tokens[i], fill.TypeIDs[i], fill.Words[i], fill.SpecialMask[i] = p.ID, p.Token,
			p.TypeID, -1, true
	}
	if p.Left {
		fill.append(e)
		*e = *fill
	} else {
		e.append(fill)
	}
	return nil
}

// special is an encoding of added tokens.
func special(typeID uint32, ids []uint32, tokens []string) *Encoding {
	e := &Encoding{}
	for i, id := range ids {
		e.IDs, e.Tokens, e.Offsets = append(e.IDs, id), append(e.Tokens, tokens[i]), append(e.Offsets, Span{})
		e.TypeIDs, e.Words = append(e.TypeIDs, typeID), append(e.Words, -1)
		e.SpecialMask, e.Attention = append(e.SpecialMask, true), append(e.Attention, true)
	}
	return e
}

type processors []processor

func (p processors) added(pair bool) int {
	n := 0
	for _, one := range p {
		n += one.added(pair)
	}
	return n
}

func (p processors) process(e []*Encoding, special bool) []*Encoding {
	for _, one := range p {
		e = one.process(e, special)
	}
	return e
}

// trimmer takes spaces at the edges of tokens out of their offsets.
type trimmer struct{ trim, prefix bool }

func (trimmer) added(bool) int { return 0 }

func (t trimmer) process(e []*Encoding, _ bool) []*Encoding {
	if t.trim {
		for _, one := range e {
			t.offsets(one)
		}
	}
	return e
}

// offsets trims by characters, as many of the text as the token has spaces.
func (t trimmer) offsets(e *Encoding) {
	space := func(c rune) bool { return c == byteRunes[' '] || chars.Of(c).Is(chars.Space) }
	for i, token := range e.Tokens {
		at := &e.Offsets[i]
		if at.Start > at.End || at.End > len(e.text) {
			continue // offsets that are in no text
		}
		leading := utf8.RuneCountInString(token) - utf8.RuneCountInString(strings.TrimLeftFunc(token, space))
		trailing := utf8.RuneCountInString(token) - utf8.RuneCountInString(strings.TrimRightFunc(token, space))
		if leading > 0 {
			if first := i == 0 || at.Start == 0; first && t.prefix && leading == 1 {
				leading = 0
			}
			for ; leading > 0 && at.Start < at.End; leading-- {
				_, size := utf8.DecodeRuneInString(e.text[at.Start:at.End])
				at.Start += size
			}
		}
		end := at.End
		for ; trailing > 0 && end > 0; trailing-- {
			_, size := utf8.DecodeLastRuneInString(e.text[:end])
			end -= size
		}
		if trailing == 0 {
			at.End = max(end, at.Start)
		}
	}
}

// around is what BERT and RoBERTa add: cls text sep, and text sep, or sep text sep, for the second of a pair.
type around struct {
	cls, sep     string
	clsID, sepID uint32
	roberta      bool
	trimmer      trimmer
}

func (p *around) added(pair bool) int {
	switch {
	case pair && p.roberta:
		return 4
	case pair:
		return 3
	}
	return 2
}

func (p *around) process(e []*Encoding, add bool) []*Encoding {
	if p.roberta {
		p.trimmer.process(e, add)
		for _, one := range e {
			one.setType(0)
		}
	}
	if !add {
		return e
	}
	second := uint32(1)
	if p.roberta {
		second = 0
	}
	cls := func() *Encoding { return special(0, []uint32{p.clsID}, []string{p.cls}) }
	sep := func(typeID uint32) *Encoding { return special(typeID, []uint32{p.sepID}, []string{p.sep}) }
	for i, one := range e {
		var all *Encoding
		switch {
		case i == 0:
			all = cls()
			all.append(one)
			all.append(sep(0))
		default:
			all = &Encoding{}
			if p.roberta {
				all = sep(0)
			}
			all.append(one)
			all.append(sep(second))
		}
		// Which tokens were special before is forgotten.
		from, to := 0, len(all.IDs)-1
		if i == 0 || p.roberta {
			from = 1
		}
		for j := from; j < to; j++ {
			all.SpecialMask[j] = false
		}
		e[i] = all
	}
	return e
}

// A template says what comes around one text and around two.
type template struct {
	single, pair           []templatePart
	addedSingle, addedPair int
}

type templatePart struct {
	sequence int // 0 or 1; −1 for special tokens
	typeID   uint32
	ids      []uint32
	tokens   []string
}

func (t *template) added(pair bool) int {
	if pair {
		return t.addedPair
	}
	return t.addedSingle
}

func (t *template) process(e []*Encoding, add bool) []*Encoding {
	parts := t.single
	if len(e) == 2 {
		parts = t.pair
	}
	var out []*Encoding
	for _, p := range parts {
		switch {
		case p.sequence >= 0 && p.sequence < len(e):
			one := *e[p.sequence]
			one.TypeIDs = make([]uint32, len(one.IDs))
			one.setType(p.typeID)
			out = append(out, &one)
		case p.sequence < 0 && add:
			out = append(out, special(p.typeID, p.ids, p.tokens))
		}
	}
	if out == nil {
		out = []*Encoding{{}}
	}
	return out
}
