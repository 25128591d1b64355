package openai

import (
	"math"
	"strings"
	"unicode/utf8"

	"github.com/optimem/optimem/generate"
	"github.com/optimem/optimem/text/tokenizer"
)

// A speller spells tokens.
type speller struct{ tokenizer *tokenizer.Tokenizer }

// text is what a token adds to a text, special or not. A part of a character is U+FFFD.
func (s speller) text(id int) string {
	return strings.ToValidUTF8(string(s.tokenizer.Bytes(uint32(id))), "\uFFFD")
}

// least stands for the logarithm of nothing, which JSON cannot write.
const least = -9999

func logprob(x float64) float64 {
	if math.IsInf(x, -1) || math.IsNaN(x) {
		return least
	}
	return x
}

// token is a token as chats have it, without its rivals.
func (s speller) token(id int, x float64) tokenObject {
	bytes := s.tokenizer.Bytes(uint32(id))
	o := tokenObject{Token: s.text(id), Logprob: logprob(x), Bytes: make([]int, len(bytes))}
	for i, b := range bytes {
		o.Bytes[i] = int(b)
	}
	return o
}

// chat are the tokens of a chat's piece with their best rivals.
func (s speller) chat(tokens []generate.Token, top int) *logprobsObject {
	list := make([]tokenObject, len(tokens))
	for i, t := range tokens {
		o := s.token(t.ID, t.Logprob)
		o.Top = make([]tokenObject, 0, top)
		for _, c := range t.Top[:min(top, len(t.Top))] {
			o.Top = append(o.Top, s.token(c.ID, c.Logprob))
		}
		list[i] = o
	}
	return &logprobsObject{Content: list}
}

// completion are the tokens of a piece of a completion that begins at a character.
func (s speller) completion(tokens []generate.Token, top, offset int) *textLogprobs {
	o := &textLogprobs{[]string{}, []float64{}, []map[string]float64{}, []int{}}
	for _, t := range tokens {
		text := s.text(t.ID)
		o.Tokens, o.Logprobs, o.Offsets = append(o.Tokens, text), append(o.Logprobs, logprob(t.Logprob)), append(o.Offsets, offset)
		offset += utf8.RuneCountInString(text)
		rivals := map[string]float64{}
		for _, c := range t.Top[:min(top, len(t.Top))] {
			// Different tokens may be spelt the same: the most likely one comes first.
			if spelt := s.text(c.ID); rivals[spelt] == 0 {
				rivals[spelt] = logprob(c.Logprob)
			}
		}
		o.Top = append(o.Top, rivals)
	}
	return o
}
