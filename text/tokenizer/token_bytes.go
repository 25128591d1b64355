package tokenizer

import (
	"strconv"
	"strings"
)

// TokenBytes returns the bytes that each token adds to a decoded text, by the token's number: at its beginning if first is
// set, else after other tokens. Special tokens, which decoding may skip, and numbers that stand for nothing have none, and are left out behind the last other one. Put
// together they are the text wherever that is UTF-8; a token may have a part of a character.
//
// It is an [*UnsupportedError] where what a token adds depends on the tokens beside it.
func (t *Tokenizer) TokenBytes(first bool) ([][]byte, error) {
	if err := t.separate(); err != nil {
		return nil, err
	}
	// Numbers leave few gaps: those of a file that leaves more stand for nothing here.
	n := 4*t.VocabSize() + 1024
	all := make([][]byte, 0, t.VocabSize())
	for id := range n {
		token, ok := t.decodable(uint32(id), true)
		if !ok {
			continue
		}
		for len(all) < id {
			all = append(all, nil)
		}
		all = append(all, t.bytesOf(token, first))
	}
	return all, nil
}

// separate looks whether all decoders take tokens one by one.
func (t *Tokenizer) separate() error {
	joined, bytes := false, false
	for _, d := range t.decoders {
		what := ""
		switch d := d.(type) {
		case *byteLevel:
			if bytes {
				what = "bytes after bytes"
			}
			joined, bytes = true, true
		case byteFallback:
			bytes = true
		case fuse:
			joined = true
		case *stripDecoder:
			switch {
			case joined && d.stop > 0:
				what = "that strips the end of a text"
			case bytes && !joined:
				what = "that strips bytes"
			}
		case *wordPieceDecoder:
			if d.cleanup {
				what = "that takes spaces away between words"
			}
		case *metaspace, *replaceDecoder:
		default:
			what = "that looks at tokens together"
		}
		switch d.(type) {
		case *metaspace, *replaceDecoder, *wordPieceDecoder:
			if joined || bytes {
				what = "that changes the text of all tokens"
			}
		}
		if what != "" {
			return &UnsupportedError{Path: "decoder", What: "the bytes of single tokens, with a decoder " + what}
		}
	}
	return nil
}

// bytesOf is what a token adds to a text.
func (t *Tokenizer) bytesOf(token string, first bool) []byte {
	place := 1
	if first {
		place = 0
	}
	if t.decoders == nil {
		if first {
			return []byte(token)
		}
		return []byte(" " + token)
	}
	joined := false
	for _, d := range t.decoders {
		switch d := d.(type) {
		case *byteLevel:
			if bytes, ok := spelt(token, nil); ok {
				token = string(bytes)
			}
			joined = true
		case byteFallback:
			if b, ok := fallbackByte(token); ok {
				token = string([]byte{b})
			}
		case fuse:
			joined = true
		case *stripDecoder:
			switch {
			case !joined:
				token = d.strip(token)
			case first:
				token = (&stripDecoder{d.content, d.start, 0}).strip(token)
			}
		default:
			var out string
			link := d.link(false, sink(func(s string) { out = s }))
			if m, ok := link.(*mapper); ok {
				m.i = place
			}
			link.write(token)
			token = out
		}
	}
	return []byte(token)
}

// fallbackByte is the byte that a token such as <0x0A> stands for.
func fallbackByte(token string) (byte, bool) {
	if !isByteToken(token) {
		return 0, false
	}
	b, err := strconv.ParseUint(strings.TrimPrefix(token[3:5], "+"), 16, 8) // Rust reads a sign
	return byte(b), err == nil
}
