package chars

import (
	"testing"
	"unicode"
)

// TestKnowsWhatTheTablesOfGoDoNot: each part of Hugging Face's tokenizers has its own version of Unicode.
func TestKnowsWhatTheTablesOfGoDoNot(t *testing.T) {
	for _, c := range []struct {
		r    rune
		flag Flags
		want bool
	}{
		{'é', Word, true}, {'²', Word, true}, {'²', RustWord, false}, {'Ⅷ', Numeric, true}, {'½', Numeric, true}, {'½', Word, true},
		{0x200D, RustWord, true}, {0x200D, Word, false}, {0xA0, Space, true}, {0x85, Space, true}, {0x180E, Space, false},
		{'$', Punctuation, true}, {'€', Punctuation, false}, {0x61D, Punctuation, false}, {0x301, Mark, true}, {0x897, Mark, false},
		{0x1734, NonSpacing, true}, {0x378, Control, false}, {0xE000, Control, true}, {0, Control, true}, {0x11938, Decomposes, false},
		{0x32FF, Decomposes, false}, {0xAC00, Decomposes, true}, {'a', Decomposes, false}, {0x1C89, Word, true},
	} {
		if got := Of(c.r).Is(c.flag); got != c.want {
			t.Errorf("%U: flag %b is %v", c.r, c.flag, got)
		}
	}
	if len(rows) > 256 {
		t.Errorf("%d rows do not fit a byte", len(rows))
	}
	if Of(-1) != Of(0) || Of(unicode.MaxRune+1) != Of(0) {
		t.Error("what is no code point has no row of its own")
	}
}

// TestLowerCase: one code point becomes two.
func TestLowerCase(t *testing.T) {
	for _, c := range [][3]rune{{'A', 'a', 0}, {'z', 'z', 0}, {0x130, 'i', 0x307}, {'É', 'é', 0}, {0x1C89, 0x1C8A, 0}, {'ß', 'ß', 0}, {'@', '@', 0}} {
		if a, b := Lower(c[0]); a != c[1] || b != c[2] {
			t.Errorf("%U: %U %U", c[0], a, b)
		}
	}
}

// TestScriptsOfSentencePieces: Japanese is one script, and a space goes with all.
func TestScriptsOfSentencePieces(t *testing.T) {
	if Script('日') != Script('ひ') || Script('カ') != Script('ー') || Script('日') != Script('カ') {
		t.Error("Japanese has several scripts")
	}
	if Script(' ') != 0 || Script('a') == 0 || Script('a') == Script('я') || Script('1') == Script('a') {
		t.Error("scripts are mixed up")
	}
}

// TestRangesByName: properties have the members they should, whatever way a name is written.
func TestRangesByName(t *testing.T) {
	for _, c := range []struct {
		name    string
		in, out rune
	}{
		{"L", 'é', '1'}, {"Lu", 'A', 'a'}, {"lu", 'É', 'é'}, {"Uppercase_Letter", 'A', 'a'}, {"Han", '漢', 'a'}, {"Greek", 'α', 'a'},
		{"Alphabetic", 'Ⅷ', '1'}, {"Nd", '٣', '½'}, {"P", '!', '$'}, {"Runic", 'ᚠ', 'a'}, {"Cn", 0x378, 'a'}, {"Any", 0, -1}, {"ASCII", 'a', 'é'},
		{"white space", 0x3000, 'a'}, {"word", '_', '-'}, {"alnum", '1', '_'},
	} {
		ranges, ok := Ranges(c.name)
		has := func(r rune) bool {
			for i := 0; i+1 < len(ranges); i += 2 {
				if r >= ranges[i] && r <= ranges[i+1] {
					return true
				}
			}
			return false
		}
		if !ok || !has(c.in) || has(c.out) {
			t.Errorf("%s: %v, %U %v, %U %v", c.name, ok, c.in, has(c.in), c.out, has(c.out))
		}
		for i := 1; i < len(ranges); i++ {
			if ranges[i] < ranges[i-1] || i%2 == 0 && ranges[i] <= ranges[i-1]+1 {
				t.Errorf("%s: ranges are not in order at %U", c.name, ranges[i])
			}
		}
	}
	if _, ok := Ranges("Klingon"); ok {
		t.Error("Klingon is a script")
	}
}
