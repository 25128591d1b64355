// Package chars classifies code points as Hugging Face's tokenizers does: category, script, letter, mark, space. It has
// its own tables, since the parts of that program follow different versions of Unicode, and a tokenizer must agree with
// the one that its model was trained with.
//
//	chars.Of('é').Is(chars.Word) // true
package chars

import (
	"strconv"
	"strings"
	"sync"
	"unicode"
)

// Flags are properties of a code point.
type Flags uint16

// A Row is what is known of a code point.
type Row struct {
	General uint8 // index in GeneralNames
	Script  uint8 // 1 + index in scriptNames; 0 for all others
	Flags   Flags
}

// Is reports whether the code point has one of the flags.
func (r Row) Is(f Flags) bool { return r.Flags&f != 0 }

const (
	pageBits = 8
	pages    = (unicode.MaxRune + 1) >> pageBits
)

// A table holds a small number for every code point.
type table struct {
	page  [pages]uint16
	cells [][1 << pageBits]uint8
}

func (t *table) at(r rune) uint8 {
	if r < 0 || r > unicode.MaxRune {
		return 0
	}
	return t.cells[t.page[r>>pageBits]][r&(1<<pageBits-1)]
}

// readRuns makes a table of runs: value, or value*times.
func readRuns(text string) *table {
	all := make([]uint8, 0, unicode.MaxRune+1)
	for _, run := range strings.Fields(text) {
		value, times, many := strings.Cut(run, "*")
		v, n := number(value), 1
		if many {
			n = number(times)
		}
		for range n {
			all = append(all, uint8(v))
		}
	}
	t := &table{}
	seen := make(map[[1 << pageBits]uint8]uint16)
	for i := range t.page {
		cell := [1 << pageBits]uint8(all[i<<pageBits:])
		at, ok := seen[cell]
		if !ok {
			at = uint16(len(t.cells))
			seen[cell] = at
			t.cells = append(t.cells, cell)
		}
		t.page[i] = at
	}
	return t
}

func number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		panic("BUG: generated table: " + err.Error())
	}
	return n
}

var (
	classes = sync.OnceValue(func() *table { return readRuns(rowRuns) })
	scripts = sync.OnceValue(func() *table { return readRuns(scriptRuns) })
	lowers  = sync.OnceValue(func() map[rune]rune {
		m := make(map[rune]rune)
		fields := strings.Fields(lowerPairs)
		from := 0
		for i := 0; i+1 < len(fields); i += 2 {
			from += number(fields[i])
			m[rune(from)] = rune(from + number(fields[i+1]))
		}
		return m
	})
)

// Of says what a code point is.
func Of(r rune) Row { return rows[classes().at(r)] }

// Script is the script of a code point as the pre-tokenizer UnicodeScripts sees it: Japanese syllabaries are Han, a
// space and what has no script are 0, which goes with anything.
func Script(r rune) int {
	switch r {
	case 0x30FC:
		return scriptHan
	case ' ':
		return 0
	}
	switch s := int(scripts().at(r)); s {
	case scriptHiragana, scriptKatakana:
		return scriptHan
	default:
		return s
	}
}

// Lower is the lower case of a code point. For U+0130 alone it is two.
func Lower(r rune) (first, second rune) {
	switch {
	case 'A' <= r && r <= 'Z':
		return r + 'a' - 'A', 0
	case r < 0x80:
		return r, 0
	case r == 0x130:
		return 'i', 0x307
	}
	if l, ok := lowers()[r]; ok {
		return l, 0
	}
	return r, 0
}

// Ranges returns the code points of a property as a regular expression names it, in order, as pairs of first and last.
// It knows general categories, scripts and a few others, and forgets case, spaces, - and _ in names. The ranges are not to
// be changed.
func Ranges(name string) ([]rune, bool) {
	name = fold(name)
	if long, ok := longNames[name]; ok {
		name = long
	}
	if r, ok := asked.Load(name); ok {
		return r.([]rune), true
	}
	r, ok := ranges(name)
	if ok {
		asked.Store(name, r)
	}
	return r, ok
}

// asked are the ranges of properties that were asked for.
var asked sync.Map

func ranges(name string) ([]rune, bool) {
	var in func(Row) bool
	switch name {
	case "any":
		return []rune{0, unicode.MaxRune}, true
	case "ascii":
		return []rune{0, 0x7F}, true
	case "alphabetic", "alpha":
		in = func(r Row) bool { return r.Is(Alphabetic) }
	case "word":
		in = func(r Row) bool { return r.Is(Word) }
	case "space", "whitespace":
		in = func(r Row) bool { return r.Is(Space) }
	case "digit":
		in = func(r Row) bool { return GeneralNames[r.General] == "Nd" }
	case "alnum":
		in = func(r Row) bool { return r.Is(Alphabetic) || GeneralNames[r.General] == "Nd" }
	default:
		for i, g := range GeneralNames {
			if strings.EqualFold(g, name) {
				in = func(r Row) bool { return int(r.General) == i }
			} else if len(name) == 1 && strings.EqualFold(g[:1], name) {
				in = func(r Row) bool { return strings.EqualFold(GeneralNames[r.General][:1], name) }
			}
		}
		for i, s := range scriptNames {
			if strings.EqualFold(s, name) {
				in = func(r Row) bool { return int(r.Script) == i+1 }
			}
		}
	}
	if in != nil {
		return collect(in), true
	}
	for s, t := range unicode.Scripts {
		if fold(s) == name {
			return ofTable(t), true
		}
	}
	return nil, false
}

func fold(name string) string {
	return strings.ToLower(strings.NewReplacer(" ", "", "-", "", "_", "").Replace(name))
}

// longNames are the long names of general categories.
var longNames = map[string]string{
	"letter": "l", "uppercaseletter": "lu", "lowercaseletter": "ll", "titlecaseletter": "lt", "modifierletter": "lm",
	"otherletter": "lo", "mark": "m", "nonspacingmark": "mn", "spacingmark": "mc", "enclosingmark": "me", "number": "n",
	"decimalnumber": "nd", "letternumber": "nl", "othernumber": "no", "punctuation": "p", "connectorpunctuation": "pc",
	"dashpunctuation": "pd", "openpunctuation": "ps", "closepunctuation": "pe", "initialpunctuation": "pi",
	"finalpunctuation": "pf", "otherpunctuation": "po", "symbol": "s", "mathsymbol": "sm", "currencysymbol": "sc",
	"modifiersymbol": "sk", "othersymbol": "so", "separator": "z", "spaceseparator": "zs", "lineseparator": "zl",
	"paragraphseparator": "zp", "other": "c", "control": "cc", "format": "cf", "privateuse": "co", "unassigned": "cn",
	"surrogate": "cs",
}

func collect(in func(Row) bool) []rune {
	t := classes()
	var ranges []rune
	open := false
	for r := rune(0); r <= unicode.MaxRune; r++ {
		switch is := in(rows[t.at(r)]); {
		case is && open:
			ranges[len(ranges)-1] = r
		case is:
			ranges = append(ranges, r, r)
			open = true
		default:
			open = false
		}
	}
	return ranges
}

func ofTable(t *unicode.RangeTable) []rune {
	var ranges []rune
	add := func(lo, hi, stride rune) {
		for r := lo; r <= hi; r += stride {
			if n := len(ranges); n > 0 && ranges[n-1] == r-1 {
				ranges[n-1] = r
			} else {
				ranges = append(ranges, r, r)
			}
		}
	}
	for _, r := range t.R16 {
		add(rune(r.Lo), rune(r.Hi), rune(r.Stride))
	}
	for _, r := range t.R32 {
		add(rune(r.Lo), rune(r.Hi), rune(r.Stride))
	}
	return ranges
}
