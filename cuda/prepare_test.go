//go:build linux && (amd64 || arm64) && !nocuda

package cuda_test

import (
	"testing"

	"github.com/optimem/optimem/cuda"
	"github.com/optimem/optimem/device/devicetest"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/models/aten"
)

// TestPrepareLoadsWhatRuns: of PyTorch's recorded calls of every kind, none loads a kernel that was not prepared, and none is prepared
// that it does not load.
func TestPrepareLoadsWhatRuns(t *testing.T) {
	cases, err := devicetest.Cases()
	if err != nil {
		t.Fatal(err)
	}
	dev, lib := openSimulated(t, "memory=64M cc=80")
	seen, most := make(map[graph.Kind]int), 3
	if testing.Short() {
		most = 1
	}
	for _, c := range cases {
		g, err := aten.BuildCall(graph.Standard(), c.Target, c.Args)
		if err != nil || len(g.Ops) != 1 {
			continue
		}
		kind := g.Ops[0].Kind
		l, err := cuda.Lower(g)
		if err != nil || seen[kind] == most {
			continue // some of a kind
		}
		seen[kind]++
		if err := dev.Rest(); err != nil { // nothing is loaded
			t.Fatal(err)
		}
		dev.Prepared(l)
		before := lib.Report().Left["modules"]
		if _, err := interpret(t.Context(), dev, l, c.Inputs); err != nil {
			t.Fatalf("%s%v: %v", c.Target, c.Args, err)
		}
		if after := lib.Report().Left["modules"]; after != before {
			t.Errorf("%s (%s): %d kernels were prepared, %d ran", c.Target, kind, before, after)
		}
	}
	if len(seen) < 50 {
		t.Errorf("%d kinds", len(seen))
	}
}
