package models

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/models/internal/zoo"
)

var rewriteNN = flag.Bool("rewrite-nn", false, "write NN.md")

// TestNNTable keeps NN.md equal to what is known of the classes of torch.nn.
func TestNNTable(t *testing.T) {
	const recorded = "testdata/nn/nn.json.gz"
	cases, err := zoo.Modules(recorded)
	if err != nil {
		t.Fatal(err)
	}
	names, err := zoo.Classes(recorded)
	if err != nil || len(names) < 150 {
		t.Fatalf("%d classes: %v", len(names), err)
	}
	runs := make(map[string]int)
	for _, c := range cases {
		if c.Refused == "" {
			runs[c.Module.Class]++
		}
	}
	var b strings.Builder
	b.WriteString("# Classes of torch.nn\n\nMade by `go test ./models -run TestNNTable -rewrite-nn`: every class of " +
		"`torch.nn` in a file that `torch.save(model)` wrote, and how many recorded modules of it are compared with PyTorch.\n\n" +
		"| class | | compared |\n|---|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(names)) {
		class := names[name]
		_, known := layers.NN()[class]
		state, count := "", ""
		switch {
		case known && runs[class] > 0:
			state, count = "yes", fmt.Sprint(runs[class])
		case known && strings.Contains(class, ".loss."):
			state = "may be in a model, is not run"
		case known:
			state = "yes, holds others"
		case strings.HasPrefix(name, "Lazy"):
			state = "yes, once it has seen an input; before, it has no sizes"
		case layers.Refusal(class) != "":
			state = "refused: " + layers.Refusal(class)
		case name == "Module" || name == "Container" || strings.HasSuffix(name, "Base"):
			continue // not run by itself in Python either
		default:
			t.Errorf("%s (%s) neither runs nor is refused", name, class)
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", name, state, count)
	}
	if *rewriteNN {
		if err := os.WriteFile("NN.md", []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile("NN.md")
	if err != nil {
		t.Fatal(err)
	}
	if string(text) != b.String() {
		t.Error("NN.md is not what the classes are: run with -rewrite-nn")
	}
}
