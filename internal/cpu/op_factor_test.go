package cpu_test

import (
	"errors"
	"testing"

	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu"
	"github.com/optimem/optimem/tensor"
)

// TestSingularMatrices: where an inverse must exist, the error says which matrix has none, and at which pivot that shows.
func TestSingularMatrices(t *testing.T) {
	pool := cpu.NewPool(2)
	defer pool.Close()
	a := tensor.Of([]float32{1, 2, 3, 4, 1, 2, 2, 4, 0, 0, 0, 1}, 3, 2, 2)
	_, err := cpu.Compute(t.Context(), pool, graph.Standard(), "lu_factor", graph.Attrs{"strict": true}, a)
	var singular *graph.SingularError
	if !errors.As(err, &singular) || *singular != (graph.SingularError{Matrix: 1, Pivot: 1}) {
		t.Errorf("got %v", err)
	}
	out, err := cpu.Compute(t.Context(), pool, graph.Standard(), "lu_factor", nil, a)
	if err != nil {
		t.Fatal(err)
	}
	if info := out[2].Data; info[0] != 0 || info[4] != 2 || info[8] != 1 {
		t.Errorf("info % x, want 0, 2 and 1", info)
	}
}

// TestPivotsAreChecked: pivots that a caller gives are indices, and one outside the matrix is an error.
func TestPivotsAreChecked(t *testing.T) {
	pool := cpu.NewPool(1)
	defer pool.Close()
	one := tensor.Of([]float64{1, 0, 0, 1}, 2, 2)
	for _, p := range []int32{0, -1, 3} {
		_, err := cpu.Compute(t.Context(), pool, graph.Standard(), "lu_solve", nil, one, tensor.Of([]int32{1, p}, 2), one)
		var index *graph.IndexError
		if !errors.As(err, &index) {
			t.Errorf("pivot %d: %v", p, err)
		}
	}
}
