package openai

import (
	"context"

	"github.com/optimem/optimem/generate"
)

// What a token of an answer takes, more or less: in the engine's queue, in the sequence, the result and the pieces,
// which grow by doubling.
const writtenBytes = 128

// What a byte of text takes in an answer that is made as a whole: in pieces, in the content, which grows by doubling,
// in the string, and escaped in JSON, which is written once and copied.
const textCopies = 12

// usualBytes is how many bytes of text a token is reserved for. What takes more is reserved as it comes.
const usualBytes = 8

// What is told of a token with its likelihood, and of each of its rivals, besides its bytes: as it was written and
// twice copied, as an object, and in JSON, with what each byte takes of it.
const (
	likelyBytes = 160
	rivalBytes  = 16
	objectBytes = 72 + 3*96
	spellCopies = 1 + 8 + 3*(6+4)
)

// A room is the memory of one answer, within what all may take.
type room struct {
	reserve func(ctx context.Context, bytes int64) (release func(), err error)
	ctx     context.Context
	frees   []func()
	// left is what of the reservation for text and spelling is not used.
	left int64
}

// newRoom reserves what the answers to requests take, of which each token comes with its likelihood and so many rivals
// where top is not below 0. Those of a stream are sent as they come. The caller frees it, also of an error.
func (h *Handler) newRoom(ctx context.Context, w Writer, requests []generate.TextRequest, top int, stream bool) (*room, error) {
	m := &room{reserve: h.opts.Reserve, ctx: ctx}
	if m.reserve == nil {
		return m, nil
	}
	fixed := int64(0)
	for _, r := range requests {
		tokens := w.Context() - len(r.Request.Prompt)
		if most := r.Request.MaxTokens; most > 0 {
			tokens = min(tokens, most)
		}
		each, text := int64(writtenBytes), int64(0)
		if top >= 0 {
			each += likelyBytes + rivalBytes*int64(max(top, 1))
		}
		if !stream {
			text = usualBytes * textCopies
			if top >= 0 {
				each += objectBytes * int64(1+top)
				text += usualBytes * spellCopies * int64(1+top)
			}
		}
		fixed += int64(max(tokens, 0)) * each
		m.left += int64(max(tokens, 0)) * text
	}
	return m, m.more(fixed + m.left)
}

func (m *room) more(bytes int64) error {
	free, err := m.reserve(m.ctx, bytes)
	if err == nil {
		m.frees = append(m.frees, free)
	}
	return err
}

// takes counts text of an answer, and what its tokens are spelt as. It reserves what is beyond.
func (m *room) takes(text string, tokens []generate.Token, top int, spell speller) error {
	if m.reserve == nil {
		return nil
	}
	m.left -= int64(len(text)) * textCopies
	for _, t := range tokens {
		spelt := len(spell.tokenizer.Bytes(uint32(t.ID)))
		for _, c := range t.Top[:min(max(top, 0), len(t.Top))] {
			spelt += len(spell.tokenizer.Bytes(uint32(c.ID)))
		}
		m.left -= int64(spelt) * spellCopies
	}
	if m.left >= 0 {
		return nil
	}
	const step = 64 << 10
	n := step - m.left
	m.left += n
	return m.more(n)
}

// free gives everything back.
func (m *room) free() {
	for _, free := range m.frees {
		free()
	}
	m.frees = nil
}
