// Package ascii formats tables with aligned columns, and sizes in binary units.
//
// It does not know what the cells mean, and does not print. Cells may come from an untrusted file: characters that
// could move the cursor, change colours or reorder text are escaped.
//
//	t := ascii.NewTable(ascii.Left("name"), ascii.Left("dtype"), ascii.Right("bytes"))
//	t.Row("fc.weight", "float32", ascii.FormatSize(20480))
//	fmt.Fprint(w, t)
package ascii

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A Column is a title and the side to which its cells are aligned.
type Column struct {
	Title string
	Right bool
}

// Left returns a column of text.
func Left(title string) Column { return Column{Title: title} }

// Right returns a column of numbers.
func Right(title string) Column { return Column{Title: title, Right: true} }

// A Table collects rows and aligns them once all are known. Columns are two spaces apart; no line ends in spaces.
type Table struct {
	// Rule draws a line of dashes under the titles.
	Rule bool

	columns []Column
	rows    [][]string
	widths  []int
}

// NewTable returns an empty table. Without any title it prints its rows only.
func NewTable(columns ...Column) *Table {
	t := &Table{columns: columns, widths: make([]int, len(columns))}
	for i, c := range columns {
		t.widths[i] = width(c.Title)
	}
	return t
}

// Row appends a row. Missing cells are empty; a cell too many is a bug of the caller.
func (t *Table) Row(cells ...string) {
	if len(cells) > len(t.columns) {
		panic(fmt.Sprintf("BUG: row of %d cells in a table of %d columns", len(cells), len(t.columns)))
	}
	row := make([]string, len(cells))
	for i, cell := range cells {
		row[i] = Printable(cell)
		t.widths[i] = max(t.widths[i], width(row[i]))
	}
	t.rows = append(t.rows, row)
}

// Len returns the number of rows.
func (t *Table) Len() int { return len(t.rows) }

// String returns the table, each line ended by a newline.
func (t *Table) String() string {
	var b strings.Builder
	titles := make([]string, len(t.columns))
	rules := make([]string, len(t.columns))
	titled := false
	for i, c := range t.columns {
		titles[i] = c.Title
		rules[i] = strings.Repeat("-", t.widths[i])
		titled = titled || c.Title != ""
	}
	if titled {
		t.line(&b, titles)
		if t.Rule {
			t.line(&b, rules)
		}
	}
	for _, row := range t.rows {
		t.line(&b, row)
	}
	return b.String()
}

// line writes one row, holding back spaces until something follows them.
func (t *Table) line(b *strings.Builder, cells []string) {
	pending := 0
	for i, cell := range cells {
		if i > 0 {
			pending += 2
		}
		fill := t.widths[i] - width(cell)
		if t.columns[i].Right {
			pending += fill
			fill = 0
		}
		if cell != "" {
			b.WriteString(strings.Repeat(" ", pending))
			b.WriteString(cell)
			pending = 0
		}
		pending += fill
	}
	b.WriteByte('\n')
}

// Printable returns s with every character that a terminal would act on (control characters, escape sequences,
// bidirectional overrides, line breaks, invalid UTF-8) written as an escape.
func Printable(s string) string {
	clean := true
	for _, r := range s {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			clean = false
			break
		}
	}
	if clean {
		return s
	}
	quoted := strconv.Quote(s)
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}

// width returns the number of terminal cells that s takes: two for East Asian wide characters and emoji, none for
// combining marks. It does not join emoji sequences.
func width(s string) int {
	n := 0
	for _, r := range s {
		switch {
		case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		case wide(r):
			n += 2
		default:
			n++
		}
	}
	return n
}

// wide covers the blocks that Unicode's EastAsianWidth lists as W or F, coarsely.
func wide(r rune) bool {
	return r >= 0x1100 && (r <= 0x115f || // Hangul initials
		r >= 0x2e80 && r <= 0xa4cf && r != 0x303f || // CJK, kana, Yi
		r >= 0xac00 && r <= 0xd7a3 || // Hangul syllables
		r >= 0xf900 && r <= 0xfaff || r >= 0xfe30 && r <= 0xfe6f || // CJK compatibility
		r >= 0xff00 && r <= 0xff60 || r >= 0xffe0 && r <= 0xffe6 || // full-width forms
		r >= 0x1f300 && r <= 0x1f64f || r >= 0x1f900 && r <= 0x1f9ff || // emoji
		r >= 0x20000 && r <= 0x3fffd)
}
