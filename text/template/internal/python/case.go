// Package python implements methods of Python's strings and dates that Go lacks: full case mapping with the final
// sigma, character classes, and strftime. It does not know templates.
//
//	python.Upper("straße")                        // STRASSE
//	python.Strftime(time.Now(), "%d %B %Y")
package python

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Characters that become several, each followed by what it becomes: what Unicode's SpecialCasing.txt says without a condition.
const (
	upperSeveral = "\u00dfSS \u0149\u02bcN \u01f0J\u030c \u0390\u0399\u0308\u0301 \u03b0\u03a5\u0308\u0301 " +
		"\u0587\u0535\u0552 \u1e96H\u0331 \u1e97T\u0308 \u1e98W\u030a \u1e99Y\u030a \u1e9aA\u02be " +
		"\u1f50\u03a5\u0313 \u1f52\u03a5\u0313\u0300 \u1f54\u03a5\u0313\u0301 \u1f56\u03a5\u0313\u0342 " +
		"\u1f80\u1f08\u0399 \u1f81\u1f09\u0399 \u1f82\u1f0a\u0399 \u1f83\u1f0b\u0399 \u1f84\u1f0c\u0399 " +
		"\u1f85\u1f0d\u0399 \u1f86\u1f0e\u0399 \u1f87\u1f0f\u0399 \u1f88\u1f08\u0399 \u1f89\u1f09\u0399 " +
		"\u1f8a\u1f0a\u0399 \u1f8b\u1f0b\u0399 \u1f8c\u1f0c\u0399 \u1f8d\u1f0d\u0399 \u1f8e\u1f0e\u0399 " +
		"\u1f8f\u1f0f\u0399 \u1f90\u1f28\u0399 \u1f91\u1f29\u0399 \u1f92\u1f2a\u0399 \u1f93\u1f2b\u0399 " +
		"\u1f94\u1f2c\u0399 \u1f95\u1f2d\u0399 \u1f96\u1f2e\u0399 \u1f97\u1f2f\u0399 \u1f98\u1f28\u0399 " +
		"\u1f99\u1f29\u0399 \u1f9a\u1f2a\u0399 \u1f9b\u1f2b\u0399 \u1f9c\u1f2c\u0399 \u1f9d\u1f2d\u0399 " +
		"\u1f9e\u1f2e\u0399 \u1f9f\u1f2f\u0399 \u1fa0\u1f68\u0399 \u1fa1\u1f69\u0399 \u1fa2\u1f6a\u0399 " +
		"\u1fa3\u1f6b\u0399 \u1fa4\u1f6c\u0399 \u1fa5\u1f6d\u0399 \u1fa6\u1f6e\u0399 \u1fa7\u1f6f\u0399 " +
		"\u1fa8\u1f68\u0399 \u1fa9\u1f69\u0399 \u1faa\u1f6a\u0399 \u1fab\u1f6b\u0399 \u1fac\u1f6c\u0399 " +
		"\u1fad\u1f6d\u0399 \u1fae\u1f6e\u0399 \u1faf\u1f6f\u0399 \u1fb2\u1fba\u0399 \u1fb3\u0391\u0399 " +
		"\u1fb4\u0386\u0399 \u1fb6\u0391\u0342 \u1fb7\u0391\u0342\u0399 \u1fbc\u0391\u0399 " +
		"\u1fc2\u1fca\u0399 \u1fc3\u0397\u0399 \u1fc4\u0389\u0399 \u1fc6\u0397\u0342 " +
		"\u1fc7\u0397\u0342\u0399 \u1fcc\u0397\u0399 \u1fd2\u0399\u0308\u0300 \u1fd3\u0399\u0308\u0301 " +
		"\u1fd6\u0399\u0342 \u1fd7\u0399\u0308\u0342 \u1fe2\u03a5\u0308\u0300 \u1fe3\u03a5\u0308\u0301 " +
		"\u1fe4\u03a1\u0313 \u1fe6\u03a5\u0342 \u1fe7\u03a5\u0308\u0342 \u1ff2\u1ffa\u0399 " +
		"\u1ff3\u03a9\u0399 \u1ff4\u038f\u0399 \u1ff6\u03a9\u0342 \u1ff7\u03a9\u0342\u0399 " +
		"\u1ffc\u03a9\u0399 \ufb00FF \ufb01FI \ufb02FL \ufb03FFI \ufb04FFL \ufb05ST \ufb06ST " +
		"\ufb13\u0544\u0546 \ufb14\u0544\u0535 \ufb15\u0544\u053b \ufb16\u054e\u0546 \ufb17\u0544\u053d "

	titleSeveral = "\u00dfSs \u0149\u02bcN \u01f0J\u030c \u0390\u0399\u0308\u0301 \u03b0\u03a5\u0308\u0301 " +
		"\u0587\u0535\u0582 \u1e96H\u0331 \u1e97T\u0308 \u1e98W\u030a \u1e99Y\u030a \u1e9aA\u02be " +
		"\u1f50\u03a5\u0313 \u1f52\u03a5\u0313\u0300 \u1f54\u03a5\u0313\u0301 \u1f56\u03a5\u0313\u0342 " +
		"\u1fb2\u1fba\u0345 \u1fb4\u0386\u0345 \u1fb6\u0391\u0342 \u1fb7\u0391\u0342\u0345 " +
		"\u1fc2\u1fca\u0345 \u1fc4\u0389\u0345 \u1fc6\u0397\u0342 \u1fc7\u0397\u0342\u0345 " +
		"\u1fd2\u0399\u0308\u0300 \u1fd3\u0399\u0308\u0301 \u1fd6\u0399\u0342 \u1fd7\u0399\u0308\u0342 " +
		"\u1fe2\u03a5\u0308\u0300 \u1fe3\u03a5\u0308\u0301 \u1fe4\u03a1\u0313 \u1fe6\u03a5\u0342 " +
		"\u1fe7\u03a5\u0308\u0342 \u1ff2\u1ffa\u0345 \u1ff4\u038f\u0345 \u1ff6\u03a9\u0342 " +
		"\u1ff7\u03a9\u0342\u0345 \ufb00Ff \ufb01Fi \ufb02Fl \ufb03Ffi \ufb04Ffl \ufb05St \ufb06St " +
		"\ufb13\u0544\u0576 \ufb14\u0544\u0565 \ufb15\u0544\u056b \ufb16\u054e\u0576 \ufb17\u0544\u056d "
)

var (
	upperTable = caseTable(upperSeveral)
	titleTable = caseTable(titleSeveral)
)

func caseTable(entries string) map[rune]string {
	table := make(map[rune]string)
	for _, e := range strings.Fields(entries) {
		r, n := utf8.DecodeRuneInString(e)
		table[r] = e[n:]
	}
	return table
}

func mapped(s string, table map[rune]string, one func(rune) rune) string {
	var b strings.Builder
	for _, r := range s {
		if several, ok := table[r]; ok {
			b.WriteString(several)
		} else {
			b.WriteRune(one(r))
		}
	}
	return b.String()
}

// Upper is str.upper.
func Upper(s string) string { return mapped(s, upperTable, unicode.ToUpper) }

// Lower is str.lower, which knows the sigma at the end of a word.
func Lower(s string) string {
	if IsASCII(s) {
		return strings.ToLower(s)
	}
	return lowerPart(s, 0, len(s))
}

// lowerPart is lower of a part of a string, whose neighbours say where words end.
func lowerPart(s string, from, to int) string {
	var b strings.Builder
	for i, r := range s[from:to] {
		i += from
		switch {
		case r == 'İ':
			b.WriteString("i\u0307")
		case r == 'Σ' && finalSigma(s[:i], s[i+len("Σ"):]):
			b.WriteRune('ς')
		default:
			b.WriteRune(unicode.ToLower(r))
		}
	}
	return b.String()
}

// CaseFold is str.casefold: lower, with what is one letter in upper case made one, such as ß and ss. Cherokee folds upwards.
func CaseFold(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == 'ı':
			b.WriteRune(r)
		case unicode.Is(unicode.Cherokee, r):
			b.WriteString(Upper(string(r)))
		default:
			for _, u := range Upper(lowerPart(string(r), 0, len(string(r)))) {
				b.WriteString(Lower(string(u)))
			}
		}
	}
	return b.String()
}

func finalSigma(before, after string) bool {
	ignorable := func(r rune) bool {
		return unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf, unicode.Lm, unicode.Sk) ||
			strings.ContainsRune("'.:^`·’․﹒＇．：", r)
	}
	before = strings.TrimRightFunc(before, ignorable)
	after = strings.TrimLeftFunc(after, ignorable)
	last, _ := utf8.DecodeLastRuneInString(before)
	first, _ := utf8.DecodeRuneInString(after)
	return before != "" && cased(last) && (after == "" || !cased(first))
}

func cased(r rune) bool {
	return unicode.IsUpper(r) || unicode.IsLower(r) || unicode.IsTitle(r)
}

// Capitalize is str.capitalize.
func Capitalize(s string) string {
	_, n := utf8.DecodeRuneInString(s)
	return mapped(s[:n], titleTable, unicode.ToTitle) + lowerPart(s, n, len(s))
}

// Title is str.title: a letter after what has no case begins a word.
func Title(s string) string {
	var b strings.Builder
	inWord := false
	lowered := 0 // where the word's rest begins that is still to be made lower
	flush := func(end int) {
		b.WriteString(lowerPart(s, lowered, end))
	}
	for i, r := range s {
		if c := cased(r); c && !inWord {
			flush(i)
			b.WriteString(mapped(string(r), titleTable, unicode.ToTitle))
			lowered = i + utf8.RuneLen(r)
			inWord = true
		} else {
			inWord = c
		}
	}
	flush(len(s))
	return b.String()
}

// SwapCase is str.swapcase.
func SwapCase(s string) string {
	var b strings.Builder
	for i, r := range s {
		switch {
		case unicode.IsUpper(r):
			b.WriteString(lowerPart(s, i, i+utf8.RuneLen(r)))
		case unicode.IsLower(r):
			b.WriteString(Upper(string(r)))
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// IsASCII is str.isascii.
func IsASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// Every is what Python's is… methods ask: at least one character, and all of a kind.
func Every(s string, f func(rune) bool) bool {
	return s != "" && strings.IndexFunc(s, func(r rune) bool { return !f(r) }) < 0
}

// IsDigit reports whether str.isdigit takes a character.
func IsDigit(r rune) bool {
	return unicode.Is(unicode.Nd, r) || strings.ContainsRune("²³¹", r) || r == 0x2070 || r >= 0x2074 && r <= 0x2079 ||
		r >= 0x2080 && r <= 0x2089 || r >= 0x2460 && r <= 0x2468
}

// CasedAs is islower and isupper: something has case, and nothing has another.
func CasedAs(s string, is func(rune) bool) bool {
	found := false
	for _, r := range s {
		if !cased(r) {
			continue
		}
		if !is(r) {
			return false
		}
		found = true
	}
	return found
}

// IsTitle is istitle.
func IsTitle(s string) bool {
	found, inWord := false, false
	for _, r := range s {
		switch {
		case unicode.IsUpper(r) || unicode.IsTitle(r):
			if inWord {
				return false
			}
			found, inWord = true, true
		case unicode.IsLower(r):
			if !inWord {
				return false
			}
		default:
			inWord = false
		}
	}
	return found
}
