package tokenizer

import (
	"unicode/utf8"

	"github.com/optimem/optimem/text/tokenizer/internal/chars"
)

// An AddedToken is looked for in the text before any model sees it.
type AddedToken struct {
	Content    string
	Special    bool // left out of decoded text on request
	SingleWord bool // not beside a letter or digit
	LStrip     bool // takes the white space before it
	RStrip     bool // and after it
	Normalized bool // is looked for in normalized text, in its own normalized form
}

type addedToken struct {
	AddedToken
	id     uint32
	normal string // Content, normalized
}

// addedVocabulary is the tokens beside the model's. Those to be found before normalization are in finders[0].
type addedVocabulary struct {
	ids     map[string]uint32
	tokens  map[uint32]addedToken
	special map[string]bool
	finders [2]*finder
	keys    [2][]addedToken
}

// newAdded numbers added tokens as Hugging Face's tokenizers does: what the model knows keeps its number, and the rest
// go on after the last. The number that a file gives counts only where it comes to the same.
func newAdded(list []AddedToken, m model, normal func(string) (string, error)) (*addedVocabulary, error) {
	v := &addedVocabulary{
		ids: make(map[string]uint32), tokens: make(map[uint32]addedToken), special: make(map[string]bool),
	}
	next := uint32(m.size())
	for _, a := range list {
		if a.Content == "" {
			continue
		}
		id, ok := v.ids[a.Content]
		if !ok {
			id, ok = m.id(a.Content)
		}
		if !ok {
			id = next
			next++
		}
		t := addedToken{AddedToken: a, id: id, normal: a.Content}
		if a.Normalized {
			s, err := normal(a.Content)
			if err != nil {
				return nil, err
			}
			t.normal = s
		}
		v.ids[a.Content] = id
		if a.Special {
			v.special[a.Content] = true
		}
		v.tokens[id] = t
	}
	v.index(list)
	return v, nil
}

// index builds the finders.
func (v *addedVocabulary) index(list []AddedToken) {
	var patterns [2][]string
	done := make(map[uint32]bool)
	for _, a := range list {
		id, ok := v.ids[a.Content]
		if !ok || done[id] {
			continue
		}
		done[id] = true
		t := v.tokens[id]
		if t.Normalized && t.normal != "" {
			patterns[1], v.keys[1] = append(patterns[1], t.normal), append(v.keys[1], t)
		} else if !t.Normalized {
			patterns[0], v.keys[0] = append(patterns[0], t.Content), append(v.keys[0], t)
		}
	}
	for i, p := range patterns {
		if len(p) > 0 {
			v.finders[i] = newFinder(p)
		}
	}
}

// cutAdded encodes the added tokens in a piece and passes on what lies between them.
func (r *run) cutAdded(p piece, which int, between func(piece) error) error {
	f := r.t.added.finders[which]
	if f == nil || p.empty() {
		return between(p.slice(0, len(p.text)))
	}
	text := p.text
	last, spaceEnd := 0, 0
	hits := f.find(text, r.hits[which])
	r.hits[which] = hits[:0]
	if which == 0 {
		r.hits[0] = nil // in use while pieces between are normalized and cut again
	}
	for _, h := range hits {
		a := &r.t.added.keys[which][h.key]
		if r.opts.SpecialAsText && r.t.added.special[a.Content] {
			continue
		}
		start, end := h.start, h.end
		if a.SingleWord && (wordBefore(text[:start]) || wordAfter(text[end:])) {
			continue
		}
		if a.LStrip {
			for start > last {
				c, size := utf8.DecodeLastRuneInString(text[:start])
				if !chars.Of(c).Is(chars.Space) {
					break
				}
				start -= size
			}
			start = max(start, last)
		}
		if a.RStrip {
			for end = max(end, spaceEnd); end < len(text); {
				c, size := utf8.DecodeRuneInString(text[end:])
				if !chars.Of(c).Is(chars.Space) {
					break
				}
				end += size
			}
			spaceEnd = end
		}
		if last < start {
			if err := between(p.slice(last, start)); err != nil {
				return err
			}
		}
		q := p.slice(start, end)
		r.add(a.id, q.text, &q, 0, len(q.text))
		r.word++
		last = end
	}
	if last < len(text) {
		return between(p.slice(last, len(text)))
	}
	return nil
}

func wordBefore(s string) bool {
	c, size := utf8.DecodeLastRuneInString(s)
	return size > 0 && chars.Of(c).Is(chars.RustWord)
}

func wordAfter(s string) bool {
	c, size := utf8.DecodeRuneInString(s)
	return size > 0 && chars.Of(c).Is(chars.RustWord)
}
