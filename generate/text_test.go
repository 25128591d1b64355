package generate

import (
	"strings"
	"testing"
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
