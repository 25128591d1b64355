package models

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/optimem/optimem/models/aten"
)

var rewriteOps = flag.Bool("rewrite-ops", false, "write OPS.md")

// TestOpsTable keeps OPS.md equal to the tables of this package.
func TestOpsTable(t *testing.T) {
	var b strings.Builder
	b.WriteString("# Ops\n\nMade by `go test ./models -run TestOpsTable -rewrite-ops`: every overload that an exported program " +
		"may call, and those that are refused, with the reason. Where an op takes fewer dtypes or arguments than PyTorch's, " +
		"the error says so when the program is built.\n\n| op | |\n|---|---|\n")
	rows := make(map[string]string)
	for name, what := range aten.Table() {
		rows[short(name)] = what
	}
	for name := range higherOrder {
		rows[short(name)] = "yes"
	}
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		fmt.Fprintf(&b, "| `%s` | %s |\n", name, rows[name])
	}
	if *rewriteOps {
		if err := os.WriteFile("OPS.md", []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile("OPS.md")
	if err != nil {
		t.Fatal(err)
	}
	if string(text) != b.String() {
		t.Error("OPS.md is not what the tables say: run with -rewrite-ops")
	}
}

func short(target string) string { return strings.TrimPrefix(target, "torch.ops.") }
