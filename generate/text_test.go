package generate

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/optimem/optimem/text/tokenizer"
)

// TestStops: text comes up to the first of the stops, whatever pieces it comes in, and what may be the beginning of one is held
// back until it is certain.
func TestStops(t *testing.T) {
	for _, c := range []struct {
		pieces []string
		stops  []string
		want   string
		first  string // what is certain after the first piece
		ends   bool
	}{
		{[]string{"hello", " world"}, nil, "hello world", "hello", false},
		{[]string{"hello\n", "\nworld"}, []string{"\n\n"}, "hello", "hello", true},
		{[]string{"hello\n", "world"}, []string{"\n\n"}, "hello\nworld", "hello", false},
		{[]string{"a", "b", "c", "abcd"}, []string{"cab", "bca"}, "a", "a", true},
		{[]string{"aaaa", "b"}, []string{"aab"}, "aa", "aa", true},
		{[]string{"one END two"}, []string{"END", "one E"}, "", "", true},
		{[]string{"über", "haupt"}, []string{"rha"}, "übe", "übe", true},
		{[]string{"x<", "/s", ">y"}, []string{"</s>"}, "x", "x", true},
		{[]string{"x<", "/s"}, []string{"</s>"}, "x</s", "x", false},
	} {
		s := &stopper{stops: c.stops}
		var got strings.Builder
		for i, piece := range c.pieces {
			text, _ := s.write(piece)
			got.WriteString(text)
			if i == 0 && text != c.first {
				t.Errorf("%q of %q, stops %q: %q is certain at first, want %q", piece, c.pieces, c.stops, text, c.first)
			}
		}
		got.WriteString(s.flush())
		if got.String() != c.want || s.text.String() != c.want || s.stopped != c.ends {
			t.Errorf("%q, stops %q: %q, stopped %t; want %q", c.pieces, c.stops, got.String(), s.stopped, c.want)
		}
	}
}

// TestPieces: each token is in the piece that its text begins in, once, and none behind a stop.
func TestPieces(t *testing.T) {
	for _, c := range []struct {
		texts []string // of tokens 0, 1, …
		stops []string
		want  []Piece
	}{
		{[]string{"a", "b"}, nil, []Piece{{"a", ids(0)}, {"b", ids(1)}}},
		{[]string{"", "é", "", ""}, nil, []Piece{{"é", ids(0, 1)}, {"", ids(2, 3)}}}, // parts of a character come before it
		{[]string{"a<", "/", "s>", "b"}, []string{"</s>"}, []Piece{{"a", ids(0)}}},
		{[]string{"a<", "/", "x"}, []string{"</s>"}, []Piece{{"a", ids(0)}, {"</x", ids(1, 2)}}},
		{[]string{"a", "<", "/"}, []string{"</s>"}, []Piece{{"a", ids(0)}, {"</", ids(1, 2)}}},
		{[]string{"", "stop"}, []string{"stop"}, nil},
	} {
		var got []Piece
		p := &pieces{stopper: stopper{stops: c.stops}, got: func(p Piece) error { got = append(got, p); return nil }}
		for i, text := range c.texts {
			p.tokens, p.starts = append(p.tokens, Token{ID: i}), append(p.starts, p.decoded)
			p.decoded += len(text)
			if err := p.give(p.stopper.write(text)); err != nil {
				break
			}
		}
		if !p.stopped {
			if err := p.piece(p.stopper.flush(), len(p.tokens)); err != nil {
				t.Fatal(err)
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%q, stops %q: %v, want %v", c.texts, c.stops, got, c.want)
		}
	}
}

func ids(list ...int) []Token {
	tokens := make([]Token, len(list))
	for i, id := range list {
		tokens[i].ID = id
	}
	return tokens
}

// TestKeep: special tokens are text where a caller asks for them, and others are not.
func TestKeep(t *testing.T) {
	text, err := OpenText("testdata/chat")
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := text.Tokenizer().Encode("<|im_start|>Hello 🙂<|im_end|> Rome<|im_start|>", tokenizer.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		keep []string
		want string
	}{
		{nil, "Hello 🙂 Rome"}, {[]string{"<|im_end|>", "Hello"}, "Hello 🙂<|im_end|> Rome"},
		{[]string{"<|im_start|>"}, "<|im_start|>Hello 🙂 Rome<|im_start|>"},
	} {
		d := text.decoder(c.keep)
		var got strings.Builder
		for _, id := range encoded.IDs {
			got.WriteString(d.write(id))
		}
		got.WriteString(d.stream.Flush())
		if got.String() != c.want {
			t.Errorf("with %q: %q, want %q", c.keep, got.String(), c.want)
		}
	}
	part, err := text.Tokenizer().Encode("🜁", tokenizer.Options{})
	if err != nil {
		t.Fatal(err)
	}
	d := text.decoder([]string{"<|im_end|>"})
	if got := d.write(part.IDs[0]) + d.write(encoded.IDs[slices.Index(encoded.Tokens, "<|im_end|>")]); got != "\uFFFD<|im_end|>" {
		t.Errorf("a part of a character and a special token are %q", got)
	}
}
