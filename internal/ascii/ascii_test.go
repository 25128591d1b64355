package ascii

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
)

func TestTable(t *testing.T) {
	tests := []struct {
		name    string
		columns []Column
		rule    bool
		rows    [][]string
		want    string
	}{{
		name:    "text left, numbers right",
		columns: []Column{Left("name"), Left("shape"), Right("bytes")},
		rows:    [][]string{{"fc.weight", "[10 512]", "20480"}, {"fc.bias", "[10]", "40"}},
		want: `
name       shape     bytes
fc.weight  [10 512]  20480
fc.bias    [10]         40
`,
	}, {
		name:    "rule",
		columns: []Column{Left("a"), Right("bytes")},
		rule:    true,
		rows:    [][]string{{"long name", "1"}},
		want: `
a          bytes
---------  -----
long name      1
`,
	}, {
		name:    "short rows and empty cells leave no spaces at the end",
		columns: []Column{Left("name"), Left("note"), Right("n"), Left("last")},
		rows:    [][]string{{"a"}, {"b", "", "7"}, {"c", "", "", "x"}, {}},
		want: `
name  note  n  last
a
b           7
c              x

`,
	}, {
		name:    "no titles, no header",
		columns: []Column{Left(""), Right("")},
		rule:    true,
		rows:    [][]string{{"tensors", "12"}, {"bytes", "4096"}},
		want: `
tensors    12
bytes    4096
`,
	}, {
		name:    "wide characters and combining marks",
		columns: []Column{Left("name"), Right("n")},
		rows:    [][]string{{"重み", "1"}, {"cafe\u0301", "22"}, {"ascii", "3"}},
		want:    "\nname    n\n重み    1\ncafe\u0301   22\nascii   3\n",
	}, {
		name:    "what a terminal would act on is escaped",
		columns: []Column{Left("name"), Right("n")},
		rows:    [][]string{{"a\x1b[31mred\nb", "1"}, {"\u202egnp", "2"}, {"\xff", "3"}, {`say "hi"`, "4"}},
		want: `
name             n
a\x1b[31mred\nb  1
\u202egnp        2
\xff             3
say "hi"         4
`,
	}}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			table := NewTable(tt.columns...)
			table.Rule = tt.rule
			for _, row := range tt.rows {
				table.Row(row...)
			}
			if got := "\n" + table.String(); got != tt.want {
				t.Errorf("got:%swant:%s", got, tt.want)
			}
			if table.Len() != len(tt.rows) {
				t.Errorf("Len() = %d, want %d", table.Len(), len(tt.rows))
			}
		})
	}
}

func TestRowTooLong(t *testing.T) {
	defer func() {
		if r := recover(); r == nil || !strings.HasPrefix(fmt.Sprint(r), "BUG: ") {
			t.Errorf("recovered %v, want a BUG: panic", r)
		}
	}()
	NewTable(Left("a")).Row("1", "2")
}

func TestFormatSize(t *testing.T) {
	for _, tt := range []struct {
		bytes int64
		want  string
	}{
		{0, "0 B"}, {1, "1 B"}, {1023, "1023 B"}, {1024, "1.00 KiB"}, {1536, "1.50 KiB"},
		{1<<20 - 1, "1.00 MiB"}, {1 << 20, "1.00 MiB"}, {1<<20 - 6000, "1018.14 KiB"},
		{3 << 29, "1.50 GiB"}, {100e9, "93.13 GiB"}, {1 << 40, "1.00 TiB"}, {1 << 50, "1.00 PiB"},
		{math.MaxInt64, "8.00 EiB"}, {-2048, "-2.00 KiB"}, {-5, "-5 B"}, {math.MinInt64, "-8.00 EiB"},
	} {
		if got := FormatSize(tt.bytes); got != tt.want {
			t.Errorf("FormatSize(%d) = %q, want %q", tt.bytes, got, tt.want)
		}
	}
}

func TestFormatCount(t *testing.T) {
	for _, tt := range []struct {
		n    int64
		want string
	}{
		{0, "0"}, {999, "999"}, {1000, "1,000"}, {25557032, "25,557,032"}, {-1000, "-1,000"}, {-100, "-100"},
		{math.MinInt64, "-9,223,372,036,854,775,808"},
	} {
		if got := FormatCount(tt.n); got != tt.want {
			t.Errorf("FormatCount(%d) = %q, want %q", tt.n, got, tt.want)
		}
	}
}

func TestParseSize(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want int64
	}{
		{"0", 0}, {"4096", 4096}, {"1e9", 1e9}, {"1E9", 1e9}, {"1e+3", 1000}, {"25e-1", 3}, {"2.5e3", 2500},
		{"2GiB", 2 << 30}, {"500MB", 500e6}, {"1.5GiB", 3 << 29}, {"1.50 GiB", 3 << 29}, {"2gib", 2 << 30},
		{"10B", 10}, {"1kB", 1000}, {"1KB", 1000}, {"1KiB", 1024}, {"3MiB", 3 << 20}, {"1GB", 1e9},
		{"1TB", 1e12}, {"1TiB", 1 << 40}, {"1PB", 1e15}, {"1PiB", 1 << 50}, {"1EB", 1e18}, {"7EiB", 7 << 60},
		{"0.29GB", 290e6}, {"1e3kB", 1e6}, {"9007199254740993", 1<<53 + 1}, {"9223372036854775807", math.MaxInt64},
		{"0e999999999", 0},
	} {
		got, err := ParseSize(tt.in)
		if err != nil || got != tt.want {
			t.Errorf("ParseSize(%q) = %d, %v, want %d", tt.in, got, err, tt.want)
		}
	}
}

func TestParseSizeRefuses(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{"", "does not begin with a number"},
		{"GiB", "does not begin with a number"},
		{".5GiB", "does not begin with a number"},
		{"+1", "does not begin with a number"},
		{" 1", "does not begin with a number"},
		{"NaN", "does not begin with a number"},
		{"inf", "does not begin with a number"},
		{"-1", "is negative"},
		{"-2GiB", "is negative"},
		{"2G", `unknown unit "G"`},
		{"2Gi", `unknown unit "Gi"`},
		{"0x10", `unknown unit "x10"`},
		{"1_000", `unknown unit "_000"`},
		{"1  GiB", `unknown unit " GiB"`},
		{"1 GiB ", `unknown unit "GiB "`},
		{"2GiBs", `unknown unit "GiBs"`},
		{"1e", `unknown unit "e"`},
		{"1e+", `unknown unit "e+"`},
		{"1.2.3", `"1.2.3" is not a number`},
		{"8EiB", "is more than 2^63 bytes"},
		{"1e19", "is more than 2^63 bytes"},
		{"1e999", "is more than 2^63 bytes"},
		{"9223372036854775808", "is more than 2^63 bytes"},
		{"18446744073709551616", "is more than 2^63 bytes"},
		{"18446744073709551615EB", "is more than 2^63 bytes"},
		{"9.5EiB", "is more than 2^63 bytes"},
	} {
		got, err := ParseSize(tt.in)
		if !errors.Is(err, errSize) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("ParseSize(%q) = %d, %v, want an error with %q", tt.in, got, err, tt.want)
		}
	}
}

// What is printed can be typed back, to the precision that is printed.
func TestSizesRoundTrip(t *testing.T) {
	for n := int64(1); n > 0 && n < 1<<62; n = n*3 + 1 {
		got, err := ParseSize(FormatSize(n))
		if err != nil {
			t.Fatalf("ParseSize(FormatSize(%d)): %v", n, err)
		}
		if diff := math.Abs(float64(got-n)) / float64(n); diff > 0.005 {
			t.Errorf("%d came back as %d", n, got)
		}
	}
}
