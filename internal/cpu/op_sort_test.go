package cpu_test

import (
	"bytes"
	"testing"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu"
	"github.com/optimem/optimem/tensor"
)

// TestLongRowsAreSortedApart: threads that sort long rows at the same time do so in memory of their own.
func TestLongRowsAreSortedApart(t *testing.T) {
	const rows, width = 24, 20_000
	data := make([]float32, rows*width)
	for i := range data {
		data[i] = float32(uint32(i)*2654435761%100_003) + float32(i/width)
	}
	x := tensor.Of(data, rows, width)
	one, four := cpu.NewPool(1), cpu.NewPool(4)
	defer one.Close()
	defer four.Close()
	attrs := graph.Attrs{"dim": 1}
	want, err := cpu.Compute(t.Context(), one, graph.Standard(), "sort", attrs, x)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		got, err := cpu.Compute(t.Context(), four, graph.Standard(), "sort", attrs, x)
		if err != nil {
			t.Fatal(err)
		}
		for i := range want {
			if !bytes.Equal(got[i].Data, want[i].Data) {
				t.Fatalf("result %d has other bits on four threads", i)
			}
		}
	}
}
