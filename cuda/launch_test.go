//go:build linux && (amd64 || arm64) && !nocuda

package cuda_test

import (
	"errors"
	"sync"
	"testing"

	"github.com/optimem/optimem/cuda"
	"github.com/optimem/optimem/cuda/kernels"
	"github.com/optimem/optimem/device/devicetest"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/internal/cpu"
	"github.com/optimem/optimem/tensor"
)

// TestTooManyBlocks: numbers of blocks that no driver takes, and those that would be others as the driver counts, are errors.
func TestTooManyBlocks(t *testing.T) {
	dev, _ := openSimulated(t, "")
	s, err := dev.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, blocks := range [][3]int64{{1 << 31, 1, 1}, {1<<32 + 1, 1, 1}, {1, 1 << 16, 1}, {1, 1, 1 << 16}} {
		if err := cuda.Blocks(s, blocks[0], blocks[1], blocks[2]); !errors.Is(err, graph.ErrUnsupported) {
			t.Errorf("%d: %v", blocks, err)
		}
	}
}

// TestManySequences walks more sequences than a grid has blocks downwards.
func TestManySequences(t *testing.T) {
	if testing.Short() {
		t.Skip("many threads")
	}
	const sequences = 4*65535 + 5
	dev, _ := open(t, "order=lazy:1 memory=256M")
	pool := cpu.NewPool(2)
	defer pool.Close()
	f32 := tensor.Float32
	x, state := numbers(f32, 1, sequences, 1), numbers(f32, 1, sequences, 1)
	in := []*tensor.Tensor{x, nil, state, nil, numbers(f32, 1, 1), numbers(f32, 1, 1), nil, nil, nil}
	w := &written{&graph.Graph{Modules: make(map[string]graph.Operand)}, t}
	w.Outputs = []graph.Output{{Name: "y", Operand: w.op("rnn", graph.Attrs{"nonlinearity": "tanh"}, operandsOf(w, in)...)}}
	got := w.result(dev, w.Graph)
	want, err := cpu.Interpret(t.Context(), pool, graph.Standard(), w.Graph, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := devicetest.Compare(got, want["y"], 1e-6); err != nil {
		t.Error(err)
	}
}

// TestKernelsAreLoadedOnce: a kernel that several streams ask for at once is compiled once.
func TestKernelsAreLoadedOnce(t *testing.T) {
	dev, lib := openSimulated(t, "")
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if err := dev.LoadKernels(); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := lib.Report().Left["modules"]; n != len(kernels.Names()) {
		t.Errorf("%d modules of %d kernels", n, len(kernels.Names()))
	}
}
