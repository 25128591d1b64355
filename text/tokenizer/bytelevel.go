package tokenizer

import (
	"unicode/utf8"

	"github.com/optimem/optimem/text/tokenizer/internal/pattern"
)

// byteRunes are the characters that byte-level vocabularies spell bytes with: GPT-2's bytes_to_unicode.
var byteRunes = func() (all [256]rune) {
	next := rune(256)
	for b := range all {
		switch {
		case b >= '!' && b <= '~', b >= 0xA1 && b <= 0xAC, b >= 0xAE:
			all[b] = rune(b)
		default:
			all[b] = next
			next++
		}
	}
	return all
}()

// runeBytes is byteRunes turned round; −1 for characters that stand for no byte.
var runeBytes = func() (all [324]int16) {
	for i := range all {
		all[i] = -1
	}
	for b, r := range byteRunes {
		all[r] = int16(b)
	}
	return all
}()

// spelt returns the bytes that a token of a byte-level vocabulary stands for; false if it has other characters.
func spelt(token string, buf []byte) ([]byte, bool) {
	for _, c := range token {
		if int(c) >= len(runeBytes) || runeBytes[c] < 0 {
			return buf, false
		}
		buf = append(buf, byte(runeBytes[c]))
	}
	return buf, true
}

// gpt2 is the pattern of the pre-tokenizer ByteLevel.
const gpt2 = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`

type byteLevel struct {
	prefix bool             // put a space before a word that has none
	words  *pattern.Pattern // nil: do not split
	raw    bool             // leave bytes as they are, for a model that takes them so
}

func (b *byteLevel) split(r *run, stage int, p piece, emit func(piece) error) error {
	if b.prefix && p.text[0] != ' ' {
		p.prepend(" ")
	}
	spell := func(q piece) error {
		if b.raw {
			q.bytes = true
		} else {
			r.spellBytes(&q)
		}
		return emit(q)
	}
	if b.words == nil {
		return spell(p)
	}
	return r.splitAt(stage, b.words, &splitter{p: &p, how: isolated, emit: spell})
}

// lossy appends what a decoder makes of bytes: U+FFFD for each longest beginning of a character that does not go on. If
// final is not set it leaves off where a character may still go on, and returns how many bytes it took.
func lossy(dst []byte, src []byte, final bool) ([]byte, int) {
	i := 0
	for i < len(src) {
		r, size := utf8.DecodeRune(src[i:])
		if r != utf8.RuneError || size > 1 {
			dst = append(dst, src[i:i+size]...)
			i += size
			continue
		}
		n := begun(src[i:])
		if i+n == len(src) && n > 0 && !final && !utf8.FullRune(src[i:]) {
			return dst, i
		}
		dst = utf8.AppendRune(dst, utf8.RuneError)
		i += max(n, 1)
	}
	return dst, i
}

// begun is how many bytes are the beginning of a character.
func begun(b []byte) int {
	n := 1
	for n < len(b) && n < utf8.UTFMax && !utf8.FullRune(b[:n]) {
		n++
	}
	if utf8.FullRune(b[:n]) && n > 1 { // the last byte made it wrong
		n--
	}
	return n
}
