package cuda

import (
	"testing"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/tensor"
)

// inDetectors is why ops of detection have no kernel.
const inDetectors = "detectors go from boxes to indices and back, and wait for the CPU there"

// withoutKernel are the ops that a GPU does not run, and why.
var withoutKernel = map[graph.Kind]string{
	"lu_factor": "each column waits for the one before",
	"lu_solve":  "each row waits for the one before",
	"roi_align": inDetectors, "roi_pool": inDetectors, "deform_columns": inDetectors, "nms": inDetectors, "heatmap_peaks": inDetectors,
}

// TestEveryOpHasAKernel hides no op that is missing.
func TestEveryOpHasAKernel(t *testing.T) {
	for _, kind := range graph.Standard().Kinds() {
		_, has := table[kind]
		if why, known := withoutKernel[kind]; has == known {
			t.Errorf("%s: has a kernel: %v, known to have none: %q", kind, has, why)
		}
	}
	for kind, k := range table {
		if _, ok := graph.Standard().Lookup(kind); !ok || k.launch == nil {
			t.Errorf("%s: no op of that name, or no launch", kind)
		}
	}
}

// TestLowerNeedsNoGPU lowers where there is no driver, and refuses what has no kernel by name.
func TestLowerNeedsNoGPU(t *testing.T) {
	g := &graph.Graph{}
	x := g.AddInput("x", tensor.Float32, tensor.Shape{2, 3})
	y, err := g.Emit(graph.Standard(), graph.Op{Kind: "relu", Path: "act", In: []graph.Operand{g.Whole(x)}})
	if err != nil {
		t.Fatal(err)
	}
	g.Outputs = []graph.Output{{Name: "y", Operand: g.Whole(y[0])}}
	l, err := Lower(g)
	if err != nil || len(l.Steps) != 1 || l.Steps[0].Kernel == "" {
		t.Fatalf("%+v: %v", l, err)
	}
	g.Ops[0].Kind = "levitate"
	const want = "act: levitate: not supported by the device: there is no CUDA kernel for levitate"
	if _, err := Lower(g); err == nil || err.Error() != want {
		t.Error(err)
	}
}
