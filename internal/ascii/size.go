package ascii

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
)

// units in the order of their factors; a unit's name is matched without regard to case.
var units = []struct {
	name  string
	bytes int64
}{
	{"", 1}, {"B", 1},
	{"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"PB", 1e15}, {"EB", 1e18},
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}, {"PiB", 1 << 50}, {"EiB", 1 << 60},
}

// FormatSize writes a number of bytes with a binary unit and two decimals: "1.50 GiB". Below 1 KiB it is exact.
func FormatSize(sizeBytes int64) string {
	n := math.Abs(float64(sizeBytes))
	if n < 1024 {
		return fmt.Sprintf("%d B", sizeBytes)
	}
	sign := ""
	if sizeBytes < 0 {
		sign = "-"
	}
	const prefixes = "KMGTPE"
	i := 0
	// 1023.995 and up would be written as 1024.00 of the smaller unit.
	for n /= 1024; n >= 1023.995 && i < len(prefixes)-1; i++ {
		n /= 1024
	}
	return fmt.Sprintf("%s%.2f %ciB", sign, n, prefixes[i])
}

// FormatCount writes a number with its digits in groups of three: "25,557,032".
func FormatCount(n int64) string {
	s := strconv.FormatInt(n, 10)
	digits := strings.TrimPrefix(s, "-")
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return s[:len(s)-len(strings.TrimPrefix(s, "-"))] + digits
}

// errSize ends every error of ParseSize with what would have been right.
var errSize = errors.New("write sizes as 2GiB, 500MB or 1e9")

// ParseSize reads a number of bytes: "2GiB" and "500MB" with a binary or a decimal unit, "1e9" or "4096" without. A
// fraction of a byte is rounded to the nearest. Units that could mean either factor ("2G") are refused, and so are
// signs and what does not fit an int64.
func ParseSize(s string) (int64, error) {
	fail := func(format string, args ...any) (int64, error) {
		return 0, fmt.Errorf("size %q: %s: %w", s, fmt.Sprintf(format, args...), errSize)
	}
	if strings.HasPrefix(s, "-") {
		return fail("is negative")
	}
	number, unit := cutNumber(s)
	if number == "" {
		return fail("does not begin with a number")
	}
	factor := int64(0)
	for _, u := range units {
		if strings.EqualFold(u.name, unit) {
			factor = u.bytes
		}
	}
	if factor == 0 {
		return fail("unknown unit %q", unit)
	}
	if n, err := strconv.ParseUint(number, 10, 64); err == nil {
		hi, lo := bits.Mul64(n, uint64(factor))
		if hi != 0 || lo > math.MaxInt64 {
			return fail("is more than 2^63 bytes")
		}
		return int64(lo), nil
	}
	x, err := strconv.ParseFloat(number, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return fail("%q is not a number", number)
	}
	if x = math.Round(x * float64(factor)); x >= math.MaxInt64 {
		return fail("is more than 2^63 bytes")
	}
	return int64(x), nil
}

// cutNumber splits a size into number and unit. An "e" belongs to the number where digits follow, so that 1e9 has an
// exponent and 1EB a unit. One space may stand between, as [FormatSize] writes it.
func cutNumber(s string) (number, unit string) {
	digit := func(i int) bool { return i < len(s) && '0' <= s[i] && s[i] <= '9' }
	i := 0
	for digit(i) || i > 0 && i < len(s) && s[i] == '.' {
		i++
	}
	if i > 0 && i < len(s) && (s[i] == 'e' || s[i] == 'E') {
		j := i + 1
		if j < len(s) && (s[j] == '+' || s[j] == '-') {
			j++
		}
		for digit(j) {
			j++
			i = j
		}
	}
	return s[:i], strings.TrimPrefix(s[i:], " ")
}

// FormatShare formats how much of a whole a part is, in per cent.
func FormatShare(part, whole int64) string {
	if whole == 0 {
		return "–"
	}
	return fmt.Sprintf("%.1f %%", 100*float64(part)/float64(whole))
}
