package python

import (
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// FloatRepr is repr of a float: the shortest digits, an exponent below -4 and from 16 on.
func FloatRepr(f float64) string {
	switch {
	case math.IsNaN(f):
		return "nan"
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	}
	s := strconv.FormatFloat(f, 'e', -1, 64)
	mantissa, exponent, _ := strings.Cut(s, "e")
	if e, _ := strconv.Atoi(exponent); f == 0 || e >= -4 && e < 16 {
		s = strconv.FormatFloat(f, 'f', -1, 64)
		if !strings.Contains(s, ".") {
			s += ".0"
		}
		return s
	}
	return mantissa + "e" + exponent
}

// Quote is repr of a string.
func Quote(s string) string {
	q := byte('\'')
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		q = '"'
	}
	const digits = "0123456789abcdef"
	b := make([]byte, 0, len(s)+2)
	b = append(b, q)
	for _, r := range s {
		switch {
		case r == rune(q) || r == '\\':
			b = append(b, '\\', byte(r))
		case r == '\n':
			b = append(b, `\n`...)
		case r == '\r':
			b = append(b, `\r`...)
		case r == '\t':
			b = append(b, `\t`...)
		case unicode.IsPrint(r):
			b = append(b, string(r)...)
		case r < 0x100:
			b = append(b, '\\', 'x', digits[r>>4], digits[r&15])
		case r < 0x10000:
			b = append(b, '\\', 'u')
			for shift := 12; shift >= 0; shift -= 4 {
				b = append(b, digits[r>>shift&15])
			}
		default:
			b = append(b, '\\', 'U')
			for shift := 28; shift >= 0; shift -= 4 {
				b = append(b, digits[r>>shift&15])
			}
		}
	}
	return string(append(b, q))
}

// SplitLines is str.splitlines.
func SplitLines(s string, keep bool) []string {
	var lines []string
	from := 0
	for i := 0; i < len(s); {
		r, n := FirstRune(s[i:])
		switch {
		case r == '\r' && strings.HasPrefix(s[i:], "\r\n"):
			n = 2
		case r >= '\n' && r <= '\r', r >= 0x1c && r <= 0x1e, r == 0x85, r == 0x2028, r == 0x2029:
		default:
			i += n
			continue
		}
		end := i
		i += n
		if keep {
			end = i
		}
		lines = append(lines, s[from:end])
		from = i
	}
	if from < len(s) {
		lines = append(lines, s[from:])
	}
	return lines
}

// TitleWords is the filter title, which knows other words than str.title.
func TitleWords(s string) string {
	var b strings.Builder
	separates := func(r rune) bool { return IsSpace(r) || strings.ContainsRune("-({[<", r) }
	for s != "" {
		n := strings.IndexFunc(s, separates)
		if n == 0 {
			n = len(s) - len(strings.TrimLeftFunc(s, separates))
		} else if n < 0 {
			n = len(s)
		}
		_, first := FirstRune(s)
		b.WriteString(Upper(s[:first]) + Lower(s[first:n]))
		s = s[n:]
	}
	return b.String()
}

// IsIdentifier is str.isidentifier.
func IsIdentifier(s string) bool {
	for i, r := range s {
		if r != '_' && !unicode.IsLetter(r) && (i == 0 || !unicode.In(r, unicode.Nd, unicode.Mn, unicode.Mc)) {
			return false
		}
	}
	return s != ""
}

// IsSpace reports whether str.isspace takes a character.
func IsSpace(r rune) bool {
	return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f
}

// FirstRune returns the first character of a string and its length.
func FirstRune(s string) (rune, int) {
	for _, r := range s {
		return r, runeBytes(s, r)
	}
	return 0, 0
}

// FloatDigits writes a float that is not negative, by a verb of % or format, 0 for none. precision -1: none.
func FloatDigits(f float64, verb byte, precision int, alternate bool) string {
	upperCase := verb == 'E' || verb == 'F' || verb == 'G'
	if math.IsInf(f, 0) || math.IsNaN(f) {
		s := "nan"
		if math.IsInf(f, 0) {
			s = "inf"
		}
		if verb == '%' {
			s += "%"
		}
		if upperCase {
			s = strings.ToUpper(s)
		}
		return s
	}
	given := precision >= 0
	if !given {
		precision = 6
	}
	var s string
	switch verb | 0x20 {
	case 'e':
		s = strconv.FormatFloat(f, 'e', precision, 64)
	case 'f':
		s = strconv.FormatFloat(f, 'f', precision, 64)
	case '%' | 0x20:
		s = strconv.FormatFloat(f*100, 'f', precision, 64) + "%"
	case 'g':
		s = general(f, max(precision, 1), alternate)
	default: // none
		if !given {
			return FloatRepr(f)
		}
		s = general(f, max(precision, 1), false)
		if !strings.ContainsAny(s, ".e") {
			// Like g, with a digit after the point, and one digit less before the exponent sets in.
			if e := decimalExponent(f, max(precision, 1)); e >= precision-1 && e > 0 {
				s = scientific(f, max(precision, 1), false)
			} else {
				s += ".0"
			}
		}
	}
	if alternate && !strings.Contains(s, ".") && verb|0x20 != 'g' {
		mantissa, e, found := strings.Cut(s, "e")
		if s = mantissa + "."; found {
			s += "e" + e
		}
	}
	if upperCase {
		s = strings.ToUpper(s)
	}
	return s
}

func decimalExponent(f float64, precision int) int {
	_, e, _ := strings.Cut(strconv.FormatFloat(f, 'e', precision-1, 64), "e")
	n, err := strconv.Atoi(e)
	if err != nil {
		panic("BUG: no exponent in " + e)
	}
	return n
}

// general is C's %g.
func general(f float64, precision int, keep bool) string {
	e := decimalExponent(f, precision)
	if e < -4 || e >= precision {
		return scientific(f, precision, keep)
	}
	s := strconv.FormatFloat(f, 'f', max(precision-1-e, 0), 64)
	if keep {
		if !strings.Contains(s, ".") {
			s += "."
		}
		return s
	}
	return trimZeros(s)
}

func scientific(f float64, precision int, keep bool) string {
	mantissa, e, _ := strings.Cut(strconv.FormatFloat(f, 'e', precision-1, 64), "e")
	if !keep {
		mantissa = trimZeros(mantissa)
	}
	return mantissa + "e" + e
}

func trimZeros(s string) string {
	if strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	return s
}

func runeBytes(s string, r rune) int {
	if r == utf8.RuneError {
		_, n := utf8.DecodeRuneInString(s)
		return n
	}
	return utf8.RuneLen(r)
}

// Grouped puts a comma between each three digits from the right.
func Grouped(digits, comma string) string {
	var b strings.Builder
	for i, c := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			b.WriteString(comma)
		}
		b.WriteRune(c)
	}
	return b.String()
}

// Truncated returns the first n characters of s, all of them where n is negative.
func Truncated(s string, n int) string {
	if n < 0 || n >= utf8.RuneCountInString(s) {
		return s
	}
	return s[:RuneOffset(s, int64(n))]
}

// RuneOffset returns at which byte rune number n of s begins.
func RuneOffset(s string, n int64) int {
	if IsASCII(s) {
		return int(n)
	}
	for i := range s {
		if n == 0 {
			return i
		}
		n--
	}
	return len(s)
}

// FloatJSON is json.dumps of a float.
func FloatJSON(f float64) string {
	switch {
	case math.IsNaN(f):
		return "NaN"
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	}
	return FloatRepr(f)
}

// IsDecimal reports what str.isdecimal asks of a character.
func IsDecimal(r rune) bool { return unicode.Is(unicode.Nd, r) }
