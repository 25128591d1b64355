package planned

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/optimem/optimem/plan"
)

// TestRows: parts of a module are one row where they follow each other in the same place, with their sums, and apart where they
// do not, or on request.
func TestRows(t *testing.T) {
	part := func(path string, k int, paged bool) plan.Group {
		g := plan.Group{
			Path: path, Params: 10, WeightBytes: 40, Seconds: 0.5, FirstRow: 8 * k, EndRow: 8*k + 8,
			SlotBytes: int64(64 + k), SlotOffset: 128, LoadSeconds: 0.25,
		}
		if paged {
			g.Parts = []plan.Part{{}}
		}
		return g
	}
	p := &plan.Plan{Groups: []plan.Group{
		part("a", 0, true), part("a", 1, true), part("a", 2, true), part("b", 0, false), part("b", 1, false), part("b", 2, true),
		{Path: "c", Params: 10, WeightBytes: 40, Seconds: 0.5}, {Path: "c", Params: 10, WeightBytes: 40, Seconds: 0.5},
	}}
	text := func(verbose bool) (list [][]string) {
		for _, row := range rowsOf(p, "cpu", verbose) {
			list = append(list, row.cells(2))
		}
		return list
	}
	if diff := cmp.Diff([][]string{
		{"a in 3 parts", "30", "120 B", "paged", "66 B", "", "750 ms", "3 s"},
		{"b 1-2/3", "20", "80 B", "resident", "", "", "", "2 s"},
		{"b 3/3", "10", "40 B", "paged", "66 B", "128 B", "250 ms", "1 s"},
		{"c", "10", "40 B", "resident", "", "", "", "1 s"},
		{"c", "10", "40 B", "resident", "", "", "", "1 s"},
	}, text(false)); diff != "" {
		t.Error(diff)
	}
	all := text(true)
	if len(all) != len(p.Groups) || all[1][0] != "a 2/3" || all[1][4] != "65 B" {
		t.Errorf("with --verbose %q", all)
	}
}
