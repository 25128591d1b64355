//go:build linux && (amd64 || arm64) && !nocuda

package runtime

import (
	"path/filepath"
	"testing"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/storage"
	"github.com/optimem/optimem/tensor"
)

// TestExactOnGPU: a large convolution is planned by Winograd's algorithm, and with Exact is not.
func TestExactOnGPU(t *testing.T) {
	g := &graph.Graph{Modules: make(map[string]graph.Operand)}
	in := []graph.Operand{
		g.Whole(g.AddInput("x", tensor.Float32, tensor.Shape{16, 256, 32, 32})),
		{Value: g.AddWeight(tensor.Weight{DType: tensor.Float32, Extent: storage.Extent{Bytes: 4 * 256 * 256 * 9}}, graph.Weight),
			Layout: tensor.Contiguous(256, 256, 3, 3)},
		graph.Absent,
	}
	out, err := g.Emit(graph.Standard(), graph.Op{Kind: "conv", In: in, Attrs: graph.Attrs{
		"stride": []int{1, 1}, "padding": []int{1, 1}, "dilation": []int{1, 1}, "groups": 1,
	}})
	if err != nil {
		t.Fatal(err)
	}
	g.Outputs = []graph.Output{{Name: "y", Operand: g.Whole(out[0])}}
	for exact, want := range map[bool]string{false: "conv_winograd", true: "conv"} {
		o := Options{Device: "cuda", CUDALibrary: filepath.Join(t.TempDir(), "none"), PlanOnly: true, Memory: 1 << 30, Exact: exact}
		s, err := Auto(t.Context(), new(models.Model), o)
		if err != nil {
			t.Fatal(err)
		}
		p, err := s.program(t.Context(), g)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.lowered.Steps[0].Kernel; got != want {
			t.Errorf("exact %v: %s", exact, got)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
